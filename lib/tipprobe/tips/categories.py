"""What kind of help a tip gives: the paper's six categories, by a rule that anybody can read.

The first rule whose pattern occurs in the tip decides, in the order of `RULES`: what is most specific comes
first, and what matches nothing clarifies what the statement means.  Beside this module lie tips that were
labelled by hand without looking at the rule: the rule was revised on ``labelled.jsonl``, half of which a
second person labelled too, and is judged on ``labelled_test.jsonl``, which that person labelled alone.  There
``world`` marks tips about problems of the embedded world, which are what its proposers write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tipprobe.errors import DataError
from tipprobe.problems.schema import read_jsonl
from tipprobe.tips.results import TipResults

LABELLED = Path(__file__).with_name("labelled.jsonl")
LABELLED_TEST = Path(__file__).with_name("labelled_test.jsonl")
#: Category -> name in tables, in the paper's order.
CATEGORIES = {
    "semantic_constraint_clarification": "semantic or constraint clarification",
    "boundary_edge_case": "boundary or edge case",
    "index_order_output_alignment": "index, order or output",
    "algorithmic_strategy_invariant": "algorithm or invariant",
    "type_parsing_api": "type, parsing or API",
    "numerical_formula_precision": "number, formula or precision",
}
OTHERWISE = "semantic_constraint_clarification"
#: Agreement beyond chance from which single categories may be read, and decide a claim.
TRUSTED_KAPPA = 0.6


def _words(*stems: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(stems)})", re.IGNORECASE)


#: (category, words whose beginning decides); the first match wins, so a category may come more than once.
RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "algorithmic_strategy_invariant",
        _words(
            "algorithm",
            "complexit",
            "dynamic programming",
            "two pointers",
            "sliding window",
            "stack",
            "heap",
            "queue",
            "recurs",
            "greed",
            "invariant",
            "sweep",
            "topological",
            "(?:breadth|depth)-first",
            "binary search",
            "too slow",
            "one pass",
            "keep track",
            "memo",
            "loop over",
            "visited",
            "share (?:that|the same) key",
        ),
    ),
    (
        "type_parsing_api",
        _words(
            "pars",
            "convert",
            "cast",
            "isinstance",
            "boolean",
            "data ?frame",
            "encod",
            "strptime",
            "json",
            "import",
            "librar",
            r"\w+\(\)",
            "object",
            "keyword",
            "as (?:a|an) (?:string|integer|float|list|tuple|dict)",
            "type",
        ),
    ),
    (
        "numerical_formula_precision",
        _words(
            "rounded",
            "rounding",
            "quotient",
            "remainder",
            "half of",
            "halv",
            "precision",
            "floating",
            "overflow",
            "modul",
            "formula",
            "decimal",
        ),
    ),
    (
        OTHERWISE,
        _words(
            "ties?",
            "tied",
            "equally",
            "of two middle",
            "counts are equal",
            "same (?:count|score|frequency)",
            "overlap",
            "undirected",
            "left out",
            "need not",
        ),
    ),
    (
        "boundary_edge_case",
        _words(
            "empty",
            "boundar",
            "borders?",
            "edge case",
            "inclusive",
            "exclusive",
            "exactly",
            "equal to",
            "at least",
            "at most",
            "single",
            "itself",
            "themselves",
            "leaves out",
            "zero",
            "n = [01]",
            "touch",
            "without partner",
            "near enough",
            "too far",
            "no number at the end",
        ),
    ),
    (
        "numerical_formula_precision",
        _words("squar", "times", "divid", "division", "average", "product", "power of", "percent", "half"),
    ),
    (
        "index_order_output_alignment",
        _words(
            "index",
            "indices",
            "position",
            "order",
            "first",
            "last",
            "second number",
            "start",
            "numbered from",
            "count(?:ed|s)? from",
            "to the (?:left|right)",
            "front",
            "back",
            "end of the list",
            "sorted",
            "print",
            "output",
            "newline",
            "column",
            "mirror",
            "ascending",
            "descending",
            "rotat",
            "weight",
        ),
    ),
)


def categorise(tip: str) -> str:
    """Return the category of a tip, a key of `CATEGORIES`."""
    return next((category for category, pattern in RULES if pattern.search(tip)), OTHERWISE)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two ways to label tips compare.

    Attributes:
        n: labelled tips.
        same: tips on which both agree.
        kappa: Cohen's kappa, the share of agreement beyond chance; NaN if both used one category only.
        table: counts, the first labels by row, the second by column.
    """

    n: int
    same: int
    kappa: float
    table: pd.DataFrame


