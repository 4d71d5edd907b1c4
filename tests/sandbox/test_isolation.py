"""What programs are kept from, at each level this machine can give."""

import ast
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tipprobe.errors import SandboxError
from tipprobe.sandbox import IsolationError, IsolationReport, Job, Limits, Sandbox
from tipprobe.sandbox import pool as pool_module
from tipprobe.sandbox.isolation import LEVELS, prove, require
from tipprobe.sandbox.types import Run


def printed(pool, source, text="", **limits):
    run = pool.run([Job(source, (text,), limits=Limits(**limits))])[0][0]
    return run.stdout.decode() if run.ok else f"{run.status}: {run.stderr_tail}"


def attempt(statement):
    """A program that reports whether a statement went through."""
    return (
        "import os, resource, socket\n"
        f"try: {statement}\n"
        "except OSError: print('refused')\n"
        "else: print('done')"
    )


def at_least(pool, level):
    return LEVELS.index(pool.isolation.level) >= LEVELS.index(level)


def test_the_level_is_the_one_asked_for(at_level):
    assert at_level.isolation.level == at_level.max_isolation


def test_programs_work_alike_at_every_level(at_level):
    source = (
        "import threading, asyncio\n"
        "n = int(input())\n"
        "t = threading.Thread(target=print, args=(n,))\n"
        "t.start()\n"
        "t.join()\n"
        "print(asyncio.run(asyncio.sleep(0, n + 1)), open('/dev/stdin').read())"
    )
    assert printed(at_level, source, "7\n") == "7\n8 7\n\n"


def test_home_is_the_working_directory(at_level):
    source = "import os, pathlib, tempfile\nprint(pathlib.Path.home().samefile('.'), tempfile.gettempdir())"
    out = printed(at_level, source)
    if at_level.isolation.level == "landlock":  # nothing can be written there, and tempfile says so
        assert "FileNotFoundError" in out
    else:
        assert out.startswith("True /") and "scratch" not in out


def test_files_outside(at_level, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o644)
    reading = printed(at_level, f"print(open({str(secret)!r}).read())")
    assert ("s3cret" in reading) == (not at_least(at_level, "landlock"))
    new = tmp_path / "new"
    printed(at_level, f"open({str(new)!r}, 'w').write('x')")
    assert new.exists() == (not at_least(at_level, "landlock"))
    printed(at_level, attempt(f"os.chmod({str(secret)!r}, 0o600)"))
    assert (secret.stat().st_mode & 0o777 == 0o644) == at_least(at_level, "seccomp")


def test_network(at_level):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        out = printed(at_level, attempt(f"socket.create_connection(('127.0.0.1', {port}), 5)"))
    assert (out == "refused\n") == at_least(at_level, "seccomp")


@pytest.mark.parametrize(
    "statement",
    [
        f"os.kill({os.getpid()}, 0)",
        f"resource.prlimit({os.getpid()}, resource.RLIMIT_CORE)",
        f"os.sched_setaffinity({os.getpid()}, {{0}})",
    ],
)
def test_other_processes(at_level, statement):
    if at_least(at_level, "seccomp"):
        assert printed(at_level, attempt(statement)) == "refused\n"


def test_the_supervisor_outlives_what_its_program_tries(at_level):
    if not at_least(at_level, "seccomp"):
        pytest.skip("a plain process can kill its parent")
    source = "import os, signal\nfor n in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT):\n"
    source += "    try: os.kill(os.getppid(), n)\n    except OSError: pass\nprint('alive')"
    runs = at_level.run([Job(source, ("1", "2"))])[0]
    assert [run.stdout for run in runs] == [b"alive\n"] * 2


PRETENDS_NOT_TO_HAVE_BEGUN = """
import gc, mmap, os, sys
found, frame = [], sys._getframe()
while frame:
    found += [*frame.f_globals.values(), *frame.f_locals.values()]
    frame = frame.f_back
for thing in [*found, *gc.get_objects()]:
    ready = thing if isinstance(thing, mmap.mmap) else getattr(thing, "ready", None)
    try: ready[0] = 0
    except (TypeError, ValueError): pass
for fd in range(3, 100):
    for act in (lambda: os.read(fd, 64), lambda: os.write(fd, b"x"), lambda: os.close(fd)):
        try: act()
        except OSError: pass
os._exit(0)
"""


