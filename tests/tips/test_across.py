"""Several proposer seeds in one table."""

import pytest

from tipprobe.errors import DataError
from tipprobe.selection.types import Selection
from tipprobe.tips.across import across_seeds, main, readable
from tipprobe.tips.results import TipResults
from tipprobe.tips.trials import Branch, Trial, write_trials


def seed(solved, problems=4):
    """One seed: base solves none, the guided program the first `solved` problems; one run."""
    trials, chosen = [], []
    for i in range(problems):
        base = Branch("base", None, "x", 1, 1, False, "wrong_output")
        guided = Branch("guided", "Mind zero.", "y", 1, 1, i < solved, "")
        trials += [Trial("base", 0, f"p{i}", (base,)), Trial("tipcoder_rl", 0, f"p{i}", (base, guided))]
        chosen += [
            {"random": Selection(0, (0.0,), "only_program")},
            {"random": Selection(1, (0.0, 0.0), "random")},
        ]
    return trials, chosen


def test_seeds_are_averaged_problem_by_problem():
    table = across_seeds([TipResults(*seed(solved), 200, 0) for solved in (1, 3)])
    row = table.set_index(["quantity", "choice"]).loc[("TipCoder-RL - Base", "raw")]
    assert (row["mean"], row["problems"], row["seeds"]) == (50, 4, 2)
    text = readable(table).set_index("")
    assert text.loc["TipCoder-RL - Base", "always the added one"].startswith("+50.0 [")
    with pytest.raises(DataError, match="different problems"):
        across_seeds([TipResults(*seed(1), 200, 0), TipResults(*seed(1, problems=3), 200, 0)])


def test_the_command(tmp_path, capsys):
    for name, solved in (("a", 1), ("b", 2)):
        folder = tmp_path / name / "07_evaluation" / "tips"
        folder.mkdir(parents=True)
        write_trials(folder / "candidates.jsonl", *seed(solved))
    assert main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "4 problems, 2 proposer seeds" in capsys.readouterr().out
    assert main([]) == 1 and "name at least one" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 1 and "no such file" in capsys.readouterr().err
