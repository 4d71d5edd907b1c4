"""``kill -9`` of any process of the machinery: no result is lost, nothing is left behind."""

import os
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

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


DEEPEST = {"process": 3, "seccomp": 3, "landlock": 3, "namespaces": 4}  # only namespaces have launchers


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_killing_helpers_loses_no_result(at_level, depth):
    level = at_level.max_isolation
    if depth > DEEPEST[level]:
        pytest.skip("there is nothing as deep")
    killed = []

    def kill_all_once():
        while not killed and not over.is_set():
            for process in below(psutil.Process(), depth):
                if is_worker(process):
                    with suppress(psutil.Error):
                        process.kill()
                        killed.append(process.pid)

    for _ in range(20):  # the deeper ones come and go: the victim may have ended by itself
        over = threading.Event()
        with Sandbox(workers=2, min_isolation="process", max_isolation=level) as pool:
            pool.run(JOBS[:2])
            killer = threading.Thread(target=kill_all_once)
            killer.start()
            try:
                results = pool.run(JOBS)
            finally:
                over.set()
                killer.join()
        assert [[run.stdout for run in runs] for runs in results] == RIGHT
        if killed:
            break
    assert killed


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


LITTER = "left-by-a-killed-program"
LITTERING = [
    Job(
        "import time\nn = int(input())\n"
        "for folder in ('/tmp', '/dev/shm', '.'):\n"
        f"    try: open(f'{{folder}}/{LITTER}', 'w').write('x')\n"
        "    except OSError: pass\n"
        f"time.sleep(0.01)\nprint(n * {k})",
        ("1", "2", "3"),
    )
    for k in range(40)
]
LITTERING_RIGHT = [[b"%d\n" % (n * k) for n in (1, 2, 3)] for k in range(40)]


class Killer(threading.Thread):
    """Kills processes of the machinery, each a random moment after a job has ended; remembers all it saw."""

    def __init__(self, seed, kills):
        super().__init__()
        self.rng, self.kills = random.Random(seed), kills
        self.killed, self.seen = [], set()
        self.progressed, self.stopped = threading.Event(), False

    def run(self):
        while len(self.killed) < self.kills:
            self.progressed.wait()
            self.progressed.clear()
            if self.stopped:
                return
            time.sleep(self.rng.uniform(0, 0.1))
            helpers = [process for process in psutil.Process().children(recursive=True) if is_worker(process)]
            self.seen.update(helpers)
            # A depth first: launchers are few, children of supervisors many.
            depths = [[p for p in below(psutil.Process(), depth) if p in helpers] for depth in range(1, 5)]
            depths = [found for found in depths if found]
            if depths:
                victim = self.rng.choice(self.rng.choice(depths))
                with suppress(psutil.NoSuchProcess):
                    victim.kill()
                    self.killed.append(victim.pid)

    def stop(self):
        self.stopped = True
        self.progressed.set()
        self.join()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_moments_lose_nothing_and_leave_nothing(at_level, seed, tmp_path, monkeypatch):
    if at_level.max_isolation not in ("landlock", "namespaces"):
        pytest.skip("programs may write where they like")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killer = Killer(seed, kills=6)
    killer.start()
    with Sandbox(2, min_isolation=at_level.max_isolation, max_isolation=at_level.max_isolation) as pool:
        try:
            results = pool.run(LITTERING, progress=lambda done, total: killer.progressed.set())
        finally:
            killer.stop()
    assert [[run.stdout for run in runs] for runs in results] == LITTERING_RIGHT
    assert len(killer.killed) == killer.kills
    wait_until(lambda: not any(alive(process) for process in killer.seen))
    for folder in tmp_path.iterdir():  # a folder whose launcher was killed is swept by the next worker
        os.utime(folder, (0, 0))
    with Sandbox(1, min_isolation="process") as pool:
        pool.run(JOBS[:1])
    assert not list(tmp_path.iterdir())
    assert not [path for folder in ("/tmp", "/dev/shm") if (path := Path(folder, LITTER)).exists()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_owner_killed_at_a_random_moment_leaves_nothing(at_level, seed, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, at_level.max_isolation], stdout=subprocess.PIPE, text=True
    )
    time.sleep(random.Random(seed).uniform(0.2, 1.5))  # while it imports, starts workers, or runs
    helpers = psutil.Process(owner.pid).children(recursive=True)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_until(lambda: not any(alive(process) for process in helpers))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for folder in tmp_path.iterdir():
        os.utime(folder, (0, 0))  # one that its worker had not locked yet counts as in use for a while
    with Sandbox(1, min_isolation="process") as pool:
        assert [run.stdout for run in pool.run(JOBS[:1])[0]] == RIGHT[0]
    assert not list(tmp_path.iterdir())


def test_what_was_left_when_everything_was_killed_at_once_is_swept_later(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stale, unlocked, young = (
        tmp_path / f"tipprobe-sandbox-{name}" for name in ("stale", "unlocked", "young")
    )
    (stale / "cwd").mkdir(parents=True)
    (stale / ".lock").touch()
    unlocked.mkdir()
    os.utime(unlocked, (0, 0))
    young.mkdir()
    with Sandbox(workers=1, min_isolation="process") as pool:
        pool.run([Job("print(1)", ("",))])
        assert not stale.exists() and not unlocked.exists()
        assert len(list(tmp_path.iterdir())) == 2  # one of them this pool's own
    assert list(tmp_path.iterdir()) == [young]  # may be somebody's who is just making it


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
