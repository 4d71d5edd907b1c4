import pytest

from tipprobe.errors import DataError
from tipprobe.probes.validity import extract_input, normalise, parse_arguments, static_reason
from tipprobe.problems.schema import Problem, Test

STDIN = Problem("s", "sum", examples=(Test("3\n1 2 3\n", "6"), Test("1\n-4\n", "-4")))
CALL = Problem(
    "c", "sort", kind="call", entry_point="f", examples=(Test("[3, 1], 2", "[1, 3]"), Test("[], 0", "[]"))
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2\n5 6\n", None),
        ("", "empty"),
        (" \n\n", "empty"),
        ("2\n5 six\n", "not_numeric"),
        ("2\n5 6.5\n", "not_integer"),
        ("2\n\n5 6\n", "blank_line"),
        ("2\n5\x00 6\n", "control_characters"),
        ("2\n5\u00a06\n", "control_characters"),
    ],
)
def test_stdin_reasons(text, reason):
    assert static_reason(text, STDIN) == reason


def test_commas_separate_values_too():
    problem = Problem("commas", "", examples=(Test("3,-1,2\n", ""),))
    assert static_reason("7, 8,9\n", problem) is None
    assert static_reason("7,eight\n", problem) == "not_numeric"


def test_without_examples_only_form_counts():
    bare = Problem("b", "anything")
    assert static_reason("two words\n\nand more\n", bare) is None
    assert static_reason("\x07", bare) == "control_characters"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1, 2], 3", None),
        ("[1, 2], 3\n", None),
        ("", "empty"),
        ("[1, 2], len('x')", "not_literal"),
        ("[1, 2], 3) or f(", "not_literal"),
        ("[1, 2], k=3", "not_literal"),
        ("[1, 2]", "wrong_arity"),
        ("(1, 2), 3", "wrong_type"),
        ("['a'], 3", "wrong_type"),
        ("[1, 2], True", "wrong_type"),
        ("[" * 300 + "]" * 300 + ", 1", "not_literal"),
    ],
)
def test_call_reasons(text, reason):
    assert static_reason(text, CALL) == reason


def test_an_int_passes_where_examples_show_floats():
    p = Problem("x", "", kind="call", entry_point="f", examples=(Test("1.5", "2"), Test("2.5", "3")))
    assert static_reason("3", p) is None
    assert static_reason("'3'", p) == "wrong_type"


def test_examples_with_more_than_literals_say_nothing():
    odd = (Test("[3, 1], k=2", "3"), Test("[4], inf", "4"))
    problem = Problem("o", "", kind="call", entry_point="f", examples=odd)
    assert static_reason("'anything'", problem) is None
    assert static_reason("[1], k=3", problem) == "not_literal"
    mixed = Problem("o", "", kind="call", entry_point="f", examples=(*odd, Test("[5, 6], 7", "6")))
    assert static_reason("[1]", mixed) == "wrong_arity"


def test_normalise():
    assert normalise("3 \r\n1 2  \r\n\r\n", STDIN) == "3\n1 2\n"
    assert normalise("[3,1] ,2", CALL) == "[3, 1], 2"
    assert normalise("('a') , {'k':1}", CALL) == "'a', {'k': 1}"
    assert normalise(" not valid( ", CALL) == "not valid("


def test_extract_input():
    assert extract_input("Here it is:\n```text\n2\n5 6\n```\nDone.", STDIN) == "2\n5 6\n"
    assert extract_input("2\n5 6\n", STDIN) == "2\n5 6\n"
    assert extract_input("f([1], 2)", CALL) == "[1], 2"
    assert extract_input("[1], 2", CALL) == "[1], 2"


def test_parse_arguments():
    assert parse_arguments("[1, 2], 'a'") == ([1, 2], "a")
    with pytest.raises(DataError, match="literals"):
        parse_arguments("open('x')")
