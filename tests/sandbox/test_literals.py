import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from tipprobe.sandbox.worker.literals import NotPlain, decode_arguments, decode_value, encode_value


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        pytest.param(10**6000, id="huge"),
        0.1,
        -math.inf,
        2 - 3j,
        "quote ' and \n line \ud800",
        b"\x00\xff",
        [],
        (),
        (1,),
        [[1, (2, [])], {}],
        set(),
        {3, 1, 2},
        frozenset({"a"}),
        frozenset(),
        {"k": [1.5, None], (1, 2): {"x"}},
    ],
)
def test_round_trip(value):
    back = decode_value(encode_value(value))
    assert back == value
    assert type(back) is type(value)


def test_nan_round_trip():
    assert math.isnan(decode_value(encode_value(math.nan)))


def test_equal_sets_and_dicts_encode_alike():
    assert encode_value({"b": 1, "a": 2}) == encode_value({"a": 2, "b": 1})
    assert encode_value({"ab", "c", "d"}) == encode_value({"d", "c", "ab"})


@pytest.mark.parametrize(
    ("value", "same_as"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(int, x=1), {"x": 1}),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
    ],
)
def test_library_values_that_stand_for_plain_ones(value, same_as):
    assert encode_value(value) == encode_value(same_as)


class Sly(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize(
    "value", [object(), Sly(1), [Sly(1)], {Sly(2): 1}, len, range(3), np.arange(3), iter([])]
)
def test_anything_else_is_refused(value):
    with pytest.raises(NotPlain):
        encode_value(value)


def test_deep_nesting_is_refused():
    value = []
    for _ in range(200):
        value = [value]
    with pytest.raises(NotPlain, match="deep"):
        encode_value(value)


@pytest.mark.parametrize(
    ("text", "args", "kwargs"),
    [
        ("", [], {}),
        ("[3, 1], 2", [[3, 1], 2], {}),
        ("1,\n n='x',", [1], {"n": "x"}),
        ("-1.5 # note", [-1.5], {}),
    ],
)
def test_argument_lists(text, args, kwargs):
    assert decode_arguments(text) == (args, kwargs)


@pytest.mark.parametrize(
    "text", ["1) + (2", "f(x)", "*[1]", "**{'a': 1}", "x", "1 2", "(", "__import__('os')", "9" * 5000]
)
def test_what_is_not_an_argument_list(text):
    with pytest.raises(ValueError, match=r"not an? "):
        decode_arguments(text)


@pytest.mark.parametrize(
    "text", ["1 + 1", "[i for i in []]", "...", "f''", "set(1)", "{**{}}", "(" * 300, "-'a'"]
)
def test_what_is_not_a_literal(text):
    with pytest.raises(ValueError, match="not a literal"):
        decode_value(text)
