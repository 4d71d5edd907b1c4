"""The numbers of a grading: pass@k with intervals, verdicts, flagged problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tipprobe.evaluation.intervals import mean_interval
from tipprobe.evaluation.passk import pass_at_k
from tipprobe.sandbox.compare import FLAGS
from tipprobe.sandbox.modes import PARITY

Record = dict[str, Any]
#: Bootstrap draws, fewer for very large sets: a draw takes memory for every problem.
DRAWS = 10_000
_DRAWS_TIMES_PROBLEMS = 20_000_000


@dataclass(slots=True)
class Row:
    """What the results of one problem add up to.

    Attributes:
        task_id: the problem.
        flag: why its tests cannot prove a program wrong, ``""`` if they can.
        n: samples.
        passed: those that passed.
        verdicts: samples by verdict.
        libraries: samples by library that they, or the problem's tests, lack.
        first: the first record that did not pass, None if there is none.
        cpu_s: of all its samples, equal programs counted each time.
        slowest_s: of the slowest one.
    """

    task_id: str
    flag: str
    n: int = 0
    passed: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    libraries: Counter[str] = field(default_factory=Counter)
    first: Record | None = None
    cpu_s: float = 0.0
    slowest_s: float = 0.0


def rows_of(records: Iterable[Record]) -> dict[str, Row]:
    """Return the rows of a results file, read once, in the order in which their problems occur."""
    rows: dict[str, Row] = {}
    for record in records:
        task = record["task_id"]
        row = rows.setdefault(task, Row(task, record.get("flag", "")))
        row.n += 1
        row.passed += record["passed"]
        row.verdicts[record["verdict"]] += 1
        if record["verdict"] == "missing_library":
            row.libraries.update(record["reason"].split(", "))
        if row.first is None and not record["passed"]:
            row.first = record
        row.cpu_s += record["cpu_s"]
        row.slowest_s = max(row.slowest_s, record["cpu_s"])
    return rows


def summarise(
    rows: Mapping[str, Row], lacking: Mapping[str, Sequence[str]], ks: Sequence[int], mode: str
) -> Record:
    """Return the numbers of a grading.

    pass@k is the mean over the problems with at least k samples; problems whose libraries are not installed
    are left out.  It is given over all problems, flagged ones counting as their comparison came out, which is
    a lower bound, and without the flagged ones.

    Args:
        rows: by problem.
        lacking: libraries that cannot be imported here, by problem.
        ks: values of k.
        mode: whose rules were compared by.
    """
    every = list(rows.values())
    gradable = [row for row in every if row.task_id not in lacking]
    unflagged = [row for row in every if not row.flag]
    flagged = [row for row in every if row.flag]
    return {
        "mode": mode,
        "mirrors": PARITY[mode].mirrors if mode in PARITY else "the project's own rules",
        "n_problems": len(every),
        "n_samples": sum(row.n for row in every),
        "samples_a_problem": {"min": min(row.n for row in every), "max": max(row.n for row in every)},
        "passed": sum(row.passed for row in every),
        "pass_at_k": {
            str(k): {
                "all": _pass_at_k(gradable, k),
                "without_flagged": _pass_at_k([row for row in gradable if not row.flag], k),
            }
            for k in sorted(set(ks))
        },
        "verdicts": add_up(row.verdicts for row in unflagged),
        "verdicts_of_flagged": add_up(row.verdicts for row in flagged),
        "flagged": {
            flag: {
                "meaning": FLAGS[flag],
                "problems": sum(row.flag == flag for row in flagged),
                "samples": sum(row.n for row in flagged if row.flag == flag),
                "undecided": sum(row.verdicts["undecided"] for row in flagged if row.flag == flag),
            }
            for flag in sorted({row.flag for row in flagged})
        },
        "missing_libraries": add_up(row.libraries for row in every),
        "problems_left_out_for_libraries": len(lacking),
        "cpu_s": round(sum(row.cpu_s for row in every), 2),
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


def add_up(counters: Iterable[Counter[str]]) -> dict[str, int]:
    """Return the sum of counters, the most frequent first; what occurs never is left out."""
    total = sum(counters, Counter())
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def _pass_at_k(rows: Sequence[Row], k: int) -> Record | None:
    """Return pass@k with its interval and what it is about; None where no problem has k samples."""
    enough = [row for row in rows if row.n >= k]
    if not enough:
        return None
    values = np.array([pass_at_k(row.n, row.passed, k) for row in enough])
    draws = min(DRAWS, max(200, _DRAWS_TIMES_PROBLEMS // len(enough)))
    interval = mean_interval(values, draws, seed=0)
    return {
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n_problems": len(enough),
        "too_few_samples": len(rows) - len(enough),
        "bootstrap_draws": draws,
    }
