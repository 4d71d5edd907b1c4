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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from tipprobe.errors import SandboxError
from tipprobe.sandbox.isolation import LEVELS, IsolationReport, Level, default_min_isolation
from tipprobe.sandbox.pool import Sandbox
from tipprobe.sandbox.types import Job, Run, StopWhen

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

    Threads that call this at the same time have a pool each.

    Args:
        jobs: programs with their inputs.
        workers: worker processes of the pool; one where there is a process per core, 0 (one per core) where
            there is a process per machine.
        min_isolation: as for `Sandbox`; None reads this machine's environment.

    Raises:
        IsolationError: this machine isolates less than `min_isolation`.
        SandboxError: the machinery failed.
    """
    with _pool(workers, min_isolation) as pool:
        return BatchResult(pool.run(jobs), socket.gethostname(), pool.isolation)


@contextmanager
def _pool(workers: int, min_isolation: Level | None) -> Iterator[Sandbox]:
    """A pool of this process that nobody else uses meanwhile: threads that overlap get one each."""
    idle = _IDLE.setdefault((os.getpid(), workers, min_isolation), [])
    try:
        pool = idle.pop()
    except IndexError:
        pool = Sandbox(workers, min_isolation=min_isolation)
    try:
        yield pool
    finally:
        idle.append(pool)


_IDLE: dict[tuple[int, int, Level | None], list[Sandbox]] = {}


@dataclass
class ClusterExecutor:
    """An `Executor` that cuts jobs into batches and has them run elsewhere.

    Attributes:
        map_batches: runs batches somewhere, gives their results in order.
        batch: programs a task.
        isolation: what was proven on each machine that has run something, by name; where its processes
            differ, what holds for the weakest.
    """

    map_batches: Callable[[list[Sequence[Job]]], Iterable[BatchResult]]
    batch: int = BATCH
    isolation: dict[str, IsolationReport] = field(default_factory=dict)

    def run(
        self,
        jobs: Sequence[Job],
        *,
        progress: Callable[[int, int], None] | None = None,
        stop_when: StopWhen | None = None,
    ) -> list[list[Run]]:
        """Run every job on every one of its inputs; one list a job, one `Run` an input, in order.

        With `stop_when` programs run on their first input, then on the next, the next two, the next four, ...
        as long as it does not stop them: it stays in this process, and so does what it knows.

        Args:
            jobs: programs with their inputs.
            progress: called with (jobs done, jobs in all) as batches come back.
            stop_when: as for `Sandbox.run`, but of equal jobs each is asked about; some inputs behind the one
                where it stops a job may have run in vain, and are ``skipped`` all the same.

        Raises:
            IsolationError: a machine isolates less than was asked for.
            SandboxError: the machinery failed, there or on the way.
        """
        results = [[_SKIPPED] * len(job.inputs) for job in jobs]
        going = [number for number, job in enumerate(jobs) if job.inputs]
        done = len(jobs) - len(going)
        start, stop = 0, 1 if stop_when else max((len(job.inputs) for job in jobs), default=0)
        while going:
            unsettled = []
            pieces = [replace(jobs[number], inputs=jobs[number].inputs[start:stop]) for number in going]
            for number, runs in zip(going, self._run_batches(pieces), strict=True):
                stopped = False
                for place, run in enumerate(runs, start):
                    results[number][place] = run
                    stopped = stop_when is not None and stop_when(number, place, run)
                    if stopped:
                        break
                if not stopped and stop < len(jobs[number].inputs):
                    unsettled.append(number)
                    continue
                done += 1
                if progress is not None:
                    progress(done, len(jobs))
            going, start, stop = unsettled, stop, 2 * stop
        return results

    def _run_batches(self, jobs: Sequence[Job]) -> Iterator[list[Run]]:
        """Run all inputs of some jobs; yields a list a job, as batches come back."""
        batches = [jobs[start : start + self.batch] for start in range(0, len(jobs), self.batch)]
        for result in self.map_batches(batches):
            known = self.isolation.get(result.node)
            if known is None or LEVELS.index(result.isolation.level) < LEVELS.index(known.level):
                self.isolation[result.node] = result.isolation
            yield from result.runs


_SKIPPED = Run("skipped")


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
    try:
        parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator")
    except ValueError:  # a backend that gives its results all together
        parallel = joblib.Parallel(n_jobs=n_jobs)
    with parallel:
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

    def map_batches(batches: list[Sequence[Job]]) -> Iterator[BatchResult]:
        try:
            yield from pool.map(lambda node, jobs: node.run.remote(jobs), batches)
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
