"""What makes a raw probe usable before anything runs: form, length, and being new.

No check here executes a program or knows a hidden test.  Whether an input meets every constraint of a
statement cannot be decided statically; what can be is decided by comparison with the inputs of the public
examples.
"""

from __future__ import annotations

import ast
import re

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem
from tipprobe.sandbox.worker import literals

_FENCE = re.compile(r"```[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
#: What separates values on a line, beside blanks.
_SEPARATORS = re.compile(r"[\s,;]+")
_CONTROL = re.compile(r"[^\S\n\t ]|[\x00-\x08\x0b-\x1f\x7f]")
#: What `ast` raises on text that is no literal, nested too deep, or absurdly large.
_PARSE_ERRORS = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


def extract_input(reply: str, problem: Problem) -> str:
    """Return the probe input inside a model's reply.

    The content of the first code fence if there is one, else the whole reply; for call problems a full call
    ``name(args)`` is reduced to its arguments.
    """
    fenced = _FENCE.search(reply)
    text = fenced.group(1) if fenced else reply
    if problem.kind == "stdin":
        return text
    call = re.fullmatch(rf"\s*{re.escape(problem.entry_point or '')}\s*\((.*)\)\s*", text, re.DOTALL)
    return call.group(1) if call else text


def normalise(text: str, problem: Problem) -> str:
    """Return the canonical form of a probe: equal forms are the same probe.

    stdin: line ends become ``\\n``, blanks at line ends and blank lines at the end go, one ``\\n`` closes the
    text.  call: the literals are written the way `ast.unparse` does; text that does not parse is only
    stripped.
    """
    if problem.kind == "stdin":
        lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        return "\n".join(lines) + "\n"
    try:
        return ", ".join(ast.unparse(node) for node in _argument_nodes(text))
    except _PARSE_ERRORS:
        return text.strip()


def static_reason(text: str, problem: Problem) -> str | None:
    """Return why `text` cannot be an input of `problem`, None if nothing speaks against it.

    Reasons: ``empty``; ``control_characters``; stdin: ``not_numeric`` (every token of every example is a
    number, some token here is not), ``not_integer`` likewise, ``blank_line`` (no example has one inside);
    call: ``not_literal`` (not a list of Python literals), ``wrong_arity`` and ``wrong_type`` (differs from
    what all examples share).
    """
    if problem.kind == "stdin":
        return _stdin_reason(text, problem)
    return _call_reason(text, problem)


def parse_arguments(text: str) -> tuple[object, ...]:
    """Return the values of an argument list given as literals.

    Raises:
        DataError: the text is not a list of Python literals.
    """
    try:
        return tuple(ast.literal_eval(node) for node in _argument_nodes(text))
    except _PARSE_ERRORS as error:
        raise DataError(f"not a list of Python literals: {text[:80]!r}") from error


def literal_arguments(text: str) -> tuple[object, ...] | None:
    """Return what `parse_arguments` does, None where it raises: benchmarks have examples such as ``n=3``."""
    try:
        return parse_arguments(text)
    except DataError:
        return None


def _argument_nodes(text: str) -> list[ast.expr]:
    call = literals.parse_arguments(text.strip())
    if call.keywords:
        raise ValueError(f"not a plain argument list: {text[:80]!r}")
    return call.args


def _stdin_reason(text: str, problem: Problem) -> str | None:
    if not text.strip():
        return "empty"
    body = normalise(text, problem)
    if _CONTROL.search(body):
        return "control_characters"
    examples = [normalise(test.input, problem) for test in problem.examples]
    if not examples:
        return None
    for pattern, reason in ((_NUMBER, "not_numeric"), (_INTEGER, "not_integer")):
        shared = all(pattern.fullmatch(token) for example in examples for token in _tokens(example))
        if shared and not all(pattern.fullmatch(token) for token in _tokens(body)):
            return reason
    if "\n\n" in body and not any("\n\n" in example for example in examples):
        return "blank_line"
    return None


def _tokens(text: str) -> list[str]:
    return [token for token in _SEPARATORS.split(text) if token]


def _call_reason(text: str, problem: Problem) -> str | None:
    if not text.strip():
        return "empty"
    arguments = literal_arguments(text)
    if arguments is None:
        return "not_literal"
    examples = [known for test in problem.examples if (known := literal_arguments(test.input)) is not None]
    if not examples:
        return None
    if len({len(example) for example in examples}) == 1:
        if len(arguments) != len(examples[0]):
            return "wrong_arity"
        columns = zip(arguments, zip(*examples, strict=True), strict=True)
        if any(not _same_type(value, column) for value, column in columns):
            return "wrong_type"
    return None


def _same_type(value: object, column: tuple[object, ...]) -> bool:
    """Whether `value` has the type that all example values share (an int passes for a float)."""
    types = {type(example) for example in column}
    if types <= {int, float} and types & {float}:
        types = {int, float}
    if len(types) > 1 and types != {int, float}:
        return True  # the examples themselves differ, so anything goes
    if type(value) not in types:
        return False
    if isinstance(value, list | tuple):
        seen = tuple(item for example in column for item in example)  # type: ignore[attr-defined]
        return all(_same_type(item, seen) for item in value) if seen else True
    return True
