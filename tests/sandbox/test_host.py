"""What must hold for the process that uses a sandbox."""

import os
import resource
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from tipprobe.errors import SandboxError
from tipprobe.sandbox import Job, Limits, Sandbox
from tipprobe.sandbox import pool as pool_module

LOOP = Job("while True: pass", ("",), limits=Limits(cpu_s=0.1))


def test_the_host_is_left_as_it_was(sandbox):
    def state():
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
        limits = [resource.getrlimit(which) for which in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE)]
        return os.getcwd(), dict(os.environ), handlers, limits, os.kill, os.fork, open, exit  # noqa: PTH109

    before = state()
    sandbox.run([LOOP, Job("print(1)", ("",)), Job("import os\nos.chdir('/')\nos.environ['X'] = '1'", ("",))])
    assert state() == before


def test_time_outs_leave_no_zombies(sandbox):
    sandbox.run([Job(f"while True: pass  # {n}", ("",), limits=Limits(cpu_s=0.02)) for n in range(5)])
    end = time.monotonic() + 10
    while zombies():  # a supervisor that has just finished is one for a moment
        assert time.monotonic() < end
        time.sleep(0.01)


def zombies():
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_works_from_threads_and_beside_busy_ones():
    stop = threading.Event()
    lock = threading.Lock()

    def busy():
        while not stop.is_set():
            with lock:
                bytearray(1000)
            stop.wait(0.001)

    def grade(number):
        with Sandbox(workers=1, min_isolation="process") as pool:
            return pool.run([Job("print(int(input()) + 1)", (str(number),))])[0][0].stdout

    others = [threading.Thread(target=busy) for _ in range(16)]
    for thread in others:
        thread.start()
    try:
        with ThreadPoolExecutor(3) as executor:
            assert list(executor.map(grade, range(3))) == [b"1\n", b"2\n", b"3\n"]
    finally:
        stop.set()
        for thread in others:
            thread.join()


def test_memory_is_counted_from_what_the_worker_already_has(sandbox):
    pytest.importorskip("numpy")
    source = "import numpy as np\nprint(int(np.ones(1000).sum()))"
    run = sandbox.run([Job(source, ("",), limits=Limits(memory_mb=32, cpu_s=10))])[0][0]
    assert (run.status, run.stdout) == ("ok", b"1000\n")


def test_a_missing_interpreter_is_no_verdict(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with (
        Sandbox(workers=1, min_isolation="process") as pool,
        pytest.raises(SandboxError, match="/nowhere/python"),
    ):
        pool.run([Job("print(1)", ("",))])


def test_an_interpreter_that_does_not_work_is_no_verdict(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        Sandbox(workers=1, min_isolation="process") as pool,
        pytest.raises(SandboxError, match="did not start"),
    ):
        pool.run([Job("print(1)", ("",))])


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("spare", [*range(6), 11])
def test_too_few_descriptors_are_no_verdict_and_leave_nothing(monkeypatch, tmp_path, spare):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unused = [fd for fd in range(500) if not is_open(fd)]
    with Sandbox(1, min_isolation="process", max_isolation="process") as pool:
        resource.setrlimit(resource.RLIMIT_NOFILE, (unused[spare], hard))
        try:
            said = pool.run([Job("print(1)", ("",))])[0][0].stdout
        except SandboxError as error:
            said = str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if spare == 11:
            assert said == b"1\n"
        else:
            assert "ulimit -n" in said
            assert unused == [fd for fd in range(500) if not is_open(fd)]
            assert not list(tmp_path.iterdir())
        assert pool.run([Job("print(2)", ("",))])[0][0].stdout == b"2\n"


def break_set_up(monkeypatch, folder, condition):
    """Let children of supervisors fail before their program begins, where `condition` holds."""
    shutil.copytree(Path(pool_module._WORKER).parent, folder / "worker")
    worker = folder / "worker" / "main.py"
    text = worker.read_text(encoding="utf-8")
    line = "        os.closerange(READY_FD + 1, MAX_FDS)\n"
    assert text.count(line) == 1
    worker.write_text(text.replace(line, f"        if {condition}: raise OSError('on purpose')\n{line}"))
    monkeypatch.setattr(pool_module, "_WORKER", str(worker))


def test_a_set_up_that_fails_with_one_program_only_is_that_programs_doing(monkeypatch, tmp_path):
    break_set_up(monkeypatch, tmp_path, "b'breaks' in job.source")
    with Sandbox(1, min_isolation="process", max_isolation="process") as pool:
        broken, fine = pool.run([Job("# breaks", ("1", "2")), Job("print(input())", ("fine",))])
    assert [run.status for run in broken] == ["runtime_error"] * 2
    assert (
        "with this program, and no other" in broken[0].stderr_tail and "on purpose" in broken[0].stderr_tail
    )
    assert fine[0].stdout == b"fine\n"


@pytest.mark.parametrize("condition", ["job.memory_mb == 77", "job.inputs[0] == b'cursed'"])
def test_a_set_up_that_fails_with_any_program_is_no_verdict(monkeypatch, tmp_path, condition):
    break_set_up(monkeypatch, tmp_path, condition)
    with (
        Sandbox(1, min_isolation="process", max_isolation="process") as pool,
        pytest.raises(SandboxError, match=r"(?s)5 sandbox workers died.*on purpose"),
    ):
        pool.run([Job("print(1)", ("cursed",), limits=Limits(memory_mb=77))])


def test_a_forked_copy_starts_workers_of_its_own(sandbox):
    sandbox.run([Job("print(1)", ("",))])
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, sandbox.run([Job("print('child')", ("",))])[0][0].stdout)
            sandbox.close()
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:  # noqa: PTH123
        assert pipe.read() == b"child\n"
    os.waitpid(pid, 0)
    assert sandbox.run([Job("print('parent')", ("",))])[0][0].stdout == b"parent\n"


def test_an_interrupted_run_can_be_followed_by_another():
    def interrupt(done, total):
        raise KeyboardInterrupt

    with Sandbox(workers=2, min_isolation="process") as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.run([Job(f"print({n})", ("",)) for n in range(6)], progress=interrupt)
        assert pool.run([Job("print('next')", ("",))])[0][0].stdout == b"next\n"


def test_works_in_a_notebook_whose_event_loop_runs():
    source = (
        "from tipprobe.sandbox import Job, Sandbox\n"
        "with Sandbox(1, min_isolation='process') as pool:\n"
        "    print(pool.run([Job('print(input())', ('plain',))])[0][0].stdout)\n"
        "    print((await pool.run_async([Job('print(input())', ('awaited',))]))[0][0].stdout)"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert notebook.cells[0].outputs[0].text == "b'plain\\n'\nb'awaited\\n'\n"
