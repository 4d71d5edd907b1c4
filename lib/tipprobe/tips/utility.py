"""What a tip is worth: the marginal utility of a tip over the coder's own first try.

Symbols of the paper, once: P_base and P_curr are the shares of a problem's tests that the frozen coder's
greedy program passes without and with the tip, Delta the gain, lambda the price of a token beyond L_th, R the
reward.

Within a group P_base is the same for all tips, and subtracting it changes neither their differences nor, so,
their advantages.  It acts in two ways only: through the jump (a tip that leads to P_curr = 1 earns 1, not
1 - P_base), and through which problems are trained on at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from tipprobe.errors import DataError
from tipprobe.training.objectives import score_advantages

#: In place of P_curr: the reply holds no tip (it is empty, or cut at the token limit).  Counted as the
#: problem as it is, it would gain exactly 0 and so be reinforced wherever tips hurt on average: a proposer
#: can always fall silent.  The base program is among the candidates at test time anyway, so silence adds
#: nothing.  It counts as passing no test and gets the lowest reward of its group; P_curr = 0 alone would put
#: it above tips that fail and are long.
NO_TIP = None


@dataclass(frozen=True, slots=True)
class TipReward:
    """The reward of one tip with its parts.

    Attributes:
        p_base: P_base.
        p_curr: P_curr, 0 if there was no tip.
        delta: Delta, in [-1, 1].
        jumped: whether the tip led from a failing program to one that passes every test.
        length_penalty: lambda * max(0, tokens - L_th).
        lowest: the group's lowest reward where there was no tip, else None.
    """

    p_base: float
    p_curr: float
    delta: float
    jumped: bool
    length_penalty: float
    lowest: float | None = None

    @property
    def value(self) -> float:
        """R = Delta - length penalty; without a tip the lowest of the group."""
        return self.delta - self.length_penalty if self.lowest is None else self.lowest


def tip_reward(p_base: float, p_curr: float, n_tokens: int, *, threshold: int, penalty: float) -> TipReward:
    """Return the reward of one tip.

    Args:
        p_base: P_base, in [0, 1].
        p_curr: P_curr, in [0, 1].
        n_tokens: length of the tip in tokens.
        threshold: L_th, tokens that cost nothing.
        penalty: lambda, reward lost per token beyond.

    Raises:
        DataError: a share is not in [0, 1].
    """
    if not (0 <= p_base <= 1 and 0 <= p_curr <= 1):
        raise DataError(f"P_base = {p_base} and P_curr = {p_curr} must be shares in [0, 1]")
    jumped = p_base < 1 and p_curr == 1
    delta = 1.0 if jumped else p_curr - p_base
    return TipReward(p_base, p_curr, delta, jumped, penalty * max(0, n_tokens - threshold))


def group_of(
    p_base: float,
    p_curr: Sequence[float | None],
    n_tokens: Sequence[int],
    *,
    threshold: int,
    penalty: float,
) -> tuple[list[TipReward], np.ndarray]:
    """Return the rewards of one problem's tips and their advantages, (G,) float64.

    Equal rewards throughout give advantages of exactly 0.

    Args:
        p_base: P_base, in [0, 1].
        p_curr: P_curr of each reply, in [0, 1], or `NO_TIP`.
        n_tokens: length of each reply in tokens.
        threshold: L_th, tokens that cost nothing.
        penalty: lambda, reward lost per token beyond.

    Raises:
        DataError: a share is not in [0, 1].
    """
    parts = [
        tip_reward(p_base, 0.0 if p is NO_TIP else p, n, threshold=threshold, penalty=penalty)
        for p, n in zip(p_curr, n_tokens, strict=True)
    ]
    lowest = min((part.value for part in parts), default=0.0)
    rewards = [
        replace(part, lowest=lowest) if p is NO_TIP else part for p, part in zip(p_curr, parts, strict=True)
    ]
    return rewards, score_advantages(np.array([reward.value for reward in rewards]))


def rescore(records: Iterable[Mapping[str, Any]], *, threshold: int, penalty: float) -> list[dict[str, Any]]:
    """Return saved rollout records with rewards and advantages under another L_th and lambda.

    Nothing is sampled or run again.

    Args:
        records: of ``rollouts.jsonl``, the tips of a group one after another.
        threshold: L_th.
        penalty: lambda.
    """
    scored: list[dict[str, Any]] = []
    for _, group in groupby(records, key=lambda record: (record["step"], record["problem_id"])):
        rows = list(group)
        rewards, advantages = group_of(
            rows[0]["p_base"],
            [NO_TIP if row["tip"] is None else row["p_curr"] for row in rows],
            [row["n_tokens"] for row in rows],
            threshold=threshold,
            penalty=penalty,
        )
        for row, reward, advantage in zip(rows, rewards, advantages, strict=True):
            scored.append({**row, **reward_fields(reward), "advantage": float(advantage)})
    return scored


def reward_fields(reward: TipReward) -> dict[str, Any]:
    """Return the fields of a rollout record that come from the reward."""
    return {
        "p_base": reward.p_base,
        "p_curr": reward.p_curr,
        "delta": reward.delta,
        "jumped": reward.jumped,
        "length_penalty": reward.length_penalty,
        "reward": reward.value,
    }
