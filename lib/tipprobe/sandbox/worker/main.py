"""The worker: a small pre-imported interpreter that forks one supervisor per program and one child per input.

    pool (user's process) --socket-- zygote (this file, once) -> supervisor (per program) -> child (per input)

The zygote never reads a job, so every program starts from the same heap.  The supervisor reads the job
itself, compiles once, and for each input forks a child whose stdin, stdout and stderr are files in memory.
Children are judged by their CPU clock; whatever a program started is killed, by process id, before its next
input.  Expected outputs never come here.  When the pool's end of the socket closes, everything here exits.

Run as a script by `tipprobe.sandbox.pool`: ``python -s -P main.py SOCKET_FD FLAVOUR SCRATCH``.
"""

# Imports follow the path set above them; pathlib and contextlib are slow to import and open to rebinding.
# ruff: noqa: E402, PTH100, PTH101, PTH102, PTH104, PTH106, PTH108, PTH116, PTH118, PTH120, PTH123, PTH208, SIM105
from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import literals
import wire

del sys.path[0]
del sys.modules["literals"], sys.modules["wire"]  # a candidate's own `import wire` must not find ours

# Imported before forking because candidates import them again and again.
import array
import atexit
import bisect
import copy
import ctypes
import datetime
import errno
import fcntl
import functools
import gc
import heapq
import io
import itertools
import json
import math
import mmap
import operator
import random
import re
import resource
import select
import signal
import socket
import stat
import string
import threading
import time
import traceback
import types
import typing
from dataclasses import dataclass

PREIMPORTED = (
    array,
    bisect,
    copy,
    datetime,
    functools,
    heapq,
    itertools,
    json,
    math,
    operator,
    re,
    string,
    typing,
)

STDERR_TAIL = 8_000  # bytes sent back; the pool keeps the last 2,000 characters
MAX_FDS = 64
FRAMES_BELOW = (
    2 if sys.version_info >= (3, 12) else 3
)  # of this file, under a program's own (3.11 counts exec)
VALUE_FD = 3  # call jobs: the encoded result goes here
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE = 1, 36, 4
STATUS = {name: number for number, name in enumerate(wire.STATUSES)}

libc = ctypes.CDLL(None, use_errno=True)
_type, _int, _bool, _print = type, int, bool, print  # used after a candidate may have rebound the builtins


@dataclass
class Plan:
    """What a child is to do once it has left the supervisor's stack frames."""

    code: types.CodeType
    job: wire.JobFrame
    text: str  # call jobs: the argument list
    ready: mmap.mmap  # its first byte becomes 1 when set-up is over and the candidate's code begins


# --- zygote -----------------------------------------------------------------------------------------------


