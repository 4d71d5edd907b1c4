"""Figures of tips at test time.  Each function returns the figure and the table of exactly what it shows."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tipprobe.evaluation.style import FAINT, INK, MARKERS, PALETTE, figure_style, new_figure
from tipprobe.tips.results import FIXED, SELECTOR_TITLES
from tipprobe.tips.trials import TITLES

Drawn = tuple[Figure, pd.DataFrame]
#: Marks of the choices; one colour each, apart for every kind of colour vision.
CHOICES = {
    "raw": ("o", "#7f7f7f"),
    "reward_model": ("D", "#0072b2"),
    "pcr": ("^", "#e69f00"),
    "random": ("x", "#cc79a7"),
}
POSITIVE, NEGATIVE = "#009e73", "#d55e00"


def exploration_and_selection(table: pd.DataFrame, name: str) -> Drawn:
    """Draw, for every method, what its candidates could give and what each selector makes of them.

    Args:
        table: from `tipprobe.tips.results.main_table`.
        name: how titles call the model.
    """
    base = table[table["method"] == "base"].iloc[0]
    methods = [method for method in dict.fromkeys(table["method"]) if method != "base"]
    with figure_style():
        figure, axes = new_figure(1, 2, (9.0, 0.45 * len(methods) + 1.7), sharey=True)
        left, right = axes[0]
        for y, method in enumerate(reversed(methods)):
            rows = table[table["method"] == method].set_index("choice")
            left.plot(
                [rows.loc["lower", "mean"], rows.loc["upper", "mean"]],
                [y, y],
                color="#dddddd",
                linewidth=9,
                solid_capstyle="butt",
                zorder=0,
            )
            for shift, choice in enumerate(choice for choice in CHOICES if choice in rows.index):
                marker, color = CHOICES[choice]
                height = y + 0.21 - 0.14 * shift
                left.plot(rows.loc[choice, "mean"], y, marker=marker, color=color, markersize=6)
                low, high = rows.loc[choice, "gain_low"], rows.loc[choice, "gain_high"]
                right.plot([low, high], [height, height], color=color, linewidth=1.5, solid_capstyle="butt")
                right.plot(rows.loc[choice, "gain"], height, marker=marker, color=color, markersize=5)
        left.axvline(base["mean"], color=INK, linewidth=1, linestyle=":")
        right.axvline(0, color=FAINT, zorder=0)
        left.set_yticks(range(len(methods)), [TITLES[method] for method in reversed(methods)])
        left.set_xlabel("pass@1, percent; bar: worst to best choice; dotted: Base")
        right.set_xlabel("gain over Base, points, 95 % over problems")
        handles = [
            left.plot([], [], marker=m, color=c, linestyle="", label=FIXED.get(k) or SELECTOR_TITLES[k])[0]
            for k, (m, c) in CHOICES.items()
            if k in set(table["choice"])
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle(f"Exploring with an added program, and selecting: {name}")
    return figure, table


def cost_against_pass(
    best_of: pd.DataFrame, cost: pd.DataFrame, name: str, selector: str, judged: bool = True
) -> Drawn:
    """Draw pass@1 against tokens per problem: the best-of-N curve and one mark a method.

    Args:
        best_of: from `tipprobe.tips.results.best_of_n_table`.
        cost: from `tipprobe.tips.results.cost_table`.
        name: how titles call the model.
        selector: who chose the methods' programs.
        judged: whether a reward model chose on the best-of-N curve; else any of the N counts alike.
    """
    by_whom = "" if judged and selector == "reward_model" else ", reward model" if judged else ", at random"
    with figure_style():
        figure, axes = new_figure(1, 1, (7.4, 4.0))
        axis = axes[0, 0]
        axis.fill_between(best_of["tokens"], best_of["low"], best_of["high"], color="#eeeeee")
        axis.plot(
            best_of["tokens"],
            best_of["mean"],
            color=INK,
            marker="o",
            markersize=4,
            label=f"Best-of-N{by_whom}",
        )
        for record in best_of.to_dict("records"):
            axis.annotate(
                f"N = {record['n']}", (record["tokens"], record["mean"]), (4, -11), textcoords="offset points"
            )
        for record in cost.to_dict("records"):
            if record["method"] in ("base", "best_of_2"):
                continue
            axis.plot(
                record["tokens"],
                record["pass_at_1"],
                marker=MARKERS[record["method"]],
                color=PALETTE[record["method"]],
                linestyle="",
                markersize=7,
                label=record["title"],
            )
        axis.set_xscale("log")
        axis.set_xticks(best_of["tokens"], [f"{tokens:,.0f}" for tokens in best_of["tokens"]])
        axis.minorticks_off()
        axis.set_xlabel("tokens per problem: coder, proposer and, if there is one, reward model (log)")
        axis.set_ylabel("pass@1, percent")
        figure.legend(loc="outside right center")
        figure.suptitle(f"What tokens buy, {SELECTOR_TITLES[selector]} selecting: {name}")
    shown = cost[["title", "tokens", "pass_at_1"]].rename(columns={"pass_at_1": "mean"})
    curve = best_of.assign(title=[f"Best-of-{n}" for n in best_of["n"]])
    return figure, pd.concat([curve[["title", "tokens", "mean", "low", "high"]], shown], ignore_index=True)


def categories_figure(table: pd.DataFrame, name: str, reported: pd.DataFrame | None = None) -> Drawn:
    """Draw repairs to the right and breakages to the left, a bar a category.

    Args:
        table: from `tipprobe.tips.categories.category_table`.
        name: how titles call the model.
        reported: the paper's counts, drawn beside ours if given: columns category, positive, negative.
    """
    sides = [(name, table)] + ([("paper", reported)] if reported is not None else [])
    rows = table[table["category"] != "total"]
    with figure_style():
        figure, axes = new_figure(1, len(sides), (4.6 * len(sides) + 1.5, 3.0), sharey=True)
        for axis, (title, counts) in zip(axes[0], sides, strict=True):
            values = counts.set_index("category").reindex(rows["category"])
            places = range(len(rows) - 1, -1, -1)
            axis.barh(places, values["positive"], color=POSITIVE, label="repaired")
            axis.barh(places, -values["negative"], color=NEGATIVE, label="broke")
            axis.axvline(0, color=INK, linewidth=0.8)
            axis.set_title(title)
            axis.set_xlabel("selected tips that changed the outcome")
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
        axes[0, 0].set_yticks(range(len(rows) - 1, -1, -1), rows["title"])
        axes[0, 0].legend(loc="lower right")
        figure.suptitle("Tips that repaired and tips that broke, by category")
    return figure, table
