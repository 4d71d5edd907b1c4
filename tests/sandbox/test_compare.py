import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem
from tipprobe.sandbox import Run, canonical, grading_flag, is_correct, vote_key
from tipprobe.sandbox.compare import _canonical_literal, _canonical_text

PRINTS = Problem("p", "")
RETURNS = Problem("c", "", kind="call", entry_point="f")


def printed(text):
    return Run("ok", stdout=text.encode())


def returned(value):
    return Run("ok", value=value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("5 \r\n6\t\n\n", "5\n6"),
        ("", "\n"),
        (" 10   20", "10 20"),
        ("2.50", "2.5"),
        ("3.0", "3"),
        ("-0.0", "0"),
        ("2e3", "2000"),
        ("0.1000004", "0.1"),
        ("1234567.1", "1234567.9"),
        ("area 0.333333", "area 0.3333333333"),
        ("nan", "nan"),
    ],
)
def test_printed_text_that_is_right(given, expected):
    assert is_correct(printed(given), expected, PRINTS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("5\n6\n7", "5\n6"),
        ("no", "No"),
        ("  ab", "ab"),
        ("a  b", "a b"),
        ("08", "8"),
        ("+8", "8"),
        ("1_0", "10"),
        ("6\n5", "5\n6"),
        ("100000001", "100000000"),
        ("7.0000001", "7"),
        ("0.101", "0.1"),
        ("area  0.5", "area 0.5000001"),
        ("x\x0cy", "x\ny"),
        ("18014398509481985", "18014398509481984"),
    ],
)
def test_printed_text_that_is_wrong(given, expected):
    assert not is_correct(printed(given), expected, PRINTS)


def test_a_problem_with_a_tolerance_accepts_near_integers_as_floats_only():
    loose = Problem("t", "", tolerance=1e-3)
    assert is_correct(printed("7.0001"), "7", loose)
    assert not is_correct(printed("100001"), "100000", loose)
    assert is_correct(printed("1\n2.5"), "1 2.5003", loose)
    assert not is_correct(printed("1\n2.5\n3"), "1 2.5", loose)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("(1, [2])", "[1, (2,)]"),
        ("1", "True"),
        ("2.0", "2"),
        ("0.30000000000000004", "0.3"),
        ("{2, 1}", "frozenset({1, 2})"),
        ("[0.5000001]", "[0.5]"),
        ("{'a': nan}", "{'a': float('nan')}"),
    ],
)
def test_values_that_are_right(given, expected):
    assert is_correct(returned(given), expected, RETURNS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("'3'", "3"),
        ("[1, 2]", "{1, 2}"),
        ("[50000000000000001]", "[50000000000000000]"),
        ("3.0000001", "3"),
        ("None", "0"),
        ("b'a'", "'a'"),
        ("{'1': 2}", "{1: 2}"),
        ("{1: 2}", "{'1': 2}"),
        ("[1]", "[1, 1]"),
        ("not a literal", "1"),
    ],
)
def test_values_that_are_wrong(given, expected):
    assert not is_correct(returned(given), expected, RETURNS)


@pytest.mark.parametrize(
    ("given", "expected", "right"),
    [
        ("{1: 'a'}", "{'1': 'a'}", True),
        ("[{'x': {-2: 0.3000001}}]", "[{'x': {'-2': 0.3}}]", True),
        ("{'1': 'a'}", "{'1': 'a'}", True),
        ("{1: 'b', '1': 'a'}", "{'1': 'a'}", False),  # one key, once both are text
        ("{'1': 'b', 1: 'a', 2: 0}", "{'1': 'a', '2': 0}", False),
        ("{1.0: 'a'}", "{'1': 'a'}", False),
        ("{1: 'a', 'x': 0}", "{'1': 'a', 'x': 0}", False),
        ("{'1': 'a'}", "{1: 'a'}", False),
    ],
)
def test_keys_that_json_turned_to_text(given, expected, right):
    stored = Problem("j", "", kind="call", entry_point="f", meta={"json_values": True})
    assert is_correct(returned(given), expected, stored) is right


def test_failed_runs_do_not_vote_and_are_not_right():
    for run in (Run("runtime_error", stdout=b"1"), Run("cpu_limit", stdout=b"1")):
        assert vote_key(run, PRINTS) is None
        assert not is_correct(run, "1", PRINTS)
    assert vote_key(Run("ok"), PRINTS) == ""


