"""Looking for programs whose answer varies: one input runs a second time, under another seed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tipprobe.sandbox.types import Executor, Job, Run

#: A program without any of these words cannot behave differently under another seed or at another time.
_MAY_VARY = re.compile(
    r"\b(random|numpy|time|datetime|uuid|secrets|os|tempfile|hash|id|object|getpid|import_module|__import__|exec|eval)\b"
)


def may_vary(source: str) -> bool:
    """Whether a program uses anything that can differ from one execution to the next on the same input."""
    return _MAY_VARY.search(source) is not None


def first_input(number: int, job: Job) -> int | None:
    """Choose the first input of programs that may vary, and nothing of the others."""
    return 0 if job.inputs and may_vary(job.source) else None


def whole_outcome(number: int, run: Run) -> object:
    """Tell outcomes apart by everything that a program can choose."""
    return run.status, run.stdout, run.value


@dataclass(frozen=True, slots=True)
class Recheck:
    """What runs a second time, and when the second outcome is another one.

    Attributes:
        place: called with (job number, job): which input runs again, None for none.
        key: called with (job number, run): outcomes with equal keys are the same.
    """

    place: Callable[[int, Job], int | None] = first_input
    key: Callable[[int, Run], object] = whole_outcome


def run_rechecked(
    executor: Executor, jobs: Sequence[Job], recheck: Recheck, **options: Any
) -> list[list[Run]]:
    """Run `jobs`, and one input of each that may vary under the next seed too, all in one call.

    Args:
        executor: runs them.
        jobs: programs with their inputs.
        recheck: what to run again and how to compare.
        options: handed to ``executor.run``.

    Returns:
        As ``executor.run`` does; where the second outcome differs, all of a job's runs (but the skipped ones)
        have the status ``nondeterministic``.
    """
    again = {
        number: place for number, job in enumerate(jobs) if (place := recheck.place(number, job)) is not None
    }
    second_jobs = [
        replace(jobs[number], inputs=(jobs[number].inputs[place],), seed=jobs[number].seed + 1)
        for number, place in again.items()
    ]
    results = executor.run([*jobs, *second_jobs], **options)
    first, second = results[: len(jobs)], results[len(jobs) :]
    for (number, place), (other,) in zip(again.items(), second, strict=True):
        run = first[number][place]
        if run.status != "skipped" and recheck.key(number, run) != recheck.key(number, other):
            first[number] = [
                run if run.status == "skipped" else replace(run, status="nondeterministic")
                for run in first[number]
            ]
    return first
