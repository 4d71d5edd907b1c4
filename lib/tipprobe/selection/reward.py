"""Selection by a reward model: the program with the highest score, the base where nothing beats it."""

from __future__ import annotations

from collections.abc import Sequence

from tipprobe.models.reward import RewardModel
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt
from tipprobe.selection.rules import best_or_base
from tipprobe.selection.types import Candidate, Selection, check_candidates


class RewardSelector:
    """Chooses by the score of (problem without the tip, program); see `best_or_base` for ties and NaN.

    Equal programs of a problem are scored once.  Scored twice, in two batches, they could differ in the last
    digits, and what is a tie would become a coin's toss.  The bill counts every candidate all the same, as a
    best-of-N curve over a pool does.
    """

    name = "reward"

    def __init__(self, model: RewardModel) -> None:
        self.model = model

    def select(self, problem: Problem, candidates: Sequence[Candidate]) -> Selection:
        """Return the choice for one problem."""
        return self.select_all([problem], [candidates])[0]

    def select_all(
        self, problems: Sequence[Problem], candidate_lists: Sequence[Sequence[Candidate]]
    ) -> list[Selection]:
        """Return a choice a problem; all programs are scored in one call."""
        check_candidates(problems, candidate_lists)
        keys = list(
            dict.fromkeys(
                (row, candidate.program)
                for row, candidates in enumerate(candidate_lists)
                for candidate in candidates
                if candidate.program is not None
            )
        )
        pairs = [(code_prompt(problems[row]), program) for row, program in keys]
        scores = dict(zip(keys, self.model.score(pairs).tolist(), strict=True))
        lengths = dict(zip(keys, self.model.token_counts(pairs).tolist(), strict=True))
        selections = []
        for row, candidates in enumerate(candidate_lists):
            values = tuple(scores.get((row, candidate.program), float("nan")) for candidate in candidates)
            index, reason = best_or_base([c.program is not None for c in candidates], values)
            tokens = sum(lengths.get((row, candidate.program), 0) for candidate in candidates)
            selections.append(Selection(index, values, reason, tokens_scored=tokens))
        return selections
