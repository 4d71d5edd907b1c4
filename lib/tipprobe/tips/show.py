"""What notebooks 01 and 02 show: base rates, the funnel, whole trajectories, tips to read, their effect."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tipprobe.evaluation.intervals import mean_interval, paired_interval, wilson_interval
from tipprobe.evaluation.style import FAINT, INK, PALETTE, figure_style, new_figure
from tipprobe.evaluation.tables import interval_text
from tipprobe.probes.rng import keyed_rng
from tipprobe.problems.decontaminate import find_overlaps
from tipprobe.problems.schema import Problem
from tipprobe.tips.base_rates import BaseRate
from tipprobe.tips.guard import REASONS, leak_counts
from tipprobe.tips.mine import Trajectory
from tipprobe.tips.verify import OUTCOMES, TipRecord, VerifiedTip

Drawn = tuple[Figure, pd.DataFrame]
#: Colour of what counts as good; the rest is grey.
GOOD = PALETTE["erpo"]
#: Bootstrap of the intervals over problems; they are for a glance, the evaluation has its own.
DRAWS, SEED = 10_000, 0
WIDTH = 110


def rate_table(rates: Sequence[BaseRate]) -> pd.DataFrame:
    """Return one row a problem: counts, pass@1 with its Wilson interval, the greedy program's share."""
    return pd.DataFrame(
        [
            {
                "problem_id": rate.problem_id,
                "n": rate.n,
                "solved": rate.solved,
                "pass@1": rate.pass_at_1,
                "low": rate.interval.low,
                "high": rate.interval.high,
                "greedy_share": rate.greedy_share,
                "ended": ", ".join(f"{count} {reason}" for reason, count in rate.reasons.items()),
            }
            for rate in rates
        ]
    )


def plot_base_rates(rates: Sequence[BaseRate], threshold: float, label: str) -> Drawn:
    """Draw how many problems the coder solves how often, and what share of tests its greedy program passes.

    Args:
        rates: of all problems.
        threshold: pass@1 below which problems are mined.
        label: the coder's name, for the title.
    """
    passed = Counter(rate.solved / rate.n for rate in rates)
    edges = np.linspace(0, 1, 11)
    shares, _ = np.histogram([rate.greedy_share for rate in rates], edges)
    width = 0.8 / max(rate.n for rate in rates)
    with figure_style():
        figure, ((left, right),) = new_figure(1, 2, (9, 3.0))
        for value, count in passed.items():
            left.bar(value, count, width, color=GOOD if value < threshold else FAINT)
        left.axvline(threshold, color=INK, linewidth=1, linestyle=":")
        left.set_xlabel(f"pass@1 of {rates[0].n} programs (green: mined)")
        left.set_ylabel("problems")
        right.bar(edges[:-1] + 0.05, shares, 0.09, color=FAINT)
        right.set_xlabel("share of tests that the greedy program passes")
        figure.suptitle(f"{label} on {len(rates)} problems, without a tip")
    rows = [("pass@1", value, count) for value, count in sorted(passed.items())]
    rows += [("greedy share from", low, count) for low, count in zip(edges, shares, strict=False)]
    return figure, pd.DataFrame(rows, columns=["panel", "value", "problems"])


def overlap_counts(
    problems: Sequence[Problem],
    evaluation: Mapping[str, Sequence[Problem]],
    lengths: Sequence[int],
    share: float,
) -> pd.DataFrame:
    """Return how much statements overlap with evaluation statements, for several lengths of n-gram.

    Returns:
        One row a length: median, 95th percentile and maximum of the largest shares, and how many problems
        would be dropped at `share`.
    """
    rows = []
    for n in sorted(set(lengths)):
        overlaps = find_overlaps(problems, evaluation, n=n, share=share)
        shares = np.array([overlap.share for overlap in overlaps])
        low, high, top = np.percentile(shares, [50, 95, 100]) if len(shares) else [np.nan] * 3
        dropped = sum(overlap.dropped for overlap in overlaps)
        rows.append({"n": n, "median share": low, "95 %": high, "largest": top, "dropped": dropped})
    return pd.DataFrame(rows).set_index("n")


def trajectory_text(trajectory: Trajectory) -> str:
    """Return a whole trajectory as text to read."""
    parts = []
    for number, turn in enumerate(trajectory.turns):
        who = "the first program" if turn.reply is None else f"the teacher's reply {number}"
        parts.append(f"--- {who}")
        parts.append((turn.program or "(no program)") if turn.reply is None else turn.reply.strip())
        parts.append(f"--- the tests: {turn.feedback.strip() or f'all {turn.n_tests} pass'}")
    return "\n".join([*parts, f"--- {trajectory.outcome}"])


