"""The cases of ``../shared/cases``, where that folder lies beside the checkout: every verdict as expected."""

import base64
import builtins
import json
import mmap
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from tipprobe.cli import app
from tipprobe.errors import DataError, SandboxError
from tipprobe.evaluation.grade import grade
from tipprobe.evaluation.passk import pass_at_k, pass_at_k_per_problem
from tipprobe.evaluation.samples import read_samples, survey_samples
from tipprobe.problems.inprocess import unittest_source
from tipprobe.problems.load import load_problems
from tipprobe.problems.schema import Problem, Test, write_jsonl
from tipprobe.sandbox import Job, Limits, Run, Sandbox, extract_code, grading_flag, is_correct

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "grading.jsonl"
pytestmark = pytest.mark.skipif(not CASES.is_file(), reason=f"no {CASES}")

VERDICTS = {
    "cpu_limit": "timeout",
    "wall_limit": "timeout",
    "output_limit": "output_limit",
    "memory_limit": "memory",
    "signal": "runtime_error",
    "bad_value": "wrong_answer",
}
# Each case names these alternatives itself, in its note or symptom.
ALSO_RIGHT = {
    "mem-hog": {"runtime_error"},
    "time-product-memory": {"memory"},
    "out-infinite-print": {"output_limit"},
    "rec-infinite": {"timeout"},
}
# Without namespaces these starts of processes and signals are refused, which is the level's documented price.
REFUSED_WITHOUT_NAMESPACES = {"proc-many-forks", "proc-orphan", "proc-daemon-setsid", "proc-kill-parent"}
LIMITS = Limits(cpu_s=2.0, wall_s=30.0, output_bytes=4 << 20)


def cases(*kinds):
    if not CASES.is_file():
        return []
    with CASES.open(encoding="utf-8", newline="\n") as file:
        records = [json.loads(line) for line in file]
    return [pytest.param(record, id=record["id"]) for record in records if record["kind"] in kinds]


def arguments(args):
    return ", ".join(map(repr, args))


def job_and_expected(case):
    if case["kind"] == "call":
        tests = case.get("tests") or [{"args": case["call"]["args"], "output": case["expected_output"]}]
        pairs = [(arguments(test["args"]), repr(test["output"])) for test in tests]
        name = case["call"]["fn"]
    else:
        tests = case.get("tests") or [{"input": case["stdin"], "output": case["expected_output"]}]
        pairs = [(test["input"], test["output"]) for test in tests]
        name = None
    return Job(case["program"], tuple(text for text, _ in pairs), name, LIMITS), [want for _, want in pairs]


@pytest.mark.parametrize("case", cases("stdin", "call"))
def test_program(case, sandbox):
    level = sandbox.isolation.level
    if level == "process" and case["id"] == "proc-kill-parent":
        pytest.skip("at level process a program can kill its supervisor")
    job, expected = job_and_expected(case)
    runs = sandbox.run([job])[0]
    meta = {"json_values": True} if case["kind"] == "call" else {}  # as loaders of JSON benchmarks say
    problem = Problem("case", "", kind=case["kind"], entry_point=job.entry_point, meta=meta)
    verdict = "pass"
    for run, want in zip(runs, expected, strict=True):
        if not run.ok:
            verdict = VERDICTS.get(run.status, run.status)
            break
        if not is_correct(run, want, problem):
            verdict = "wrong_answer"
            break
    right = {case["expected"]} | ALSO_RIGHT.get(case["id"], set())
    if level in ("seccomp", "landlock") and case["id"] in REFUSED_WITHOUT_NAMESPACES:
        right.add("runtime_error")
    assert verdict in right, (runs[0].status, runs[0].stdout[:200], runs[0].stderr_tail)


@pytest.mark.parametrize("case", cases("compare"))
def test_comparison(case):
    given, expected = case["call"]
    # Which flag a problem has is decided when it is loaded; the verdict follows from it and the comparison.
    meta = {"grading": "multiple_answers"} if case["id"] == "cmp-multi-answer" else {}
    problem = Problem("case", "", meta=meta)
    if is_correct(Run("ok", stdout=given.encode()), expected, problem):
        verdict = "pass"
    else:
        verdict = "needs_checker" if grading_flag(problem) else "wrong_answer"
    assert verdict == case["expected"]


@pytest.mark.parametrize("case", cases("extract"))
def test_extraction(case):
    assert (extract_code(case["program"]).code or "") == case["expected_output"]


def in_process_problem(case):
    tests = case["tests"]
    code = unittest_source(tests) if "TestCases" in tests else tests
    return Problem(case["id"], "", kind="unittest", entry_point="f", test_code=code)


