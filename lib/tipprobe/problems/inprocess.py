"""Source of tests that run in the program's own process.

Three benchmarks need it: evalplus publishes hundreds of inputs a problem without outputs, and asks whether a
program agrees with the reference on each; BigCodeBench publishes `unittest` classes; MBPP and AceCode hold
asserts that mean something else once they are rewritten.  One process runs program and tests, in a namespace
each, and a harness undoes or notices what the program does to them (`tipprobe.problems.harness`).  A program
that walks frames or the heap can still find the reference or the harness; one that a model wrote to solve the
problem does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tipprobe.problems.asserts import NotCalls, imports_of, parse
from tipprobe.sandbox.worker.literals import decode_arguments

_AGREEMENT = '''
def agree(candidate, reference_source, name, inputs, tolerance, view):
    import marshal
    from collections import Counter, OrderedDict, defaultdict

    dumps, loads = marshal.dumps, marshal.loads
    made_in_python = 1 << 9  # the flag of such a class

    def strange(value):
        """Return the ids of the classes in a value that might say themselves what they equal."""
        kind = type(value)

        def among(*kinds):  # a class can have an == of its own, too
            return any(kind is one for one in kinds)

        if among(dict, Counter, OrderedDict, defaultdict):
            items = [*dict.keys(value), *dict.values(value)]
        elif among(list, tuple, set, frozenset):
            items = value
        elif among(int, float, complex, str, bytes, bool, range, type(None)):
            return set()
        else:
            # numpy's scalars were compiled: what is written in Python has the flag, whatever it calls itself.
            compiled = type(kind) is type and not kind.__flags__ & made_in_python
            scalar = compiled and kind.__module__ == "numpy" and kind.__name__ not in ("ndarray", "void")
            return set() if scalar else {id(kind)}
        return set().union(*map(strange, items))

    def same(given, wanted, tolerance):
        """Equal, or as close as the benchmark allows; types of floats and of sequences must agree then."""
        if given == wanted:
            return True
        if isinstance(wanted, float) and not tolerance:
            tolerance = 1e-6
        if isinstance(wanted, (list, tuple)):
            if not tolerance and wanted and all(isinstance(item, float) for item in wanted):
                tolerance = 1e-6
            return (
                tolerance > 0
                and type(given) is type(wanted)
                and len(given) == len(wanted)
                and all(same(a, b, tolerance) for a, b in zip(given, wanted))
            )
        if not tolerance or type(given) is not type(wanted) or not isinstance(wanted, (int, float)):
            return False
        both_nan = given != given and wanted != wanted
        return both_nan or abs(given - wanted) <= tolerance + 1e-7 * abs(wanted)

    def agrees(given, wanted):
        try:
            copy = loads(dumps(given))  # exact built-in types only, what else has a buffer becomes bytes
        except ValueError:
            pass
        else:
            if type(copy) is type(given) and same(view(copy), view(wanted), tolerance):
                return True
        return strange(given) <= strange(wanted) and same(view(given), view(wanted), tolerance)

    namespace = {}
    exec(reference_source, namespace)
    reference = namespace[name]
    for packed in [dumps(arguments) for arguments in inputs]:
        wanted = reference(*loads(packed))
        if not agrees(candidate(*loads(packed)), wanted):
            raise AssertionError("disagrees with the reference on " + repr(loads(packed))[:200])
'''

_VIEWS = {
    "value": "lambda value: value",
    "set": "lambda value: set(value)",
    "truth": "lambda value: bool(value)",
}

_UNITTEST = """

def _tipprobe_run(suite_class):
    import unittest

    flags = ("__unittest_skip__", "__unittest_expecting_failure__")

    class NoTestsRan(Exception):
        pass

    class Tampered(Exception):
        pass

    def contents():
        found = {}
        for owner in suite_class.__mro__:
            if owner.__module__.partition(".")[0] not in ("unittest", "builtins"):
                for name, value in vars(owner).items():
                    function = getattr(value, "__func__", value)
                    marks = [getattr(function, flag, None) for flag in flags]
                    found[owner, name] = (value, getattr(function, "__code__", None), *marks)
        return found

    def check_contents(before):
        after = contents()
        for key, parts in before.items():
            if any(a is not b for a, b in zip(parts, after.get(key, (None,) * 4))):
                raise Tampered(key[1])
        for owner, name in after:
            if (owner, name) not in before and (
                name in flags or (hasattr(unittest.TestCase, name) and callable(after[owner, name][0]))
            ):
                raise Tampered(name)

    before = contents()
    suite = unittest.TestLoader().loadTestsFromTestCase(suite_class)
    skipped = {case.id() for case in suite if getattr(getattr(case, case._testMethodName), flags[0], False)}
    count = suite.countTestCases()
    result = unittest.TextTestRunner(verbosity=0).run(suite)
    check_contents(before)
    for kind, problems in (("failed", result.failures), ("ended in an error", result.errors)):
        for case, text in problems:
            lines = text.strip().split("\\n")
            last = next((l for l in reversed(lines) if l[:1].strip() and ": " in l), lines[-1])
            missing = last.partition("No module named ")[2].strip("'")
            if missing and last.startswith("ModuleNotFoundError"):
                raise ModuleNotFoundError(last, name=missing)
            error = AssertionError if kind == "failed" else RuntimeError
            raise error(str(case).split()[0] + " " + kind + ": " + last)
    if result.unexpectedSuccesses:
        raise AssertionError("a test that is expected to fail passed")
    if result.testsRun == len(result.skipped):
        raise NoTestsRan("no test ran")
    if result.testsRun != count:
        raise AssertionError("%d of %d tests ran" % (result.testsRun, count))
    for case, reason in result.skipped:
        # A test marked with @skip says so on its own; any other skip was made while the program ran.
        if case.id() not in skipped:
            raise AssertionError(str(case).split()[0] + " was skipped: " + reason)


