"""The second paper's claims, each checked against our trials; verdicts as in `evaluation.claims`.

The same in sentences, for whatever selector a reader looks at: `result_sentences`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tipprobe.evaluation import reported
from tipprobe.evaluation.claims import (
    NOT,
    OPEN,
    REPRODUCED,
    Judged,
    combine,
    side,
)
from tipprobe.evaluation.intervals import paired_interval
from tipprobe.evaluation.tables import interval_text
from tipprobe.models.reward import EMBEDDED_REWARD
from tipprobe.tips.categories import TRUSTED_KAPPA, category_table
from tipprobe.tips.compare import finding
from tipprobe.tips.results import CONTRASTS, SELECTOR_TITLES, TipResults, cost_table
from tipprobe.tips.trials import TIPPED, TITLES

BASELINES = ("best_of_2", "opro", "gepa", "ctrl", "self_hint")
#: The selector that the paper's claims are about.
PAPERS_SELECTOR = "reward_model"
#: What has to be said with every number about how well the embedded reward model selects.
PRIVILEGED = (
    "this reward model was trained on verdicts, and so knows how the world resolves rules that statements "
    "leave open, which no reader of a statement could"
)


@dataclass(frozen=True)
class TipEvidence:
    """What claims about tips are judged by: everything under one selector, the paper's.

    Attributes:
        results: trials.
        best_of: from `tipprobe.tips.results.best_of_n_table`, scored by the reward model.
        best_of_8: pass rate of Best-of-8 on each problem, (problems,); None if the pool is smaller.
        rule_kappa: how well the rule behind the categories agrees with people.
        reward_model: name of the reward model, as in the parameters.
    """

    results: TipResults
    best_of: pd.DataFrame
    best_of_8: np.ndarray | None
    rule_kappa: float
    reward_model: str = ""

    @property
    def selector(self) -> str | None:
        """The reward model's name among the selectors; None where none selected."""
        return PAPERS_SELECTOR if PAPERS_SELECTOR in self.results.selectors else None

    @property
    def note(self) -> str:
        """What limits every claim about how well the reward model selects, ``""`` if nothing does."""
        return PRIVILEGED if _privileged(PAPERS_SELECTOR, self.reward_model) else ""

    @cached_property
    def cost(self) -> pd.DataFrame:
        """Tokens per problem (`tipprobe.tips.results.cost_table`), searches aside."""
        return cost_table(self.results, PAPERS_SELECTOR, {})

    @cached_property
    def categories(self) -> pd.DataFrame:
        """Selected tips of TipCoder-RL by category (`tipprobe.tips.categories.category_table`)."""
        return category_table(self.results, ["tipcoder_rl"], PAPERS_SELECTOR)

    def has(self, *methods: str) -> bool:
        """Return whether all methods were run and a reward model selected."""
        return self.selector is not None and set(methods) <= set(self.results.methods)


@dataclass(frozen=True)
class TipClaim:
    """One claim; fields as in `tipprobe.evaluation.claims.Claim`."""

    id: str
    text: str
    where: str
    reported: str
    rule: str
    judge: Callable[[TipEvidence], Judged]


_NO_DATA = Judged("–", OPEN)


def _averages(method: str) -> list[float]:
    rows = reported.table("tipcoder_table1")
    rows = rows[(rows["benchmark"] == "average") & (rows["method"] == method)]
    return rows["pass_at_1"].tolist()


def _reported_gains(*others: str, method: str = "tipcoder_rl") -> str:
    """Return the paper's average gain over the best of `others`, for each of its models."""
    best = [max(values) for values in zip(*map(_averages, others), strict=True)]
    return "; ".join(f"{ours - theirs:+.1f}" for ours, theirs in zip(_averages(method), best, strict=True))


def _above(method: str, *others: str) -> Callable[[TipEvidence], Judged]:
    """Return a judge of "`method` is above each of `others`", all selected by the reward model."""

    def judge(evidence: TipEvidence) -> Judged:
        present = [other for other in others if other in evidence.results.methods]
        if not present or not evidence.has(method):
            return _NO_DATA
        texts, verdicts = [], []
        for other in present:
            choice = "raw" if other == "base" else evidence.selector
            gain = evidence.results.difference(method, evidence.selector, other, choice)
            texts.append(f"{TITLES[other]} {interval_text(gain, sign=True)}")
            verdicts.append(side(gain, 0.0, above=True))
        return Judged("over " + "; ".join(texts), combine(verdicts))

    return judge


