"""How fast programs run here, against a fresh interpreter per execution."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tipprobe.errors import SandboxError
from tipprobe.sandbox.pool import Sandbox
from tipprobe.sandbox.types import Job

INPUTS = tuple(f"{n}\n" for n in range(12))  # per program, as many as a rollout has probes

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
    """Executions per second of one program.

    Attributes:
        program: which one.
        sandbox_per_s: in the sandbox, 12 inputs a program.
        subprocess_per_s: by ``subprocess.run([python, "-I", file])``, as many at a time as there are workers.
    """

    program: str
    sandbox_per_s: float
    subprocess_per_s: float

    @property
    def ratio(self) -> float:
        """How many times as fast the sandbox is."""
        return self.sandbox_per_s / self.subprocess_per_s


@dataclass(frozen=True, slots=True)
class Bench:
    """Result of `run_bench`: speeds, and seconds for one step of trivial programs with 12 inputs each."""

    workers: int
    level: str
    speeds: tuple[Speed, ...]
    step_programs: int
    step_s: float

    def __str__(self) -> str:
        lines = [f"isolation level {self.level}, {self.workers} workers; executions per second"]
        lines += [f"{'program':<12}{'sandbox':>9}{'subprocess':>12}{'ratio':>8}"]
        lines += [
            f"{s.program:<12}{s.sandbox_per_s:>9.0f}{s.subprocess_per_s:>12.0f}{s.ratio:>8.1f}"
            for s in self.speeds
        ]
        return "\n".join([*lines, f"{self.step_programs} trivial programs x 12 inputs: {self.step_s:.1f} s"])


def run_bench(
    sandbox: Sandbox,
    seconds: float = 2.0,
    step_programs: int = 256,
    progress: Callable[[str], None] | None = None,
) -> Bench:
    """Measure; takes about ``6 * seconds`` and the step.

    Args:
        sandbox: whose speed to measure.
        seconds: for each of the two sides of each program.
        step_programs: programs in the step, as many as a rollout batch has samples.
        progress: called with what is about to be measured.
    """
    programs = {"trivial": _TRIVIAL, "100 lines": hundred_lines()}
    if find_spec("numpy") is not None:
        programs["numpy"] = _NUMPY
    speeds = []
    for name, source in programs.items():
        if progress is not None:
            progress(name)
        sandbox.run([_variant(source, -1)])  # workers start, numpy is imported
        speeds.append(
            Speed(name, _sandbox_speed(sandbox, source, seconds), _subprocess_speed(sandbox, source, seconds))
        )
    if progress is not None:
        progress(f"{step_programs} programs")
    started = time.perf_counter()
    sandbox.run([_variant(_TRIVIAL, n) for n in range(step_programs)])
    step_s = time.perf_counter() - started
    return Bench(sandbox.workers, sandbox.isolation.level, tuple(speeds), step_programs, step_s)


def _variant(source: str, number: int) -> Job:
    return Job(f"{source}# {number}\n", INPUTS)  # equal programs would be run once only


def _sandbox_speed(sandbox: Sandbox, source: str, seconds: float) -> float:
    batch, done, started = 8 * sandbox.workers, 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        runs = sandbox.run([_variant(source, done + n) for n in range(batch)])
        if not all(run.ok for of_job in runs for run in of_job):
            raise SandboxError(f"the benchmark's own program failed: {runs[0][0]}")
        done += batch
    return done * len(INPUTS) / (time.perf_counter() - started)


def _subprocess_speed(sandbox: Sandbox, source: str, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(sandbox.workers) as threads:
        path = Path(folder) / "program.py"
        path.write_text(source, encoding="utf-8")
        started = time.perf_counter()

        def repeat() -> int:
            count = 0
            while time.perf_counter() - started < seconds:
                subprocess.run([sys.executable, "-I", path], input=b"1\n", capture_output=True, check=True)
                count += 1
            return count

        counts = [future.result() for future in [threads.submit(repeat) for _ in range(sandbox.workers)]]
        return sum(counts) / (time.perf_counter() - started)
