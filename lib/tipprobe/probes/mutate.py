"""Probes without a model: example inputs, changed in ways that keep their type and shape.

A second source beside the model's own inputs (and the only one where no model is to be trusted).  Numbers
keep to the sign classes that the examples show, a count that announces how many items follow is kept in
step with them, and every mutant passes `static_reason`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tipprobe.probes.rng import keyed_rng
from tipprobe.probes.validity import literal_arguments, normalise, parse_arguments, static_reason
from tipprobe.problems.schema import Problem

#: Attempts per wanted mutant before giving up (small inputs have few mutants).
ATTEMPTS = 40
_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+)")


def mutate_examples(problem: Problem, n: int, seed: int) -> list[str]:
    """Return up to `n` distinct mutants of the problem's example inputs, none equal to an example.

    Deterministic in (problem id, seed).  Fewer than `n` come back if the examples have too few mutants,
    none if there are no examples.  Examples of call problems that are not plain literals are not mutated.
    """
    rng = keyed_rng("mutation", seed, problem.id)
    examples = [test.input for test in problem.examples]
    seen = {normalise(text, problem) for text in examples}
    if problem.kind != "stdin":
        examples = [text for text in examples if literal_arguments(text) is not None]
    mutants: list[str] = []
    if not examples:
        return mutants
    floor = _floor(examples, problem)
    for _ in range(ATTEMPTS * n):
        if len(mutants) == n:
            break
        text = examples[rng.integers(len(examples))]
        for _ in range(rng.integers(1, 4)):  # one to three changes
            text = (
                _mutate_stdin(text, rng, floor) if problem.kind == "stdin" else _mutate_call(text, rng, floor)
            )
        text = normalise(text, problem)
        if text not in seen and static_reason(text, problem) is None:
            seen.add(text)
            mutants.append(text)
    return mutants


def _floor(examples: Sequence[str], problem: Problem) -> int | None:
    """Return the smallest number a mutant may hold: 1, 0, or None (no bound), whichever the examples show."""
    if problem.kind == "stdin":
        tokens = [token for text in examples for token in re.split(r"[\s,;]+", text)]
        values = [float(t) for t in tokens if _INTEGER.fullmatch(t) or _FLOAT.fullmatch(t)]
    else:
        values = [v for text in examples for a in parse_arguments(text) for v in _numbers(a)]
    lowest = min(values, default=0)
    return None if lowest < 0 else 0 if lowest < 1 else 1


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [n for pair in value.items() for item in pair for n in _numbers(item)]
    if isinstance(value, list | tuple | set):
        return [n for item in value for n in _numbers(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _mutate_number(value: int | float, rng: np.random.Generator, floor: int | None) -> int | float:
    """Return a near, extreme or negated value of the same type, not below `floor`."""
    options = [value + 1, value - 1, value * 2, value * 10, -value, type(value)(0), type(value)(1)]
    options += [
        value + type(value)(rng.integers(-9, 10)),
        value // 2 if isinstance(value, int) else value / 2,
    ]
    options = [o for o in options if floor is None or o >= floor]
    return options[rng.integers(len(options))] if options else value


def _mutate_text(text: str, rng: np.random.Generator) -> str:
    """Return `text` with a character dropped, doubled, swapped, or in the other case."""
    if not text:
        return text
    i = int(rng.integers(len(text)))
    edits = [
        text[:i] + text[i + 1 :],
        text[: i + 1] + text[i:],
        text[:i] + text[i : i + 2][::-1] + text[i + 2 :],
        text[:i] + text[i].swapcase() + text[i + 1 :],
        text[::-1],
        text + text,
    ]
    return edits[rng.integers(len(edits))]


def _mutate_sequence(items: list, rng: np.random.Generator, may_be_empty: bool = False) -> list:
    """Return the items with one dropped, doubled, moved, made equal to another, sorted or reversed."""
    if not items:
        return items
    i, j = int(rng.integers(len(items))), int(rng.integers(len(items)))
    swapped = list(items)
    swapped[i], swapped[j] = swapped[j], swapped[i]
    equal = list(items)
    equal[i] = equal[j]
    edits = [items[: i + 1] + items[i:], swapped, equal, items[::-1], items[:1]]
    if len(items) > 1 or may_be_empty:
        edits.append(items[:i] + items[i + 1 :])
    return edits[rng.integers(len(edits))]


# -- stdin --


def _mutate_stdin(text: str, rng: np.random.Generator, floor: int | None) -> str:
    rows = text.rstrip("\n").split("\n")
    separators = [_separator(row) for row in rows]
    lines = [row.split(separator) for row, separator in zip(rows, separators, strict=True)]
    _mutate_lines(lines, rng, floor)
    return "\n".join(s.join(line) for s, line in zip(separators, lines, strict=True)) + "\n"


def _separator(line: str) -> str:
    """Return what stands between the values of a line."""
    return next((mark for mark in (", ", ",", ";") if mark in line), " ")


def _mutate_lines(lines: list[list[str]], rng: np.random.Generator, floor: int | None) -> None:
    """Change one line of tokens in place, and the count of its items with it."""
    row = int(rng.integers(len(lines)))
    tokens = lines[row]
    counters = _counters(lines)
    if row in counters:  # a count changes only together with what it counts
        return
    counted = row in counters.values()
    if len(tokens) > 1 and rng.random() < (0.5 if counted else 0.3):
        # Without a count, the number of items on one line of several may matter, their order less.
        resizable = counted or len(lines) == 1
        lines[row] = _mutate_sequence(tokens, rng) if resizable else list(rng.permutation(tokens))
        for counter in (c for c, target in counters.items() if target == row):
            lines[counter] = [str(len(lines[row]))]
    else:
        column = int(rng.integers(len(tokens)))
        tokens[column] = _mutate_token(tokens[column], rng, floor)


def _counters(lines: list[list[str]]) -> dict[int, int]:
    """Return ``{line that holds one count: next line, with that many tokens}``."""
    return {
        i: i + 1
        for i in range(len(lines) - 1)
        if len(lines[i]) == 1 and lines[i][0].isdecimal() and int(lines[i][0]) == len(lines[i + 1])
    }


def _mutate_token(token: str, rng: np.random.Generator, floor: int | None) -> str:
    if _INTEGER.fullmatch(token):
        return str(_mutate_number(int(token), rng, floor))
    if _FLOAT.fullmatch(token):
        return str(_mutate_number(float(token), rng, floor))
    return _mutate_text(token, rng) or token


# -- call --


def _mutate_call(text: str, rng: np.random.Generator, floor: int | None) -> str:
    # None: an earlier change left a value without a literal (an empty set, an infinity).
    arguments = list(literal_arguments(text) or ())
    if not arguments:
        return text
    i = int(rng.integers(len(arguments)))
    arguments[i] = _mutate_value(arguments[i], rng, floor)
    return ", ".join(map(repr, arguments))


def _mutate_value(value: object, rng: np.random.Generator, floor: int | None) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return _mutate_number(value, rng, floor)
    if isinstance(value, str):
        return _mutate_text(value, rng)
    if isinstance(value, list | tuple):
        items = list(value)
        if items and rng.random() < 0.5:
            i = int(rng.integers(len(items)))
            items[i] = _mutate_value(items[i], rng, floor)
        elif isinstance(value, list):  # a tuple's length is part of its type
            items = _mutate_sequence(items, rng, may_be_empty=True)
        return type(value)(items)
    if isinstance(value, dict) and value:
        keys = list(value)
        key = keys[rng.integers(len(keys))]
        return {k: _mutate_value(v, rng, floor) if k == key else v for k, v in value.items()}
    return value
