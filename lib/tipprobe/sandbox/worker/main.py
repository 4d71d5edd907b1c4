"""The worker: a small pre-imported interpreter that forks one supervisor per program and one child per input.

    pool (user's process) --socket-- zygote (this file, once) -> supervisor (per program) -> child (per input)

The zygote never reads a job, so every program starts from the same heap.  The supervisor reads the job
itself, compiles once, and for each input forks a child whose stdin, stdout and stderr are files in memory.
Children are judged by their CPU clock; whatever a program started is killed, by process id, before its next
input.  Expected outputs never come here.  When the pool's end of the socket closes, everything here exits.

Run as a script by `tipprobe.sandbox.pool`:
``python -s -P main.py SOCKET_FD FLAVOUR SCRATCH HIGHEST_LEVEL [HIDDEN_PATH ...]``.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import confine
import literals
import wire

del sys.path[0]
del (
    sys.modules["confine"],
    sys.modules["literals"],
    sys.modules["wire"],
)  # a candidate's own `import wire` must not find ours

# Imported before forking because candidates import them again and again.
import _signal
import array
import atexit
import bisect
import copy
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
from collections.abc import Sequence
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
READY_FD = 4  # until the candidate's code begins: see Plan.begin
LINUX = sys.platform == "linux"
HANGUP = select.POLLRDHUP if LINUX else select.POLLHUP
LEVELS = ("process", "seccomp", "landlock", "namespaces")
SCRATCH_BYTES = 64 << 20  # what all files of one program may take together (namespaces)
# Processes and threads of a program (namespaces).  Before 5.14 Linux counts all of the user's, everywhere.
MAX_TASKS = (
    64 if not LINUX or tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (5, 14) else 4096
)
MEMORY_LOOK_S = 0.05  # between two looks at the memory of all processes of a program
STATUS = {name: number for number, name in enumerate(wire.STATUSES)}
PACKAGE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PACKAGE_NAME = os.path.basename(PACKAGE)

_type, _int, _bool, _print = type, int, bool, print  # used after a candidate may have rebound the builtins


@dataclass
class Layers:
    """What confines programs here; made once by the zygote, applied in each supervisor."""

    namespaces: bool = False
    ruleset: int | None = None  # Landlock
    program_filter: bytes | None = None  # seccomp, installed in the supervisor
    child_filter: bytes | None = None  # seccomp, added in each child where there is no pid namespace
    own_pid_namespace: int | None = None
    user: int | None = None  # programs run as this user instead of root
    baseline: int = 0  # bytes of address space an idle worker has: a program's memory limit counts from there
    folders: Sequence[str] = ()  # where programs may write; the first is their working directory
    sees_processes: bool = False  # /proc shows the processes of this worker and of its program, no others


@dataclass
class Plan:
    """What a child is to do once it has left the supervisor's stack frames."""

    code: types.CodeType
    job: wire.JobFrame
    stage: Stage
    text: str  # call jobs: the argument list

    def begin(self) -> None:
        """Tell the supervisor, for good, that from here on all is the candidate's doing."""
        os.write(READY_FD, b"r")
        os.close(READY_FD)


@dataclass
class Stage:
    """What a program finds when it starts: made once, in its supervisor."""

    streams: list[io.TextIOWrapper]  # stdin, stdout, stderr
    namespace: dict[str, object]  # of the program's module
    limits: list[tuple[int, tuple[int, int]]]  # resource, (soft, hard)
    finalise: bool  # whether objects of the program may have something to do when they die


