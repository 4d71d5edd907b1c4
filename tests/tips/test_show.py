"""Tables and figures of notebooks 01 and 02, on numbers that can be checked by hand."""

import re

import pandas as pd
import pytest

from tipprobe import paths
from tipprobe.evaluation.style import save_figure
from tipprobe.problems.load import load_problems
from tipprobe.problems.schema import Problem
from tipprobe.tips import show
from tipprobe.tips.base_rates import BaseRate
from tipprobe.tips.guard import Leak
from tipprobe.tips.mine import Trajectory, Turn, mining_funnel
from tipprobe.tips.verify import TipRecord, VerifiedTip, Wording

RATES = [BaseRate(f"p{i}", 4, i, {"passed": i}, i, 4, "wrong_output") for i in range(5)]
TURNS = (
    Turn("FIRST", 0, 2, "wrong_output", "It passes 0."),
    Turn("SECOND", 2, 2, "passed", "", (), "Mended: SECOND"),
)
FUNNEL = mining_funnel(
    RATES, 2, [Trajectory("p0", TURNS, "kept"), Trajectory("p1", TURNS[:1], "not repaired")], 2
)
LEAKING = Wording("x = 1", (Leak("code", "x = 1"),))
FAILING, HELPING = Wording("No.", (), 1, 2, "wrong_output", "F"), Wording("Yes.", (), 2, 2, "passed", "G")
RECORDS = [
    TipRecord("p0", "seen", (HELPING,), "verified", fresh_n=4, fresh_solved=2),
    TipRecord("p1", "seen", (LEAKING, FAILING, HELPING), "verified", fresh_n=4, fresh_solved=1),
    TipRecord("p2", "seen", (FAILING, LEAKING), "leaks", "not recorded"),
    TipRecord("p3", None, (), "no observation", "cut"),
]


def tip(name, base, fresh, family=None):
    return VerifiedTip(
        name, f"Statement of {name}.", f"Tip of {name}.", 4, fresh, 4, base, base / 4, base, family
    )


TIPS = [tip("p0", 0, 2, "ties"), tip("p1", 2, 1, "edges")]


def test_rates(tmp_path):
    table = show.rate_table(RATES)
    assert list(table["pass@1"]) == [0, 0.25, 0.5, 0.75, 1.0] and (table["low"] <= table["pass@1"]).all()
    figure, data = show.plot_base_rates(RATES, 0.5, "stand-in")
    assert "stand-in" in figure.get_suptitle() and data.groupby("panel")["problems"].sum().eq(5).all()
    assert all(path.stat().st_size for path in save_figure(figure, tmp_path / "rates", data))


def test_overlaps_by_length():
    ours, theirs = [Problem("a", "a b c d e")], {"test": [Problem("b", "a b c x y")]}
    table = show.overlap_counts(ours, theirs, [3, 2, 3], 0.5)
    assert list(table["largest"]) == [0.5, pytest.approx(1 / 3)] and list(table["dropped"]) == [1, 0]
    assert len(show.overlap_counts([], theirs, [2], 0.5)) == 1


def test_a_trajectory_is_shown_whole():
    text = show.trajectory_text(Trajectory("p0", TURNS, "kept"))
    places = [
        text.index(part) for part in ("FIRST", "It passes 0.", "Mended: SECOND", "all 2 pass", "--- kept")
    ]
    assert places == sorted(places)


def test_funnel(tmp_path):
    figure = show.plot_funnel(FUNNEL, "stand-in")
    assert "stand-in" in figure.get_suptitle()
    assert all(path.stat().st_size for path in save_figure(figure, tmp_path / "funnel", FUNNEL))
    text = " ".join(show.mining_sentences(RATES, FUNNEL, "stand-in"))
    assert (
        "Of 5 problems stand-in solves 50.0 [" in text
        and "asked about 2 programs" in text
        and "repaired 50.0 [" in text
    )


def test_guard_and_wordings():
    guard = show.guard_table(RECORDS)
    assert list(guard.loc["all"]) == [3, 3] and list(guard.loc["any"]) == [1, 1]
    assert list(guard.loc["code"]) == [1, 1] and guard.loc["solution"].sum() == 0
    table = show.wording_table(RECORDS, 2)
    assert list(table["written"]) == [3, 2, 1] and list(table["verified"]) == [1, 0, 1]
    untried = TipRecord("p4", "seen", (Wording("Idle."),), "not needed")
    table = show.wording_table([*RECORDS, untried], 2)
    assert list(table["written"]) == [4, 2, 1] and list(table["not tried"]) == [1, 0, 0]
    parts = table["leaking"] + table["not tried"] + table["not helping"] + table["verified"]
    assert (parts == table["written"]).all()


def test_a_record_is_shown_with_every_wording():
    text = show.record_text(RECORDS[1])
    assert all(part in text for part in ("seen", "x = 1", "holds code", "1 of 2 tests", "Yes.", "verified"))
    assert "not recorded" in show.record_text(RECORDS[2])


def test_effect():
    table = show.effect_table(TIPS).set_index("tips about")
    assert list(table.index) == ["edges", "ties", "all"] and list(table["worse"]) == [1, 0, 1]
    assert table.loc["all", "without, fresh"].startswith("25.0") and table.loc[
        "all", "with, fresh"
    ].startswith("37.5")
    assert table.loc["all", "gain"].startswith("+12.5")
    assert list(show.effect_table([tip("p", 0, 4)])["tips about"]) == ["all"]
    assert show.effect_table([]).empty


def test_tips_figure_and_sentences(tmp_path):
    figure, data = show.plot_tips(RECORDS, TIPS, 2, "stand-in")
    assert "stand-in" in figure.get_suptitle()
    assert data[data["panel"] == "tips"]["count"].sum() == 4 and isinstance(data, pd.DataFrame)
    assert all(path.stat().st_size for path in save_figure(figure, tmp_path / "tips", data))
    text = " ".join(show.tip_sentences(RECORDS, TIPS, "stand-in"))
    assert (
        "2 of 4" in text
        and "+12.5" in text
        and "flatters by 62.5" in text
        and "1 verified tips do worse" in text
    )
    assert len(show.tip_sentences(RECORDS[2:], [], "stand-in")) == 3


def test_tips_to_read():
    page = show.tip_page(TIPS, 5)
    assert all(f"Tip of {name}." in page and f"Statement of {name}." in page for name in ("p0", "p1"))
    assert show.tip_page(TIPS, 1).count("TIP:") == 1 and show.tip_page(TIPS, 1) == show.tip_page(TIPS, 1)


def test_the_tips_that_were_read_are_about_the_worlds_problems():
    text = (paths.ROOT / "docs" / "tips_read.md").read_text(encoding="utf-8")
    entries = re.findall(r"\*\*(minicode/sft/\d+)\*\*(.*?)(?=\n\*\*|\Z)", text, re.DOTALL)
    assert len(entries) == len(dict(entries)) == 20
    statements = {problem.id: problem.statement for problem in load_problems("minicode:sft", limit=448)}
    for name, entry in entries:
        quoted = " ".join(line.removeprefix("> ") for line in entry.splitlines() if line.startswith("> "))
        assert quoted.startswith(f"{statements[name]} TIP: ")
        assert all(f"{verdict}: " in entry for verdict in ("Leak", "Helps on fresh programs", "Rule"))
