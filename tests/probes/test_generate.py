import json
from dataclasses import dataclass, field

import pytest

from tipprobe.errors import DataError, ParameterError
from tipprobe.models.types import Completion, PromptTooLong, Sampling
from tipprobe.probes import (
    Probe,
    ProbeSet,
    generate_probes,
    merge_probe_sets,
    mutation_probes,
    probe_header,
    probes_from,
    read_probe_header,
    read_probe_sets,
    write_probe_sets,
)
from tipprobe.problems.schema import Problem, Test

PROBLEMS = [
    Problem("a", "Add the numbers.", examples=(Test("1 2\n", "3\n"),)),
    Problem("b", "Double it.", kind="call", entry_point="f", examples=(Test("3", "6"),)),
]
SAMPLING = Sampling(max_tokens=16, seed=5)


@dataclass
class Scripted:
    """Sampler that replies from a script, round by round; None cuts the reply off."""

    script: list[list[str | None]]
    revision: str = "scripted"
    prompts: list[list[str]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def sample(self, prompts, n, sampling, *, progress=None):
        replies = self.script[len(self.prompts)]
        self.prompts.append([p[-1]["content"] for p in prompts])
        self.seeds.append(sampling.seed)
        return [
            [Completion("9 9" if r is None else r, 3, "length" if r is None else "stop")] for r in replies
        ]


SCRIPT = [["4 5", "7"], ["4  5 ", "8, 9"], ["4 5\n", "x"], [None, "3"], ["6 6 6", "f(10)"], ["1" * 50, "7"]]


def test_every_reply_is_kept_or_counted():
    sampler = Scripted(SCRIPT)
    a, b = generate_probes(PROBLEMS, sampler, n=6, sampling=SAMPLING, max_chars=20)
    assert [(p.input, p.source) for p in a.probes] == [
        ("1 2\n", "example"),
        ("4 5\n", "model"),
        ("4  5\n", "model"),
        ("6 6 6\n", "model"),
    ]
    assert a.counts == {
        "requested": 6,
        "too_long_prompt": 0,
        "generated": 6,
        "malformed": 1,
        "malformed:truncated": 1,
        "too_long": 1,
        "duplicate": 1,
        "kept": 3,
        "examples": 1,
    }
    assert [p.input for p in b.probes] == ["3", "7", "10"]
    assert b.counts["malformed:wrong_arity"] == b.counts["malformed:not_literal"] == 1
    assert b.counts["duplicate"] == 2  # the example's own input, and 7 again
    for counts in (a.counts, b.counts):
        dropped = counts["malformed"] + counts["too_long"] + counts["duplicate"]
        assert counts["generated"] == counts["kept"] + dropped


def test_one_call_a_round_shows_what_was_written():
    sampler = Scripted(SCRIPT)
    generate_probes(PROBLEMS, sampler, n=3, sampling=SAMPLING)
    assert [len(p) for p in sampler.prompts] == [2, 2, 2]
    assert "4 5" not in sampler.prompts[0][0] and "4 5" in sampler.prompts[1][0]
    assert "1 2" not in sampler.prompts[2][0]  # examples are not the model's own inputs
    assert len(set(sampler.seeds)) == 3


@pytest.mark.parametrize("torn", ["", '{"round": 2, "problem_id": "a", "te'])
def test_generation_resumes_after_a_kill(tmp_path, torn):
    log = tmp_path / "replies.jsonl"
    whole = generate_probes(PROBLEMS, Scripted(SCRIPT), n=6, sampling=SAMPLING)
    generate_probes(PROBLEMS, Scripted(SCRIPT), n=2, sampling=SAMPLING, path=log)
    with log.open("a") as file:  # one reply of the next round and then the kill
        file.write('{"round": 2, "problem_id": "a", "text": "0 0", "finish_reason": "stop"}\n' + torn)
    resumed = Scripted(SCRIPT[2:])
    assert generate_probes(PROBLEMS, resumed, n=6, sampling=SAMPLING, path=log) == whole
    assert len(resumed.prompts) == 4
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 1 + 6 * 2
    again = Scripted([])
    assert generate_probes(PROBLEMS, again, n=6, sampling=SAMPLING, path=log) == whole
    assert not again.prompts


def test_a_prompt_that_does_not_fit_is_counted_and_stops_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tipprobe.probes.generate.prompt_fits", lambda sampler, prompt: "Add" not in prompt[-1]["content"]
    )
    log = tmp_path / "replies.jsonl"
    sampler = Scripted([["7"], ["8, 9"]])
    a, b = generate_probes(PROBLEMS, sampler, n=2, sampling=SAMPLING, path=log)
    assert [len(prompts) for prompts in sampler.prompts] == [1, 1]
    assert [p.source for p in a.probes] == ["example"]
    assert (a.counts["requested"], a.counts["too_long_prompt"], a.counts["generated"]) == (2, 2, 0)
    assert b.counts["too_long_prompt"] == 0 and b.counts["generated"] == 2
    assert generate_probes(PROBLEMS, Scripted([]), n=2, sampling=SAMPLING, path=log) == [a, b]
    nothing = Scripted([])  # no prompt fits: the model is not asked at all
    generate_probes(PROBLEMS[:1], nothing, n=2, sampling=SAMPLING)
    assert not nothing.prompts