class RefusePackage:
    """Import finder that refuses this package, whose tests and problems are none of a program's business.

    A program can take it out again; that its files cannot be read is up to the layers (from Landlock on).
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == PACKAGE_NAME:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


# --- zygote -------------------------------------------------------------------------------------------------


def start() -> tuple[socket.socket, str, Layers]:
    """Set up what isolation the kernel allows; returns what `serve` takes."""
    # Whatever number the pool's process had it under: children close those from here to MAX_FDS, and a number
    # that they use themselves would be closed together with this object.
    sock = socket.socket(fileno=fcntl.fcntl(int(sys.argv[1]), fcntl.F_DUPFD_CLOEXEC, READY_FD + 1))
    os.close(int(sys.argv[1]))
    flavour, scratch, highest, *others = sys.argv[2:]
    hidden = [path for path in (PACKAGE, *others) if not confine.holds_any(path, readable_paths())]
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # inherited from whoever started the pool
    set_soft(resource.RLIMIT_NOFILE, MAX_FDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if flavour == "numpy":
        import numpy
        import numpy.random  # noqa: F401 - seeded in each child
    lock = os.open(os.path.join(scratch, ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # says that this folder is in use, even across pid namespaces
    os.mkdir(os.path.join(scratch, "cwd"))
    os.mkdir(os.path.join(scratch, "root"))
    sys.meta_path.insert(0, RefusePackage)
    layers, missing = (
        probe_layers(scratch, highest, hidden) if LINUX else (Layers(), {"all layers": "this is not Linux"})
    )
    layers.baseline = address_space()
    if layers.namespaces:
        confine.enter_namespaces()
        launcher = os.getpid()
        pid = os.fork()
        if pid:
            sock.close()
            finish_launcher(pid, scratch)
        os.close(lock)
        confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() not in (0, launcher):
            os._exit(0)
        missing |= enter_root(layers, scratch, hidden)
        scratch = ""
    else:
        layers.folders = (os.path.join(scratch, "cwd"),)
    if layers.ruleset is not None:
        layers.ruleset = out_of_the_way(make_ruleset(layers, hidden))
    os.environ["HOME"] = os.environ["TMPDIR"] = layers.folders[0]
    os.chdir("/")
    gc.collect()
    hello = json.dumps(missing).encode()
    wire.send_all(sock, [wire.FRAME.pack(wire.HELLO, len(hello)), hello])
    return sock, scratch, layers


def serve(sock: socket.socket, scratch: str, layers: Layers) -> Plan:
    """Fork a supervisor for every job until the pool hangs up.  Returns only in a child, with its plan."""
    if LINUX:
        confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 1)
    poller = select.poll()
    poller.register(sock, select.POLLIN | HANGUP)
    while True:
        events = dict(poller.poll())
        if events[sock.fileno()] & (HANGUP | select.POLLHUP | select.POLLERR):
            leave(scratch, 0)
        zygote = os.getpid()
        if layers.namespaces:
            confine.new_pid_namespace(layers.own_pid_namespace)
        pid = os.fork()
        if pid == 0:
            return supervise_or_exit(sock, layers, zygote)
        status = wait_for_supervisor(pid, sock)
        kill_children(layers)
        if status is None:
            leave(scratch, 0)
        if os.WIFSIGNALED(status):
            leave(scratch, wire.EXIT_SUPERVISOR_DIED)
        if os.WEXITSTATUS(status) != 0:
            leave(scratch, wire.EXIT_INFRASTRUCTURE)


def leave(scratch: str, code: int) -> None:
    """Remove the scratch folder, if this process answers for one, and exit."""
    if scratch:
        remove_tree(scratch)
    os._exit(code)


def finish_launcher(zygote: int, scratch: str) -> None:
    """Outside the namespaces: wait for the zygote, tidy up, pass its exit code on."""
    status = os.waitpid(zygote, 0)[1]
    leave(scratch, os.WEXITSTATUS(status) if os.WIFEXITED(status) else wire.EXIT_INFRASTRUCTURE)


def probe_layers(scratch: str, highest: str, hidden: list[str]) -> tuple[Layers, dict[str, str]]:
    """Try each layer in a process of its own; returns what works and why the rest does not."""
    root = os.path.join(scratch, "root")

    def try_filters() -> None:
        confine.install_filter(confine.program_filter())
        confine.install_filter(confine.child_filter())

    def try_landlock() -> None:
        confine.landlock_restrict(confine.landlock_ruleset(readable_paths(), (), hidden))

    def try_namespaces() -> None:
        confine.enter_namespaces()
        inside = trial(lambda: confine.build_root(root, readable_paths(), hidden, SCRATCH_BYTES))
        if inside:
            raise OSError(inside)

    missing = {}
    for name, attempt in (
        ("seccomp", try_filters),
        ("landlock", try_landlock),
        ("namespaces", try_namespaces),
    ):
        if LEVELS.index(highest) < LEVELS.index(name):
            reason = wire.NOT_ASKED_FOR
        elif "seccomp" in missing:
            reason = "it is only used together with seccomp"
        else:
            reason = trial(attempt)
        if reason:
            missing[name] = reason
    layers = Layers(namespaces="namespaces" not in missing)
    if "landlock" not in missing:
        layers.ruleset = -1  # made later, when the file system is what programs will see
    if "seccomp" not in missing:
        layers.program_filter = confine.program_filter()
        layers.child_filter = None if layers.namespaces else confine.child_filter()
    return layers, missing


def trial(action: typing.Callable[[], object]) -> str:
    """Do something in a forked process; returns what went wrong there, or an empty text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except OSError as error:
            os.write(writer, str(error).encode()[:1000] or b"failed")
        except BaseException as error:
            os.write(writer, repr(error).encode()[:1000])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    status = os.waitpid(pid, 0)[1]
    return text or (f"ended with status {status}" if status else "")


