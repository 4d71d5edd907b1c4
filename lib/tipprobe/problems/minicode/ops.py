"""The vocabulary of the embedded world: list operations and the terminals that end a problem.

Every entry holds its wordings, its code in several surface forms, *one* plausible wrong variant of that code,
and the sentence (``rule``) that tells the two apart.  An ``open`` entry is under-specified: its wording fits
both variants, hidden tests follow ``right``, and ``wrong`` is what most programmers would guess.

Code forms are statements that rebind ``xs``; a terminal's last line is an expression; ``{k}`` stands for the
parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.

    Attributes:
        name: unique name; sequences of names keep the splits apart.
        phrases: wordings in a statement (imperative for list operations, a noun phrase for terminals).
        right: forms of the intended code, `wrong`: forms of its misconception.
        rule: sentence that names the intended behaviour (a right tip); `wrong_rule`: a misleading one.
        ks: values of the parameter, empty if there is none.
        open: whether the wording leaves `rule` open.
        result: None for a list operation, else what the terminal gives.
    """

    name: str
    phrases: tuple[str, ...]
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    rule: str
    wrong_rule: str
    ks: tuple[int, ...] = ()
    open: bool = False
    result: Literal["int", "list", "bool"] | None = None


def keep(condition: str) -> tuple[str, ...]:
    """Return the forms of a filter by `condition` on ``x``."""
    return (
        f"xs = [x for x in xs if {condition}]",
        f"xs = list(filter(lambda x: {condition}, xs))",
        f"ys = []\nfor x in xs:\n    if {condition}:\n        ys.append(x)\nxs = ys",
    )


def each(value: str) -> tuple[str, ...]:
    """Return the forms of a map that replaces ``x`` by `value`."""
    return (
        f"xs = [{value} for x in xs]",
        f"xs = list(map(lambda x: {value}, xs))",
        f"ys = []\nfor x in xs:\n    ys.append({value})\nxs = ys",
    )


def running(total: str) -> tuple[str, ...]:
    """Return the forms of a list made by index from `total`, an expression in ``xs`` and ``i``."""
    return (
        f"xs = [{total} for i in range(len(xs))]",
        f"ys = []\nfor i in range(len(xs)):\n    ys.append({total})\nxs = ys",
    )


def be(*values: str) -> tuple[str, ...]:
    """Return forms that assign each of `values` to ``xs``."""
    return tuple(f"xs = {value}" for value in values)


