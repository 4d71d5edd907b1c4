"""The pool: worker processes, one socket each, and the bookkeeping that turns jobs into runs.

This process never forks and never unpickles: workers are started by exec and speak in fixed structs
(`tipprobe.sandbox.worker.wire`).  Expected outputs stay on this side.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tipprobe.errors import SandboxError
from tipprobe.sandbox import scratch
from tipprobe.sandbox.isolation import (
    IsolationError,
    IsolationReport,
    Level,
    check_level,
    default_min_isolation,
    prove,
    require,
)
from tipprobe.sandbox.recheck import Recheck, run_rechecked
from tipprobe.sandbox.types import Job, Run, StopWhen
from tipprobe.sandbox.worker import wire
from tipprobe.workers import cores

MAX_DEATHS = 5  # of workers in a row, without a run in between, before a job or the machine is to blame
MAX_CONFIRMED = 3  # second runs of one program that are killed again, before its other kills are believed
RETRY_BUDGET_S = 60.0  # for second runs of what the wall clock stopped; more where the first ones took longer
START_TIMEOUT_S = 60.0
SILENCE_SLACK_S = 20.0  # beyond the wall limit, before a worker that says nothing is given up
STDERR_TAIL_CHARS = 2_000
_USES_NUMPY = re.compile(r"\b(numpy|scipy|pandas|sklearn|matplotlib)\b")


class Sandbox:
    """Runs untrusted programs in worker processes.

    Workers start at the first `run` (0.1 to 0.2 s) and stay until `close`, the end of the ``with`` block or
    the end of this process, whichever comes first, ``kill -9`` included.  Use one sandbox from one thread at
    a time; threads and async code may each use their own.  A fork or a pickled copy starts workers of its
    own, so a sandbox can be handed to joblib, Dask or a Ray actor: one program with its inputs is the unit to
    spread.

    Args:
        workers: worker processes; None or 0 takes the number of cores this process may use.
        min_isolation: refuse to run below this level (see `IsolationReport.level`).  None takes the
            environment variable ``TIPPROBE_MIN_ISOLATION``, or ``"landlock"`` without one: ``"process"``,
            which leaves the user's files and processes in a program's reach, must be asked for.
        max_isolation: highest level to try; lower it to see what another machine would give.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        min_isolation: Level | None = None,
        max_isolation: Level = "namespaces",
    ) -> None:
        if workers is not None and workers < 0:
            raise SandboxError(f"workers must be 0 (one per core) or more, got {workers}")
        if min_isolation is None:
            min_isolation = default_min_isolation()
        check_level("min_isolation", min_isolation)
        check_level("max_isolation", max_isolation)
        self.workers = workers or cores()
        self.min_isolation: Level = min_isolation
        self.max_isolation: Level = max_isolation
        self._slots: list[_Slot] = []
        self._report: IsolationReport | None = None
        self._standard = _Standard(max_isolation)
        self._busy = threading.Lock()
        _POOLS.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.workers, self.min_isolation, self.max_isolation)

    def close(self) -> None:
        """Stop the workers.  A later `run` starts fresh ones."""
        for slot in self._slots:
            slot.close()
        self._slots = []

    @property
    def isolation(self) -> IsolationReport:
        """What was proven to be refused to programs here; starts a worker and tries it at the first use.

        Raises:
            IsolationError: the level is below `min_isolation`.
        """
        if self._report is None:
            with self._exclusively():
                self._prove()
        return self._report

    def run(
        self,
        jobs: Sequence[Job],
        *,
        progress: Callable[[int, int], None] | None = None,
        stop_when: StopWhen | None = None,
        check_nondeterminism: bool | Recheck = False,
    ) -> list[list[Run]]:
        """Run every job on every one of its inputs.

        Executions that are the same (source, entry point, input, seed, limits) are done once.  A run that hit
        the wall-clock limit with less than half of its CPU time used, or that somebody killed, is tried once
        more, alone, and then believed.  Believed without a second try are killed runs of a program three of
        whose second tries were killed too, and stopped ones once second tries have taken as long as all jobs
        before them (60 s at least).

        Args:
            jobs: programs with their inputs.
            progress: called with (jobs done, jobs in all) as jobs end.
            stop_when: called with (job number, input number, run) after each run, second tries included; True
                skips the job's other inputs, for example `tipprobe.sandbox.first_failure` or
                `first_time_limit`.  Of equal jobs only the first is asked about.
            check_nondeterminism: run the first input of programs that may vary once more, under the next
                seed; where the outcome differs, all the program's runs become ``nondeterministic``.  A
                `Recheck` chooses other programs or inputs and another way to compare.  `progress` counts the
                second runs as jobs of their own.

        Returns:
            One list per job, one `Run` per input, in the order given.

        Raises:
            IsolationError: this machine isolates less than `min_isolation`.
            SandboxError: a worker could not be started, or five in a row died over the same execution through
                no fault of the program.
        """
        if check_nondeterminism:
            recheck = check_nondeterminism if isinstance(check_nondeterminism, Recheck) else Recheck()
            return run_rechecked(
                self, jobs, recheck, progress=progress, stop_when=_among(len(jobs), stop_when)
            )
        with self._exclusively():
            if self._report is None:
                self._prove()
            tasks = _merge(jobs, separate=stop_when is not None)
            done = len(jobs) - sum(len(task.members) for task in tasks)

            def count(task: _Task) -> None:
                nonlocal done
                done += len(task.members)
                if progress is not None:
                    progress(done, len(jobs))

            started = time.monotonic()
            self._execute(tasks, self.workers, count, stop_when)
            budget_s = max(RETRY_BUDGET_S, time.monotonic() - started)
            self._retry_inconclusive(tasks, stop_when, budget_s)
        results: list[list[Run]] = [[] for _ in jobs]
        for task in tasks:
            for number, places in task.members:
                results[number] = [task.runs[place] for place in places]
        return results

    async def run_async(self, jobs: Sequence[Job], **options: Any) -> list[list[Run]]:
        """`run` in a thread, for async code; takes the same options."""
        return await asyncio.to_thread(self.run, jobs, **options)

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise SandboxError("this Sandbox is already running jobs; use one Sandbox per thread")
        try:
            yield
        except BaseException:
            self.close()  # whatever the workers were doing is not wanted any more
            raise
        finally:
            self._busy.release()

    def _prove(self) -> None:
        """Start one worker, try what must be refused, and refuse to go on if too little was."""

        def run_test(job: Job) -> Run:
            task = _merge([job], separate=False)[0]
            self._execute([task], 1)
            return task.runs[0]

        self._standard.missing = None
        self._add_slots(1)
        missing = self._slots[0].worker_report("slim")
        try:
            report = prove(run_test, missing)
        except OSError as error:
            raise SandboxError(f"cannot try the sandbox's isolation: {error}{_remedy(error)}") from error
        require(report, self.min_isolation)
        self._report = report

    def _add_slots(self, count: int) -> None:
        while len(self._slots) < count:
            self._slots.append(_Slot(self._standard))

    def _execute(
        self,
        tasks: Sequence[_Task],
        workers: int,
        count: Callable[[_Task], None] = lambda task: None,
        stop_when: StopWhen | None = None,
    ) -> None:
        """Fill in the runs of tasks, one task per worker at a time."""
        waiting = deque(tasks)
        workers = min(workers, len(waiting))
        self._add_slots(workers)
        with _selector() as selector:
            idle = deque(self._slots[:workers])
            running = 0
            while waiting or running:
                while waiting and idle:
                    slot = idle.popleft()
                    slot.start(waiting.popleft(), stop_when)
                    selector.register(slot.socket, selectors.EVENT_READ, slot)
                    running += 1
                for slot in _readable(selector):
                    finished = slot.receive()
                    if finished is None:
                        continue
                    selector.unregister(slot.socket)
                    running -= 1
                    idle.append(slot)
                    task = slot.release()
                    if finished:
                        count(task)
                    else:
                        slot.discard()
                        waiting.appendleft(task)

    def _retry_inconclusive(
        self, tasks: Sequence[_Task], stop_when: StopWhen | None, budget_s: float
    ) -> None:
        """Run again, alone, what somebody else killed, and what the wall clock stopped with little CPU used.

        A machine short of memory and an overloaded one look like this, and so do programs that kill
        themselves or sleep.  What comes out the second time is believed.  So is a killed run of a program
        that was killed again `MAX_CONFIRMED` times, and, once `budget_s` is used up, a starved one.
        """
        confirmed: Counter[str] = Counter()  # of kills, by source
        for task, place in _in_rounds(tasks, _was_killed, bool(stop_when)):
            if confirmed[task.job.source] < MAX_CONFIRMED:
                self._run_again(task, place, stop_when)
                confirmed[task.job.source] += _was_killed(task.runs[place], task.job)
        end = time.monotonic() + budget_s
        for task, place in _in_rounds(tasks, _was_starved, bool(stop_when)):
            if place not in task.tried_again and time.monotonic() < end:
                self._run_again(task, place, stop_when)

    def _run_again(self, task: _Task, place: int, stop_when: StopWhen | None) -> None:
        """Do one input of a task again, alone; where a job can stop, what came after that input too."""
        places = range(place, len(task.runs)) if stop_when else [place]
        again = task.fresh(places)
        self._execute([again], 1, stop_when=stop_when)
        for number, run in zip(places, again.runs, strict=True):
            task.runs[number] = run
        task.tried_again.update(places)


