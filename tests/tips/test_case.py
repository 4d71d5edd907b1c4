"""Trials told in full."""

import pytest

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem
from tipprobe.selection.types import Selection
from tipprobe.tips.case import case_study, changed_cases
from tipprobe.tips.results import TipResults
from tipprobe.tips.trials import Branch, Trial

PROBLEMS = {
    "a": Problem("a", "Statement of a."),
    "b": Problem("b", "Statement of b.", meta={"underspecified": True, "rule": "ties go left"}),
    "c": Problem("c", "Statement of c."),
}


def results(**cells):
    """Trials of one run: (base passes, guided passes, chosen) by problem."""
    trials, chosen = [], []
    for key, (base, guided, index) in cells.items():
        first = Branch("base", None, f"base of {key}", 1, 1, base, "passed" if base else "timeout")
        second = Branch("guided", f"Tip for {key}.", f"guided of {key}", 1, 1, guided, "")
        trials += [Trial("base", 0, key, (first,)), Trial("self_hint", 0, key, (first, second))]
        chosen += [
            {"rm": Selection(0, (0.0,), "only_program")},
            {"rm": Selection(index, (0.25, 0.5), "score")},
        ]
    return TipResults(trials, chosen, 100, 0)


def test_a_repair_and_a_breakage_are_told_in_full():
    found = results(a=(True, False, 0), b=(False, True, 1), c=(True, False, 1))
    text = changed_cases(found, PROBLEMS, "self_hint", "rm")
    repaired, broken = text.split("### Broken by a selected tip")
    for part, key in ((repaired, "b"), (broken, "c")):
        shown = (f"> Statement of {key}.", f"base of {key}", f"tip: *Tip for {key}.*", f"guided of {key}")
        assert all(text in part for text in shown)
    assert "fails (timeout)" in repaired and "does not say: *ties go left*" in repaired
    assert "rm takes program 1 (score; scores 0.250, 0.500)" in broken
    assert "Statement of a." not in text, "that tip was not selected"


def test_where_no_tip_changed_anything_that_is_said():
    text = changed_cases(results(a=(True, True, 1)), PROBLEMS, "self_hint", "rm")
    assert text.count("None: no selected tip of Self-Hint did that.") == 2
    with pytest.raises(DataError, match="no trials of the method 'ctrl'"):
        changed_cases(results(a=(True, True, 1)), PROBLEMS, "ctrl", "rm")


def test_the_case_is_a_repair_of_a_problem_that_leaves_a_rule_open():
    found = results(a=(False, True, 1), b=(False, True, 1), c=(False, True, 0))
    assert "> Statement of b." in case_study(found, PROBLEMS, "self_hint", "rm")
