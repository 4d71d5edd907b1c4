"""The world: forms agree, splits are reproducible and disjoint, hidden tests catch what they should."""

import random
from dataclasses import replace

import pytest

from tipprobe.errors import ParameterError
from tipprobe.problems.minicode import WorldConfig, error_rates, split
from tipprobe.problems.minicode.ops import ALL_OPS, ALL_TERMINALS, BY_NAME, TRANSFER_OPS, TRANSFER_TERMINALS
from tipprobe.problems.minicode.programs import (
    outcome,
    parse_input,
    right_deeds,
    step_function,
    write_input,
    write_program,
)
from tipprobe.problems.minicode.world import SPLITS, split_with_specs, with_misconception
from tipprobe.problems.schema import Problem
from tipprobe.sandbox import Job, Sandbox, is_correct


def value(form, op, xs, k):
    try:
        return step_function(form.replace("{k}", "k"), op.result is not None)(list(xs), k)
    except (ValueError, IndexError):
        return "error"


@pytest.mark.parametrize("op", ALL_OPS + ALL_TERMINALS, ids=lambda op: op.name)
def test_forms_agree_and_the_misconception_differs(op):
    rng = random.Random(op.name)
    inputs = [
        ([rng.randint(-6, 8) for _ in range(rng.randint(0, 7))], rng.choice(op.ks) if op.ks else 0)
        for _ in range(300)
    ]
    for forms in (op.right, op.wrong):
        for form in forms[1:]:
            for xs, k in inputs:
                assert value(form, op, xs, k) == value(forms[0], op, xs, k), (form, xs, k)
    differing = sum(value(op.right[0], op, *data) != value(op.wrong[0], op, *data) for data in inputs)
    assert differing >= 3


def test_names_are_unique():
    assert len(BY_NAME) == len(ALL_OPS) + len(ALL_TERMINALS)


@pytest.mark.parametrize("name", SPLITS)
def test_split_is_reproducible_and_a_smaller_one_is_its_prefix(name):
    problems = split(name, 12, seed=5)
    assert problems == split(name, 12, seed=5)
    assert problems[:4] == split(name, 4, seed=5)
    assert problems != split(name, 12, seed=6)
    assert problems[7].id == f"minicode/{name}/0007"
    assert [Problem.from_json(p.to_json()) for p in problems] == problems


def test_splits_share_no_sequence_of_operations():
    sequences = {name: {tuple(p.meta["ops"]) for p in split(name, 150)} for name in SPLITS}
    names = list(SPLITS)
    for i, first in enumerate(names):
        assert len(sequences[first]) == 150
        for second in names[i + 1 :]:
            assert not sequences[first] & sequences[second], (first, second)


def test_transfer_uses_operations_that_adaptation_does_not():
    transfer = {op.name for op in TRANSFER_OPS + TRANSFER_TERMINALS}
    assert {name for p in split("transfer", 80) for name in p.meta["ops"]} == transfer
    for other in ("sft", "adaptation", "heldout"):
        assert not transfer & {name for p in split(other, 150) for name in p.meta["ops"]}


def test_unknown_split_and_negative_count_are_refused():
    with pytest.raises(ParameterError, match="adaptation"):
        split("adaption")
    with pytest.raises(ParameterError, match="-1"):
        split("heldout", -1)


def test_problems_have_examples_tests_and_both_kinds():
    problems = split("adaptation", 120)
    for problem in problems:
        assert len(problem.examples) == 3 and len(problem.tests) == 12
        assert len({t.input for t in problem.examples + problem.tests}) == 15
        assert bool(problem.starter_code) == (problem.kind == "call")
    kinds = [problem.kind for problem in problems]
    assert 0.25 < kinds.count("call") / len(kinds) < 0.55
    opened = sum(problem.meta["underspecified"] for problem in problems)
    assert 0.1 < opened / len(problems) < 0.3


def test_hidden_tests_catch_every_pitfall_and_tips_name_it():
    for problem, spec in split_with_specs("adaptation", 60):
        data = [parse_input(spec.layout, spec.has_argument, t.input) for t in problem.tests]
        for name in problem.meta["pitfalls"]:
            outcomes = [outcome(spec, with_misconception(spec, name), d) for d in data]
            assert outcomes != [t.expected for t in problem.tests], (problem.id, name)
        if problem.meta["pitfalls"]:
            about = problem.meta["tip_about"]
            assert about in problem.meta["pitfalls"]
            assert problem.meta["tip"] != problem.meta["wrong_tip"]
            assert BY_NAME[about].open == problem.meta["underspecified"]
        if problem.meta["underspecified"]:
            assert problem.meta["rule"].lower() in problem.meta["tip"].lower()


def test_references_in_any_form_pass_the_hidden_tests_in_the_sandbox():
    rng = random.Random(0)
    chosen = split_with_specs("adaptation", 12) + split_with_specs("transfer", 12)
    jobs = []
    for problem, spec in chosen:
        inputs = tuple(t.input for t in problem.tests)
        jobs.append(Job(problem.reference, inputs, problem.entry_point))
        jobs.append(Job(write_program(spec, right_deeds(spec), rng), inputs, problem.entry_point))
    with Sandbox(2) as sandbox:
        results = sandbox.run(jobs)
    for (problem, _), *pair in zip(chosen, results[::2], results[1::2], strict=True):
        for runs in pair:
            assert all(is_correct(r, t.expected, problem) for r, t in zip(runs, problem.tests, strict=True))


def test_inputs_read_back_and_malformed_ones_do_not():
    for problem, spec in split_with_specs("heldout", 40):
        for test in problem.tests:
            assert write_input(spec, parse_input(spec.layout, spec.has_argument, test.input)) == test.input
    for layout, argument, text in [
        ("line", False, "1 2 a"),
        ("line", False, ""),
        ("line", False, "2\n1 2"),
        ("counted", False, "3\n1 2"),
        ("counted", False, "1 2"),
        ("commas", False, "1 2"),
        ("call", False, "[1, 2], 3"),
        ("call", True, "[1, 2]"),
        ("call", False, "[1.5]"),
        ("call", False, "[1, 2"),
    ]:
        assert parse_input(layout, argument, text) is None, (layout, text)


def test_error_rates_follow_the_knobs():
    config = WorldConfig()
    rates = error_rates(config)
    assert set(rates) == set(BY_NAME)
    hard = [name for name, rate in rates.items() if rate.slip == config.slip_hard]
    assert 0.2 < len(hard) / len(rates) < 0.35
    assert error_rates(replace(config, seed=1)) != rates
    none = error_rates(replace(config, hard_share=0.0))
    assert {rate.slip for rate in none.values()} == {config.slip_easy}
    mean = sum(r.misconception for name, r in rates.items() if not BY_NAME[name].open)
    assert 0.2 < mean / sum(not op.open for op in BY_NAME.values()) < 0.35