def zygote() -> Plan:
    """Serve jobs until the pool hangs up.  Returns only in a child, with its plan."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    scratch = sys.argv[3]
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # inherited from whoever started the pool
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MAX_FDS, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if sys.argv[2] == "numpy":
        import numpy
        import numpy.random  # noqa: F401  (seeded in each child)
    lock = os.open(os.path.join(scratch, ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)  # says that this folder is in use, even across pid namespaces
    gc.collect()
    gc.freeze()
    wire.send_all(sock, [wire.FRAME.pack(wire.HELLO, 0)])
    poller = select.poll()
    poller.register(sock, select.POLLIN | select.POLLRDHUP)
    while True:
        events = dict(poller.poll())
        if events[sock.fileno()] & (select.POLLRDHUP | select.POLLHUP | select.POLLERR):
            leave(scratch, 0)
        zygote_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != zygote_pid:
                os._exit(0)
            return supervise_or_exit(sock, os.path.join(scratch, "cwd"))
        status = wait_for_supervisor(pid, sock)
        kill_children()
        if status is None:
            leave(scratch, 0)
        if os.WIFSIGNALED(status):
            leave(scratch, wire.EXIT_SUPERVISOR_DIED)
        if os.WEXITSTATUS(status) != 0:
            leave(scratch, wire.EXIT_INFRASTRUCTURE)


def leave(scratch: str, code: int) -> None:
    """Remove the scratch folder and exit."""
    remove_tree(scratch)
    os._exit(code)


def wait_for_supervisor(pid: int, sock: socket.socket) -> int | None:
    """Return the supervisor's wait status, or None if the pool hung up first (the supervisor is then
    killed)."""
    fd = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.register(sock, select.POLLRDHUP)
    hung_up = False
    while True:
        ready = dict(poller.poll())
        if fd in ready:
            break
        if not hung_up:
            hung_up = True
            poller.unregister(sock)
            os.kill(pid, signal.SIGKILL)
    os.close(fd)
    status = os.waitpid(pid, 0)[1]
    return None if hung_up else status


# --- supervisor -------------------------------------------------------------------------------------------


def supervise_or_exit(sock: socket.socket, cwd: str) -> Plan:
    """Run one job; returns only in a child."""
    try:
        plan = supervise(sock, cwd)
    except EOFError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(wire.EXIT_INFRASTRUCTURE)
    if plan is not None:
        return plan
    os._exit(0)


def supervise(sock: socket.socket, cwd: str) -> Plan | None:
    """Read a job, compile it, run it on each input, send what came out.  A plan is returned in children
    only."""
    job = wire.read_job(sock)
    os.setsid()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    baseline = address_space()
    code, complaint = compile_source(job, baseline)
    wire.send_all(sock, [wire.FRAME.pack(wire.COMPILED, 0)])
    ready = mmap.mmap(-1, mmap.PAGESIZE)
    for index, data in enumerate(job.inputs):
        if code is None:
            run = wire.RunFrame(
                index, STATUS["compile_error"], False, -1, 0, 0.0, 0.0, 0.0, b"", b"", complaint.encode()
            )
        else:
            outcome = execute(index, data, code, job, cwd, ready, baseline, sock)
            if isinstance(outcome, Plan):
                return outcome
            run = outcome
        wire.send_all(sock, wire.pack_run(run))
        if job.wait_for_verdict and wire.read_exactly(sock, 1) == wire.STOP:
            break
    wire.send_all(sock, [wire.FRAME.pack(wire.DONE, 0)])
    return None


def address_space() -> int:
    """Bytes of address space this process has now: limits count from here."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


def compile_source(job: wire.JobFrame, baseline: int) -> tuple[types.CodeType | None, str]:
    """Compile under the job's CPU and memory limits; returns (None, the error's text) where it is not
    Python."""
    cpu = resource.getrlimit(resource.RLIMIT_CPU)
    space = resource.getrlimit(resource.RLIMIT_AS)
    set_soft(resource.RLIMIT_CPU, math.ceil(job.cpu_s) + 1)
    set_soft(resource.RLIMIT_AS, baseline + (job.memory_mb << 20))
    try:
        return compile(job.source, "candidate.py", "exec", dont_inherit=True), ""
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError, LookupError) as error:
        return None, "".join(traceback.format_exception_only(error))
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, cpu)
        resource.setrlimit(resource.RLIMIT_AS, space)


def set_soft(which: int, value: int) -> None:
    """Lower a soft limit, never above the hard one."""
    _, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def execute(
    index: int,
    data: bytes,
    code: types.CodeType,
    job: wire.JobFrame,
    cwd: str,
    ready: mmap.mmap,
    baseline: int,
    sock: socket.socket,
) -> wire.RunFrame | Plan:
    """Run the program on one input.  In the child this returns a plan, in the supervisor the outcome."""
    fresh_directory(cwd)
    ready[0] = 0
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    if job.is_call:
        files.append(os.memfd_create("value"))
    elif data:
        os.pwrite(files[0], data, 0)
    supervisor = os.getpid()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        set_up_child(files, job, cwd, baseline, supervisor)
        return Plan(code, job, data.decode("utf-8", "surrogatepass") if job.is_call else "", ready)
    try:
        killed = watch(pid, job, started, sock)
        _, status, usage = os.wait4(pid, 0)
        wall = time.monotonic() - started
        kill_children()
        if not ready[0] and killed is None:
            raise RuntimeError(f"a child could not be set up (wait status {status})")
        return judge(index, job, files, killed, status, usage, wall)
    finally:
        for fd in files:
            os.close(fd)


