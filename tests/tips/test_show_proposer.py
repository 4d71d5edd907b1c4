"""Tables about proposers, against numbers worked out by hand."""

import pandas as pd
import pytest

from tipprobe.evaluation.intervals import Interval
from tipprobe.evaluation.style import save_figure
from tipprobe.problems.schema import Problem
from tipprobe.series.keys import module_closure
from tipprobe.tips.compare import (
    difference,
    finding,
    look_at,
    merged,
    oracle_proposals,
    pass_rates,
    rule_table,
    same_rule,
    telling_group,
)
from tipprobe.tips.environment import Attempt
from tipprobe.tips.propose import Proposal
from tipprobe.tips.show_proposer import (
    PANELS,
    curves_figure,
    group_table,
    jump_figure,
    loss_figure,
    pass_rate_figure,
    proposer_sentences,
    readable_rates,
    tip_table,
)


def record(name, p_base, shares, tip="Ties go first.", about="mode"):
    tips = {
        who: {"tip": f"Note: ties go {who}.", "reason": "ok", "share": share, "program_reason": "x"}
        for who, share in shares.items()
    }
    meta = {"tip": tip, "tip_about": about}
    return {"problem_id": name, "statement": name, "p_base": p_base, "meta": meta, "tips": tips}


RECORDS = [
    record("a", 0.5, {"self_hint": 0.5, "tipcoder_sft": 1.0}),
    record("b", 1.0, {"self_hint": 0.0, "tipcoder_sft": 1.0}),
    record("c", 0.0, {"self_hint": 0.25, "tipcoder_sft": 0.5}),
    record("d", 1.0, {"self_hint": 1.0, "tipcoder_sft": 1.0}),
]


def test_rates_and_paired_gains():
    table = pass_rates(RECORDS, 200, 0).set_index(["part", "measure", "proposer"])
    assert table.loc[("all", "solved", "base"), "mean"] == 50
    assert table.loc[("all", "solved", "tipcoder_sft"), ["mean", "gain"]].tolist() == [75, 25]
    assert table.loc[("all", "share", "self_hint"), ["mean", "gain"]].tolist() == [43.75, -18.75]
    assert table.loc[("unsolved", "share", "tipcoder_sft"), ["problems", "mean"]].tolist() == [2, 75]
    text = difference(RECORDS, "tipcoder_sft", "self_hint", 200, 0)
    assert text.iloc[0]["problems"] == "all (4)"
    assert text.iloc[0, -1].startswith("+50.0 [")


def test_what_an_interval_shows_is_said():
    said = [finding("A over B", Interval(mean, mean - 1, mean + 1, 96)) for mean in (2, 0.5, -2)]
    assert said[0] == "A over B: +2.0 [+1.0, +3.0] points (n = 96 problems): shown."
    assert said[1].endswith("not shown, since the interval holds zero.")
    assert said[2].endswith("not so: the opposite is shown.")
    assert "(n = 96 problems x 3 runs)" in finding("A over B", Interval(0, -1, 1, 96, seeds=3))
    pairs = [("tipcoder_sft", "self_hint"), ("tipcoder_sft", "base")]
    sentences = proposer_sentences(RECORDS, pairs, 200, 0)
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "TipCoder-SFT over Self-Hint, problems solved",
        "TipCoder-SFT over Self-Hint, tests passed",
        "TipCoder-SFT over no tip, problems solved",
        "TipCoder-SFT over no tip, tests passed",
    ]
    assert "+50.0 [" in sentences[0] and "(n = 4 problems)" in sentences[0]
    assert proposer_sentences([], pairs, 200, 0) == []


def test_a_problem_without_a_tip_of_its_own_stays_out_of_the_oracle():
    with_own = record("a", 0.5, {"oracle": 1.0})
    without = record("b", 0.5, {"oracle": 0.5})
    without["tips"]["oracle"]["tip"] = None
    table = pass_rates([with_own, without], 200, 0)
    rows = table[(table["part"] == "all") & (table["measure"] == "share")].set_index("proposer")
    assert rows["problems"].to_dict() == {"base": 2, "oracle": 1}
    assert rows.loc["oracle", ["mean", "gain"]].tolist() == [100, 50]


def test_later_proposers_join_earlier_ones_in_table_order():
    earlier = [record("a", 0.5, {"self_hint": 0.5, "oracle": 1.0})]
    found = merged(earlier, [record("a", 0.5, {"tipcoder_rl": 0.75})])
    assert list(found[0]["tips"]) == ["self_hint", "tipcoder_rl", "oracle"]
    assert list(earlier[0]["tips"]) == ["self_hint", "oracle"]


def test_the_tips_shown_are_those_that_differ():
    assert tip_table(RECORDS, 2)["problem"].tolist() == ["a", "b"]