def test_what_a_server_finds_too_long_is_counted_like_that(tmp_path):
    class Server(Scripted):
        def sample(self, prompts, n, sampling, *, progress=None):
            _, second = super().sample(prompts, n, sampling)
            raise PromptTooLong("too long", [None, second])

    log = tmp_path / "replies.jsonl"
    a, b = generate_probes(PROBLEMS, Server(SCRIPT), n=1, sampling=SAMPLING, path=log)
    assert (a.counts["requested"], a.counts["too_long_prompt"], a.counts["generated"]) == (1, 1, 0)
    assert [p.input for p in b.probes] == ["3", "7"] and b.counts["too_long_prompt"] == 0
    assert generate_probes(PROBLEMS, Scripted([]), n=1, sampling=SAMPLING, path=log) == [a, b]


def test_the_embedded_coders_context_decides_what_fits():
    from tipprobe.models.load import load_model
    from tipprobe.models.transformers_sampler import TransformersSampler

    model, tokenizer = load_model("minicode-1m", "cpu")
    sampler = TransformersSampler(model, tokenizer, revision="x")
    long = Problem("c", "Print the sum. " * model.config.max_position_embeddings)
    sampling = Sampling(max_tokens=4)
    a, c = generate_probes([PROBLEMS[0], long], sampler, n=1, sampling=sampling)
    assert (a.counts["too_long_prompt"], c.counts["too_long_prompt"]) == (0, 1)
    with pytest.raises(DataError, match="context"):  # what generate_probes keeps away from
        sampler.sample([[{"role": "user", "content": long.statement}]], 1, sampling)


def test_a_log_of_another_model_is_replaced(tmp_path):
    log = tmp_path / "replies.jsonl"
    generate_probes(PROBLEMS, Scripted(SCRIPT), n=2, sampling=SAMPLING, path=log)
    other = Scripted(SCRIPT, revision="other")
    generate_probes(PROBLEMS, other, n=1, sampling=SAMPLING, path=log)
    assert len(other.prompts) == 1
    assert len(log.read_text().splitlines()) == 3


def test_frozen_file_round_trip(tmp_path):
    path = tmp_path / "probes.jsonl"
    sets = generate_probes(PROBLEMS, Scripted(SCRIPT), n=5, sampling=SAMPLING)
    header = probe_header(Scripted([]), SAMPLING)
    write_probe_sets(path, sets, header)
    assert list(read_probe_sets(path).values()) == sets
    assert read_probe_header(path) == header
    assert header["model_revision"] == "scripted" and header["sampling"]["seed"] == 5


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "probes.jsonl"
    path.write_text('{"problem_id": "a"}\n')
    with pytest.raises(DataError, match="header"):
        read_probe_sets(path)
    write_probe_sets(path, [ProbeSet("a", (Probe("1\n", "model"),)), ProbeSet("a", ())], {})
    with pytest.raises(DataError, match="second probe set"):
        read_probe_sets(path)
    with pytest.raises(DataError, match=r"none of the 2 problems has a probe.*probe_source"):
        write_probe_sets(path, [ProbeSet("a", ()), ProbeSet("b", ())], {})


def test_mutations_and_merging():
    mutated = mutation_probes(PROBLEMS, n=4, seed=0)
    assert mutated[0].counts["kept"] == 4 and len(mutated[0].probes) == 5
    written = generate_probes(PROBLEMS, Scripted(SCRIPT), n=1, sampling=SAMPLING)
    a, b = merge_probe_sets(PROBLEMS, written, mutated)
    assert [p.source for p in a.probes] == ["example", "model"] + ["mutation"] * 4
    assert a.counts["examples"] == 1 and a.counts["kept"] == 5
    same = ProbeSet("b", (Probe("7", "mutation"),), {"kept": 1})
    (_, b) = merge_probe_sets(PROBLEMS, written, [ProbeSet("a", ()), same])
    assert [p.input for p in b.probes] == ["3", "7"] and b.counts["duplicate"] == 1
    with pytest.raises(ParameterError, match="problem 'a'"):
        merge_probe_sets(PROBLEMS, written, list(reversed(mutated)))


def test_sources_are_joined_as_asked_for():
    problem = Problem("p", "Read n.", examples=(Test("1\n", "1\n"),))

    class Writer:
        revision = "scripted"

        def sample(self, prompts, n, sampling, *, progress=None):
            return [[Completion("77", 1, "stop")] for _ in prompts]

    found = {
        source: probes_from(source, [problem], Writer(), Sampling(), n=2, seed=0, max_chars=50)[0]
        for source in ("model", "mutation", "both")
    }
    assert {s: {probe.source for probe in sets.probes} for s, sets in found.items()} == {
        "model": {"example", "model"},
        "mutation": {"example", "mutation"},
        "both": {"example", "model", "mutation"},
    }
