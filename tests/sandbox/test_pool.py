"""Programs run in workers and come back with the right status, whatever they do."""

import asyncio
import pickle
import subprocess
import sys

import pytest

from tipprobe.errors import SandboxError
from tipprobe.sandbox import Job, Limits, Run, Sandbox, first_failure, first_time_limit
from tipprobe.sandbox.pool import _Task


def run_one(sandbox, source, text="", **limits):
    (runs,) = sandbox.run([Job(source, (text,), limits=Limits(**limits))])
    return runs[0]


def call_one(sandbox, source, arguments):
    (runs,) = sandbox.run([Job(source, (arguments,), entry_point="solve")])
    return runs[0]


def test_a_script_reads_each_input_and_prints(sandbox):
    job = Job("n = int(input())\nprint(n * n)", ("3", "12\n", "-1"))
    assert [run.stdout for run in sandbox.run([job])[0]] == [b"9\n", b"144\n", b"1\n"]


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("print(", "compile_error"),
        ("print(1)\n\0", "compile_error"),
        ("print('\ud83d')", "compile_error"),
        ("1 / 0", "runtime_error"),
        ("print(1)\nraise SystemExit(2)", "runtime_error"),
        ("raise SystemExit", "ok"),
        ("import os\nos.kill(os.getpid(), 11)", "signal"),
        ("while True: pass", "cpu_limit"),
        ("import time\ntime.sleep(60)", "wall_limit"),
        ("keep = []\nwhile True: keep.append(bytearray(1 << 20))", "memory_limit"),
        ("while True: print('x' * 500)", "output_limit"),
        ("import sys\nwhile True: sys.stderr.write('x' * 500)", "output_limit"),
    ],
)
def test_status(sandbox, source, status):
    wall_s = 1.0 if status == "wall_limit" else 60.0  # a busy machine must not turn one into the other
    run = run_one(sandbox, source, cpu_s=0.3, wall_s=wall_s, memory_mb=64, output_bytes=10_000)
    assert run.status == status
    assert len(run.stdout) <= 10_000


def test_output_of_exactly_the_limit_is_whole(sandbox):
    run = run_one(sandbox, "print('y' * 999)", output_bytes=1000)
    assert (run.status, len(run.stdout), run.stdout_truncated) == ("ok", 1000, False)


def test_a_call_returns_a_value_and_its_prints_are_ignored(sandbox):
    run = call_one(
        sandbox, "def solve(a, *, b=0):\n    print('noise')\n    return {b: (a, {2, 1})}", "[1], b=3"
    )
    assert run.value == "{3: ([1], {1, 2})}"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return object()", "bad_value"),
        ("class Sly(int):\n        __eq__ = lambda self, other: True\n    return Sly(1)", "bad_value"),
        ("return (n for n in [x])", "bad_value"),
        ("import sys\n    sys.exit(0)", "runtime_error"),
        ("import os\n    os._exit(0)", "runtime_error"),
        ("return x.missing", "runtime_error"),
        ("return x", "ok"),
    ],
)
def test_call_status(sandbox, body, status):
    assert call_one(sandbox, f"def solve(x):\n    {body}", "1").status == status


def test_a_call_does_not_run_the_main_guard(sandbox):
    source = "def solve(x):\n    return x + 1\nif __name__ == '__main__':\n    print(solve(int(input())))"
    assert call_one(sandbox, source, "1").value == "2"


def test_a_method_of_a_solution_class_is_found(sandbox):
    assert call_one(sandbox, "class Solution:\n    def solve(self, x):\n        return -x", "4").value == "-4"


def test_nothing_survives_from_one_input_to_the_next(sandbox):
    source = (
        "import builtins, os\n"
        "print(os.listdir('.'), vars(builtins).get('mark'))\n"
        "builtins.mark = 1\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('left')\n"
    )
    runs = sandbox.run([Job(source, ("1", "2"))])[0]
    assert {run.stdout for run in runs} == {b"[] None\n"}