def test_rules_are_recognised_whatever_leads_in():
    assert same_rule("Careful: half of -3 is -1 here.", "Half of -3 is -1 here")
    assert not same_rule("Half of -3 is -2 here.", "Half of -3 is -1 here.")
    assert not same_rule(None, "x") and not same_rule("x", None)
    records = [
        record("a", 0, {"self_hint": 1.0}, tip="Ties go self_hint."),
        record("b", 0, {"self_hint": 0.0}),
    ]
    table = rule_table(records)
    assert table.loc["all"].tolist() == [2, 1]
    assert rule_table([{**records[0], "meta": {}}]).empty


def test_groups_for_reading():
    fields = {
        "n_tokens": 3,
        "p_base": 0.5,
        "p_curr": 0.5,
        "delta": 0.0,
        "program_reason": None,
        "reason": "cut",
    }
    rows = [
        {"step": 1, "problem_id": "a", "tip": "x", "reward": 0.0, "advantage": 0.0, **fields},
        {"step": 1, "problem_id": "b", "tip": "y", "reward": 0.1, "advantage": -1.0, **fields},
        {"step": 1, "problem_id": "b", "tip": None, "reward": 0.3, "advantage": 1.0, **fields},
    ]
    group = telling_group(rows)
    assert [row["problem_id"] for row in group] == ["b", "b"]
    assert group_table(group)["tip"].tolist() == ["(cut)", "y"]


def test_the_figure_shows_the_jump():
    _, data = jump_figure((0.25,), n_tests=4)
    assert data["delta"].tolist() == pytest.approx([-0.25, 0.0, 0.25, 0.5, 1.0])


class Environment:
    """Passes as many of four tests as the tip has words."""

    def attempts(self, requests):
        self.requests = requests
        return [[Attempt("x", len(tip.split()), 4, "wrong_output", 3)] for _, tip in requests]


def test_every_tip_is_tried_on_its_problem():
    problems = [Problem("a", "A.", meta={"tip": "one two three four"}), Problem("b", "B.")]
    proposals = {
        "self_hint": [Proposal("one", "ok", 1, "one"), Proposal(None, "cut", 9, "on")],
        "oracle": oracle_proposals(problems),
    }
    environment = Environment()
    a, b = look_at(environment, problems, {"a": 0.5, "b": 0.75}, proposals)
    assert [(p.id, tip) for p, tip in environment.requests] == [("a", "one"), ("a", "one two three four")]
    assert (a["tips"]["self_hint"]["share"], a["tips"]["oracle"]["share"], a["p_base"]) == (0.25, 1.0, 0.5)
    # Without a tip the coder gets the problem as it is.
    silent = {"tip": None, "reason": "cut", "share": 0.75, "program_reason": None}
    assert b["tips"]["self_hint"] == silent and b["tips"]["oracle"]["reason"] == "empty"


def test_rates_as_text_and_as_a_figure(tmp_path):
    table = pass_rates(RECORDS, 200, 0)
    text = readable_rates(table).set_index(["problems", "proposer"])
    assert text.loc[("all (4)", "TipCoder-SFT"), "solved, percent"].startswith("75.0 [")
    assert text.loc[("unsolved (2)", "Self-Hint"), "Δ share"].startswith("+12.5 [")
    assert text.loc[("all (4)", "no tip"), "Δ solved"] == ""
    figure, data = pass_rate_figure(table, "stand-in")
    assert "stand-in" in figure.get_suptitle() and len(figure.axes) == 4
    assert set(data["proposer"]) == {"self_hint", "tipcoder_sft"} and "n = 2" in figure.axes[-1].get_title()
    drawn = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert sorted(drawn) == [-25, 25]
    assert all(path.stat().st_size for path in save_figure(figure, tmp_path / "gains", data))


def test_curves_hold_every_update_and_step(tmp_path):
    log = pd.DataFrame({"update": [1, 2], "loss": [2.0, 1.0], "mean_token_accuracy": [0.5, 0.75], "x": 0})
    figure, data = loss_figure(log, "stand-in")
    assert data.equals(log.drop(columns="x")) and list(figure.axes[0].lines[0].get_ydata()) == [2.0, 1.0]
    steps = pd.DataFrame({"step": [1, 2, 3]} | {column: [0.0, 3.0, 6.0] for column, _ in PANELS})
    figure, data = curves_figure(steps, "stand-in")
    assert data.equals(steps)
    for axis in figure.axes:
        raw, smooth = (list(line.get_ydata()) for line in axis.lines)
        assert raw == [0, 3, 6] and smooth == [3, 3, 3]


def test_a_colour_retires_no_result():
    source = "from tipprobe.tips.show_proposer import tip_table\nfrom tipprobe.tips.compare import look_at"
    computing = module_closure([source], presentation=False)
    assert "tipprobe.tips.compare" in computing and "tipprobe.tips.show_proposer" not in computing
