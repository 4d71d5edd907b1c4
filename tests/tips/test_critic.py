"""What a critic learns from."""

import json

import pytest
from safetensors.torch import load_file

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem
from tipprobe.tips.critic import critic_examples, train_critic
from tipprobe.tips.mine import Trajectory, Turn
from tipprobe.tips.trials import critique_prompt
from tipprobe.tips.verify import VerifiedTip
from tipprobe.training.sft import TipTuning

PROBLEMS = [Problem("a", "Statement a."), Problem("b", "Statement b.")]


def tip(problem_id):
    return VerifiedTip(problem_id, "", f"Mind {problem_id}.", 4, 4, 4, 0, 0.5, 0)


def trajectory(problem_id, program):
    return Trajectory(problem_id, (Turn(program, 0, 1, "wrong_output", ""),), "not repaired")


def test_it_reads_the_failed_program_and_writes_the_tip():
    begun = [trajectory("a", "print(1)"), trajectory("b", None)]
    examples, left_out = critic_examples(PROBLEMS, [tip("b"), tip("a")], begun)
    assert examples == [("a", critique_prompt(PROBLEMS[0], "print(1)"), "Mind a.")]
    assert left_out == ["b"], "its first reply held no program"


def test_it_is_trained_like_a_proposer(tiny_model_folder, tmp_path):
    config = TipTuning(
        model=str(tiny_model_folder),
        out=str(tmp_path),
        tip_style="short",
        epochs=1,
        learning_rate=1e-3,
        batch_size=2,
        micro_batch=2,
        max_tokens=400,
        max_grad_norm=1.0,
        seed=0,
        device="cpu",
        name="critic",
    )
    begun = [trajectory("a", "print(1)"), trajectory("b", "print(2)")]
    checkpoint = train_critic(config, critic_examples(PROBLEMS, [tip("a"), tip("b")], begun)[0])
    assert checkpoint == tmp_path / "critic" / "checkpoint" and (checkpoint / "config.json").is_file()
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_model_folder, checkpoint))
    assert any(not value.equal(after[name]) for name, value in before.items()), "one update, and it counts"
    rows = [json.loads(line) for line in (tmp_path / "critic" / "rows.jsonl").read_text().splitlines()]
    assert "print(2)" in rows[1]["prompt"] and rows[1]["learnt"].startswith("Mind b.")
    with pytest.raises(DataError, match="no tip to learn from"):
        train_critic(config, [])