# One operation a block: name and wordings; code, right and wrong; the two rules.
# fmt: off
MAIN_OPS = (
    Op("greater", ("keep the numbers greater than {k}", "drop the numbers that are not above {k}"),
       keep("x > {k}"), keep("x >= {k}"),
       "a number equal to {k} is not above {k} and goes", "a number equal to {k} stays", ks=(0, 1, 2, 3, 4)),
    Op("at_most", ("keep the numbers that are at most {k}", "drop the numbers above {k}"),
       keep("x <= {k}"), keep("x < {k}"),
       "the number {k} itself stays", "the number {k} itself goes", ks=(2, 3, 4, 5, 6)),
    Op("multiples", ("keep the multiples of {k}", "drop what {k} does not divide"),
       keep("x % {k} == 0"), keep("x and x % {k} == 0"),
       "zero is a multiple too", "zero is not a multiple", ks=(2, 3, 4)),
    Op("odd", ("keep the odd numbers", "drop the even numbers"),
       keep("x % 2 == 1"), keep("x > 0 and x % 2 == 1"),
       "negative numbers can be odd", "negative numbers do not count as odd"),
    Op("nonnegative", ("drop the negative numbers", "remove everything below zero"),
       keep("x >= 0"), keep("x > 0"),
       "zero is not negative and stays", "zero goes with the negative numbers"),
    Op("small",
       ("keep the numbers whose absolute value is below {k}", "drop the numbers of size {k} or more"),
       keep("abs(x) < {k}"), keep("x < {k}"),
       "a very negative number is large in size", "every negative number is small", ks=(4, 5, 6, 7)),
    Op("subtract", ("subtract {k} from each number", "lower each number by {k}"),
       each("x - {k}"), each("{k} - x"),
       "{k} is what is taken away", "each number is taken away from {k}", ks=(1, 2, 3, 4, 5)),
    Op("square", ("square each number", "multiply each number by itself"),
       each("x * x"), each("x * 2"),
       "a square is x times x", "a square is x times 2"),
    Op("halve",
       ("halve each number, rounding toward zero", "replace each number by its half without the fraction"),
       each("int(x / 2)"), each("x // 2"),
       "half of -3 is -1 here", "half of -3 is -2 here"),
    Op("cap", ("replace the numbers above {k} by {k}", "cap each number at {k}"),
       each("min(x, {k})"), each("max(x, {k})"),
       "no number may end above {k}", "no number may end below {k}", ks=(2, 3, 4, 5, 6)),
    Op("remainder", ("replace each number by its remainder modulo {k}", "take each number modulo {k}"),
       each("x % {k}"), each("abs(x) % {k}"),
       "the remainder of -1 is {k} - 1", "the sign is ignored before the remainder", ks=(3, 4, 5)),
    Op("clip", ("replace the negative numbers by zero", "raise the numbers below zero to zero"),
       each("max(x, 0)"), each("abs(x)"),
       "-5 becomes 0", "-5 becomes 5"),
    Op("sort_down", ("sort from largest to smallest", "put the numbers in descending order"),
       (*be("sorted(xs, reverse=True)", "sorted(xs)[::-1]"), "xs.sort(reverse=True)"),
       (*be("sorted(xs)"), "xs.sort()"),
       "the largest number comes first", "the smallest number comes first"),
    Op("sort_size", ("sort by absolute value", "order the numbers by their distance to zero"),
       (*be("sorted(xs, key=abs)"), "xs.sort(key=abs)"),
       (*be("sorted(map(abs, xs))"), "xs = [abs(x) for x in xs]\nxs.sort()"),
       "the numbers keep their sign", "the numbers lose their sign"),
    Op("prefix", ("replace each number by the sum up to and including it", "build the running totals"),
       running("sum(xs[:i + 1])"), running("sum(xs[:i])"),
       "each total includes the number itself", "each total stops before the number itself"),
    Op("steps",
       ("take each number minus the one before it", "replace the list by the steps between neighbours"),
       be("[b - a for a, b in zip(xs, xs[1:])]", "[xs[i] - xs[i - 1] for i in range(1, len(xs))]"),
       be("[a - b for a, b in zip(xs, xs[1:])]", "[xs[i - 1] - xs[i] for i in range(1, len(xs))]"),
       "a rise gives a positive step", "a rise gives a negative step"),
    Op("first", ("keep the first {k} numbers", "cut the list after {k} numbers"),
       be("xs[:{k}]", "[xs[i] for i in range(min({k}, len(xs)))]"),
       be("xs[:{k} + 1]", "[xs[i] for i in range(min({k} + 1, len(xs)))]"),
       "exactly {k} numbers stay", "the number at index {k} stays as well", ks=(2, 3, 4)),
    Op("skip", ("drop the first {k} numbers", "start after {k} numbers"),
       be("xs[{k}:]", "[xs[i] for i in range({k}, len(xs))]"),
       be("xs[{k} - 1:]", "[xs[i] for i in range({k} - 1, len(xs))]"),
       "exactly {k} numbers go", "number {k} from the left stays", ks=(1, 2, 3)),
    Op("reverse", ("reverse the list", "turn the order around"),
       (*be("xs[::-1]", "list(reversed(xs))"), "xs.reverse()"),
       (*be("sorted(xs)[::-1]", "list(sorted(xs, reverse=True))"), "xs.sort(reverse=True)"),
       "the last number comes first, whatever its value", "the largest number comes first"),
    Op("alternate",
       ("keep every second number, starting with the first", "keep the numbers at even indices"),
       be("xs[::2]", "[xs[i] for i in range(0, len(xs), 2)]"),
       be("xs[1::2]", "[xs[i] for i in range(1, len(xs), 2)]"),
       "the first number stays", "the first number goes"),
    Op("dedupe", ("keep only the first copy of each number", "drop every number that was seen before"),
       (*be("list(dict.fromkeys(xs))"),
        "ys = []\nfor x in xs:\n    if x not in ys:\n        ys.append(x)\nxs = ys"),
       (*be("sorted(set(xs))"),
        "ys = []\nfor x in sorted(xs):\n    if x not in ys:\n        ys.append(x)\nxs = ys"),
       "the order of the list stays", "the numbers end up sorted"),
    Op("drop_min", ("remove one copy of the smallest number", "take out the smallest number once"),
       ("if xs:\n    xs.remove(min(xs))", "i = xs.index(min(xs)) if xs else 0\nxs = xs[:i] + xs[i + 1:]"),
       ("if xs:\n    y = min(xs)\n    xs = [x for x in xs if x > y]", "xs = [x for x in xs if x > min(xs)]"),
       "other copies of the smallest number stay", "all copies of the smallest number go"),
    Op("between", ("keep the numbers between 0 and {k}", "keep what lies between 0 and {k}"),
       keep("0 < x < {k}"), keep("0 <= x <= {k}"),
       "between leaves out 0 and {k} themselves", "between includes 0 and {k} themselves", ks=(4, 5, 6, 7),
       open=True),
    Op("unique", ("remove the duplicates", "get rid of duplicates"),
       keep("xs.count(x) == 1"),
       (*be("list(dict.fromkeys(xs))", "sorted(set(xs), key=xs.index)"),
        "ys = []\nfor x in xs:\n    if x not in ys:\n        ys.append(x)\nxs = ys"),
       "a number with duplicates goes entirely", "one copy of a number with duplicates stays", open=True),
    Op("other", ("take every other number", "take one number in two"),
       be("xs[1::2]", "[xs[i] for i in range(1, len(xs), 2)]"),
       be("xs[::2]", "[xs[i] for i in range(0, len(xs), 2)]"),
       "taking starts at the second number", "taking starts at the first number", open=True),
    Op("rotate", ("rotate the list by {k}", "rotate by {k} places"),
       be("xs[-{k}:] + xs[:-{k}]"), be("xs[{k}:] + xs[:{k}]"),
       "the rotation goes to the right", "the rotation goes to the left", ks=(1, 2), open=True),
    Op("divide",
       ("divide each number by {k} as integers", "replace each number by its whole quotient by {k}"),
       each("int(x / {k})"), each("x // {k}"),
       "quotients are rounded toward zero", "quotients are rounded down", ks=(2, 3, 4), open=True),
)

