"""Comparing outputs on the caller's side: one normaliser for votes and for grading.

Rules for printed text: line ends are unified, trailing blanks and trailing empty lines do not count, a
token that is a decimal number stands for its value (``1.0`` is ``1``; ``007``, ``1_000``, ``+5`` and
``Infinity`` are text), and on a line of numbers only, the amount of space between them does not count.
Letter case, indentation of text, and the order of lines and tokens do.

Rules for returned values: Python's ``==`` on plain built-in types, except that a tuple equals a list with the
same items.

Numbers written with a point or an exponent are rounded to ten significant digits.  Rounding, unlike a
tolerance, is transitive, so equality of canonical texts is an equivalence and can be voted with.  Grading
accepts equal canonical texts, and beyond them a tolerance where the problem or the expected number calls
for one: outputs that vote together can therefore only be told apart by that tolerance.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

from tipprobe.errors import DataError, ParameterError
from tipprobe.problems.schema import Problem
from tipprobe.sandbox.modes import MODES, PARITY, Mode
from tipprobe.sandbox.types import Run
from tipprobe.sandbox.worker.literals import NotPlain, decode_value, encode_value

DEFAULT_TOLERANCE = (
    1e-6  # absolute and relative, where the expected number is a float and the problem names none
)
SIGNIFICANT_DIGITS = 10
_LONGEST_REMEMBERED = 10_000  # characters
_LONGEST_KEY = 1_000  # characters; longer canonical texts are replaced by their hash in votes

# No two parts can match the same characters, so a long token that is no number is refused in one pass.
_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,4})?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_ROUND = Context(prec=SIGNIFICANT_DIGITS)
_BLANKS = re.compile(r"([ \t]+)")


def vote_key(run: Run, problem: Problem) -> str | None:
    """Return what a run votes for: canonical output, or None if it failed on this input.

    Equal keys mean equal behaviour; the relation is an equivalence.  Keys longer than 1,000 characters are
    replaced by a hash.
    """
    if not run.ok:
        return None
    try:
        key = canonical(output_text(run, problem), problem)
    except ValueError:
        return None
    if len(key) <= _LONGEST_KEY:
        return key
    return f"sha256:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


def is_correct(run: Run, expected: str, problem: Problem, mode: str = "strict") -> bool:
    """Return whether a run ended well and gave the expected output.

    Where the problem has a `grading_flag`, False means only that the output is not the published one.

    Args:
        run: of one test.
        expected: the test's output.
        problem: what kind of output it is, and the tolerance in mode ``strict``.
        mode: whose rules to compare by, see `tipprobe.sandbox.modes`.

    Raises:
        DataError: `expected` of a call problem is not a literal, or the mode knows no problems of this kind.
        ParameterError: there is no such mode.
    """
    rules = _rules(mode)
    if not ended_well(run, mode):
        return False
    actual = output_text(run, problem)
    if problem.kind == "call":
        try:
            wanted = decode_value(expected)
        except ValueError as error:
            raise DataError(f"problem {problem.id!r}: expected value is {error}") from error
        try:
            given = decode_value(actual)
        except ValueError:
            return False
        if rules is not None:
            published = [wanted] if rules.published_values and problem.meta.get("wrapped_values") else wanted
            return _of_kind(rules.same_value, mode, problem)(given, published)
        same = _ValueRules(problem.tolerance, bool(problem.meta.get("json_values"))).same
        return _canonical_value(given) == _canonical_value(wanted) or same(given, wanted)
    if rules is not None:
        return _of_kind(rules.same_text, mode, problem)(actual, expected)
    return canonical(actual, problem) == canonical(expected, problem) or _same_text(
        actual, expected, problem.tolerance
    )


def ended_well(run: Run, mode: str = "strict") -> bool:
    """Return whether a run ended in a way that leaves its output to be compared."""
    rules = _rules(mode)
    if run.ok or rules is None or not rules.any_exit_code:
        return run.ok
    return run.status == "runtime_error" and bool(run.exit_code) and "Traceback (most" not in run.stderr_tail


def check_mode(mode: str, problems: Iterable[Problem] = ()) -> None:
    """Raise ParameterError if there is no such mode, DataError if it cannot compare one of the problems."""
    rules = _rules(mode)
    for problem in problems:
        if rules is not None and problem.kind != "unittest":
            _of_kind(rules.same_value if problem.kind == "call" else rules.same_text, mode, problem)


def _rules(mode: str) -> Mode | None:
    """Return what a parity mode compares by, None for ``strict``."""
    if mode not in MODES:
        raise ParameterError(f"no mode {mode!r}: the modes are {', '.join(MODES)}")
    return PARITY.get(mode)


def _of_kind(
    compare: Callable[[Any, Any], bool] | None, mode: str, problem: Problem
) -> Callable[[Any, Any], bool]:
    if compare is None:
        what = "values that functions return" if problem.kind == "call" else "what programs print"
        raise DataError(f"mode {mode!r} does not compare {what}, as problem {problem.id!r} needs: use strict")
    return compare


#: Why comparing with the one published output may misjudge a right program, as ``meta["grading"]`` says.
FLAGS: dict[str, str] = {
    "checker": "the judges use a checker, which the record does not bring or which is not run here",
    "multiple_answers": "the statement accepts any of several answers",
    "interactive": "the program would have to talk with a judge",
    "wrong_tests": "the benchmark's authors list its statement or tests as wrong",
}


def grading_flag(problem: Problem) -> str | None:
    """Return why the tests of `problem` cannot prove a program wrong (a key of `FLAGS`), None if they can."""
    flag = problem.meta.get("grading")
    return flag if flag in FLAGS else None


def output_text(run: Run, problem: Problem) -> str:
    """The text that is compared: what a program printed, or the literal a function returned."""
    if problem.kind == "call":
        return run.value or ""
    return run.stdout.decode("utf-8", "replace")


def canonical(text: str, problem: Problem) -> str:
    """Return the one spelling shared by all equal outputs.

    Raises:
        ValueError: the problem is a call problem and `text` is not a literal.
    """
    spell = _canonical_literal if problem.kind == "call" else _canonical_text
    # Long texts are not remembered: thousands of them would fill gigabytes.
    return spell(text) if len(text) <= _LONGEST_REMEMBERED else spell.__wrapped__(text)


# --- printed text -----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _canonical_text(text: str) -> str:
    return "\n".join([_canonical_line(line) for line in _lines(text)])


def _lines(text: str) -> list[str]:
    """Split at line feeds only: form feeds, U+2028 and the like are part of a line."""
    lines = [line.rstrip(" \t\r") for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _canonical_line(line: str) -> str:
    parts = _BLANKS.split(line)  # tokens at even places, the blanks between them at odd ones
    tokens = [_canonical_number(token) for token in parts[::2] if token]
    if None not in tokens:
        return " ".join(tokens)
    parts[::2] = [_canonical_number(token) or token if token else token for token in parts[::2]]
    return "".join(parts)


def _canonical_number(token: str) -> str | None:
    """Return one spelling for every way to write a number, None if the token is no number."""
    if _INTEGER.fullmatch(token):
        return "0" if token == "-0" else token
    value = _number(token)
    if value is None:
        return None
    if value != value.to_integral_value():
        value = _ROUND.plus(value)
    return _spell(value)


def _number(token: str) -> Decimal | None:
    """Return the exact value of a number token, None if it is text."""
    if not _NUMBER.fullmatch(token):
        return None
    return Decimal(token)


def _spell(value: Decimal) -> str:
    """Write a number by its value: integers in full, the rest as digits and exponent."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    if not stripped:
        return "0"
    if 0 <= exponent <= 400:
        return "-" * sign + stripped + "0" * exponent
    return f"{'-' * sign}{stripped}e{exponent}"