_tipprobe_run(TestCases)
"""

_ROOT = """
for _tipprobe_arguments in {inputs}:
    _tipprobe_root = {entry_point}(*[list(_) for _ in _tipprobe_arguments])
    assert abs(sum(c * _tipprobe_root**i for i, c in enumerate(_tipprobe_arguments[0]))) <= {tolerance}
"""


def guarded_source(
    program: str, test_code: str, token: str, *, entry_point: str | None = None, reference: str | None = None
) -> str:
    """Return source that runs `program`, then its tests, and says with `token` how it went.

    See `tipprobe.problems.harness.run` for what it says, and `outcome_of` for reading it.
    """
    guarded = set(imported_names(test_code, reference or ""))
    if ".testing" in test_code:  # numpy.testing and the like, reached through their packages
        guarded |= {f"{name}.testing" for name in guarded if "." not in name}
    imports = _remembered_imports(test_code).split("\n")
    task = (program, test_code, token, sorted(guarded), entry_point, imports)
    # One expression, so that no name of the harness stays in __main__, and builtins of its own.
    return (
        f"exec(compile({_harness()!r}, 'harness.py', 'exec'), "
        "{'__name__': 'harness', '__builtins__': dict(vars(__import__('builtins'))), "
        f"'task': {task!r}}})\n"
    )


_remembered_imports = lru_cache(maxsize=2_000)(imports_of)


def outcome_of(stdout: bytes, token: str) -> tuple[str, str] | None:
    """Return what `guarded_source` said, (outcome, detail), None if it never came to that."""
    lines = [line for line in stdout.split(b"\n") if line.startswith(token.encode() + b" ")]
    if not lines:
        return None
    outcome, _, detail = lines[-1].decode("utf-8", "replace").partition(" ")[2].partition(" ")
    return outcome, detail


@cache
def _harness() -> str:
    return Path(__file__).with_name("harness.py").read_text(encoding="utf-8") + "\n\nrun(*task)\n"


#: A problem's tests and reference are looked at for each of its programs: so many of them are remembered.
_remember = lru_cache(maxsize=2_000)


def imported_names(*sources: str) -> set[str]:
    """Return the modules that pieces of source import, whatever the depth; broken source imports none."""
    return set().union(*map(_imported_names, sources))


@_remember
def _imported_names(source: str) -> frozenset[str]:
    try:
        nodes = list(ast.walk(parse(source)))
    except SyntaxError:
        return frozenset()
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("exec", "agree"):
            for inner in node.args:  # the reference that `agreement_source` brings
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    names |= imported_names(inner.value)
    return frozenset(names - {"__future__"})


@_remember
def count_test_methods(test: str) -> int | None:
    """Return how many test methods the class ``TestCases`` of `test` has; None where that cannot be seen
    (it inherits from something else than TestCase, or is no class of this file)."""
    for node in parse(test).body:
        if isinstance(node, ast.ClassDef) and node.name == "TestCases":
            if [ast.unparse(base).rpartition(".")[2] for base in node.bases] != ["TestCase"]:
                return None
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            return sum(isinstance(item, functions) and item.name.startswith("test") for item in node.body)
    return None


def unittest_source(test: str) -> str:
    """Return `test`, which defines the class ``TestCases``, followed by code that runs it and raises if a
    test fails, is skipped while the program runs, or none ran."""
    return test.rstrip() + "\n" + _UNITTEST


def agreement_source(
    entry_point: str, reference: str, inputs: list[list[Any]], tolerance: float, view: str = "value"
) -> str:
    """Return source that compares `entry_point` with `reference` on every argument list of `inputs`.

    Args:
        entry_point: a function of the program, and of `reference`.
        reference: source of a correct program.
        inputs: argument lists of plain values.
        tolerance: absolute tolerance for floats; 0 allows floats the benchmark's usual 1e-6.
        view: what of a result counts: its ``value``, the ``set`` of its items, or its ``truth``.
    """
    check = f"{_AGREEMENT}\nagree(candidate, {reference!r}, {entry_point!r}, inputs, {tolerance!r}, view)\n"
    return (
        "inf, nan = float('inf'), float('nan')\n"
        f"exec({check!r}, {{'__builtins__': dict(vars(__import__('builtins'))), "
        f"'candidate': {entry_point}, 'view': {_VIEWS[view]}, 'inputs': {inputs!r}}})\n"
    )


def root_source(entry_point: str, inputs: list[list[Any]], tolerance: float) -> str:
    """Return source for a function that finds a polynomial's root: any root will do, so none is compared."""
    return _ROOT.format(entry_point=entry_point, inputs=repr(inputs), tolerance=tolerance)


