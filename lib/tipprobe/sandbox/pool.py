"""The pool: worker processes, one socket each, and the bookkeeping that turns jobs into runs.

This process never forks and never unpickles: workers are started by exec and speak in fixed structs
(`tipprobe.sandbox.worker.wire`).  Expected outputs stay on this side.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from tipprobe.errors import SandboxError
from tipprobe.sandbox.types import Job, Run
from tipprobe.sandbox.worker import wire

MAX_ATTEMPTS = 3  # of a job whose worker or supervisor died
START_TIMEOUT_S = 60.0
SILENCE_SLACK_S = 20.0  # beyond the wall limit, before a worker that says nothing is given up
STDERR_TAIL_CHARS = 2_000
_SCRATCH_PREFIX = "tipprobe-sandbox-"
_USES_NUMPY = re.compile(r"\b(numpy|scipy|pandas|sklearn|matplotlib)\b")


class Sandbox:
    """Runs untrusted programs in worker processes.

    Workers start at the first `run` (about 0.1 s each) and stay until `close`, the end of the ``with``
    block or the end of this process, whichever comes first, ``kill -9`` included.  Use one sandbox from one
    thread at a time; threads and async code may each use their own.  After a fork the copy starts workers
    of its own.

    Args:
        workers: worker processes; None or 0 takes the number of cores this process may use.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 0:
            raise SandboxError(f"workers must be 0 (one per core) or more, got {workers}")
        self.workers = workers or len(os.sched_getaffinity(0))
        self._slots: list[_Slot] = []
        self._owner = os.getpid()
        self._busy = threading.Lock()
        _POOLS.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers.  A later `run` starts fresh ones."""
        for slot in self._slots:
            slot.close()
        self._slots = []

    def run(
        self, jobs: Sequence[Job], *, progress: Callable[[int, int], None] | None = None
    ) -> list[list[Run]]:
        """Run every job on every one of its inputs.

        Executions that are the same (source, entry point, input, seed, limits) are done once.

        Args:
            jobs: programs with their inputs.
            progress: called with (jobs done, jobs in all) as jobs end.

        Returns:
            One list per job, one `Run` per input, in the order given.

        Raises:
            SandboxError: a worker could not be started, or three workers died over the same job through no
            fault
                of the program.
        """
        if not self._busy.acquire(blocking=False):
            raise SandboxError("this Sandbox is already running jobs; use one Sandbox per thread")
        try:
            return self._run(jobs, progress)
        except BaseException:
            self.close()  # whatever the workers were doing is not wanted any more
            raise
        finally:
            self._busy.release()

    def _run(self, jobs: Sequence[Job], progress: Callable[[int, int], None] | None) -> list[list[Run]]:
        results: list[list[Run]] = [[] for _ in jobs]
        tasks = _merge(jobs)
        total, done = len(jobs), len(jobs) - sum(len(task.members) for task in tasks)
        waiting = deque(tasks)
        while len(self._slots) < min(self.workers, len(waiting)):
            self._slots.append(_Slot())
        with selectors.DefaultSelector() as selector:
            idle = deque(self._slots)
            running = 0
            while waiting or running:
                while waiting and idle:
                    slot = idle.popleft()
                    slot.start(waiting.popleft())
                    selector.register(slot.socket, selectors.EVENT_READ, slot)
                    running += 1
                for slot in self._wait(selector):
                    finished = slot.receive()
                    if finished is None:
                        continue
                    selector.unregister(slot.socket)
                    running -= 1
                    idle.append(slot)
                    task = slot.release()
                    if not finished:
                        slot.discard()
                        waiting.appendleft(task)
                        continue
                    for member, places in task.members:
                        results[member] = [task.runs[place] for place in places]
                    done += len(task.members)
                    if progress is not None:
                        progress(done, total)
        return results

    def _wait(self, selector: selectors.BaseSelector) -> list[_Slot]:
        """Return the slots that have something to read, or that were silent for too long."""
        now = time.monotonic()
        first = min(key.data.deadline for key in selector.get_map().values())
        ready = [key.data for key, _ in selector.select(max(0.0, first - now))]
        if not ready:
            now = time.monotonic()
            for key in selector.get_map().values():
                if key.data.deadline <= now:
                    key.data.kill()  # its socket becomes readable: end of file
        return ready


@dataclass
class _Task:
    """One program with the distinct inputs that any of its jobs asked for."""

    job: Job
    members: list[tuple[int, list[int]]] = field(default_factory=list)  # job number, places of its inputs
    runs: list[Run | None] = field(default_factory=list)
    attempts: int = 0
    compiled: bool = False


def _merge(jobs: Sequence[Job]) -> list[_Task]:
    """Gather jobs that run the same program under the same conditions; jobs without inputs are left out."""
    groups: dict[tuple[object, ...], dict[str, int]] = {}
    tasks: dict[tuple[object, ...], _Task] = {}
    for number, job in enumerate(jobs):
        if not job.inputs:
            continue
        key = (job.source, job.entry_point, job.seed, job.limits)
        places = groups.setdefault(key, {})
        task = tasks.setdefault(key, _Task(job))
        task.members.append((number, [places.setdefault(text, len(places)) for text in job.inputs]))
    for key, task in tasks.items():
        job = task.job
        task.job = Job(job.source, tuple(groups[key]), job.entry_point, job.limits, job.seed)
    return list(tasks.values())


class _Slot:
    """One place for a worker: at most one process per flavour, at most one task at a time."""

    def __init__(self) -> None:
        self._processes: dict[str, _Process] = {}
        self._current: _Process | None = None
        self._task: _Task | None = None
        self._buffer = bytearray()
        self.deadline = 0.0

    @property
    def socket(self) -> socket.socket:
        """The socket of the worker that holds the current task."""
        return self._current.socket

    def start(self, task: _Task) -> None:
        """Hand a task to a worker, starting one if need be."""
        task.attempts += 1
        task.compiled = False
        task.runs = [None] * len(task.job.inputs)
        flavour = "numpy" if _USES_NUMPY.search(task.job.source) and _has_numpy() else "slim"
        self._task = task
        frame = wire.pack_job(_to_wire(task.job))
        for _ in range(MAX_ATTEMPTS):
            process = self._processes.get(flavour)
            if process is None:
                process = self._processes[flavour] = _Process(flavour)
            self._current = process
            try:
                process.socket.sendall(frame)
            except OSError:  # it died while idle
                self.discard()
                continue
            self._touch()
            return
        raise SandboxError(
            "sandbox workers die before they take a job; the last one said: "
            f"{process.last_words() or 'nothing'}"
        )

    def receive(self) -> bool | None:
        """Read what the worker sent: True when the task is done, False when its worker died, None when
        neither."""
        try:
            data = self._current.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            return self._worker_died()
        self._buffer += data
        self._touch()
        try:
            return True if self._read_frames() else None
        except ValueError:
            self._current.kill()  # a worker that sends nonsense is not trusted with another byte
            return self._worker_died()

    def _read_frames(self) -> bool:
        """Consume whole frames; True once the task's last one came."""
        task, buffer = self._task, self._buffer
        largest = 2 * (task.job.limits.output_bytes + (1 << 16))
        at, done = 0, False
        with memoryview(buffer) as view:
            while len(buffer) - at >= wire.FRAME.size and not done:
                kind, length = wire.FRAME.unpack_from(view, at)
                if length > largest:
                    raise ValueError(f"a frame of {length} bytes")
                start = at + wire.FRAME.size
                if len(buffer) < start + length:
                    break
                at = start + length
                if kind == wire.COMPILED:
                    task.compiled = True
                elif kind == wire.RUN:
                    frame = wire.unpack_run(view[start:at])
                    if not (frame.index < len(task.runs) and frame.status < len(wire.STATUSES)):
                        raise ValueError("a run out of range")
                    task.runs[frame.index] = _from_wire(frame)
                elif kind == wire.DONE:
                    if None in task.runs:
                        raise ValueError("done, but runs are missing")
                    done = True
                else:
                    raise ValueError(f"a frame of kind {kind}")
        del buffer[:at]
        return done

    def _worker_died(self) -> bool:
        """Decide what a dead worker means: False = try again, True = settled by blaming the program."""
        code = self._current.wait()
        task = self._task
        if task.attempts < MAX_ATTEMPTS:
            return False
        if code != wire.EXIT_SUPERVISOR_DIED:
            raise SandboxError(
                f"{MAX_ATTEMPTS} sandbox workers died (last exit code {code}) over the program that begins "
                f"{task.job.source[:60]!r}; the last one said: {self._current.last_words() or 'nothing'}"
            )
        # Every time, this program was what ran when its supervisor died (or its compilation exceeded limits).
        self.discard()
        if not task.compiled:
            blame = Run("compile_error", stderr_tail="compiling the program exceeded its limits")
        else:
            blame = Run("signal", signal=9, stderr_tail="the program killed the process that supervises it")
        task.runs = [run or blame for run in task.runs]
        return True

    def release(self) -> _Task:
        """Return the task this slot held."""
        task, self._task = self._task, None
        self._buffer.clear()
        return task

    def discard(self) -> None:
        """Forget the current process, killing what is left of it."""
        for flavour, process in list(self._processes.items()):
            if process is self._current:
                del self._processes[flavour]
                process.close(wait_s=0.0)

    def kill(self) -> None:
        """Kill the worker of the current task."""
        self._current.kill()

    def close(self) -> None:
        """Stop all processes of this slot."""
        busy = self._current if self._task is not None else None
        for process in self._processes.values():
            process.close(wait_s=0.0 if process is busy else 2.0)
        self._processes.clear()

    def abandon(self) -> None:
        """In a forked copy of this process: close sockets without touching the processes, which are not
        ours."""
        for process in self._processes.values():
            process.socket.close()

    def _touch(self) -> None:
        self.deadline = time.monotonic() + self._task.job.limits.wall + SILENCE_SLACK_S


