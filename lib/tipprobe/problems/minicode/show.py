"""What notebook 00 shows of the embedded world and its coder: tables, figures and a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import pandas as pd

from tipprobe.evaluation.agreement import reliability
from tipprobe.evaluation.intervals import Interval
from tipprobe.evaluation.style import FAINT, INK, figure_style
from tipprobe.evaluation.tables import interval_text
from tipprobe.problems.minicode.calibrate import Sampled, records
from tipprobe.problems.minicode.card import QUANTITIES, TIPS, calibration_table, cell, markdown_table
from tipprobe.problems.minicode.estimate import estimate
from tipprobe.problems.minicode.ops import BY_NAME
from tipprobe.problems.minicode.programs import Deed, Spec, right_deeds
from tipprobe.problems.minicode.world import WorldConfig, error_rates, with_misconception
from tipprobe.problems.schema import Problem
from tipprobe.sandbox import Job, Sandbox

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedTokenizerBase

#: Sum of the two Beta parameters of misconception rates; it stays the same while their mean is turned.
CONCENTRATION = WorldConfig().misconception_a + WorldConfig().misconception_b
#: Knob -> settings that the figure tries.
KNOBS = {
    "slip rate of hard operations": (0.0, 0.2, 0.4, 0.6, 0.8),
    "mean misconception rate": (0.05, 0.15, 0.27, 0.4, 0.55),
}
#: Imagined programs a problem behind that figure; `LINES` names its pass@k.
KNOB_SAMPLES = 16
#: Lines of the knob figure: quantity -> (label, colour, marker).
LINES = {
    "pass@1": ("pass@1", "#0072B2", "o"),
    "pass@16": ("pass@16", "#56B4E9", "s"),
    "fail_at_pcr<=0.5": ("failing at PCR <= 0.5", "#D55E00", "^"),
    "fail_at_pcr=1": ("failing at PCR = 1", "#E69F00", "v"),
    "auc": ("AUC of PCR", INK, "D"),
}
#: Bins of PCR; the last one holds 1 alone, since PCR is a share of a dozen probes.
PCR_EDGES = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)
TIP_LABELS = {"none": "no tip", "tip": "right tip", "wrong_tip": "wrong tip"}


def attempts(spec: Spec) -> dict[str, list[Deed]]:
    """Return what a correct program of a problem does, and what one does for each misconception."""
    wrong = {f"{step.op.name} wrong": with_misconception(spec, step.op.name) for step in spec.steps}
    return {"right": right_deeds(spec)} | wrong


def outputs_table(
    problem: Problem, programs: Mapping[str, str], inputs: Sequence[str], sandbox: Sandbox
) -> pd.DataFrame:
    """Return what programs give on inputs: one row a program, one column an input."""
    jobs = [Job(program, tuple(inputs), problem.entry_point) for program in programs.values()]
    rows = [
        [run.value or run.stdout.decode().strip() if run.ok else run.status for run in runs]
        for runs in sandbox.run(jobs)
    ]
    return pd.DataFrame(rows, index=list(programs), columns=[text.strip() for text in inputs])


def rates_table(config: WorldConfig, names: Sequence[str]) -> pd.DataFrame:
    """Return wording, rule, misconception and error rates of operations."""
    rates = error_rates(config)
    return pd.DataFrame(
        [
            {
                "operation": name,
                "wording": BY_NAME[name].phrases[0],
                "intended": BY_NAME[name].rule,
                "misconceived as": BY_NAME[name].wrong_rule,
                "misconception rate": round(rates[name].misconception, 2),
                "slip rate": rates[name].slip,
            }
            for name in names
        ]
    ).set_index("operation")


def knob_table(config: WorldConfig, n_problems: int = 96) -> pd.DataFrame:
    """Return `estimate` at the settings of `KNOBS`, one knob turned at a time; no model takes part.

    Returns:
        Columns ``knob``, ``value``, ``quantity``, ``mean``, ``low``, ``high``, ``problems`` (those that the
        quantity can be taken on).
    """
    rows = []
    for knob, values in KNOBS.items():
        for value in values:
            if knob.startswith("slip"):
                turned = replace(config, slip_hard=value)
            else:
                share = value * CONCENTRATION
                turned = replace(config, misconception_a=share, misconception_b=CONCENTRATION - share)
            found, _ = estimate(turned, n_problems=n_problems, n_samples=KNOB_SAMPLES)
            rows += [
                {"knob": knob, "value": value, "quantity": name}
                | {key: getattr(found[name], key) for key in ("mean", "low", "high")}
                | {"problems": found[name].n}
                for name in LINES
            ]
    return pd.DataFrame(rows)


def plot_knobs(table: pd.DataFrame, config: WorldConfig) -> Figure:
    """Return percentages (top) and AUC (bottom) against each knob, the world's own setting dotted."""
    own = dict(zip(KNOBS, (config.slip_hard, config.misconception_a / CONCENTRATION), strict=True))
    with figure_style():
        figure, axes = plt.subplots(
            2, 2, figsize=(9, 5.4), sharex="col", sharey="row", height_ratios=(2, 1), layout="constrained"
        )
        for column, (knob, setting) in enumerate(own.items()):
            for name, (label, color, marker) in LINES.items():
                axis = axes[int(name == "auc"), column]
                line = table[(table["knob"] == knob) & (table["quantity"] == name)]
                axis.plot(line["value"], line["mean"], color=color, marker=marker, markersize=4, label=label)
                axis.fill_between(line["value"], line["low"], line["high"], color=color, alpha=0.12, lw=0)
            for axis in axes[:, column]:
                axis.axvline(setting, color=FAINT, linestyle=":")
            axes[1, column].set_xlabel(knob)
        axes[0, 0].set_ylabel("percent")
        axes[1, 0].set_ylabel("AUC of PCR")
        axes[0, 0].set_ylim(0, 103)
        axes[0, 1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.suptitle(
            "Embedded world, knobs turned: estimate from the error model, no coder involved\n"
            f"{table['problems'].max()} problems, {KNOB_SAMPLES} imagined programs each; "
            "bands: 95 % over problems"
        )
    return figure


def splits_table(splits: Mapping[str, Sequence[Problem]]) -> pd.DataFrame:
    """Return size, kinds, under-specified share and vocabulary of each split."""
    return pd.DataFrame(
        [
            {
                "split": name,
                "problems": len(problems),
                "call problems": sum(problem.kind == "call" for problem in problems),
                "under-specified": sum(problem.meta["underspecified"] for problem in problems),
                "operations in use": len({op for problem in problems for op in problem.meta["ops"]}),
            }
            for name, problems in splits.items()
        ]
    ).set_index("split")


def pieces(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """Return `text` with a bar between its tokens; line ends are shown as such."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return "|".join(tokenizer.decode([token]).replace("\n", "\\n\n") for token in ids)


def behaviour_table(found: Mapping[str, Interval], folder: Path, here: str) -> pd.DataFrame:
    """Return measured behaviour beside the calibration that comes with the coder and its targets.

    Args:
        found: `behaviour` and `tip_gains` of this run.
        folder: the coder's checkpoint folder.
        here: heading of this run's column.
    """
    titles = QUANTITIES | TIPS
    rows = {titles.get(name, f"{name}, %"): cell(value) for name, value in records(found).items()}
    table = pd.DataFrame({here: rows}).rename_axis("quantity")
    shipped = pd.DataFrame(calibration_table(folder))
    if shipped.empty:
        return table
    shipped = shipped.set_index("quantity").rename(columns=lambda name: f"calibration, {name}")
    return table.join(shipped).fillna("").rename(columns={"calibration, target": "target"})


def save_table(table: pd.DataFrame, stem: Path) -> None:
    """Write a table as CSV and as Markdown, its index as the first column."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(stem.with_suffix(".csv"), lineterminator="\n")
    rows = table.reset_index().astype(str).to_dict("records")
    stem.with_suffix(".md").write_text(markdown_table(rows) + "\n", encoding="utf-8")


def reliability_table(base: Sampled, draws: int, seed: int) -> pd.DataFrame:
    """Return the share of correct programs by consensus (`tipprobe.evaluation.agreement.reliability`)."""
    table = pd.DataFrame(reliability(list(base.pcr), list(base.passed), PCR_EDGES, draws, seed))
    labels = [f"{low:g} to {high:g}" for low, high in zip(table["low"], table["high"], strict=True)]
    return table.assign(bin=[*labels[:-2], f"{PCR_EDGES[-3]:g} to <1", "1"])


def plot_reliability(table: pd.DataFrame, label: str, n_problems: int) -> Figure:
    """Return the share of correct programs by consensus, with intervals and numbers of programs.

    Args:
        table: from `reliability_table`.
        label: the model's name, for the title.
        n_problems: problems that the programs are of.
    """
    with figure_style():
        figure, axis = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
        seen = table[table["samples"] > 0]
        share = 100 * seen["correct"]
        errors = [share - 100 * seen["correct_low"], 100 * seen["correct_high"] - share]
        axis.bar(seen["bin"], share, color="#0072B2", alpha=0.75)
        axis.errorbar(seen["bin"], share, yerr=errors, fmt="none", ecolor=INK, capsize=3)
        for place, (height, number) in enumerate(
            zip(100 * seen["correct_high"], seen["samples"], strict=True)
        ):
            axis.annotate(f"n={number}", (place, height), (0, 3), textcoords="offset points", ha="center")
        axis.set_ylim(0, 105)
        axis.set_xlabel("PCR: share of probes on which a program is with the majority")
        axis.set_ylabel("programs passing hidden tests, %")
        axis.set_title(
            f"Correct programs by consensus on probes, bars: 95 % over {_problems(n_problems)}\n{label}",
            fontsize=9,
        )
    return figure


def plot_tips(found: Mapping[str, Interval], label: str, samples: int) -> Figure:
    """Return pass@1 on under-specified problems by the tip in the prompt, with intervals.

    Args:
        found: `tip_gains`.
        label: the model's name, for the title.
        samples: programs a problem and kind of tip.
    """
    with figure_style():
        figure, axis = plt.subplots(figsize=(4.2, 3.4), layout="constrained")
        for place, (kind, name) in enumerate(TIP_LABELS.items()):
            rate = found[kind]
            color = (FAINT, "#009E73", "#D55E00")[place]
            axis.bar(name, rate.mean, color=color)
            errors = [[rate.mean - rate.low], [rate.high - rate.mean]]
            axis.errorbar(name, rate.mean, yerr=errors, fmt="none", ecolor=INK, capsize=3)
        axis.set_ylim(0, 100)
        axis.set_ylabel("pass@1, %")
        axis.set_title(
            f"{found['none'].n} under-specified problems, {samples} programs each\n"
            f"bars: 95 % over problems\n{label}",
            fontsize=9,
        )
    return figure


def variants_table(base: Sampled, row: int) -> pd.DataFrame:
    """Return the distinct replies to one problem: number, PCR, hidden verdict, text; frequent ones first."""
    texts = [reply.text for reply in base.replies[row]]
    first = pd.Series(texts).drop_duplicates().index
    table = pd.DataFrame(
        {
            "samples": [texts.count(texts[i]) for i in first],
            "PCR": base.pcr[row][first],
            "passes": base.passed[row][first],
            "reply": [texts[i] for i in first],
        }
    )
    return table.sort_values("samples", ascending=False, kind="stable", ignore_index=True)


def tips_rows(found: Mapping[str, Interval]) -> list[dict[str, Any]]:
    """Return what `plot_tips` shows, one row a bar."""
    return [{"tip": name, **asdict(found[kind])} for kind, name in TIP_LABELS.items()]


def findings(
    found: Mapping[str, Interval], tips: Mapping[str, Interval], base: Sampled, tip_samples: int, label: str
) -> str:
    """Return in four sentences of Markdown how the coder behaves without training, intervals included.

    Args:
        found: `behaviour` of `base`.
        tips: `tip_gains`.
        base: the programs behind `found`.
        tip_samples: programs a problem and kind of tip behind `tips`.
        label: the model's name.
    """
    n_problems, samples = base.pcr.shape
    always = int((base.pcr >= 1).sum())
    first, any_of_all = (interval_text(found[f"pass@{k}"]) for k in (1, samples))
    area, failing = interval_text(found["auc"], 2), interval_text(found["fail_at_pcr=1"])
    right, wrong = (_moved(tips[f"gain_{kind}"]) for kind in ("tip", "wrong_tip"))
    return (
        f"On {_problems(n_problems)} with {samples} programs each, {label} passes the hidden tests with "
        f"{first} % of its programs, and solves {any_of_all} % of the problems with at least one. "
        f"Consensus on probes tells right from wrong programs with an AUC of {area}; of {always} programs "
        f"that are always with the majority, {failing} % still fail. "
        f"On {tips['none'].n} under-specified problems, {tip_samples} programs each, pass@1 without a tip is "
        f"{interval_text(tips['none'])} %: the right tip {right}, a wrong one {wrong}. "
        f"Brackets are 95 % intervals over problems."
    )


def _problems(n: int) -> str:
    return f"{n} problem{'s' * (n != 1)}"


def _moved(gain: Interval) -> str:
    """Return what a gain says: raised, lowered, or not to be told from none."""
    text = f"({interval_text(gain, sign=True)} points)"
    if gain.low > 0:
        return f"raises it {text}"
    if gain.high < 0:
        return f"lowers it {text}"
    return f"does not move it beyond chance {text}"
