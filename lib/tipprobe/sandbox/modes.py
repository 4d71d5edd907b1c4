"""How other graders compare, for parity with published numbers.

Each mode mirrors the *comparison* of one upstream grader, quirks included, as a pure function of two texts or
two plain values.  What is not mirrored: those graders run a program inside their own process, with a mocked
stdin, one time limit a suite, or shared folders.  Here a program always runs in the sandbox as it would from
a shell, so a program that upstream fails for such a reason passes.  Values were encoded by exact type when
they left the sandbox (`encode_value`): an object that claims to equal everything, which passes upstream, is
refused in every mode.

The project's own rules, mode ``strict``, are in `tipprobe.sandbox.compare`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any


@dataclass(frozen=True, slots=True)
class Mode:
    """One upstream grader's way of comparing.

    Attributes:
        mirrors: the upstream function and the version that was read.
        same_text: (printed, expected) -> equal; None where the grader knows no printing programs.
        same_value: (returned, expected) -> equal; None where it knows no functions.
        prelude: source put before every program.
        any_exit_code: whether leaving by ``sys.exit(3)`` counts as a normal end.
        published_values: whether an expected value is given as it was published, one that stood alone in a
            list (``meta["wrapped_values"]``) in that list.
    """

    mirrors: str
    same_text: Callable[[str, str], bool] | None = None
    same_value: Callable[[Any, Any], bool] | None = None
    prelude: str = ""
    any_exit_code: bool = False
    published_values: bool = False


# --- LiveCodeBench ----------------------------------------------------------------------------------------


def livecodebench_text(actual: str, expected: str) -> bool:
    """``lcb_runner/evaluation/testing_util.py: grade_stdio`` at 28fef95: as many lines after stripping the
    whole, and each pair equal after stripping or, token by token, the same `Decimal`.  No tolerance."""
    ours, theirs = (text.strip().split("\n") for text in (actual, expected))
    if len(ours) != len(theirs):
        return False
    pairs = [(a.strip(), b.strip()) for a, b in zip(ours, theirs, strict=True)]
    return all(a == b or _same_decimals(a, b) for a, b in pairs)


def _same_decimals(actual: str, expected: str) -> bool:
    try:
        return [Decimal(token) for token in actual.split()] == [Decimal(token) for token in expected.split()]
    except InvalidOperation:
        return False


def livecodebench_value(actual: Any, expected: Any) -> bool:
    """``grade_call_based`` of the same file: ``==`` after turning an outermost tuple into a list."""
    return (list(actual) if isinstance(actual, tuple) else actual) == expected


_STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
#: What LiveCodeBench lets a program take for granted.
LIVECODEBENCH_PRELUDE = (
    "\n".join(f"from {name} import *" for name in _STARRED)
    + f"\nimport {', '.join(name for name in _STARRED if name not in ('builtins', 'typing'))}"
    + "\nsys.setrecursionlimit(50_000)\n"
)


# --- CodeContests -----------------------------------------------------------------------------------------

_C_DOUBLE = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:e[+-]?\d++)?|[+-]?(?:inf|infinity|nan)", re.ASCII)


def codecontests_text(actual: str, expected: str) -> bool:
    """``execution/tester_sandboxer.cc: OutputsMatch`` at 8d1341a: lower-cased tokens in order, equal or both
    numbers less than 1e-5 apart as doubles, integers too; how they are spread over lines does not count.

    Hexadecimal floats, which the C++ parser takes for numbers, are text here.
    """
    ours, theirs = (_lower_tokens(text) for text in (actual, expected))
    if ours == theirs:
        return True
    return len(ours) == len(theirs) and all(map(_near_doubles, ours, theirs))


def _lower_tokens(text: str) -> list[str]:
    ascii_lower = text.translate({code: code + 32 for code in range(ord("A"), ord("Z") + 1)})
    return [token for token in re.split("[ \n\t\r\v]+", ascii_lower) if token]


def _near_doubles(actual: str, expected: str) -> bool:
    if not (_C_DOUBLE.fullmatch(actual) and _C_DOUBLE.fullmatch(expected)):
        return actual == expected
    return abs(float(actual) - float(expected)) < 1e-5  # False for nan and for inf - inf, as upstream


# --- TACO -------------------------------------------------------------------------------------------------


def taco_text(actual: str, expected: str) -> bool:
    """``metrics/testing_util.py: compare_std_results`` at 2ba6235, for an output that is one text.

    The cascade was written for lists of lines and is given a text: after the comparison of the stripped
    texts it looks at single *characters*.  What remains of it accepts

    * an output of digits alone, each the value of one expected line (``12`` for ``1\\n2``), within
      ``numpy.allclose``, and
    * an output whose tokens, each taken as its set of characters, are the expected lines, each taken as its
      set of tokens, without regard to order or repetition (``2 1`` for ``1\\n2``, ``12`` for ``1 2``).
    """
    if actual.strip() == expected.strip():
        return True
    lines = [line.strip() for line in expected.split("\n") if line]
    try:
        ours, theirs = [float(c) for c in actual], [float(line) for line in lines]
    except ValueError:
        pass
    else:
        near = (abs(a - b) <= 1e-8 + 1e-5 * abs(b) for a, b in zip(ours, theirs, strict=False))
        if len(ours) == len(theirs) and all(near):
            return True
    ours_sets, theirs_sets = map(frozenset, actual.split()), (frozenset(line.split()) for line in lines)
    ours_sets, theirs_sets = frozenset(ours_sets), frozenset(theirs_sets)
    if ours_sets == theirs_sets:
        return True
    try:
        return _rounded(ours_sets) == _rounded(theirs_sets)
    except ValueError:
        return False


def _rounded(sets: frozenset[frozenset[str]]) -> frozenset[frozenset[float]]:
    return frozenset(frozenset(round(float(token), 3) for token in tokens) for tokens in sets)


def taco_value(actual: Any, expected: Any) -> bool:
    """``execute_cb_code`` of the same file: ``==`` with the expected value or its first item, outermost
    tuples, and where the first item is a tuple all items, taken as lists."""
    first = expected[0] if isinstance(expected, list) and expected else _NOTHING
    actual = list(actual) if isinstance(actual, tuple) else actual
    if actual in (expected, first):
        return True
    if isinstance(actual, list) and actual and isinstance(actual[0], tuple):
        return all(isinstance(item, list | tuple) for item in actual) and [list(x) for x in actual] == first
    return False


_NOTHING = object()


# --- evalplus ---------------------------------------------------------------------------------------------


def evalplus_value(actual: Any, expected: Any) -> bool:
    """``evalplus/eval/__init__.py: unsafe_execute`` (0.3.1): ``==``, or where the expected value is a float
    or a flat sequence of floats of the same type and length, within 1e-6 plus 1e-7 of its size.

    Its oracles for single tasks, and the tolerance that stays set for later inputs, are not here: HumanEval+
    and MBPP+ records bring their own tests (`tipprobe.problems.inprocess`), whatever the mode.
    """
    if actual == expected:
        return True
    if type(actual) is not type(expected):
        return False
    if isinstance(expected, float):
        return _near_floats(actual, expected)
    if not isinstance(expected, list | tuple) or len(actual) != len(expected):
        return False
    floats = all(isinstance(item, float) for item in [*actual, *expected])
    return floats and all(map(_near_floats, actual, expected))


def _near_floats(actual: float, expected: float) -> bool:
    if math.isfinite(actual) and math.isfinite(expected):
        return abs(actual - expected) <= 1e-6 + 1e-7 * abs(expected)
    return actual == expected or (math.isnan(actual) and math.isnan(expected))


PARITY: dict[str, Mode] = {
    "livecodebench": Mode(
        "LiveCodeBench lcb_runner/evaluation/testing_util.py at 28fef95",
        livecodebench_text,
        livecodebench_value,
        LIVECODEBENCH_PRELUDE,
        any_exit_code=True,
    ),
    "codecontests": Mode(
        "code_contests execution/tester_sandboxer.cc at 8d1341a", same_text=codecontests_text
    ),
    "taco": Mode("TACO metrics/testing_util.py at 2ba6235", taco_text, taco_value, published_values=True),
    "evalplus": Mode("evalplus eval/__init__.py, 0.3.1", same_value=evalplus_value),
}
#: Names of all modes; the first is the default.
MODES = ("strict", *PARITY)
