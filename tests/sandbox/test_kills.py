"""``kill -9`` of any process of the machinery: no result is lost, nothing is left behind."""

import subprocess
import sys
import time

import psutil
import pytest

from tipprobe.sandbox import Job, Sandbox

JOBS = [
    Job(f"import time\nn = int(input())\ntime.sleep(0.02)\nprint(n * {k})", ("1", "2", "3")) for k in range(8)
]
RIGHT = [[b"%d\n" % (n * k) for n in (1, 2, 3)] for k in range(8)]


def below(process, depth):
    """Descendants at one depth: 1 launchers or zygotes, then what they forked."""
    level = [process]
    for _ in range(depth):
        level = [child for parent in level for child in children(parent)]
    return level


def children(process):
    try:
        return process.children()
    except psutil.Error:
        return []


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_killing_helpers_loses_no_result(at_level, depth):
    killed = []

    def kill(done, total):
        if done in (2, 5):
            for process in below(psutil.Process(), depth):
                if is_worker(process):
                    process.kill()
                    killed.append(process.pid)

    level = at_level.max_isolation
    with Sandbox(workers=2, min_isolation="process", max_isolation=level) as pool:
        results = pool.run(JOBS, progress=kill)
    assert [[run.stdout for run in runs] for runs in results] == RIGHT
    assert killed or depth > 1  # deeper processes come and go


def is_worker(process):
    try:
        return any(word.endswith("worker/main.py") for word in process.cmdline())
    except psutil.Error:
        return False


OWNER = """
import sys
from tipprobe.sandbox import Job, Sandbox
with Sandbox(workers=2, min_isolation="process", max_isolation=sys.argv[1]) as pool:
    pool.run([Job("print(1)", ("",))])
    print("ready", flush=True)
    pool.run([Job(f"import time\\ntime.sleep({n})", ("", "again")) for n in (60, 61)])
"""


def test_nothing_is_left_when_the_owner_is_killed(at_level, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, at_level.max_isolation], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout.readline() == "ready\n"
    wait_until(lambda: len(psutil.Process(owner.pid).children(recursive=True)) >= 6)
    helpers = psutil.Process(owner.pid).children(recursive=True)
    owner.kill()
    owner.wait()
    wait_until(lambda: not any(alive(process) for process in helpers))
    wait_until(lambda: not list(tmp_path.glob("tipprobe-sandbox-*")))


def test_what_was_left_when_everything_was_killed_at_once_is_swept_later(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stale = tmp_path / "tipprobe-sandbox-stale"
    (stale / "cwd").mkdir(parents=True)
    (stale / ".lock").touch()
    with Sandbox(workers=1, min_isolation="process") as pool:
        pool.run([Job("print(1)", ("",))])
        assert not stale.exists()
        assert len(list(tmp_path.iterdir())) == 1  # this pool's own
    assert not list(tmp_path.iterdir())


def alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
