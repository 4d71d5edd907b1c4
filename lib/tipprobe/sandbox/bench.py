"""How fast programs run here, against a fresh interpreter per execution."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tipprobe.errors import SandboxError
from tipprobe.sandbox.pool import Sandbox
from tipprobe.sandbox.types import Job

INPUTS = tuple(f"{n}\n" for n in range(12))  # per program, as many as a rollout has probes
#: Turns of each side, a program.
TURNS = 5
STEP_PROGRAMS = 256  # as many as a rollout batch has samples

_TRIVIAL = "print(int(input()) + 1)\n"
_NUMPY = "import numpy as np\nprint(int(np.arange(int(input()) + 1).sum()))\n"


def hundred_lines() -> str:
    """Return a program of about a hundred lines: functions that are defined and called once."""
    parts = ["import sys", "from collections import deque"]
    for n in range(20):
        parts += [
            f"def step_{n}(values, limit):",
            f'    """Fold the values, from the {n}th on."""',
            "    queue = deque(values)",
            "    while len(queue) > 1 and limit > 0:",
            "        queue.append((queue.popleft() * 3 + queue.popleft()) % 1009)",
            "    return [len(queue), sum(queue)]",
        ]
    parts += ["values = [int(word) for word in sys.stdin.read().split()] + list(range(9))"]
    parts += [f"values += step_{n}(values, {n})" for n in range(20)]
    return "\n".join([*parts, "print(sum(values))"]) + "\n"


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast one program runs.

    Attributes:
        program: which one.
        sandbox_per_s: executions per second in the sandbox, 12 inputs a program.
        subprocess_per_s: by ``subprocess.run([python, "-I", file])``, as many at a time as there are workers.
        sandbox_cpu_ms: CPU milliseconds of one execution in the sandbox, of all processes taken together;
            depends less on what else the machine does than the speed does.
        subprocess_cpu_ms: likewise by ``subprocess.run``.
    """

    program: str
    sandbox_per_s: float
    subprocess_per_s: float
    sandbox_cpu_ms: float
    subprocess_cpu_ms: float

    @property
    def ratio(self) -> float:
        """How many times as fast the sandbox is."""
        return self.sandbox_per_s / self.subprocess_per_s

    @property
    def cpu_ratio(self) -> float:
        """How many times as much CPU a fresh interpreter takes."""
        return self.subprocess_cpu_ms / self.sandbox_cpu_ms


@dataclass(frozen=True, slots=True)
class Bench:
    """Result of `run_bench`.

    Attributes:
        workers: worker processes, and subprocesses at a time.
        level: isolation level of the sandbox.
        speeds: one a program.
        step_programs: trivial programs, with 12 inputs each, of the step.
        step_s: wall-clock seconds of the step.
        load: the machine's load average over the last minute, before and after.
    """

    workers: int
    level: str
    speeds: tuple[Speed, ...]
    step_programs: int
    step_s: float
    load: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        speeds = [asdict(s) | {"ratio": s.ratio, "cpu_ratio": s.cpu_ratio} for s in self.speeds]
        return asdict(self) | {"speeds": speeds, "load": list(self.load)}

    def __str__(self) -> str:
        before, after = self.load
        lines = [
            f"isolation level {self.level}, {self.workers} workers; load {before:.1f} to {after:.1f}",
            f"{'':<12}{'executions per second':>29}{'CPU ms per execution':>29}",
            f"{'program':<12}" + f"{'sandbox':>9}{'subprocess':>12}{'ratio':>8}" * 2,
        ]
        lines += [
            f"{s.program:<12}"
            f"{s.sandbox_per_s:>9.0f}{s.subprocess_per_s:>12.0f}{s.ratio:>8.1f}"
            f"{s.sandbox_cpu_ms:>9.1f}{s.subprocess_cpu_ms:>12.1f}{s.cpu_ratio:>8.1f}"
            for s in self.speeds
        ]
        return "\n".join([*lines, f"{self.step_programs} trivial programs x 12 inputs: {self.step_s:.1f} s"])


