"""From a problem's specification to its text: statement, inputs, and programs in many surface forms."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tipprobe.problems.minicode.ops import Op

#: Layout of standard input -> (sentences that describe it, ways of reading it into ``xs``).
LAYOUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "line": (
        ("The input is one line of integers.", "Integers are given on one line."),
        (
            "xs = list(map(int, input().split()))",
            "xs = [int(x) for x in input().split()]",
            "import sys\nxs = list(map(int, sys.stdin.read().split()))",
        ),
    ),
    "counted": (
        ("The input is a count n, then a line with n integers.", "Line one is n, line two has n integers."),
        (
            "n = int(input())\nxs = list(map(int, input().split()))",
            "input()\nxs = [int(x) for x in input().split()]",
            "import sys\nn, *xs = map(int, sys.stdin.read().split())",
        ),
    ),
    "commas": (
        ("The input is integers with commas between them.", "Integers are given as a comma-separated line."),
        (
            'xs = list(map(int, input().split(",")))',
            'xs = [int(x) for x in input().split(",")]',
        ),
    ),
}
LONGEST_LIST = 12


@dataclass(frozen=True, slots=True)
class Step:
    """One operation with its parameter: a literal, ``"k"`` for the function's argument, or ``""``."""

    op: Op
    k: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """A problem without its tests.

    Attributes:
        layout: key of `LAYOUTS`, or ``"call"`` for a function ``solve``.
        steps: one to three list operations, then the terminal.
        wording: indices that choose among the wordings: one a step, then the opening, then the joints.
    """

    layout: str
    steps: tuple[Step, ...]
    wording: tuple[int, ...]

    @property
    def kind(self) -> Literal["stdin", "call"]:
        """Kind of the problem, as in the shared schema."""
        return "call" if self.layout == "call" else "stdin"

    @property
    def key(self) -> str:
        """The names of the steps; no two splits share one."""
        return "|".join(step.op.name for step in self.steps)

    @property
    def has_argument(self) -> bool:
        """Whether the function takes ``k`` beside the list."""
        return any(step.k == "k" for step in self.steps)


#: An input before it is written down: the list, and the argument ``k`` (0 where the problem has none).
Data = tuple[tuple[int, ...], int]
#: What one step does in one program: an operation, its parameter, and whether it is the misconceived variant.
Deed = tuple[Op, str, bool]


def statement(spec: Spec) -> str:
    """Return the problem's text, without examples."""
    *picks, opening, joints = spec.wording
    phrases = [
        step.op.phrases[pick % len(step.op.phrases)].format(k=step.k)
        for step, pick in zip(spec.steps, picks, strict=True)
    ]
    if spec.kind == "stdin":
        sentences = LAYOUTS[spec.layout][0]
        start = sentences[opening % len(sentences)]
    else:
        start = "You get a list xs of integers" + (" and an integer k." if spec.has_argument else ".")
    verb = "print" if spec.kind == "stdin" else "return"
    if spec.steps[-1].op.result == "bool":
        yes, no = ("yes", "no") if spec.kind == "stdin" else ("True", "False")
        end = f"{verb} {yes} if {phrases[-1]}, else {no}"
    else:
        end = f"{verb} {phrases[-1]}"
    if joints % 2:
        return f"{start} {capital('; '.join(phrases[:-1]))}. {capital(end)}."
    return f"{start} First {', then '.join(phrases[:-1])}. Finally {end}."