def rule_against_people(path: Path = LABELLED_TEST, *, world: bool | None = None) -> Agreement:
    """Compare hand labels with the rule.

    Args:
        path: labelled tips.
        world: only tips about problems of the embedded world, or only the others; all of them if None.
    """
    records = [r for r in _labelled(path) if world is None or r.get("world", False) == world]
    return agreement([(record["category"], categorise(record["tip"])) for record in records])


def agreement_sentence(found: Agreement, what: str) -> str:
    """Say how far categories that the rule gives can be trusted: what to read before any table of them.

    Args:
        found: the rule against a person.
        what: which tips, such as ``tips``.
    """
    missed = found.n - found.same
    safe = found.kappa >= TRUSTED_KAPPA  # not so where kappa is no number
    verdict = "single categories can be read" if safe else "only totals are safe"
    return (
        f"Of {found.n} {what} the rule puts {missed} ({100 * missed / found.n:.0f} %) into another category "
        f"than a person does (kappa {found.kappa:.2f}): {verdict}."
    )


def people_against_each_other(path: Path = LABELLED) -> Agreement:
    """Compare the labels of two people, on the tips that both labelled."""
    return agreement([(first, second) for _, first, second in labelled(path) if second is not None])


def labelled(path: Path) -> list[tuple[str, str, str | None]]:
    """Return hand-labelled tips as (tip, category, a second person's category or None).

    Raises:
        DataError: a line has another category than those of `CATEGORIES`.
    """
    return [(record["tip"], record["category"], record.get("second")) for record in _labelled(path)]


def _labelled(path: Path) -> list[dict[str, Any]]:
    records = list(read_jsonl(path))
    for number, record in enumerate(records, 1):
        for category in (record["category"], record.get("second")):
            if category is not None and category not in CATEGORIES:
                raise DataError(
                    f"{path}, line {number}: {category!r} is none of the categories {', '.join(CATEGORIES)}"
                )
    return records


def agreement(pairs: Sequence[tuple[str, str]]) -> Agreement:
    """Compare two labels of each tip."""
    names = list(CATEGORIES)
    counts = np.zeros((len(names), len(names)), dtype=int)
    for first, second in pairs:
        counts[names.index(first), names.index(second)] += 1
    n, same = int(counts.sum()), int(np.trace(counts))
    chance = float((counts.sum(axis=0) * counts.sum(axis=1)).sum()) / n**2
    kappa = (same / n - chance) / (1 - chance) if chance < 1 else float("nan")
    return Agreement(n, same, kappa, pd.DataFrame(counts, index=names, columns=names))


def category_table(results: TipResults, methods: Sequence[str], selector: str) -> pd.DataFrame:
    """Return what selected tips did, by category.

    Args:
        results: trials.
        methods: whose tips count.
        selector: whose choices count.

    Returns:
        One row a category and a last row ``total``: ``category, title, selected, positive, negative, net,
        positive_rate``.  *Positive* repaired a base failure, *negative* broke a correct base program; the
        rate is in percent of the two, empty where there are none.
    """
    counts = {name: [0, 0, 0] for name in CATEGORIES}
    for method in methods:
        for row in results.cells(method):
            for trial, choices in row:
                index = choices[selector].index
                tip = trial.branches[index].tip
                if tip is None:
                    continue
                before, after = trial.branches[0].passed, trial.branches[index].passed
                tally = counts[categorise(tip)]
                tally[0] += 1
                tally[1] += after and not before
                tally[2] += before and not after
    counts["total"] = [sum(column) for column in zip(*counts.values(), strict=True)]
    return pd.DataFrame(
        [
            {
                "category": name,
                "title": CATEGORIES.get(name, name),
                "selected": selected,
                "positive": positive,
                "negative": negative,
                "net": positive - negative,
                "positive_rate": 100 * positive / (positive + negative) if positive + negative else None,
            }
            for name, (selected, positive, negative) in counts.items()
        ]
    )


def changed_by_tips(
    results: TipResults, methods: Sequence[str], selector: str
) -> tuple[list[dict[str, str | int]], list[dict[str, str | int]]]:
    """Return the selected tips that repaired and those that broke, a record each, in problem order."""
    repaired: list[dict[str, str | int]] = []
    broke: list[dict[str, str | int]] = []
    for method in methods:
        for row in results.cells(method):
            for trial, choices in row:
                branch = trial.branches[choices[selector].index]
                if branch.tip is None or branch.passed == trial.branches[0].passed:
                    continue
                (repaired if branch.passed else broke).append(
                    {
                        "method": method,
                        "run": trial.run,
                        "problem_id": trial.problem_id,
                        "tip": branch.tip,
                        "category": categorise(branch.tip),
                    }
                )
    return repaired, broke