def test_a_program_cannot_make_the_machinery_look_broken(at_level):
    jobs = [Job(PRETENDS_NOT_TO_HAVE_BEGUN, ("1", "2")), Job("print(input())", ("fine",))]
    jobs += [Job("def f(n):\n    " + PRETENDS_NOT_TO_HAVE_BEGUN.replace("\n", "\n    "), ("1",), "f")]
    hostile, fine, call = at_level.run(jobs)
    assert [run.status for run in hostile] == ["ok", "ok"]
    assert fine[0].stdout == b"fine\n"
    assert call[0].status == "runtime_error"


def test_a_program_finds_neither_its_other_inputs_nor_its_plan(at_level):
    source = (
        "import gc, sys\n"
        "def types(things): return {type(thing).__name__ for thing in things}\n"
        "print(sorted(types(gc.get_objects()) & {'Plan', 'JobFrame'}))\n"
        "print(sys._getframe().f_back.f_globals['plans'])\n"
    )
    assert printed(at_level, source) == "[]\n[]\n"


def test_a_program_holds_no_descriptor_but_its_streams(at_level):
    source = (
        "import os\n"
        "def is_open(fd):\n"
        "    try: os.fstat(fd)\n"
        "    except OSError: return False\n"
        "    return True\n"
        "print([fd for fd in range(1000) if is_open(fd)])"
    )
    with ExitStack() as stack:
        for _ in range(100):  # the worker's socket gets a high number
            stack.enter_context(Path(os.devnull).open())
        level = at_level.max_isolation
        with Sandbox(1, min_isolation=level, max_isolation=level) as high:
            assert printed(high, source) == "[0, 1, 2]\n"


def test_processes_are_counted_with_namespaces_and_refused_without(at_level):
    out = printed(
        at_level, "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', '']).returncode)"
    )
    if at_level.isolation.level in ("seccomp", "landlock"):
        assert "PermissionError" in out
    else:
        assert out == "0\n"


def test_nothing_a_program_started_is_left(at_level):
    if at_level.isolation.level != "namespaces":
        pytest.skip("new processes are refused, or end with the run as the pool's own test shows")
    mark = f"left-by-test-{os.getpid()}"
    source = (
        "import os, sys, time\n"
        "for _ in range(5):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        f"        os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)', {mark!r}])\n"
        "time.sleep(0.2)\nprint('main done')"
    )
    assert printed(at_level, source) == "main done\n"
    assert not [process for process in psutil.process_iter() if mark in command_line(process)]


@pytest.mark.parametrize(("megabytes", "status"), [(5, "ok"), (45, "memory_limit")])
def test_processes_of_one_program_share_a_limit_of_memory(at_level, megabytes, status):
    if at_level.isolation.level != "namespaces":
        pytest.skip("one process per program, or no limit on their number")
    source = (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        f"        kept = bytearray(b'x') * ({megabytes} << 20)\n"
        "        time.sleep(1)\n"
        "        os._exit(0)\n"
        "for _ in range(4): os.wait()\n"
    )
    limits = Limits(cpu_s=10.0, wall_s=60.0, memory_mb=64)
    assert at_level.run([Job(source, ("",), limits=limits)])[0][0].status == status