def _among(count: int, stop_when: StopWhen | None) -> StopWhen | None:
    """Ask `stop_when` about the first `count` jobs only."""
    if stop_when is None:
        return None
    return lambda job, place, run: job < count and stop_when(job, place, run)


def _was_killed(run: Run, job: Job) -> bool:
    """Whether somebody killed a run: the program itself, or a machine short of memory."""
    return run.status == "signal" and run.signal == signal.SIGKILL


def _was_starved(run: Run, job: Job) -> bool:
    """Whether a run got too little CPU to tell how it would have ended: it slept, or the machine was busy."""
    return run.status == "wall_limit" and run.cpu_s < job.limits.cpu_s / 2


def _in_rounds(
    tasks: Sequence[_Task], condition: Callable[[Run, Job], bool], first_only: bool
) -> list[tuple[_Task, int]]:
    """Return (task, place) of the runs with some property: the first of every task, then the second ones, so
    that no program's sleep takes the time that others are due."""
    found = [
        (turn, number, place)
        for number, task in enumerate(tasks)
        for turn, place in enumerate(p for p, run in enumerate(task.runs) if condition(run, task.job))
        if turn == 0 or not first_only
    ]
    return [(tasks[number], place) for _, number, place in sorted(found)]


def _rebuild(workers: int, min_isolation: Level, max_isolation: Level) -> Sandbox:
    return Sandbox(workers, min_isolation=min_isolation, max_isolation=max_isolation)


