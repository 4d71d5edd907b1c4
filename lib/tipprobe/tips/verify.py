"""Does a tip help the coder?  Tried, reworded if it leaks or fails, and measured on fresh programs.

The first success of several tries is a selected one.  The programs drawn afterwards for the same tip are not,
so their rate is the honest one; both are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd

from tipprobe.errors import DataError
from tipprobe.models.types import Sampler, Sampling
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl
from tipprobe.prompts import fill, user_prompt
from tipprobe.tips.base_rates import BaseRate, check_conditions
from tipprobe.tips.distil import Draft
from tipprobe.tips.environment import TOO_LONG, Attempt, CodeEnvironment
from tipprobe.tips.guard import REASONS, Leak, find_leaks
from tipprobe.tips.mine import Trajectory
from tipprobe.tips.teachers import RecordedTeacher, Teacher, TeacherRequest, feedback

#: ``verified``: a wording without a leak let the coder pass every test, and without a tip it did not.  ``not
#: needed``: it does without one.  The others: what the last wording lacked, or what the teacher did not give.
Outcome = Literal["verified", "leaks", "does not help", "not needed", "no observation", "no tip"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Wording:
    """One wording of a tip, with its verdicts.

    Attributes:
        text: the tip.
        leaks: what it gives away; a wording that leaks is not tried.
        passed: tests that the program written with it passed, None if it was not tried.
        n_tests: number of tests, None if it was not tried.
        reason: how that program ended, ``""`` if it was not tried.
        program: that program.
    """

    text: str
    leaks: tuple[Leak, ...] = ()
    passed: int | None = None
    n_tests: int | None = None
    reason: str = ""
    program: str | None = None

    @property
    def helps(self) -> bool:
        """Whether it was tried and every test passed."""
        return self.passed is not None and self.passed == self.n_tests


@dataclass(frozen=True, slots=True)
class TipRecord:
    """Everything about one problem's tip.

    Attributes:
        problem_id: the problem.
        observation: see `tipprobe.tips.distil.Draft`.
        wordings: the tip and its rewordings, in order.
        outcome: see `Outcome`.
        why: why the teacher gave nothing more (`tipprobe.tips.teachers.Why`), ``""`` if it did.
        fresh_n: programs drawn afterwards with the verified tip, 0 if there is none.
        fresh_solved: how many of them passed every test.
        fresh_base_solved: how many of as many programs drawn afterwards *without* the tip did.
        tokens_in: tokens sent to the teacher, 0 where nobody counted.
        tokens_out: tokens that it wrote.
        masked: see `tipprobe.tips.distil.Draft`.
    """

    problem_id: str
    observation: str | None
    wordings: tuple[Wording, ...]
    outcome: Outcome
    why: str = ""
    fresh_n: int = 0
    fresh_solved: int = 0
    fresh_base_solved: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    masked: str | None = None

    @property
    def tip(self) -> str | None:
        """The verified tip, None if there is none."""
        return self.wordings[-1].text if self.outcome == "verified" else None


@dataclass(frozen=True, slots=True)
class VerifiedTip:
    """What a proposer learns from, one line of ``verified_tips.jsonl``.

    Attributes:
        problem_id: the problem.
        statement: its statement.
        tip: the tip.
        fresh_n, fresh_solved: programs drawn afterwards with the tip, and how many passed.
        base_n, base_solved: programs drawn without it during mining, and how many passed.
        fresh_base_solved: how many of `fresh_n` programs drawn afterwards without it passed.
        base_greedy_share: share of the tests that the greedy program without a tip passes.
        family, op: what the tip is about, where somebody knows.
    """

    problem_id: str
    statement: str
    tip: str
    fresh_n: int
    fresh_solved: int
    base_n: int
    base_solved: int
    base_greedy_share: float
    fresh_base_solved: int
    family: str | None = None
    op: str | None = None


@dataclass(slots=True)
class _Open:
    """A tip that is being worked on."""

    problem: Problem
    trajectory: Trajectory
    draft: Draft
    needed: bool
    wordings: list[Wording] = field(default_factory=list)
    complaint: str = ""
    why: str = ""
    tokens: list[int] = field(default_factory=lambda: [0, 0])

    def judge_wording(self, text: str) -> None:
        leaks = find_leaks(text, self.problem, [self.trajectory.repaired_program])
        self.wordings.append(Wording(text, leaks))
        self.complaint = leak_complaint(leaks) if leaks else ""

    def tried(self, attempt: Attempt) -> None:
        self.wordings[-1] = replace(
            self.wordings[-1],
            passed=attempt.passed,
            n_tests=attempt.n_tests,
            reason=attempt.reason,
            program=attempt.program,
        )
        self.complaint = "" if attempt.solved else failure_complaint(attempt)

    def close(self) -> TipRecord:
        outcome: Outcome
        if not self.wordings:
            outcome = "no observation" if self.draft.lacking == "observation" else "no tip"
        elif not self.needed:
            outcome = "not needed"
        elif self.wordings[-1].helps:
            outcome = "verified"
        else:
            outcome = "leaks" if self.wordings[-1].leaks else "does not help"
        return TipRecord(
            self.draft.problem_id,
            self.draft.observation,
            tuple(self.wordings),
            outcome,
            self.why or self.draft.why,
            tokens_in=self.draft.tokens_in + self.tokens[0],
            tokens_out=self.draft.tokens_out + self.tokens[1],
            masked=self.draft.masked,
        )


def leak_complaint(leaks: Sequence[Leak]) -> str:
    """Say to the teacher what a tip gives away."""
    reasons = "; ".join(f"it {REASONS[leak.reason]} ({leak.detail})" for leak in leaks)
    return f"It says too much: {reasons}."


def failure_complaint(attempt: Attempt) -> str:
    """Say to the teacher what became of a program that was written with a tip."""
    if attempt.reason == TOO_LONG:
        return "It is so long that it does not fit, together with the task, into what can be read at once."
    program = attempt.program or "# nothing was written"
    said = feedback(attempt)
    return f"It did not help enough. Somebody who had read it wrote:\n\n```python\n{program}\n```\n\n{said}"


def verify_tips(
    problems: Mapping[str, Problem],
    trajectories: Sequence[Trajectory],
    drafts: Sequence[Draft],
    teacher: Teacher,
    environment: CodeEnvironment,
    *,
    solved: Collection[str],
    refinements: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[TipRecord]:
    """Try every tip on the coder; one that leaks or fails goes back to the teacher.

    A tip shall turn a failing program into a passing one, so where the coder needs none nothing is tried: the
    trajectory began with a sampled or a recorded program, and the greedy one may be better.

    Args:
        problems: by id.
        trajectories: what the tips were drawn from.
        drafts: one a trajectory, in the same order.
        teacher: who rewords.
        environment: the coder; one program a wording is drawn.
        solved: ids of the problems whose tests the greedy program without a tip all passes.
        refinements: rewordings at most.
        progress: called with (rounds done, rounds in all).

    Returns:
        One record a draft, in order, not yet measured on fresh programs (see `measure_fresh`).
    """
    tips = [
        _Open(problems[draft.problem_id], trajectory, draft, draft.problem_id not in solved)
        for trajectory, draft in zip(trajectories, drafts, strict=True)
    ]
    worded = [tip for tip in tips if tip.draft.tip is not None]
    for tip in worded:
        tip.judge_wording(tip.draft.tip or "")
    active = [tip for tip in worded if tip.needed]
    for turn in range(1, refinements + 2):
        trials = [tip for tip in active if not tip.wordings[-1].leaks]
        groups = environment.attempts([(tip.problem, tip.wordings[-1].text) for tip in trials])
        for tip, (attempt,) in zip(trials, groups, strict=True):
            tip.tried(attempt)
        active = [tip for tip in active if tip.complaint]
        if turn <= refinements and active:
            active = _reword(active, teacher, turn)
        if progress is not None:
            progress(turn, refinements + 1)
    return [tip.close() for tip in tips]


def _reword(active: Sequence[_Open], teacher: Teacher, turn: int) -> list[_Open]:
    requests = [
        TeacherRequest(
            "refine",
            tip.problem.id,
            user_prompt(
                fill(
                    "refine_tip",
                    statement=tip.problem.statement,
                    tip=tip.wordings[-1].text,
                    complaint=tip.complaint,
                )
            ),
            turn,
        )
        for tip in active
    ]
    reworded = []
    for tip, reply in zip(active, teacher.reply(requests), strict=True):
        tip.tokens[0] += reply.tokens_in or 0
        tip.tokens[1] += reply.tokens_out or 0
        if reply.text is None:
            tip.why = reply.why
        else:
            tip.judge_wording(reply.text)
            reworded.append(tip)
    return reworded


def measure_fresh(
    problems: Mapping[str, Problem],
    records: Sequence[TipRecord],
    environment: CodeEnvironment,
    n: int,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[TipRecord]:
    """Return the records with verified tips tried again on `n` programs that had no part in choosing them.

    As many programs are drawn without the tip.  The base rate of the mining would not do: problems were
    chosen for its being low, and such a rate rises on average when it is measured again.

    Args:
        problems: by id.
        records: verified ones and others.
        environment: the coder, with a seed that nothing else has used.
        n: programs a tip.
        progress: called with (requests done, requests in all), two a verified tip.
    """
    verified = [record for record in records if record.tip is not None]
    named = [problems[record.problem_id] for record in verified]
    guided = [(problem, record.tip) for problem, record in zip(named, verified, strict=True)]
    groups = environment.attempts([*guided, *((problem, None) for problem in named)], n, progress=progress)
    solved = [sum(attempt.solved for attempt in group) for group in groups]
    counts = {
        record.problem_id: (with_tip, without)
        for record, with_tip, without in zip(
            verified, solved[: len(verified)], solved[len(verified) :], strict=True
        )
    }
    measured = []
    for record in records:
        if record.tip is not None:
            with_tip, without = counts[record.problem_id]
            record = replace(record, fresh_n=n, fresh_solved=with_tip, fresh_base_solved=without)
        measured.append(record)
    return measured


def check_inputs(
    problems: Mapping[str, Problem],
    trajectories: Sequence[Trajectory],
    rates: Mapping[str, BaseRate],
    header: Mapping[str, Any],
    coder: Sampler,
    sampling: Sampling,
    *,
    time_limit_s: float,
    memory_mb: int,
) -> None:
    """Make sure that trajectories, problems, base rates and coder belong together.

    Args:
        problems: by id.
        trajectories: kept ones.
        rates: base rates by problem id.
        header: of the base rates.
        coder: whom tips are tried on.
        sampling: how programs are sampled with tips and without; the greedy ones are as long.
        time_limit_s: CPU seconds of one execution.
        memory_mb: memory of one execution.

    Raises:
        DataError: no trajectory was kept, one is about an unknown problem, or the rates are another coder's
            or were measured in other conditions.
    """
    if not trajectories:
        raise DataError(
            "no trajectory was kept, so there is nothing to draw a tip from: mining_summary.csv says where "
            "problems were lost; take more problems, a higher base_threshold or another teacher"
        )
    for trajectory in trajectories:
        if trajectory.problem_id not in problems or trajectory.problem_id not in rates:
            raise DataError(
                f"trajectory of problem {trajectory.problem_id!r}: there is no such problem among the "
                f"{len(problems)} loaded; mining and distillation must name the same problems"
            )
    if header.get("model_revision") != coder.revision:
        raise DataError(
            f"the base rates are of coder {header.get('model_revision')}, but tips would be tried on "
            f"{coder.revision}: run 01_data_mining again with this environment"
        )
    check_conditions(header, coder, sampling, time_limit_s=time_limit_s, memory_mb=memory_mb)


def tip_labels(problems: Mapping[str, Problem], teacher: Teacher) -> dict[str, tuple[str | None, str | None]]:
    """Return (family, op) of what a problem's tip is about, as far as a transcript or the problem says so."""
    labels = {}
    for name, problem in problems.items():
        transcript = teacher.transcript(name) if isinstance(teacher, RecordedTeacher) else None
        family, op = (transcript.family, transcript.op) if transcript else (None, None)
        labels[name] = (family or None, op or problem.meta.get("tip_about"))
    return labels


