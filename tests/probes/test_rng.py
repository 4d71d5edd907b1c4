from tipprobe.probes.rng import keyed_rng, keyed_seed


def test_keyed_rng_depends_on_every_part():
    draws = {keyed_rng(*p).random() for p in [(0, 1, "a"), (0, 1, "b"), (0, 2, "a"), (1, 1, "a"), (0, "1a")]}
    assert len(draws) == 5
    assert keyed_rng(0, "x").random() == keyed_rng(0, "x").random()
    assert keyed_seed(0, "x") == keyed_seed(0, "x") != keyed_seed(1, "x")
