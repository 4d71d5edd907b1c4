"""Tips that give too much away, and honest tips that only look so."""

from dataclasses import replace

import pytest

from tipprobe.problems.load import load_problems
from tipprobe.problems.schema import Problem, Test
from tipprobe.tips.guard import REASONS, Leak, find_leaks, leak_counts
from tipprobe.tips.teachers import TRANSCRIPTS, read_transcripts

PROBLEM = Problem(
    "p",
    "Keep the numbers below 40 and print the list, or nothing.",
    tests=(Test("7 3 9\n", "3 7 9\n"), Test("5\n", "5\n"), Test("2 50\n", "17\n"), Test("40 1\n", "40\n")),
    reference="new_list = sorted(x for x in nums if x < 40)\nresult = new_list\nprint(*result)",
)
WORDS = Problem(
    "w",
    "Say Impossible if there is no way.",
    "call",
    entry_point="solve",
    starter_code="def solve(word_list):",
    tests=(
        Test("['a']", "'Impossible'"),
        Test("['b']", "'crimson'"),
        Test("['c']", "'red'"),
        Test("[]", "False"),
    ),
    reference="def solve(word_list):\n    '''Mind the order of all words.'''\n    return 'red'",
)


def reasons(tip, problem=PROBLEM, programs=()):
    return [leak.reason for leak in find_leaks(tip, problem, programs)]


@pytest.mark.parametrize(
    ("tip", "expected"),
    [
        ("Use this:\n```\nprint(1)\n```", "code"),
        ("Finish with `print(*xs)`.", "code"),
        ("Numbers with x >= limit go.", "code"),
        ("Do result = new first.", "code"),
        ("It is sorted ( x for x in nums, nothing else.", "solution"),
        ("Fill the new_list in order.", "identifier"),
        ("The answer is 17 once.", "test_value"),
        ("One output is 3, 7, 9.", "test_value"),
        ("Think of 7 3 9.", "test_case"),
        ("Think of [7, 3, 9]!", "test_case"),
        ("For 5 the answer is 5.", "test_case"),
    ],
)
def test_leaks(tip, expected):
    assert expected in reasons(tip)


@pytest.mark.parametrize(
    "tip",
    [
        "Numbers below 40 stay, 40 itself goes.",  # what the statement says is no secret
        "A list of 1 number, or of 5, is a list too.",
        "The result is the sorted list.",  # names of the solution that are words
        "Nothing left gives -1 or 0.",
        "Of 5 equal numbers each one stays.",
        "",
    ],
)
def test_honest(tip):
    assert reasons(tip) == []


@pytest.mark.parametrize(
    ("tip", "expected"),
    [
        ("Say Impossible with a capital letter.", []),
        ("Otherwise the answer is crimson.", ["test_value"]),
        ("It may be red.", []),
        ("It may be 'red'.", ["test_value"]),
        ("Otherwise return False.", []),
        ("Look at the word_list first.", []),
        ("Mind the order of all words.", []),  # prose in the solution is no solution
    ],
)
def test_words(tip, expected):
    assert reasons(tip, WORDS) == expected


SHORT = Problem(
    "s",
    "Of the numbers that are at most 2 print how many there are, or 4. On input 9 the output is 3. f(8) 6.",
    tests=tuple(Test(*pair) for pair in (("2", "4"), ("5 1", "7"), ("9", "3"), ("8", "6"), ("6", ""))),
)


@pytest.mark.parametrize(
    "tip",
    [
        "For 2 the answer is 4.",  # the statement has 2, and 4, and nowhere says that they belong together
        "The answer is 4 for 2.",
        "It prints 7 when given 5 1.",
        "7 is printed for 5, 1.",
        "With 5 1, 7 is printed.",
        "5 1 → 7",
        "Neither 5 1 nor 2 is special: the answer for 5 1 is 7.",
    ],
)
def test_outputs_on_either_side_of_their_inputs(tip):
    assert reasons(tip, SHORT) == ["test_case"]


@pytest.mark.parametrize(
    "tip",
    [
        "At most 2 means that 2 stays, and that 4 goes.",
        "The answer may be 4.",
        "The order of 5 1 and 7 does not matter.",
        "The answer is 7 where all numbers differ, and two equal numbers never count together, unlike 5 1.",
        "On 9 the answer is 3.",  # as the statement says
        "The answer is 6 for 8.",
        "The answer is empty for 6.",
    ],
)
def test_numbers_that_are_no_tests(tip):
    assert reasons(tip, SHORT) == []


