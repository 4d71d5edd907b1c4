"""Bootstrap intervals over problems, with seeds of training as a second level.

Problems are what varies between one benchmark and another of its kind, so they are what is resampled.
Samples of one problem are never treated as independent observations.  Methods are compared on the same
problems in the same draw, which takes the difficulty of problems out of their difference.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from scipy.stats import binomtest

from tipprobe.errors import DataError

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its percentile bootstrap interval.

    Attributes:
        mean: the estimate from the data as they are.
        low: 2.5th percentile of the draws.
        high: 97.5th percentile of the draws.
        n: problems.
        seeds: training runs averaged over.
    """

    mean: float
    low: float
    high: float
    n: int
    seeds: int = 1

    def to_json(self) -> dict[str, float]:
        """Return the fields as a dict."""
        return asdict(self)

    def scaled(self, factor: float) -> Interval:
        """Return the same interval in another unit (100 for percent)."""
        return Interval(factor * self.mean, factor * self.low, factor * self.high, self.n, self.seeds)


def _as_runs(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    values = values[None] if values.ndim == 1 else values
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(
            f"an interval needs values of shape (problems,) or (seeds, problems), got {values.shape}"
        )
    return values


def bootstrap_weights(n: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return (draws, n) float64: how often each of `n` things occurs when `n` are drawn with replacement.

    With them, resampling a sum is a matrix product.
    """
    chosen = rng.integers(0, n, (draws, n)) + n * np.arange(draws)[:, None]
    return np.bincount(chosen.ravel(), minlength=draws * n).reshape(draws, n).astype(np.float64)


def percentile_interval(mean: float, draws: np.ndarray, n: int, seeds: int = 1) -> Interval:
    """Return an interval from an estimate and its bootstrap draws; draws that are NaN do not count."""
    draws = draws[~np.isnan(draws)]
    if not draws.size:
        return Interval(float(mean), np.nan, np.nan, n, seeds)
    low, high = np.percentile(draws, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return Interval(float(mean), float(low), float(high), n, seeds)


def mean_interval(values: np.ndarray, draws: int, seed: int) -> Interval:
    """Return the mean of one number a problem with its 95 % interval.

    Args:
        values: (problems,) or (seeds, problems).
        draws: bootstrap draws; the project uses 10,000.
        seed: seeds them; the same seed draws the same problems, whatever the values are.
    """
    values = _as_runs(values)
    runs, problems = values.shape
    rng = np.random.default_rng(seed)
    of_problems = bootstrap_weights(problems, draws, rng)
    # Every run is looked at on the same problems; with one run there is nothing to resample on that level.
    of_runs = bootstrap_weights(runs, draws, rng)
    means = ((of_problems @ values.T) * of_runs).sum(axis=1) / values.size
    return percentile_interval(values.mean(), means, problems, runs)


def paired_interval(values: np.ndarray, baseline: np.ndarray, draws: int, seed: int) -> Interval:
    """Return the mean difference to a baseline on the same problems, with its 95 % interval.

    Args:
        values: (problems,) or (seeds, problems) of the method.
        baseline: (problems,) or (seeds, problems) of what it is compared with.  With as many seeds as the
            method, run is compared with run; a single row is compared with every run.
        draws: bootstrap draws.
        seed: seeds them.

    Raises:
        DataError: the two are not about the same problems, or have different numbers of seeds, both above 1.
    """
    values, baseline = _as_runs(values), _as_runs(baseline)
    if values.shape[1] != baseline.shape[1]:
        raise DataError(
            "paired differences need the same problems on both sides, "
            f"got {values.shape[1]} and {baseline.shape[1]}"
        )
    if len({len(values), len(baseline)} - {1}) > 1:
        raise DataError(f"cannot pair {len(values)} runs with {len(baseline)}")
    return mean_interval(values - baseline, draws, seed)


def ratio_interval(numerators: np.ndarray, denominators: np.ndarray, draws: int, seed: int) -> Interval:
    """Return ``sum(numerators) / sum(denominators)`` with its 95 % interval over problems.

    For shares of samples whose number differs from problem to problem, such as a failure rate among samples
    above a threshold.  Draws without any such sample are left out.

    Args:
        numerators: (problems,) counts.
        denominators: (problems,) counts.
        draws: bootstrap draws.
        seed: seeds them.

    Returns:
        An interval whose `n` counts the problems with a denominator; all NaN if there is none.
    """
    numerators, denominators = (np.asarray(a, dtype=np.float64) for a in (numerators, denominators))
    if not denominators.sum():
        return Interval(np.nan, np.nan, np.nan, 0)
    weights = bootstrap_weights(len(numerators), draws, np.random.default_rng(seed))
    below = weights @ denominators
    ratios = np.divide(weights @ numerators, below, out=np.full(draws, np.nan), where=below > 0)
    estimate = numerators.sum() / denominators.sum()
    return percentile_interval(estimate, ratios, int((denominators > 0).sum()))


def wilson_interval(successes: int, n: int) -> Interval:
    """Return the share ``successes / n`` with its 95 % Wilson interval, for `n` independent trials.

    For one problem's samples, or for a count of problems; its `n` counts the trials.

    Returns:
        All NaN if `n` is 0.
    """
    if n == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    found = binomtest(successes, n).proportion_ci(LEVEL, method="wilson")
    return Interval(successes / n, float(found.low), float(found.high), n)
