"""Selectors that look at no program: what the others are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tipprobe.errors import DataError
from tipprobe.probes.rng import keyed_rng
from tipprobe.problems.schema import Problem
from tipprobe.selection.types import Candidate, Selection, check_candidates


def _unscored(index: int, candidates: Sequence[Candidate], reason: str) -> Selection:
    return Selection(index, (float("nan"),) * len(candidates), reason)


class OneByOne:
    """Gives a selector that decides each problem by itself its batch form."""

    def _choose(self, problem: Problem, candidates: Sequence[Candidate], number: int) -> Selection:
        """Return the choice for a problem that occurred `number` times before in the same call."""
        raise NotImplementedError

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


class BaseSelector(OneByOne):
    """Always the base."""

    name = "base"

    def _choose(self, problem: Problem, candidates: Sequence[Candidate], number: int) -> Selection:
        return _unscored(0, candidates, "fixed")


class AdoptSelector(OneByOne):
    """Always the guided candidate (the first of several), also where it holds no program: raw adoption."""

    name = "adopt"

    def _choose(self, problem: Problem, candidates: Sequence[Candidate], number: int) -> Selection:
        guided = [i for i, candidate in enumerate(candidates) if candidate.branch == "guided"]
        if not guided:
            raise DataError(f"problem {problem.id!r} has no guided candidate to adopt")
        return _unscored(guided[0], candidates, "fixed")


class RandomSelector(OneByOne):
    """Any candidate that has a program, all equally likely; the base if none has.

    The draw depends on `seed`, the problem's id, and how often the problem occurred before in the call: runs
    of one method draw independently.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def _choose(self, problem: Problem, candidates: Sequence[Candidate], number: int) -> Selection:
        usable = [i for i, candidate in enumerate(candidates) if candidate.program is not None]
        if not usable:
            return _unscored(0, candidates, "no_program")
        draw = int(keyed_rng("random selection", self.seed, problem.id, number).integers(len(usable)))
        return _unscored(usable[draw], candidates, "random")