@pytest.mark.parametrize("case", cases("assert"))
def test_assertion(case, sandbox):
    try:
        verdict = grade(
            [(in_process_problem(case), case["program"])], sandbox, time_limit_s=2, memory_mb=512
        )[0]
        got = "pass" if verdict.passed else "fail"
    except DataError as error:
        got = "error"
        assert "no test method" in str(error)
    assert got == case["expected"]


class Scripted:
    """Gives one run a test: right for a true result, another output or a failed run for the others."""

    def __init__(self, results):
        self.results = results

    def run(self, jobs, *, stop_when=None):
        return [[self.run_of(result) for result in self.results] for _ in jobs]

    def run_of(self, result):
        if type(result) is int:  # an error code, as those graders write it
            return Run("ok", stdout=b"1") if result == 1 else Run("runtime_error", stdout=b"1")
        return Run("ok", stdout=b"1" if result in (True, "np.True_") else b"0")


def passed_with(results):
    """Whether we pass a program whose tests come out as `results`; without any, grading is refused."""
    problem = Problem("results", "", tests=tuple(Test(str(n), "1") for n in range(len(results))))
    try:
        return grade([(problem, "program")], Scripted(results), time_limit_s=1, memory_mb=64)[0].passed
    except DataError:
        return False


def metric(name, *arguments):
    """The cases' functions, in terms of ours."""
    if name == "pass_at_k":
        return pass_at_k(*arguments)
    if name == "all_passed":
        return passed_with(arguments[0])
    counts, k = arguments
    rows = [[True] * c + [False] * (n - c) for n, c in counts]
    return float(pass_at_k_per_problem(rows, k).mean())


@pytest.mark.parametrize("case", cases("metric"))
def test_metric(case):
    if case["expected_output"] == "error_or_nan":
        with pytest.raises(DataError):
            metric(*case["call"])
        return
    got = metric(*case["call"])
    assert got == case["expected_output"]
    assert type(got) is type(case["expected_output"])


def verdict_of(sandbox, source="print(1)", expected="1\n"):
    problem = Problem("host", "", tests=(Test("", expected),), time_limit_s=0.1)
    reason = grade([(problem, source)], sandbox, time_limit_s=0.1, memory_mb=256)[0].reason
    # On a machine that is busy with other things the wall clock may be first.
    return "timeout" if reason in ("cpu_limit", "wall_limit") else reason


def of_this_process():
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals() if number < 32}
    limits = [
        resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT")
    ]
    return Path.cwd(), dict(os.environ), handlers, limits


def host_cwd_env_intact(sandbox, tmp_path):
    verdict_of(sandbox)  # what is imported for the first grading is no change
    before, modules = of_this_process(), set(sys.modules)
    source = "import os, signal\nos.chdir('/')\nos.environ['A'] = 'b'\nsignal.signal(2, signal.SIG_IGN)"
    assert verdict_of(sandbox, source) == "wrong_output"
    assert of_this_process() == before
    assert set(sys.modules) == modules


def host_os_intact(sandbox, tmp_path):
    names = [(os, ("kill", "fork", "getcwd", "unlink")), (shutil, ("rmtree",)), (subprocess, ("Popen",))]
    names.append((builtins, ("open", "exit")))
    before = [getattr(module, name) for module, group in names for name in group]
    verdict_of(
        sandbox,
        "import os, builtins, shutil\nos.kill = os.fork = builtins.open = shutil.rmtree = None\nprint(1)",
    )
    after = [getattr(module, name) for module, group in names for name in group]
    assert after == before and all(map(callable, after))


def host_fork_with_threads(sandbox, tmp_path):
    stop, lock = threading.Event(), threading.Lock()

    def busy():
        while not stop.is_set():
            with lock:
                bytearray(10_000)
            stop.wait(0.001)

    threads = [threading.Thread(target=busy) for _ in range(16)]
    for thread in threads:
        thread.start()
    try:
        with Sandbox(1, min_isolation="process") as fresh:  # its workers start while the threads run
            assert verdict_of(fresh) == "passed"
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def host_from_thread(sandbox, tmp_path):
    def work(_):
        with Sandbox(1, min_isolation="process") as own:
            return [verdict_of(own), verdict_of(own, "while True: pass"), verdict_of(own, "1/0")]

    with ThreadPoolExecutor(2) as executor:
        assert list(executor.map(work, range(2))) == [["passed", "timeout", "runtime_error"]] * 2


def host_env_timeout_str(sandbox, tmp_path):
    write_jsonl(tmp_path / "p.jsonl", [Problem("a", "s", tests=(Test("", "1\n"),)).to_json()])
    write_jsonl(tmp_path / "s.jsonl", [{"task_id": "a", "program": "print(1)"}])
    arguments = ["grade", str(tmp_path / "p.jsonl"), str(tmp_path / "s.jsonl"), "--out", str(tmp_path / "o")]
    environment = {"TIPPROBE_TIME_LIMIT_S": "0.5", "TIPPROBE_MIN_ISOLATION": "process"}
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "o" / "summary.json").read_text(encoding="utf-8"))
    assert summary["provenance"]["parameters"]["time_limit_s"] == 0.5
    result = CliRunner().invoke(app, arguments, env=environment | {"TIPPROBE_TIME_LIMIT_S": "soon"})
    assert result.exit_code == 2