def verified_tips(
    problems: Mapping[str, Problem],
    records: Sequence[TipRecord],
    rates: Mapping[str, BaseRate],
    labels: Mapping[str, tuple[str | None, str | None]] | None = None,
) -> list[VerifiedTip]:
    """Return the verified tips with what a proposer's training needs.

    Args:
        problems: by id.
        records: verified ones and others.
        rates: base rates by problem id.
        labels: (family, op) by problem id, where known.
    """
    found = []
    for record in records:
        if record.tip is not None:
            rate, problem = rates[record.problem_id], problems[record.problem_id]
            family, op = (labels or {}).get(problem.id, (None, None))
            found.append(
                VerifiedTip(
                    problem.id,
                    problem.statement,
                    record.tip,
                    record.fresh_n,
                    record.fresh_solved,
                    rate.n,
                    rate.solved,
                    rate.greedy_share,
                    record.fresh_base_solved,
                    family,
                    op,
                )
            )
    return found


def write_verified_tips(path: Path, tips: Sequence[VerifiedTip]) -> None:
    """Write one line a tip.

    Raises:
        DataError: there is none, and nothing that follows could learn anything.
    """
    if not tips:
        raise DataError("no tip was verified, so there is nothing to learn from: tips.jsonl says why")
    write_jsonl(path, map(asdict, tips))