STEPWISE = replace(
    PROBLEM,
    reference="def solve(xs):\n    return len([x for x in sorted(xs, key=abs) if xs.count(x) == 1])",
)


@pytest.mark.parametrize(
    ("tip", "expected"),
    [
        ("1. Sort by size. 2. Drop one. 3. Keep those whose count is one. 4. Return the length.", ["steps"]),
        ("(1) Sort them.\n(2) Take the absolute values.\n(3) Give the length.", ["steps"]),
        ("Step 1: sorting. Step 2: counting. Step 3: what is left.", ["steps"]),
        ("1. The list may be empty. 2. Zero is a number. 3. Equal sizes count.", []),
        ("1. Sort by size. 2. The length counts.", []),
        ("Positions are counted from 1. Sort first. The length is what remains.", []),
    ],
)
def test_a_solution_as_a_list_of_steps(tip, expected):
    assert reasons(tip, STEPWISE) == expected


def test_the_repaired_program_counts_as_a_solution():
    tip = "Walk with nxt over them."
    assert reasons(tip) == []
    assert reasons(tip, programs=[None, "nxt = 0"]) == ["identifier"]
    assert reasons(tip, programs=["this is no python nxt"]) == []


def test_in_process_tests_are_read_too():
    suite = Problem("s", "Add.", "unittest", test_code="assert f(2) == 1234, 'wrong sum'", entry_point="f")
    assert reasons("Expect 1234.", suite) == ["test_value"]
    assert reasons("Expect 1235.", suite) == []


def test_one_leak_a_reason_and_counts_by_tip():
    leaky = find_leaks("`f(x)` and `g(x)` give 17.", PROBLEM)
    assert [leak.reason for leak in leaky] == ["code", "test_value"] and leaky[0] == Leak("code", "f(x)")
    counts = leak_counts([leaky, (), ()])
    assert (counts["any"], counts["code"], counts["test_value"], counts["solution"]) == (1, 1, 1, 0)
    assert set(counts) == {"any", *REASONS}


@pytest.fixture(scope="module")
def embedded():
    return [problem for problem in load_problems("minicode:sft", limit=448) if "tip" in problem.meta]


def test_no_honest_tip_of_the_embedded_world_is_taken_for_a_leak(embedded):
    assert len(embedded) > 400
    assert leak_counts(find_leaks(p.meta["tip"], p) for p in embedded)["any"] == 0
    assert leak_counts(find_leaks(p.meta["wrong_tip"], p) for p in embedded)["any"] <= 4


def test_what_is_planted_is_found(embedded):
    planted = {
        "block": lambda p: f"Write this:\n```python\n{p.reference}\n```",
        "inline": lambda p: f"End with `{p.reference.splitlines()[-1].strip()}`.",
        "test": lambda p: f"For {p.tests[0].input.strip()} the answer is {p.tests[0].expected.strip()}.",
        "output first": lambda p: (
            f"The answer is {p.tests[0].expected.strip()} for {p.tests[0].input.strip()}."
        ),
        "given": lambda p: f"It prints {p.tests[0].expected.strip()} when given {p.tests[0].input.strip()}.",
    }
    for name, tip in planted.items():
        missed = sum(not find_leaks(tip(p), p) for p in embedded)
        assert missed <= 0.01 * len(embedded), name


def test_of_the_recorded_tips_those_leak_that_were_meant_to():
    problems = {problem.id: problem for problem in load_problems("minicode:sft", limit=448)}
    leaking = {}
    for transcript in read_transcripts(sorted(TRANSCRIPTS.glob("*.jsonl"))).values():
        said = (transcript.tip, transcript.contrast_tip, *transcript.refinements)
        for number, tip in enumerate(said):
            leaks = find_leaks(tip or "", problems[transcript.problem_id])
            if leaks:
                leaking[transcript.problem_id.rpartition("/")[2], number] = leaks[0].reason
    assert leaking == {
        ("0046", 0): "code",
        ("0119", 0): "test_case",
        ("0189", 0): "code",
        ("0308", 0): "steps",
        ("0310", 0): "code",
        ("0336", 0): "test_case",
        ("0386", 0): "code",
        ("0087", 1): "code",
    }


def test_an_output_of_one_digit_alone_is_not_found_and_is_not_meant_to_be(embedded):
    short = next(
        p for p in embedded if p.tests[0].expected.strip() in "23456789" and p.tests[0].expected.strip()
    )
    assert not find_leaks(f"One of the answers is {short.tests[0].expected.strip()}.", short)