def _selector() -> selectors.BaseSelector:
    try:
        return selectors.DefaultSelector()
    except OSError as error:
        raise SandboxError(f"cannot wait for sandbox workers: {error}{_remedy(error)}") from error


def _readable(selector: selectors.BaseSelector) -> list[_Slot]:
    """Wait for workers that have something to say; kill those that were silent for too long."""
    first = min(key.data.deadline for key in selector.get_map().values())
    ready = [key.data for key, _ in selector.select(max(0.0, first - time.monotonic()))]
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
    deaths: int = 0  # of workers since this task last got on
    compiled: bool = False
    tried_again: set[int] = field(default_factory=set)  # places that ran a second time, alone

    def fresh(self, places: Sequence[int]) -> _Task:
        """Return a task that does some of the inputs again, under the same numbers for whom it asks."""
        moved = {old: new for new, old in enumerate(places)}
        members = [(number, [moved.get(place, -1) for place in of_job]) for number, of_job in self.members]
        return _Task(replace(self.job, inputs=tuple(self.job.inputs[place] for place in places)), members)


def _merge(jobs: Sequence[Job], separate: bool) -> list[_Task]:
    """Gather jobs that run the same program under the same conditions; jobs without inputs are left out.

    Args:
        jobs: all jobs.
        separate: only gather jobs whose inputs are the same too (their runs may be cut short together).
    """
    groups: dict[tuple[object, ...], dict[str, int]] = {}
    tasks: dict[tuple[object, ...], _Task] = {}
    for number, job in enumerate(jobs):
        if not job.inputs:
            continue
        key = (job.source, job.entry_point, job.seed, job.limits, job.inputs if separate else None)
        places = groups.setdefault(key, {})
        task = tasks.setdefault(key, _Task(job))
        task.members.append((number, [places.setdefault(text, len(places)) for text in job.inputs]))
    for key, task in tasks.items():
        task.job = replace(task.job, inputs=tuple(groups[key]))
    return list(tasks.values())


