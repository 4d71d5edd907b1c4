"""What is code, a test or a value in prose, and what is not."""

import pytest

from tipprobe.tips.masking import CODE, TESTS, VALUE, code_fragments, is_code, mask_text

STATEMENT = "Take every other number of the list. Print the sum, or 0 if nothing is left."


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Before.\n```python\nxs = xs[1::2]\nprint(xs)\n```\nAfter.", f"Before.\n{CODE}\nAfter."),
        ("Cut off:\n```python\nxs = [", f"Cut off:\n{CODE}"),
        ("~~~\nx\n~~~", CODE),
        ("Use `//` with care.", f"Use {CODE} with care."),
        ("Call sum(xs) or sorted(xs, key=abs) here.", f"Call {CODE} or {CODE} here."),
        ("Sort with xs.sort first.", f"Sort with {CODE} first."),
        ("Keep x >= 0 only.", f"Keep {CODE} only."),
        ("xs = xs[::2]\nis the line.", f"{CODE}\nis the line."),
        ("for x in xs:\n    t += x", CODE),
        ("Try it:\nassert f([1, 2]) == 3", f"Try it:\n{TESTS}"),
        ("For [1, -2, 3] you print 7, not -12.5.", f"For {VALUE} you print {VALUE}, not {VALUE}."),
        ("The input 3,1,2 fails.", f"The input {VALUE} fails."),
        ("It returns True and None.", f"It returns {VALUE} and {VALUE}."),
        ("Expected 'abba' and got \"abab\".", f"Expected {VALUE} and got {VALUE}."),
        ("[7, 7]", VALUE),
    ],
)
def test_masked(text, masked):
    assert mask_text(text, STATEMENT) == masked


@pytest.mark.parametrize(
    "text",
    [
        'You read "every other number" as the first, third and so on.',
        "Equal number(s) count once, e.g. two zeros; and/or is fine.",
        "If the list is empty, the answer is minus one. Don't sort it!",
        "The 2nd number goes, not the 1st.",
        "Easy. Return the largest.",
        "",
    ],
)
def test_prose_stays(text):
    assert mask_text(text, STATEMENT) == text
    assert code_fragments(text) == []


@pytest.mark.parametrize(
    "line", ["x = 1", "import sys", "for x in xs:", "print(x)", "t += 1", "xs[0]", "return x + 1"]
)
def test_lines_of_code(line):
    assert is_code(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Done",
        "1, 2",
        "[]",
        "-1",
        "Careful: the order stays.",
        "yes, no",
        "pass",
        "Note: zeros",
        "zero or one",
        "order is free",
    ],
)
def test_lines_that_only_parse(line):
    assert not is_code(line)


def test_a_name_or_a_value_in_backticks_is_no_code():
    assert code_fragments("An `empty` list `[]` gives `-1`, and `k` may be `0`.") == []
    assert code_fragments("Use `xs[::-1]`.") == ["xs[::-1]"]
    assert code_fragments("It is `not empty`.") == []


def test_hostile_text_does_not_break_the_parser():
    for text in ("(" * 5000, "\0", "lambda" * 3, "`" * 7, "[" * 300 + "]" * 300, "x" * 100_000):
        mask_text(text, text)
        code_fragments(text)
