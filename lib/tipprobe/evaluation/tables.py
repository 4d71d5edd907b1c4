"""Tables, ours beside the reported values; each saved as CSV (full precision) and Markdown (for reading)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tipprobe.evaluation import reported
from tipprobe.evaluation.agreement import THRESHOLDS, Agreement, agreement, pair_counts
from tipprobe.evaluation.intervals import Interval, paired_interval
from tipprobe.evaluation.passk import pass_at_k_per_problem
from tipprobe.evaluation.results import BASE, Results
from tipprobe.probes.consensus import probe_consensus
from tipprobe.training.methods import METHODS

SPLIT_TITLES = {"in_domain": "in domain", "transfer": "transfer"}


def save_table(
    table: pd.DataFrame, readable: pd.DataFrame, stem: str | Path, title: str, note: str = ""
) -> None:
    """Write ``<stem>.csv`` with every digit and ``<stem>.md`` for people, its title followed by `sizes_text`.

    Args:
        table: numbers.
        readable: the same as text.
        stem: path without suffix.
        title: heading of the Markdown file; it names the model.
        note: what the intervals are, and the like.
    """
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(stem.with_name(stem.name + ".csv"), index=False, lineterminator="\n")
    sizes = sizes_text(table)
    heading = f"**{title}** ({sizes})" if sizes else f"**{title}**"
    text = f"{heading}\n\n{readable.to_markdown(index=False, disable_numparse=True)}\n"
    if note:
        text += f"\n{note}\n"
    stem.with_name(stem.name + ".md").write_text(text, encoding="utf-8")


def sizes_text(table: pd.DataFrame) -> str:
    """Return how many problems, samples and training seeds a table is about, ``""`` if it does not say.

    Args:
        table: of `main_table` (or any table with its columns ``split, problems, samples, seeds``), or of
            `agreement_table`.
    """
    if {"split", "problems", "samples", "seeds"} <= set(table):
        parts = [
            f"{SPLIT_TITLES[split]}: {part['problems'].max()} problems × {part['samples'].max()} samples"
            for split, part in table.groupby("split", sort=False)
        ]
        return "; ".join([*parts, seeds_text(int(table["seeds"].max()))])
    if {"quantity", "problems", "samples"} <= set(table):
        whole = table[table["quantity"] == "AUC, pooled"]
        return f"{whole['problems'].max()} problems, {whole['samples'].max():,} samples a method"
    return ""


def seeds_text(seeds: int) -> str:
    """Return ``1 training seed`` or ``3 training seeds``."""
    return f"{seeds} training seed{'s' * (seeds != 1)}"


def interval_text(interval: Interval, digits: int = 1, sign: bool = False) -> str:
    """Return ``28.5 [24.1, 33.0]``, or ``–`` where there is no value."""
    if np.isnan(interval.mean):
        return "–"
    form = f"{{:{'+' if sign else ''}.{digits}f}}"
    mean = form.format(interval.mean)
    if np.isnan(interval.low):
        return mean
    return f"{mean} [{form.format(interval.low)}, {form.format(interval.high)}]"


def _number(value: float | None, digits: int = 1, sign: bool = False) -> str:
    return "–" if value is None else f"{value:{'+' if sign else ''}.{digits}f}"


def main_table(results: Results, ks: Sequence[int]) -> pd.DataFrame:
    """Return pass@k of every method on every split, its paired gain over base, and the reported values.

    Args:
        results: evaluated models.
        ks: values of k.

    Returns:
        One row a split, method and k: ``split, method, title, sees, k, problems, samples, seeds, mean, low,
        high, gain, gain_low, gain_high`` (percent and points) and, for each of the paper's models,
        ``reported_<model>`` and ``reported_gain_<model>`` (empty where the paper gives none).
    """
    rows = []
    for split in results.splits:
        for method in results.methods:
            if not results.runs(method, split):
                continue
            for k in ks:
                value, gain = results.interval(method, split, k), results.gain(method, split, k)
                rows.append(
                    {
                        "split": split,
                        "method": method,
                        "title": METHODS[method].title,
                        "sees": METHODS[method].sees,
                        "k": k,
                        "problems": value.n,
                        "samples": results.samples_per_problem(split),
                        "seeds": value.seeds,
                        "mean": value.mean,
                        "low": value.low,
                        "high": value.high,
                        "gain": gain.mean,
                        "gain_low": gain.low,
                        "gain_high": gain.high,
                        **{
                            f"reported_{m}": reported.reported_pass(m, method, split, k)
                            for m in reported.MODELS
                        },
                        **{
                            f"reported_gain_{m}": reported.reported_gain(m, method, split, k)
                            for m in reported.MODELS
                        },
                    }
                )
    return pd.DataFrame(rows)


def readable_main_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the main table as text, a row a split and method, three columns a k."""
    rows = []
    for (split, _), group in table.groupby(["split", "method"], sort=False):
        first = group.iloc[0]
        row: dict[str, Any] = {
            "problems": SPLIT_TITLES[split],
            "method": first["title"],
            "labels seen": first["sees"],
        }
        for record in group.to_dict("records"):
            k = record["k"]
            row[f"pass@{k}"] = interval_text(_interval(record, "mean", "low", "high"))
            gain = _interval(record, "gain", "gain_low", "gain_high")
            row[f"Δ@{k}"] = "" if first["method"] == BASE else interval_text(gain, sign=True)
            row[f"paper @{k}"] = " / ".join(_reported_text(record, model) for model in reported.MODELS)
        rows.append(row)
    return pd.DataFrame(rows)


