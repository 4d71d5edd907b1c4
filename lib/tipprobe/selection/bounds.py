"""What the best and the worst choice would give: bounds, not selectors, since they read the hidden verdicts.

They share no interface with selectors on purpose, so that neither is taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tipprobe.errors import DataError


def upper_bound(passed: Sequence[bool]) -> int:
    """Return the index of the first correct candidate, the base's 0 if none is.

    Example:
        >>> upper_bound([False, True]), upper_bound([False, False])
        (1, 0)
    """
    return _first(passed, True)


def lower_bound(passed: Sequence[bool]) -> int:
    """Return the index of the first wrong candidate, the base's 0 if all are correct."""
    return _first(passed, False)


def _first(passed: Sequence[bool], wanted: bool) -> int:
    if not passed:
        raise DataError("a bound needs the verdict of at least one candidate")
    return next((i for i, verdict in enumerate(passed) if bool(verdict) == wanted), 0)
