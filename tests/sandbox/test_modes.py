"""Each parity mode on pairs where it differs from ``strict``, and on pairs where all agree."""

import ast

import pytest

from tipprobe.errors import DataError, ParameterError
from tipprobe.problems.schema import Problem
from tipprobe.sandbox import Job, Run, is_correct
from tipprobe.sandbox.compare import check_mode, ended_well
from tipprobe.sandbox.modes import LIVECODEBENCH_PRELUDE, MODES, PARITY

PRINTS = Problem("p", "")
RETURNS = Problem("c", "", kind="call", entry_point="f")


def text(given, expected, mode):
    return is_correct(Run("ok", stdout=given.encode()), expected, PRINTS, mode)


def value(given, expected, mode):
    return is_correct(Run("ok", value=given), expected, RETURNS, mode)


@pytest.mark.parametrize(
    ("mode", "given", "expected"),
    [
        ("livecodebench", "   a b\n  c", "a b\nc"),  # indentation
        ("livecodebench", "\n\n7\n", "7"),  # leading empty lines
        ("livecodebench", "007", "7"),
        ("livecodebench", "1_000 +5", "1000 5"),
        ("livecodebench", "inf", "Infinity"),
        ("codecontests", "YES", "yes"),
        ("codecontests", "1\n2\n3", "1 2 3"),
        ("codecontests", "7.000001", "7"),
        ("codecontests", "a  b", "a b"),
        ("taco", "  x\n", "x"),
        ("taco", "2 1 1\n", "1\n2"),  # order and repetition
        ("taco", "12\n", "1 2\n"),  # characters for tokens
        ("taco", "12", "1\n2\n"),
    ],
)
def test_texts_that_only_the_mode_accepts(mode, given, expected):
    assert text(given, expected, mode)
    assert not text(given, expected, "strict")


@pytest.mark.parametrize(
    ("mode", "given", "expected"),
    [
        ("livecodebench", "0.30000000000000004", "0.3"),  # no tolerance
        ("livecodebench", "x 1.0", "x 1"),  # numbers beside text
        ("livecodebench", "nan 1", "nan 1.0"),  # no number equals nan
        ("codecontests", "123456789.12346", "123456789.12348"),  # absolute only
        ("taco", "1.0\n2.0\n", "1\n3"),
        ("taco", "0.5000001\nx", "0.5\nx"),
    ],
)
def test_texts_that_the_mode_refuses(mode, given, expected):
    assert not text(given, expected, mode)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "evalplus"])
def test_texts_on_which_all_modes_agree(mode):
    assert text("3 4\nabc\n", "3 4\nabc", mode)
    assert text("3 4\nabc", "3 4\nabc\n", mode)
    assert not text("3 5\nabc\n", "3 4\nabc", mode)
    assert not text("3 4\nabc\nx", "3 4\nabc", mode)
    assert not text("", "1", mode)


@pytest.mark.parametrize(
    ("mode", "given", "expected", "accepted", "in_strict"),
    [
        ("livecodebench", "(1, 2)", "[1, 2]", True, True),
        ("livecodebench", "[(1, 2)]", "[[1, 2]]", False, True),
        ("livecodebench", "0.30000000000000004", "0.3", False, True),
        ("taco", "5", "[5]", True, False),
        ("taco", "[(1, 2)]", "[[[1, 2]]]", True, False),
        ("taco", "[1, 2]", "[1, 3]", False, False),
        ("evalplus", "0.3000001", "0.3", True, True),
        ("evalplus", "[0.5000001, 1.0]", "[0.5, 1.0]", True, True),
        ("evalplus", "(1, 2)", "[1, 2]", False, True),
        ("evalplus", "[0.50001]", "[0.5]", False, False),
        ("evalplus", "[0.5000001, 1]", "[0.5, 1]", False, True),
        ("evalplus", "nan", "nan", True, True),
        ("evalplus", "1", "True", True, True),
    ],
)
def test_values(mode, given, expected, accepted, in_strict):
    assert value(given, expected, mode) is accepted
    assert value(given, expected, "strict") is in_strict


@pytest.mark.parametrize("mode", ["strict", "codecontests", "livecodebench", "taco"])
def test_long_tokens_are_read_in_one_pass(mode):
    long = "1" * 1_000_000
    for end in ("x", ".x", "ex"):
        assert text(long + end, long + end, mode)
        assert not text(long + end, "7", mode)


def test_leaving_by_exit_code_counts_in_one_mode_only():
    left = Run("runtime_error", stdout=b"5\n", exit_code=3)
    raised = Run(
        "runtime_error", stdout=b"5\n", exit_code=1, stderr_tail="Traceback (most recent call last):\n"
    )
    for mode in MODES:
        assert ended_well(left, mode) is (mode == "livecodebench")
        assert not ended_well(raised, mode)
        assert not ended_well(Run("cpu_limit", stdout=b"5\n"), mode)
    assert is_correct(left, "5", PRINTS, "livecodebench")


def test_the_prelude_brings_names_and_leaves_builtins(sandbox):
    ast.parse(LIVECODEBENCH_PRELUDE)
    source = LIVECODEBENCH_PRELUDE + "print(gcd(4, 6), Counter('aa')['a'], pow(2, 3, 5), len(deque([1])))"
    run = sandbox.run([Job(source, ("",))])[0][0]
    assert (run.status, run.stdout) == ("ok", b"2 2 3 1\n")


def test_unknown_modes_and_kinds_a_mode_does_not_know():
    with pytest.raises(ParameterError, match=r"no mode 'lcb'.*livecodebench"):
        check_mode("lcb")
    with pytest.raises(DataError, match=r"codecontests.*functions return.*'c'"):
        check_mode("codecontests", [PRINTS, RETURNS])
    with pytest.raises(DataError, match=r"evalplus.*programs print.*'p'"):
        text("1", "1", "evalplus")
    check_mode("evalplus", [Problem("u", "", kind="unittest", test_code="assert f()")])
    assert all(mode.mirrors for mode in PARITY.values())
