"""Programs whose answer varies are found by a second run, and only those that can vary run twice."""

import pytest

from tipprobe.sandbox import Job, Run
from tipprobe.sandbox.recheck import Recheck, any_first_input, may_vary, run_rechecked

LUCKY = "import random\nprint(random.random())"
FIXED = "import random\nrandom.seed(3)\nprint(random.random())"


class Recorder:
    """Answers with the seed and the input; remembers what it was asked."""

    def run(self, jobs):
        self.jobs = list(jobs)
        return [[Run("ok", stdout=f"{job.seed} {text}".encode()) for text in job.inputs] for job in jobs]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print(int(input()))", False),
        ("import sys\nprint(sys.stdin.readline())", False),
        (LUCKY, True),
        ("print(id(1))", True),
        ("idea = 1", False),
        ("from threading import Thread", True),
        ("import multiprocessing as mp", True),
        ("from gc import get_objects", True),
        ("import select", True),
        ("import sys\nsys.getrefcount(None)", True),
        ("open('/dev/urandom')", True),
        ("open('/proc/self/stat')", True),
        ("getattr(__builtins__, 'op' + 'en')", True),
    ],
)
def test_what_may_vary(source, expected):
    assert may_vary(source) is expected


def test_the_first_input_of_what_may_vary_runs_twice_in_one_call():
    recorder = Recorder()
    jobs = [Job("print(1)", ("a", "b")), Job(LUCKY, ("a", "b"), seed=4), Job(LUCKY, ())]
    results = run_rechecked(recorder, jobs, Recheck())
    assert recorder.jobs == [*jobs, Job(LUCKY, ("a",), seed=5)]
    assert [[run.status for run in runs] for runs in results] == [["ok"] * 2, ["nondeterministic"] * 2, []]
    assert results[1][1].stdout == b"4 b"


def test_the_caller_chooses_the_input_and_what_counts_as_the_same():
    recorder = Recorder()
    jobs = [Job("print(1)", ("a", "b")), Job("print(2)", ("a", "b"))]
    recheck = Recheck(
        place=lambda number, job: number, key=lambda number, run: run.stdout if number else run.ok
    )
    results = run_rechecked(recorder, jobs, recheck)
    assert [job.inputs for job in recorder.jobs[2:]] == [("a",), ("b",)]
    assert [runs[0].status for runs in results] == ["ok", "nondeterministic"]


def test_the_sandbox_finds_it_when_asked(sandbox):
    jobs = [Job(source, ("1", "2")) for source in (LUCKY, FIXED, "import os\n1 / 0")]
    results = sandbox.run(jobs, check_nondeterminism=True)
    assert [[run.status for run in runs] for runs in results] == [
        ["nondeterministic"] * 2,
        ["ok"] * 2,
        ["runtime_error"] * 2,
    ]
    assert [runs[1].status for runs in sandbox.run(jobs)] == ["ok", "ok", "runtime_error"]


def test_every_program_runs_again_where_the_caller_asks(sandbox):
    # Another seed shows in no word that `may_vary` knows.
    hidden = "import sys\nprint(sys.modules['ran' + 'dom'].getrandbits(64))"
    jobs = [Job(hidden, ("1", "2")), Job("print(1)", ("1", "2")), Job(hidden, ())]
    guessed = sandbox.run(jobs, check_nondeterminism=True)
    assert [run.status for runs in guessed for run in runs] == ["ok"] * 4
    recorder = Recorder()
    run_rechecked(recorder, jobs, Recheck(any_first_input))
    assert [(job.source, job.inputs) for job in recorder.jobs[3:]] == [(hidden, ("1",)), ("print(1)", ("1",))]
    asked = sandbox.run(jobs, check_nondeterminism=Recheck(any_first_input))
    assert [[run.status for run in runs] for runs in asked] == [["nondeterministic"] * 2, ["ok"] * 2, []]


def test_skipped_inputs_stay_skipped_and_second_runs_stop_nothing(sandbox):
    asked = []

    def stop(job, place, run):
        asked.append((job, place))
        return True

    recheck = Recheck(place=lambda number, job: 1 if number else 0)
    results = sandbox.run([Job(LUCKY, ("1", "2"))] * 2, stop_when=stop, check_nondeterminism=recheck)
    assert [run.status for run in results[0]] == ["nondeterministic", "skipped"]
    assert [run.status for run in results[1]] == ["ok", "skipped"]  # its chosen input never ran
    assert asked == [(0, 0)]
