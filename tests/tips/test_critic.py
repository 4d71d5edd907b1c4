"""What a critic learns from."""

import json

import pytest

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem
from tipprobe.tips.critic import critic_examples, train_critic
from tipprobe.tips.trials import critique_prompt
from tipprobe.tips.verify import VerifiedTip
from tipprobe.training.sft import TipTuning

PROBLEMS = [Problem("a", "Statement a."), Problem("b", "Statement b.")]


def tip(problem_id):
    return VerifiedTip(problem_id, "", f"Mind {problem_id}.", 4, 4, 4, 0, 0.5, 0)


def test_it_reads_the_failed_program_and_writes_the_tip():
    examples = critic_examples(PROBLEMS, [tip("a"), tip("b")], {"a": "print(1)"})
    assert examples == [("a", critique_prompt(PROBLEMS[0], "print(1)"), "Mind a.")]


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
    checkpoint = train_critic(config, PROBLEMS, [tip("a"), tip("b")], {"a": "print(1)", "b": "print(2)"})
    assert checkpoint == tmp_path / "critic" / "checkpoint" and (checkpoint / "config.json").is_file()
    rows = [json.loads(line) for line in (tmp_path / "critic" / "rows.jsonl").read_text().splitlines()]
    assert "print(2)" in rows[1]["prompt"] and rows[1]["learnt"].startswith("Mind b.")
    with pytest.raises(DataError, match="no tip to learn from"):
        train_critic(config, PROBLEMS, [tip("a")], {})
