"""The update rules as pure functions: from scores to advantages, masks and regularisation weights.

Everything is float64 and exact where it can be: whether a group carries a signal is decided on integer hit
counts, never on a floating-point standard deviation (a group of equal fractions k/P often has a non-zero
one), and every random choice comes from a generator seeded by what it decides about.

Symbols of the paper, once: G group size, s_i score of candidate i, A_i advantage, mu and sigma the group's
mean and standard deviation, q mask ratio, H token entropy, H_ceil its ceiling, lambda_H the ceiling's
weight.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from tipprobe.errors import ParameterError

#: Which tokens the policy term is averaged over; see `policy_denominator`.
Denominator = Literal["retained", "all"]


def group_advantages(hits: np.ndarray, n: int, eps: float = 1e-6) -> np.ndarray:
    """Return A = (s - mean) / (std + eps) within one group, s = hits / n.

    Args:
        hits: (G,) integers in [0, n]: probes agreed on, or 0/1 for a binary reward with ``n=1``.
        n: number of probes, 0 if there are none.
        eps: added to the unbiased standard deviation (the value of the framework the paper trained with).

    Returns:
        (G,) float64; exactly zero if all hits are equal, whatever n.

    Raises:
        ParameterError: `hits` is not a vector of integers.
    """
    hits = np.asarray(hits)
    if hits.ndim != 1 or hits.size == 0 or not np.issubdtype(hits.dtype, np.integer):
        raise ParameterError("group_advantages needs a non-empty vector of integer hit counts")
    return score_advantages(hits / n if n else np.zeros(hits.size), eps)


def score_advantages(scores: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """Return A = (s - mean) / (std + eps) within one group of real-valued scores.

    Args:
        scores: (G,) float64.  Candidates that did equally well must have the same score to the last bit, as
            they have if it is computed from the same counts in the same way.
        eps: added to the unbiased standard deviation.

    Returns:
        (G,) float64; exactly zero if all scores are equal.
    """
    if scores.max() == scores.min():
        return np.zeros(scores.size)
    return (scores - scores.mean()) / (scores.std(ddof=1) + eps)  # A_i = (s_i - mu) / sigma


def rank_mask(advantages: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Return which rows of a group keep their advantage: all but the ``ceil(ratio * G)`` highest.

    The boundary cuts through a tie in most groups, so ties are broken at random; seed `rng` with
    ``keyed_rng(run seed, step, problem)`` (`tipprobe.probes.rng`).  Statistics were taken before masking
    and are not taken again.

    Args:
        advantages: (G,) of one group.
        ratio: share of the group to mask, in [0, 1].
        rng: source of the tie break; exactly G numbers are drawn.

    Returns:
        (G,) bool, True = retained.
    """
    size = len(advantages)
    if not 0 <= ratio <= 1:
        raise ParameterError(f"mask ratio {ratio} is not in [0, 1]")
    n_masked = math.ceil(ratio * size - 1e-9)  # ceil(q G); 0.7 * 10 is 7.000000000000001 in floating point
    order = np.lexsort((rng.random(size), -np.asarray(advantages)))  # highest first
    keep = np.ones(size, dtype=bool)
    keep[order[:n_masked]] = False
    return keep


def nsr_advantages(pcr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (advantages, keep) of negative-sample reinforcement: r = 2 (s - 0.5), only r < 0 is kept.

    No group normalisation.  Rows that are not kept have advantage 0.

    Args:
        pcr: (G,) scores in [0, 1].
    """
    reward = 2 * (np.asarray(pcr, dtype=np.float64) - 0.5)  # r_i
    keep = reward < 0
    return np.where(keep, reward, 0.0), keep


def policy_denominator(tokens: np.ndarray, keep: np.ndarray, denominator: Denominator) -> int:
    """Return N of the policy term's token mean over one mini-batch.

    ``retained`` divides by the tokens of the rows that kept their advantage (zero advantages of a group
    without a signal among them), ``all`` by every response token.  With half of the rows masked the policy
    term, and so its weight against the divergence and the entropy term, differs about two-fold between the
    two.

    Args:
        tokens: (B,) response tokens of each row of the mini-batch.
        keep: (B,) bool.
        denominator: see above.
    """
    return int(tokens[keep].sum() if denominator == "retained" else tokens.sum())


def entropy_ceiling_loss(mean_entropy: float, ceiling: float, coefficient: float) -> float:
    """Return lambda * max(0, H - H_ceil)^2; `mean_entropy` H is the token mean of a whole mini-batch."""
    return coefficient * max(0.0, mean_entropy - ceiling) ** 2


def entropy_ceiling_gradient_weight(mean_entropy: float, ceiling: float, coefficient: float) -> float:
    """Return the factor w for which grad(loss) = w * grad(H): 2 * lambda * max(0, H - H_ceil).

    The loss is not additive over micro-batches, its gradient is: with H of the whole mini-batch known, adding
    ``w * sum(H_t of the micro-batch) / N`` to each micro-batch's loss, w a constant and N the mini-batch's
    token count, gives the exact gradient whatever the split.
    """
    return 2 * coefficient * max(0.0, mean_entropy - ceiling)


def effective_ceiling(ceiling: float, mode: Literal["absolute", "relative"], initial_entropy: float) -> float:
    """Return the ceiling in nats: `ceiling`, or `ceiling` times the entropy the model started with."""
    return ceiling if mode == "absolute" else ceiling * initial_entropy
