"""The numbers of a grading: pass@k with intervals, verdicts, flagged problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tipprobe.evaluation.intervals import mean_interval
from tipprobe.evaluation.passk import pass_at_k
from tipprobe.problems.schema import Problem
from tipprobe.sandbox import grading_flag
from tipprobe.sandbox.compare import FLAGS
from tipprobe.sandbox.modes import PARITY

Record = dict[str, Any]
#: Bootstrap draws, fewer for very large sets: a draw takes memory for every problem.
DRAWS = 10_000
_DRAWS_TIMES_PROBLEMS = 20_000_000


def summarise(
    records: Sequence[Record],
    problems: Mapping[str, Problem],
    lacking: Mapping[str, Sequence[str]],
    ks: Sequence[int],
    mode: str,
) -> Record:
    """Return the numbers of a grading.

    pass@k is the mean over the problems with at least k samples; problems whose libraries are not installed
    are left out.  It is given over all problems, flagged ones counting as their comparison came out, which is
    a lower bound, and without the flagged ones.
    """
    passed: dict[str, list[bool]] = {}
    for record in records:
        passed.setdefault(record["task_id"], []).append(record["passed"])
    flags = {task: flag for task in passed if (flag := grading_flag(problems[task]))}
    gradable = [task for task in passed if task not in lacking]
    return {
        "mode": mode,
        "mirrors": PARITY[mode].mirrors if mode in PARITY else "the project's own rules",
        "n_problems": len(passed),
        "n_samples": len(records),
        "samples_a_problem": {
            "min": min(map(len, passed.values())),
            "max": max(map(len, passed.values())),
        },
        "passed": sum(record["passed"] for record in records),
        "pass_at_k": {
            str(k): {
                "all": _pass_at_k(gradable, passed, k),
                "without_flagged": _pass_at_k([task for task in gradable if task not in flags], passed, k),
            }
            for k in sorted(set(ks))
        },
        "verdicts": count_values(record["verdict"] for record in records if "flag" not in record),
        "verdicts_of_flagged": count_values(record["verdict"] for record in records if "flag" in record),
        "flagged": {
            flag: {
                "meaning": FLAGS[flag],
                "problems": sum(of == flag for of in flags.values()),
                "samples": sum(record.get("flag") == flag for record in records),
                "undecided": sum(
                    record.get("flag") == flag and record["verdict"] == "undecided" for record in records
                ),
            }
            for flag in sorted(set(flags.values()))
        },
        "missing_libraries": count_values(
            name
            for record in records
            if record["verdict"] == "missing_library"
            for name in record["reason"].split(", ")
        ),
        "problems_left_out_for_libraries": len(lacking),
        "cpu_s": round(sum(record["cpu_s"] for record in records), 2),
    }


def headline(summary: Record) -> str:
    """Return the numbers of a grading that a terminal should show."""
    lines = [
        f"{summary['n_samples']:,} samples of {summary['n_problems']:,} problems, mode {summary['mode']}"
    ]
    for k, both in summary["pass_at_k"].items():
        for label, value in (("", both["all"]), (", without flagged problems", both["without_flagged"])):
            if value is not None and (not label or summary["flagged"]):
                mean, low, high = (100 * value[key] for key in ("mean", "low", "high"))
                lines.append(
                    f"pass@{k} {mean:.1f} % [{low:.1f}, {high:.1f}], {value['n_problems']:,} problems{label}"
                )
                if value["too_few_samples"]:
                    lines[-1] += f" ({value['too_few_samples']:,} others have fewer than {k} samples)"
    for name in ("verdicts", "verdicts_of_flagged"):
        if summary[name]:
            counts = ", ".join(f"{verdict} {count:,}" for verdict, count in summary[name].items())
            lines.append(f"{name.replace('_', ' ')}: {counts}")
    return "\n".join(lines)


def count_values(values: Iterator[str]) -> dict[str, int]:
    """Return how often each value occurs, the most frequent first."""
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _pass_at_k(tasks: Sequence[str], passed: Mapping[str, Sequence[bool]], k: int) -> Record | None:
    """Return pass@k with its interval and what it is about; None where no problem has k samples."""
    enough = [task for task in tasks if len(passed[task]) >= k]
    if not enough:
        return None
    values = np.array([pass_at_k(len(passed[task]), sum(passed[task]), k) for task in enough])
    draws = min(DRAWS, max(200, _DRAWS_TIMES_PROBLEMS // len(enough)))
    interval = mean_interval(values, draws, seed=0)
    return {
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n_problems": len(enough),
        "too_few_samples": len(tasks) - len(enough),
        "bootstrap_draws": draws,
    }