def view_of(asserts: str) -> str:
    """Return what of a result the asserts look at: ``value``, ``set`` or ``truth``."""
    for node in ast.walk(parse(asserts)):
        if isinstance(node, ast.Assert):
            test = node.test
            if isinstance(test, ast.UnaryOp) or (
                isinstance(test, ast.Call) and isinstance(test.func, ast.Name)
            ):
                return "truth"
            if isinstance(test, ast.Compare) and isinstance(test.left, ast.Call):
                return "set" if ast.unparse(test.left.func) == "set" else "value"
    return "value"


# --- types that JSON lost ----------------------------------------------------------------------------------


def restore_types(inputs: list[list[Any]], asserts: str, entry_point: str) -> list[list[Any]]:
    """Return `inputs` with tuples, sets, complex numbers and integer keys where the asserts show them.

    evalplus stores MBPP+ inputs as JSON, which knows lists only, and converts them back by a table of task
    numbers.  The asserts of the same problem hold some inputs as Python literals; the types seen there are
    given to all inputs.

    Raises:
        NotCalls: the asserts do not show the base inputs' types, or show two types in one place.
    """
    shapes: list[_Shape | None] = []
    for literals in _arguments_in(asserts, entry_point):
        found = [_shape(literal) for literal in literals]
        if shapes and len(found) != len(shapes):
            raise NotCalls("asserts show different numbers of arguments")
        shapes = [_merge(a, b) for a, b in zip(shapes, found, strict=True)] if shapes else found
    if not shapes:
        raise NotCalls("no assert shows an input")
    try:
        return [
            [_apply(value, shape) for value, shape in zip_longest(row, shapes[: len(row)])] for row in inputs
        ]
    except (TypeError, ValueError) as error:
        raise NotCalls("an input does not have the types that the asserts show") from error


def _arguments_in(asserts: str, entry_point: str) -> list[list[Any]]:
    """Return the arguments of each assert's call, as far as they are literals."""
    rows: list[list[Any]] = []
    for statement in parse(asserts).body:
        calls = [
            node
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == entry_point
        ]
        if calls:
            try:
                rows.append(decode_arguments(", ".join(ast.unparse(arg) for arg in calls[0].args))[0])
            except ValueError:
                continue
    return rows


@dataclass(frozen=True, slots=True)
class _Shape:
    """How values in one place are to be converted; the default leaves them as they are."""

    container: type | None = None
    items: _Shape | None = None  # of the container's items, or of a dict's values
    integer_keys: bool = False
    number: bool = False  # which JSON may hold as text, if it is complex


def _shape(literal: Any) -> _Shape | None:
    if isinstance(literal, list | tuple | set | frozenset):
        return _Shape(type(literal), _shape_of_all(literal))
    if isinstance(literal, dict):
        integer_keys = any(type(key) is int for key in literal)
        return _Shape(dict, _shape_of_all(literal.values()), integer_keys)
    return _Shape(number=True) if type(literal) in (int, float, complex) else None


def _shape_of_all(literals: Iterable[Any]) -> _Shape | None:
    shape = None
    for literal in literals:
        shape = _merge(shape, _shape(literal))
    return shape


def _merge(a: _Shape | None, b: _Shape | None) -> _Shape | None:
    if a is None or b is None:
        return b if a is None else a
    if a.number != b.number:  # numbers beside containers, as in nested lists: the container tells more
        return b if a.number else a
    if a.container is not b.container:
        raise NotCalls("asserts show two types in one place")
    return replace(a, items=_merge(a.items, b.items), integer_keys=a.integer_keys or b.integer_keys)


def _apply(value: Any, shape: _Shape | None, nested: type | None = None) -> Any:
    """Convert `value`; `nested` is the container that the levels above repeat, taken to go on below them."""
    container = shape.container if shape else None
    if container is dict and isinstance(value, dict):
        return {
            int(key) if shape.integer_keys and key.isdecimal() else key: _apply(item, shape.items)
            for key, item in value.items()
        }
    if container is not dict and isinstance(value, list):
        if container is None:
            return nested(_apply(item, shape, nested) for item in value) if nested else value
        repeats = nested is container or (shape.items is not None and shape.items.container is container)
        return container(_apply(item, shape.items, container if repeats else None) for item in value)
    return _number(value) if shape and shape.number and isinstance(value, str) else value


def _number(text: str) -> Any:
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