def run_bench(
    sandbox: Sandbox,
    seconds: float = 4.0,
    step_programs: int = STEP_PROGRAMS,
    progress: Callable[[str], None] | None = None,
) -> Bench:
    """Measure; takes about ``6 * seconds`` and the step.

    Args:
        sandbox: whose speed to measure.
        seconds: for each of the two sides of each program.
        step_programs: programs in the step.
        progress: called with what is about to be measured.

    Raises:
        IsolationError: this machine isolates less than the sandbox's `min_isolation`.
        SandboxError: workers could not be started, or one of the programs failed.
    """
    programs = {"trivial": _TRIVIAL, "100 lines": hundred_lines()}
    if find_spec("numpy") is not None:
        programs["numpy"] = _NUMPY
    load = os.getloadavg()[0]
    speeds = []
    for name, source in programs.items():
        if progress is not None:
            progress(name)
        sandbox.run([_variant(source, -n) for n in range(1, sandbox.workers + 1)])  # start, import numpy
        # Both sides by turns, so that other work on the machine slows both; the median of the turns counts.
        turns = [
            _sandbox_speed(sandbox, source, seconds / TURNS)
            + _subprocess_speed(sandbox, source, seconds / TURNS)
            for _ in range(TURNS)
        ]
        per_s, cpu_ms, other_per_s, other_cpu_ms = (median(column) for column in zip(*turns, strict=True))
        speeds.append(Speed(name, per_s, other_per_s, cpu_ms, other_cpu_ms))
    if progress is not None:
        progress(f"{step_programs} programs")
    started = time.perf_counter()
    sandbox.run([_variant(_TRIVIAL, n) for n in range(step_programs)])
    step_s = time.perf_counter() - started
    loads = (load, os.getloadavg()[0])
    return Bench(sandbox.workers, sandbox.isolation.level, tuple(speeds), step_programs, step_s, loads)


def _variant(source: str, number: int) -> Job:
    return Job(f"{source}# {number}\n", INPUTS)  # equal programs would be run once only


def _sandbox_speed(sandbox: Sandbox, source: str, seconds: float) -> tuple[float, float]:
    """Return executions per second and CPU milliseconds per execution."""
    batch, done, cpu, started = 8 * sandbox.workers, 0, _cpu_of_workers(), time.perf_counter()
    while done == 0 or time.perf_counter() - started < seconds:
        runs = sandbox.run([_variant(source, done + n) for n in range(batch)])
        if not all(run.ok for of_job in runs for run in of_job):
            raise SandboxError(f"the benchmark's own program failed: {runs[0][0]}")
        done += batch
    executions = done * len(INPUTS)
    per_s = executions / (time.perf_counter() - started)
    return per_s, (_cpu_of_workers() - cpu) * 1000 / executions


def _cpu_of_workers() -> float:
    """CPU seconds that this process, its living descendants and what those have reaped have used."""
    this = psutil.Process()
    own, total = this.cpu_times(), 0.0
    for process in this.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total + own.user + own.system


def _subprocess_speed(sandbox: Sandbox, source: str, seconds: float) -> tuple[float, float]:
    """Return executions per second and CPU milliseconds per execution."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(sandbox.workers) as threads:
        path = Path(folder) / "program.py"
        path.write_text(source, encoding="utf-8")
        cpu, started = _cpu_of_subprocesses(), time.perf_counter()

        def repeat() -> int:
            count = 0
            while count == 0 or time.perf_counter() - started < seconds:
                subprocess.run([sys.executable, "-I", path], input=b"1\n", capture_output=True, check=True)
                count += 1
            return count

        counts = [future.result() for future in [threads.submit(repeat) for _ in range(sandbox.workers)]]
        per_s = sum(counts) / (time.perf_counter() - started)
        return per_s, (_cpu_of_subprocesses() - cpu) * 1000 / sum(counts)


def _cpu_of_subprocesses() -> float:
    """CPU seconds of this process and of all that it has reaped."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
