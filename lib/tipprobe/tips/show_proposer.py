"""What notebooks show of a proposer: tips side by side, what they do, what was learnt.

The common shape is the *looked-at problem*, one record a problem: ``problem_id, statement, p_base, meta`` and
``tips``, by proposer ``{tip, reason, share, program_reason}``, where `share` is that of the tests which the
coder's greedy program passes with the tip (without, if there is none, since the coder then gets the problem
as it is).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tipprobe.evaluation.intervals import Interval, mean_interval, paired_interval
from tipprobe.evaluation.reported import title_name
from tipprobe.evaluation.style import FAINT, INK, PALETTE, figure_style, new_figure
from tipprobe.evaluation.tables import interval_text
from tipprobe.problems.schema import Problem
from tipprobe.tips.environment import CodeEnvironment
from tipprobe.tips.propose import Proposal
from tipprobe.tips.trials import TITLES as METHOD_TITLES
from tipprobe.tips.utility import tip_reward

NO_TIP = "base"
#: Proposers in table order: key -> name in tables.
TITLES = {
    NO_TIP: "no tip",
    **{name: METHOD_TITLES[name] for name in ("self_hint", "tipcoder_sft", "tipcoder_rl")},
    "oracle": "the world's own tip",
}
COLORS = {**PALETTE, "oracle": INK}
#: Parts of the validation problems that are shown apart: name -> whether a problem belongs there.
PARTS = {"all": lambda record: True, "unsolved": lambda record: record["p_base"] < 1}
#: Panels of the training curves: column of the metrics, title.
PANELS = (
    ("reward", "mean reward R"),
    ("p_curr", "tests passed with the tip (share)"),
    ("zero_advantage_groups", "groups without a signal (share)"),
    ("entropy", "token entropy (nats)"),
    ("kl", "KL to the fine-tuned proposer (nats a token)"),
    ("distinct_tips", "distinct tips in a group"),
)
_LEAD_IN = re.compile(r"^(careful|note|remember):\s*", re.IGNORECASE)


def oracle_proposals(problems: Sequence[Problem]) -> list[Proposal]:
    """Return each problem's own right tip as a proposal, an empty one where the problem has none."""
    tips = [problem.meta.get("tip") for problem in problems]
    return [Proposal(tip, "ok" if tip else "empty", 0, tip or "") for tip in tips]


def look_at(
    environment: CodeEnvironment,
    problems: Sequence[Problem],
    p_base: Mapping[str, float],
    proposals: Mapping[str, Sequence[Proposal]],
) -> list[dict[str, Any]]:
    """Have the environment try one tip of each proposer on each problem; return looked-at problems.

    Args:
        environment: the frozen coder with its sandbox.
        problems: what to look at.
        p_base: P_base by problem id.
        proposals: by proposer, one proposal a problem.

    Raises:
        SandboxError: the execution machinery failed.
    """
    requests = [
        (problem, proposal.tip)
        for of_one in proposals.values()
        for problem, proposal in zip(problems, of_one, strict=True)
        if proposal.tip is not None
    ]
    found = iter(environment.attempts(requests))
    records = [
        {"problem_id": p.id, "statement": p.statement, "p_base": p_base[p.id], "meta": p.meta, "tips": {}}
        for p in problems
    ]
    for name, of_one in proposals.items():
        for record, proposal in zip(records, of_one, strict=True):
            share, why = record["p_base"], None
            if proposal.tip is not None:
                (attempt,) = next(found)
                share, why = attempt.share, attempt.reason
            entry = {"tip": proposal.tip, "reason": proposal.reason, "share": share, "program_reason": why}
            record["tips"][name] = entry
    return records