def readable_paths() -> list[str]:
    """What programs may read and execute: system libraries and this interpreter, parents before children.

    Named folder by folder: a project or its data may well lie below ``/usr`` or an environment's prefix.
    """
    prefixes = {"/usr", "/usr/local", sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    folders = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "include", "share"]
    paths = {f"/{name}" for name in folders[:6]}
    paths |= {os.path.join(prefix, name) for prefix in prefixes - {"/"} for name in [*folders, "pyvenv.cfg"]}
    paths |= {"/nix/store", "/gnu/store", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime"}
    paths |= {os.path.dirname(os.path.realpath(os.__file__)), os.path.realpath(sys.executable)}
    paths |= {os.path.abspath(path) for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path}
    return sorted(paths - {"/"}, key=len)


def enter_root(layers: Layers, scratch: str, hidden: list[str]) -> dict[str, str]:
    """In the zygote, process 1 of its namespaces: leave nothing but what programs may see."""
    layers.folders, missing = confine.build_root(
        os.path.join(scratch, "root"), readable_paths(), hidden, SCRATCH_BYTES
    )
    layers.sees_processes = "/proc" not in missing
    layers.own_pid_namespace = confine.open_pid_namespace()
    sys.path[:] = [path for path in sys.path if os.path.exists(path)]

    def become_nobody() -> None:
        change_user(confine.NOBODY)
        for path in sys.path:
            if os.path.isdir(path):
                os.listdir(path)
        with open(os.__file__, "rb"):
            pass

    if os.getuid() == 0:
        reason = trial(become_nobody)
        if reason:
            missing["process limit"] = (
                f"programs run as root, whose number of processes is not limited: {reason}"
            )
        else:
            layers.user = confine.NOBODY
            for folder in layers.folders:
                os.chown(folder, layers.user, layers.user)
    for folder in layers.folders:
        os.chmod(folder, 0o700)
    return missing


def make_ruleset(layers: Layers, hidden: list[str]) -> int:
    """Build the Landlock rules; without namespaces no space to write to has a limit, so none is given."""
    devices = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")]
    if layers.namespaces:
        return confine.landlock_ruleset(["/"], [*layers.folders, *devices], [])
    return confine.landlock_ruleset([*readable_paths(), *layers.folders], devices, hidden)


def change_user(user: int) -> None:
    """Stop being root."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def wait_for_supervisor(pid: int, sock: socket.socket) -> int | None:
    """Return the supervisor's wait status, or None if the pool hung up first (it is then killed)."""
    with EndOfProcess(pid) as end:
        if end.wait(None, sock):
            return end.reap()[0]
        os.kill(pid, signal.SIGKILL)
        end.reap()
        return None


# --- supervisor ---------------------------------------------------------------------------------------------


def supervise_or_exit(sock: socket.socket, layers: Layers, zygote: int) -> Plan:
    """Run one job; returns only in a child."""
    log = out_of_the_way(os.dup(2))  # descriptor 2 becomes the programs'
    try:
        plan = supervise(sock, layers, zygote)
    except EOFError:
        os._exit(0)
    except BaseException:
        os.write(log, traceback.format_exc().encode(errors="backslashreplace"))
        os._exit(wire.EXIT_INFRASTRUCTURE)
    if plan is not None:
        return plan
    os._exit(0)


def supervise(sock: socket.socket, layers: Layers, zygote: int) -> Plan | None:
    """Read a job, compile it, run it on each input, send what came out.  Returns a plan in children only."""
    job = wire.read_job(sock)
    os.setsid()
    signal.pthread_sigmask(
        signal.SIG_BLOCK, signal.valid_signals()
    )  # programs may try them on their supervisor
    ready = open_descriptors(job)
    confine_supervisor(layers, zygote)
    code, complaint = compile_source(job, layers.baseline)
    stage = set_stage(job, layers)
    gc.freeze()
    wire.send_all(sock, [wire.FRAME.pack(wire.COMPILED, 0)])
    for index, data in enumerate(job.inputs):
        if code is None:
            run = wire.RunFrame(
                index, STATUS["compile_error"], False, -1, 0, 0.0, 0.0, 0.0, b"", b"", complaint.encode()
            )
        else:
            outcome = execute(index, data, code, job, layers, stage, ready, sock)
            if isinstance(outcome, Plan):
                return outcome
            run = outcome
        wire.send_all(sock, wire.pack_run(run))
        if job.wait_for_verdict and wire.read_exactly(sock, 1) == wire.STOP:
            break
    for folder in layers.folders:
        empty_folder(folder)
    wire.send_all(sock, [wire.FRAME.pack(wire.DONE, 0)])
    return None


def confine_supervisor(layers: Layers, zygote: int) -> None:
    """Give up rights once for all inputs of a program: children inherit what is left."""
    if not LINUX:
        return
    if layers.user is not None:
        change_user(layers.user)
    confine.prctl(confine.PR_SET_DUMPABLE, 0)
    confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 1)
    confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (0, zygote):
        os._exit(0)
    if layers.program_filter is not None or layers.ruleset is not None:
        confine.drop_capabilities()
    if layers.ruleset is not None:
        confine.landlock_restrict(layers.ruleset)
    if layers.program_filter is not None:
        confine.install_filter(layers.program_filter)


