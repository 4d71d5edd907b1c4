"""Values as text: a strict encoder for results and a decoder that evaluates nothing.

The encoder looks at exact types, so an object that only pretends to equal the right answer never leaves the
process that made it.  What it accepts: None, bool, int, float, complex, str, bytes, list, tuple, set,
frozenset, dict; the dict subclasses of `collections` count as dicts and numpy scalars as the Python numbers
they hold, because reference solutions of public benchmarks return them.
"""

from __future__ import annotations

import ast
import math
import sys
from collections import Counter, OrderedDict, defaultdict
from typing import Any

MAX_DEPTH = 90  # CPython's parser gives up at about 100 nested brackets
_DICTS = (dict, Counter, OrderedDict, defaultdict)
_NAMES = {"inf": math.inf, "nan": math.nan, "True": True, "False": False, "None": None}
_HUGE = 1 << 14_000  # below the 4,300 digits that CPython converts without being asked to

# Bound here: a candidate may rebind the builtins before its result is encoded.
_type, _repr, _hex, _sorted, _map = type, repr, hex, sorted, map


class NotPlain(ValueError):
    """A value that is not built from plain built-in types; the message names the type."""


def encode_value(value: Any, depth: int = 0) -> str:
    """Return `value` as a literal; equal values give equal text (sets and dicts are sorted by their text).

    Raises:
        NotPlain: a part of the value is of another type, a subclass, or nested more than 90 deep.
    """
    kind = _type(value)
    if kind is int:
        return _repr(value) if -_HUGE < value < _HUGE else _hex(value)
    if kind in (str, float, bool, bytes) or value is None:
        return _repr(value)
    if kind is complex:
        return f"complex({value.real!r}, {value.imag!r})"
    if depth >= MAX_DEPTH:
        raise NotPlain(f"nested more than {MAX_DEPTH} deep")
    depth += 1
    if kind is list:
        return "[" + ", ".join([encode_value(v, depth) for v in value]) + "]"
    if kind is tuple:
        items = [encode_value(v, depth) for v in value]
        return f"({items[0]},)" if len(items) == 1 else "(" + ", ".join(items) + ")"
    if kind in (set, frozenset):
        items = _sorted([encode_value(v, depth) for v in value])
        body = "{" + ", ".join(items) + "}" if items else ""
        if kind is frozenset:
            return f"frozenset({body})"
        return body or "set()"
    if kind in _DICTS:
        pairs = [(encode_value(k, depth), encode_value(v, depth)) for k, v in dict.items(value)]
        return "{" + ", ".join([f"{k}: {v}" for k, v in _sorted(pairs)]) + "}"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        item = value.item()
        if _type(item) is not kind:
            return encode_value(item, depth)
    raise NotPlain(f"a value of type {kind.__name__!r}")


def decode_value(text: str) -> Any:
    """Return the value a literal stands for: `ast.literal_eval` plus inf, nan, complex(), frozenset().

    Raises:
        ValueError: `text` is not such a literal.
    """
    try:
        return _build(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise ValueError(f"not a literal: {text[:80]!r}") from error


def decode_arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments of an argument list such as ``"[3, 1], 2"`` or ``"n=3"``.

    Raises:
        ValueError: `text` is not a list of literals.
    """
    call = parse_arguments(text)
    try:
        args = [_build(arg) for arg in call.args]
        return args, {str(keyword.arg): _build(keyword.value) for keyword in call.keywords}
    except (MemoryError, RecursionError, TypeError) as error:
        raise ValueError(f"not an argument list: {text[:80]!r}") from error


def parse_arguments(text: str) -> ast.Call:
    """Return the syntax tree of an argument list, whatever its arguments are, as the call of a name.

    Raises:
        ValueError: `text` is not an argument list, or unpacks a mapping (``**``).
    """
    try:
        node = ast.parse(f"f({text}\n)", mode="eval").body
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"not an argument list: {text[:80]!r}") from error
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Name)
        or any(keyword.arg is None for keyword in node.keywords)
    ):
        raise ValueError(f"not an argument list: {text[:80]!r}")
    return node


def _build(node: ast.expr) -> Any:
    """Turn a syntax tree of literals into the value."""
    match node:
        case ast.Constant(value=value) if value is not Ellipsis:
            return value
        case ast.List(elts=items):
            return [_build(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple([_build(item) for item in items])
        case ast.Set(elts=items):
            return {_build(item) for item in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_build(k): _build(v) for k, v in zip(keys, values, strict=True)}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            value = _build(operand)
            if type(value) in (int, float, complex):
                return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            a, b = _build(left), _build(right)
            if type(a) in (int, float) and type(b) is complex:
                return a + b if isinstance(op, ast.Add) else a - b
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            values = [_build(arg) for arg in args]
            if name in ("set", "frozenset") and len(values) <= 1:
                items = values[0] if values else ()
                if type(items) in (list, tuple, set, frozenset):
                    return set(items) if name == "set" else frozenset(items)
            if name == "complex" and len(values) == 2 and all(type(v) in (int, float) for v in values):
                return complex(*values)
            if name == "float" and len(values) == 1 and values[0] in ("inf", "-inf", "nan"):
                return float(values[0])
    raise ValueError("not a literal")
