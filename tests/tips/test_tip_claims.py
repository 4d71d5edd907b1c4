"""Verdicts on the second paper's claims."""

import numpy as np
import pandas as pd
import pytest

from tipprobe.selection.types import Selection
from tipprobe.tips.claims import CLAIMS, PRIVILEGED, TipEvidence, judge_tip_claims, result_sentences
from tipprobe.tips.figures import categories_figure, cost_against_pass, exploration_and_selection
from tipprobe.tips.results import TipResults, main_table
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


def trials_of(method, guided, selectors=("reward_model",)):
    """Base solves every other problem; the added program solves those below `guided`.

    The reward model takes the added program unless it breaks something, any other selector the base.
    """
    rows = []
    for i in range(N):
        branches = [Branch("base", None, "x", 10, 10, i % 2 == 0, "")]
        if method != "base":
            branches.append(Branch("guided", "Duplicates count once.", "y", 10, 10, i < guided, ""))
        better = int(len(branches) > 1 and branches[1].passed >= branches[0].passed)
        scores = (0.0,) * len(branches)
        chosen = {
            name: Selection(better, scores, "score", tokens_scored=10)
            if name == "reward_model"
            else Selection(0, scores, "score")
            for name in selectors
        }
        rows.append((Trial(method, 0, f"p{i}", tuple(branches)), chosen))
    return rows


def evidence(methods, selectors=("reward_model",), kappa=0.9, reward_model="somebody/rm"):
    rows = [
        row for name, guided in {"base": 0, **methods}.items() for row in trials_of(name, guided, selectors)
    ]
    results = TipResults(*zip(*rows, strict=True), 300, 0)
    return TipEvidence(results, BEST_OF, np.full(N, 0.55), kappa, reward_model)


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
    found = evidence({"tipcoder_rl": 56}, selectors=("pcr",))
    assert found.selector is None
    assert set(verdicts(found).values()) == {"not attempted"} and len(verdicts(found)) == len(CLAIMS)


@pytest.mark.parametrize(
    "selectors", [("reward_model",), ("pcr", "reward_model"), ("random", "reward_model")]
)
def test_every_number_of_a_claim_is_of_one_selector(selectors):
    found = evidence({"tipcoder_rl": 56}, selectors)
    assert found.selector == "reward_model"
    ours = {claim["id"]: claim["ours"] for claim in judge_tip_claims(found)}
    # PCR would have taken the base everywhere: nothing repaired, nothing scored.
    assert ours["net_positive"].startswith("28 repaired, 0 broken; Δ +46.7 [")
    assert ours["cheaper_than_best_of_8"].endswith("with 50 tokens against 900")
    assert found.categories.set_index("category").loc["total", "selected"] == 58


def test_what_the_embedded_reward_model_knows_is_said():
    about_selecting = {"selection_pays", "selection_gap"}
    for reward_model, expected in (("minicode-rm-1m", about_selecting), ("somebody/rm", set())):
        claims = judge_tip_claims(evidence({"tipcoder_rl": 56}, reward_model=reward_model))
        assert {claim["id"] for claim in claims if PRIVILEGED in claim["ours"]} == expected


def test_what_the_trials_show_is_said_with_its_interval():
    found = evidence({"self_hint": 20, "tipcoder_sft": 50, "tipcoder_rl": 50}).results
    sft, rl, rl_hint, selecting = result_sentences(found, "reward_model", "somebody/rm")
    assert sft.startswith("TipCoder-SFT over Self-Hint, pass@1 (reward model selecting): +25.0 [")
    assert sft.endswith("(n = 60 problems): shown.")
    assert rl.endswith(
        "+0.0 [+0.0, +0.0] points (n = 60 problems): not shown, since the interval holds zero."
    )
    assert rl_hint.startswith("TipCoder-RL over Self-Hint")
    assert selecting.startswith("TipCoder-RL: the better one of both programs would gain +41.7 [")
    assert "so selecting loses 0.0 [0.0, 0.0] (0 % of what there is), n = 60 problems." in selecting
    assert result_sentences(found, "reward_model", "minicode-rm-1m")[-1].endswith(f"Mind that {PRIVILEGED}.")
    both = evidence({"tipcoder_rl": 50}, ("pcr", "reward_model")).results
    (by_pcr,) = result_sentences(both, "pcr", "minicode-rm-1m")
    assert "the selected one (PCR on probes) gains +0.0 [" in by_pcr and PRIVILEGED not in by_pcr
    assert result_sentences(evidence({"best_of_2": 10}).results, "reward_model") == []


def test_figures_show_what_their_tables_hold():
    found = evidence({"self_hint": 20, "tipcoder_rl": 56})
    figure, data = exploration_and_selection(main_table(found.results), "stand-in")
    assert "stand-in" in figure.get_suptitle() and len(data) == 1 + 2 * 4
    figure, _ = cost_against_pass(BEST_OF, found.cost, "stand-in", "random", judged=False)
    assert "random selecting" in figure.get_suptitle()
    assert figure.axes[0].lines[0].get_label() == "Best-of-N, at random"
    figure, data = cost_against_pass(BEST_OF, found.cost, "stand-in", "reward_model")
    assert set(data["title"]) >= {"Best-of-8", "TipCoder-RL"}
    reported = pd.DataFrame({"category": list(found.categories["category"]), "positive": 1, "negative": 2})
    figure, data = categories_figure(found.categories, "stand-in", reported)
    assert [axis.get_title() for axis in figure.axes] == ["stand-in", "paper"]


def test_every_claim_says_how_it_is_judged():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert all(claim.rule and claim.reported and claim.where for claim in CLAIMS)
    assert pytest.approx(7.38, abs=0.1) == float(CLAIMS[0].reported.split(";")[0])
