"""Does a tip give away what it must not: code, the solution's wording, or answers of hidden tests.

Short values need care.  "An empty list gives -1" states a rule, although -1 is the output of some hidden
test; "for 7 3 9 the answer is 12" states a test.  A value counts when it is long enough not to be there by
chance, or when it stands beside the input that it belongs to.  A solution told in words is seen where it
comes as a numbered list that names most of what the program calls; one in plain sentences no rule here sees.
"""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tipprobe.problems.schema import Problem
from tipprobe.tips.masking import code_fragments, parsed

#: Reasons, in the order in which they are looked for and shown.
REASONS: dict[str, str] = {
    "code": "holds code",
    "solution": "shares a run of tokens with a solution",
    "steps": "lists the steps of a solution",
    "identifier": "names something that only the solution names",
    "test_value": "holds the expected output of a hidden test",
    "test_case": "holds the input of a hidden test, or such an input with its output",
}
#: Tokens in a row that prose shares with a program only if it was copied.
SHARED_TOKENS = 5
#: Numbered items that make a list of steps, and letters of the shortest call that words may name (`len` by
#: "length").
STEPS, STEM = 3, 3
#: Values in a row that are long enough to be no coincidence, and letters of a single word.
LONG_SEQUENCE, LONG_WORD = 3, 6
#: Tokens between an input and its output up to which the two count as one test; tokens on the far side of the
#: output among which a word may say that it is one; and tokens between the two in a statement that shows the
#: test: its prose has many numbers, its examples are terse.
NEAR, BEYOND, SHOWN = 8, 3, 3

_TOKEN = re.compile(r"[^\W\d_]\w*|\d+|[^\w\s]")
_VALUE_TOKEN = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?|[^\W\d_]+|→")
_OUTPUT_WORD = re.compile(
    r"answers?|outputs?|prints?|printed|returns?|returned|gives?|given|expect(?:s|ed)?|results?|becomes?|yields?"
    r"|is|→"
)
_ITEM = re.compile(r"(?:^|\s)\(?(\d+)[.):](?=\s)")
_QUOTED = re.compile(r"[\"'`“]([^\"'`”\n]+)[\"'`”]")
_VOWELS = set("aeiouyAEIOUY")


@dataclass(frozen=True, slots=True)
class Leak:
    """One thing that a tip gives away.

    Attributes:
        reason: key of `REASONS`.
        detail: the part of the tip.
    """

    reason: str
    detail: str


def find_leaks(tip: str, problem: Problem, programs: Sequence[str | None] = ()) -> tuple[Leak, ...]:
    """Return what a tip gives away, at most one leak a reason; empty means nothing was found.

    Args:
        tip: the tip's text.
        problem: its statement is no secret; its hidden tests and its reference are.
        programs: further solutions, such as the repaired program; None is passed over.
    """
    solutions = [program for program in (problem.reference, *programs) if program]
    found = {
        "code": code_fragments(tip),
        "solution": _shared_runs(tip, problem, solutions),
        "steps": _listed_steps(tip, solutions),
        "identifier": _solution_names(tip, problem, solutions),
        "test_value": _long_values(tip, problem),
        "test_case": _quoted_tests(tip, problem),
    }
    return tuple(Leak(reason, details[0]) for reason, details in found.items() if details)


def leak_counts(tips: Iterable[Sequence[Leak]]) -> dict[str, int]:
    """Return how many tips leak at all, and how many by each reason; a tip may count for several."""
    verdicts = list(tips)
    counts = Counter(leak.reason for leaks in verdicts for leak in leaks)
    return {"any": sum(bool(leaks) for leaks in verdicts)} | {reason: counts[reason] for reason in REASONS}


def _shared_runs(tip: str, problem: Problem, solutions: Sequence[str]) -> list[str]:
    own = _runs(_TOKEN.findall(tip.casefold()))
    said = set(_runs(_TOKEN.findall(problem.statement.casefold())))
    of_solutions = {run for program in solutions for run in _runs(_program_tokens(program))}
    return [" ".join(run) for run in own if run in of_solutions and run not in said]


def _runs(tokens: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(tokens[i : i + SHARED_TOKENS]) for i in range(len(tokens) - SHARED_TOKENS + 1)]


def _program_tokens(program: str) -> list[str]:
    """Return names, numbers and operators, split as in prose; comments and strings are prose already."""
    kinds = (tokenize.NAME, tokenize.NUMBER, tokenize.OP)
    try:
        words = [t.string for t in tokenize.generate_tokens(io.StringIO(program).readline) if t.type in kinds]
    except (tokenize.TokenError, SyntaxError):
        words = [program]
    return _TOKEN.findall(" ".join(words).casefold())


