"""Selectors on problems small enough to decide by hand."""

import numpy as np
import pytest

from tipprobe.errors import DataError, SandboxError
from tipprobe.probes.types import Probe, ProbeSet
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt
from tipprobe.sandbox import Run, extract_code
from tipprobe.selection import (
    Candidate,
    PcrSelector,
    RandomSelector,
    RewardSelector,
    best_or_base,
    check_candidates,
    lower_bound,
    upper_bound,
)
from tipprobe.selection.consensus import as_reply

NAN = float("nan")
PROBLEMS = [Problem(f"p{i}", f"Task {i}") for i in range(3)]


def two(base, guided):
    return [Candidate(base, "base"), Candidate(guided, "guided")]


class LengthReward:
    """Scores a program by its length; one that says nan gets no score."""

    revision = "length"

    def __init__(self):
        self.calls = []

    def score(self, pairs, *, progress=None):
        self.calls.append(list(pairs))
        return np.array([NAN if p == "nan" else len(p) for _, p in pairs], dtype=np.float32)

    def token_counts(self, pairs):
        return np.array([10 + len(p) for _, p in pairs], dtype=np.int64)


class TableSandbox:
    """Looks outputs up by program instead of running anything."""

    def __init__(self, table):
        self.table, self.executions = table, 0

    def run(self, jobs):
        self.executions += sum(len(job.inputs) for job in jobs)
        return [
            [
                Run("ok", stdout=out.encode()) if out else Run("runtime_error")
                for out in self.table[job.source]
            ]
            for job in jobs
        ]


@pytest.mark.parametrize(
    ("programs", "scores", "expected"),
    [
        ("bg", [0.5, 0.7], (1, "score")),
        ("bg", [0.7, 0.5], (0, "score")),
        ("bg", [0.5, 0.5], (0, "tie")),
        ("bg", [0.5, NAN], (0, "nan")),
        ("bg", [NAN, 0.5], (0, "nan")),
        ("bg", [NAN, NAN], (0, "nan")),
        ("b-", [-9.0, NAN], (0, "only_program")),
        ("b-", [-9.0, 5.0], (0, "only_program")),  # a score without a program does not count
        ("-g", [NAN, -9.0], (1, "only_program")),
        ("-g", [NAN, NAN], (1, "only_program")),
        ("--", [NAN, NAN], (0, "no_program")),
        ("bgs", [0.5, NAN, 0.6], (2, "score")),
        ("bgs", [0.5, 0.9, 0.9], (1, "score")),  # the earliest of equals
        ("bgs", [0.9, 0.9, 0.1], (0, "tie")),
        ("-gs", [NAN, 0.1, 0.2], (2, "score")),
        ("-gs", [NAN, NAN, 0.2], (2, "score")),
        ("-gs", [NAN, NAN, NAN], (1, "nan")),
        ("b", [0.1], (0, "only_program")),
        ("bg", [float("-inf"), float("-inf")], (0, "tie")),
    ],
)
def test_best_or_base_by_hand(programs, scores, expected):
    assert best_or_base([p != "-" for p in programs], scores) == expected


@pytest.mark.parametrize(("programs", "scores"), [([], []), ([True], [0.1, 0.2])])
def test_best_or_base_refuses_what_it_cannot_compare(programs, scores):
    with pytest.raises(DataError, match="one for each"):
        best_or_base(programs, scores)


def test_reward_selection_scores_all_problems_in_one_call_and_equal_programs_once():
    model = LengthReward()
    lists = [two("aa", "bbb"), two("same", "same"), two("nan", "long enough")]
    found = RewardSelector(model).select_all(PROBLEMS, lists)
    assert [(s.index, s.reason) for s in found] == [(1, "score"), (0, "tie"), (0, "nan")]
    assert found[0].scores == (2.0, 3.0) and found[1].scores == (4.0, 4.0)
    (pairs,) = model.calls
    assert len(pairs) == 5  # "same" once
    assert [s.tokens_scored for s in found] == [12 + 13, 14 + 14, 13 + 21]  # each candidate is billed
    assert [s.executions for s in found] == [0, 0, 0]


def test_reward_selection_shows_the_model_the_problem_without_any_tip():
    model = LengthReward()
    problem = Problem("p", "Add.", meta={"tip": "Mind the order."})
    RewardSelector(model).select(problem, two("aa", "bbb"))
    assert [prompt for prompt, _ in model.calls[0]] == [code_prompt(problem)] * 2
    assert "order" not in code_prompt(problem)[0]["content"]


def test_equal_programs_of_two_problems_are_scored_for_each():
    model = LengthReward()
    RewardSelector(model).select_all(PROBLEMS[:2], [two("a", "b"), two("a", "b")])
    assert len(model.calls[0]) == 4


def test_reward_selection_of_a_missing_program():
    found = RewardSelector(LengthReward()).select_all(
        PROBLEMS, [two(None, "b"), two("a", None), two(None, None)]
    )
    assert [(s.index, s.reason) for s in found] == [
        (1, "only_program"),
        (0, "only_program"),
        (0, "no_program"),
    ]
    assert found[2].tokens_scored == 0 and np.isnan(found[2].scores).all()


