"""The paper's own numbers, carried as data, and how they map onto ours.

Shares are in percent, as printed; areas under the curve are between 0 and 1.  The paper adapts on
LiveCodeBench and evaluates zero-shot on CodeContests, CodeForces and TACO (``transfer_mean``).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from tipprobe.errors import DataError

FOLDER = Path(__file__).parent / "reported"
#: Models of the paper, in the order of its tables.
MODELS = ("Qwen3-4B", "Qwen3-8B")
#: What our two problem sets stand for in the paper.
BENCHMARKS = {"in_domain": "LiveCodeBench", "transfer": "transfer_mean"}
#: Names of consensus thresholds (`tipprobe.evaluation.agreement.THRESHOLDS`) in the paper's second table.
THRESHOLDS = {
    "<= 0.25": "fail_rate_pcr_le_0.25",
    "<= 0.5": "fail_rate_pcr_le_0.5",
    ">= 0.9": "fail_rate_pcr_ge_0.9",
    "= 1": "fail_rate_pcr_eq_1.0",
}


@cache
def table(name: str) -> pd.DataFrame:
    """Return a table of reported numbers, such as ``erpo_table1``.

    Raises:
        DataError: there is no such table.
    """
    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.csv")))
        raise DataError(f"no reported table {name!r}; there are {known}")
    return pd.read_csv(path)


def reported_pass(model: str, method: str, split: str, k: int) -> float | None:
    """Return the reported pass@k in percent, None if the paper does not give it.

    Args:
        model: one of `MODELS`.
        method: key of `tipprobe.training.methods.METHODS`.
        split: key of `BENCHMARKS`.
        k: samples allowed.  1 and 16 come from the main table, others from the paper's third table, whose
            values at 1 differ a little from the main table's.
    """
    rows = table("erpo_table1" if k in (1, 16) else "erpo_table3_pass_at_k")
    rows = rows[
        (rows["model"] == model) & (rows["method"] == method) & (rows["benchmark"] == BENCHMARKS[split])
    ]
    if k not in (1, 16):
        rows = rows[rows["k"] == k]
    column = {1: "pass_at_1", 16: "pass_at_16"}.get(k, "pass_at_k")
    values = rows[column].dropna()
    return float(values.iloc[0]) if len(values) else None


def reported_gain(model: str, method: str, split: str, k: int) -> float | None:
    """Return the reported difference to the unadapted model in points, None if a side is missing."""
    value, base = (reported_pass(model, name, split, k) for name in (method, "base"))
    return None if value is None or base is None else round(value - base, 6)


def reported_curve(model: str, split: str) -> pd.DataFrame:
    """Return the paper's pass@k beyond its main table: columns method, k, pass_at_k (percent)."""
    rows = table("erpo_table3_pass_at_k")
    rows = rows[(rows["model"] == model) & (rows["benchmark"] == BENCHMARKS[split])]
    return rows[["method", "k", "pass_at_k"]].reset_index(drop=True)


def reported_agreement(model: str, quantity: str) -> float:
    """Return a value of the paper's second table (``auc_pcr_hidden``, or a value of `THRESHOLDS`)."""
    rows = table("erpo_table2_pcr_vs_hidden")
    return float(rows[(rows["model"] == model) & (rows["quantity"] == quantity)]["value"].iloc[0])


def is_stand_in(label: str) -> bool:
    """Return whether the model called `label` is not one of the paper's."""
    return label not in MODELS


def title_name(label: str) -> str:
    """Return how titles call a model: results of a model that stands in for the paper's say so."""
    return f"stand-in {label}" if is_stand_in(label) else label