def open_descriptors(job: wire.JobFrame) -> int:
    """Put files without a name at the numbers that programs use; returns the end to read of READY_FD's pipe.

    Whatever had these numbers is not needed here any more.
    """
    for number in range(VALUE_FD + job.is_call):
        fd = out_of_the_way(anonymous_file())
        os.dup2(fd, number, inheritable=number < VALUE_FD)
        os.close(fd)
    if not job.is_call:
        close_quietly(VALUE_FD)
    ready, writer = map(out_of_the_way, os.pipe())
    os.dup2(writer, READY_FD, inheritable=False)
    os.close(writer)
    os.set_blocking(ready, False)
    return ready


def out_of_the_way(fd: int) -> int:
    """Move a descriptor above the numbers that programs use."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, READY_FD + 1)
    os.close(fd)
    return moved


def close_quietly(fd: int) -> None:
    """Close a descriptor that may not be open."""
    try:
        os.close(fd)
    except OSError:
        pass


def anonymous_file() -> int:
    """Return a descriptor of a file without a name: stdin and stdout of a program are regular files."""
    if LINUX:
        return os.memfd_create("stream")
    import tempfile

    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd


def set_stage(job: wire.JobFrame, layers: Layers) -> Stage:
    """Make what each child would otherwise make anew: modules, streams, random state, limits.

    A forked child pays for every page that it writes to, and most of a short program's pages were these.
    """
    os.chdir(layers.folders[0])
    wanted = [
        (resource.RLIMIT_CPU, math.ceil(job.cpu_s) + 1),
        (resource.RLIMIT_AS, layers.baseline + (job.memory_mb << 20)),
        (resource.RLIMIT_FSIZE, job.output_bytes + 1),
    ]
    if layers.namespaces:
        wanted.append((resource.RLIMIT_NPROC, MAX_TASKS))
    limits = []
    for which, value in wanted:
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        limits.append((which, (value, value)))
    seed_randomness(job.seed)
    # A function problem's module is not called ``__main__``: a demonstration under the usual guard would read
    # stdin, and graders of function problems do not run it either.
    module = types.ModuleType("candidate" if job.is_call else "__main__")
    namespace = module.__dict__
    namespace.update(__builtins__=__builtins__, __file__="candidate.py", __annotations__={})
    if job.is_call:
        sys.modules["candidate"] = module
        sys.modules["__main__"] = types.ModuleType("__main__")
    else:
        namespace["__cached__"] = None
        sys.modules["__main__"] = module
    sys.argv = ["candidate.py"]
    # Objects die with the interpreter: some print or flush when they do.
    finalise = any(word in job.source for word in (b"__del__", b"open(", b"IOWrapper", b"Buffered"))
    return Stage(open_streams(), namespace, limits, finalise)


def seed_randomness(seed: int) -> None:
    """Seed every generator that is there before the program begins."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def address_space() -> int:
    """Bytes of address space this process has now: limits count from here."""
    if not LINUX:
        return 0
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