class _Slot:
    """One place for a worker: at most one process per flavour, at most one task at a time."""

    def __init__(self, standard: _Standard) -> None:
        self._standard = standard
        self._processes: dict[str, _Process] = {}
        self._stop_when: StopWhen | None = None
        self._current: _Process | None = None
        self._task: _Task | None = None
        self._sent: list[int] = []  # places of the inputs the worker was given
        self._buffer = bytearray()
        self.deadline = 0.0

    @property
    def socket(self) -> socket.socket:
        """The socket of the worker that holds the current task."""
        return self._current.socket

    def worker_report(self, flavour: str) -> dict[str, str]:
        """What a worker of this slot could not set up: layer -> reason."""
        return self._process(flavour).missing

    def _process(self, flavour: str) -> _Process:
        if flavour not in self._processes:
            self._processes[flavour] = self._standard.start(flavour)
        return self._processes[flavour]

    def start(self, task: _Task, stop_when: StopWhen | None) -> None:
        """Hand a task to a worker, starting one if need be."""
        self._stop_when = stop_when
        task.compiled = False
        task.runs = task.runs or [None] * len(task.job.inputs)
        self._sent = [
            place for place, run in enumerate(task.runs) if run is None
        ]  # all, or what a death left
        flavour = "numpy" if _USES_NUMPY.search(task.job.source) and _has_numpy() else "slim"
        self._task = task
        inputs = tuple(task.job.inputs[place] for place in self._sent)
        frame = wire.pack_job(_to_wire(replace(task.job, inputs=inputs), stop_when is not None))
        for _ in range(MAX_DEATHS):
            process = self._current = self._process(flavour)
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
                    if not (frame.index < len(self._sent) and frame.status < len(wire.STATUSES)):
                        raise ValueError("a run out of range")
                    place = self._sent[frame.index]
                    run = task.runs[place] = _from_wire(frame)
                    task.deaths = 0
                    if self._stop_when is not None:
                        self._answer(place, run)
                elif kind == wire.DONE:
                    if None in task.runs and self._stop_when is None:
                        raise ValueError("done, but runs are missing")
                    task.runs = [run or Run("skipped") for run in task.runs]
                    done = True
                else:
                    raise ValueError(f"a frame of kind {kind}")
        del buffer[:at]
        return done

    def _answer(self, place: int, run: Run) -> None:
        """Tell the waiting worker whether to go on with the next input."""
        number, places = self._task.members[0]
        stop = self._stop_when(number, places.index(place), run)
        with suppress(OSError):  # a worker that just died is noticed at the next read
            self._current.socket.sendall(wire.STOP if stop else wire.GO_ON)

    def _worker_died(self) -> bool:
        """Decide what a dead worker means: False = try again, True = settled by blaming the program."""
        code = self._current.wait()
        task = self._task
        task.deaths += 1
        if task.deaths < MAX_DEATHS:
            return False
        words = self._current.last_words() or "nothing"
        self.discard()
        # Every time, this program was what ran when its supervisor died (or its compilation exceeded limits).
        if code == wire.EXIT_SUPERVISOR_DIED and not task.compiled:
            blame = Run("compile_error", stderr_tail="compiling the program exceeded its limits")
        elif code == wire.EXIT_SUPERVISOR_DIED:
            blame = Run("signal", signal=9, stderr_tail="the program killed the process that supervises it")
        elif code == wire.EXIT_INFRASTRUCTURE and task.compiled and self._another_program_works():
            why = words.rpartition("\n")[2]
            blame = Run(
                "runtime_error", stderr_tail=f"the sandbox fails with this program, and no other: {why}"
            )
        else:
            raise SandboxError(
                f"{MAX_DEATHS} sandbox workers died (last exit code {code}) over the program that begins "
                f"{task.job.source[:60]!r}; the last one said: {words}"
            )
        task.runs = [run or blame for run in task.runs]
        return True

    def _another_program_works(self) -> bool:
        """Whether an empty program can be set up on the input that the current one could not, in a worker of
        its own."""
        task = self._task
        text = task.job.inputs[task.runs.index(None)] if None in task.runs else ""
        with closing(_Slot(self._standard)) as slot, _selector() as selector:
            slot.start(_Task(Job("", (text,), limits=task.job.limits)), None)
            selector.register(slot.socket, selectors.EVENT_READ, slot)
            finished = None
            while finished is None:
                for ready in _readable(selector):
                    finished = ready.receive()
            return finished and slot.release().runs[0].ok

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


