"""What notebooks show of probes: a table, a figure and a text on what was asked for, dropped and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tipprobe.probes.generate import COUNTS
from tipprobe.probes.types import ProbeSet
from tipprobe.problems.schema import Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Outcomes of a requested probe, in stacking order, with a grey-safe colour each.
OUTCOMES = {
    "kept": "#0072B2",
    "duplicate": "#E69F00",
    "malformed": "#CC79A7",
    "too_long": "#999999",
    "too_long_prompt": "#333333",
}
#: What they are called.
TITLES = {name: name for name in OUTCOMES} | {"too_long": "too long", "too_long_prompt": "prompt too long"}


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
    """Return three panels: outcomes of the requested probes, the same by problem, and probes a problem.

    Args:
        summary: from `probe_summary`.
        label: who wrote the probes, for the title.
    """
    import matplotlib.pyplot as plt

    from tipprobe.evaluation.style import INK, figure_style

    with figure_style():
        figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained", width_ratios=(1.2, 1.5, 1))
        _plot_reasons(axes[0], summary)
        # Problems from the one with the fewest to the one with the most probes of its own.
        ranked = summary.sort_values(["kept", "duplicate", "problem_id"], ignore_index=True)
        floor = pd.Series(0, index=ranked.index)
        for outcome, color in _seen(summary).items():
            axes[1].bar(
                ranked.index + 1,
                ranked[outcome],
                1.0 if len(ranked) > 100 else 0.9,
                floor,
                color=color,
                linewidth=0,
                label=TITLES[outcome],
            )
            floor += ranked[outcome]
        axes[1].set_xlim(0.5, len(ranked) + 0.5)
        axes[1].set_xlabel("problems, fewest kept first")
        axes[1].set_ylabel("requested probes")
        axes[1].legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        sizes = summary["probes"].value_counts().sort_index()
        axes[2].bar(sizes.index, sizes, color=OUTCOMES["kept"])
        axes[2].axvline(summary["probes"].median(), color=INK, linestyle=":", linewidth=1)
        axes[2].set_title(f"dotted: median {summary['probes'].median():g}")
        axes[2].xaxis.get_major_locator().set_params(integer=True)
        axes[2].yaxis.get_major_locator().set_params(integer=True)
        axes[2].set_xlabel("distinct probes, examples included")
        axes[2].set_ylabel("problems")
        figure.suptitle(
            f"Probes of {len(summary)} problems, {summary['requested'].sum():,} asked for, written by {label}"
        )
    plt.close(figure)
    return figure


def _seen(summary: pd.DataFrame) -> dict[str, str]:
    """Return the outcomes that occur, with their colours; ``kept`` always."""
    return {name: color for name, color in OUTCOMES.items() if name == "kept" or summary[name].any()}


def _plot_reasons(axis: Axes, summary: pd.DataFrame) -> None:
    """Draw a bar an outcome, malformed ones by reason, with number and percent of what was asked for."""
    bars: list[tuple[str, int, str]] = []
    for outcome, color in _seen(summary).items():
        reasons = [column for column in summary if column.startswith(f"{outcome}:")]
        for column in sorted(reasons, key=lambda name: -summary[name].sum()) or [outcome]:
            name = TITLES.get(column) or column.replace(":", ": ").replace("_", " ")
            bars.append((name, int(summary[column].sum()), color))
    names, counts, colors = zip(*bars, strict=True)
    requested = max(int(summary["requested"].sum()), 1)
    drawn = axis.barh(range(len(bars)), counts, color=colors)
    axis.bar_label(drawn, [f"{count:,} ({count / requested:.0%})" for count in counts], padding=3, fontsize=8)
    axis.set_yticks(range(len(bars)), names)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.35 * max(*counts, 1))
    axis.set_xlabel("requested probes")


def findings(summary: pd.DataFrame, label: str, draws: int, seed: int) -> str:
    """Return in three or four sentences of Markdown what became of the requested probes.

    Args:
        summary: from `probe_summary`.
        label: who wrote them.
        draws: bootstrap draws over problems.
        seed: seeds them.
    """
    from tipprobe.evaluation.intervals import ratio_interval
    from tipprobe.evaluation.tables import interval_text

    requested, kept = summary["requested"], summary["kept"]
    share = ratio_interval(kept.to_numpy(), requested.to_numpy(), draws, seed).scaled(100)
    lost = {name: int(summary[name].sum()) for name in OUTCOMES if name != "kept" and summary[name].any()}
    reason = max(lost, key=lost.__getitem__, default="")
    sentences = [
        f"Of {requested.sum():,} probes asked for, on {len(summary)} problems, {kept.sum():,} by {label} "
        f"were kept: {interval_text(share)} % (95 % over problems)."
    ]
    if reason:
        of_all = lost[reason] / sum(lost.values())
        sentences.append(
            f"The largest part of the rest was lost as *{TITLES[reason]}*: {lost[reason]:,} of "
            f"{sum(lost.values()):,} ({of_all:.0%})."
        )
    sizes = summary["probes"]
    span = f"{sizes.min()} to {sizes.max()}" if sizes.nunique() > 1 else f"{sizes.max()}"
    sentences.append(
        f"With example inputs a problem has {span} distinct probes, {sizes.median():g} in the median."
    )
    without = int((sizes == 0).sum())
    unasked = int((summary["too_long_prompt"] > 0).sum())
    sentences.append(
        f"{without or 'No'} problem{'' if without == 1 else 's'} ended without any"
        + (f"; {unasked} had a prompt that does not fit the model's context." if unasked else ".")
    )
    return " ".join(sentences)
