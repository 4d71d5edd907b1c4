"""What a selector chooses between, what it answers, and what that cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem

Branch = Literal["base", "guided", "sample"]
Reason = Literal[
    "score",  # the best score
    "tie",  # no other candidate beats the base, one equals it
    "nan",  # a score that could not be compared
    "only_program",  # one candidate has a program
    "no_program",  # none has
    "random",
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program that may be handed in.

    Attributes:
        program: its source, None where the reply held none.
        branch: ``base`` (sampled without a tip), ``guided`` (with one) or ``sample`` (one more without).
    """

    program: str | None
    branch: Branch


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice among the candidates of one problem.

    Attributes:
        index: of the chosen candidate.
        scores: one a candidate, NaN where there is none.
        reason: why this one.
        tokens_scored: tokens that a reward model read.
        executions: runs of one program on one input.
    """

    index: int
    scores: tuple[float, ...]
    reason: Reason
    tokens_scored: int = 0
    executions: int = 0


class Selector(Protocol):
    """Chooses among candidates without knowing hidden tests."""

    name: str

    def select(self, problem: Problem, candidates: Sequence[Candidate]) -> Selection:
        """Return the choice for one problem; the first candidate is the base."""
        ...

    def select_all(
        self, problems: Sequence[Problem], candidate_lists: Sequence[Sequence[Candidate]]
    ) -> list[Selection]:
        """Return a choice a problem, in as few calls of a model or a sandbox as possible."""
        ...


def check_candidates(problems: Sequence[Problem], candidate_lists: Sequence[Sequence[Candidate]]) -> None:
    """Make sure that each problem has candidates of which the first, and no other, is the base.

    Raises:
        DataError: that is not so; the message names the problem.
    """
    if len(problems) != len(candidate_lists):
        raise DataError(f"{len(problems)} problems with {len(candidate_lists)} lists of candidates")
    for problem, candidates in zip(problems, candidate_lists, strict=True):
        if [i for i, candidate in enumerate(candidates) if candidate.branch == "base"] != [0]:
            branches = ", ".join(candidate.branch for candidate in candidates) or "none"
            raise DataError(
                f"problem {problem.id!r}: the first candidate, and no other, must be the base branch; "
                f"the branches are: {branches}"
            )
