"""Verdicts on the second paper's claims."""

import numpy as np
import pandas as pd
import pytest

from tipprobe.selection.types import Selection
from tipprobe.tips.categories import category_table
from tipprobe.tips.claims import CLAIMS, TipEvidence, judge_tip_claims
from tipprobe.tips.figures import categories_figure, cost_against_pass, exploration_and_selection
from tipprobe.tips.results import TipResults, cost_table, main_table
from tipprobe.tips.trials import Branch, Trial

N = 60
BEST_OF = pd.DataFrame(
    {
        "n": [1, 8],
        "problems": N,
        "pool": 8,
        "mean": [50.0, 55.0],
        "low": [45.0, 50.0],
        "high": [55.0, 60.0],
        "tokens": [20.0, 900.0],
    }
)


def trials_of(method, guided, selects=True):
    """Base solves every other problem; the added program solves those below `guided`."""
    rows = []
    for i in range(N):
        branches = [Branch("base", None, "x", 10, 10, i % 2 == 0, "")]
        if method != "base":
            branches.append(Branch("guided", "Duplicates count once.", "y", 10, 10, i < guided, ""))
        index = int(len(branches) > 1 and (branches[1].passed >= branches[0].passed if selects else True))
        selection = Selection(index, (0.0,) * len(branches), "score", tokens_scored=10)
        rows.append((Trial(method, 0, f"p{i}", tuple(branches)), {"reward_model": selection}))
    return rows


def evidence(methods, selector="reward_model", kappa=0.9):
    rows = trials_of("base", 0) + [row for name, guided in methods.items() for row in trials_of(name, guided)]
    results = TipResults(*zip(*rows, strict=True), 300, 0)
    tipped = [m for m in results.methods if m != "base"]
    return TipEvidence(
        results,
        selector,
        BEST_OF,
        np.full(N, 0.55),
        cost_table(results, "reward_model", {}),
        category_table(results, tipped, "reward_model"),
        kappa,
    )


def verdicts(found):
    return {claim["id"]: claim["verdict"] for claim in judge_tip_claims(found)}


def test_better_tips_are_seen_as_better():
    found = verdicts(evidence({"best_of_2": 10, "self_hint": 20, "tipcoder_sft": 36, "tipcoder_rl": 56}))
    for name in ("tips_beat_base", "tips_beat_baselines", "rl_beats_sft", "tips_explore", "net_positive"):
        assert found[name] == "reproduced", name
    assert found["selection_gap"] == "not reproduced", "this selector is the oracle"
    assert found["cheaper_than_best_of_8"] == "reproduced"
    assert found["clarification"] == "reproduced"


def test_a_rule_that_people_disagree_with_decides_nothing():
    assert verdicts(evidence({"tipcoder_rl": 56}, kappa=0.5))["clarification"] == "not attempted"


def test_best_of_8_is_compared_problem_by_problem():
    assert verdicts(evidence({"tipcoder_rl": 10}))["cheaper_than_best_of_8"] == "partly"
    assert verdicts(evidence({"tipcoder_rl": 2}))["cheaper_than_best_of_8"] == "not reproduced"


def test_a_proposer_that_got_worse_contradicts():
    found = verdicts(evidence({"tipcoder_sft": 56, "tipcoder_rl": 10}))
    assert found["rl_beats_sft"] == "contradicted"
    assert found["tips_beat_baselines"] == "not attempted", "no baseline was run"


def test_without_a_reward_model_nothing_is_claimed():
    found = verdicts(evidence({"tipcoder_rl": 56}, selector=None))
    assert set(found.values()) == {"not attempted"} and len(found) == len(CLAIMS)


def test_figures_show_what_their_tables_hold():
    found = evidence({"self_hint": 20, "tipcoder_rl": 56})
    figure, data = exploration_and_selection(main_table(found.results), "stand-in")
    assert "stand-in" in figure.get_suptitle() and len(data) == 1 + 2 * 4
    figure, data = cost_against_pass(BEST_OF, found.cost, "stand-in")
    assert set(data["title"]) >= {"Best-of-8", "TipCoder-RL"}
    reported = pd.DataFrame({"category": list(found.categories["category"]), "positive": 1, "negative": 2})
    figure, data = categories_figure(found.categories, "stand-in", reported)
    assert [axis.get_title() for axis in figure.axes] == ["stand-in", "paper"]


def test_every_claim_says_how_it_is_judged():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert all(claim.rule and claim.reported and claim.where for claim in CLAIMS)
    assert pytest.approx(7.38, abs=0.1) == float(CLAIMS[0].reported.split(";")[0])