def watch(pid: int, job: wire.JobFrame, started: float, sock: socket.socket) -> str | None:
    """Wait for a child to end; kill it at a limit and return that limit's status name, else None."""
    wall_end = started + job.wall_s
    clock = (~pid << 3) | 2  # the kernel's encoding of "CPU time of process pid"
    fd = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        poller.register(sock, select.POLLRDHUP)
        while True:
            try:
                cpu_left = job.cpu_s - time.clock_gettime(clock)
            except OSError:  # it ended between two looks
                return None
            wall_left = wall_end - time.monotonic()
            if cpu_left <= 0 or wall_left <= 0:
                os.kill(pid, signal.SIGKILL)
                return "cpu_limit" if cpu_left <= 0 else "wall_limit"
            # One thread cannot use CPU faster than the clock on the wall runs: no need to look earlier.
            for ready_fd, _ in poller.poll(min(cpu_left, wall_left) * 1000 + 1):
                if ready_fd == fd:
                    return None
                os.kill(pid, signal.SIGKILL)
                raise EOFError("the pool hung up")
    finally:
        os.close(fd)


def judge(
    index: int,
    job: wire.JobFrame,
    files: list[int],
    killed: str | None,
    status: int,
    usage: resource.struct_rusage,
    wall: float,
) -> wire.RunFrame:
    """Turn what the kernel says about a finished child into an outcome."""
    sizes = [os.fstat(fd).st_size for fd in files]
    cpu = usage.ru_utime + usage.ru_stime
    rss = usage.ru_maxrss / 1024
    exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
    fatal = os.WTERMSIG(status) if os.WIFSIGNALED(status) and killed is None else 0
    stderr = os.pread(files[2], STDERR_TAIL, max(0, sizes[2] - STDERR_TAIL))
    value = os.pread(files[3], job.output_bytes + 1, 0) if job.is_call else b""
    truncated = max(sizes[1:]) > job.output_bytes
    if killed is not None:
        name = killed
    elif fatal == signal.SIGXCPU or cpu > job.cpu_s:
        name = "cpu_limit"
    elif truncated or fatal == signal.SIGXFSZ:
        name = "output_limit"
    elif fatal:
        # An allocation that fails inside C code ends in abort or a segmentation fault.
        name = (
            "memory_limit" if rss > 0.9 * job.memory_mb or b"memory allocation failed" in stderr else "signal"
        )
    elif exit_code and ran_out_of_memory(stderr):
        name = "memory_limit"
    elif exit_code or (job.is_call and not value):
        name = "runtime_error"
    else:
        name = "bad_value" if value.startswith(b"!") else "ok"
    stdout = os.pread(files[1], min(sizes[1], job.output_bytes), 0) if sizes[1] else b""
    if value.startswith(b"!"):
        stderr += b"\nthe function returned " + value[1:200]
    value = value[1:] if name == "ok" else b""
    return wire.RunFrame(
        index, STATUS[name], truncated, exit_code, fatal, cpu, wall, rss, stdout, value, stderr[-STDERR_TAIL:]
    )


def ran_out_of_memory(stderr: bytes) -> bool:
    """Whether a traceback ends in MemoryError or in the operating system's ENOMEM."""
    last = stderr.rstrip().rpartition(b"\n")[2]
    return last.startswith((b"MemoryError", b"numpy._core._exceptions._ArrayMemoryError")) or (
        f"[Errno {errno.ENOMEM}]".encode() in last
    )