def test_the_environment_is_scrubbed(sandbox, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hunter2")
    with Sandbox(workers=1, min_isolation="process") as pool:
        run = run_one(pool, "import os\nprint('hunter2' in repr(os.environ), os.environ['TZ'])")
    assert run.stdout == b"False UTC\n"


def test_runs_repeat_exactly_under_a_seed(sandbox):
    source = "import random\nprint(random.random(), hash('text'), list({'p', 'q', 'r'}))"
    first, again, other = (sandbox.run([Job(source, ("",), seed=seed)])[0][0].stdout for seed in (1, 1, 2))
    assert first == again
    assert first.split()[0] != other.split()[0]
    assert first.split()[1:] == other.split()[1:]


def test_standard_streams_are_regular_files(sandbox):
    source = "import os, sys\nprint(os.fstat(0).st_size, open(0).read().split(), sys.stdin.fileno())"
    assert run_one(sandbox, source, "4 5\n").stdout == b"4 ['4', '5'] 0\n"


def test_what_happens_at_exit_happens(sandbox):
    source = (
        "import atexit, io, sys\n"
        "class Dying:\n    def __del__(self): print('gone')\n"
        "kept = Dying()\n"
        "atexit.register(print, 'bye')\n"
        "real, sys.stdout = sys.stdout, io.StringIO()\n"
        "print('caught')\n"
        "real.write(sys.stdout.getvalue())\n"
        "sys.stdout = real\n"
        "unflushed = open(1, 'w', closefd=False)\nunflushed.write('late ')\n"
    )
    assert sorted(run_one(sandbox, source).stdout.split()) == [b"bye", b"caught", b"gone", b"late"]


def test_output_buffered_by_the_program_itself_is_flushed_at_exit(sandbox):
    source = (
        "import os, sys, io\n"
        "class Fast:\n"
        "    def __init__(self): self.parts = []\n"
        "    def write(self, text): self.parts.append(text)\n"
        "    def flush(self): os.write(1, ''.join(self.parts).encode()); self.parts = []\n"
        "sys.stdout = Fast()\n"
        "# as if: io.open(0) or a class called IOWrapper stood here\n"
        "print('kept')\n"
    )
    run = run_one(sandbox, source)
    assert (run.status, run.stdout) == ("ok", b"kept\n")


def test_recursion_reaches_as_deep_as_in_a_plain_interpreter(sandbox):
    source = "def f(n):\n    try: return f(n + 1)\n    except RecursionError: return n\nprint(f(1))"
    plain = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True).stdout
    assert run_one(sandbox, source).stdout == plain


def test_a_background_process_does_not_hold_up_or_outlive_the_run(sandbox):
    source = (
        "import os, time\n"
        "print(os.getpid(), flush=True)\n"
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(100)\n"
    )
    run = run_one(sandbox, source, wall_s=20.0)
    assert run.status in ("ok", "runtime_error")  # where the sandbox refuses fork, the program fails
    assert run.wall_s < 10


def test_equal_executions_are_done_once(sandbox):
    source = "import os\nprint(os.urandom(8).hex())"
    a, b = sandbox.run([Job(source, ("1", "2", "1")), Job(source, ("2",))])
    assert a[0].stdout == a[2].stdout != a[1].stdout
    assert b[0].stdout == a[1].stdout


def test_progress_counts_jobs_and_order_is_kept():
    seen = []
    jobs = [Job(f"print({n})", ("",)) for n in range(7)] + [Job("print(1)", ())]
    with Sandbox(workers=2, min_isolation="process") as pool:
        results = pool.run(jobs, progress=lambda done, total: seen.append((done, total)))
    assert [runs[0].stdout for runs in results[:7]] == [b"%d\n" % n for n in range(7)]
    assert results[7] == []
    assert seen[-1] == (8, 8)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_stop_when_skips_the_rest_of_a_job():
    asked = []

    def stop(job, place, run):
        asked.append((job, place, run.stdout))
        return first_failure(job, place, run)

    failing = Job("n = int(input())\nassert n < 2\nprint(n)", ("1", "2", "3"))
    fine = Job("print(input())", ("1", "2"))
    with Sandbox(workers=1, min_isolation="process") as pool:
        results = pool.run([failing, fine, failing], stop_when=stop)
    assert [run.status for run in results[0]] == ["ok", "runtime_error", "skipped"]
    assert results[2] == results[0]
    assert [run.status for run in results[1]] == ["ok", "ok"]
    assert asked == [(0, 0, b"1\n"), (0, 1, b""), (1, 0, b"1\n"), (1, 1, b"2\n")]


@pytest.mark.parametrize(
    ("stop_when", "expected"),
    [
        (first_failure, ["ok", "runtime_error", "skipped", "skipped"]),
        (first_time_limit, ["ok", "runtime_error", "cpu_limit", "skipped"]),
    ],
)
def test_named_reasons_to_stop(sandbox, stop_when, expected):
    source = "n = int(input())\nassert n != 2\nwhile n == 3: pass"
    job = Job(source, ("1", "2", "3", "4"), limits=Limits(cpu_s=0.2, wall_s=60.0))
    assert [run.status for run in sandbox.run([job], stop_when=stop_when)[0]] == expected
    assert first_time_limit(0, 0, Run("wall_limit"))


@pytest.fixture
def second_tries(monkeypatch):
    """What runs again, in order: the last letter of the program, and the inputs."""
    tried = []
    original = _Task.fresh

    def spy(task, places):
        again = original(task, places)
        tried.append((task.job.source[-1], again.job.inputs))
        return again

    monkeypatch.setattr(_Task, "fresh", spy)
    return tried