def compile_source(job: wire.JobFrame, baseline: int) -> tuple[types.CodeType | None, str]:
    """Compile under the job's CPU and memory limits; (None, the error's text) where it is not Python."""
    cpu = resource.getrlimit(resource.RLIMIT_CPU)
    space = resource.getrlimit(resource.RLIMIT_AS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGXCPU])
    set_soft(resource.RLIMIT_CPU, math.ceil(job.cpu_s) + 1)
    set_soft(resource.RLIMIT_AS, baseline + (job.memory_mb << 20))
    try:
        return compile(job.source, "candidate.py", "exec", dont_inherit=True), ""
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError, LookupError) as error:
        return None, "".join(traceback.format_exception_only(error))
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, cpu)
        resource.setrlimit(resource.RLIMIT_AS, space)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXCPU])


def set_soft(which: int, value: int) -> None:
    """Lower a soft limit, never above the hard one."""
    _, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def execute(
    index: int,
    data: bytes,
    code: types.CodeType,
    job: wire.JobFrame,
    layers: Layers,
    stage: Stage,
    ready: int,
    sock: socket.socket,
) -> wire.RunFrame | Plan:
    """Run the program on one input.  In the child this returns a plan, in the supervisor the outcome."""
    for folder in layers.folders:
        empty_folder(folder)
    files = range(VALUE_FD + job.is_call)
    for fd in files:
        # Nobody else holds these any more: what the previous input started is dead.
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    if data and not job.is_call:
        os.pwrite(files[0], data, 0)
    supervisor = os.getpid()
    started = time.monotonic()
    pid = confine.fork() if LINUX else os.fork()
    if pid == 0:
        set_up_child(job, layers, stage, supervisor)
        return Plan(code, job, stage, data.decode("utf-8", "surrogatepass") if job.is_call else "")
    with EndOfProcess(pid) as end:
        killed = watch(end, job, started, sock, layers)
        status, usage = end.reap()
    wall = time.monotonic() - started
    if not LINUX:
        kill_group(pid)
    kill_children(layers)
    if not was_ready(ready) and killed is None:
        complaint = os.pread(files[2], STDERR_TAIL, 0).decode(errors="replace")
        raise RuntimeError(f"a child could not be set up (wait status {status}): {complaint}")
    return judge(index, job, files, killed, status, usage, wall)


def was_ready(pipe: int) -> bool:
    """Whether the child that has just ended got as far as the candidate's code; empties the pipe."""
    try:
        return bool(os.read(pipe, 64))
    except BlockingIOError:
        return False


