"""What notebooks show of probes: a table and a figure of what was asked for, dropped and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tipprobe.probes.generate import COUNTS
from tipprobe.probes.types import ProbeSet
from tipprobe.problems.schema import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Outcomes of a requested probe, in stacking order, with a grey-safe colour each.
OUTCOMES = {"kept": "#0072B2", "duplicate": "#E69F00", "malformed": "#CC79A7", "too_long": "#999999"}


def probe_summary(problems: Sequence[Problem], sets: Sequence[ProbeSet]) -> pd.DataFrame:
    """Return a row a problem: kind, the counts of `ProbeSet`, probes in all, length of the longest."""
    rows = []
    for problem, probe_set in zip(problems, sets, strict=True):
        reasons = {k: v for k, v in probe_set.counts.items() if ":" in k}
        rows.append(
            {
                "problem_id": problem.id,
                "kind": problem.kind,
                **{name: probe_set.counts.get(name, 0) for name in COUNTS},
                **dict(sorted(reasons.items())),
                "probes": len(probe_set.probes),
                "longest": max((len(text) for text in probe_set.inputs), default=0),
            }
        )
    table = pd.DataFrame(rows)
    reasons = sorted(column for column in table if ":" in column)
    table[reasons] = table[reasons].fillna(0).astype(int)
    plain = [column for column in table if ":" not in column]
    return table[plain + reasons]


def dropped_shares(summary: pd.DataFrame) -> pd.DataFrame:
    """Return number and share of requested probes by outcome, with the reasons of malformed ones."""
    reasons = [column for column in summary if ":" in column]
    counts = summary[["requested", "generated", *OUTCOMES, *reasons]].sum()
    return pd.DataFrame({"probes": counts, "share": counts / max(counts["requested"], 1)})


def plot_outcomes(summary: pd.DataFrame, label: str) -> Figure:
    """Return two panels: outcomes of the requested probes by kind of problem, and probes a problem.

    Args:
        summary: from `probe_summary`.
        label: who wrote the probes, for the title.
    """
    import matplotlib.pyplot as plt

    from tipprobe.evaluation.style import figure_style

    by_kind = summary.groupby("kind")[["requested", *OUTCOMES]].sum()
    shares = by_kind[list(OUTCOMES)].div(by_kind["requested"].clip(lower=1), axis=0)
    with figure_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
        start = pd.Series(0.0, index=shares.index)
        for outcome, color in OUTCOMES.items():
            left.barh(shares.index, shares[outcome], left=start, color=color, label=outcome.replace("_", " "))
            start += shares[outcome]
        left.set_xlabel("share of requested probes")
        left.legend(ncols=len(OUTCOMES), loc="lower center", bbox_to_anchor=(0.5, 1.0))
        sizes = summary["probes"].value_counts().sort_index()
        right.bar(sizes.index, sizes, color=OUTCOMES["kept"])
        right.xaxis.get_major_locator().set_params(integer=True)
        right.set_xlabel("distinct probes, examples included")
        right.set_ylabel("problems")
        figure.suptitle(f"Probes of {len(summary)} problems, written by {label}")
    plt.close(figure)
    return figure
