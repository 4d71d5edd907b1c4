"""The compared methods: which reward, which update, which labels.

Name collision: another published method is called ERPO too (Environment-Regularized Policy Optimization).
Here ERPO is *Entropy-Regularized Rank-Masked Policy Optimization*.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tipprobe.errors import ParameterError
from tipprobe.training.objectives import group_advantages, nsr_advantages, rank_mask

Reward = Literal["none", "pcr", "public", "oracle", "random"]
Update = Literal["none", "group", "rank_masked", "negative"]


@dataclass(frozen=True, slots=True)
class Method:
    """One way of adapting a model.

    Attributes:
        name: key in `METHODS`, used in files and parameters.
        title: name in tables and figures.
        reward: ``pcr`` consensus on probes; ``public`` all public examples pass; ``oracle`` all hidden tests
            pass; ``random`` a fair coin; ``none`` for the unadapted model.
        update: ``group`` group-normalised advantages of all rows; ``rank_masked`` the same with the top of
            each group masked; ``negative`` only scores below one half, not normalised.
        ceiling: whether mean token entropy above the ceiling is penalised.
        sees: which labels the method uses, in words, for every place where its results are shown.
    """

    name: str
    title: str
    reward: Reward
    update: Update
    ceiling: bool
    sees: str

    @property
    def trained(self) -> bool:
        """Whether there is anything to train."""
        return self.update != "none"


_NO_LABELS = "statements only"
METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("base", "Base", "none", "none", False, "nothing"),
        Method("grpo_pub", "GRPO_pub", "public", "group", False, "outputs of the public examples"),
        Method("grpo_pcr", "GRPO_PCR", "pcr", "group", False, _NO_LABELS),
        Method("nsr_pcr", "NSR_PCR", "pcr", "negative", False, _NO_LABELS),
        Method("erpo", "ERPO", "pcr", "rank_masked", True, _NO_LABELS),
        Method("grpo_random", "GRPO_random (control)", "random", "group", False, _NO_LABELS),
        Method("grpo_oracle", "GRPO_oracle (control)", "oracle", "group", False, "hidden tests"),
    )
}


def get_method(name: str) -> Method:
    """Return the method called `name`.

    Raises:
        ParameterError: there is none; the message names the nearest.
    """
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1, cutoff=0)
    raise ParameterError(f"unknown method {name!r}; nearest is {near[0]!r}, known are {', '.join(METHODS)}")


def update_weights(
    method: Method,
    hits: np.ndarray,
    n: int,
    *,
    mask_ratio: float,
    negative_only: bool,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (advantages, keep) of one group; only rows with ``keep`` enter the policy term.

    Args:
        method: decides normalisation and mask.
        hits: (G,) integers in [0, n].
        n: what a score of 1 is in hits: probes of the problem, or 1 for a binary reward.
        mask_ratio: share of the group that ``rank_masked`` masks.
        negative_only: also mask kept rows whose advantage is positive (ablation).
        rng: breaks ties at the mask's boundary.

    Returns:
        (G,) float64 and (G,) bool.
    """
    if method.update == "negative":
        return nsr_advantages(hits / n if n else np.full(len(hits), 0.5))
    advantages = group_advantages(hits, n)
    if method.update == "group":
        return advantages, np.ones(len(hits), dtype=bool)
    keep = rank_mask(advantages, mask_ratio, rng)
    return advantages, keep & (advantages <= 0) if negative_only else keep
