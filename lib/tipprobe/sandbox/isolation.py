"""What keeps programs in, and what of it was proven here by trying."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from tipprobe.errors import SandboxError
from tipprobe.sandbox import scratch
from tipprobe.sandbox.types import Job, Limits, Run
from tipprobe.sandbox.worker import wire

Level = Literal["process", "seccomp", "landlock", "namespaces"]
LEVELS: tuple[Level, ...] = get_args(Level)
#: Environment variable with the level below which nothing runs, where the caller names none.
MIN_ISOLATION = "TIPPROBE_MIN_ISOLATION"

# What the self-test must have seen refused before a level is claimed.
_BY_SECCOMP = frozenset({"modes", "connect", "signals", "limits", "trace", "namespaces"})
_REQUIRED: dict[Level, frozenset[str]] = {
    "process": frozenset(),
    "seccomp": _BY_SECCOMP,
    "landlock": _BY_SECCOMP | {"read", "write", "package"},
    "namespaces": _BY_SECCOMP | {"read", "write", "package"},
}
_MEANING = {
    "read": "reading files outside",
    "write": "writing files outside",
    "package": "reading the files of this package",
    "imports": "importing this package",
    "modes": "changing modes of files outside",
    "connect": "network connections",
    "signals": "signals to other processes",
    "limits": "changing limits of other processes",
    "trace": "tracing other processes",
    "namespaces": "making namespaces",
    "processes": "starting processes",
}
_FIXES = {
    "namespaces": (
        "allow unprivileged user namespaces (sysctl user.max_user_namespaces > 0; on Ubuntu 23.10 and later "
        "kernel.apparmor_restrict_unprivileged_userns=0; in Docker a seccomp profile with unshare and mount)"
    ),
    "landlock": "use Linux 5.13 or later with landlock in the lsm= boot list (gVisor has none)",
    "seccomp": "use Linux on x86-64 or aarch64 with seccomp filters",
}


class IsolationError(SandboxError):
    """This machine does not isolate programs as well as was asked for."""


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """What stands between a candidate program and this machine.

    No level defends against kernel exploits or timing channels: the kernel is shared.

    Attributes:
        level: ``namespaces`` (own file system, users, processes, network; Landlock too where there is one),
            ``landlock`` (files and sockets restricted, no new processes, no files to write), ``seccomp`` (no
            sockets, no signals, but the user's files are in reach) or ``process`` (limits only).
        proven: what a test program tried and was refused.
        missing: layers and features that are not there, with the reason.
    """

    level: Level
    proven: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> tuple[str, ...]:
        """What the test program tried and could do."""
        return tuple(text for text in _MEANING.values() if text not in self.proven)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return asdict(self) | {"proven": list(self.proven)}

    def explain(self) -> str:
        """Return the report as lines: what was tried and how it went, what is missing and how to get it."""
        lines = [f"isolation level {self.level}"]
        lines += [f"  refused  {text}" for text in self.proven]
        lines += [f"  allowed  {text}" for text in self.allowed]
        for name, reason in self.missing.items():
            lines.append(f"  missing  {name}: {reason}")
            if name in _FIXES and reason != wire.NOT_ASKED_FOR:
                lines.append(f"           to get it: {_FIXES[name]}")
        return "\n".join([*lines, "The kernel is shared: no level stops kernel exploits or timing channels."])

    def __str__(self) -> str:
        text = f"isolation level {self.level}; refused when tried: {', '.join(self.proven) or 'nothing'}"
        for name, reason in self.missing.items():
            text += f"; no {name} ({reason})"
        return text


def prove(run_test: Callable[[Job], Run], missing: dict[str, str]) -> IsolationReport:
    """Run the self-test and report the highest level all of whose refusals were seen.

    Args:
        run_test: runs a job's single input in the sandbox.
        missing: what the worker said it could not set up.
    """
    with scratch.locked_folder() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        (folder / "canary").write_text("only for the owner\n", encoding="ascii")
        question = {
            "folder": str(folder),
            "package": str(Path(__file__).resolve().parents[1]),
            "port": server.getsockname()[1],
            "owner": os.getpid(),
            "pid_namespace": _pid_namespace(),
        }
        source = (Path(__file__).parent / "worker" / "selftest.py").read_text(encoding="utf-8")
        limits = Limits(cpu_s=10.0, wall_s=60.0)
        run = run_test(Job(source, (json.dumps(question),), limits=limits))
    if not run.ok:
        raise SandboxError(f"the sandbox's self-test failed ({run.status}): {run.stderr_tail.strip()[-500:]}")
    refused = set(json.loads(run.stdout))
    claimed = next((level for level in reversed(LEVELS[1:]) if level not in missing), "process")
    missing = dict(missing)
    level: Level = "process"
    for candidate in LEVELS[: LEVELS.index(claimed) + 1]:
        holes = _REQUIRED[candidate] - refused
        if holes:
            missing[candidate] = (
                f"the self-test was not refused: {', '.join(_MEANING[h] for h in sorted(holes))}"
            )
        else:
            level = candidate
    return IsolationReport(level, tuple(text for name, text in _MEANING.items() if name in refused), missing)


def require(report: IsolationReport, minimum: Level) -> None:
    """Raise `IsolationError` if a report falls short of `minimum`, naming what to change."""
    if LEVELS.index(report.level) >= LEVELS.index(minimum):
        return
    needed = [level for level in LEVELS[LEVELS.index(minimum) :] if level in _FIXES]
    fixes = "; or ".join(
        f"{_FIXES[level]} [{report.missing.get(level, 'missing')}]" for level in reversed(needed)
    )
    raise IsolationError(
        f"programs would run at isolation level {report.level!r} here, below the {minimum!r} asked for.  "
        f"To fix it: {fixes}.  To run anyway, with this machine's files or processes in reach, set "
        f"{MIN_ISOLATION}={report.level} in the environment or say Sandbox(min_isolation={report.level!r})"
    )


def default_min_isolation() -> Level:
    """Return the level below which a sandbox refuses to run unless told otherwise.

    Raises:
        SandboxError: the environment variable holds something else than a level.
    """
    level = os.environ.get(MIN_ISOLATION, "landlock")
    check_level(MIN_ISOLATION, level)
    return cast(Level, level)


def check_level(name: str, value: str) -> None:
    """Raise `SandboxError` if `value` is not a level."""
    if value not in LEVELS:
        raise SandboxError(f"{name} must be one of {', '.join(LEVELS)}, got {value!r}")


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
