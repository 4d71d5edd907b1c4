"""From repaired trajectories to tips: what the masked conversation shows, then the same as a tip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tipprobe.errors import ParameterError
from tipprobe.models.types import Prompt
from tipprobe.problems.schema import Problem
from tipprobe.prompts import fill, user_prompt
from tipprobe.tips.masking import CODE, TESTS, mask_text
from tipprobe.tips.mine import Trajectory, Turn
from tipprobe.tips.teachers import Teacher, TeacherReply, TeacherRequest

#: ``two_step``: an observation from the masked conversation, then a tip from the observation.  ``contrast``:
#: a tip from the wrong and the right program, unmasked.
Variant = Literal["two_step", "contrast"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A tip as the teacher first worded it.

    Attributes:
        problem_id: the problem.
        observation: what the masked conversation shows; None if the teacher has none, or was not asked.
        tip: the tip; None if the teacher has none.
        lacking: ``observation`` or ``tip``, whichever the teacher did not give first; ``""`` if none.
        why: why it is lacking (`tipprobe.tips.teachers.Why`).
        tokens_in: tokens sent to the teacher, 0 where nobody counted.
        tokens_out: tokens that it wrote.
        masked: the conversation that the observation was drawn from, None for ``contrast``, which shows the
            programs.
    """

    problem_id: str
    observation: str | None
    tip: str | None
    lacking: str = ""
    why: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    masked: str | None = None


def masked_conversation(problem: Problem, trajectory: Trajectory) -> str:
    """Return a trajectory with its programs, tests and values replaced by placeholders."""
    lines = []
    for turn in trajectory.turns:
        said = CODE if turn.reply is None else mask_text(turn.reply, problem.statement).strip()
        lines.append(f"{'Programmer' if turn.reply is None else 'Mentor'}: {said}")
        verdict = "All tests pass." if turn.solved else f"{_verdict(turn)} {TESTS}"
        lines.append(f"Tests: {verdict}")
    return "\n\n".join(lines)


def _verdict(turn: Turn) -> str:
    if turn.reason == "wrong_output":
        return f"{turn.passed} of {turn.n_tests} pass, the others see a wrong output."
    return f"{turn.passed} of {turn.n_tests} pass; the first failure is: {turn.reason.replace('_', ' ')}."


def observe_prompt(problem: Problem, trajectory: Trajectory) -> Prompt:
    """Return the prompt that asks what a masked conversation shows about the task."""
    return _observe_prompt(problem, masked_conversation(problem, trajectory))


def _observe_prompt(problem: Problem, conversation: str) -> Prompt:
    return user_prompt(fill("observe", statement=problem.statement, conversation=conversation))


def tip_prompt(problem: Problem, observation: str) -> Prompt:
    """Return the prompt that asks to turn an observation into a tip."""
    return user_prompt(fill("tip_from_observation", statement=problem.statement, observation=observation))


def contrast_prompt(problem: Problem, trajectory: Trajectory) -> Prompt:
    """Return the prompt that asks for a tip from the wrong and the right program."""
    wrong = trajectory.failed_program or "# nothing was written"
    right = trajectory.repaired_program or ""
    return user_prompt(fill("contrast", statement=problem.statement, wrong=wrong, right=right))


def distil(
    problems: Mapping[str, Problem],
    trajectories: Sequence[Trajectory],
    teacher: Teacher,
    variant: Variant = "two_step",
) -> list[Draft]:
    """Have a teacher word a tip for every trajectory.

    Args:
        problems: by id.
        trajectories: kept ones.
        teacher: who words the tips.
        variant: see `Variant`.

    Returns:
        One draft a trajectory, in order.

    Raises:
        ParameterError: a trajectory was not kept, so there is nothing to learn from it.
    """
    for trajectory in trajectories:
        if not trajectory.kept:
            raise ParameterError(f"problem {trajectory.problem_id!r}: no repair to draw a tip from")
    if variant == "contrast":
        prompts = [contrast_prompt(problems[t.problem_id], t) for t in trajectories]
        replies = _ask(teacher, "contrast", trajectories, prompts)
        return [
            _draft(trajectory.problem_id, None, reply, [reply])
            for trajectory, reply in zip(trajectories, replies, strict=True)
        ]
    masked = {t.problem_id: masked_conversation(problems[t.problem_id], t) for t in trajectories}
    prompts = [_observe_prompt(problems[name], conversation) for name, conversation in masked.items()]
    observed = _ask(teacher, "observe", trajectories, prompts)
    seen = [(t, reply) for t, reply in zip(trajectories, observed, strict=True) if reply.text is not None]
    prompts = [tip_prompt(problems[t.problem_id], reply.text or "") for t, reply in seen]
    tips = _ask(teacher, "tip", [t for t, _ in seen], prompts)
    worded = {t.problem_id: reply for (t, _), reply in zip(seen, tips, strict=True)}
    drafts = [
        _draft(t.problem_id, reply, worded[t.problem_id], [reply, worded[t.problem_id]])
        if t.problem_id in worded
        else _draft(t.problem_id, reply, None, [reply])
        for t, reply in zip(trajectories, observed, strict=True)
    ]
    return [replace(draft, masked=masked[draft.problem_id]) for draft in drafts]


def _ask(
    teacher: Teacher,
    purpose: Literal["observe", "tip", "contrast"],
    trajectories: Sequence[Trajectory],
    prompts: Sequence[Prompt],
) -> list[TeacherReply]:
    pairs = zip(trajectories, prompts, strict=True)
    return teacher.reply([TeacherRequest(purpose, t.problem_id, prompt) for t, prompt in pairs])


def _draft(
    problem_id: str,
    observed: TeacherReply | None,
    worded: TeacherReply | None,
    replies: Sequence[TeacherReply],
) -> Draft:
    lacking = "observation" if worded is None else "tip" if worded.text is None else ""
    return Draft(
        problem_id,
        observed.text if observed else None,
        worded.text if worded else None,
        lacking,
        replies[-1].why if lacking else "",
        sum(reply.tokens_in or 0 for reply in replies),
        sum(reply.tokens_out or 0 for reply in replies),
    )
