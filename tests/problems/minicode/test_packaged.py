"""The checkpoints that come with the package: what their files say is true of them and of this version."""

import json
from pathlib import Path

import pytest

from tipprobe.errors import DataError
from tipprobe.models.load import load_model, model_revision
from tipprobe.models.transformers_sampler import TransformersSampler
from tipprobe.problems.minicode import WEIGHTS, WorldConfig, split
from tipprobe.problems.minicode.calibrate import CODE, calibrate, recorded_world, tip_rates
from tipprobe.problems.minicode.card import calibration_table, calibrations, model_card, read_record
from tipprobe.problems.minicode.estimate import LEAST_GAIN, TARGETS
from tipprobe.problems.minicode.train import command_line, parse_recipe, usual_recipe
from tipprobe.prompts import prompt_hashes
from tipprobe.sandbox import Sandbox

per_size = pytest.mark.parametrize("size", ["1m", "5m"])


@per_size
def test_coder_belongs_to_the_world_and_the_prompts_of_this_version(size):
    recipe = read_record(WEIGHTS / size / "recipe.json")
    assert recorded_world(WEIGHTS / size) == WorldConfig()
    assert recipe["prompts"].items() <= prompt_hashes().items()
    again, _ = parse_recipe(recipe["command"].split()[3:])
    assert again == usual_recipe(size) and command_line(again) == recipe["command"]


@per_size
def test_calibration_is_of_these_weights_and_inside_the_targets(size):
    reports = calibrations(WEIGHTS / size)
    assert set(reports) == {"adaptation", "transfer"}
    for report in reports.values():
        assert report["model_revision"] == model_revision(f"minicode-{size}")
        assert report["world"] == read_record(WEIGHTS / size / "recipe.json")["world"]
        found = report["behaviour"]["all"]
        assert found["pass@1"]["problems"] >= 256 and report["samples"] == 16
        for name, (low, high) in TARGETS.items():
            assert low <= found[name]["mean"] <= high, name
        tips = report["tips"]["underspecified"]
        assert tips["gain_tip"]["mean"] >= LEAST_GAIN and tips["gain_wrong_tip"]["mean"] <= 0


@per_size
def test_card_is_what_the_files_beside_it_give(size):
    text = (WEIGHTS / size / "README.md").read_text()
    assert text == model_card(WEIGHTS / size)
    for row in calibration_table(WEIGHTS / size):
        assert row["adaptation"] in text


def test_all_weights_stay_small():
    assert sum(path.stat().st_size for path in WEIGHTS.rglob("*")) < 16e6


def test_packaged_coder_follows_right_and_wrong_tips():
    network, tokenizer = load_model("minicode-1m", "cpu")
    sampler = TransformersSampler(network, tokenizer, revision="test")
    problems = [p for p in split("adaptation", 60) if p.meta["underspecified"]][:8]
    with Sandbox(1) as sandbox:
        rates = tip_rates(problems, sampler, sandbox, 4, CODE)
    assert {values.shape for values in rates.values()} == {(8,)}
    assert rates["tip"].mean() > rates["none"].mean() > rates["wrong_tip"].mean() - 0.05
    assert rates["wrong_tip"].mean() < 0.1


def test_calibration_report_is_complete():
    report = calibrate(WEIGHTS / "1m", problems=6, samples=2, rounds=2, device="cpu", workers=1)
    json.dumps(report, allow_nan=False)
    assert report["behaviour"]["all"]["pass@2"]["problems"] == 6
    assert report["probes"]["requested"] == 12
    assert 0 < report["entropy"] < 1
    assert set(report["failure_by_op"]) == {op for p in split("adaptation", 6) for op in p.meta["ops"]}
    assert report["tips"]["specified"]["none"]["mean"] is not None


@pytest.mark.parametrize("text", [None, "{", '{"world": {"seeed": 1}}', "{}"])
def test_unreadable_recipe_is_refused(tmp_path: Path, text):
    if text is not None:
        (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(DataError, match=r"recipe\.json"):
        recorded_world(tmp_path)
