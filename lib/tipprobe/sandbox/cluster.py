"""Spreading programs over processes and machines with joblib or Ray.

The unit of work is one program with all its inputs; a task is a batch of them.  Each process that takes tasks
owns a pool of its own, started at its first task: nothing of a pool travels, only jobs and runs do.  What was
proven about isolation is a property of a machine, so every task returns the report of the machine it ran on,
and a machine below `min_isolation` raises instead of running anything.  A fault of the machinery raises
`SandboxError` here as it does there; it is never a run.

>>> with joblib_executor(n_jobs=8) as executor:
...     runs = executor.run(jobs)  # as Sandbox.run, wherever an Executor is taken
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tipprobe.errors import SandboxError
from tipprobe.sandbox.isolation import IsolationReport, Level, default_min_isolation
from tipprobe.sandbox.pool import Sandbox
from tipprobe.sandbox.types import Job, Run

BATCH = 16  # programs a task: some 0.3 s of work, so that sending it costs little


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a task returns.

    Attributes:
        runs: as `Sandbox.run` returns them.
        node: name of the machine.
        isolation: what was proven there.
    """

    runs: list[list[Run]]
    node: str
    isolation: IsolationReport


def run_batch(jobs: Sequence[Job], *, workers: int = 1, min_isolation: Level | None = None) -> BatchResult:
    """Run jobs in this process's own pool, which is made at the first call and lasts as long as the process.

    Args:
        jobs: programs with their inputs.
        workers: worker processes of the pool; one where there is a process per core, 0 (one per core) where
            there is a process per machine.
        min_isolation: as for `Sandbox`; None reads this machine's environment.

    Raises:
        IsolationError: this machine isolates less than `min_isolation`.
        SandboxError: the machinery failed.
    """
    key = (os.getpid(), workers, min_isolation)
    if key not in _POOLS:
        _POOLS[key] = Sandbox(workers, min_isolation=min_isolation)
    pool = _POOLS[key]
    return BatchResult(pool.run(jobs), socket.gethostname(), pool.isolation)


_POOLS: dict[tuple[int, int, Level | None], Sandbox] = {}


@dataclass
class ClusterExecutor:
    """An `Executor` that cuts jobs into batches and has them run elsewhere.

    Attributes:
        map_batches: runs batches somewhere, returns their results in order.
        batch: programs a task.
        isolation: what was proven on each machine that has run something, by name.
    """

    map_batches: Callable[[list[Sequence[Job]]], Sequence[BatchResult]]
    batch: int = BATCH
    isolation: dict[str, IsolationReport] = field(default_factory=dict)

    def run(self, jobs: Sequence[Job]) -> list[list[Run]]:
        """Run every job on every one of its inputs; one list a job, one `Run` an input, in order.

        Raises:
            IsolationError: a machine isolates less than was asked for.
            SandboxError: the machinery failed, there or on the way.
        """
        batches = [jobs[start : start + self.batch] for start in range(0, len(jobs), self.batch)]
        results = self.map_batches(batches)
        self.isolation |= {result.node: result.isolation for result in results}
        return [runs for result in results for runs in result.runs]


@contextmanager
def joblib_executor(
    n_jobs: int = -1, *, min_isolation: Level | None = None, batch: int = BATCH
) -> Iterator[ClusterExecutor]:
    """Spread over joblib's processes, each with one worker; a backend chosen by the caller is respected.

    Args:
        n_jobs: processes, -1 for one per core.
        min_isolation: as for `Sandbox`.
        batch: programs a task.
    """
    import joblib

    task = joblib.delayed(partial(run_batch, workers=1, min_isolation=min_isolation))
    with joblib.Parallel(n_jobs=n_jobs) as parallel:
        yield ClusterExecutor(lambda batches: parallel(task(jobs) for jobs in batches), batch)


@contextmanager
def ray_executor(*, min_isolation: Level | None = None, batch: int = BATCH) -> Iterator[ClusterExecutor]:
    """Spread over a Ray cluster: one actor a machine, with a pool of all the CPUs that Ray counts there.

    Uses the cluster that ``ray.init`` has connected to.  An actor that dies is started again once, with what
    it had been doing; then it raises.

    Args:
        min_isolation: as for `Sandbox`; None takes this process's default, not each machine's.
        batch: programs a task.

    Raises:
        SandboxError: Ray is not connected, or the cluster has no CPU.
    """
    import ray
    from ray.exceptions import RayActorError
    from ray.util import ActorPool
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if not ray.is_initialized():
        raise SandboxError("Ray is not connected to a cluster: call ray.init() first")
    minimum = min_isolation or default_min_isolation()
    actor = ray.remote(_Node)
    cpus = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]}
    nodes = [
        actor.options(
            num_cpus=count,
            max_restarts=1,
            max_task_retries=1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
        ).remote(count, minimum)
        for node, count in cpus.items()
        if count
    ]
    if not nodes:
        raise SandboxError(f"the Ray cluster has no CPU to run programs on: {ray.cluster_resources()}")
    pool = ActorPool(nodes)

    def map_batches(batches: list[Sequence[Job]]) -> list[BatchResult]:
        try:
            return list(pool.map(lambda node, jobs: node.run.remote(jobs), batches))
        except RayActorError as error:
            raise SandboxError(f"an actor of the Ray cluster died twice: {error}") from error

    try:
        yield ClusterExecutor(map_batches, batch)
    finally:
        for node in nodes:
            ray.kill(node)


class _Node:
    """Runs batches on one machine of a Ray cluster."""

    def __init__(self, workers: int, min_isolation: Level) -> None:
        self._workers, self._min_isolation = workers, min_isolation

    def run(self, jobs: Sequence[Job]) -> BatchResult:
        return run_batch(jobs, workers=self._workers, min_isolation=self._min_isolation)