def _same_text(actual: str, expected: str, tolerance: float) -> bool:
    """Compare line by line and token by token, numbers within a tolerance where one applies.

    Where the problem has a tolerance, tokens alone are compared and line breaks do not count: such problems
    come from judges whose checkers read tokens.
    """
    if tolerance > 0:
        ours, theirs = actual.split(), expected.split()
        return len(ours) == len(theirs) and all(
            _same_token(a, b, tolerance) for a, b in zip(ours, theirs, strict=True)
        )
    ours, theirs = _lines(actual), _lines(expected)
    if len(ours) != len(theirs):
        return False
    return all(_same_line(a, b) for a, b in zip(ours, theirs, strict=True))


def _same_line(actual: str, expected: str) -> bool:
    if _canonical_line(actual) == _canonical_line(expected):
        return True
    ours, theirs = actual.split(), expected.split()
    if len(ours) != len(theirs):
        return False
    if any(_number(token) is None for token in theirs) and _BLANKS.findall(actual) != _BLANKS.findall(
        expected
    ):
        return False
    return all(_same_token(a, b, 0.0) for a, b in zip(ours, theirs, strict=True))


def _same_token(actual: str, expected: str, tolerance: float) -> bool:
    if actual == expected or (_canonical_number(actual) or actual) == (
        _canonical_number(expected) or expected
    ):
        return True
    a, b = _number(actual), _number(expected)
    if a is None or b is None:
        return False
    whole = [_INTEGER.fullmatch(token) is not None for token in (actual, expected)]
    if all(whole) or (whole[1] and tolerance == 0):
        return False
    return _close(float(a), float(b), tolerance)


