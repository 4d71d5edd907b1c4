"""One program with its inputs is a task that any process of a cluster can take."""

import shutil
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from tipprobe.errors import SandboxError
from tipprobe.sandbox import Executor, Job
from tipprobe.sandbox.cluster import ClusterExecutor, joblib_executor, ray_executor, run_batch

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
