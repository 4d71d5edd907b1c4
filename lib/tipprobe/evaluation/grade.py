"""Deciding whether programs are correct, by the hidden tests."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem
from tipprobe.sandbox import Executor, Job, Limits, Run, is_correct
from tipprobe.sandbox.compare import output_text

#: Tests that every program runs on; only those that pass them run on the rest.  Most wrong programs fail at
#: once, so this spares about half of the executions and changes no verdict.
FIRST_TESTS = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of one program on a problem's tests.

    Attributes:
        passed: whether every test passed.
        reason: ``passed``, ``no_code``, ``wrong_output``, ``left_early`` (in-process tests that did not run
            to their end), or the status of the first run that failed (`tipprobe.sandbox.Run`).
    """

    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed test as a person would be shown it; texts may be long."""

    input: str
    expected: str
    got: str


@dataclass(frozen=True, slots=True)
class TestReport:
    """What one program did on every test of its problem.

    Attributes:
        passed: number of tests passed; a ``unittest`` problem counts as one test.
        n_tests: number of tests.
        reason: as in `Verdict`, by the first test that failed.
        failures: the first tests that failed.
    """

    __test__ = False  # not a pytest class

    passed: int
    n_tests: int
    reason: str
    failures: tuple[Failure, ...] = ()


def limits_of(problem: Problem, time_limit_s: float, memory_mb: int) -> Limits:
    """Return the limits of one execution: `time_limit_s`, or the problem's own limit if that is larger."""
    return Limits(cpu_s=max(time_limit_s, problem.time_limit_s), memory_mb=memory_mb)


def check_tests(problems: Iterable[Problem]) -> None:
    """Raise DataError if one of `problems` has nothing to grade a program with."""
    for problem in problems:
        if not problem.tests and problem.test_code is None:
            raise DataError(f"problem {problem.id!r} has no hidden tests to grade with")


def grade(
    items: Sequence[tuple[Problem, str | None]], sandbox: Executor, *, time_limit_s: float, memory_mb: int
) -> list[Verdict]:
    """Grade programs by their problems' hidden tests; equal programs of a problem are graded once.

    Args:
        items: problems with a program each, None where a reply held no program.
        sandbox: runs the programs.
        time_limit_s: CPU seconds of one execution (see `limits_of`).
        memory_mb: memory of one execution.

    Raises:
        DataError: a problem has no tests.
        SandboxError: the execution machinery failed.
    """
    check_tests(problem for problem, _ in items)
    unique = {(p.id, program): p for p, program in items if program is not None}
    token = secrets.token_hex(16)
    verdicts: dict[tuple[str, str], Verdict] = {}
    for first, last in ((0, FIRST_TESTS), (FIRST_TESTS, None)):
        open_ones = [key for key in unique if verdicts.get(key, _PASSED).passed]
        jobs = [
            _job(
                unique[key],
                key[1],
                slice(first, last),
                limits_of(unique[key], time_limit_s, memory_mb),
                token,
            )
            for key in open_ones
        ]
        for key, job, runs in zip(open_ones, jobs, sandbox.run(jobs), strict=True):
            if job.inputs:
                verdicts[key] = _verdict(unique[key], runs, slice(first, last), token)
    return [_NO_CODE if program is None else verdicts[problem.id, program] for problem, program in items]


def run_tests(
    items: Sequence[tuple[Problem, str | None]],
    sandbox: Executor,
    *,
    time_limit_s: float,
    memory_mb: int,
    shown: int = 3,
) -> list[TestReport]:
    """Run programs on *all* of their problems' tests, failed ones included; see `grade` for the arguments.

    Args:
        items, sandbox, time_limit_s, memory_mb: as in `grade`.
        shown: failed tests kept for a reader.

    Raises:
        DataError: a problem has no tests.
        SandboxError: the execution machinery failed.
    """
    check_tests(problem for problem, _ in items)
    unique = {(p.id, program): p for p, program in items if program is not None}
    token = secrets.token_hex(16)
    everything = slice(0, None)
    jobs = [
        _job(problem, program, everything, limits_of(problem, time_limit_s, memory_mb), token)
        for (_, program), problem in unique.items()
    ]
    reports = {
        key: _report(problem, runs, token, shown)
        for (key, problem), runs in zip(unique.items(), sandbox.run(jobs), strict=True)
    }
    return [
        TestReport(0, max(1, len(problem.tests)), "no_code")
        if program is None
        else reports[problem.id, program]
        for problem, program in items
    ]


def _report(problem: Problem, runs: Sequence[Run], token: str, shown: int) -> TestReport:
    if problem.test_code is not None:
        verdict = _verdict(problem, runs, slice(0, None), token)
        lines = [line for line in runs[0].stderr_tail.splitlines() if line.strip()]
        got = lines[-1] if lines else verdict.reason
        failures = () if verdict.passed else (Failure(problem.test_code, "", got),)
        return TestReport(int(verdict.passed), 1, verdict.reason, failures)
    failed = [
        (run, test)
        for run, test in zip(runs, problem.tests, strict=True)
        if not is_correct(run, test.expected, problem)
    ]
    reason = "passed" if not failed else "wrong_output" if failed[0][0].ok else failed[0][0].status
    failures = tuple(Failure(test.input, test.expected, _shown(run, problem)) for run, test in failed[:shown])
    return TestReport(len(problem.tests) - len(failed), len(problem.tests), reason, failures)


def _shown(run: Run, problem: Problem) -> str:
    """Return what a program gave: its output, or how it failed and the last line of its complaint."""
    if run.ok:
        return output_text(run, problem)
    lines = [line for line in run.stderr_tail.splitlines() if line.strip()]
    return f"{run.status}: {lines[-1]}" if lines else run.status


_PASSED = Verdict(True, "passed")
_NO_CODE = Verdict(False, "no_code")


def _job(problem: Problem, program: str, part: slice, limits: Limits, token: str) -> Job:
    if problem.test_code is not None:
        # Not run a second time: the tests of an in-process problem are all in the first part.
        inputs = ("",) if part.start == 0 else ()
        return Job(_with_tests(program, problem.test_code, token), inputs, None, limits)
    inputs = tuple(test.input for test in problem.tests[part])
    return Job(program, inputs, problem.entry_point if problem.kind == "call" else None, limits)


def _with_tests(program: str, test_code: str, token: str) -> str:
    """Return source that runs `program`, as an import would, then its tests, and prints `token` at the end.

    Without the token, a program that leaves the process early would count as passing.
    """
    return (
        "__name__ = 'candidate'\n"
        f"exec(compile({program!r}, 'candidate.py', 'exec'), globals())\n"
        f"{test_code}\n"
        f"print('\\n{token}')\n"
    )


def _verdict(problem: Problem, runs: Sequence[Run], part: slice, token: str) -> Verdict:
    if problem.test_code is not None:
        (run,) = runs
        if not run.ok:
            wrong = run.status == "runtime_error" and "AssertionError" in run.stderr_tail
            return Verdict(False, "wrong_output" if wrong else run.status)
        lines = run.stdout.rstrip().rsplit(b"\n", 1)
        return _PASSED if lines[-1] == token.encode() else Verdict(False, "left_early")
    for run, test in zip(runs, problem.tests[part], strict=True):
        if not is_correct(run, test.expected, problem):
            return Verdict(False, "wrong_output" if run.ok else run.status)
    return _PASSED