def _listed_steps(tip: str, solutions: Sequence[str]) -> list[str]:
    """Return the tip if it is a numbered list that names most functions and methods that a solution calls.

    A list of pitfalls names a few.
    """
    numbers = [int(match[1]) for match in _ITEM.finditer(tip)]
    if numbers[:STEPS] != list(range(1, STEPS + 1)):
        return []
    words = re.findall(rf"[a-z]{{{STEM},}}", tip.casefold())
    for program in solutions:
        calls = set(_calls_in(program))
        named = {call for call in calls if any(word.startswith(call) for word in words)}
        if 2 * len(named) > len(calls):
            return [tip]
    return []


def _calls_in(program: str) -> Iterator[str]:
    tree = parsed(program)
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if len(name) >= STEM:
                yield name.removesuffix("ed")


def _solution_names(tip: str, problem: Problem, solutions: Sequence[str]) -> list[str]:
    shown = f"{problem.statement} {problem.starter_code} {problem.entry_point or ''}"
    public = set(re.findall(r"\w+", shown))
    names = {name for program in solutions for name in _names_in(program)} - public - set(dir(builtins))
    secret = {name for name in names if _is_no_word(name) and not keyword.iskeyword(name)}
    return [word for word in re.findall(r"\w+", tip) if word in secret]


def _names_in(program: str) -> Iterator[str]:
    tree = parsed(program)
    if tree is None:
        return
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def _is_no_word(name: str) -> bool:
    """Return whether a name cannot be an English word: those (`total`, `result`) may stand in any tip."""
    odd = "_" in name or any(c.isdigit() for c in name) or any(c.isupper() for c in name[1:])
    return len(name) > 1 and (odd or not _VOWELS & set(name))


def _long_values(tip: str, problem: Problem) -> list[str]:
    own, said = _value_tokens(tip), _value_tokens(problem.statement)
    quoted = {span.strip() for span in _QUOTED.findall(tip)}
    found = []
    for value in _expected_values(problem):
        tokens = _value_tokens(value)
        telling = _is_long(tokens) or (value.strip("'\" \n") in quoted and not value.strip().isdigit())
        if telling and _place(tokens, own) is not None and _place(tokens, said) is None:
            found.append(value.strip())
    return found


def _expected_values(problem: Problem) -> list[str]:
    if problem.test_code is None:
        return list(dict.fromkeys(test.expected for test in problem.tests))
    tree = parsed(problem.test_code)
    constants = [] if tree is None else [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    return list(dict.fromkeys(str(value) for value in constants))


def _is_long(tokens: Sequence[str]) -> bool:
    if len(tokens) == 1:
        (token,) = tokens
        return len(token) >= LONG_WORD if token.isalpha() else len(token.lstrip("-")) > 1
    return len(tokens) >= LONG_SEQUENCE or any(len(token.lstrip("-")) > 1 for token in tokens)


def _quoted_tests(tip: str, problem: Problem) -> list[str]:
    own, said = _value_tokens(tip), _value_tokens(problem.statement)
    found = []
    for test in problem.tests:
        given, expected = _value_tokens(test.input), _value_tokens(test.expected)
        if _place(given, own) is None or _shows(given, expected, said, SHOWN, adjacent=True):
            continue
        quoted = len(given) >= LONG_SEQUENCE and _place(given, said) is None
        if quoted or _shows(given, expected, own, NEAR):
            found.append(" ".join(given))
    return found


def _shows(
    given: Sequence[str], expected: Sequence[str], tokens: Sequence[str], near: int, *, adjacent: bool = False
) -> bool:
    """Return whether a text has a test's output near its input, before or after, and a word that says so.

    A long input needs no such word.  With `adjacent`, neither does an output right beside its input.
    """
    for place in _places(given, tokens):
        end = place + len(given)
        for answer in _places(expected, tokens):
            if answer >= end:
                between, beyond = tokens[end:answer], tokens[answer + len(expected) :][:BEYOND]
            elif answer + len(expected) <= place:
                between, beyond = tokens[answer + len(expected) : place], tokens[:answer][-BEYOND:]
            else:
                continue
            said = any(map(_OUTPUT_WORD.fullmatch, (*between, *beyond)))
            plain = len(given) >= LONG_SEQUENCE or (adjacent and not between)
            if len(between) <= near and (said or plain):
                return True
    return False


def _value_tokens(text: str) -> list[str]:
    return _VALUE_TOKEN.findall(text.casefold())


def _place(part: Sequence[str], whole: Sequence[str]) -> int | None:
    """Return where `part` first stands in `whole`; None if it does not, or is empty."""
    return next(_places(part, whole), None)


def _places(part: Sequence[str], whole: Sequence[str]) -> Iterator[int]:
    """Yield where `part` stands in `whole`; nowhere if it is empty."""
    size = len(part)
    wanted = list(part)
    return (i for i in range(len(whole) - size + 1 if size else 0) if list(whole[i : i + size]) == wanted)