def _selection_pays(evidence: TipEvidence) -> Judged:
    if not evidence.has("tipcoder_rl"):
        return _NO_DATA
    gain = evidence.results.difference("tipcoder_rl", evidence.selector, "tipcoder_rl", "raw")
    text = f"over always adopting {interval_text(gain, sign=True)}"
    return Judged(_noted(text, evidence), side(gain, 0.0, above=True))


def _selection_leaves_some(evidence: TipEvidence) -> Judged:
    if not evidence.has("tipcoder_rl"):
        return _NO_DATA
    gap = evidence.results.difference("tipcoder_rl", "upper", "tipcoder_rl", evidence.selector)
    text = f"oracle above the reward model {interval_text(gap, sign=True)}"
    return Judged(_noted(text, evidence), side(gap, 0.0, above=True))


def _noted(text: str, evidence: TipEvidence) -> str:
    return f"{text}; {evidence.note}" if evidence.note else text


def _exploration(evidence: TipEvidence) -> Judged:
    if not evidence.has("tipcoder_rl", "best_of_2"):
        return _NO_DATA
    gain = evidence.results.difference("tipcoder_rl", "upper", "best_of_2", "upper")
    return Judged(f"oracle bounds differ by {interval_text(gain, sign=True)}", side(gain, 0.0, above=True))


def _cheaper(evidence: TipEvidence) -> Judged:
    row = evidence.best_of[evidence.best_of["n"] == 8]
    if not evidence.has("tipcoder_rl") or evidence.best_of_8 is None or not len(row):
        return _NO_DATA
    results = evidence.results
    passed = results.passed("tipcoder_rl", evidence.selector)
    gain = paired_interval(passed, evidence.best_of_8, results.draws, results.seed).scaled(100)
    ours, theirs = evidence.cost.set_index("method").loc["tipcoder_rl", "tokens"], row.iloc[0]["tokens"]
    text = f"{interval_text(gain, sign=True)} with {ours:.0f} tokens against {theirs:.0f}"
    return Judged(text, side(gain, 0.0, above=True) if ours < theirs else NOT)


def _net_positive(evidence: TipEvidence) -> Judged:
    if not evidence.has("tipcoder_rl"):
        return _NO_DATA
    total = evidence.categories.set_index("category").loc["total"]
    gain = evidence.results.difference("tipcoder_rl", evidence.selector)
    text = f"{total['positive']} repaired, {total['negative']} broken; Δ {interval_text(gain, sign=True)}"
    return Judged(text, side(gain, 0.0, above=True))


def _clarification_leads(evidence: TipEvidence) -> Judged:
    if not evidence.has("tipcoder_rl"):
        return _NO_DATA
    rows = evidence.categories[evidence.categories["category"] != "total"].set_index("category")
    if not rows["positive"].sum():
        return _NO_DATA
    share = 100 * rows["positive"] / rows["positive"].sum()
    text = ", ".join(f"{rows.loc[c, 'title']} {share[c]:.0f} %" for c in share.nlargest(2).index)
    if evidence.rule_kappa < TRUSTED_KAPPA:
        return Judged(f"most repairs by the rule: {text}; its kappa is {evidence.rule_kappa:.2f}", OPEN)
    leads = share.idxmax() == "semantic_constraint_clarification"
    return Judged(f"most repairs: {text}", REPRODUCED if leads else NOT)


