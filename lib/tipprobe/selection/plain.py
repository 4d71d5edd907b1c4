"""Choosing without looking at any program: the floor that the other selectors are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tipprobe.probes.rng import keyed_rng
from tipprobe.problems.schema import Problem
from tipprobe.selection.types import Candidate, Selection, check_candidates


class RandomSelector:
    """Any candidate that has a program, all equally likely; the base if none has.

    The draw depends on `seed`, the problem's id, and how often the problem occurred before in the call: runs
    of one method draw independently.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def select(self, problem: Problem, candidates: Sequence[Candidate]) -> Selection:
        """Return the choice for one problem."""
        return self.select_all([problem], [candidates])[0]

    def select_all(
        self, problems: Sequence[Problem], candidate_lists: Sequence[Sequence[Candidate]]
    ) -> list[Selection]:
        """Return a choice a problem."""
        check_candidates(problems, candidate_lists)
        seen: Counter[str] = Counter()
        selections = []
        for problem, candidates in zip(problems, candidate_lists, strict=True):
            selections.append(self._choose(problem, candidates, seen[problem.id]))
            seen[problem.id] += 1
        return selections

    def _choose(self, problem: Problem, candidates: Sequence[Candidate], number: int) -> Selection:
        unscored = (float("nan"),) * len(candidates)
        usable = [i for i, candidate in enumerate(candidates) if candidate.program is not None]
        if not usable:
            return Selection(0, unscored, "no_program")
        draw = int(keyed_rng("random selection", self.seed, problem.id, number).integers(len(usable)))
        return Selection(usable[draw], unscored, "random")