class EndOfProcess:
    """Waits for a child to end, or for the pool to hang up."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.result: tuple[int, resource.struct_rusage] | None = None
        try:
            self.fd = os.pidfd_open(pid) if LINUX else None
        except OSError:  # older or emulated kernels
            self.fd = None

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd is not None:
            os.close(self.fd)

    def wait(self, seconds: float | None, sock: socket.socket) -> bool | None:
        """True: the process ended; False: the pool hung up; None: neither within `seconds`."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        poller = select.poll()
        poller.register(sock, HANGUP)
        if self.fd is not None:
            poller.register(self.fd, select.POLLIN)
        while True:
            left = max(0.0, end - time.monotonic())
            if self.fd is None:
                left = min(left, 0.002)
            ready = dict(poller.poll(None if left == math.inf else left * 1000 + 1))
            if self.fd in ready or (self.fd is None and self._ended()):
                return True
            if sock.fileno() in ready and ready[sock.fileno()] & (HANGUP | select.POLLHUP | select.POLLERR):
                return False
            if time.monotonic() >= end:
                return None

    def reap(self) -> tuple[int, resource.struct_rusage]:
        """Return the child's wait status and what it used, waiting for its end if need be."""
        return self.result or os.wait4(self.pid, 0)[1:]

    def _ended(self) -> bool:
        if self.result is None:
            pid, *result = os.wait4(self.pid, os.WNOHANG)
            self.result = tuple(result) if pid else None
        return self.result is not None


def watch(
    end: EndOfProcess, job: wire.JobFrame, started: float, sock: socket.socket, layers: Layers
) -> str | None:
    """Wait for a child to end; kill it at a limit and return that limit's status name, else None."""
    wall_end = started + job.wall_s
    while True:
        try:
            cpu_left = job.cpu_s - cpu_time(end.pid)
        except OSError:  # it ended between two looks
            return None
        wall_left = wall_end - time.monotonic()
        if cpu_left <= 0 or wall_left <= 0:
            os.kill(end.pid, signal.SIGKILL)
            return "cpu_limit" if cpu_left <= 0 else "wall_limit"
        # One thread cannot use CPU faster than the clock on the wall runs: no need to look earlier.
        look = min(cpu_left, wall_left)
        ended = end.wait(min(look, MEMORY_LOOK_S) if layers.sees_processes else look, sock)
        if ended:
            return None
        if ended is False:
            os.kill(end.pid, signal.SIGKILL)
            raise EOFError("the pool hung up")
        if layers.sees_processes and memory_of_several() > 2 * (job.memory_mb << 20):
            os.kill(end.pid, signal.SIGKILL)
            return "memory_limit"


def memory_of_several() -> int:
    """Bytes that the processes of a program hold together, beyond what a fork gives each; 0 for one alone.

    Pages that are shared after a fork count once for each process, hence the factor in `watch`.
    """
    own = os.readlink("/proc/self")
    pids = [name for name in os.listdir("/proc") if name.isdigit() and name not in ("1", own)]
    if len(pids) < 2:
        return 0
    at_fork = resident_memory(own)
    return sum(max(0, resident_memory(pid) - at_fork) for pid in pids)


def resident_memory(pid: str) -> int:
    """Bytes in memory that belong to a process and not to a file; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file if line.startswith(("RssAnon:", "RssShmem:"))]
    except OSError:
        return 0
    return sum(int(line[1]) for line in lines) << 10


def cpu_time(pid: int) -> float:
    """CPU seconds a child has used so far; elsewhere than on Linux 0.0, and RLIMIT_CPU alone judges."""
    if not LINUX:
        return 0.0
    return time.clock_gettime((~pid << 3) | 2)  # the kernel's encoding of "CPU clock of process pid"


def judge(
    index: int,
    job: wire.JobFrame,
    files: range,
    killed: str | None,
    status: int,
    usage: resource.struct_rusage,
    wall: float,
) -> wire.RunFrame:
    """Turn what the kernel says about a finished child into an outcome."""
    sizes = [os.fstat(fd).st_size for fd in files]
    cpu = usage.ru_utime + usage.ru_stime
    rss = usage.ru_maxrss / (1024 if LINUX else 1 << 20)
    exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
    fatal = os.WTERMSIG(status) if os.WIFSIGNALED(status) and killed is None else 0
    stderr = os.pread(files[2], STDERR_TAIL, max(0, sizes[2] - STDERR_TAIL)) if sizes[2] else b""
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
    elif exit_code or (job.is_call and not value.startswith((b"=", b"!"))):
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


def kill_children(layers: Layers) -> None:
    """Kill and reap everything below this process, which inherits orphans: repeat until no child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        if layers.namespaces:
            os.kill(-1, signal.SIGKILL)  # process 1 of a pid namespace reaches exactly what lives in it
        else:
            for child in child_processes():
                os.kill(child, signal.SIGKILL)
        os.waitpid(-1, 0)


