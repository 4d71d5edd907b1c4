"""The cases of ``../shared/cases``, where that folder lies beside the checkout: every verdict as expected."""

import json
from pathlib import Path

import pytest

from tipprobe.problems.schema import Problem
from tipprobe.sandbox import Job, Limits, Run, extract_code, grading_flag, is_correct

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
    problem = Problem("case", "", kind=case["kind"], entry_point=job.entry_point)
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
