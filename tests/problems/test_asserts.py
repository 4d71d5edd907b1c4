"""Which asserts mean the same as a call with an expected value, and which do not."""

import pytest

from tipprobe.problems.asserts import (
    NotCalls,
    asserts_in_check,
    called_function,
    calls_of,
    doctest_calls,
    imports_of,
    signature_of,
)
from tipprobe.problems.schema import Test


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("assert f([3, 1], 2) == [1, 3]", Test("[3, 1], 2", "[1, 3]")),
        ("assert [1, 3] == f([3, 1], 2)", Test("[3, 1], 2", "[1, 3]")),
        ("assert f('a') is True", Test("'a'", "True")),
        ("assert (f(1)) == None, 'message'", Test("1", "None")),
        ("assert f(x=-2, y={1: 'b'}) == (1,)", Test("x=-2, y={1: 'b'}", "(1,)")),
        ("assert f() == {2, 1}", Test("", "{1, 2}")),
        ("assert f(1) == set([3])", Test("1", "{3}")),
        ("assert f(1e3) == 0.5", Test("1000.0", "0.5")),
    ],
)
def test_plain_comparisons_become_tests(source, test):
    assert calls_of([source], "f") == (test,)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("assert set(f(1)) == {1}", "inside another expression"),
        ("assert f(1)", "truth"),
        ("assert not f(1)", "truth"),
        ("assert math.isclose(f(1), 2.0)", "truth"),
        ("assert f(1) != 2", "other than =="),
        ("assert f(1) is x", "other than =="),
        ("assert 1 == f(1) == 1", "other than =="),
        ("assert f(n) == 2", "argument"),
        ("assert f(*[1]) == 2", "argument"),
        ("assert f(**{}) == 2", "argument"),
        ("assert f(1) == g(2)", "expected value"),
        ("assert g(1) == 2", "inside another expression"),
        ("x = 1", "no assert"),
        ("assert f(1) ==", "valid Python"),
        ("", "no asserts"),
    ],
)
def test_other_asserts_are_named(source, reason):
    with pytest.raises(NotCalls, match=reason):
        calls_of([source], "f")


def test_check_functions_are_unpacked():
    source = (
        "METADATA = {}\n\ndef check(candidate):\n    # a comment\n    assert candidate(1) == 2\n"
        "    assert True, 'placeholder'\n    assert candidate(2) == 3, 'why'\n"
    )
    tests = calls_of([asserts_in_check(source)], "f", alias="candidate")
    assert tests == (Test("1", "2"), Test("2", "3"))
    with pytest.raises(NotCalls, match="no check function"):
        asserts_in_check("def other():\n    pass\n")


def test_the_function_under_test_is_found():
    reference = "def helper(x):\n    return x\n\ndef area(r):\n    return helper(r)\n"
    assert called_function(["assert area(1) == 1"], reference) == "area"
    assert called_function(["assert set(area(1)) == 1"], reference) == "area"
    assert called_function(["assert other(1) == 1"], reference) is None
    assert called_function(["assert set(other(1)) == {1}"], None) == "other"
    assert called_function(["assert ("], None) is None


def test_signatures_and_imports():
    source = "import math\nfrom typing import List\n\ndef f(a: List[int], b=2, *, c) -> int:\n    return 1\n"
    assert signature_of(source, "f") == "def f(a: List[int], b=2, *, c) -> int:"
    assert signature_of(source, "g") == ""
    assert signature_of(None, "f") == ""
    assert imports_of(source) == "import math\nfrom typing import List"
    # Python 2 does not parse any more; the line itself still tells.
    assert signature_of("def f(a,\n      b):\n    print a\n", "f") == "def f(a, b):"
    assert imports_of("print a") == ""


def test_doctests_with_literals_are_examples():
    docstring = "Doubles.\n\n>>> f(2)\n4\n>>> f([1])\n[1, 1]\n>>> print(f(3))\n6\n>>> f(0)\n"
    assert doctest_calls(docstring, "f") == (Test("2", "4"), Test("[1]", "[1, 1]"))
    assert doctest_calls(">>>f(1)\n", "f") == ()
