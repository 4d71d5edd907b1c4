"""What goes into the sandbox and what comes out: plain values, no verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Status = Literal[
    "ok",  # ran to its end with exit code 0 (call jobs: and returned an encodable value)
    "compile_error",  # the source is not valid Python
    "runtime_error",  # uncaught exception, or a non-zero exit code
    "bad_value",  # call jobs: the function returned something not built from plain built-in types
    "signal",  # killed by a signal that the sandbox did not send
    "cpu_limit",
    "wall_limit",
    "memory_limit",
    "output_limit",
    "nondeterministic",  # gave another outcome under another seed (only where the caller asked to look)
    "skipped",  # not run: no program, or an earlier input already settled the job
]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one execution (one program on one input).

    Attributes:
        cpu_s: CPU seconds; what `cpu_limit` goes by, so verdicts do not depend on the machine's load.
        wall_s: wall-clock backstop in seconds; None derives ``4 * cpu_s + 2``.
        memory_mb: address space in MiB.
        output_bytes: size of stdout (and, apart, of stderr) at which the program is stopped.
    """

    cpu_s: float = 2.0
    wall_s: float | None = None
    memory_mb: int = 1024
    output_bytes: int = 1 << 20

    @property
    def wall(self) -> float:
        """Wall-clock limit in seconds."""
        return 4 * self.cpu_s + 2 if self.wall_s is None else self.wall_s


@dataclass(frozen=True, slots=True)
class Job:
    """One program with all the inputs it is to run on.

    Attributes:
        source: the program's text.
        inputs: stdin texts, or argument-list literals (``"[3, 1], 2"``) when `entry_point` is set.
        entry_point: name of the function to call; None runs the source as a script.
        limits: per input.
        seed: seeds ``random`` (and numpy, where imported) in the child; a second run under another seed shows
            nondeterminism.
    """

    source: str
    inputs: tuple[str, ...]
    entry_point: str | None = None
    limits: Limits = field(default_factory=Limits)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of one program on one input.

    Attributes:
        status: see `Status`.
        stdout: bytes the program printed, at most ``limits.output_bytes``.
        value: call jobs only: the returned value as a canonical literal (`encode_value`), None otherwise.
        exit_code: exit code, None if killed or not run.
        signal: number of the fatal signal, None if there was none.
        stderr_tail: last 2,000 characters of stderr.
        cpu_s: CPU seconds used.
        wall_s: wall-clock seconds used.
        max_rss_mb: peak resident memory in MiB.
        stdout_truncated: whether output was cut at the limit.
    """

    status: Status
    stdout: bytes = b""
    value: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    stderr_tail: str = ""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    max_rss_mb: float = 0.0
    stdout_truncated: bool = False

    @property
    def ok(self) -> bool:
        """Whether the program ran to its end within limits."""
        return self.status == "ok"


#: Called with (job number, input number, run) after each run; True skips the job's other inputs.
StopWhen = Callable[[int, int, Run], bool]


def first_failure(job: int, place: int, run: Run) -> bool:
    """Stop a job at the first run that does not end well (a `StopWhen`)."""
    return not run.ok


def first_time_limit(job: int, place: int, run: Run) -> bool:
    """Stop a job at the first run that takes too long, as its others most often would too (a `StopWhen`)."""
    return run.status in ("cpu_limit", "wall_limit")


class Executor(Protocol):
    """What the rest of the package needs of `tipprobe.sandbox.Sandbox`."""

    def run(self, jobs: Sequence[Job], *, stop_when: StopWhen | None = None) -> list[list[Run]]:
        """Run every job on every one of its inputs; one list a job, one `Run` an input, in order."""
        ...
