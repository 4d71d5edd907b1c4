"""Tables that notebook 00 shows, on hand-made values."""

import random

import numpy as np
import pandas as pd
import pytest

from tipprobe.evaluation.intervals import Interval
from tipprobe.models.types import Completion
from tipprobe.problems.minicode import WEIGHTS, WorldConfig, show
from tipprobe.problems.minicode.calibrate import Sampled
from tipprobe.problems.minicode.programs import write_program
from tipprobe.problems.minicode.world import split_with_specs
from tipprobe.sandbox import Sandbox


def sampled(texts, passed, pcr):
    (problem, _), *_ = split_with_specs("adaptation", 1)
    replies = [Completion(text, 3, "stop") for text in texts]
    return Sampled([problem], [replies], np.array([passed]), np.array([pcr]))


def test_attempts_differ_where_a_pitfall_is():
    problem, spec = next(ps for ps in split_with_specs("adaptation", 20) if ps[0].meta["pitfalls"])
    rng = random.Random(0)
    programs = {label: write_program(spec, deeds, rng) for label, deeds in show.attempts(spec).items()}
    with Sandbox(1) as sandbox:
        table = show.outputs_table(problem, programs, [t.input for t in problem.tests], sandbox)
    assert list(table.loc["right"]) == [t.expected.strip() for t in problem.tests]
    for name in problem.meta["ops"]:
        differs = list(table.loc[f"{name} wrong"]) != list(table.loc["right"])
        assert differs == (name in problem.meta["pitfalls"])


def test_variants_are_counted_and_keep_their_scores():
    base = sampled(["b", "a", "a"], [False, True, True], [0.25, 1.0, 1.0])
    table = show.variants_table(base, 0)
    assert table["reply"].tolist() == ["a", "b"]
    assert table["samples"].tolist() == [2, 1]
    assert table["PCR"].tolist() == [1.0, 0.25] and table["passes"].tolist() == [True, False]


def test_reliability_keeps_full_consensus_apart():
    base = sampled(["a"] * 4, [True, False, False, True], [1.0, 1.0, 0.9, 0.5])
    table = show.reliability_table(base, 100, 0).set_index("bin")
    assert table["samples"].to_dict() == {
        "0 to 0.25": 0,
        "0.25 to 0.5": 0,
        "0.5 to 0.75": 1,
        "0.75 to <1": 1,
        "1": 2,
    }
    assert table.loc["1", "correct"] == 0.5


def test_knobs_change_what_they_should(monkeypatch):
    settings = {"slip rate of hard operations": (0.0, 0.8), "mean misconception rate": (0.05, 0.55)}
    monkeypatch.setattr(show, "KNOBS", settings)
    means = show.knob_table(WorldConfig(), n_problems=48).set_index(["knob", "quantity", "value"])["mean"]
    for knob, (low, high) in settings.items():
        assert means[knob, "pass@1", low] > means[knob, "pass@1", high]
    assert means["slip rate of hard operations", "auc", 0.8] > means["slip rate of hard operations", "auc", 0]


def test_behaviour_stands_beside_the_calibration(tmp_path):
    found = {"pass@1": Interval(30.0, 20.0, 40.0, 8), "pass@4": Interval(50.0, 40.0, 60.0, 8)}
    table = show.behaviour_table(found, WEIGHTS / "1m", "here")
    assert table.loc["pass@1, %", "here"] == "30 [20, 40]"
    assert table.loc["pass@1, %", "target"] == "20 to 35"
    assert table.loc["pass@1, %", "calibration, adaptation"] and not table.loc["pass@4, %", "target"]
    assert list(show.behaviour_table(found, tmp_path, "here")) == ["here"]
    show.save_table(table, tmp_path / "table")
    assert (tmp_path / "table.md").read_text().splitlines()[2].startswith("| pass@1, % | 30 [20, 40] |")


def test_tip_rows_are_what_is_plotted():
    found = {kind: Interval(float(i), i - 1.0, i + 1.0, 4) for i, kind in enumerate(show.TIP_LABELS)}
    assert [row["mean"] for row in show.tips_rows(found)] == [0.0, 1.0, 2.0]
    axis = show.plot_tips(found, "x", 8).axes[0]
    assert [patch.get_height() for patch in axis.patches] == pytest.approx([0.0, 1.0, 2.0])
    assert axis.get_title().startswith("4 under-specified problems, 8 programs each")


def test_figures_name_what_their_intervals_are_over():
    base = sampled(["a"] * 4, [True, False, False, True], [1.0, 1.0, 0.9, 0.5])
    figure = show.plot_reliability(show.reliability_table(base, 100, 0), "stand-in x", 1)
    assert "95 % over 1 problem\nstand-in x" in figure.axes[0].get_title()
    rows = [
        {"knob": knob, "value": 0.1, "quantity": name, "mean": 1.0, "low": 0.5, "high": 2.0, "problems": 7}
        for knob in show.KNOBS
        for name in show.LINES
    ]
    title = show.plot_knobs(pd.DataFrame(rows), WorldConfig()).get_suptitle()
    assert "7 problems, 16 imagined programs each" in title


def test_findings_say_what_an_interval_says():
    base = sampled(["a"] * 4, [True, False, False, True], [1.0, 1.0, 0.9, 0.5])
    found = {"pass@1": Interval(50.0, 40.0, 60.0, 1), "pass@4": Interval(100.0, 90.0, 100.0, 1)}
    found |= {"auc": Interval(0.5, 0.4, 0.6, 1), "fail_at_pcr=1": Interval(50.0, 0.0, 100.0, 1)}
    tips = {"none": Interval(20.0, 10.0, 30.0, 9), "gain_tip": Interval(12.0, 3.0, 20.0, 9)}
    tips["gain_wrong_tip"] = Interval(-4.0, -9.0, 1.0, 9)
    text = show.findings(found, tips, base, 8, "stand-in x")
    assert text.startswith(
        "On 1 problem with 4 programs each, stand-in x passes the hidden tests with 50.0 ["
    )
    assert "of 2 programs that are always with the majority, 50.0 [0.0, 100.0] % still fail" in text
    assert "On 9 under-specified problems, 8 programs each" in text
    assert "the right tip raises it (+12.0 [+3.0, +20.0] points), a wrong one does not move it bey" in text
    tips["gain_wrong_tip"] = Interval(-4.0, -9.0, -1.0, 9)
    assert "a wrong one lowers it (-4.0" in show.findings(found, tips, base, 8, "x")
