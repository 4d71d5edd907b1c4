"""The rule that sorts tips, and what selected tips did."""

import math
import re
from dataclasses import replace

import pytest

from tipprobe.errors import DataError
from tipprobe.problems.minicode import ops
from tipprobe.problems.schema import read_jsonl
from tipprobe.selection.types import Selection
from tipprobe.tips.categories import (
    CATEGORIES,
    LABELLED,
    LABELLED_TEST,
    TRUSTED_KAPPA,
    agreement,
    agreement_sentence,
    categorise,
    category_table,
    changed_by_tips,
    labelled,
    people_against_each_other,
    rule_against_people,
)
from tipprobe.tips.results import TipResults
from tipprobe.tips.teachers import TRANSCRIPTS
from tipprobe.tips.trials import Branch, Trial


@pytest.mark.parametrize(
    ("tip", "category"),
    [
        ("An empty list gives -1.", "boundary_edge_case"),
        ("Positions are counted from 1.", "index_order_output_alignment"),
        ("Quotients are rounded toward zero.", "numerical_formula_precision"),
        ("Parse each field as an integer.", "type_parsing_api"),
        ("Two pointers keep track of the window.", "algorithmic_strategy_invariant"),
        ("Duplicates count once.", "semantic_constraint_clarification"),
        ("", "semantic_constraint_clarification"),
    ],
)
def test_the_rule(tip, category):
    assert categorise(tip) == category


def test_agreement_by_hand():
    boundary, order = "boundary_edge_case", "index_order_output_alignment"
    found = agreement([(boundary, boundary), (boundary, boundary), (order, order), (boundary, order)])
    assert (found.n, found.same) == (4, 3)
    assert found.kappa == pytest.approx((0.75 - (3 / 4 * 2 / 4 + 1 / 4 * 2 / 4)) / 0.5)
    assert found.table.loc["boundary_edge_case", "index_order_output_alignment"] == 1
    assert math.isnan(agreement([(boundary, boundary)]).kappa)


def test_the_rule_is_judged_on_tips_it_was_not_revised_on():
    taught = {tip for tip, _, _ in labelled(LABELLED)}
    assert not taught & {tip for tip, _, _ in labelled(LABELLED_TEST)}
    rule, people = rule_against_people(), people_against_each_other()
    assert rule.n >= 60 and people.n >= 50
    assert 0 < rule.kappa < people.kappa, "people agree with each other more than with the rule"


def test_what_the_rule_gets_wrong_is_said_for_the_embedded_world_too():
    parts = [rule_against_people(world=world) for world in (True, False)]
    whole = rule_against_people()
    assert (sum(p.n for p in parts), sum(p.same for p in parts)) == (whole.n, whole.same)
    assert min(part.n for part in parts) >= 30
    said = agreement_sentence(whole, "tips")
    assert said.startswith(f"Of {whole.n} tips the rule puts {whole.n - whole.same} (")
    assert said.endswith("only totals are safe." if whole.kappa < TRUSTED_KAPPA else "can be read.")
    trusted = replace(whole, same=70, kappa=0.9)
    assert agreement_sentence(trusted, "tips").endswith("(kappa 0.90): single categories can be read.")
    assert "only totals" in agreement_sentence(replace(whole, kappa=math.nan), "tips")


def test_tips_marked_as_the_worlds_are_its_own_or_its_teachers():
    operations = [op for group in vars(ops).values() if isinstance(group, tuple) for op in group]
    rules = {
        rule.format(k=k)
        for op in operations
        if isinstance(op, ops.Op)
        for rule in (op.rule, op.wrong_rule)
        for k in op.ks or (0,)
    }
    said = {
        text.rstrip(".").lower()
        for path in TRANSCRIPTS.glob("*.jsonl")
        for record in read_jsonl(path)
        for text in (record["tip"], record["contrast_tip"], *record["refinements"])
        if text
    }
    for record in read_jsonl(LABELLED_TEST):
        tip = record["tip"].rstrip(".").lower()
        bare = re.sub("^(careful|note|remember): ", "", tip)
        about_the_world = bare in rules or tip in said or tip.startswith("between leaves out the ends. after")
        assert record.get("world", False) == about_the_world, tip


def test_labels_are_checked(tmp_path):
    path = tmp_path / "labelled.jsonl"
    path.write_text('{"tip": "x", "category": "edge"}\n')
    with pytest.raises(DataError, match="line 1: 'edge' is none of"):
        labelled(path)


def trial(number, base, guided, tip, index):
    branches = [Branch("base", None, "x", 1, 1, base, "")]
    if tip:
        branches.append(Branch("guided", tip, "y", 1, 1, guided, ""))
    chosen = {"reward_model": Selection(index, (0.0,) * len(branches), "score")}
    return Trial("self_hint", 0, f"p{number}", tuple(branches)), chosen


def test_what_selected_tips_did():
    empty, order = "An empty list gives -1.", "Positions are counted from 1."
    cells = [
        trial(0, False, True, empty, 1),  # repaired
        trial(1, True, False, empty, 1),  # broke
        trial(2, True, False, empty, 0),  # not selected
        trial(3, True, True, order, 1),  # changed nothing
        trial(4, False, None, None, 0),  # no tip
    ]
    base = [(Trial("base", 0, t.problem_id, t.branches[:1]), {}) for t, _ in cells]
    trials, chosen = zip(*base, *cells, strict=True)
    results = TipResults(trials, chosen, 100, 0)
    table = category_table(results, ["self_hint"], "reward_model").set_index("category")
    columns = ["selected", "positive", "negative", "net"]
    assert table.loc["boundary_edge_case", columns].tolist() == [2, 1, 1, 0]
    assert table.loc["index_order_output_alignment", columns].tolist() == [1, 0, 0, 0]
    assert table.loc["total", columns].tolist() == [3, 1, 1, 0]
    assert table.loc["total", "positive_rate"] == 50
    assert list(table.index) == [*CATEGORIES, "total"]
    repaired, broke = changed_by_tips(results, ["self_hint"], "reward_model")
    assert [r["problem_id"] for r in repaired] == ["p0"] and [r["problem_id"] for r in broke] == ["p1"]
