"""Keeping track of descendants: a Jupyter kernel, and whatever it starts, must not outlive its run.

Kernels live in sessions of their own, so killing a process group does not reach them.  On Linux a process can
declare itself the new parent of orphaned descendants; then nothing below it escapes, however it was started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable

import psutil

from tipprobe.sandbox.worker.confine import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies.  No effect outside Linux."""
    if sys.platform == "linux":
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have this process receive SIGTERM when `parent` is gone.  No effect outside Linux."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it went before the call above
        os.kill(os.getpid(), signal.SIGTERM)


def descendants() -> set[psutil.Process]:
    """Return every process below this one."""
    return set(psutil.Process().children(recursive=True))


def reap(processes: Iterable[psutil.Process], grace_s: float = 3.0) -> int:
    """End `processes` and what they start meanwhile: SIGTERM, then SIGKILL after `grace_s`.

    Returns:
        how many were still running.
    """
    alive = [process for process in processes if _alive(process)]
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, stubborn = psutil.wait_procs(alive, timeout=grace_s)
    for process in stubborn:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stubborn, timeout=grace_s)
    return len(alive)


def _alive(process: psutil.Process) -> bool:
    try:
        # is_running() also compares the creation time, so a recycled pid is never hit.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
