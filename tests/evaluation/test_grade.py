"""Verdicts on whole programs, one pass, with and without a sandbox behind it."""

import pytest

from tipprobe.errors import DataError, ParameterError, SandboxError
from tipprobe.evaluation.grade import Failure, grade, limits_of, missing_modules, run_tests
from tipprobe.problems.schema import Problem, Test
from tipprobe.sandbox import Run

ADD = Problem("add", "", tests=tuple(Test(f"{n}\n", f"{n + 1}\n") for n in range(4)))
CALL = Problem("call", "", kind="call", entry_point="f", tests=(Test("1", "2"), Test("2", "[3]")))
ASSERTS = Problem("asserts", "", kind="unittest", entry_point="f", test_code="assert f(1) == 2\n")
RIGHT = "print(int(input()) + 1)"


def reasons(sandbox, *items, **options):
    verdicts = grade(list(items), sandbox, **({"time_limit_s": 5, "memory_mb": 256} | options))
    return [verdict.reason for verdict in verdicts]


class Scripted:
    """Gives a run for each (program, input), and counts; stops as the sandbox does."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def run(self, jobs, *, stop_when=None):
        results = []
        for number, job in enumerate(jobs):
            runs = [Run("skipped")] * len(job.inputs)
            for place, text in enumerate(job.inputs):
                self.asked.append((job.source, text))
                runs[place] = self.answers(job.source, text)
                if stop_when is not None and stop_when(number, place, runs[place]):
                    break
            results.append(runs)
        return results


def test_every_kind_of_outcome(sandbox):
    programs = [RIGHT, "print(1)", "print(", "1/0", "import no_such_module_here", "raise SystemExit(3)", None]
    programs += ["import numpy.no_such_part\n" + RIGHT]
    expected = [
        "passed",
        "wrong_output",
        "compile_error",
        "runtime_error",
        "missing_library",
        "runtime_error",
    ]
    assert reasons(sandbox, *[(ADD, program) for program in programs]) == [
        *expected,
        "no_code",
        "missing_library",
    ]
    calls = [
        "def f(n):\n    return 2 if n == 1 else [3]",
        "def f(n):\n    return 2",
        "def f(n):\n    return f",
    ]
    assert reasons(sandbox, *[(CALL, program) for program in calls]) == [
        "passed",
        "wrong_output",
        "bad_value",
    ]
    assert reasons(sandbox, (ASSERTS, "def f(n): return n + 1"), (ASSERTS, "f = len")) == [
        "passed",
        "runtime_error",
    ]


def test_details_tell_a_reader_which_test_and_why(sandbox):
    wrong, crash, missing = grade(
        [
            (ADD, "n = int(input())\nprint(1 if n == 0 else 'x' * 99)"),
            (ADD, "1/0"),
            (ADD, "import nowhere.at_all"),
        ],
        sandbox,
        time_limit_s=5,
        memory_mb=256,
    )
    assert wrong.detail.startswith("test 2 of 4: got 'xxxx") and "expected '2'" in wrong.detail
    assert len(wrong.detail) < 200
    assert crash.detail == "test 1 of 4: ZeroDivisionError: division by zero"
    assert missing.detail == "nowhere"
    assert wrong.cpu_s > 0


def test_a_program_stops_at_its_first_failure_and_equal_programs_run_once():
    def answers(source, text):
        return Run("ok", stdout=b"2" if source == "wrong" else b"%d" % (int(text) + 1), cpu_s=0.5)

    sandbox = Scripted(answers)
    items = [(ADD, "wrong"), (ADD, "right"), (ADD, "wrong"), (ADD, None), (ADD, "right")]
    verdicts = grade(items, sandbox, time_limit_s=1, memory_mb=64)
    assert [verdict.passed for verdict in verdicts] == [False, True, False, False, True]
    assert len(sandbox.asked) == 1 + 4
    assert [verdict.cpu_s for verdict in verdicts] == [0.5, 2.0, 0.5, 0.0, 2.0]


def test_problems_that_share_program_and_inputs_are_each_graded_to_their_end(sandbox):
    # The sandbox runs them as one and asks about the first only, which fails at once.
    other = Problem("zero", "", tests=tuple(Test(test.input, "0\n") for test in ADD.tests))
    third = Problem("late", "", tests=(*other.tests[:3], Test("3\n", "9\n")))
    assert reasons(sandbox, (ADD, "print(0)"), (other, "print(0)"), (third, "print(0)")) == [
        "wrong_output",
        "passed",
        "wrong_output",
    ]
    assert reasons(sandbox, (other, "print(0)"), (ADD, "print(0)")) == ["passed", "wrong_output"]


def test_flagged_problems_are_undecided_not_wrong(sandbox):
    flagged = Problem("any", "", tests=ADD.tests, meta={"grading": "multiple_answers"})
    assert reasons(sandbox, (flagged, RIGHT), (flagged, "print(9)"), (flagged, "1/0")) == [
        "passed",
        "undecided",
        "runtime_error",
    ]


def test_modes_change_the_comparison_and_the_prelude(sandbox):
    shout = Problem("shout", "", tests=(Test("", "YES"),))
    assert reasons(sandbox, (shout, "print('yes')")) == ["wrong_output"]
    assert reasons(sandbox, (shout, "print('yes')"), mode="codecontests") == ["passed"]
    program = "print('YES' if gcd(4, 6) == 2 else 'NO')\nsys.exit(5)"
    assert reasons(sandbox, (shout, program)) == ["runtime_error"]
    assert reasons(sandbox, (shout, program), mode="livecodebench") == ["passed"]
    assert reasons(sandbox, (ASSERTS, "def f(n): return n + 1"), mode="evalplus") == ["passed"]
    with pytest.raises(ParameterError, match="no mode"):
        reasons(sandbox, (shout, "x"), mode="lcb")
    with pytest.raises(DataError, match="evalplus"):
        reasons(sandbox, (shout, "x"), mode="evalplus")


def test_problems_without_tests_are_refused(sandbox):
    with pytest.raises(DataError, match="'none'"):
        reasons(sandbox, (Problem("none", ""), "x"))


def test_limits_are_the_larger_ones():
    problem = Problem("p", "", time_limit_s=3, meta={"memory_mb": 512})
    limits = limits_of(problem, 1, 64)
    assert (limits.cpu_s, limits.memory_mb) == (3, 512)
    limits = limits_of(problem, 9, 1024)
    assert (limits.cpu_s, limits.memory_mb) == (9, 1024)
    assert limits.output_bytes == 1 << 20


def test_right_programs_may_print_as_much_as_is_expected(sandbox):
    long = Problem("long", "", tests=(Test("", "ab" * 1_000_000),))
    assert limits_of(long, 1, 64).output_bytes == 4_000_000 + (1 << 16)
    programs = ["print('ab' * 1_000_000)", "while True: print('ab' * 1_000_000)"]
    assert reasons(sandbox, *[(long, program) for program in programs]) == ["passed", "output_limit"]
    call = Problem("c", "", kind="call", entry_point="f", tests=(Test("", repr("é" * 800_000)),))
    assert reasons(sandbox, (call, "def f(): return 'é' * 800_000")) == ["passed"]


def test_all_tests_run_when_a_reader_wants_to_see_them(sandbox):
    half = "n = int(input())\nprint(n + 1 if n % 2 else 'no')"
    items = [(ADD, RIGHT), (ADD, half), (ADD, "import sys\nsys.exit('why not')"), (ADD, None), (ADD, half)]
    right, odd, left, none, again = run_tests(items, sandbox, time_limit_s=5, memory_mb=256)
    assert (right.passed, right.n_tests, right.reason, right.failures) == (4, 4, "passed", ())
    assert (odd.passed, odd.n_tests, odd.reason) == (2, 4, "wrong_output")
    assert odd.failures == (Failure("0\n", "1\n", "no\n"), Failure("2\n", "3\n", "no\n"))
    assert odd is again
    assert left.reason == "runtime_error"
    assert left.failures[0].got == "runtime_error: why not"
    assert (none.passed, none.n_tests, none.reason) == (0, 4, "no_code")
    (few,) = run_tests([(ADD, half)], sandbox, time_limit_s=5, memory_mb=256, shown=1)
    assert len(few.failures) == 1


def test_in_process_tests_count_as_one(sandbox):
    programs = ["def f(n): return n + 1", "def f(n): return 5", "import sys\nsys.exit()"]
    reports = run_tests([(ASSERTS, p) for p in programs], sandbox, time_limit_s=5, memory_mb=256)
    assert [(r.passed, r.n_tests, r.reason) for r in reports] == [
        (1, 1, "passed"),
        (0, 1, "wrong_output"),
        (0, 1, "left_early"),
    ]
    assert reports[1].failures[0].got == "AssertionError"


def needing(*names, **meta):
    code = "".join(f"import {name}\n" for name in names) + "assert f()\n"
    return Problem(" ".join(names), "", kind="unittest", entry_point="f", test_code=code, meta=meta)


LIMITS = {"time_limit_s": 1, "memory_mb": 256}


def test_modules_are_missing_when_programs_cannot_import_them(sandbox):
    problems = [needing("json", "no_such_module_here"), needing("json.decoder")]
    assert missing_modules(problems, sandbox, **LIMITS) == {"no_such_module_here"}
    assert missing_modules([ADD], sandbox, **LIMITS) == set()


def test_imports_that_fail_for_another_reason_are_no_missing_modules():
    seen = []

    class Importing:
        def __init__(self, run):
            self.answer = run

        def run(self, jobs, *, stop_when=None):
            seen.extend((job.inputs[0], job.limits.memory_mb) for job in jobs)
            return [[self.answer] for _ in jobs]

    part = Run(
        "runtime_error", exit_code=1, stderr_tail="...\nImportError: libx.so: cannot open shared object\n"
    )
    assert missing_modules([needing("big")], Importing(part), **LIMITS) == {"big"}
    for run in (
        Run("memory_limit", stderr_tail="MemoryError\n"),
        Run("cpu_limit"),
        Run("runtime_error", exit_code=1, stderr_tail="ModuleNotFoundError: x\n\nOSError: [Errno 28]\n"),
    ):
        seen.clear()
        problems = [needing("big", memory_mb=4096), needing("big", "small"), needing("small")]
        with pytest.raises(SandboxError, match=rf"'big'.*{run.status}.*4096 MiB"):
            missing_modules(problems, Importing(run), **LIMITS)
        assert seen == [("big", 4096), ("small", 256)]