def _reported_text(record: dict[str, Any], model: str) -> str:
    value, gain = record[f"reported_{model}"], record[f"reported_gain_{model}"]
    if value is None or np.isnan(value):
        return "–"
    if record["method"] == BASE or gain is None or np.isnan(gain):
        return _number(value)
    return f"{_number(value)} ({_number(gain, sign=True)})"


def _interval(record: dict[str, Any], mean: str, low: str, high: str) -> Interval:
    return Interval(record[mean], record[low], record[high], record["problems"], record["seeds"])


def outcome_shares(results: Results) -> pd.DataFrame:
    """Return what became of the samples, in percent: a row a split and method, a column a reason.

    Reasons are those of `tipprobe.evaluation.grade.Verdict`; ``cut off`` is the share of unfinished replies,
    whatever became of them.
    """
    rows = {}
    for split in results.splits:
        for method in results.methods:
            records = [record for run in results.runs(method, split) for record in run.records]
            if records:
                counts = Counter(record["reason"] for record in records)
                counts["cut off"] = sum(record["finish_reason"] == "length" for record in records)
                rows[SPLIT_TITLES[split], METHODS[method].title] = counts
    table = pd.DataFrame.from_dict(rows, orient="index").fillna(0)
    totals = table.drop(columns="cut off").sum(axis=1)
    order = ["passed", *sorted(set(table) - {"passed", "cut off"}), "cut off"]
    return 100 * table.reindex(columns=order, fill_value=0).div(totals, axis=0)


def agreements(results: Results, split: str = "in_domain", over: str = "pcr") -> dict[str, Agreement]:
    """Return consensus against hidden correctness of each method whose samples have it.

    Args:
        results: evaluated models.
        split: where probes exist.
        over: ``pcr`` (share of all probes) or ``pcr_voted`` (share of those that somebody answered; groups in
            which nobody answered any probe are left out).
    """
    found = {}
    for method in results.methods:
        scores, passed, units = results.consensus_groups(method, split, over)
        if scores:
            found[method] = agreement(scores, passed, results.draws, results.seed, units)
    return found