def merged(earlier: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return looked-at problems with the proposers of both, in table order; both hold the same problems."""
    by_id = {record["problem_id"]: record["tips"] for record in later}
    found = []
    for record in earlier:
        tips = record["tips"] | by_id[record["problem_id"]]
        found.append({**record, "tips": {name: tips[name] for name in TITLES if name in tips}})
    return found


def tip_table(records: Sequence[Mapping[str, Any]], n: int = 6) -> pd.DataFrame:
    """Return `n` problems on which the proposers differ most, tips side by side, the share behind each."""
    spread = [np.std([entry["share"] for entry in record["tips"].values()]) for record in records]
    chosen = sorted(np.argsort(-np.array(spread), kind="stable")[:n])
    rows = []
    for record in (records[i] for i in chosen):
        row = {"problem": record["statement"].strip(), TITLES[NO_TIP]: f"({record['p_base']:.2f})"}
        for name, entry in record["tips"].items():
            row[TITLES[name]] = f"{entry['tip'] or '–'} ({entry['share']:.2f})"
        rows.append(row)
    return pd.DataFrame(rows)


def pass_rates(records: Sequence[Mapping[str, Any]], draws: int, seed: int) -> pd.DataFrame:
    """Return what the coder does with each proposer's tips, with 95 % intervals over problems.

    Args:
        records: looked-at problems.
        draws: bootstrap draws.
        seed: seeds them.

    Returns:
        One row a part of the problems (`PARTS`), measure (``solved``: every test passed, ``share`` of tests
        passed) and proposer, in percent and points: ``part, measure, proposer, problems, mean, low, high``
        and ``gain, gain_low, gain_high`` over no tip on the same problems.  The oracle is taken over the
        problems that have a tip of their own.
    """
    rows = []
    for part, belongs in PARTS.items():
        chosen = [record for record in records if belongs(record)]
        for measure in ("solved", "share"):
            for name in (NO_TIP, *(chosen[0]["tips"] if chosen else ())):
                has = [r for r in chosen if name != "oracle" or r["tips"][name]["tip"] is not None]
                if has:
                    values, base = _values(has, name, measure), _values(has, NO_TIP, measure)
                    mean = mean_interval(values, draws, seed).scaled(100)
                    gain = paired_interval(values, base, draws, seed).scaled(100)
                    rows.append({"part": part, "measure": measure, "proposer": name} | _row(mean, gain))
    return pd.DataFrame(rows)


def _values(records: Sequence[Mapping[str, Any]], name: str, measure: str) -> np.ndarray:
    shares = [r["p_base"] if name == NO_TIP else r["tips"][name]["share"] for r in records]
    return np.array([float(share == 1) if measure == "solved" else share for share in shares])


def _row(mean: Interval, gain: Interval) -> dict[str, float]:
    values = {"problems": mean.n, "mean": mean.mean, "low": mean.low, "high": mean.high}
    return values | {"gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high}


def difference(
    records: Sequence[Mapping[str, Any]], name: str, baseline: str, draws: int, seed: int
) -> pd.DataFrame:
    """Return the paired difference between two proposers in points, a row a part and measure, as text."""
    rows = []
    for part, belongs in PARTS.items():
        chosen = [record for record in records if belongs(record)]
        for measure in ("solved", "share") if chosen else ():
            values = (_values(chosen, who, measure) for who in (name, baseline))
            interval = paired_interval(*values, draws, seed).scaled(100)
            text = interval_text(interval, sign=True)
            rows.append({"problems": f"{part} ({interval.n})", "measure": measure, "difference": text})
    title = f"{TITLES[name]} - {TITLES[baseline]}, points"
    return pd.DataFrame(rows).rename(columns={"difference": title})


def readable_rates(table: pd.DataFrame) -> pd.DataFrame:
    """Return `pass_rates` as text, a row a part and proposer."""
    rows = []
    for (part, name), group in table.groupby(["part", "proposer"], sort=False):
        row = {"problems": f"{part} ({group['problems'].iloc[0]})", "proposer": TITLES[name]}
        for record in group.to_dict("records"):
            fields = ("problems",)
            mean = Interval(record["mean"], record["low"], record["high"], *(record[f] for f in fields))
            gain = Interval(record["gain"], record["gain_low"], record["gain_high"], record["problems"])
            row[f"{record['measure']}, percent"] = interval_text(mean)
            row[f"Δ {record['measure']}"] = "" if name == NO_TIP else interval_text(gain, sign=True)
        rows.append(row)
    return pd.DataFrame(rows)


def pass_rate_figure(table: pd.DataFrame, label: str) -> tuple[Figure, pd.DataFrame]:
    """Draw the gain over no tip of every proposer, a panel a part and measure."""
    shown = table[table["proposer"] != NO_TIP]
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


def telling_group(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the group with most distinct rewards, the first of them on a tie."""
    groups: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["step"], record["problem_id"]), []).append(record)
    return max(groups.values(), key=lambda rows: len({row["reward"] for row in rows}))


def same_rule(tip: str | None, other: str | None) -> bool:
    """Say whether two tips of the embedded world name the same rule, whatever they begin with."""
    return tip is not None and other is not None and _rule(tip) == _rule(other)


def _rule(tip: str) -> str:
    return _LEAD_IN.sub("", tip.strip()).rstrip(".").lower()


def rule_table(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return how often each proposer names the rule that the problem's own tip names, a row an operation.

    Empty for problems that do not come from the embedded world.  The own tip is about the operation that
    programmers misunderstand most often; a tip about another one may help as well.
    """
    rows = []
    for record in records:
        meta = record["meta"]
        if meta.get("tip") and meta.get("tip_about"):
            named = {
                TITLES[name]: same_rule(entry["tip"], meta["tip"])
                for name, entry in record["tips"].items()
                if name != "oracle"
            }
            rows.append({"operation": meta["tip_about"], "problems": 1, **named})
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows).groupby("operation").sum().astype(int)
    table = table.sort_values("problems", ascending=False, kind="stable")
    table.loc["all"] = table.sum()
    return table