def test_no_problem_is_no_choice():
    assert RewardSelector(LengthReward()).select_all([], []) == []
    assert PcrSelector({}, TableSandbox({})).select_all([], []) == []
    assert RandomSelector().select_all([], []) == []


PROBES = {p.id: ProbeSet(p.id, (Probe("1\n", "model"), Probe("2\n", "model"))) for p in PROBLEMS}
TABLE = {"base": ["1", "2"], "guided": ["1", "3"], "crash": ["1", None], "other": ["9", "9"]}


def test_two_candidates_that_differ_are_a_tie_unless_one_fails():
    found = PcrSelector(PROBES, TableSandbox(TABLE)).select_all(
        PROBLEMS, [two("base", "guided"), two("crash", "guided"), two("base", "crash")]
    )
    # 2 and 3 have one vote each on the second probe: both are majority.
    assert [(s.index, s.reason, s.scores) for s in found] == [
        (0, "tie", (1.0, 1.0)),
        (1, "score", (0.5, 1.0)),
        (0, "score", (1.0, 0.5)),
    ]


def test_a_pool_decides_and_is_never_chosen():
    sandbox = TableSandbox(TABLE)
    pool = {"p0": ["guided"], "p1": ["other", "other", "other"], "p2": [None]}
    selector = PcrSelector(PROBES, sandbox, pool=pool)
    found = selector.select_all(PROBLEMS, [two("base", "guided")] * 3)
    # p0: "3" has two votes of three. p1: "9" has three of five. p2: as without a pool.
    assert [(s.index, s.scores) for s in found] == [(1, (0.5, 1.0)), (0, (0.0, 0.0)), (0, (1.0, 1.0))]
    assert found[1].reason == "tie"
    # Distinct programs times two probes; a pool's copy of a candidate costs nothing.
    assert [s.executions for s in found] == [4, 6, 4]
    assert sum(s.executions for s in found) == sandbox.executions


def test_consensus_of_a_missing_program_and_of_no_probes():
    selector = PcrSelector({"p0": PROBES["p0"], "p1": ProbeSet("p1", ())}, TableSandbox(TABLE))
    found = selector.select_all(PROBLEMS[:2], [two(None, "other"), two("base", "guided")])
    assert (found[0].index, found[0].reason, found[0].scores) == (1, "only_program", (0.0, 1.0))
    assert (found[1].index, found[1].reason, found[1].executions) == (0, "tie", 0)
    with pytest.raises(DataError, match="'p2' has no probe set"):
        selector.select(PROBLEMS[2], two("base", "guided"))


def test_a_fault_of_the_sandbox_is_no_choice():
    class Broken:
        def run(self, jobs):
            raise SandboxError("no worker")

    with pytest.raises(SandboxError):
        PcrSelector(PROBES, Broken()).select(PROBLEMS[0], two("base", "guided"))


@pytest.mark.parametrize("program", ["print(1)", 's = "```"\nprint(s)', "x = '''\n````\n'''", "def f(:"])
def test_as_reply_is_undone_by_extraction(program):
    assert extract_code(as_reply(program).text).code == program
    assert extract_code(as_reply(None).text).code is None


def test_random_selection_depends_on_seed_and_problem_alone():
    problems = [Problem(f"q{i}", "x") for i in range(400)]
    lists = [[*two("a", "b"), Candidate(None, "sample")]] * 400
    found = [s.index for s in RandomSelector(3).select_all(problems, lists)]
    assert set(found) == {0, 1}  # never the one without a program
    assert 150 < sum(found) < 250
    assert found[7] == RandomSelector(3).select(problems[7], lists[7]).index
    assert found != [s.index for s in RandomSelector(4).select_all(problems, lists)]
    runs = [s.index for s in RandomSelector(3).select_all([problems[0]] * 50, [lists[0]] * 50)]
    assert 10 < sum(runs) < 40, "runs on one problem draw independently"
    assert RandomSelector().select(problems[0], two(None, None)).reason == "no_program"


@pytest.mark.parametrize(
    ("passed", "upper", "lower"),
    [([0, 1], 1, 0), ([1, 0], 0, 1), ([1, 1], 0, 0), ([0, 0], 0, 0), ([0, 0, 1], 2, 0), ([True], 0, 0)],
)
def test_bounds_by_hand(passed, upper, lower):
    assert (upper_bound(passed), lower_bound(passed)) == (upper, lower)


def test_bounds_enclose_every_selector():
    rng = np.random.default_rng(0)
    for _ in range(50):
        passed = rng.integers(0, 2, 3).astype(bool).tolist()
        index, _ = best_or_base([True] * 3, rng.random(3).tolist())
        assert passed[lower_bound(passed)] <= passed[index] <= passed[upper_bound(passed)]


@pytest.mark.parametrize("branches", [(), ("guided", "base"), ("base", "base"), ("sample",)])
def test_candidates_must_begin_with_the_one_base(branches):
    with pytest.raises(DataError, match="'p0': the first candidate"):
        check_candidates(PROBLEMS[:1], [[Candidate("a", branch) for branch in branches]])


def test_bounds_and_candidates_of_nothing():
    with pytest.raises(DataError, match="at least one"):
        upper_bound([])
    with pytest.raises(DataError, match="3 problems with 1"):
        check_candidates(PROBLEMS, [two("a", "b")])
