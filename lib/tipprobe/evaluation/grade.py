"""Deciding whether programs are correct, by the hidden tests."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tipprobe.errors import DataError, SandboxError
from tipprobe.problems.inprocess import count_test_methods, guarded_source, imported_names, outcome_of
from tipprobe.problems.schema import Problem, Test
from tipprobe.sandbox import Executor, Job, Limits, Run, grading_flag, is_correct
from tipprobe.sandbox.compare import check_mode, ended_well, output_text
from tipprobe.sandbox.modes import PARITY

#: Outcomes of a run that stand, whatever the program itself printed about its in-process tests.
_LIMITS = ("signal", "cpu_limit", "wall_limit", "memory_limit", "output_limit")
_OUTPUT_BYTES = Limits().output_bytes
_NOT_IMPORTED = re.compile(r"(?:ModuleNotFoundError|ImportError)\b")
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of one program on a problem's tests.

    Attributes:
        passed: whether every test passed.
        reason: ``passed``; ``no_code``; ``wrong_output``; ``undecided`` (an output other than the published
            one, of a problem whose tests cannot prove a program wrong: `grading_flag`); ``missing_library``
            (`detail` names it); of in-process tests also ``left_early`` (they did not run to their end),
            ``no_tests`` (every one was skipped) and ``tampered`` (the program rebound what they rely on); or
            the status of the first run that failed (`tipprobe.sandbox.Run`).
        detail: what a reader wants to know beyond the reason, one line.
        cpu_s: CPU seconds of all its executions; equal programs share theirs.
    """

    passed: bool
    reason: str
    detail: str = field(default="", compare=False)
    cpu_s: float = field(default=0.0, compare=False)


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
    """Return the limits of one execution: the arguments, or the problem's own limits where those are larger
    (``meta["memory_mb"]`` for memory).  Output may be twice as long as the longest one that is expected."""
    memory_mb = max(memory_mb, problem.meta.get("memory_mb", 0))
    longest = max((len(test.expected.encode("utf-8", "surrogatepass")) for test in problem.tests), default=0)
    return Limits(
        cpu_s=max(time_limit_s, problem.time_limit_s),
        memory_mb=memory_mb,
        output_bytes=max(_OUTPUT_BYTES, 2 * longest + (1 << 16)),
    )


def check_tests(problems: Iterable[Problem]) -> None:
    """Raise DataError if one of `problems` has nothing to grade a program with."""
    for problem in problems:
        if not problem.tests and problem.test_code is None:
            raise DataError(f"problem {problem.id!r} has no hidden tests to grade with")
        if problem.test_code is not None and count_test_methods(problem.test_code) == 0:
            raise DataError(
                f"problem {problem.id!r}: its class TestCases has no test method, and an empty suite would "
                "pass every program"
            )


