"""Tips at test time as one call."""

import math
from dataclasses import replace

import pytest

from tipprobe.errors import DataError
from tipprobe.models.open import open_sampler
from tipprobe.models.reward import load_reward_model
from tipprobe.models.types import Completion, Sampling
from tipprobe.problems.load import load_problems
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt
from tipprobe.selection import RandomSelector, RewardSelector
from tipprobe.selection.types import Selection
from tipprobe.tips.methods import prompt_counter
from tipprobe.tips.trials import read_trials, write_trials
from tipprobe.tips.use import METHOD, solve

PROBLEMS = [Problem("a", "Statement a."), Problem("b", "Statement b.")]
SETTINGS = {"sampling": Sampling(max_tokens=160), "tip_sampling": Sampling.greedy(48)}


class Proposer:
    """Knows something about problem a alone."""

    revision = "scripted"

    def sample(self, prompts, n, sampling, *, progress=None):
        texts = ["Tip: mind zero." if "Statement a." in prompt[0]["content"] else "" for prompt in prompts]
        return [[Completion(text, len(text), "stop")] for text in texts]


class Coder:
    """Writes what it was asked as a comment; a guided program is longer."""

    revision = "scripted"

    def __init__(self):
        self.calls = []

    def sample(self, prompts, n, sampling, *, progress=None):
        self.calls.append([prompt[0]["content"] for prompt in prompts])
        kinds = ["guided" if prompt[0]["content"].startswith("Tip:") else "base" for prompt in prompts]
        return [[Completion(f"```python\nprint({kind!r})\n```", 7, "stop")] for kind in kinds]


class Longest:
    """Takes the longest program."""

    name = "longest"

    def select_all(self, problems, candidate_lists):
        scores = [tuple(float(len(c.program)) for c in candidates) for candidates in candidate_lists]
        return [Selection(row.index(max(row)), row, "score", tokens_scored=5) for row in scores]


def test_everything_about_a_choice_is_returned():
    coder = Coder()
    first, second = solve(PROBLEMS, Proposer(), coder, Longest(), **SETTINGS)
    assert (first.tip, first.program) == ("mind zero.", "print('guided')")
    assert [(b.branch, b.tip, b.program) for b in first.trial.branches] == [
        ("base", None, "print('base')"),
        ("guided", "mind zero.", "print('guided')"),
    ]
    assert first.selection.scores == (13.0, 15.0) and first.chosen is first.trial.branches[1]
    assert (second.tip, second.program, len(second.trial.branches)) == (None, "print('base')", 1)
    assert len(coder.calls) == 1 and len(coder.calls[0]) == 3, (
        "nothing is written for a tip that is not there"
    )
    assert first.tokens is None, "nobody counts the prompts of a scripted model"
    assert all(branch.passed is None for branch in first.trial.branches)


def test_one_problem_is_a_list_of_one():
    alone = solve(PROBLEMS[0], Proposer(), Coder(), Longest(), **SETTINGS)
    assert [alone] == solve(PROBLEMS[:1], Proposer(), Coder(), Longest(), **SETTINGS)
    assert solve([], Proposer(), Coder(), Longest(), **SETTINGS) == []
    with pytest.raises(DataError, match="same id"):
        solve([PROBLEMS[0]] * 2, Proposer(), Coder(), Longest(), **SETTINGS)


def test_what_was_tried_can_be_written_like_any_trial(tmp_path):
    solutions = solve(PROBLEMS, Proposer(), Coder(), RandomSelector(), **SETTINGS)
    trials, chosen = [s.trial for s in solutions], [{"random": s.selection} for s in solutions]
    write_trials(tmp_path / "candidates.jsonl", trials, chosen)
    again, selections = read_trials(tmp_path / "candidates.jsonl")
    assert again == trials and {trial.method for trial in again} == {METHOD}
    assert [s["random"].index for s in selections] == [s.selection.index for s in solutions]


def test_the_embedded_world_is_solved_without_a_look_at_tests():
    problems = load_problems("minicode:heldout", limit=6)
    model = open_sampler("minicode-1m", device="cpu")
    selector = RewardSelector(load_reward_model("minicode-rm-1m", "cpu"))
    untested = [replace(p, tests=(), reference=None, meta={}) for p in problems]
    solutions = solve(untested, model, model, selector, **SETTINGS)
    assert solutions == solve(untested, model, model, selector, **SETTINGS)
    for problem, solution in zip(problems, solutions, strict=True):
        assert solution.trial.problem_id == problem.id and solution.tip
        base, guided = solution.trial.branches
        assert not any(math.isnan(score) for score in solution.selection.scores)
        assert solution.selection.index == int(solution.selection.scores[1] > solution.selection.scores[0])
        assert base.prompt_tokens == prompt_counter(model)(code_prompt(problem)) < guided.prompt_tokens
        coder_tokens = sum(branch.prompt_tokens + branch.n_tokens for branch in (base, guided))
        scored = solution.selection.tokens_scored
        assert solution.tokens - coder_tokens - scored == solution.trial.tip_tokens > 0 and scored > 0