def kill_group(leader: int) -> None:
    """Elsewhere than on Linux: kill what a program started and did not move to a session of its own."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except OSError:  # nothing of it is left
        pass


def child_processes() -> list[int]:
    """Process ids of this process's children; elsewhere than on Linux orphans do not come here."""
    if not LINUX:
        return []
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def empty_folder(path: str) -> None:
    """Remove whatever a program left in a folder, and undo what it did to the folder itself."""
    try:
        left = os.listdir(path)
        if not left and os.stat(path).st_mode & 0o7777 == 0o700:
            return
    except PermissionError:
        pass
    os.chmod(path, 0o700)
    for name in os.listdir(path):
        remove_tree(os.path.join(path, name))


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


def set_up_child(job: wire.JobFrame, layers: Layers, stage: Stage, supervisor: int) -> None:
    """Do what only the child itself can: close what is not its own, set limits."""
    try:
        # Not the wrapper in `signal`, which makes an enumeration's member of every signal that was blocked.
        _signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if LINUX and not layers.namespaces:  # in a pid namespace the kernel kills all when process 1 ends
            confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(0)
        if not LINUX:
            os.setpgid(0, 0)  # see kill_group
            seed_randomness(job.seed)  # Python's own fork has reseeded `random`
        os.closerange(READY_FD + 1, MAX_FDS)
        for which, both in stage.limits:
            try:
                resource.setrlimit(which, both)
            except ValueError:  # macOS does not take every address space limit
                if LINUX:
                    raise
        if layers.child_filter is not None:
            confine.install_filter(layers.child_filter)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
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
    code, stage = plan.code, plan.stage
    streams, namespace, finalise = stage.streams, stage.namespace, stage.finalise
    status = 0
    plan.begin()
    del plan, stage
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
    except BaseException as error:
        report(error, excepthook)
    # What the program put in the streams' place comes first: its code may need the program's names.
    status = flush_all([sys.__dict__.get("stdout"), sys.__dict__.get("stderr")], status)
    if finalise:
        try:
            namespace.clear()
            collect()
        except BaseException as error:
            report(error, excepthook)
    end(flush_all(streams[1:], status))


def flush_all(streams: list[typing.Any], status: int) -> int:
    """Flush as CPython does at exit; returns the exit code, 120 where it was 0 and a flush failed."""
    for stream in streams:
        try:
            if stream is not None and not is_closed(stream):
                stream.flush()
        except BaseException:
            status = status or 120
    return status


def is_closed(stream: typing.Any) -> bool:
    """Whether a stream says that it is closed; home-made ones may not have the attribute."""
    try:
        return stream.closed
    except AttributeError:
        return False


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
    """Define the program's functions, call one of them, write its result."""
    code, text, name = plan.code, plan.text, plan.job.entry_point.decode()
    namespace = plan.stage.namespace
    plan.begin()
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
    # Kept here: a child that frees them on its way out of `serve` pays for every page that it writes to.
    started = start()
    gc.freeze()
    plans = [serve(*started)]
    # Taken out of the list: a program can walk to this module's names, and the plan holds its other inputs.
    (run_call if plans[0].job.is_call else run_script)(plans.pop())