def capital(text: str) -> str:
    """Return `text` with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def starter_code(spec: Spec) -> str:
    """Return the signature of a call problem, ``""`` for stdin."""
    if spec.kind == "stdin":
        return ""
    return "def solve(xs, k):" if spec.has_argument else "def solve(xs):"


def draw_data(spec: Spec, rng: random.Random, *, plain: bool = False) -> Data:
    """Return a valid input; unless `plain`, half are edge cases (one number, ties, borders of a rule)."""
    marked = [step for step in spec.steps if step.op.ks and step.k == "k"]
    k = rng.choice(marked[0].op.ks) if marked else 0
    shape = (
        "plain"
        if plain
        else rng.choices(("plain", "single", "ties", "border", "negative"), (5, 1, 2, 2, 1))[0]
    )
    length = 1 if shape == "single" else rng.randint(3, 7)
    if shape == "ties":
        pool = rng.sample(range(-6, 10), 3)
    elif shape == "border":
        values = [int(step.k) for step in spec.steps if step.k not in ("", "k")] + [k, 0]
        pool = sorted({v + d for v in values for d in (-1, 0, 1)} | {-v for v in values})
    elif shape == "negative":
        pool = range(-9, 1)
    else:
        pool = range(-9, 13)
    return tuple(rng.choice(pool) for _ in range(length)), k


def write_input(spec: Spec, data: Data) -> str:
    """Return `data` as the text of standard input, or as an argument list."""
    xs, k = data
    if spec.layout == "call":
        return f"{list(xs)}, {k}" if spec.has_argument else f"{list(xs)}"
    if spec.layout == "commas":
        return ",".join(map(str, xs)) + "\n"
    line = " ".join(map(str, xs)) + "\n"
    return f"{len(xs)}\n{line}" if spec.layout == "counted" else line


def parse_input(layout: str, has_argument: bool, text: str) -> Data | None:
    """Return the data that an input's text stands for, None if it does not fit the layout."""
    try:
        if layout == "call":
            values = ast.literal_eval(f"({text},)")
            xs, k = values if has_argument else (*values, 0)
            if type(xs) is not list or type(k) is not int or any(type(x) is not int for x in xs):
                return None
        elif layout == "commas":
            xs, k = [int(part) for part in text.split(",")], 0
        else:
            lines = text.strip("\n").split("\n")
            xs, k = [int(part) for part in lines[-1].split()], 0
            counts = [int(line) for line in lines[:-1]]
            if counts != ([len(xs)] if layout == "counted" else []):
                return None
    except (ValueError, SyntaxError, TypeError):
        return None
    return (tuple(xs), k) if 0 < len(xs) <= LONGEST_LIST else None


def write_output(spec: Spec, value: object) -> str:
    """Return what a program that computes `value` prints, or the literal it returns."""
    if spec.kind == "call":
        return repr(value)
    if isinstance(value, bool):
        return "yes\n" if value else "no\n"
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value)) + "\n"


def write_program(spec: Spec, deeds: Sequence[Deed], rng: random.Random) -> str:
    """Return the source of a program that does `deeds`, in a surface form drawn with `rng`."""
    blocks = [draw_form(deed, rng) for deed in deeds]
    *head, value = blocks[-1].split("\n")
    if spec.kind == "call":
        body = "\n".join([*blocks[:-1], *head, f"return {value}"])
        return f"{starter_code(spec)}\n{indented(body)}"
    result = deeds[-1][0].result
    if result == "bool":
        value = f'"yes" if {value} else "no"'
    elif result == "list":
        value = f"*{value}"
    reading = rng.choice(LAYOUTS[spec.layout][1])
    return "\n".join([reading, *blocks[:-1], *head, f"print({value})"])


def draw_form(deed: Deed, rng: random.Random) -> str:
    """Return one surface form of a deed's code; longer forms are half as likely: programs stay short."""
    op, k, wrong = deed
    forms = op.wrong if wrong else op.right
    return rng.choices(forms, [1 if "\n" in form else 2 for form in forms])[0].replace("{k}", k)


def indented(block: str) -> str:
    """Return `block` one level deeper."""
    return "\n".join("    " + line for line in block.split("\n"))


def right_deeds(spec: Spec) -> list[Deed]:
    """Return the deeds of a correct program."""
    return [(step.op, step.k, False) for step in spec.steps]


@cache
def step_function(form: str, terminal: bool) -> Callable[[list[int], int], object]:
    """Return a function of ``(xs, k)`` that does what the code form does.

    Only the forms written down in `ops` come here, never a program a model wrote.
    """
    *head, last = form.split("\n")
    lines = [*head, f"return {last}"] if terminal else [*head, last, "return xs"]
    scope: dict[str, Callable[[list[int], int], object]] = {}
    exec(f"def step(xs, k):\n{indented(chr(10).join(lines))}", scope)
    return scope["step"]


def compute(deeds: Sequence[Deed], data: Data) -> object:
    """Return the value that a program doing `deeds` gives on `data`.

    Raises:
        Exception: whatever that program would raise (an empty ``min``, an index out of range).
    """
    xs, argument = data
    value: object = list(xs)
    for op, k, wrong in deeds:
        form = (op.wrong if wrong else op.right)[0].replace("{k}", "k")
        constant = argument if k in ("", "k") else int(k)
        value = step_function(form, op.result is not None)(value, constant)
    return value


def outcome(spec: Spec, deeds: Sequence[Deed], data: Data) -> str | None:
    """Return what a program doing `deeds` outputs on `data`, None if it raises."""
    try:
        return write_output(spec, compute(deeds, data))
    except (ValueError, IndexError, ZeroDivisionError):
        return None
