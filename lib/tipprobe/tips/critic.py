"""A critic for the CTRL-style baseline: reads a program that nobody has run and says what may be wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tipprobe.problems.schema import Problem
from tipprobe.tips.trials import critique_prompt
from tipprobe.tips.verify import VerifiedTip
from tipprobe.training.sft import Example, TipTuning, learn


def critic_examples(
    problems: Sequence[Problem], tips: Sequence[VerifiedTip], failed: Mapping[str, str]
) -> list[Example]:
    """Return what a critic learns: statement and failed program in, the verified tip out.

    Args:
        problems: the mined problems.
        tips: verified tips.
        failed: first programs of the trajectories, by problem id.
    """
    by_id = {problem.id: problem for problem in problems}
    return [
        (tip.problem_id, critique_prompt(by_id[tip.problem_id], failed[tip.problem_id]), tip.tip)
        for tip in tips
        if tip.problem_id in failed
    ]


def train_critic(
    config: TipTuning, problems: Sequence[Problem], tips: Sequence[VerifiedTip], failed: Mapping[str, str]
) -> Path:
    """Fine-tune a critic on the proposer's tips; return its checkpoint.

    Raises:
        DataError: no tip has a failed program, or none is short enough.
        StageError: see `tipprobe.training.sft.fine_tune`.
    """
    return learn(config, critic_examples(problems, tips, failed)) / "checkpoint"