class _Process:
    """A worker process, its socket, its scratch folder and the file that takes its stderr."""

    def __init__(self, flavour: str) -> None:
        if not sys.executable:
            raise SandboxError(
                "sys.executable is empty: the sandbox needs the path of a Python interpreter to start"
            )
        _remove_stale_scratch()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX))
        self.socket, theirs = socket.socketpair()
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-s", "-P", _WORKER, str(theirs.fileno()), flavour, str(self._scratch)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=_environment(self._scratch),
                cwd=self._scratch,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            self.socket.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise SandboxError(f"cannot start a sandbox worker with {sys.executable}: {error}") from error
        finally:
            theirs.close()
        self._wait_for_hello()

    def _wait_for_hello(self) -> None:
        self.socket.settimeout(START_TIMEOUT_S)
        try:
            kind, length = wire.FRAME.unpack(wire.read_exactly(self.socket, wire.FRAME.size))
            if kind != wire.HELLO or length > 1 << 16:
                raise ValueError(f"it sent frame {kind} of {length} bytes first")
            self.hello = bytes(wire.read_exactly(self.socket, length))
        except (OSError, EOFError, ValueError) as error:
            self.kill()
            words = self.last_words()
            self.close(wait_s=0.0)
            raise SandboxError(
                f"a sandbox worker did not start within {START_TIMEOUT_S:.0f} s ({error or 'time out'}); "
                f"it said: {words or 'nothing'}"
            ) from error

    def last_words(self) -> str:
        """The end of what the worker wrote to its stderr."""
        self._stderr.seek(0)
        return self._stderr.read()[-STDERR_TAIL_CHARS:].decode(errors="replace").strip()

    def kill(self) -> None:
        """Kill the worker; its children die with it."""
        self._popen.kill()

    def wait(self) -> int:
        """Return the exit code of a worker that closed its socket, killing it if it lingers."""
        try:
            return self._popen.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()

    def close(self, wait_s: float) -> None:
        """Hang up, give the worker `wait_s` to tidy up, then kill it; remove its scratch folder."""
        self.socket.close()
        try:
            self._popen.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._stderr.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


