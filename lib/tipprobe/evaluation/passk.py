"""pass@k: the chance that at least one of k samples is correct, from n samples of which c are."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from tipprobe.errors import DataError


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate ``1 - C(n-c, k) / C(n, k)``, computed in exact integers.

    Args:
        n: samples drawn.
        c: correct ones among them.
        k: samples allowed, 1 to n.

    Raises:
        DataError: `k` is above `n` (no unbiased estimate exists then), or a count is out of range.

    Example:
        >>> pass_at_k(4, 1, 2)  # of the 6 pairs of 4 samples, 3 hold the correct one
        0.5
    """
    if not 0 <= c <= n:
        raise DataError(f"pass@k needs 0 <= c <= n, got n={n}, c={c}")
    if not 1 <= k <= n:
        raise DataError(f"pass@{k} cannot be estimated from {n} samples a problem: draw at least {k}")
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


def pass_at_k_per_problem(passed: Sequence[Sequence[bool]], k: int) -> np.ndarray:
    """Return pass@k of each problem, (problems,) float64.

    Args:
        passed: for each problem, whether each of its samples passed; numbers of samples may differ.
        k: samples allowed.

    Raises:
        DataError: a problem has fewer than `k` samples.
    """
    return np.array([pass_at_k(len(row), int(sum(row)), k) for row in passed], dtype=np.float64)
