"""What notebooks 03 and 04 draw and lay out of a proposer, computed in `tipprobe.tips.compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tipprobe.evaluation.intervals import Interval
from tipprobe.evaluation.reported import title_name
from tipprobe.evaluation.style import FAINT, INK, PALETTE, figure_style, new_figure
from tipprobe.evaluation.tables import interval_text
from tipprobe.tips.compare import BASE, TITLES, finding, gains_between
from tipprobe.tips.utility import tip_reward

COLORS = {**PALETTE, "oracle": INK}
#: How a measure is called in a sentence.
MEASURES = {"solved": "problems solved", "share": "tests passed"}
#: Panels of the training curves: column of the metrics, title.
PANELS = (
    ("reward", "mean reward R"),
    ("p_curr", "tests passed with the tip (share)"),
    ("zero_advantage_groups", "groups without a signal (share)"),
    ("entropy", "token entropy (nats)"),
    ("kl", "KL to the fine-tuned proposer (nats a token)"),
    ("distinct_tips", "distinct tips in a group"),
)


def tip_table(records: Sequence[Mapping[str, Any]], n: int = 6) -> pd.DataFrame:
    """Return `n` problems on which the proposers differ most, tips side by side, the share behind each."""
    spread = [np.std([entry["share"] for entry in record["tips"].values()]) for record in records]
    chosen = sorted(np.argsort(-np.array(spread), kind="stable")[:n])
    rows = []
    for record in (records[i] for i in chosen):
        row = {"problem": record["statement"].strip(), TITLES[BASE]: f"({record['p_base']:.2f})"}
        for name, entry in record["tips"].items():
            row[TITLES[name]] = f"{entry['tip'] or '–'} ({entry['share']:.2f})"
        rows.append(row)
    return pd.DataFrame(rows)


def readable_rates(table: pd.DataFrame) -> pd.DataFrame:
    """Return `pass_rates` as text, a row a part and proposer."""
    rows = []
    for (part, name), group in table.groupby(["part", "proposer"], sort=False):
        row = {"problems": f"{part} ({group['problems'].iloc[0]})", "proposer": TITLES[name]}
        for record in group.to_dict("records"):
            mean = Interval(record["mean"], record["low"], record["high"], record["problems"])
            gain = Interval(record["gain"], record["gain_low"], record["gain_high"], record["problems"])
            row[f"{record['measure']}, percent"] = interval_text(mean)
            row[f"Δ {record['measure']}"] = "" if name == BASE else interval_text(gain, sign=True)
        rows.append(row)
    return pd.DataFrame(rows)


def proposer_sentences(
    records: Sequence[Mapping[str, Any]], pairs: Sequence[tuple[str, str]], draws: int, seed: int
) -> list[str]:
    """Say of each pair of proposers whether one is shown to be better than the other, over all problems.

    Args:
        records: looked-at problems.
        pairs: (proposer, what it is compared with), the latter may be `BASE`.
        draws: bootstrap draws.
        seed: seeds them.
    """
    return [
        finding(f"{TITLES[name]} over {TITLES[baseline]}, {MEASURES[measure]}", gain)
        for name, baseline in pairs
        for part, measure, gain in gains_between(records, name, baseline, draws, seed)
        if part == "all"
    ]


def pass_rate_figure(table: pd.DataFrame, label: str) -> tuple[Figure, pd.DataFrame]:
    """Draw the gain over no tip of every proposer, a panel a part and measure."""
    shown = table[table["proposer"] != BASE]
    panels = list(shown[["part", "measure"]].drop_duplicates().itertuples(index=False, name=None))
    names = [name for name in TITLES if name in set(shown["proposer"])]
    with figure_style():
        figure, axes = new_figure(
            1, len(panels), (2.6 * len(panels) + 1.2, 0.4 * len(names) + 1.4), sharey=True
        )
        for (part, measure), axis in zip(panels, axes[0], strict=True):
            rows = shown[(shown["part"] == part) & (shown["measure"] == measure)]
            for record in rows.to_dict("records"):
                y, color = -names.index(record["proposer"]), COLORS[record["proposer"]]
                axis.plot([record["gain_low"], record["gain_high"]], [y, y], color=color, linewidth=2)
                axis.plot(record["gain"], y, marker="o", color=color)
            axis.axvline(0, color=FAINT, zorder=0)
            axis.set_title(f"{measure}, {part} (n = {rows['problems'].max()})")
            axis.set_xlabel("points over no tip")
            axis.set_yticks([-i for i in range(len(names))], [TITLES[name] for name in names])
        figure.suptitle(f"One tip a problem, greedy, 95 % over problems: {title_name(label)}")
    return figure, shown


def loss_figure(log: pd.DataFrame, label: str) -> tuple[Figure, pd.DataFrame]:
    """Draw the loss of the fine-tuning over its updates.

    Args:
        log: columns ``update``, ``loss``, ``mean_token_accuracy``.
        label: the model's name, for the title.
    """
    panels = (("loss", "loss (nats a token)"), ("mean_token_accuracy", "tokens predicted (share)"))
    with figure_style():
        figure, axes = new_figure(1, 2, (7.5, 2.8))
        for axis, (column, title) in zip(axes[0], panels, strict=True):
            axis.plot(log["update"], log[column], color=PALETTE["tipcoder_sft"], linewidth=1.8)
            axis.set_title(title)
            axis.set_xlabel("update")
        figure.suptitle(f"Fine-tuning on verified tips: {title_name(label)}")
    return figure, log[["update", *(column for column, _ in panels)]]


def jump_figure(p_bases: Sequence[float], n_tests: int = 12) -> tuple[Figure, pd.DataFrame]:
    """Draw the gain Delta against P_curr for several P_base: a line with a jump at its end."""
    rows = [
        (p_base, k / n_tests, tip_reward(p_base, k / n_tests, 0, threshold=0, penalty=0).delta)
        for p_base in p_bases
        for k in range(n_tests + 1)
    ]
    data = pd.DataFrame(rows, columns=["p_base", "p_curr", "delta"])
    with figure_style():
        figure, axes = new_figure(1, 1, (4.6, 3.0))
        for p_base, marker, (_, part) in zip(p_bases, "osD^v", data.groupby("p_base"), strict=False):
            (line,) = axes[0, 0].plot(part["p_curr"][:-1], part["delta"][:-1], marker=marker, markersize=3)
            axes[0, 0].plot(1, part["delta"].iloc[-1], marker=marker, color=line.get_color())
            line.set_label(f"P_base = {p_base:.2f}")
        axes[0, 0].axhline(0, color=FAINT, zorder=0)
        axes[0, 0].set_xlabel("P_curr, share of tests passed with the tip")
        axes[0, 0].set_ylabel("gain Δ")
        axes[0, 0].legend()
    return figure, data


def curves_figure(metrics: pd.DataFrame, label: str) -> tuple[Figure, pd.DataFrame]:
    """Draw `PANELS` over rollout steps: every step faint, the mean over five of them strong."""
    with figure_style():
        figure, axes = new_figure(2, 3, (10.0, 5.0))
        for axis, (column, title) in zip(axes.flat, PANELS, strict=True):
            axis.plot(metrics["step"], metrics[column], color=FAINT, linewidth=1)
            smooth = metrics[column].rolling(5, center=True, min_periods=1).mean()
            axis.plot(metrics["step"], smooth, color=PALETTE["tipcoder_rl"], linewidth=1.8)
            axis.set_title(title)
        for axis in axes[-1]:
            axis.set_xlabel("rollout step")
        figure.suptitle(f"Reinforcement of the proposer: {title_name(label)}")
    return figure, metrics[["step", *(column for column, _ in PANELS)]]


def group_table(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return one group of rollout records for reading, best advantage first."""
    columns = ["tip", "n_tokens", "p_base", "p_curr", "delta", "reward", "advantage", "program_reason"]
    rows = sorted(records, key=lambda record: -record["advantage"])
    shown = [{**row, "tip": row["tip"] or f"({row['reason']})"} for row in rows]
    return pd.DataFrame([{name: row[name] for name in columns} for row in shown])