MAIN_TERMINALS = (
    Op("sum", ("the sum of the list", "what the numbers add up to"),
       ("sum(xs)", "t = 0\nfor x in xs:\n    t += x\nt"),
       ("sum(set(xs))", "t = 0\nfor x in set(xs):\n    t += x\nt"),
       "equal numbers are added each time", "equal numbers are added once", result="int"),
    Op("length", ("how many numbers are left", "the length of the list"),
       ("len(xs)", "t = 0\nfor x in xs:\n    t += 1\nt"),
       ("len(set(xs))", "t = 0\nfor x in set(xs):\n    t += 1\nt"),
       "equal numbers are counted each time", "equal numbers are counted once", result="int"),
    Op("smallest", ("the smallest number, or 0 if the list is empty", "the minimum (0 for an empty list)"),
       ("min(xs, default=0)", "min(xs) if xs else 0"), ("min(xs)", "sorted(xs)[0]"),
       "the list can be empty at the end", "the list is never empty at the end", result="int"),
    Op("spread",
       ("the largest minus the smallest number, or 0 if the list is empty",
        "the range (0 for an empty list)"),
       ("max(xs) - min(xs) if xs else 0", "max(xs, default=0) - min(xs, default=0)"),
       ("xs[-1] - xs[0] if xs else 0", "(xs[-1] if xs else 0) - (xs[0] if xs else 0)"),
       "the list need not be sorted", "the list is sorted already", result="int"),
    Op("distinct", ("how many different numbers there are", "the count of distinct numbers"),
       ("len(set(xs))", "len([x for i, x in enumerate(xs) if x not in xs[:i]])"),
       ("len([x for x in xs if xs.count(x) == 1])", "sum(xs.count(x) == 1 for x in xs)"),
       "a number that repeats counts once", "a number that repeats does not count", result="int"),
    Op("second",
       ("the second largest distinct number, or 0 if there is none",
        "the runner-up among distinct numbers (else 0)"),
       ("sorted(set(xs))[-2] if len(set(xs)) > 1 else 0",
        "ys = sorted(set(xs))\nys[-2] if len(ys) > 1 else 0"),
       ("sorted(xs)[-2] if len(xs) > 1 else 0", "ys = sorted(xs)\nys[-2] if len(ys) > 1 else 0"),
       "copies of the largest number are not second", "a copy of the largest number is second", result="int"),
    Op("signs",
       ("the alternating sum that begins with plus", "the first minus the second plus the third and so on"),
       ("sum(xs[::2]) - sum(xs[1::2])", "t = 0\nfor x in xs[::-1]:\n    t = x - t\nt"),
       ("sum(xs[1::2]) - sum(xs[::2])", "t = 0\nfor x in xs[::-1]:\n    t = -x - t\nt"),
       "the first number is added", "the first number is taken away", result="int"),
    Op("list", ("the list", "the numbers in their order"),
       ("xs",), ("sorted(xs)",),
       "the order at the end matters", "the list is given in sorted order", result="list"),
    Op("ascending", ("the list in ascending order", "the sorted list"),
       ("sorted(xs)", "xs.sort()\nxs"), ("sorted(set(xs))", "xs = list(set(xs))\nxs.sort()\nxs"),
       "equal numbers all stay", "equal numbers appear once", result="list"),
    Op("rising", ("no number is below the one before it", "the list never falls"),
       ("all(a <= b for a, b in zip(xs, xs[1:]))", "xs == sorted(xs)"),
       ("all(a < b for a, b in zip(xs, xs[1:]))", "xs == sorted(set(xs))"),
       "equal neighbours are fine", "equal neighbours are not allowed", result="bool"),
    Op("mode",
       ("the most frequent number, or 0 if the list is empty",
        "the most common number (0 for an empty list)"),
       ("max(xs, key=lambda x: (xs.count(x), x), default=0)",
        "max(sorted(xs)[::-1], key=xs.count, default=0)"),
       ("max(xs, key=lambda x: (xs.count(x), -x), default=0)", "max(sorted(xs), key=xs.count, default=0)"),
       "among equally frequent numbers take the largest", "among equally frequent numbers take the smallest",
       open=True, result="int"),
    Op("where_max",
       ("the position of the largest number, or -1 if there is none",
        "where the largest number stands (else -1)"),
       ("xs.index(max(xs)) + 1 if xs else -1",), ("xs.index(max(xs)) if xs else -1",),
       "positions are counted from 1", "positions are counted from 0", open=True, result="int"),
    Op("largest", ("the largest number", "the maximum"),
       ("max(xs, default=-1)", "max(xs) if xs else -1"), ("max(xs, default=0)", "max(xs) if xs else 0"),
       "an empty list gives -1", "an empty list gives 0", open=True, result="int"),
    Op("middle",
       ("the number in the middle, or 0 if the list is empty", "the middle number (0 for an empty list)"),
       ("xs[(len(xs) - 1) // 2] if xs else 0",), ("xs[len(xs) // 2] if xs else 0",),
       "of two middle numbers take the left one", "of two middle numbers take the right one", open=True,
       result="int"),
)