def test_votes_are_an_equivalence_and_agree_with_grading():
    texts = [
        "1",
        "1.0",
        "0.99999999999",
        "1.0000001",
        "1.00000000001",
        "01",
        "1 ",
        "1\n\n",
        "1 1",
        "1  1",
        "a 1",
        "a  1",
    ]
    keys = {text: vote_key(printed(text), PRINTS) for text in texts}
    assert keys["1"] == keys["1.0"] == keys["1 "] == keys["1\n\n"]
    assert len({keys["1"], keys["1.0000001"], keys["01"], keys["1 1"], keys["a 1"], keys["a  1"]}) == 6
    for a, b in itertools.product(texts, texts):
        if keys[a] == keys[b]:
            assert is_correct(printed(a), b, PRINTS)


def test_long_outputs_vote_by_hash():
    key = vote_key(printed("word " * 1000), PRINTS)
    assert key.startswith("sha256:") and len(key) < 100
    assert key == vote_key(printed("word " * 1000 + "\n"), PRINTS)


@pytest.mark.parametrize("end", ["x", "", ".5", "e", ".x", "e5x", " 2"])
def test_long_tokens_are_read_in_one_pass(end):
    # With a pattern that backtracks over the digits this would take hours.
    text = "1" * 1_000_000 + end
    assert is_correct(printed(text), text, PRINTS)
    assert not is_correct(printed("." + text), "3", PRINTS)


@pytest.mark.parametrize(
    "token", ["1", "-1", "0", "10", "1.", "1.5", ".5", "-.5", "0.0", "1e5", "1.e-5", ".5E+9"]
)
def test_tokens_that_are_numbers(token):
    assert canonical(token, PRINTS) == canonical(f" {token}", PRINTS)
    assert canonical(f"{token}  {token}", PRINTS).count("  ") == 0


@pytest.mark.parametrize(
    "token", ["", "-", ".", "-.", "e5", "01", "-00", "00.5", "1e", "1e99999", "+1", "1_0", "1.2.3"]
)
def test_tokens_that_are_text(token):
    assert canonical(f"x  {token}", PRINTS) == f"x  {token}".rstrip()


def test_long_texts_are_not_remembered():
    for problem, remembered, unit in ((PRINTS, _canonical_text, "12 "), (RETURNS, _canonical_literal, "12,")):
        remembered.cache_clear()
        assert canonical(unit * 4_000, problem) == canonical(unit * 4_000 + " ", problem)
        assert remembered.cache_info().currsize == 0
        canonical(unit, problem)
        assert remembered.cache_info().currsize == 1


def test_canonical_is_idempotent():
    for text in ["1.50 x", "2e3", "-0", "0.1234567890123", "1e-400", "5e9999"]:
        assert canonical(canonical(text, PRINTS), PRINTS) == canonical(text, PRINTS)


def test_expected_values_that_are_no_literals_are_the_problems_fault():
    with pytest.raises(DataError, match="'c'"):
        is_correct(returned("1"), "one", RETURNS)


TOKENS = st.sampled_from(
    ["1", "1.0", "01", "-0", "0.0", "2e3", "2000", "0.1", "0.10000000001", "x", "X", "1_0"]
)
BLANKS = st.sampled_from([" ", "  ", "\t", "\n", " \n", "\r\n", "\n\n"])
TEXTS = st.lists(st.tuples(TOKENS, BLANKS), max_size=5).map(lambda parts: "".join(a + b for a, b in parts))


@given(TEXTS, TEXTS, TEXTS)
def test_votes_are_an_equivalence_within_grading(a, b, c):
    keys = [vote_key(printed(text), PRINTS) for text in (a, b, c)]
    assert keys[0] is not None
    assert is_correct(printed(a), a, PRINTS)
    if keys[0] == keys[1]:
        assert is_correct(printed(a), b, PRINTS) and is_correct(printed(b), a, PRINTS)
        # What votes together is judged together, whatever the expected output: no tolerance lies between.
        if "." not in a + b + c:
            assert is_correct(printed(a), c, PRINTS) == is_correct(printed(b), c, PRINTS)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 1.0, -0.0])
    | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_votes_on_values_agree_with_grading(a, b):
    keys = [vote_key(returned(repr(value)), RETURNS) for value in (a, b)]
    assert (keys[0] == keys[1]) == is_correct(returned(repr(a)), repr(b), RETURNS)


def test_flags_are_those_that_are_known():
    assert grading_flag(PRINTS) is None
    assert grading_flag(Problem("m", "", meta={"grading": "interactive"})) == "interactive"
    assert grading_flag(Problem("m", "", meta={"grading": "exact"})) is None