def kill_children() -> None:
    """Kill and reap every child of this process; as a subreaper it inherits orphans, so repeat until none
    is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
            for child in children:
                os.kill(child, signal.SIGKILL)
            if children:
                os.waitpid(children[0], 0)


def fresh_directory(path: str) -> None:
    """Make `path` an empty directory."""
    try:
        if not os.listdir(path) and stat.S_IMODE(os.stat(path).st_mode) == 0o700:
            return
    except OSError:
        pass
    remove_tree(path)
    os.mkdir(path, 0o700)


def remove_tree(path: str) -> None:
    """Remove a file or folder whatever its modes and however deep, following no links."""
    stack = [path]
    while stack:
        top = stack[-1]
        try:
            if stat.S_ISDIR(os.lstat(top).st_mode):
                os.chmod(top, 0o700)
                inside = os.listdir(top)
                if inside:
                    # Deep trees outgrow the longest path there may be: such a folder is lifted to the root.
                    for name in inside:
                        entry = os.path.join(top, name)
                        if len(entry) > 2000:
                            lifted = os.path.join(path, f"lifted-{time.monotonic_ns()}")
                            os.rename(entry, lifted)
                            entry = lifted
                            stack.insert(1, entry)
                        else:
                            stack.append(entry)
                    continue
                os.rmdir(top)
            else:
                os.unlink(top)
        except FileNotFoundError:
            pass
        stack.pop()


# --- child ------------------------------------------------------------------------------------------------


def set_up_child(files: list[int], job: wire.JobFrame, cwd: str, baseline: int, supervisor: int) -> None:
    """Put files in place of the standard streams, close everything else, set limits."""
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(0)
        os.chdir(cwd)
        for number, fd in enumerate(files):
            os.dup2(fd, number)
        os.closerange(len(files), MAX_FDS)
        cpu = math.ceil(job.cpu_s) + 1
        limits = (
            (resource.RLIMIT_CPU, cpu),
            (resource.RLIMIT_AS, baseline + (job.memory_mb << 20)),
            (resource.RLIMIT_FSIZE, job.output_bytes + 1),
        )
        for which, value in limits:
            _, hard = resource.getrlimit(which)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(which, (value, value))
        random.seed(job.seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(job.seed % 2**32)
    except BaseException:
        traceback.print_exc()
        os._exit(wire.EXIT_INFRASTRUCTURE)


def open_streams() -> list[io.TextIOWrapper]:
    """Give this process its own standard streams, as a freshly started interpreter has them in a UTF-8
    locale."""
    streams = []
    for number, name, mode, buffered, errors in (
        (0, "stdin", "r", io.BufferedReader, "strict"),
        (1, "stdout", "w", io.BufferedWriter, "strict"),
        (2, "stderr", "w", io.BufferedWriter, "backslashreplace"),
    ):
        raw = io.FileIO(number, mode, closefd=False)
        raw.name = f"<{name}>"
        stream = io.TextIOWrapper(
            buffered(raw), encoding="utf-8", errors=errors, newline="\n", line_buffering=number == 2
        )
        stream.mode = mode
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
        streams.append(stream)
    return streams


def run_script(
    plan: Plan,
    # Bound before the program can rebind any of them.
    run=exec,
    end=os._exit,
    excepthook=sys.excepthook,
    finish_threads=threading._shutdown,
    run_exit_functions=atexit._run_exitfuncs,
    collect=gc.collect,
) -> None:
    """Run the source as ``__main__`` and end as the interpreter would end, without its slow tear-down."""
    streams = open_streams()
    module = types.ModuleType("__main__")
    namespace = module.__dict__
    namespace.update(__builtins__=__builtins__, __file__="candidate.py", __cached__=None, __annotations__={})
    sys.modules["__main__"] = module
    sys.argv = ["candidate.py"]
    # Objects die with the interpreter: some print or flush when they do.
    finalise = any(word in plan.job.source for word in (b"__del__", b"open(", b"IOWrapper", b"Buffered"))
    code = plan.code
    status = 0
    plan.ready[0] = 1
    del plan, module
    sys.setrecursionlimit(sys.getrecursionlimit() + FRAMES_BELOW)
    try:
        run(code, namespace)
    except SystemExit as error:
        status = exit_status(error)
    except BaseException as error:
        status = 1
        report(error, excepthook)
    try:
        finish_threads()
        run_exit_functions()
        if finalise:
            namespace.clear()
            collect()
    except BaseException as error:
        report(error, excepthook)
    for stream in (sys.stdout, sys.stderr, *streams[1:]):  # the program may have put others in their place
        try:
            flush(stream)
        except BaseException:
            status = status or 120  # what CPython does when the last flush fails
    end(status)


def flush(stream: typing.Any) -> None:
    """Flush as CPython does at exit: None and closed streams are left alone, `closed` may be missing."""
    try:
        if stream is None or stream.closed:
            return
    except AttributeError:
        pass
    stream.flush()


def exit_status(error: SystemExit) -> int:
    """The exit code that ``raise SystemExit(code)`` stands for."""
    if error.code is None:
        return 0
    if _type(error.code) in (_int, _bool):
        return error.code & 0xFF
    try:
        _print(error.code, file=sys.stderr)
    except BaseException:
        pass
    return 1


def report(error: BaseException, default_hook: object) -> None:
    """Print an uncaught exception the way the interpreter does, without this file's frames."""
    try:
        sys.stdout.flush()
    except BaseException:
        pass
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    try:
        error.__traceback__ = trace
        sys.excepthook(_type(error), error, trace)
    except BaseException:
        default_hook(_type(error), error, trace)


