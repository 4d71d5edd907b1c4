"""The figures of the evaluation.  Each function returns the figure and the table of exactly what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tipprobe.evaluation import reported
from tipprobe.evaluation.agreement import reliability
from tipprobe.evaluation.results import BASE, Results
from tipprobe.evaluation.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    REPORTED,
    figure_style,
    new_figure,
    save_figure,
)
from tipprobe.evaluation.tables import SPLIT_TITLES, seeds_text, sizes_text
from tipprobe.training.methods import METHODS

__all__ = [
    "agreement_figure",
    "gain_against_auc",
    "main_comparison",
    "pass_at_k_curves",
    "save_figure",
    "small_multiples",
]

Drawn = tuple[Figure, pd.DataFrame]
#: Marks of the paper's models.
REPORTED_MARKERS = {"Qwen3-4B": "d", "Qwen3-8B": "s"}
RELIABILITY_EDGES = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)


def main_comparison(table: pd.DataFrame, label: str) -> Drawn:
    """Draw pass@k of every method with its interval, and its paired gain over base beside the reported gains.

    Args:
        table: from `tipprobe.evaluation.tables.main_table`.
        label: the model's name, for the title.
    """
    columns = list(table[["split", "k"]].drop_duplicates().itertuples(index=False, name=None))
    methods = list(dict.fromkeys(table["method"]))
    with figure_style():
        size = (2.7 * len(columns) + 1.2, 0.75 * len(methods) + 2.0)
        figure, axes = new_figure(2, len(columns), size, sharey=True)
        for (split, k), top, bottom in zip(columns, *axes, strict=True):
            part = table[(table["split"] == split) & (table["k"] == k)]
            for record in part.to_dict("records"):
                y = len(methods) - methods.index(record["method"])
                _dot(top, record, y, "mean", "low", "high")
                if record["method"] != BASE:
                    _dot(bottom, record, y, "gain", "gain_low", "gain_high")
                for model, marker in REPORTED_MARKERS.items():
                    _hollow(top, record[f"reported_{model}"], y, marker)
                    if record["method"] != BASE:
                        _hollow(bottom, record[f"reported_gain_{model}"], y, marker)
            bottom.axvline(0, color=FAINT, zorder=0)
            top.set_title(f"pass@{k}, {SPLIT_TITLES[split]}")
            top.set_xlabel("percent")
            bottom.set_xlabel("gain over Base, points")
        for axis in axes[:, 0]:
            axis.set_yticks(range(len(methods), 0, -1), [METHODS[m].title for m in methods])
            axis.set_ylim(0.4, len(methods) + 0.6)
        _legend_of_marks(figure, axes[0, 0], label)
        figure.suptitle(f"Adaptation without labels: {label} beside the paper's models\n{sizes_text(table)}")
    return figure, table


def _dot(axis: Axes, record: dict, y: float, mean: str, low: str, high: str) -> None:
    color, marker = PALETTE[record["method"]], MARKERS[record["method"]]
    axis.plot([record[low], record[high]], [y, y], color=color, linewidth=2, solid_capstyle="butt")
    axis.plot([record[mean]], [y], color=color, marker=marker, markersize=6)


def _hollow(axis: Axes, value: float | None, y: float, marker: str) -> None:
    if value is not None and not np.isnan(value):
        axis.plot([value], [y - 0.27], color=REPORTED, marker=marker, markersize=5, fillstyle="none")


def _legend_of_marks(figure: Figure, axis: Axes, label: str) -> None:
    own = axis.plot(
        [], [], color=INK, marker="o", linewidth=2, label=f"{label} (95 % interval over problems)"
    )
    theirs = [
        axis.plot(
            [], [], color=REPORTED, marker=marker, linestyle="", fillstyle="none", label=f"paper, {model}"
        )[0]
        for model, marker in REPORTED_MARKERS.items()
    ]
    figure.legend(handles=[*own, *theirs], loc="outside lower center", ncols=3)


def pass_at_k_curves(results: Results, split: str, label: str, ks: Sequence[int] | None = None) -> Drawn:
    """Draw pass@k over k: ours, our paired gain over base with intervals, and the paper's curves.

    Args:
        results: evaluated models.
        split: ``in_domain`` or ``transfer``.
        label: the model's name, for the title.
        ks: values of k; by default the powers of two up to the number of samples.
    """
    limit = results.samples_per_problem(split)
    ks = list(ks or sorted({2**i for i in range(limit.bit_length()) if 2**i <= limit} | {limit}))
    methods = [method for method in results.methods if results.runs(method, split)]
    paper = f"paper, {reported.MODELS[0]}: pass@k, percent"
    rows = []
    for panel, value in (
        (f"{label}: pass@k, percent", results.interval),
        ("gain over Base, points", results.gain),
    ):
        for method in methods:
            for k in ks:
                interval = value(method, split, k)
                if value == results.interval or method != BASE:
                    row = {"mean": interval.mean, "low": interval.low, "high": interval.high}
                    rows.append({"panel": panel, "method": method, "k": k, **row})
    for record in reported.reported_curve(reported.MODELS[0], split).itertuples():
        rows.append({"panel": paper, "method": record.method, "k": record.k, "mean": record.pass_at_k})
    data = pd.DataFrame(rows)
    panels = list(dict.fromkeys(data["panel"]))
    with figure_style():
        figure, axes = new_figure(1, len(panels), (3.7 * len(panels), 3.5))
        for panel, axis in zip(panels, axes[0], strict=True):
            shown = data[data["panel"] == panel]
            for number, (method, part) in enumerate(shown.groupby("method", sort=False)):
                x = part["k"] * 1.04 ** (number - 1.5) if panel.startswith("gain") else part["k"]
                style = {"color": PALETTE[method], "marker": MARKERS[method], "markersize": 4}
                axis.plot(x, part["mean"], label=METHODS[method].title, **style)
                if panel.startswith("gain"):
                    axis.vlines(x, part["low"], part["high"], color=PALETTE[method], linewidth=1)
                elif method == BASE:
                    axis.fill_between(
                        x, part["low"], part["high"], color=PALETTE[method], alpha=0.15, linewidth=0
                    )
            if panel.startswith("gain"):
                axis.axhline(0, color=FAINT, zorder=0)
            ticks = sorted(shown["k"].unique())
            axis.set_xscale("log", base=2)
            axis.set_xticks(ticks, [str(k) for k in ticks])
            axis.minorticks_off()
            axis.set_xlabel("k, samples allowed")
            axis.set_title(panel)
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(methods))
        n = len(results.runs(BASE, split)[0].problem_ids)
        seeds = max(len(results.runs(method, split)) for method in methods)
        figure.suptitle(
            f"pass@k {SPLIT_TITLES[split]}, {label}; band and bars: 95 % over problems\n"
            f"{n} problems × {limit} samples; {seeds_text(seeds)}"
        )
    return figure, data


def agreement_figure(
    results: Results, table: pd.DataFrame, label: str, split: str = "in_domain", method: str = BASE
) -> Drawn:
    """Draw consensus against hidden correctness: the share of correct samples in bins, and failure rates.

    Args:
        results: evaluated models.
        table: from `tipprobe.evaluation.tables.agreement_table`.
        label: the model's name, for the title.
        split: where probes exist.
        method: whose samples; the paper's are the unadapted model's.
    """
    scores, passed, units = results.consensus_groups(method, split)
    bins = pd.DataFrame(reliability(scores, passed, RELIABILITY_EDGES, results.draws, results.seed, units))
    rates = table[(table["method"] == method) & table["quantity"].str.startswith("failure rate")]
    with figure_style():
        figure, axes = new_figure(1, 2, (9, 3.5))
        left, right = axes[0]
        centre = (bins["low"] + bins["high"]) / 2
        left.bar(
            centre,
            bins["samples"] / bins["samples"].sum() * 100,
            width=0.11,
            color=FAINT,
            label="share of samples",
        )
        shown = bins["samples"] > 0
        left.plot(centre[shown], 100 * bins["correct"][shown], color=PALETTE[method], marker=MARKERS[method])
        left.vlines(
            centre[shown],
            100 * bins["correct_low"][shown],
            100 * bins["correct_high"][shown],
            color=PALETTE[method],
            linewidth=2,
        )
        left.plot([0, 1], [0, 100], color=INK, linewidth=0.8, linestyle=":")
        left.set_xlabel("PCR")
        left.set_ylabel("percent correct by hidden tests")
        left.set_title("bars: percent of samples; dotted: if PCR were a probability")
        for y, record in enumerate(rates.to_dict("records")[::-1]):
            right.plot([record["low"], record["high"]], [y, y], color=PALETTE[method], linewidth=2)
            right.plot([record["mean"]], [y], color=PALETTE[method], marker=MARKERS[method])
            for model, marker in REPORTED_MARKERS.items():
                _hollow(right, record[f"reported_{model}"], y, marker)
        names = [q.removeprefix("failure rate at ") for q in rates["quantity"]]
        right.set_yticks(range(len(names)), names[::-1])
        right.set_ylim(-0.6, len(names) - 0.4)
        right.set_xlim(0, 102)
        right.set_xlabel("percent that fail hidden tests")
        right.set_title("failure rate by consensus")
        _legend_of_marks(figure, right, label)
        area = table[(table["method"] == method) & (table["quantity"] == "AUC, pooled")].iloc[0]
        figure.suptitle(
            f"Consensus and correctness, {METHODS[method].title}, {label} "
            f"(AUC {area['mean']:.2f} [{area['low']:.2f}, {area['high']:.2f}])\n"
            f"{area['problems']} problems, {area['samples']:,} samples; intervals: 95 % over problems"
        )
    data = bins.assign(panel="reliability")
    return figure, pd.concat([data, rates.assign(panel="thresholds")], ignore_index=True)


def small_multiples(
    curves: pd.DataFrame,
    panels: Sequence[tuple[str, str]],
    title: str,
    *,
    lines: Mapping[str, Sequence[float]] | None = None,
    x_label: str = "rollout step",
    columns: int = 3,
    point: str | None = None,
) -> Drawn:
    """Draw one panel a column over steps: a thin line a run, a thick one for the mean over seeds.

    Args:
        curves: columns ``method, seed, step`` and those of `panels`; missing values leave gaps.  A column has
            a band if ``<column>_low`` and ``<column>_high`` are there too: their means over seeds, which are
            no narrower than the interval of the mean.
        panels: column and title of each panel.
        title: of the figure; it names the model.
        lines: heights of dotted horizontal lines by column, such as the entropy ceiling.
        x_label: what a step is.
        columns: panels side by side.
        point: what one point of a run is measured on, for the title; by default read from the columns
            ``problems`` and ``k`` (samples of each), if they are there.
    """
    methods = [name for name in METHODS if name in set(curves["method"])]
    bounds = [f"{c}_{end}" for c, _ in panels for end in ("low", "high") if f"{c}_{end}" in curves]
    sizes = [name for name in ("problems", "k") if name in curves]
    notes = [_point_text(curves) if point is None else point, "band: 95 % over problems" if bounds else ""]
    note = "; ".join(filter(None, notes))
    height = -(-len(panels) // columns)
    with figure_style():
        figure, axes = new_figure(height, min(columns, len(panels)), (3.5 * columns, 2.5 * height + 0.8))
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        for axis, (column, panel_title) in zip(axes.flat, panels, strict=False):
            for method in methods:
                part = curves[curves["method"] == method]
                runs = part.pivot(index="step", columns="seed", values=column).astype(float)
                if runs.shape[1] > 1:
                    axis.plot(runs.index, runs, color=PALETTE[method], linewidth=0.6, alpha=0.5)
                mean = runs.mean(axis=1)
                axis.plot(mean.index, mean, color=PALETTE[method], linewidth=1.8, label=METHODS[method].title)
                if f"{column}_low" in bounds:
                    ends = part.groupby("step")[[f"{column}_low", f"{column}_high"]].mean()
                    axis.fill_between(ends.index, *ends.T.to_numpy(), color=PALETTE[method], alpha=0.1, lw=0)
                    for end in ends:  # bands overlap: their edges tell them apart
                        axis.plot(ends.index, ends[end], color=PALETTE[method], linewidth=0.6, linestyle=":")
            for level in (lines or {}).get(column, ()):
                axis.axhline(level, color=INK, linewidth=1, linestyle=":", zorder=0)
            axis.set_title(panel_title)
        for axis in axes[-1]:
            axis.set_xlabel(x_label)
        figure.legend(
            *axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=max(1, len(methods))
        )
        figure.suptitle(f"{title}\n{note}" if note else title)
    return figure, curves[["method", "seed", "step", *(column for column, _ in panels), *bounds, *sizes]]


def _point_text(curves: pd.DataFrame) -> str:
    """Return what a point of a run is measured on, from the columns ``problems`` and ``k``."""
    if not {"problems", "k"} <= set(curves):
        return ""
    spans = []
    for name in ("problems", "k"):
        low, high = int(curves[name].min()), int(curves[name].max())
        spans.append(f"{low}" if low == high else f"{low} to {high}")
    return f"a point: {spans[0]} problems × {spans[1]} rollouts, {seeds_text(curves['seed'].nunique())}"


def gain_against_auc(table: pd.DataFrame, label: str) -> Drawn:
    """Draw what each method gained against how well consensus tells right from wrong.

    Args:
        table: from `tipprobe.evaluation.tables.gain_by_auc`.
        label: the model's name, for the title.
    """
    methods = list(dict.fromkeys(table["method"]))
    with figure_style():
        figure, axes = new_figure(1, 1, (5.6, 3.8))
        axis = axes[0, 0]
        for number, method in enumerate(methods):
            part = table[table["method"] == method]
            x = part["auc"] + 0.006 * (number - (len(methods) - 1) / 2)  # side by side, not on top
            axis.vlines(x, part["low"], part["high"], color=PALETTE[method], linewidth=1.5)
            axis.plot(
                x, part["mean"], color=PALETTE[method], marker=MARKERS[method], label=METHODS[method].title
            )
        for _, third in table.groupby("part"):
            first = third.iloc[0]  # the same problems for every method
            place = (first["auc"], 1.0)
            axis.annotate(
                f"n = {first['problems']}", place, xycoords=axis.get_xaxis_transform(), ha="center", va="top"
            )
        axis.margins(y=0.12)
        axis.axhline(0, color=FAINT, zorder=0)
        axis.set_xlabel("AUC(PCR, hidden) of Base within problem, thirds of the problems")
        axis.set_ylabel(f"gain in pass@{table['k'].iloc[0]}, points")
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.suptitle(
            f"When does consensus help? {label}, in domain\n"
            f"n: problems; bars: 95 % over them; {table['samples'].max()} samples each (half of Base's); "
            f"{seeds_text(int(table['seeds'].max()))}",
            fontsize=9,
        )
    return figure, table
