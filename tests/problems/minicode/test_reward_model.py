"""The embedded reward model: its recipe at toy scale, and what its packaged files say."""

import json
import random

import numpy as np
import pytest

from tipprobe.errors import ParameterError
from tipprobe.models.load import model_revision
from tipprobe.models.reward import EMBEDDED_REWARD, load_reward_model
from tipprobe.problems.minicode import WorldConfig
from tipprobe.problems.minicode import reward_model as recipe_module
from tipprobe.problems.minicode.calibrate import recorded_world
from tipprobe.problems.minicode.card import read_record
from tipprobe.problems.minicode.programs import right_deeds, write_program
from tipprobe.problems.minicode.reward_model import (
    MEASURED,
    Graded,
    Recipe,
    card,
    command_line,
    draw_problems,
    make_pairs,
    pair_accuracy,
    parse_recipe,
    train_reward_model,
)
from tipprobe.problems.minicode.world import in_split, split_with_specs, with_misconception
from tipprobe.prompts import code_prompt, prompt_hashes, user_prompt

FOLDER = EMBEDDED_REWARD["minicode-rm-1m"]


def graded(programs, name="p", underspecified=False):
    return Graded(name, user_prompt("Add."), underspecified, False, programs)


def test_problems_come_from_the_sequences_of_pretraining_alone():
    problems = draw_problems(WorldConfig(), 60, 0.5, seed=1)
    assert len({problem.id for problem in problems}) == 60

    class Key:
        def __init__(self, ops):
            self.key = "|".join(ops)

    for problem in problems:
        key = Key(problem.meta["ops"])
        assert in_split(key, "pretraining")
        assert not any(in_split(key, name) for name in ("sft", "adaptation", "heldout", "transfer"))
    assert 15 < sum(problem.meta["underspecified"] for problem in problems) < 45


@pytest.mark.slow
def test_problems_do_not_depend_on_the_number_of_workers():
    again = draw_problems(WorldConfig(), 300, 0.4, seed=2, workers=2)
    assert again == draw_problems(WorldConfig(), 300, 0.4, seed=2)


def test_pairs_are_of_one_problem_distinct_and_bounded():
    rows = [
        graded({"r1": True, "w1": False, "r2": True, "w2": False}, "a"),
        graded({"r": True}, "b"),
        graded({"w": False}, "c"),
        graded({}, "d"),
    ]
    pairs = make_pairs(rows, 3, seed=0)
    assert len({(right, wrong) for _, right, wrong in pairs}) == 3
    assert {right for _, right, _ in pairs} <= {"r1", "r2"}
    assert {wrong for _, _, wrong in pairs} <= {"w1", "w2"}
    assert make_pairs(rows, 3, seed=0) == pairs
    assert len(make_pairs(rows, 99, seed=0)) == 4


def test_pair_accuracy_by_hand():
    class Lengths:
        def score(self, pairs):
            return np.array([len(program) for _, program in pairs], dtype=np.float32)

    rows = [
        graded({"aaa": True, "b": False, "cc": False}),  # 2 of 2
        graded({"a": True, "b": False, "cc": False}, underspecified=True),  # a tie and a loss of 2
        graded({"a": True}),
    ]
    found = pair_accuracy(rows, Lengths(), draws=50)
    assert (found["all"]["mean"], found["all"]["pairs"], found["all"]["problems"]) == (0.625, 4, 2)
    assert found["specified"]["mean"] == 1.0
    assert found["underspecified"]["mean"] == 0.25


def test_training_without_any_pair_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="both a right and a wrong program"):
        train_reward_model(Recipe(), [graded({"a": True})], tmp_path)


@pytest.mark.slow
def test_recipe_end_to_end_at_toy_scale(tmp_path, monkeypatch, capsys):
    out = tmp_path / "rm"
    arguments = ["--problems", "24", "--samples", "2", "--steps", "4", "--batch", "8", "--validation", "0.3"]
    arguments += ["--measured-problems", "6", "--measured-samples", "1", "--device", "cpu", "--workers", "1"]
    monkeypatch.setattr("sys.argv", ["reward_model", "--out", str(out), *arguments])
    recipe_module.main()
    told = capsys.readouterr().out
    assert "step 4/4 loss" in told and "pairs of" in told
    model = load_reward_model(str(out), "cpu")
    assert model.kind == "classification"
    record = read_record(out / "recipe.json")
    again, _ = parse_recipe(record["command"].split()[3:])
    assert again == Recipe(problems=24, samples=2, steps=4, batch=8, validation=0.3)
    rows = [json.loads(line) for line in (tmp_path / "rm.programs.jsonl").read_text().splitlines()]
    assert len(rows) == 24 == record["counts"]["drawn_problems"]
    assert not any("Tip:" in row["prompt"][0]["content"] for row in rows)
    assert 0 < sum(row["validation"] for row in rows) < 24
    assert (out / "README.md").read_text() == card(out)
    for split in MEASURED:
        report = read_record(out / "measured" / f"{split}.json")
        assert report["model_revision"] == model.revision
        for found in report["selection"]["tip"].values():
            assert found["selected"]["mean"] <= found["upper_bound"]["mean"]


def test_default_recipe_is_what_the_packaged_model_was_trained_by():
    record = read_record(FOLDER / "recipe.json")
    assert record["command"] == command_line(Recipe())
    assert parse_recipe(record["command"].split()[3:])[0] == Recipe()
    assert recorded_world(FOLDER) == WorldConfig()
    assert record["base_revision"] == model_revision("minicode-1m")
    assert record["prompts"].items() <= prompt_hashes().items()


def test_packaged_card_is_what_the_files_beside_it_give():
    assert (FOLDER / "README.md").read_text() == card(FOLDER)


def test_packaged_measurements_are_of_these_weights_and_good_enough():
    for name in ("pairs", *MEASURED):
        report = read_record(FOLDER / "measured" / f"{name}.json")
        assert report["model_revision"] == model_revision(str(FOLDER))
    for split in MEASURED:
        report = read_record(FOLDER / "measured" / f"{split}.json")
        for found in report["auc"]["every_kind"].values():
            assert found["auc_within"]["mean"] > 0.85
        picked = report["selection"]["wrong_tip"]["all"]
        assert picked["selected"]["mean"] > picked["adopted"]["mean"]


def test_packaged_weights_fit_in_four_megabytes():
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) < 4e6


def test_packaged_model_prefers_right_programs_and_knows_the_open_rules():
    """Programs are written here and only read, not run: right ones, and with one misconception each."""
    rng = random.Random(5)
    pairs, opened = [], []
    for problem, spec in split_with_specs("heldout", 48):
        about = problem.meta.get("tip_about")
        if about is not None:
            right = write_program(spec, right_deeds(spec), rng)
            wrong = write_program(spec, with_misconception(spec, about), rng)
            pairs += [(code_prompt(problem), right), (code_prompt(problem), wrong)]
            opened.append(problem.meta["underspecified"])
    scores = load_reward_model("minicode-rm-1m", "cpu").score(pairs).reshape(-1, 2)
    won, opened = scores[:, 0] > scores[:, 1], np.array(opened)
    assert len(won) > 40 and won.mean() > 0.85
    assert opened.sum() >= 5 and won[opened].mean() > 0.8
