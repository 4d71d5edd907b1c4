"""From assert statements, as benchmarks publish them, to calls with expected values.

A problem whose every assert says ``f(literals) == literal`` becomes a ``call`` problem: its inputs are plain
text, so that probes, examples and hidden tests look alike and each runs in its own process.  Anything else
(``set(f(x)) == ...``, ``not f(x)``, ``math.isclose(f(x), y)``) would mean something else once rewritten; such
a problem keeps its asserts as source and is graded in process.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterable
from doctest import DocTestParser

from tipprobe.problems.schema import Test
from tipprobe.sandbox.worker.literals import decode_arguments, decode_value, encode_value


def parse(source: str) -> ast.Module:
    """Parse source that others wrote; whatever is not Python is a SyntaxError, and no warning is shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escape sequences, "is" with a literal
        try:
            return ast.parse(source)
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(str(error)) from error


class NotCalls(ValueError):
    """Some assert is no comparison of a call with a literal; the message is the reason, fit for counting."""


def calls_of(sources: Iterable[str], entry_point: str, alias: str | None = None) -> tuple[Test, ...]:
    """Return one test for each assert statement of `sources`.

    Args:
        sources: pieces of source that hold assert statements only.
        entry_point: the function under test.
        alias: another name the asserts call it by (``candidate``).

    Raises:
        NotCalls: with the reason, at the first assert that is no such comparison.
    """
    tests = []
    for source in sources:
        try:
            statements = parse(source).body
        except SyntaxError as error:
            raise NotCalls("an assert is not valid Python") from error
        for statement in statements:
            tests.append(_test_of(statement, {entry_point, alias}))
    if not tests:
        raise NotCalls("no asserts")
    return tuple(tests)


def _test_of(statement: ast.stmt, names: set[str | None]) -> Test:
    if not isinstance(statement, ast.Assert):
        raise NotCalls("a statement that is no assert")
    test = statement.test
    if not isinstance(test, ast.Compare):
        raise NotCalls("an assert of a value's truth")
    left, right = test.left, test.comparators[0]
    if not _is_call(left, names):
        left, right = right, left
    if not _is_call(left, names):
        raise NotCalls("the call stands inside another expression")
    same = isinstance(test.ops[0], ast.Eq) or (
        isinstance(test.ops[0], ast.Is)
        and isinstance(right, ast.Constant)
        and right.value in (True, False, None)
    )
    if len(test.ops) > 1 or not same:
        raise NotCalls("a comparison other than ==")
    arguments = [ast.unparse(node) for node in left.args]
    arguments += [f"{word.arg}={ast.unparse(word.value)}" if word.arg else "**{}" for word in left.keywords]
    text = ", ".join(arguments)
    try:
        decode_arguments(text)
    except ValueError as error:
        raise NotCalls("an argument is no literal") from error
    try:
        expected = encode_value(decode_value(ast.unparse(right)))
    except ValueError as error:
        raise NotCalls("the expected value is no literal") from error
    return Test(text, expected)


def _is_call(node: ast.expr, names: set[str | None]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def asserts_in_check(source: str) -> str:
    """Return the body of a ``check`` function (HumanEval's way of packing asserts), dedented.

    Raises:
        NotCalls: there is no such function.
    """
    try:
        module = parse(source)
    except SyntaxError as error:
        raise NotCalls("an assert is not valid Python") from error
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            # "assert True, message" is a stand-in for examples that HumanEval leaves out.
            body = [statement for statement in node.body if not _is_trivial(statement)]
            return "\n".join(ast.unparse(statement) for statement in body)
    raise NotCalls("no check function")


def _is_trivial(statement: ast.stmt) -> bool:
    """Whether a statement asserts a true constant or is a bare string or name of no effect."""
    if isinstance(statement, ast.Assert):
        return isinstance(statement.test, ast.Constant) and statement.test.value is True
    return isinstance(statement, ast.Pass | ast.Expr) and not isinstance(
        getattr(statement, "value", None), ast.Call
    )


def called_function(sources: Iterable[str], reference: str | None) -> str | None:
    """Return the function that asserts are about: the first one they call that `reference` defines.

    Without a reference it is the first called name that Python itself does not define.
    """
    called: list[str] = []
    for source in sources:
        try:
            nodes = ast.walk(parse(source))
        except SyntaxError:
            continue
        called += [n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    defined = None if reference is None else set(re.findall(r"^(?:def|class)\s+(\w+)", reference, re.M))
    for name in called:
        if name in defined if defined is not None else name not in vars(builtins):
            return name
    return None


def signature_of(source: str | None, name: str | None) -> str:
    """Return the ``def`` line of function `name` in `source`, ``""`` if it is not there."""
    if not source or not name:
        return ""
    try:
        nodes = parse(source).body
    except SyntaxError:
        match = re.search(rf"^def\s+{re.escape(name)}\s*\([^)]*\)[^:\n]*:", source, re.M)
        return " ".join(match.group().split()) if match else ""
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            return f"def {name}({ast.unparse(node.args)}){returns}:"
    return ""


def imports_of(source: str | None) -> str:
    """Return the top-level import statements of `source`, one a line."""
    try:
        nodes = parse(source or "").body
    except SyntaxError:
        return ""
    return "\n".join(ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def doctest_calls(docstring: str, entry_point: str) -> tuple[Test, ...]:
    """Return the ``>>> f(literals)`` examples of a docstring whose shown value is a literal."""
    try:
        examples = DocTestParser().get_examples(docstring)
    except ValueError:  # inconsistent indentation
        return ()
    tests = []
    for example in examples:
        if not example.want:
            continue
        try:
            tests += calls_of([f"assert {example.source.strip()} == ({example.want.strip()})"], entry_point)
        except NotCalls:
            continue
    return tuple(tests)
