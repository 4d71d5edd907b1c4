"""The paper's claims, each checked against our numbers by a rule that is stated beside the verdict.

Verdicts: *reproduced* if the whole 95 % interval is on the claimed side, *partly* if only the mean is,
*contradicted* if the whole interval is on the other side, *not reproduced* otherwise, *not attempted* where a
run holds no data for the claim.  A claim of several parts is reproduced if all parts are, contradicted if one
is, not reproduced if none is even partly, and partly in between.  No rule asks for the paper's effect sizes,
which a stand-in model on other problems has no reason to match; where a rule has a threshold, it is easier
to meet than what the paper reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tipprobe.evaluation import reported
from tipprobe.evaluation.agreement import Agreement
from tipprobe.evaluation.intervals import Interval
from tipprobe.evaluation.results import Results
from tipprobe.evaluation.tables import interval_text

REPRODUCED, PARTLY, NOT, OPEN = "reproduced", "partly", "not reproduced", "not attempted"
CONTRADICTED = "contradicted"
#: Points within which a gain counts as "about none".
SMALL_GAIN = 3.0
#: The k that the paper calls its frontier; the largest evaluated k stands in where 16 was not.
FRONTIER_K = 16


def side(interval: Interval, threshold: float, above: bool) -> str:
    """Return the verdict on "the value is above (or below) `threshold`"."""
    if np.isnan(interval.mean):
        return OPEN
    mean, low, high = (np.array([interval.mean, interval.low, interval.high]) - threshold) * (
        1 if above else -1
    )
    if mean <= 0:
        return CONTRADICTED if max(low, high) < 0 else NOT
    return REPRODUCED if min(low, high) > 0 else PARTLY


def within(interval: Interval, margin: float) -> str:
    """Return the verdict on "the value is within `margin` of 0"."""
    if np.isnan(interval.mean):
        return OPEN
    if abs(interval.mean) > margin:
        return CONTRADICTED if interval.low > margin or interval.high < -margin else NOT
    return REPRODUCED if max(abs(interval.low), abs(interval.high)) <= margin else PARTLY


def combine(verdicts: Sequence[str]) -> str:
    """Return the verdict on a claim whose parts have these verdicts; a part without data leaves it open."""
    for decisive in (OPEN, CONTRADICTED):
        if decisive in verdicts:
            return decisive
    if all(verdict == REPRODUCED for verdict in verdicts):
        return REPRODUCED
    return NOT if all(verdict == NOT for verdict in verdicts) else PARTLY


@dataclass(frozen=True)
class Evidence:
    """What claims are judged by.

    Attributes:
        results: evaluated models.
        agreements: consensus against hidden correctness by method.
        curves: metrics of the adaptation runs, a row a run and rollout step.
        ks: evaluated values of k.
    """

    results: Results
    agreements: dict[str, Agreement]
    curves: pd.DataFrame
    ks: Sequence[int]

    @property
    def frontier(self) -> int | None:
        """The k of claims about repeated sampling, None if no k above 1 was evaluated."""
        return FRONTIER_K if FRONTIER_K in self.ks else max((k for k in self.ks if k > 1), default=None)

    def gain(self, method: str, split: str, k: int | None) -> Interval | None:
        """Return a method's gain, None if it was not evaluated there."""
        if k is None or not self.results.runs(method, split):
            return None
        return self.results.gain(method, split, k)