def _close(actual: float, expected: float, tolerance: float) -> bool:
    tolerance = tolerance or DEFAULT_TOLERANCE
    return math.isclose(actual, expected, rel_tol=tolerance, abs_tol=tolerance)


# --- returned values --------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _canonical_literal(text: str) -> str:
    return _canonical_value(decode_value(text))


def _canonical_value(value: Any) -> str:
    return encode_value(_simplify(value))


def _simplify(value: Any) -> Any:
    """Map values that compare equal to one of them: bools and whole floats to int, tuples to lists, ..."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        return int(value) if value.is_integer() else float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if isinstance(value, complex):
        real, imag = _simplify(value.real), _simplify(value.imag)
        return real if imag == 0 else complex(real, imag)
    if isinstance(value, list | tuple):
        return [_simplify(item) for item in value]
    if isinstance(value, set | frozenset):
        return frozenset(map(_simplify_hashable, value))
    if isinstance(value, dict):
        return {_simplify_hashable(key): _simplify(item) for key, item in value.items()}
    return value


def _simplify_hashable(value: Any) -> Any:
    """Like `_simplify` for members of sets and keys: a tuple stays one, for a list has no hash."""
    if isinstance(value, tuple):
        return tuple([_simplify_hashable(item) for item in value])
    return _simplify(value)


@dataclass(frozen=True, slots=True)
class _ValueRules:
    """What may differ between a returned value and the expected one.

    Attributes:
        tolerance: the problem's, 0 for none.
        json_values: whether the expected value was stored as JSON, which has no other keys than text: "1"
            stands for 1 then.
    """

    tolerance: float
    json_values: bool

    def same(self, actual: Any, expected: Any) -> bool:
        """Compare values part by part, numbers within a tolerance where one applies."""
        if isinstance(expected, bool | int | float):
            return self._same_number(actual, expected)
        if isinstance(expected, list | tuple):
            return (
                isinstance(actual, list | tuple)
                and len(actual) == len(expected)
                and all(map(self.same, actual, expected))
            )
        if isinstance(expected, dict):
            return isinstance(actual, dict) and self._same_dict(actual, expected)
        if isinstance(expected, complex):
            return isinstance(actual, complex) and _canonical_value(actual) == _canonical_value(expected)
        return _plain_equal(actual, expected)

    def _same_number(self, actual: Any, expected: float) -> bool:
        if not isinstance(actual, bool | int | float):
            return False
        if _canonical_value(actual) == _canonical_value(expected):
            return True
        if not isinstance(actual, float) and not isinstance(expected, float):
            return False
        if not isinstance(expected, float) and self.tolerance == 0:
            return False
        return _close(float(actual), float(expected), self.tolerance)

    def _same_dict(self, actual: dict[Any, Any], expected: dict[Any, Any]) -> bool:
        if len(actual) != len(expected):
            return False
        if self.json_values and all(isinstance(key, str) and _INTEGER.fullmatch(key) for key in expected):
            # {1: ..., "1": ...} has fewer items afterwards, and is refused.
            actual = {str(key) if type(key) is int else key: item for key, item in actual.items()}
        return len(actual) == len(expected) and all(
            key in actual and self.same(actual[key], item) for key, item in expected.items()
        )


def _plain_equal(actual: Any, expected: Any) -> bool:
    try:
        return _canonical_value(actual) == _canonical_value(expected)
    except NotPlain:
        return False