TRANSFER_OPS = (
    Op("without", ("remove all numbers equal to {k}", "delete each {k}"),
       keep("x != {k}"),
       ("if {k} in xs:\n    xs.remove({k})",
        "i = xs.index({k}) if {k} in xs else len(xs)\nxs = xs[:i] + xs[i + 1:]"),
       "every copy of {k} goes", "only one copy of {k} goes", ks=(0, 1, 2, 3)),
    Op("to_end", ("move the first {k} numbers to the end", "put the first {k} numbers behind the others"),
       be("xs[{k}:] + xs[:{k}]"), be("xs[-{k}:] + xs[:-{k}]"),
       "the front part moves to the back", "the back part moves to the front", ks=(1, 2)),
    Op("mirror", ("append the reversed list", "follow the list by its mirror image"),
       (*be("xs + xs[::-1]"), "xs += xs[::-1]"), (*be("xs[::-1] + xs"), "xs = xs[::-1] + xs"),
       "the mirror image comes second", "the mirror image comes first"),
    Op("pair_sums", ("replace the list by the sums of neighbours", "add each number to the next one"),
       be("[a + b for a, b in zip(xs, xs[1:])]", "[xs[i] + xs[i + 1] for i in range(len(xs) - 1)]"),
       be("[a + b for a, b in zip(xs[::2], xs[1::2])]",
        "[xs[i] + xs[i + 1] for i in range(0, len(xs) - 1, 2)]"),
       "pairs of neighbours overlap", "pairs of neighbours do not overlap"),
    Op("running_max", ("replace each number by the largest so far", "build the running maximum"),
       running("max(xs[:i + 1])"), running("max(xs[i:])"),
       "the maximum looks to the left", "the maximum looks to the right"),
    Op("weigh",
       ("multiply each number by its position counted from 1",
        "weigh each number by its place, the first having 1"),
       be("[x * (i + 1) for i, x in enumerate(xs)]", "[x * i for i, x in enumerate(xs, 1)]"),
       be("[x * i for i, x in enumerate(xs)]", "[x * i for i, x in enumerate(xs, 0)]"),
       "the first number has weight 1", "the first number has weight 0"),
    Op("above_mean", ("keep the numbers above the average", "drop what does not exceed the mean"),
       keep("x * len(xs) > sum(xs)"), keep("x * len(xs) >= sum(xs)"),
       "a number equal to the average goes", "a number equal to the average stays"),
    Op("negate", ("flip the sign of each number", "replace each number by its opposite"),
       each("-x"), each("-abs(x)"),
       "negative numbers become positive", "all numbers become negative"),
    Op("last", ("keep the last {k} numbers", "keep only the final {k} numbers"),
       be("xs[-{k}:]"), be("xs[:-{k}]"),
       "the end of the list stays", "the end of the list goes", ks=(2, 3, 4)),
    Op("near", ("keep the numbers within {k} of zero", "drop what is not within {k} of zero"),
       keep("abs(x) < {k}"), keep("abs(x) <= {k}"),
       "a distance of exactly {k} is too far", "a distance of exactly {k} is near enough", ks=(3, 4, 5, 6),
       open=True),
    Op("swap", ("swap the numbers in pairs", "exchange the numbers of each pair"),
       be("[y for a, b in zip(xs[::2], xs[1::2]) for y in (b, a)]"),
       ("for i in range(1, len(xs), 2):\n    xs[i - 1], xs[i] = xs[i], xs[i - 1]",),
       "a last number without partner goes", "a last number without partner stays", open=True),
)