def read_verified_tips(path: Path) -> list[VerifiedTip]:
    """Return the tips of a file written by `write_verified_tips`.

    Raises:
        DataError: the file is missing, or a record is no verified tip.
    """
    try:
        return [VerifiedTip(**record) for record in read_jsonl(path)]
    except TypeError as error:
        raise DataError(f"{path}: holds a record that is no verified tip ({error})") from error


def tip_losses(trajectories: int, records: Sequence[TipRecord]) -> pd.DataFrame:
    """Return what was lost where, up to the verified tips: columns ``step``, ``lost``, ``left``."""
    outcomes = Counter(record.outcome for record in records)
    steps = [
        ("kept trajectories", 0),
        ("no observation", outcomes["no observation"]),
        ("no tip", outcomes["no tip"]),
        ("solved without a tip", outcomes["not needed"]),
        ("leaks in its last wording", outcomes["leaks"]),
        ("does not help in its last wording", outcomes["does not help"]),
    ]
    table = pd.DataFrame(steps, columns=["step", "lost"])
    return table.assign(left=trajectories - table["lost"].cumsum())


def record_json(record: TipRecord, rate: BaseRate) -> dict[str, Any]:
    """Return a record with its base counts as one JSON-ready dict."""
    base = {"base_n": rate.n, "base_solved": rate.solved, "base_greedy_share": rate.greedy_share}
    return asdict(record) | {"tip": record.tip} | base