def grade(
    items: Sequence[tuple[Problem, str | None]],
    sandbox: Executor,
    *,
    time_limit_s: float,
    memory_mb: int,
    mode: str = "strict",
) -> list[Verdict]:
    """Grade programs by their problems' hidden tests; equal programs of a problem are graded once.

    A program stops at the first test that it fails: most wrong programs fail at once.

    Args:
        items: problems with a program each, None where a reply held no program.
        sandbox: runs the programs.
        time_limit_s: CPU seconds of one execution (see `limits_of`).
        memory_mb: memory of one execution.
        mode: whose rules to compare by (`tipprobe.sandbox.modes`); in-process tests bring their own.

    Raises:
        DataError: a problem has no tests, or the mode knows no problems of its kind.
        ParameterError: there is no such mode.
        SandboxError: the execution machinery failed.
    """
    problems = list({id(problem): problem for problem, _ in items}.values())
    check_tests(problems)
    check_mode(mode, problems)
    unique = {(p.id, program): p for p, program in items if program is not None}
    token = secrets.token_hex(16)
    jobs = [
        _job(problem, program, limits_of(problem, time_limit_s, memory_mb), token, mode)
        for (_, program), problem in unique.items()
    ]
    of_job = list(unique.values())

    def failed(number: int, place: int, run: Run) -> bool:
        problem = of_job[number]
        return problem.test_code is None and not is_correct(run, problem.tests[place].expected, problem, mode)

    runs = sandbox.run(jobs, stop_when=failed)
    # Where two problems share a program and inputs, one decided when both stop: the other may not be settled.
    cut = [n for n, outcome in enumerate(runs) if _unsettled(of_job[n], outcome, mode)]
    for number, outcome in zip(cut, sandbox.run([jobs[n] for n in cut]), strict=True):
        runs[number] = outcome
    verdicts = {
        key: _verdict(problem, outcome, token, mode)
        for (key, problem), outcome in zip(unique.items(), runs, strict=True)
    }
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
    jobs = [
        _job(problem, program, limits_of(problem, time_limit_s, memory_mb), token)
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


def needed_modules(problem: Problem) -> set[str]:
    """Return the top-level modules without which no program of a problem can be graded: those that its
    in-process tests and its reference import."""
    if problem.test_code is None:
        return set()
    return {name.partition(".")[0] for name in imported_names(problem.test_code, problem.reference or "")}


def missing_modules(
    problems: Iterable[Problem], sandbox: Executor, *, time_limit_s: float, memory_mb: int
) -> set[str]:
    """Return the modules that `problems` need (`needed_modules`) and programs in `sandbox` cannot import.

    Each is tried on its own, with at least a minute and the largest memory of the problems that need it.

    Raises:
        SandboxError: an import failed for another reason than that the module, or a part of it, is not there.
    """
    memory: dict[str, int] = {}
    for problem in problems:
        limits = limits_of(problem, time_limit_s, memory_mb)
        for name in needed_modules(problem):
            memory[name] = max(memory.get(name, 0), limits.memory_mb)
    names = sorted(memory)
    source = "import importlib, sys\nimportlib.import_module(sys.stdin.read())\n"
    seconds = max(60.0, time_limit_s)
    jobs = [Job(source, (name,), limits=Limits(cpu_s=seconds, memory_mb=memory[name])) for name in names]
    missing = set()
    for name, (run,) in zip(names, sandbox.run(jobs), strict=True):
        last = _last_line(run.stderr_tail)
        if run.status == "runtime_error" and _NOT_IMPORTED.match(last):
            missing.add(name)
        elif not run.ok:
            raise SandboxError(
                f"the problems need the module {name!r}, which can be found but not be imported by a program "
                f"here ({run.status}{last and f': {last}'}, {memory[name]} MiB): mend its installation, or "
                "allow more memory"
            )
    return missing


def _report(problem: Problem, runs: Sequence[Run], token: str, shown: int) -> TestReport:
    verdict = _verdict(problem, runs, token)
    if problem.test_code is not None:
        got = verdict.detail or verdict.reason
        failures = () if verdict.passed else (Failure(problem.test_code, "", got),)
        return TestReport(int(verdict.passed), 1, verdict.reason, failures)
    failed = [
        (run, test)
        for run, test in zip(runs, problem.tests, strict=True)
        if not is_correct(run, test.expected, problem)
    ]
    failures = tuple(Failure(test.input, test.expected, _shown(run, problem)) for run, test in failed[:shown])
    return TestReport(len(problem.tests) - len(failed), len(problem.tests), verdict.reason, failures)


def _shown(run: Run, problem: Problem) -> str:
    """Return what a program gave: its output, or how it failed and the last line of its complaint."""
    if run.ok:
        return output_text(run, problem)
    last = _last_line(run.stderr_tail)
    return f"{run.status}: {last}" if last else run.status


def _last_line(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    return lines[-1].strip() if lines else ""


_NO_CODE = Verdict(False, "no_code")


def _job(problem: Problem, program: str, limits: Limits, token: str, mode: str = "strict") -> Job:
    if problem.test_code is not None:
        source = guarded_source(
            program, problem.test_code, token, entry_point=problem.entry_point, reference=problem.reference
        )
        return Job(source, ("",), None, limits)
    inputs = tuple(test.input for test in problem.tests)
    prelude = PARITY[mode].prelude if mode in PARITY else ""
    return Job(prelude + program, inputs, problem.entry_point if problem.kind == "call" else None, limits)


def _verdict(problem: Problem, runs: Sequence[Run], token: str, mode: str = "strict") -> Verdict:
    cpu_s = sum(run.cpu_s for run in runs)
    if problem.test_code is not None:
        return _in_process_verdict(runs[0], token)
    for number, (run, test) in enumerate(zip(runs, problem.tests, strict=True), 1):
        if is_correct(run, test.expected, problem, mode):
            continue
        where = f"test {number} of {len(problem.tests)}"
        if not ended_well(run, mode):
            missing = _MISSING.findall(run.stderr_tail) if run.status == "runtime_error" else ()
            if missing:
                return Verdict(False, "missing_library", missing[-1].partition(".")[0], cpu_s)
            return Verdict(False, run.status, f"{where}: {_last_line(run.stderr_tail) or run.status}", cpu_s)
        reason = "wrong_output" if grading_flag(problem) is None else "undecided"
        return Verdict(False, reason, f"{where}: {_difference(run, test, problem)}", cpu_s)
    return Verdict(True, "passed", "", cpu_s)


def _unsettled(problem: Problem, runs: Sequence[Run], mode: str) -> bool:
    """Whether no run fails before those that were skipped."""
    for place, run in enumerate(runs):
        if run.status == "skipped":
            return True
        if problem.test_code is None and not is_correct(run, problem.tests[place].expected, problem, mode):
            return False
    return False


def _difference(run: Run, test: Test, problem: Problem) -> str:
    got, expected = (text.strip() for text in (output_text(run, problem), test.expected))
    start = next((n for n, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), 0)
    start = max(0, start - 20) if start > 40 else 0  # what long outputs have in common tells nothing
    got, expected = (
        ("…" if start else "") + text[start : start + 60] + ("…" if len(text) > start + 60 else "")
        for text in (got, expected)
    )
    return f"got {got!r}, expected {expected!r}"


def _in_process_verdict(run: Run, token: str) -> Verdict:
    said = outcome_of(run.stdout, token)
    if run.status in _LIMITS or (said is None and not run.ok):
        return Verdict(False, run.status, _last_line(run.stderr_tail), run.cpu_s)
    reason, detail = said or ("left_early", "the process ended before its tests did")
    if reason == "passed" and not run.ok:  # it failed while it shut down
        reason, detail = run.status, _last_line(run.stderr_tail)
    return Verdict(reason == "passed", reason, detail, run.cpu_s)