def without_time(monkeypatch):
    """Leave no time for second tries of what the wall clock stopped."""
    original = Sandbox._retry_inconclusive
    monkeypatch.setattr(
        Sandbox, "_retry_inconclusive", lambda self, tasks, stop, budget_s: original(self, tasks, stop, 0.0)
    )


def sleepers(count):
    source = "import time\nif input() != 'go': time.sleep(60)\n#"
    limits = Limits(cpu_s=5.0, wall_s=0.1)
    return [Job(f"{source}{n}", ("sleep", "go", "nap"), limits=limits) for n in range(count)]


def killers(count):
    source = "import os\nos.kill(os.getpid(), 9)\n#"
    return [Job(f"{source}{n}", ("1",)) for n in range(count)]


def test_all_that_the_wall_clock_stopped_idle_is_tried_again_alone(sandbox, second_tries):
    results = sandbox.run(sleepers(5))
    assert [[run.status for run in runs] for runs in results] == [["wall_limit", "ok", "wall_limit"]] * 5
    # The first of every program, then the second ones.
    assert second_tries == [(str(n), (text,)) for text in ("sleep", "nap") for n in range(5)]


def test_what_was_stopped_is_believed_when_time_is_up_and_what_was_killed_is_not(
    sandbox, second_tries, monkeypatch
):
    without_time(monkeypatch)
    results = sandbox.run([*sleepers(2), *killers(5)])
    assert [runs[0].status for runs in results] == ["wall_limit"] * 2 + ["signal"] * 5
    assert second_tries == [(str(n), ("1",)) for n in range(5)]


def test_a_program_that_always_kills_itself_is_believed_in_the_end(sandbox, second_tries):
    job = Job("import os\nos.kill(os.getpid(), 9)\n#k", tuple("12345"))
    assert {run.signal for run in sandbox.run([job])[0]} == {9}
    assert second_tries == [("k", (text,)) for text in "123"]


@pytest.mark.parametrize("harm", ["time.sleep(60)", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("stop_when", [None, first_failure])
def test_a_second_try_counts_and_so_does_what_it_lets_run(tmp_path, harm, stop_when):
    source = (
        "import os, time\n"
        "n = int(input())\n"
        f"mark = {str(tmp_path / 'mark')!r}\n"
        "if n == 2 and not os.path.exists(mark):\n"
        "    open(mark, 'w').close()\n"
        f"    {harm}\n"
        "print(n)"
    )
    job = Job(source, ("1", "2", "3"), limits=Limits(cpu_s=5.0, wall_s=1.0))
    with Sandbox(1, min_isolation="process", max_isolation="process") as pool:
        runs = pool.run([job], stop_when=stop_when)[0]
    assert [(run.status, run.stdout) for run in runs] == [("ok", b"1\n"), ("ok", b"2\n"), ("ok", b"3\n")]


def test_second_tries_are_asked_about_under_their_own_numbers(sandbox, second_tries):
    asked = []

    def stop(job, place, run):
        asked.append((job, place, run.status))
        return place == 2

    limits = Limits(cpu_s=5.0, wall_s=0.2)
    source = "import time\nif input() == 'sleep': time.sleep(60)\n#s"
    inputs = ("go", "sleep", "on", "never")
    jobs = [Job("print(input())", ("1",)), Job(source, inputs, limits=limits)]
    results = sandbox.run(jobs, stop_when=stop)
    assert [run.status for run in results[1]] == ["ok", "wall_limit", "ok", "skipped"]
    assert second_tries == [("s", inputs[1:])]
    first = [(0, 0, "ok"), (1, 0, "ok"), (1, 1, "wall_limit"), (1, 2, "ok")]
    assert asked == [*first, (1, 1, "wall_limit"), (1, 2, "ok")]


def test_async_code_can_wait_for_runs(sandbox):
    runs = asyncio.run(sandbox.run_async([Job("print(5)", ("",))]))[0]
    assert runs[0].stdout == b"5\n"


def test_one_sandbox_refuses_two_callers_at_a_time(sandbox):
    def again(done, total):
        with pytest.raises(SandboxError, match="already running"):
            sandbox.run([Job("print(1)", ("",))])
        seen.append(done)

    seen = []
    sandbox.run([Job("print(1)", ("",))], progress=again)
    assert seen == [1]


def test_a_pickled_sandbox_keeps_its_settings():
    copy = pickle.loads(pickle.dumps(Sandbox(3, min_isolation="seccomp")))
    assert (copy.workers, copy.min_isolation, copy.max_isolation) == (3, "seccomp", "namespaces")


def test_negative_workers_are_refused():
    with pytest.raises(SandboxError, match="workers"):
        Sandbox(workers=-1)