@dataclass
class _Standard:
    """What the worker that was tried has, and so every other one of its sandbox must have.

    Attributes:
        highest: highest level to try.
        missing: what the first worker could not set up; None before there was one.
    """

    highest: Level
    missing: dict[str, str] | None = None

    def start(self, flavour: str) -> _Process:
        """Start a worker that lacks nothing which the first one had.

        Raises:
            IsolationError: every one of several lacked something.
            SandboxError: they do not start.
        """
        for attempt in range(1, MAX_DEATHS + 1):
            try:
                process = _Process(flavour, self.highest)
            except _DiedAtStart:
                if attempt == MAX_DEATHS:
                    raise
                continue
            if self.missing is None:
                self.missing = process.missing
            worse = {name: why for name, why in process.missing.items() if name not in self.missing}
            if not worse:
                return process
            process.close(wait_s=0.0)
        reasons = "; ".join(f"no {name} ({why})" for name, why in worse.items())
        raise IsolationError(
            f"a sandbox worker isolates less than the one that was tried when this Sandbox started: {reasons}"
            ".  Something on this machine changed, or it ran out of what isolation takes (sysctl "
            "user.max_user_namespaces, memory): put it right, or make a new Sandbox, which tries anew"
        )


class _DiedAtStart(SandboxError):
    """A worker ended before it said hello."""


def _remedy(error: OSError) -> str:
    """What to do about a lack of something, as the end of a message; empty where it is not one."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f": raise the limit on open files (ulimit -n, now {limit}), close some, or use fewer workers"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
        return f": a worker needs some space in {tempfile.gettempdir()}; free some or set TMPDIR"
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return ": too many processes or too little memory; use fewer workers"
    return ""


class _Process:
    """A worker process, its socket, its scratch folder and the file that takes its stderr."""

    def __init__(self, flavour: str, highest: Level) -> None:
        if not sys.executable:
            raise SandboxError(
                "sys.executable is empty: the sandbox needs the path of a Python interpreter to start"
            )
        try:
            with ExitStack() as undo:
                self._start(flavour, highest, undo)
                undo.pop_all()
        except OSError as error:
            raise SandboxError(
                f"cannot start a sandbox worker with {sys.executable}: {error}{_remedy(error)}"
            ) from error
        self._wait_for_hello()

    def _start(self, flavour: str, highest: Level, undo: ExitStack) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        undo.callback(self._stderr.close)
        self._scratch = scratch.new_folder()
        undo.callback(shutil.rmtree, self._scratch, ignore_errors=True)
        self.socket, theirs = socket.socketpair()
        undo.callback(self.socket.close)
        with theirs:
            self._popen = subprocess.Popen(
                [
                    sys.executable,
                    "-s",
                    "-P",
                    _WORKER,
                    str(theirs.fileno()),
                    flavour,
                    str(self._scratch),
                    highest,
                    *_hidden_paths(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=_environment(),
                cwd=self._scratch,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def _wait_for_hello(self) -> None:
        self.socket.settimeout(START_TIMEOUT_S)
        try:
            kind, length = wire.FRAME.unpack(wire.read_exactly(self.socket, wire.FRAME.size))
            if kind != wire.HELLO or length > 1 << 16:
                raise ValueError(f"it sent frame {kind} of {length} bytes first")
            self.missing: dict[str, str] = json.loads(wire.read_exactly(self.socket, length))
        except (OSError, EOFError, ValueError) as error:
            self.kill()
            words = self.last_words()
            self.close(wait_s=0.0)
            kind = _DiedAtStart if isinstance(error, EOFError) else SandboxError
            raise kind(
                f"a sandbox worker ({sys.executable}) did not start: {error or 'time out'}; "
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


def _hidden_paths() -> list[str]:
    """Real paths that programs must not read even where they lie among what they may: hidden tests.

    Workers add this package's own folder.
    """
    names = ("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TIPPROBE_ROOT")
    return [os.path.realpath(os.environ[name]) for name in names if os.environ.get(name)]


def _environment() -> dict[str, str]:
    """All that a program gets to see of the environment: no credentials, nothing that changes its output."""
    # Interpreters of environment modules do not start without it.
    libraries = {key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ}
    return libraries | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _to_wire(job: Job, wait_for_verdict: bool) -> wire.JobFrame:
    limits = job.limits
    return wire.JobFrame(
        limits.cpu_s,
        limits.wall,
        limits.memory_mb,
        limits.output_bytes,
        job.seed,
        job.entry_point is not None,
        wait_for_verdict,
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
