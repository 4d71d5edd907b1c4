"""Python work in several processes side by side, none of which outlives its parent.

Worker processes are spawned, so what they run must be a function of the library and its arguments plain
values; notebooks define neither.  This module imports no torch: a worker limits its threads before it does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from tipprobe.errors import StageError, TipprobeError

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds between two calls of `on_poll`.
POLL_S = 0.5


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def run_side_by_side(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    names: Sequence[str],
    workers: int = 0,
    on_poll: Callable[[], None] | None = None,
) -> list[Result]:
    """Call `function` on every item in worker processes; return the results in order.

    The cores are shared out evenly as threads.  If one call fails, the others are ended at once.

    Args:
        function: importable by name.
        items: its arguments, one a call.
        names: what to call each item in messages.
        workers: processes, 0 for one a core.
        on_poll: called in this process every half second, to show progress.

    Raises:
        TipprobeError: a call raised one; the message starts with the item's name.
        StageError: a worker process died (most often for lack of memory).
    """
    if not items:
        return []
    processes = min(len(items), workers or cores())
    earlier = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=start_worker,
        initargs=(os.getpid(), max(1, cores() // processes)),
    )
    try:
        futures = [pool.submit(function, item) for item in items]
        named = dict(zip(futures, names, strict=True))
        pending: set[Future[Result]] = set(futures)
        while pending:
            done, pending = wait(pending, timeout=POLL_S, return_when=FIRST_COMPLETED)
            if on_poll is not None:
                on_poll()
            for future in done:
                _raise_named(future, named[future])
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - earlier:
            child.kill()
        raise
    return [future.result() for future in futures]


def _raise_named(future: Future[Result], name: str) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        raise StageError(
            f"a worker process died while {name} was waiting or running, most often for lack of memory: use "
            "fewer workers or smaller batches and start again; what is finished is kept"
        ) from error
    except TipprobeError as error:
        raise type(error)(f"{name}: {error}") from error


def start_worker(parent: int, threads: int) -> None:
    """Prepare a worker process: it dies with `parent`, keeps to its threads and sends nothing anywhere."""
    if sys.platform == "linux":
        from tipprobe.sandbox.worker.confine import PR_SET_PDEATHSIG, prctl  # `sandbox` imports this module

        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the line above
            os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted notebook ends its workers itself
    os.environ |= {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
