"""Looking for programs whose answer varies: one input runs a second time, under another seed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tipprobe.sandbox.types import Executor, Job, Run

#: Words of programs that are worth a second run: chance, clocks, addresses, what runs side by side, the
#: system, and ways to get at these by another name.  `sys` alone is not among them: nearly all use it.
_MAY_VARY = re.compile(
    r"\b("
    r"random|numpy|uuid|secrets|urandom|time|datetime|perf_counter|monotonic"
    r"|hash|id|object|weakref|gc|_getframe|getrefcount|getsizeof|getallocatedblocks|tracemalloc"
    r"|threading|_thread|concurrent|multiprocessing|asyncio|subprocess|select|selectors|signal|socket"
    r"|os|tempfile|getpid|resource|platform|psutil|proc|ctypes|mmap"
    r"|import_module|importlib|__import__|__builtins__|builtins|exec|eval|runpy"
    r")\b"
)


def may_vary(source: str) -> bool:
    """Whether a program names anything that is known to differ between executions on the same input.

    A guess from its words, which spares most programs a second run: one that varies without them (by the
    order of a set of its own objects, say) is not found.  `any_first_input` guesses nothing.
    """
    return _MAY_VARY.search(source) is not None


def first_input(number: int, job: Job) -> int | None:
    """Choose the first input of programs that may vary, and nothing of the others."""
    return 0 if job.inputs and may_vary(job.source) else None


def any_first_input(number: int, job: Job) -> int | None:
    """Choose the first input of every program, whatever it is made of."""
    return 0 if job.inputs else None


def whole_outcome(number: int, run: Run) -> object:
    """Tell outcomes apart by everything that a program can choose."""
    return run.status, run.stdout, run.value


@dataclass(frozen=True, slots=True)
class Recheck:
    """What runs a second time, and when the second outcome is another one.

    Attributes:
        place: called with (job number, job): which input runs again, None for none; `first_input`,
            `any_first_input` or a function of the caller's.
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
