"""Trials: what a method tried on a problem, who chose what, and what it cost."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tipprobe.errors import DataError
from tipprobe.models.types import Completion, Sampling
from tipprobe.problems.schema import Problem
from tipprobe.selection import RandomSelector
from tipprobe.selection.types import Selection
from tipprobe.tips.propose import Proposal
from tipprobe.tips.results import (
    TipResults,
    best_of_n_table,
    cost_table,
    expected_best_of_n,
    main_table,
    readable_main_table,
    selection_table,
)
from tipprobe.tips.trials import (
    Trial,
    base_trials,
    critiques,
    guided_trials,
    pool_arrays,
    read_trials,
    revision_prompt,
    select_trials,
    write_trials,
)

IDS = ("a", "b")
PROBLEMS = {key: Problem(key, f"Statement {key}.") for key in IDS}
NO_TIP = Proposal(None, "empty", 1, "")


def record(problem_id, passed, tokens=10):
    return {
        "problem_id": problem_id,
        "program": f"print({problem_id!r})",
        "n_tokens": tokens,
        "finish_reason": "stop",
        "passed": passed,
        "reason": "passed" if passed else "wrong_output",
    }


class Second:
    """Takes the last candidate."""

    name = "second"

    def select_all(self, problems, candidate_lists):
        return [
            Selection(
                len(c) - 1,
                (0.0,) * (len(c) - 1) + (math.nan,),
                "score",
                tokens_scored=30 * len(c),
                executions=8 * len(c),
            )
            for c in candidate_lists
        ]


@pytest.fixture
def trials():
    """Two runs on two problems: base solves b only; the tip for a helps, the one for b breaks; run 1 of b
    has no tip."""
    pool = [record("a", False)] * 4 + [record("b", True)] * 4
    base = base_trials(pool, 2, {"a": 5, "b": 6}, best_of_2=True)
    guided = [record("a", True), record("a", True), record("b", False), record("b", False)]
    tip = Proposal("mind zero", "ok", 4, "mind zero")
    tips = {"a": [tip], "b": [tip, NO_TIP]}
    added = guided_trials("self_hint", base, guided, tips, {"a": [9], "b": [9, 9]}, {"a": [3], "b": [3, 3]})
    return base + added


def choose(trials):
    return select_trials(trials, PROBLEMS, {"second": Second()})


def test_every_method_starts_from_the_same_base_programs(trials):
    kinds = {(t.method, t.run, t.problem_id): [b.branch for b in t.branches] for t in trials}
    assert kinds["base", 0, "a"] == ["base"]
    assert kinds["best_of_2", 1, "b"] == ["base", "sample"]
    assert kinds["self_hint", 0, "b"] == ["base", "guided"]
    assert kinds["self_hint", 1, "b"] == ["base"], "without a tip there is no guided program"
    tokens = {(t.method, t.run, t.problem_id): t.tokens for t in trials}
    assert tokens["base", 0, "a"] == 5 + 10
    assert tokens["best_of_2", 0, "a"] == 5 + 10 + 10, "the prompt is read once"
    assert tokens["self_hint", 0, "a"] == 15 + (9 + 10) + (3 + 4)
    assert tokens["self_hint", 1, "b"] == (6 + 10) + (3 + 1), "a useless reply is paid for too"


def test_no_sample_serves_two_runs():
    with pytest.raises(DataError, match="3 base samples of 'a', but 2 runs need 4"):
        base_trials([record("a", True)] * 3, 2, {"a": 5}, best_of_2=True)


def test_what_is_written_is_what_is_read(trials, tmp_path):
    chosen = choose(trials)
    write_trials(tmp_path / "candidates.jsonl", trials, chosen)
    again, selections = read_trials(tmp_path / "candidates.jsonl")
    assert again == trials
    assert selections[0]["second"].index == chosen[0]["second"].index
    assert math.isnan(selections[0]["second"].scores[-1])
    (tmp_path / "bad.jsonl").write_text('{"method": "base"}\n')
    with pytest.raises(DataError, match="line 1: not a record of a trial"):
        read_trials(tmp_path / "bad.jsonl")


def test_tables_by_hand(trials):
    results = TipResults(trials, choose(trials), draws=200, seed=0)
    assert results.passed("self_hint", "raw").tolist() == [[1, 0], [1, 1]]
    assert results.passed("self_hint", "upper").tolist() == [[1, 1], [1, 1]]
    assert results.passed("self_hint", "lower").tolist() == [[0, 0], [0, 1]]
    table = main_table(results).set_index(["method", "choice"])
    assert table.loc[("base", "raw"), "mean"] == 50
    row = table.loc[("self_hint", "second")]
    assert (row["mean"], row["gain"], row["problems"], row["runs"]) == (75, 25, 2, 2)
    assert row["std"] == pytest.approx(np.std([50, 100], ddof=1))
    text = readable_main_table(main_table(results)).set_index("method")
    assert text.loc["Self-Hint", "second"] == "75.0 ± 35.4" and text.loc["Base", "Δ to Base"] == ""
    counts = selection_table(results).set_index(["method", "choice"]).loc[("self_hint", "second")]
    assert counts[["trials", "added", "repaired", "broke", "net"]].tolist() == [4, 3, 2, 1, 1]
    assert counts["unscored"] == 4, "this selector scores no last program"
    cost = cost_table(results, "second", {"self_hint": {"programs": 7, "tokens": 8}}).set_index("method")
    assert cost.loc["base", "scored"] == 0
    assert cost.loc["self_hint", "scored"] == (60 + 60 + 60 + 30) / 4
    assert cost["executions"].to_dict() == {"base": 0, "best_of_2": 16, "self_hint": 14}
    assert cost.loc["self_hint", ["search_programs", "search_tokens"]].tolist() == [7, 8]


def test_only_programs_that_should_have_a_score_are_called_unscored(trials):
    chosen = select_trials(trials, PROBLEMS, {"random": RandomSelector()})
    silent = replace(trials[0].branches[0], program=None)
    for trial, choices in zip(trials, chosen, strict=True):
        choices["judge"] = Selection(0, (math.nan,) * len(trial.branches), "nan")
    rows = [replace(t, branches=(silent, *t.branches[1:])) for t in trials]
    table = selection_table(TipResults(rows, chosen, 100, 0)).set_index(["method", "choice"])["unscored"]
    assert table["self_hint", "judge"] == 3, "four base programs are missing, one guided one too"
    assert math.isnan(table["self_hint", "random"]) and math.isnan(table["self_hint", "raw"])


def test_a_method_that_lacks_a_problem_is_refused(trials):
    with pytest.raises(DataError, match="best_of_2 has no trial of run"):
        rest = [t for t in trials if (t.method, t.run, t.problem_id) != ("best_of_2", 1, "a")]
        TipResults(rest, choose(rest), 100, 0)
    with pytest.raises(DataError, match="method base"):
        rest = [t for t in trials if t.method != "base"]
        TipResults(rest, choose(rest), 100, 0)


def test_programs_that_nobody_ran_are_no_results(trials):
    ungraded = [replace(t, branches=tuple(replace(b, passed=None) for b in t.branches)) for t in trials]
    with pytest.raises(DataError, match="not run on hidden tests"):
        TipResults(ungraded, choose(ungraded), 100, 0)


def test_best_of_n_agrees_with_counting():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 3, (1, 6)).astype(float)
    scores[0, 2] = np.nan
    passed = rng.integers(0, 2, (1, 6)).astype(bool)
    from itertools import combinations

    for n in range(1, 7):
        outcomes = []
        for chosen in combinations(range(6), n):
            values = np.where(np.isnan(scores[0, list(chosen)]), -1, scores[0, list(chosen)])
            best = [i for i, value in zip(chosen, values, strict=True) if value == values.max()]
            outcomes.append(passed[0, best].mean())
        # Counting treats the tied of each subset alike, the formula those of the pool: equal in expectation.
        assert expected_best_of_n(scores, passed, n)[0] == pytest.approx(np.mean(outcomes))
    with pytest.raises(DataError, match="best of 7 needs a pool of at least 7"):
        expected_best_of_n(scores, passed, 7)


def test_best_of_one_is_the_mean_and_needs_no_reward_model():
    table = best_of_n_table(
        np.array([[0.1, 0.9], [0.3, 0.2]]),
        np.array([[False, True], [False, True]]),
        [1, 2],
        prompt_tokens=np.array([10.0, 10.0]),
        reply_tokens=np.full((2, 2), 4.0),
        scored_tokens=np.full((2, 2), 20.0),
        draws=100,
        seed=0,
    )
    assert table["mean"].tolist() == [50, 50]
    assert table["tokens"].tolist() == [14, 10 + 2 * 24]


def test_a_pool_without_a_program_has_no_scores():
    class Judge:
        def score(self, pairs, *, progress=None):
            return np.arange(1, len(pairs) + 1, dtype=np.float32)

        def token_counts(self, pairs):
            return np.full(len(pairs), 7)

    silent = [record(key, False) | {"program": None, "reason": "no_code"} for key in IDS for _ in range(2)]
    for judge in (None, Judge()):
        arrays = pool_arrays(silent, PROBLEMS, judge)
        assert np.isnan(arrays["scores"]).all() and not arrays["scored_tokens"].any()
        assert expected_best_of_n(arrays["scores"], arrays["passed"], 2).tolist() == [0, 0]
    arrays = pool_arrays([*silent[:3], record("b", True)], PROBLEMS, Judge())
    assert arrays["scores"][1, 1] == 1 and np.isnan(arrays["scores"]).sum() == 3
    assert arrays["scored_tokens"].tolist() == [[0, 0], [0, 7]]


def test_a_critique_sees_the_program_and_nobody_else_is_asked():
    seen = []

    class Critic:
        revision = "scripted"

        def sample(self, prompts, n, sampling, *, progress=None):
            seen.extend(prompt[0]["content"] for prompt in prompts)
            return [[Completion("Zero is lost.", 3, "stop")] for _ in prompts]

    found = critiques(Critic(), [PROBLEMS["a"], PROBLEMS["b"]], ["print(1)", None], Sampling())
    assert [proposal.reason for proposal in found] == ["ok", "no_code"]
    assert len(seen) == 1 and "print(1)" in seen[0]
    short, full = (
        revision_prompt(PROBLEMS["a"], "print(1)", "Zero is lost.", s)[0]["content"]
        for s in ("short", "mentor")
    )
    assert short.startswith("Tip: Zero is lost.") and "print(1)" not in short
    assert "print(1)" in full and "Zero is lost." in full


def test_a_trial_without_a_second_program_is_its_base(trials):
    lonely = next(t for t in trials if (t.method, t.run, t.problem_id) == ("self_hint", 1, "b"))
    assert isinstance(lonely, Trial) and len(lonely.candidates) == 1
