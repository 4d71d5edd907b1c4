import numpy as np
import pytest

from tipprobe.errors import ParameterError
from tipprobe.probes.rng import keyed_rng
from tipprobe.training.methods import METHODS, get_method, update_weights


def weights(name, hits, n, **changes):
    settings = {"mask_ratio": 0.5, "negative_only": False} | changes
    return update_weights(METHODS[name], np.array(hits), n, rng=keyed_rng(0), **settings)


def test_what_each_method_keeps():
    hits, n = [4, 3, 1, 0], 4
    a, keep = weights("grpo_pcr", hits, n)
    assert keep.all() and a.sum() == pytest.approx(0)
    masked, keep = weights("erpo", hits, n)
    assert (masked == a).all() and keep.tolist() == [False, False, True, True]
    a, keep = weights("nsr_pcr", hits, n)
    assert a.tolist() == [0, 0, -0.5, -1.0] and keep.tolist() == [False, False, True, True]


def test_negative_only_drops_kept_positives():
    hits = [3, 3, 3, 3, 3, 0]
    assert weights("erpo", hits, 3)[1].sum() == 3
    a, keep = weights("erpo", hits, 3, negative_only=True)
    assert keep.sum() == 1 and a[keep][0] < 0


def test_groups_without_a_signal():
    for name in ("grpo_pcr", "erpo"):
        a, _ = weights(name, [2, 2, 2, 2], 4)
        assert not a.any()
    assert weights("erpo", [2, 2, 2, 2], 4)[1].sum() == 2
    assert not weights("nsr_pcr", [0, 0], 0)[1].any()  # no probes: no evidence against anything


def test_labels_are_declared():
    assert METHODS["erpo"].sees == METHODS["nsr_pcr"].sees == "statements only"
    assert METHODS["grpo_oracle"].sees == "hidden tests"
    assert [m for m in METHODS if not METHODS[m].trained] == ["base"]
    assert [m for m in METHODS if METHODS[m].ceiling] == ["erpo"]


def test_unknown_method_names_the_nearest():
    with pytest.raises(ParameterError, match="nearest is 'erpo'"):
        get_method("epro")