TRANSFER_TERMINALS = (
    Op("product",
       ("the product of the numbers, 1 for an empty list", "all numbers multiplied together (1 if none)"),
       ("t = 1\nfor x in xs:\n    t *= x\nt",), ("t = 1\nfor x in xs:\n    if x:\n        t *= x\nt",),
       "a zero makes the product zero", "zeros are left out of the product", result="int"),
    Op("final", ("the last number, or 0 if the list is empty", "the number at the end (0 if there is none)"),
       ("xs[-1] if xs else 0", "(xs or [0])[-1]"), ("xs[-1]", "xs[len(xs) - 1]"),
       "there may be no number at the end", "there is always a number at the end", result="int"),
    Op("squares", ("the sum of squares", "the total of the squared numbers"),
       ("sum(x * x for x in xs)", "t = 0\nfor x in xs:\n    t += x * x\nt"),
       ("sum(xs) ** 2", "t = 0\nfor x in xs:\n    t += x\nt * t"),
       "squares are taken before adding", "squares are taken after adding", result="int"),
    Op("below_zero", ("how many numbers are below zero", "the count of negative numbers"),
       ("sum(x < 0 for x in xs)", "len([x for x in xs if x < 0])"),
       ("sum(x <= 0 for x in xs)", "len([x for x in xs if x <= 0])"),
       "zero is not below zero", "zero counts as well", result="int"),
    Op("backwards", ("the list read from the end", "the numbers from last to first"),
       ("xs[::-1]", "list(reversed(xs))"), ("sorted(xs)[::-1]", "sorted(xs, reverse=True)"),
       "only places count, not values", "the largest number leads", result="list"),
    Op("closest",
       ("the number closest to zero, or 0 if there is none",
        "the number nearest to zero (0 for an empty list)"),
       ("min(xs, key=lambda x: (abs(x), -x), default=0)", "min(sorted(xs)[::-1], key=abs, default=0)"),
       ("min(xs, key=lambda x: (abs(x), x), default=0)", "min(sorted(xs), key=abs, default=0)"),
       "of two equally close numbers take the positive one",
       "of two equally close numbers take the negative one", open=True, result="int"),
    Op("where_min",
       ("the index of the smallest number, or -1 if there is none",
        "at which index the minimum stands (else -1)"),
       ("max(i for i in range(len(xs)) if xs[i] == min(xs)) if xs else -1",),
       ("min(i for i in range(len(xs)) if xs[i] == min(xs)) if xs else -1",),
       "of equal minima the last one counts", "of equal minima the first one counts", open=True,
       result="int"),
)
# fmt: on

ALL_OPS = MAIN_OPS + TRANSFER_OPS
ALL_TERMINALS = MAIN_TERMINALS + TRANSFER_TERMINALS
BY_NAME = {op.name: op for op in ALL_OPS + ALL_TERMINALS}