CLAIMS: tuple[TipClaim, ...] = (
    TipClaim(
        "tips_beat_base",
        "TipCoder-RL with a reward model beats the base model",
        "Table 1",
        _reported_gains("base"),
        "paired difference above 0",
        _above("tipcoder_rl", "base"),
    ),
    TipClaim(
        "tips_beat_baselines",
        "TipCoder-RL beats every baseline under the same selector",
        "Table 1",
        "over the best baseline " + _reported_gains(*BASELINES),
        "every paired difference above 0",
        _above("tipcoder_rl", *BASELINES),
    ),
    TipClaim(
        "sft_beats_self_hint",
        "fine-tuning on distilled tips beats the untrained proposer (Self-Hint)",
        "Table 1",
        _reported_gains("self_hint", method="tipcoder_sft"),
        "paired difference above 0",
        _above("tipcoder_sft", "self_hint"),
    ),
    TipClaim(
        "rl_beats_sft",
        "reinforcement with the marginal utility improves on fine-tuning",
        "Table 1",
        _reported_gains("tipcoder_sft"),
        "paired difference above 0",
        _above("tipcoder_rl", "tipcoder_sft"),
    ),
    TipClaim(
        "tips_explore",
        "tips open candidates that a second sample does not",
        "Figure 2",
        "bars only",
        "oracle bound above Best-of-2's",
        _exploration,
    ),
    TipClaim(
        "selection_pays",
        "selecting by a reward model beats always adopting the guided program",
        "Figure 2",
        "bars only",
        "paired difference above 0",
        _selection_pays,
    ),
    TipClaim(
        "selection_gap",
        "the reward model leaves some of the oracle's gain unrealised",
        "Figure 2",
        "bars only",
        "oracle bound above the reward model's choice",
        _selection_leaves_some,
    ),
    TipClaim(
        "cheaper_than_best_of_8",
        "one tip beats Best-of-8 with fewer tokens",
        "Table 2",
        "88.2 (2,812 tokens) against 84.2 (4,610); 73.8 (1,210), 73.5 (2,468); 43.9 (2,546), 44.6 (5,828)",
        "fewer tokens, and paired difference above 0",
        _cheaper,
    ),
    TipClaim(
        "net_positive",
        "selected tips repair more than they break",
        "Table 3",
        "310 repaired, 117 broken of 6,504",
        "paired difference of the selected program to the base program above 0",
        _net_positive,
    ),
    TipClaim(
        "clarification",
        "clarifying what the statement means is the strongest source of repairs",
        "Table 3",
        "43.2 % of all repairs",
        f"the category with the most repairs; open while the rule's kappa is below {TRUSTED_KAPPA}: what it "
        "does not recognise falls into this very category",
        _clarification_leads,
    ),
)


def result_sentences(results: TipResults, selector: str, reward_model: str = "") -> list[str]:
    """Say what the trials show and what they do not: method against method, and selecting against the oracle.

    Args:
        results: trials.
        selector: whose choices count.
        reward_model: name of the reward model, as in the parameters.
    """
    who = SELECTOR_TITLES.get(selector, selector)
    tipped = [method for method in TIPPED if method in results.methods]
    pairs = [pair for pair in CONTRASTS if set(pair) <= set(results.methods)]
    said = [
        finding(
            f"{TITLES[method]} over {TITLES[other]}, pass@1 ({who} selecting)",
            results.difference(method, selector, other, selector),
        )
        for method, other in pairs
    ]
    note = f" Mind that {PRIVILEGED}." if _privileged(selector, reward_model) else ""
    return said + [_selection_sentence(results, method, selector, who) + note for method in tipped[-1:]]


def _selection_sentence(results: TipResults, method: str, selector: str, who: str) -> str:
    """Split the gain that a method's programs allow into what the selector takes and what it leaves."""
    possible, taken = results.difference(method, "upper"), results.difference(method, selector)
    lost = results.difference(method, "upper", method, selector)
    said = (
        f"{TITLES[method]}: the better one of both programs would gain {interval_text(possible, sign=True)} "
        f"points over Base, the selected one ({who}) gains {interval_text(taken, sign=True)}, "
        f"so selecting loses {interval_text(lost)}"
    )
    share = f" ({100 * lost.mean / possible.mean:.0f} % of what there is)" if possible.mean > 0 else ""
    return f"{said}{share}, n = {lost.n} problems."


def _privileged(selector: str, reward_model: str) -> bool:
    return selector == PAPERS_SELECTOR and reward_model in EMBEDDED_REWARD


def judge_tip_claims(evidence: TipEvidence) -> list[dict[str, Any]]:
    """Return every claim with our numbers and a verdict: the records of `evaluation.claims.judge_claims`."""
    judged = [(claim, claim.judge(evidence)) for claim in CLAIMS]
    return [
        {
            "claim": claim.text,
            "where": f"TipCoder, {claim.where}",
            "reported": claim.reported,
            "ours": outcome.ours,
            "verdict": outcome.verdict,
            "rule": claim.rule,
            "id": claim.id,
        }
        for claim, outcome in judged
    ]