@dataclass(frozen=True)
class Judged:
    """Outcome of one claim: our numbers as text, and the verdict."""

    ours: str
    verdict: str


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    Attributes:
        id: short name.
        text: the claim in our words.
        where: which part of the paper reports it.
        reported: its numbers, as text, Qwen3-4B / Qwen3-8B.
        rule: how the verdict comes about.
        judge: from evidence to outcome.
    """

    id: str
    text: str
    where: str
    reported: str
    rule: str
    judge: Callable[[Evidence], Judged]


_NO_DATA = Judged("–", OPEN)


def _gains(*parts: tuple[str, str, int | None, Callable[[Interval], str]]) -> Callable[[Evidence], Judged]:
    """Return a judge over gains: parts are (method, split, k or None for the frontier, verdict)."""

    def judge(evidence: Evidence) -> Judged:
        texts, verdicts = [], []
        for method, split, k, verdict in parts:
            k = k or evidence.frontier
            gain = evidence.gain(method, split, k)
            if gain is None:
                return _NO_DATA
            texts.append(f"Δpass@{k} {interval_text(gain, sign=True)}")
            verdicts.append(verdict(gain))
        return Judged("; ".join(texts), combine(verdicts))

    return judge


def _up(gain: Interval) -> str:
    return side(gain, 0.0, above=True)


def _down(gain: Interval) -> str:
    return side(gain, 0.0, above=False)


def _small(gain: Interval) -> str:
    return within(gain, SMALL_GAIN)


def _only_erpo_gains_both(evidence: Evidence) -> Judged:
    both = {}
    for method in evidence.results.methods:
        if method in ("base", "grpo_random", "grpo_oracle"):
            continue
        gains = [evidence.gain(method, "in_domain", k) for k in (1, evidence.frontier)]
        if None in gains:
            return _NO_DATA
        both[method] = combine([_up(gain) for gain in gains])
    if "erpo" not in both or len(both) < 2:
        return _NO_DATA
    others = [method for method, verdict in both.items() if verdict == REPRODUCED and method != "erpo"]
    winners = [method for method, verdict in both.items() if verdict == REPRODUCED]
    ours = "raise both: " + (", ".join(winners) or "none")
    if both["erpo"] != REPRODUCED:
        return Judged(
            ours, both["erpo"] if both["erpo"] in (NOT, CONTRADICTED) else NOT if others else PARTLY
        )
    return Judged(ours, PARTLY if others else REPRODUCED)


def _area(evidence: Evidence) -> Judged:
    if "base" not in evidence.agreements:
        return _NO_DATA
    area = evidence.agreements["base"].auc_pooled
    if area.low == area.high:  # one sample a problem cannot disagree
        return Judged("samples agree or disagree alike", OPEN)
    return Judged(interval_text(area, 3), side(area, 0.7, above=True))


def _failure_rate(label: str, threshold: float) -> Callable[[Evidence], Judged]:
    def judge(evidence: Evidence) -> Judged:
        if "base" not in evidence.agreements:
            return _NO_DATA
        if np.isnan(evidence.agreements["base"].auc_pooled.mean):
            return Judged("all samples pass, or all fail", OPEN)
        rate = evidence.agreements["base"].failure_rates[label].scaled(100)
        count = evidence.agreements["base"].counts[label]
        return Judged(f"{interval_text(rate)} %, n={count}", side(rate, threshold, above=True))

    return judge


def _last_entropies(curves: pd.DataFrame) -> dict[str, pd.Series]:
    """Return ``{method: entropy at the last rollout step by seed}``.

    Steps hold different problems, whose entropies differ more than those of methods: only values of one step
    can be compared.
    """
    last = curves.sort_values("step").groupby(["method", "seed"])["entropy"].last()
    return {str(method): values.droplevel("method") for method, values in last.groupby(level="method")}


def _nsr_entropy_rises(evidence: Evidence) -> Judged:
    last = _last_entropies(evidence.curves)
    if not {"nsr_pcr", "grpo_pcr"} <= set(last):
        return _NO_DATA
    factors = (last["nsr_pcr"] / last["grpo_pcr"]).dropna().tolist()
    if not factors:
        return _NO_DATA
    lowest = min(factors)
    verdict = REPRODUCED if lowest > 2 else PARTLY if lowest > 1 else NOT
    return Judged("times GRPO_PCR's: " + ", ".join(f"{factor:.2f}" for factor in factors), verdict)


def _erpo_entropy_is_held(evidence: Evidence) -> Judged:
    runs = evidence.curves[evidence.curves["method"] == "erpo"]
    if not len(runs) or runs["entropy_ceiling"].isna().all():
        return _NO_DATA
    last = runs.sort_values("step").groupby("seed")[["entropy", "entropy_ceiling"]].last()
    ratios = (last["entropy"] / last["entropy_ceiling"]).tolist()
    free = _last_entropies(evidence.curves).get("nsr_pcr", pd.Series(dtype=float))
    if not (free > 1.25 * last["entropy_ceiling"].max()).any():
        return Judged("without a ceiling (NSR_PCR) the entropy did not pass it by a quarter either", OPEN)
    highest = max(ratios)
    verdict = REPRODUCED if highest <= 1.25 else PARTLY if highest <= 2 else NOT
    return Judged("last entropy / ceiling: " + ", ".join(f"{ratio:.2f}" for ratio in ratios), verdict)


def _gain_text(method: str, split: str) -> str:
    parts = []
    for k in (1, 16):
        values = [reported.reported_gain(model, method, split, k) for model in reported.MODELS]
        parts.append(f"Δpass@{k} " + " / ".join(f"{value:+.1f}" for value in values))
    return "; ".join(parts)


def _table2(quantity: str, digits: int) -> str:
    return " / ".join(f"{reported.reported_agreement(m, quantity):.{digits}f}" for m in reported.MODELS)


_BOTH_UP = "each gain above 0"
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "erpo_in_domain",
        "ERPO raises pass@1 and pass@16 on the problems it adapts to",
        "Table 1",
        _gain_text("erpo", "in_domain"),
        _BOTH_UP,
        _gains(("erpo", "in_domain", 1, _up), ("erpo", "in_domain", None, _up)),
    ),
    Claim(
        "erpo_transfer",
        "ERPO's gains carry over to problems it was not adapted to",
        "Table 1",
        _gain_text("erpo", "transfer"),
        _BOTH_UP,
        _gains(("erpo", "transfer", 1, _up), ("erpo", "transfer", None, _up)),
    ),
    Claim(
        "only_erpo",
        "ERPO is the only adaptation that raises both pass@1 and pass@16",
        "Table 1",
        "raises both beyond a few points: ERPO only",
        "both gains of ERPO above 0, and of no other method",
        _only_erpo_gains_both,
    ),
    Claim(
        "grpo_pcr_narrows",
        "consensus as a positive label (GRPO_PCR) costs pass@16",
        "Table 1",
        _gain_text("grpo_pcr", "in_domain"),
        "gain in pass@16 below 0",
        _gains(("grpo_pcr", "in_domain", None, _down)),
    ),
    Claim(
        "grpo_pcr_transfer",
        "GRPO_PCR gains nothing in pass@1 on transfer",
        "Table 1",
        _gain_text("grpo_pcr", "transfer"),
        f"gain within {SMALL_GAIN:g} points of 0",
        _gains(("grpo_pcr", "transfer", 1, _small)),
    ),
    Claim(
        "grpo_pub",
        "public examples as reward (GRPO_pub) raise pass@1, and pass@16 little",
        "Table 1",
        _gain_text("grpo_pub", "in_domain"),
        f"gain in pass@1 above 0, in pass@16 within {SMALL_GAIN:g} points of 0",
        _gains(("grpo_pub", "in_domain", 1, _up), ("grpo_pub", "in_domain", None, _small)),
    ),
    Claim(
        "nsr_pcr",
        "negative-only consensus (NSR_PCR) raises pass@16 and leaves pass@1 where it was",
        "Table 1",
        _gain_text("nsr_pcr", "in_domain"),
        f"gain in pass@16 above 0, in pass@1 within {SMALL_GAIN:g} points of 0",
        _gains(("nsr_pcr", "in_domain", None, _up), ("nsr_pcr", "in_domain", 1, _small)),
    ),
    Claim(
        "auc",
        "consensus on probes predicts hidden correctness",
        "Table 2",
        f"AUC {_table2('auc_pcr_hidden', 3)}",
        "pooled AUC above 0.7",
        _area,
    ),
    Claim(
        "low_pcr_fails",
        "programs of low consensus (PCR at most 0.5) nearly always fail",
        "Table 2",
        f"{_table2('fail_rate_pcr_le_0.5', 1)} % fail",
        "failure rate above 85 %",
        _failure_rate("<= 0.5", 85.0),
    ),
    Claim(
        "full_pcr_is_no_proof",
        "many programs of full consensus (PCR = 1) fail too",
        "Table 2",
        f"{_table2('fail_rate_pcr_eq_1.0', 1)} % fail",
        "failure rate above 33 %",
        _failure_rate("= 1", 33.0),
    ),
    Claim(
        "nsr_entropy",
        "under NSR_PCR the policy's entropy runs away",
        "training curves",
        "entropy explosion and collapse",
        "last entropy, on the same problems, above twice GRPO_PCR's; partly if above it",
        _nsr_entropy_rises,
    ),
    Claim(
        "erpo_entropy",
        "the ceiling holds ERPO's entropy",
        "training curves",
        "stable near the ceiling of 0.5 nats",
        "last entropy at most 1.25 times the ceiling, where NSR_PCR's is above that; partly up to twice",
        _erpo_entropy_is_held,
    ),
    *(
        Claim(name, text, where, numbers, "needs runs that this series does not hold", lambda _: _NO_DATA)
        for name, text, where, numbers in (
            (
                "pass_at_256",
                "ERPO leads at every number of samples up to 256",
                "Table 3",
                "pass@256 51.9 against 40.1 (Base)",
            ),
            (
                "best_of_n",
                "one adapted sample beats Best-of-32 by CodeT or a reward model",
                "Table 4",
                "36.2 against 29.1 and 27.4",
            ),
            (
                "ceilings",
                "ceilings of 0.2, 0.5 and 1.0 all help; 0.5 balances speed and stability",
                "Figure 3",
                "curves only",
            ),
            (
                "probe_count",
                "AUC grows with the number of probes and flattens at ten",
                "Table 11",
                "0.706 (1), 0.774 (5), 0.790 (10), 0.799 (20)",
            ),
        )
    ),
)


def judge_claims(evidence: Evidence, label: str, stand_in: bool) -> dict[str, Any]:
    """Return every claim with our numbers and a verdict, ready to be written as JSON.

    Args:
        evidence: our numbers.
        label: the model's name.
        stand_in: whether the model is not one of the paper's.

    Returns:
        ``{"model", "stand_in", "problems", "samples", "seeds", "claims": [{"claim", "where", "reported",
        "ours", "verdict", "rule", "id"}, ...]}``.
    """
    results = evidence.results
    claims = []
    for claim in CLAIMS:
        judged = claim.judge(evidence)
        claims.append(
            {
                "claim": claim.text,
                "where": claim.where,
                "reported": claim.reported,
                "ours": judged.ours,
                "verdict": judged.verdict,
                "rule": claim.rule,
                "id": claim.id,
            }
        )
    return {
        "model": label,
        "stand_in": stand_in,
        "problems": {split: len(results.runs("base", split)[0].problem_ids) for split in results.splits},
        "samples": {split: results.samples_per_problem(split) for split in results.splits},
        "seeds": max(len(results.runs(m, split)) for m in results.methods for split in results.splits),
        "claims": claims,
    }