def command_line(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_scratch_space_is_private_and_limited_with_namespaces(at_level):
    if at_level.isolation.level != "namespaces":
        pytest.skip("only namespaces have scratch space with a limit")
    # Where the interpreter lies under /tmp, the folders on the way to it are there, and all is read-only.
    ours = {Path(path).parts[2] for path in (sys.prefix, __file__) if Path(path).is_relative_to("/tmp")}
    folders = ["/dev/shm", "."] if ours else ["/tmp", "/dev/shm", "."]
    source = (
        "import os\n"
        "print(sorted(os.listdir('/tmp') + os.listdir('/dev/shm') + os.listdir('.')))\n"
        f"for folder in {folders}:\n"
        "    os.makedirs(folder + '/deep/er')\n    os.chmod(folder + '/deep', 0)\n"
        "try:\n"
        "    for n in range(200): open(f'f{n}', 'wb').write(bytes(1 << 20))\n"
        "except OSError as error: print(error.errno)\n"
    )
    runs = at_level.run([Job(source, ("1", "2"), limits=Limits(cpu_s=10.0, output_bytes=2 << 20))])[0]
    for run in runs:
        names, error_number = run.stdout.decode().splitlines()
        assert set(ast.literal_eval(names)) <= ours
        assert error_number == "28"
    assert not Path("/tmp/deep").exists()


def test_too_little_isolation_is_refused_with_a_remedy():
    with Sandbox(1, max_isolation="process") as pool, pytest.raises(IsolationError) as caught:
        pool.run([Job("print(1)", ("",))])
    assert "min_isolation='process'" in str(caught.value)
    assert "Linux 5.13" in str(caught.value)


def test_a_level_is_only_claimed_for_what_was_refused():
    refused = (
        '["modes", "connect", "signals", "limits", "trace", "namespaces", "write"]'  # reading went through
    )
    report = prove(lambda job: Run("ok", stdout=refused.encode()), missing={})
    assert report.level == "seccomp"
    assert "reading files outside" in report.missing["landlock"]
    with pytest.raises(IsolationError, match="seccomp"):
        require(report, "landlock")
    require(report, "seccomp")


class Weaker:
    """Lets the workers started under some numbers, counted from 1, lack a layer."""

    def __init__(self, monkeypatch, numbers):
        self.numbers, self.started = numbers, []
        original = pool_module._Process._wait_for_hello

        def wait(process):
            original(process)
            self.started.append(process)
            if len(self.started) in self.numbers:
                process.missing = process.missing | {"landlock": "out of memory"}

        monkeypatch.setattr(pool_module._Process, "_wait_for_hello", wait)


SLEEPERS = [Job(f"import time\ntime.sleep(0.1)\nprint({n})", ("",)) for n in range(4)]


def needs_landlock(pool):
    """Skip where the layer that these tests take away is missing anyhow."""
    if "landlock" in pool.isolation.missing:
        pytest.skip(str(pool.isolation))


def test_a_worker_that_lacks_a_layer_is_replaced(monkeypatch, sandbox):
    needs_landlock(sandbox)
    weaker = Weaker(monkeypatch, {2, 3})
    with Sandbox(2, min_isolation="process") as workers:
        results = workers.run(SLEEPERS)
        assert [runs[0].stdout for runs in results] == [b"%d\n" % n for n in range(4)]
        assert len(weaker.started) == 4
        assert [process.socket.fileno() < 0 for process in weaker.started] == [False, True, True, False]


@pytest.mark.parametrize("case", ["second worker", "numpy", "restart"])
def test_every_worker_must_have_what_was_proven(monkeypatch, sandbox, case):
    needs_landlock(sandbox)
    weaker = Weaker(monkeypatch, range(2, 100))
    with Sandbox(2, min_isolation="process") as workers:
        assert "landlock" not in workers.isolation.missing
        jobs = SLEEPERS if case == "second worker" else SLEEPERS[:1]
        if case == "numpy":
            pytest.importorskip("numpy")
            jobs = [Job("import numpy\nprint(numpy.ones(1))", ("",))]
        if case == "restart":
            assert workers.run(jobs)[0][0].ok
            psutil.Process(weaker.started[0]._popen.pid).kill()
        with pytest.raises(IsolationError, match="no landlock \\(out of memory\\)"):
            workers.run(jobs)
        assert all(process.socket.fileno() < 0 for process in weaker.started)


def test_a_failing_self_test_is_an_infrastructure_fault():
    with pytest.raises(SandboxError, match="self-test"):
        prove(lambda job: Run("runtime_error", stderr_tail="boom"), missing={})


def test_report_reads_well():
    text = str(IsolationReport("seccomp", ("network connections",), {"landlock": "old kernel"}))
    assert (
        text == "isolation level seccomp; refused when tried: network connections; no landlock (old kernel)"
    )


def test_unknown_levels_are_refused():
    with pytest.raises(SandboxError, match="namespaces"):
        Sandbox(1, min_isolation="docker")


def test_the_environment_names_the_lowest_level(monkeypatch):
    monkeypatch.setenv("TIPPROBE_MIN_ISOLATION", "process")
    with Sandbox(1, max_isolation="process") as pool:
        assert pool.run([Job("print(1)", ("",))])[0][0].stdout == b"1\n"
    monkeypatch.setenv("TIPPROBE_MIN_ISOLATION", "none")
    with pytest.raises(SandboxError, match="TIPPROBE_MIN_ISOLATION"):
        Sandbox(1)
