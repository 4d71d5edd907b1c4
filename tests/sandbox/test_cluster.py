"""One program with its inputs is a task that any process of a cluster can take."""

import shutil
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from tipprobe.errors import SandboxError
from tipprobe.evaluation.grade import grade
from tipprobe.problems.schema import Problem, Test
from tipprobe.sandbox import Executor, IsolationReport, Job, Run, first_failure
from tipprobe.sandbox.cluster import BatchResult, ClusterExecutor, joblib_executor, ray_executor, run_batch

JOBS = [Job(f"n = int(input())\nassert n\nprint(n + {k})", ("1", "0", "3")) for k in range(9)]
EXPECTED = [[(b"%d\n" % (1 + k), "ok"), (b"", "runtime_error"), (b"%d\n" % (3 + k), "ok")] for k in range(9)]


def outcomes(executor: Executor):
    return [[(run.stdout, run.status) for run in runs] for runs in executor.run(JOBS)]


def test_a_process_owns_one_pool(sandbox):
    first, second = (run_batch(JOBS[:1], min_isolation="process") for _ in range(2))
    assert first.runs[0][0].stdout == second.runs[0][0].stdout == b"1\n"
    assert (first.node, first.isolation) == (socket.gethostname(), sandbox.isolation)


def test_batches_keep_the_order_and_gather_what_was_proven():
    sizes = []

    def here(batches):
        sizes.extend(len(batch) for batch in batches)
        return [run_batch(batch, min_isolation="process") for batch in batches]

    executor = ClusterExecutor(here, batch=4)
    assert outcomes(executor) == EXPECTED
    assert sizes == [4, 4, 1]
    assert list(executor.isolation) == [socket.gethostname()]
    assert executor.run([]) == []


def in_process(batch=4):
    """An executor that runs its batches here, and the sizes of what it was given, input by input."""
    sizes = []

    def here(batches):
        sizes.append([len(job.inputs) for batch in batches for job in batch])
        return (run_batch(batch, min_isolation="process") for batch in batches)

    return ClusterExecutor(here, batch), sizes


def test_a_job_stops_where_its_caller_says():
    asked = []

    def stop(job, place, run):
        asked.append((job, place))
        return first_failure(job, place, run)

    jobs = [
        Job("n = int(input())\nassert n < 3\nprint(n)", tuple("1234567")),
        Job("print(input())", tuple("12345678")),
        Job("1/0", ("1", "2")),
        Job("print(1)", ()),
    ]
    executor, sizes = in_process()
    runs = executor.run(jobs, stop_when=stop)
    assert [[run.status for run in of_job] for of_job in runs] == [
        ["ok", "ok", "runtime_error", *["skipped"] * 4],
        ["ok"] * 8,
        ["runtime_error", "skipped"],
        [],
    ]
    assert [run.stdout for run in runs[1]] == [b"%d\n" % n for n in range(1, 9)]
    assert sizes == [[1, 1, 1], [1, 1], [2, 2], [4]]
    assert sorted(asked) == [(0, 0), (0, 1), (0, 2), *[(1, place) for place in range(8)], (2, 0)]


@pytest.mark.parametrize("stop_when", [None, first_failure])
def test_progress_is_told_as_batches_come_back(stop_when):
    executor, _ = in_process(batch=2)
    seen = []
    executor.run([*JOBS[:5], Job("", ())], stop_when=stop_when, progress=lambda *counts: seen.append(counts))
    assert seen == [(done, 6) for done in range(2, 7)]


def test_grading_gives_the_same_verdicts_as_in_a_sandbox(sandbox):
    tests = tuple(Test(f"{n}\n", f"{n + 1}\n") for n in range(6))
    problem = Problem("add", "", tests=tests)
    programs = [
        "print(int(input()) + 1)",
        "n = int(input())\nprint(n + 1 if n < 4 else n)",
        "1/0",
        "print(1)",
        None,
    ]
    items = [(problem, program) for program in programs]
    executor, sizes = in_process()
    options = {"time_limit_s": 5.0, "memory_mb": 256}
    verdicts = grade(items, executor, **options)
    assert verdicts == grade(items, sandbox, **options)
    assert [verdict.reason for verdict in verdicts] == [
        "passed",
        "wrong_output",
        "runtime_error",
        "wrong_output",
        "no_code",
    ]
    assert sum(map(sum, sizes)) < 4 * len(tests)


def test_a_machine_is_as_isolated_as_its_weakest_process(sandbox):
    weak, strong = IsolationReport("process"), IsolationReport("landlock")
    reports = iter([strong, weak, strong])
    executor = ClusterExecutor(
        lambda batches: [BatchResult([[Run("ok")]], "node", next(reports)) for _ in batches], batch=1
    )
    executor.run([Job(f"print({n})", ("",)) for n in range(3)])
    assert executor.isolation == {"node": weak}


def test_threads_do_not_share_a_pool():
    joblib = pytest.importorskip("joblib")
    slow = [Job(f"import time\ntime.sleep(0.1)\n{job.source}", job.inputs) for job in JOBS[:4]]
    with (
        joblib.parallel_config(backend="threading"),
        joblib_executor(2, min_isolation="process", batch=1) as executor,
    ):
        results = executor.run(slow)
    assert [[(run.stdout, run.status) for run in runs] for runs in results] == EXPECTED[:4]


def test_joblib(sandbox):
    pytest.importorskip("joblib")
    with joblib_executor(2, min_isolation="process", batch=2) as executor:
        assert outcomes(executor) == EXPECTED
    assert list(executor.isolation.values()) == [sandbox.isolation]
    stop_loky()


def test_a_fault_in_a_joblib_process_is_raised(monkeypatch):
    pytest.importorskip("joblib")
    monkeypatch.setenv("TIPPROBE_MIN_ISOLATION", "nonsense")
    with joblib_executor(2) as executor, pytest.raises(SandboxError, match="TIPPROBE_MIN_ISOLATION"):
        executor.run(JOBS[:2])
    stop_loky()


def stop_loky():
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True, kill_workers=True)


def test_ray_must_be_connected():
    pytest.importorskip("ray")
    with pytest.raises(SandboxError, match=r"ray\.init"), ray_executor():
        pass


@pytest.fixture(scope="module")
def ray_cluster():
    ray = pytest.importorskip("ray")
    # Not pytest's own folder: Unix sockets lie in there, whose paths may have 107 characters.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
            object_store_memory=80 << 20,
            _temp_dir=folder,
        )
        yield ray
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_ray(ray_cluster, sandbox):
    with ray_executor(min_isolation="process", batch=2) as executor:
        assert outcomes(executor) == EXPECTED
        assert outcomes(executor) == EXPECTED
    assert list(executor.isolation.values()) == [sandbox.isolation]


@pytest.mark.slow
def test_a_fault_in_a_ray_actor_is_raised(ray_cluster):
    with ray_executor(min_isolation="docker") as executor, pytest.raises(SandboxError, match="docker"):
        executor.run(JOBS[:1])


@pytest.mark.slow
def test_a_killed_ray_actor_loses_no_result(ray_cluster):
    def kill():
        while not killed:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if process.name() == "ray::_Node.run":  # while it runs a batch
                        process.kill()
                        killed.append(process.pid)

    killed = []
    slow = [Job(f"import time\ntime.sleep(0.2)\n{job.source}", job.inputs) for job in JOBS]
    with ray_executor(min_isolation="process", batch=4) as executor, ThreadPoolExecutor(1) as threads:
        threads.submit(kill)
        results = executor.run(slow)
    assert [[(run.stdout, run.status) for run in runs] for runs in results] == EXPECTED
    assert len(killed) == 1
