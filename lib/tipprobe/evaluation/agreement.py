"""How well consensus on probes predicts hidden correctness.

The area under the ROC curve is the chance that a correct sample has a higher score than a wrong one, ties
counting one half.  *Pooled* it compares samples of all problems with each other, which is what the paper
reports; *within problem* it compares samples of the same problem only, which is what training on group
statistics makes use of: a pooled value may come from easy problems having high consensus alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.stats import rankdata

from tipprobe.errors import DataError
from tipprobe.evaluation.intervals import (
    Interval,
    bootstrap_weights,
    percentile_interval,
    ratio_interval,
)

#: Ranges of consensus whose failure rate the paper's second table reports: (label, lower, upper), inclusive.
THRESHOLDS = (("<= 0.25", 0.0, 0.25), ("<= 0.5", 0.0, 0.5), (">= 0.9", 0.9, 1.0), ("= 1", 1.0, 1.0))
#: Slack for comparing a share such as 9/10 with a threshold; far below the distance of two shares.
_EPSILON = 1e-9


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Return the area under the ROC curve by midranks; NaN if all labels are equal.

    Example:
        >>> auc([0.2, 0.2, 0.8], [False, True, True])  # one tie (1/2) and one win (1) of two pairs
        0.75
    """
    labels = np.asarray(labels, dtype=bool)
    positives, negatives = int(labels.sum()), int((~labels).sum())
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(np.asarray(scores, dtype=np.float64))
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def pair_counts(scores: Sequence[float], labels: Sequence[bool]) -> tuple[float, int]:
    """Return (won, all) pairs of one correct and one wrong sample of a problem; a tie is half a win."""
    labels = np.asarray(labels, dtype=bool)
    pairs = int(labels.sum()) * int((~labels).sum())
    return (auc(scores, labels) * pairs if pairs else 0.0), pairs


@dataclass(frozen=True, slots=True)
class Agreement:
    """Consensus against hidden correctness on a set of problems.

    Attributes:
        auc_pooled: over all samples; the interval resamples problems.
        auc_within: share of pairs won among pairs within a problem.
        failure_rates: by label of `THRESHOLDS`: share of wrong samples among those in the range.
        counts: samples in each of these ranges.
        samples: samples in all.
    """

    auc_pooled: Interval
    auc_within: Interval
    failure_rates: dict[str, Interval]
    counts: dict[str, int]
    samples: int


def agreement(
    scores: Sequence[Sequence[float]],
    passed: Sequence[Sequence[bool]],
    draws: int,
    seed: int,
    units: Sequence[int] | None = None,
) -> Agreement:
    """Compare consensus with correctness.

    Args:
        scores: for each group of samples, the consensus of each, in [0, 1].
        passed: for each group, whether each sample is correct.
        draws: bootstrap draws over problems.
        seed: seeds them.
        units: the problem each group belongs to, 0, 1, ...; several groups of one problem (from several
            training runs) are resampled together.  By default each group is a problem of its own.

    Raises:
        DataError: there is no group, or numbers of scores and labels differ.
    """
    if not scores or [len(row) for row in scores] != [len(row) for row in passed]:
        raise DataError("agreement needs one score and one label for each sample, and at least one problem")
    scores = [np.asarray(row, dtype=np.float64) for row in scores]
    passed = [np.asarray(row, dtype=bool) for row in passed]
    # Problems are numbered without gaps, so that none is drawn that has no samples.
    units = np.unique(np.arange(len(scores)) if units is None else units, return_inverse=True)[1]

    def by_unit(counts: Sequence[float]) -> np.ndarray:
        return np.bincount(units, weights=counts)

    won, pairs = zip(*(pair_counts(s, p) for s, p in zip(scores, passed, strict=True)), strict=True)
    rates, counts = {}, {}
    for label, lower, upper in THRESHOLDS:
        inside = [(s >= lower - _EPSILON) & (s <= upper + _EPSILON) for s in scores]
        failed = by_unit([int((i & ~p).sum()) for i, p in zip(inside, passed, strict=True)])
        number = by_unit([int(i.sum()) for i in inside])
        rates[label] = ratio_interval(failed, number, draws, seed)
        counts[label] = int(number.sum())
    return Agreement(
        auc_pooled=_pooled_interval(scores, passed, units, draws, seed),
        auc_within=ratio_interval(by_unit(won), by_unit(pairs), draws, seed),
        failure_rates=rates,
        counts=counts,
        samples=sum(map(len, scores)),
    )


def _pooled_interval(
    scores: list[np.ndarray], passed: list[np.ndarray], units: np.ndarray, draws: int, seed: int
) -> Interval:
    """Return the pooled AUC, its interval by resampling problems.

    Scores are shares of a few probes, so there are few distinct values: a draw's AUC follows from how many
    correct and wrong samples it has at each value, which turns resampling into a product of matrices.
    """
    values, places = np.unique(np.concatenate(scores), return_inverse=True)
    owner = np.repeat(units, [len(row) for row in scores])
    labels = np.concatenate(passed)
    n = int(units.max()) + 1
    tables = np.zeros((2, n, len(values)))
    np.add.at(tables, (labels.astype(int), owner, places), 1.0)
    weights = bootstrap_weights(n, draws, np.random.default_rng(seed))
    areas = _areas(weights @ tables[0], weights @ tables[1])
    estimate = _areas(tables[0].sum(0, keepdims=True), tables[1].sum(0, keepdims=True))[0]
    return percentile_interval(estimate, areas, n)


def _areas(wrong: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """AUC of each row of counts (draws, values), values ascending; NaN where one class is empty."""
    below = wrong.cumsum(axis=1) - wrong
    pairs = wrong.sum(1) * correct.sum(1)
    won = (correct * (below + wrong / 2)).sum(1)
    return np.divide(won, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)


def reliability(
    scores: Sequence[Sequence[float]],
    passed: Sequence[Sequence[bool]],
    edges: Sequence[float],
    draws: int,
    seed: int,
    units: Sequence[int] | None = None,
) -> list[dict[str, float]]:
    """Return the share of correct samples in bins of consensus.

    Args:
        scores: as in `agreement`.
        passed: as in `agreement`.
        edges: ascending bin edges; bins are ``[a, b)``, the last one includes its upper edge.
        draws: bootstrap draws over problems.
        seed: seeds them.
        units: as in `agreement`.

    Returns:
        One record a bin: low, high (its edges), samples, correct, correct_low, correct_high (shares).
    """
    units = np.unique(np.arange(len(scores)) if units is None else units, return_inverse=True)[1]
    records = []
    for index, (low, high) in enumerate(pairwise(edges)):
        last = index == len(edges) - 2
        numbers, right = [], []
        for s, p in zip(scores, passed, strict=True):
            s, p = np.asarray(s, dtype=np.float64), np.asarray(p, dtype=bool)
            inside = (s >= low - _EPSILON) & ((s <= high + _EPSILON) if last else (s < high - _EPSILON))
            numbers.append(int(inside.sum()))
            right.append(int((inside & p).sum()))
        by_unit = (np.bincount(units, weights=counts) for counts in (right, numbers))
        share = ratio_interval(*by_unit, draws, seed)
        records.append(
            {
                "low": float(low),
                "high": float(high),
                "samples": sum(numbers),
                "correct": share.mean,
                "correct_low": share.low,
                "correct_high": share.high,
            }
        )
    return records
