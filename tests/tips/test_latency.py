"""Waiting times, with a clock that ticks once a look."""

import pytest

from tipprobe.models.types import Completion, Sampling
from tipprobe.problems.schema import Problem
from tipprobe.tips import latency
from tipprobe.tips.latency import measure_latency
from tipprobe.tips.methods import timed_methods

PROBLEMS = [Problem("a", "A."), Problem("b", "B.")]


class Model:
    """Every call takes as many ticks as it has samples."""

    revision = "scripted"

    def __init__(self, clock, text="```python\nprint(1)\n```", ticks=1):
        self.clock, self.text, self.ticks = clock, text, ticks

    def sample(self, prompts, n, sampling, *, progress=None):
        self.clock[0] += self.ticks * n
        return [[Completion(self.text, 3, "stop")] * n for _ in prompts]


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(latency.time, "perf_counter", lambda: now[0])
    return now


def measure(clock, tip="Mind zero.", instruction="Mind one.", score=True):
    scored = []
    methods = timed_methods(
        ["base", "best_of_2", "self_hint", "opro", "ctrl"],
        {"self_hint": Model(clock, tip, ticks=5)},
        {"opro": instruction},
        Model(clock, tip, ticks=7),
        Sampling(),
        "short",
    )
    table = measure_latency(
        PROBLEMS, Model(clock, ticks=10), Sampling(), methods, score=scored.append if score else None
    )
    return table.set_index("method"), scored


def test_branches_run_side_by_side_unless_one_reads_the_other(clock):
    table, scored = measure(clock)
    assert table["base_s"].to_dict() == {"base": 10, "best_of_2": 20, "self_hint": 10, "opro": 10, "ctrl": 10}
    assert table.loc["self_hint", ["proposer_s", "guided_s", "wall_s"]].tolist() == [5, 10, 15]
    assert table.loc["opro", ["proposer_s", "guided_s", "wall_s"]].tolist() == [0, 10, 10]
    assert table.loc["ctrl", ["proposer_s", "guided_s", "wall_s"]].tolist() == [7, 10, 27]
    assert table.loc["base", "wall_s"] == 10 and set(table["problems"]) == {2}
    assert {len(pairs) for pairs in scored} == {2}, "one program needs no judge"


def test_without_a_tip_nothing_guided_is_waited_for(clock):
    table, scored = measure(clock, tip="", instruction=None)
    assert table.loc["self_hint", ["guided_s", "wall_s"]].tolist() == [0, 10]
    assert table.loc["opro", ["guided_s", "wall_s"]].tolist() == [0, 10]
    assert len(scored) == 3, "two samples of Best-of-2, on two problems and the warm-up"