def plot_funnel(funnel: pd.DataFrame, label: str) -> Figure:
    """Draw how many problems are left after each step of the mining, from `mining_funnel`'s table."""
    with figure_style():
        figure, ((axis,),) = new_figure(1, 1, (8, 0.33 * len(funnel) + 1.0))
        colors = [FAINT if step.startswith("repaired") else GOOD for step in funnel["step"]]
        _bars(axis, funnel["step"], funnel["problems"], colors)
        axis.set_xlabel("problems")
        figure.suptitle(f"From problems to repaired attempts, {label}")
    return figure


def mining_sentences(rates: Sequence[BaseRate], funnel: pd.DataFrame, label: str) -> list[str]:
    """Say what came out of the mining, in sentences with numbers computed here."""
    counts = dict(zip(funnel["step"], funnel["problems"], strict=True))
    mean = mean_interval([rate.pass_at_1 for rate in rates], DRAWS, SEED).scaled(100)
    greedy = mean_interval([rate.greedy_share == 1 for rate in rates], DRAWS, SEED).scaled(100)
    hard = counts["base pass rate below the threshold"]
    failing = counts["first program fails"]
    kept = wilson_interval(counts["kept"], failing).scaled(100)
    first = counts.get("repaired in turn 1", 0)
    return [
        f"Of {len(rates)} problems {label} solves {interval_text(mean)} % with one sampled program and "
        f"{interval_text(greedy)} % with its greedy one.",
        f"{hard} of them are below the threshold, {hard - counts['not like an evaluation problem']} of these "
        "are too much like an evaluation problem.",
        f"The teacher was asked about {failing} programs that fail and repaired {interval_text(kept)} % of "
        f"them, {first} in its first turn.",
        f"{counts['kept']} trajectories are kept.",
    ]


def tip_page(tips: Sequence[VerifiedTip], n: int, seed: int = 0) -> str:
    """Return `n` verified tips with their problems, drawn at random, to be read by eye.

    Nothing replaces reading: a guard finds what it was told to look for.
    """
    chosen = sorted(keyed_rng("tips to read", seed).permutation(len(tips))[:n])
    return "\n\n".join(tip_text(tips[i]) for i in chosen)


def tip_text(tip: VerifiedTip) -> str:
    """Return one verified tip with its problem and its counts."""
    about = f" ({tip.op})" if tip.op else ""
    lines = [
        f"{tip.problem_id}{about}: of {tip.fresh_n} fresh programs {tip.fresh_base_solved} pass without "
        f"the tip and {tip.fresh_solved} with it",
        textwrap.fill(tip.statement, WIDTH, initial_indent="  ", subsequent_indent="  "),
        textwrap.fill(f"TIP: {tip.tip}", WIDTH, initial_indent="  ", subsequent_indent="       "),
    ]
    return "\n".join(lines)


def record_text(record: TipRecord) -> str:
    """Return a tip with every wording and every verdict, to be read by eye."""
    parts = [f"observation: {record.observation}"] if record.observation else []
    for number, wording in enumerate(record.wordings):
        if wording.leaks:
            verdict = "; ".join(f"{REASONS[leak.reason]}: {leak.detail}" for leak in wording.leaks)
        else:
            verdict = f"{wording.passed} of {wording.n_tests} tests pass"
        parts += [f"wording {number}: {wording.text}", f"  -> {verdict}"]
    parts.append(f"outcome: {record.outcome}" + (f" ({record.why})" if record.why else ""))
    return "\n".join(textwrap.fill(part, WIDTH, subsequent_indent="     ") for part in parts)


def guard_table(records: Sequence[TipRecord]) -> pd.DataFrame:
    """Return how many first wordings and how many rewordings leak, by reason; one may count for several."""
    first = [record.wordings[0].leaks for record in records if record.wordings]
    later = [wording.leaks for record in records for wording in record.wordings[1:]]
    table = pd.DataFrame({"first wordings": leak_counts(first), "rewordings": leak_counts(later)})
    table.loc["all"] = [len(first), len(later)]
    return table.loc[["all", "any", *REASONS]].rename_axis("leak")


def wording_table(records: Sequence[TipRecord], refinements: int) -> pd.DataFrame:
    """Return what became of each wording, one row a wording's number.

    ``not tried``: of a tip that the coder does not need.
    """
    rows = []
    for number in range(refinements + 1):
        there = [record.wordings[number] for record in records if len(record.wordings) > number]
        leaking = sum(bool(wording.leaks) for wording in there)
        helps = sum(wording.helps for wording in there)
        untried = sum(wording.passed is None and not wording.leaks for wording in there)
        rows.append(
            {
                "wording": number,
                "written": len(there),
                "leaking": leaking,
                "not tried": untried,
                "not helping": len(there) - leaking - untried - helps,
                "verified": helps,
            }
        )
    return pd.DataFrame(rows).set_index("wording")