def host_no_zombies(sandbox, tmp_path):
    # Idle workers that other tests have killed are zombies until their pool is used again.
    before = set(filter(is_zombie, psutil.Process().children(recursive=True)))
    verdicts = [verdict_of(sandbox, f"while True: pass  # {n}") for n in range(20)]
    assert set(verdicts) == {"timeout"}
    end = time.monotonic() + 10
    while set(filter(is_zombie, psutil.Process().children(recursive=True))) - before:
        assert time.monotonic() < end  # a supervisor that has just finished is one for a moment
        time.sleep(0.01)


def is_zombie(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def host_join_forever(sandbox, tmp_path):
    # Neither busy nor idle programs hold the caller: both kinds of limit end them.
    assert verdict_of(sandbox, "while True: pass") == "timeout"
    job = Job("import signal\nsignal.pause()", ("",), limits=Limits(cpu_s=0.2, wall_s=0.5))
    assert sandbox.run([job])[0][0].status == "wall_limit"
    stubborn = "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
    stubborn += (
        "    except OSError: pass\nwhile True:\n    try:\n        while True: pass\n    except: pass\n"
    )
    assert verdict_of(sandbox, stubborn) == "timeout"


def host_pickle_tests(sandbox, tmp_path):
    tests = [{"input": "1", "output": "2", "testtype": "stdin"}]
    plain = json.dumps(tests)
    packed = base64.b64encode(zlib.compress(pickle.dumps(plain))).decode()
    record = {"question_id": "q", "question_content": "c", "public_test_cases": plain, "metadata": "{}"}
    for private in (plain, packed):
        write_jsonl(tmp_path / "l.jsonl", [record | {"private_test_cases": private}])
        assert load_problems(str(tmp_path / "l.jsonl"))[0].tests == (Test("1", "2"),) * 2
    marker = tmp_path / "ran"
    payload = b"cpathlib\nPath\n(V" + str(marker).encode() + b"\ntR."
    evil = base64.b64encode(zlib.compress(payload)).decode()
    write_jsonl(tmp_path / "l.jsonl", [record | {"private_test_cases": evil}])
    with pytest.raises(DataError, match="more than text"):
        load_problems(str(tmp_path / "l.jsonl"))


def host_jsonl_u2028(sandbox, tmp_path):
    odd = "a\u2028b\x85c\x0bd\x0ce"
    for name, record in (
        ("p", {"id": odd, "statement": odd}),
        ("s", {"task_id": odd, "program": f"# {odd}"}),
    ):
        # \x0b and \x0c may not stand raw inside JSON strings: those two are escaped, the others are not.
        (tmp_path / f"{name}.jsonl").write_text(
            json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    problems = load_problems(str(tmp_path / "p.jsonl"))
    assert [problem.id for problem in problems] == [odd]
    by_id = {problem.id: problem for problem in problems}
    survey = survey_samples(tmp_path / "s.jsonl", by_id, {})
    assert survey.counts == {odd: 1}
    assert [sample.text for sample in read_samples(tmp_path / "s.jsonl", by_id, survey)] == [f"# {odd}"]


def host_infra_vs_verdict(sandbox, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        with (
            Sandbox(1, min_isolation="process") as broken,
            pytest.raises(SandboxError, match="/nowhere/python"),
        ):
            verdict_of(broken)
    with Sandbox(1, min_isolation="process") as pool:
        assert verdict_of(pool) == "passed"
        for slot in pool._slots:
            for worker in slot._processes.values():
                os.kill(worker._popen.pid, signal.SIGKILL)
        assert verdict_of(pool, "print(1)  # again") == "passed"  # a killed worker is replaced


def host_rlimit_inherited(sandbox, tmp_path):
    pytest.importorskip("numpy")
    with mmap.mmap(-1, 1 << 30), Sandbox(1, min_isolation="process") as pool:
        source = "import numpy as np\nprint(int(np.ones(1000).sum()))"
        problem = Problem("n", "", tests=(Test("", "1000\n"),))
        # This process' address space is larger than the limit.
        assert psutil.Process().memory_info().vms > 256 << 20
        assert grade([(problem, source)], pool, time_limit_s=10, memory_mb=256)[0].passed


@pytest.mark.parametrize("case", cases("host"))
def test_host(case, sandbox, tmp_path):
    globals()[case["id"].replace("-", "_")](sandbox, tmp_path)
