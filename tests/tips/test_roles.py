"""Roles as they follow from the files of the earlier stages."""

from tipprobe.problems.decontaminate import find_overlaps, overlap_table
from tipprobe.problems.schema import Problem
from tipprobe.tips.base_rates import BaseRate, write_base_rates
from tipprobe.tips.roles import read_mined
from tipprobe.tips.verify import VerifiedTip, write_verified_tips

PROBLEMS = [Problem(name, f"Statement {name} about {name} and {name}.") for name in "abcdef"]


def tip(name):
    return VerifiedTip(name, "", f"Mind {name}.", 4, 4, 4, 0, 0.5, 0)


def test_the_files_of_earlier_stages_give_every_problem_one_role(tmp_path):
    files = {name: tmp_path / name for name in ("rates", "tips", "contamination")}
    rates = [BaseRate(p.id, 4, 0, {"wrong_output": 4}, 1, 2, "wrong_output") for p in PROBLEMS]
    write_base_rates(files["rates"], rates, {"base_threshold": 0.5})
    write_verified_tips(files["tips"], [tip("a"), tip("b")])
    tested = {"test": [Problem("t", PROBLEMS[1].statement)]}
    overlap_table(find_overlaps(PROBLEMS, tested, n=8, share=0.5)).to_csv(files["contamination"], index=False)
    mined = read_mined(PROBLEMS, **files, n_validation=2, seed=0)
    assert mined.roles["b"].reason == "like an evaluation problem"
    assert [tip.problem_id for tip in mined.tips] == ["a"], "the other is like a tested problem"
    assert [problem.id for problem in mined.of("sft")] == ["a"]
    validation, reinforced = mined.of("validation"), mined.of("rl")
    assert len(validation) == len(reinforced) == 2
    assert mined.p_base("validation") == {problem.id: 0.5 for problem in validation}
    assert mined.by_id["f"] is PROBLEMS[5]
    write_base_rates(files["rates"], rates, {"base_threshold": 0.0})
    assert read_mined(PROBLEMS, **files, n_validation=2, seed=0).of("rl") == [], "none is hard"