def agreement_table(found: dict[str, Agreement]) -> pd.DataFrame:
    """Return agreements as numbers, a row a method and quantity, with the reported values of the base model.

    Columns: ``method, title, quantity, mean, low, high, samples, problems, reported_<model>``.  Areas are
    between 0 and 1, failure rates in percent.
    """
    rows = []
    for method, result in found.items():
        quantities = [
            ("AUC, pooled", result.auc_pooled, result.samples, "auc_pcr_hidden"),
            ("AUC, within problem", result.auc_within, result.samples, None),
        ]
        quantities += [
            (
                f"failure rate at PCR {label}",
                result.failure_rates[label].scaled(100),
                result.counts[label],
                reported.THRESHOLDS[label],
            )
            for label, _, _ in THRESHOLDS
        ]
        for quantity, interval, samples, name in quantities:
            rows.append(
                {
                    "method": method,
                    "title": METHODS[method].title,
                    "quantity": quantity,
                    "mean": interval.mean,
                    "low": interval.low,
                    "high": interval.high,
                    "samples": samples,
                    "problems": interval.n,
                    **{
                        f"reported_{model}": reported.reported_agreement(model, name)
                        if name is not None and method == BASE
                        else None
                        for model in reported.MODELS
                    },
                }
            )
    return pd.DataFrame(rows)


def readable_agreement_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the agreement table as text: a row a quantity, a column a method, the paper's models last."""
    rows = []
    for quantity, group in table.groupby("quantity", sort=False):
        digits = 3 if quantity.startswith("AUC") else 1
        row: dict[str, Any] = {"quantity": quantity}
        for record in group.to_dict("records"):
            interval = Interval(record["mean"], record["low"], record["high"], record["problems"])
            text = interval_text(interval, digits)
            row[record["title"]] = text if digits == 3 else f"{text}, n={record['samples']}"
        base = group[group["method"] == BASE]
        for model in reported.MODELS:
            value = base[f"reported_{model}"].iloc[0] if len(base) else None
            row[f"paper, {model}"] = "–" if value is None or np.isnan(value) else _number(value, digits)
        rows.append(row)
    return pd.DataFrame(rows)


def gain_by_auc(results: Results, k: int = 1, parts: int = 3, split: str = "in_domain") -> pd.DataFrame:
    """Return each method's gain on groups of problems that differ in how well consensus predicts correctness.

    Problems are sorted by the unadapted model's within-problem AUC and cut into `parts` of equal size;
    problems without a pair to compare (all samples right, or all wrong) are left out.  Sorting looks at the
    first half of the unadapted model's samples, which also vote among themselves only, and gains are over the
    second half: with the same samples for both, a problem on which the model was unlucky would seem to be one
    that every method improves.

    Args:
        results: evaluated models.
        k: of pass@k.
        parts: groups of problems.
        split: where probes exist.

    Returns:
        One row a method and group: ``method, k, part, problems, samples, seeds, auc, mean, low, high``
        (points); no rows if fewer problems than groups have a pair, or half of the samples are fewer than
        `k`.
    """
    run, half = results.runs(BASE, split)[0], results.samples_per_problem(split) // 2
    if run.votes is None or k > half:
        return pd.DataFrame()
    ranked = []
    for unit, (votes, passed) in enumerate(zip(run.votes, run.passed, strict=True)):
        won, pairs = pair_counts(probe_consensus(votes[:half]).hits, passed[:half])
        if pairs:
            ranked.append((won / pairs, unit, won, pairs))
    ranked.sort()
    if len(ranked) < parts:
        return pd.DataFrame()
    rows = []
    second = [passed[half:] for passed in run.passed]
    base = pass_at_k_per_problem(second, k)[None]
    for method in results.methods:
        if method == BASE:
            continue
        values = results.pass_at_k(method, split, k)
        for part, chosen in enumerate(np.array_split(np.arange(len(ranked)), parts)):
            problems = [ranked[i][1] for i in chosen]
            gain = paired_interval(values[:, problems], base[:, problems], results.draws, results.seed)
            won, pairs = (sum(ranked[i][column] for i in chosen) for column in (2, 3))
            rows.append(
                {
                    "method": method,
                    "k": k,
                    "part": part + 1,
                    "problems": len(problems),
                    "samples": results.samples_per_problem(split),
                    "seeds": len(values),
                    "auc": won / pairs,
                    "mean": 100 * gain.mean,
                    "low": 100 * gain.low,
                    "high": 100 * gain.high,
                }
            )
    return pd.DataFrame(rows)
