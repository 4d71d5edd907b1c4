"""A critic for the CTRL-style baseline: reads a program that nobody has run and says what may be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tipprobe.problems.schema import Problem
from tipprobe.tips.mine import Trajectory
from tipprobe.tips.trials import critique_prompt
from tipprobe.tips.verify import VerifiedTip
from tipprobe.training.sft import Example, TipTuning, learn


def critic_examples(
    problems: Sequence[Problem], tips: Sequence[VerifiedTip], trajectories: Sequence[Trajectory]
) -> tuple[list[Example], list[str]]:
    """Return what a critic learns: statement and failed program in, the verified tip out.

    A trajectory may begin with a reply that held no program.  Then there is nothing to remark on, and the tip
    is left out here, though a proposer learns it.

    Args:
        problems: the mined problems.
        tips: verified tips.
        trajectories: what the tips were drawn from.

    Returns:
        The examples, in the tips' order, and the ids of the problems whose tips were left out.
    """
    by_id = {problem.id: problem for problem in problems}
    failed = {t.problem_id: t.failed_program for t in trajectories if t.failed_program is not None}
    examples = [
        (tip.problem_id, critique_prompt(by_id[tip.problem_id], failed[tip.problem_id]), tip.tip)
        for tip in tips
        if tip.problem_id in failed
    ]
    return examples, [tip.problem_id for tip in tips if tip.problem_id not in failed]


def train_critic(config: TipTuning, examples: Sequence[Example]) -> Path:
    """Fine-tune a critic on `critic_examples`; return its checkpoint.

    Raises:
        DataError: there is no example, or none is short enough.
        StageError: see `tipprobe.training.sft.fine_tune`.
    """
    return learn(config, examples) / "checkpoint"