def run_call(
    plan: Plan,
    run=exec,
    end=os._exit,
    encode=literals.encode_value,
    refused=literals.NotPlain,
    excepthook=sys.excepthook,
    pwrite=os.pwrite,
    truncate=os.ftruncate,
    report=report,
) -> None:
    """Define the program's functions, call one of them, write its result.

    The module is not called ``__main__``: a demonstration under the usual guard would read stdin, and
    graders of function problems do not run it either.
    """
    open_streams()
    module = types.ModuleType("candidate")
    namespace = module.__dict__
    namespace.update(__builtins__=__builtins__, __file__="candidate.py", __annotations__={})
    sys.modules["candidate"] = module
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = ["candidate.py"]
    code, text, name = plan.code, plan.text, plan.job.entry_point.decode()
    plan.ready[0] = 1
    del plan
    status = 1
    try:
        args, kwargs = literals.decode_arguments(text)
        sys.setrecursionlimit(sys.getrecursionlimit() + FRAMES_BELOW)
        run(code, namespace)
        result = entry_point(namespace, name)(*args, **kwargs)
        try:
            answer = b"=" + encode(result).encode()
        except refused as error:
            answer = b"!" + str(error).encode()
        truncate(VALUE_FD, 0)
        written = 0
        while written < len(answer):
            written += pwrite(VALUE_FD, answer[written:], written)
        status = 0
    except BaseException as error:
        report(error, excepthook)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass
    end(status)


def entry_point(namespace: dict[str, object], name: str) -> typing.Callable[..., object]:
    """Find the function: a module-level name, ``Class.method``, or a method of a class called Solution."""
    head, _, tail = name.partition(".")
    if head in namespace:
        found = namespace[head]
        return getattr(found(), tail) if tail else found
    if "Solution" in namespace and hasattr(namespace["Solution"], name):
        return getattr(namespace["Solution"](), name)
    raise NameError(f"the program defines no function {name!r}")


if __name__ == "__main__":
    task = zygote()
    if task.job.is_call:
        run_call(task)
    else:
        run_script(task)