def effect_table(tips: Sequence[VerifiedTip]) -> pd.DataFrame:
    """Return pass@1 in percent: when mined, in the verifying draw, on fresh programs with and without tip.

    One row a family of tips where families are known, then all; intervals are over problems.
    """
    frame = pd.DataFrame(
        {
            "family": [tip.family or "unknown" for tip in tips],
            "mined": [tip.base_solved / tip.base_n for tip in tips],
            "base": _shares(tips, "fresh_base_solved"),
            "fresh": _shares(tips, "fresh_solved"),
        }
    )
    groups = [(str(name), part) for name, part in frame.groupby("family")] if len(tips) else []
    groups = groups if len(groups) > 1 else []
    return pd.DataFrame([_effect_row(*group) for group in [*groups, ("all", frame)] if len(group[1])])


def _effect_row(name: str, part: pd.DataFrame) -> dict[str, object]:
    base, fresh = part["base"].to_numpy(), part["fresh"].to_numpy()
    return {
        "tips about": name,
        "n": len(part),
        "without, when mined": f"{100 * part['mined'].mean():.1f}",
        "with, when verified": "100.0",
        "without, fresh": interval_text(mean_interval(base, DRAWS, SEED).scaled(100)),
        "with, fresh": interval_text(mean_interval(fresh, DRAWS, SEED).scaled(100)),
        "gain": interval_text(paired_interval(fresh, base, DRAWS, SEED).scaled(100), sign=True),
        "worse": int((fresh < base).sum()),
    }


def _shares(tips: Sequence[VerifiedTip], name: str) -> np.ndarray:
    """Return the share of fresh programs that passed, (tips,)."""
    return np.array([getattr(tip, name) / tip.fresh_n for tip in tips])


def plot_tips(
    records: Sequence[TipRecord], tips: Sequence[VerifiedTip], refinements: int, label: str
) -> Drawn:
    """Draw how tips ended, and the rate of fresh programs with each verified tip against that without it.

    Args:
        records: every tip.
        tips: the verified ones.
        refinements: rewordings allowed.
        label: the coder's name, for the title.
    """
    ends = Counter(
        f"verified, wording {len(record.wordings) - 1}" if record.tip is not None else record.outcome
        for record in records
    )
    names = [*(f"verified, wording {number}" for number in range(refinements + 1)), *OUTCOMES[1:]]
    pairs = Counter((t.fresh_base_solved / t.fresh_n, t.fresh_solved / t.fresh_n) for t in tips)
    with figure_style():
        figure, ((left, right),) = new_figure(1, 2, (10, 3.4))
        colors = [GOOD if name.startswith("verified") else FAINT for name in names]
        _bars(left, names, [ends[name] for name in names], colors)
        left.set_xlabel("tips")
        for (base, fresh), count in pairs.items():
            right.scatter(base, fresh, s=18 * count, color=GOOD, alpha=0.7, linewidths=0)
        right.plot([0, 1], [0, 1], color=FAINT, zorder=0)
        right.set_xlabel("pass@1 of fresh programs without the tip")
        right.set_ylabel("pass@1 of fresh programs with it")
        right.set_ylim(-0.1, 1.15)
        right.set_xlim(-0.1, 1.15)
        figure.suptitle(f"{len(records)} tips tried on {label}, {len(tips)} verified (area: tips)")
    rows = [("tips", name, "", ends[name]) for name in names]
    rows += [("pass@1", base, fresh, count) for (base, fresh), count in sorted(pairs.items())]
    return figure, pd.DataFrame(rows, columns=["panel", "end or base", "fresh", "count"])


def tip_sentences(records: Sequence[TipRecord], tips: Sequence[VerifiedTip], label: str) -> list[str]:
    """Say what came out of the distillation, in sentences with numbers computed here."""
    first = [record.wordings[0].leaks for record in records if record.wordings]
    said = [
        f"{len(tips)} of {len(records)} trajectories gave a verified tip.",
        f"{sum(map(bool, first))} of {len(first)} first wordings gave something away.",
        f"{sum(record.outcome == 'not needed' for record in records)} tips were not tried, since the greedy "
        "program solves their problems without one.",
    ]
    if tips:
        without, guided = _shares(tips, "fresh_base_solved"), _shares(tips, "fresh_solved")
        base, fresh = (mean_interval(values, DRAWS, SEED).scaled(100) for values in (without, guided))
        gain = paired_interval(guided, without, DRAWS, SEED).scaled(100)
        said += [
            f"With a verified tip {label} passes with {interval_text(fresh)} % of fresh programs, without it "
            f"with {interval_text(base)} %: {interval_text(gain, sign=True)} points (n = {len(tips)} tips).",
            "The verifying draw alone would have said 100 %: selection flatters by "
            f"{100 - fresh.mean:.1f} points.",
            f"{(guided < without).sum()} verified tips do worse on fresh programs than no tip.",
        ]
    return said


def _bars(axis: Axes, names: Sequence[str], values: Sequence[int], colors: Sequence[str]) -> None:
    places = np.arange(len(names))[::-1]
    axis.barh(places, values, color=colors)
    axis.set_yticks(places, list(names))
    for place, value in zip(places, values, strict=True):
        axis.text(value, place, f" {value}", va="center", fontsize=8)
    axis.margins(x=0.1)
