"""How scores become a choice: one rule for every selector that scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tipprobe.errors import DataError
from tipprobe.selection.types import Reason


def best_or_base(has_program: Sequence[bool], scores: Sequence[float]) -> tuple[int, Reason]:
    """Return the index of the best candidate and why; the base (the first) wins whatever is undecided.

    A candidate without a program is never chosen over one with a program, whatever its score.  Where the base
    has a program, another one must beat its score: a tie goes to the base, and so does a comparison with NaN
    on either side.  Where the base has none, the best of the others is taken, the earliest of equals.

    Args:
        has_program: whether each candidate has a program.
        scores: of each candidate, NaN for one that could not be scored.

    Raises:
        DataError: there is no candidate, or the numbers of both differ.

    Example:
        >>> best_or_base([True, True], [0.5, 0.7]), best_or_base([True, True], [0.5, float("nan")])
        ((1, 'score'), (0, 'nan'))
    """
    if not has_program or len(has_program) != len(scores):
        raise DataError(f"{len(has_program)} candidates with {len(scores)} scores: one for each is needed")
    others = [i for i in range(1, len(scores)) if has_program[i]]
    if not others:
        return 0, "only_program" if has_program[0] else "no_program"
    comparable = [i for i in others if not math.isnan(scores[i])]
    if not has_program[0]:
        if len(others) == 1:
            return others[0], "only_program"
        return (max(comparable, key=lambda i: scores[i]), "score") if comparable else (others[0], "nan")
    if math.isnan(scores[0]) or not comparable:
        return 0, "nan"
    best = max(comparable, key=lambda i: scores[i])
    if scores[best] > scores[0]:
        return best, "score"
    return 0, "tie" if scores[best] == scores[0] else "score"
