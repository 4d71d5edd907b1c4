"""Worker processes: order, names in errors, and that none outlives its parent."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from tipprobe.errors import DataError, StageError
from tipprobe.workers import run_side_by_side

PROGRAM = """
import os, time
from tipprobe.workers import run_side_by_side

if __name__ == "__main__":
    run_side_by_side(time.sleep, [600, 600], ["a", "b"], 2, lambda: print("polled", flush=True))
"""


def fail(item):
    raise DataError(f"bad {item}")


def test_results_come_in_order():
    polled = []
    assert run_side_by_side(abs, [-3, 2, -1], ["a", "b", "c"], 2, lambda: polled.append(1)) == [3, 2, 1]
    assert polled
    assert run_side_by_side(abs, [], []) == []


def test_a_dead_worker_is_reported():
    with pytest.raises(StageError, match="third"):
        run_side_by_side(os._exit, [3], ["third"], 1)


def test_workers_die_with_their_parent():
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE)
    assert parent.stdout.readline() == b"polled\n"
    deadline = time.monotonic() + 60
    children = []
    while len(children) < 2 and time.monotonic() < deadline:
        children = [c for c in psutil.Process(parent.pid).children() if "spawn_main" in " ".join(c.cmdline())]
        time.sleep(0.2)
    assert len(children) == 2
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
