import pytest

from tipprobe.probes.mutate import mutate_examples
from tipprobe.probes.validity import normalise, parse_arguments, static_reason
from tipprobe.problems.schema import Problem, Test

COUNTED = Problem("s", "", examples=(Test("4\n1 2 3 7\n", ""), Test("2\n5 5\n", "")))
PLAIN = Problem("p", "", examples=(Test("3 1 2\n", ""), Test("-4 6 1 9\n", "")))
CALL = Problem(
    "c",
    "",
    kind="call",
    entry_point="f",
    examples=(Test("[3, 1], 'ab', {'k': 1.5}, (1, True)", ""), Test("[2], 'c', {}, (0, False)", "")),
)


@pytest.mark.parametrize("problem", [COUNTED, PLAIN, CALL])
def test_mutants_are_valid_new_and_reproducible(problem):
    mutants = mutate_examples(problem, 12, seed=3)
    assert len(mutants) == 12
    forms = {normalise(m, problem) for m in mutants} | {normalise(t.input, problem) for t in problem.examples}
    assert len(forms) == 12 + len(problem.examples)
    assert all(static_reason(m, problem) is None for m in mutants)
    assert mutants == mutate_examples(problem, 12, seed=3) != mutate_examples(problem, 12, seed=4)


def test_counts_stay_in_step():
    mutants = [m.split("\n") for m in mutate_examples(COUNTED, 30, seed=0)]
    assert all(int(m[0]) == len(m[1].split()) for m in mutants)
    assert {int(m[0]) for m in mutants} > {2, 4}  # lengths do change


def test_values_between_commas_are_numbers_too():
    problem = Problem("commas", "", examples=(Test("3,-1,2\n", ""), Test("4, 5, 6\n", "")))
    mutants = mutate_examples(problem, 20, seed=0)
    assert len(mutants) == 20
    assert all(int(value) is not None for m in mutants for value in m.split(","))


def test_sign_classes_are_kept():
    values = [int(t) for m in mutate_examples(COUNTED, 30, seed=1) for t in m.split()]
    assert min(values) >= 1
    assert min(int(t) for m in mutate_examples(PLAIN, 30, seed=1) for t in m.split()) < 0


def test_types_are_kept():
    for mutant in mutate_examples(CALL, 30, seed=2):
        a, b, c, d = parse_arguments(mutant)
        assert (type(a), type(b), type(c), type(d), type(d[1])) == (list, str, dict, tuple, bool)


def test_examples_with_more_than_literals_are_left_alone():
    odd = (Test("[3, 1], k=2", "3"), Test("[4], inf", "4"))
    problem = Problem("o", "", kind="call", entry_point="f", examples=odd)
    assert mutate_examples(problem, 5, seed=0) == []
    mixed = Problem("o", "", kind="call", entry_point="f", examples=(*odd, Test("[5, 6], 7", "6")))
    assert len(mutate_examples(mixed, 5, seed=0)) == 5


def test_without_examples_there_is_nothing_to_mutate():
    assert mutate_examples(Problem("e", ""), 5, seed=0) == []
    constant = Problem("k", "", kind="call", entry_point="f", examples=(Test("None", ""),))
    assert mutate_examples(constant, 5, seed=0) == []