_WORKER = str(Path(__file__).with_name("worker") / "main.py")
_POOLS: weakref.WeakSet[Sandbox] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for pool in _POOLS:
        for slot in pool._slots:
            slot.abandon()
        pool._slots = []
        pool._busy = threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)


@cache
def _has_numpy() -> bool:
    return find_spec("numpy") is not None


def _environment(scratch: Path) -> dict[str, str]:
    """All that a program gets to see of the environment: no credentials, nothing that changes its output."""
    home = str(scratch / "cwd")
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _remove_stale_scratch() -> None:
    """Remove scratch folders whose worker was killed together with its pool."""
    import fcntl

    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH_PREFIX}*"):
        try:
            with (folder / ".lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use, somebody else's, or just being made
            continue


def _to_wire(job: Job) -> wire.JobFrame:
    limits = job.limits
    return wire.JobFrame(
        limits.cpu_s,
        limits.wall,
        limits.memory_mb,
        limits.output_bytes,
        job.seed,
        job.entry_point is not None,
        False,
        job.source.encode("utf-8", "surrogatepass"),
        (job.entry_point or "").encode(),
        [text.encode("utf-8", "surrogatepass") for text in job.inputs],
    )


def _from_wire(frame: wire.RunFrame) -> Run:
    return Run(
        status=wire.STATUSES[frame.status],
        stdout=frame.stdout,
        value=frame.value.decode("utf-8", "replace") if frame.value else None,
        exit_code=None if frame.exit_code < 0 else frame.exit_code,
        signal=frame.signal or None,
        stderr_tail=frame.stderr.decode("utf-8", "replace")[-STDERR_TAIL_CHARS:],
        cpu_s=frame.cpu_s,
        wall_s=frame.wall_s,
        max_rss_mb=frame.max_rss_mb,
        stdout_truncated=frame.truncated,
    )
