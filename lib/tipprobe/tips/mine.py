"""Repair trajectories: a program that failed, and what a teacher who sees the tests' verdicts made of it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd

from tipprobe.errors import DataError
from tipprobe.evaluation.grade import Failure, run_tests
from tipprobe.files import append_jsonl, complete_records
from tipprobe.models.open import sampler_options, token_cost
from tipprobe.models.types import Prompt
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl
from tipprobe.prompts import CODE_PROMPTS, prompt_hashes
from tipprobe.sandbox import Executor, extract_code
from tipprobe.tips.base_rates import BaseRate
from tipprobe.tips.environment import Attempt
from tipprobe.tips.teachers import (
    RecordedTeacher,
    Teacher,
    TeacherReply,
    TeacherRequest,
    feedback,
    repair_again_prompt,
    repair_prompt,
)

#: Problems whose repair is asked for together and written down together; what a kill can cost.
CHUNK = 32

#: ``kept``: the first program failed and a later one passed; the rest says why a trajectory was dropped.
Outcome = Literal["kept", "not repaired", "first attempt passed", "teacher silent"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One program of a trajectory, with what its tests said.

    Attributes:
        program: the program, None if the reply held none.
        passed: number of tests passed.
        n_tests: number of tests, at least 1.
        reason: how it ended (`tipprobe.tips.environment.Attempt.reason`).
        feedback: what the teacher was shown about it, ``""`` if it passed.
        failures: the first tests that failed.
        reply: the teacher's reply that the program is from; None for the first program, which it did not
            write.
    """

    program: str | None
    passed: int
    n_tests: int
    reason: str
    feedback: str
    failures: tuple[Failure, ...] = ()
    reply: str | None = None

    @property
    def solved(self) -> bool:
        """Whether every test passed."""
        return self.passed == self.n_tests


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What became of one problem.

    Attributes:
        problem_id: the problem.
        turns: the first program, then one program a turn of the teacher; empty if nobody could be asked.
        outcome: see `Outcome`.
        why: what the teacher's last reply lacked (`tipprobe.tips.teachers.Why`), ``""`` if nothing.
        tokens_in: tokens sent to the teacher, 0 where nobody counted.
        tokens_out: tokens that it wrote.
    """

    problem_id: str
    turns: tuple[Turn, ...]
    outcome: Outcome
    why: str = ""
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def kept(self) -> bool:
        """Whether a tip can be drawn from it."""
        return self.outcome == "kept"

    @property
    def failed_program(self) -> str | None:
        """The first program, None if there is none."""
        return self.turns[0].program if self.turns else None

    @property
    def repaired_program(self) -> str | None:
        """The program that passed every test, None if none did."""
        return self.turns[-1].program if self.kept else None


def judge(
    items: Sequence[tuple[Problem, str | None]], sandbox: Executor, *, time_limit_s: float, memory_mb: int
) -> list[Attempt]:
    """Run programs that the coder did not write on all tests; see `run_tests` for the arguments."""
    reports = run_tests(items, sandbox, time_limit_s=time_limit_s, memory_mb=memory_mb)
    return [
        Attempt(program, report.passed, report.n_tests, report.reason, 0, report.failures)
        for (_, program), report in zip(items, reports, strict=True)
    ]


def first_attempts(
    problems: Sequence[Problem],
    sampled: Sequence[Sequence[Attempt]],
    teacher: Teacher,
    sandbox: Executor,
    *,
    time_limit_s: float,
    memory_mb: int,
) -> list[Attempt | None]:
    """Return the program that each trajectory begins with, run on all tests.

    A transcript is about a program of its own; otherwise it is the coder's first program that failed, one
    with code in it if there is any.  None where a recorded teacher has no transcript: there is nobody to ask.

    Args:
        problems: with tests.
        sampled: the coder's attempts at each of them, not all of them right.
        teacher: who will repair.
        sandbox: runs the programs of transcripts.
        time_limit_s: CPU seconds of one execution.
        memory_mb: memory of one execution.

    Raises:
        DataError: a problem has no failed attempt to repair.
    """
    if isinstance(teacher, RecordedTeacher):
        recorded = [(problem, teacher.failed_program(problem.id)) for problem in problems]
        items = [(problem, program) for problem, program in recorded if program is not None]
    else:
        pairs = zip(problems, sampled, strict=True)
        items = [(problem, _first_failure(problem, attempts)) for problem, attempts in pairs]
    judged = judge(items, sandbox, time_limit_s=time_limit_s, memory_mb=memory_mb)
    found = {problem.id: attempt for (problem, _), attempt in zip(items, judged, strict=True)}
    return [found.get(problem.id) for problem in problems]


def _first_failure(problem: Problem, attempts: Sequence[Attempt]) -> str | None:
    failed = [attempt.program for attempt in attempts if not attempt.solved]
    if not failed:
        raise DataError(f"problem {problem.id!r}: no program failed, so there is nothing to repair")
    return next((program for program in failed if program is not None), None)


@dataclass(slots=True)
class _Open:
    """A trajectory that is being made."""

    problem: Problem
    attempt: Attempt
    turns: list[Turn] = field(default_factory=list)
    prompt: Prompt = field(default_factory=list)
    tokens: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, attempt: Attempt, reply: str | None) -> None:
        said = "" if attempt.solved else feedback(attempt)
        parts = (attempt.program, attempt.passed, attempt.n_tests, attempt.reason, said, attempt.failures)
        self.turns.append(Turn(*parts, reply))
        self.attempt = attempt

    def ask(self, turn: int) -> TeacherRequest:
        if turn == 1:
            self.prompt = repair_prompt(self.problem, self.attempt)
        else:
            self.prompt = repair_again_prompt(self.prompt, self.turns[-1].reply or "", self.attempt)
        return TeacherRequest("repair", self.problem.id, self.prompt, turn)

    def count(self, reply: TeacherReply) -> None:
        self.tokens[0] += reply.tokens_in or 0
        self.tokens[1] += reply.tokens_out or 0

    def close(self, outcome: Outcome, why: str = "") -> Trajectory:
        return Trajectory(self.problem.id, tuple(self.turns), outcome, why, *self.tokens)


def mine_trajectories(
    problems: Sequence[Problem],
    firsts: Sequence[Attempt | None],
    teacher: Teacher,
    sandbox: Executor,
    *,
    turns: int,
    time_limit_s: float,
    memory_mb: int,
    path: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Trajectory]:
    """Have a teacher repair failed programs, with the tests' verdicts on every attempt.

    Args:
        problems: with tests.
        firsts: the program that each begins with, None for those without a teacher (see `first_attempts`).
        teacher: who repairs.
        sandbox: runs what the teacher writes.
        turns: attempts that the teacher has at a problem.
        time_limit_s: CPU seconds of one execution.
        memory_mb: memory of one execution.
        path: JSONL file of finished trajectories; an earlier run's, of the same teacher, turns, limits and
            prompts, that begin with the same program are taken from it, and nobody is asked again.
        progress: called with (problems done, problems in all).

    Returns:
        One trajectory a problem, in order.
    """
    limits = {"time_limit_s": time_limit_s, "memory_mb": memory_mb}
    header = mining_header(teacher, turns) | limits
    begins = {
        p.id: None if first is None else first.program for p, first in zip(problems, firsts, strict=True)
    }
    tasks = {problem.id: _digest(problem, begins[problem.id]) for problem in problems}
    done = _earlier(path, header, tasks) if path else {}
    waiting = [pair for pair in zip(problems, firsts, strict=True) if pair[0].id not in done]
    for start in range(0, len(waiting), CHUNK):
        found = _repair(waiting[start : start + CHUNK], teacher, sandbox, turns, limits)
        done |= {trajectory.problem_id: trajectory for trajectory in found}
        if path is not None:
            append_jsonl(path, (asdict(t) | {"task": tasks[t.problem_id]} for t in found))
        if progress is not None:
            progress(len(problems) - len(waiting) + min(start + CHUNK, len(waiting)), len(problems))
    trajectories = [done[problem.id] for problem in problems]
    if path is not None:
        write_trajectories(path, trajectories, header, tasks)
    return trajectories


def mining_header(teacher: Teacher, turns: int) -> dict[str, Any]:
    """Return what trajectories depend on beside problems and limits: the teacher, turns, prompts."""
    sampling = getattr(teacher, "sampling", None)
    return {
        "teacher": teacher.revision,
        "teacher_sampling": None if sampling is None else asdict(sampling),
        "teacher_options": sampler_options(getattr(teacher, "sampler", None)),
        "turns": turns,
        "prompts": prompt_hashes("repair", "repair_again", *CODE_PROMPTS),
    }


def _digest(problem: Problem, program: str | None) -> str:
    """Return what stands for a problem with its tests and the program to repair."""
    text = json.dumps([problem.to_json(), program], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _repair(
    pairs: Sequence[tuple[Problem, Attempt | None]],
    teacher: Teacher,
    sandbox: Executor,
    turns: int,
    limits: Mapping[str, Any],
) -> list[Trajectory]:
    finished: dict[str, Trajectory] = {}
    active = []
    for problem, attempt in pairs:
        if attempt is None:
            finished[problem.id] = Trajectory(problem.id, (), "teacher silent", "not recorded")
            continue
        one = _Open(problem, attempt)
        one.add(attempt, None)
        if attempt.solved:
            finished[problem.id] = one.close("first attempt passed")
        else:
            active.append(one)
    for turn in range(1, turns + 1):
        replies = teacher.reply([one.ask(turn) for one in active]) if active else []
        answered = []
        for one, reply in zip(active, replies, strict=True):
            one.count(reply)
            if reply.text is not None:
                answered.append((one, reply.text))
                continue
            # Who had a turn and then falls silent has not repaired it; who never had one may have been able.
            finished[one.problem.id] = one.close("not repaired" if turn > 1 else "teacher silent", reply.why)
        items = [(one.problem, extract_code(text).code) for one, text in answered]
        for (one, text), attempt in zip(answered, judge(items, sandbox, **limits), strict=True):
            one.add(attempt, text)
            if attempt.solved:
                finished[one.problem.id] = one.close("kept")
        active = [one for one, _ in answered if not one.attempt.solved]
    finished |= {one.problem.id: one.close("not repaired") for one in active}
    return [finished[problem.id] for problem, _ in pairs]


def _earlier(path: Path, header: Mapping[str, Any], tasks: Mapping[str, str]) -> dict[str, Trajectory]:
    """Return what an interrupted run finished of these tasks, and leave in the file nothing else."""
    records = complete_records(path)
    same = bool(records) and records[0].get("header") == header
    found = [
        _from_json(record)
        for record in (records[1:] if same else ())
        if record["task"] == tasks.get(record["problem_id"])
    ]
    write_trajectories(path, found, header, tasks)
    return {trajectory.problem_id: trajectory for trajectory in found}


def write_trajectories(
    path: Path, trajectories: Sequence[Trajectory], header: Mapping[str, Any], tasks: Mapping[str, str]
) -> None:
    """Write a header line, then one line a problem with what stands for the problem and its first program."""
    lines = (asdict(trajectory) | {"task": tasks[trajectory.problem_id]} for trajectory in trajectories)
    write_jsonl(path, [{"header": dict(header)}, *lines])


def read_trajectories(path: Path) -> list[Trajectory]:
    """Return the trajectories of a file, kept ones and others, in its order.

    Raises:
        DataError: the file is missing, or a record is no trajectory.
    """
    try:
        return [_from_json(record) for record in read_jsonl(path) if "header" not in record]
    except (TypeError, KeyError) as error:
        raise DataError(f"{path}: holds a record that is no trajectory ({error})") from error


def _from_json(record: Mapping[str, Any]) -> Trajectory:
    turns = tuple(
        Turn(**{**turn, "failures": tuple(Failure(**failure) for failure in turn["failures"])})
        for turn in record["turns"]
    )
    fields = {name: value for name, value in record.items() if name != "task"}
    return replace(Trajectory(**fields), turns=turns)


class Counted(Protocol):
    """Something that a teacher was asked for: a `Trajectory`, or a tip with its wordings."""

    @property
    def tokens_in(self) -> int:
        """Tokens sent to the teacher."""
        ...

    @property
    def tokens_out(self) -> int:
        """Tokens that it wrote."""
        ...


def teacher_bill(records: Sequence[Counted], price_in: float, price_out: float) -> dict[str, float]:
    """Return tokens and cost of everything the teacher was asked for, as if nothing had come from a cache.

    What this run paid a server, without what came from the cache and with what was asked again, is
    `tipprobe.models.endpoint.Usage.cost`; both are priced by `token_cost`.

    Args:
        records: all trajectories, or all tips.
        price_in: price of a million tokens sent.
        price_out: price of a million tokens written.
    """
    sent, written = (sum(getattr(record, name) for record in records) for name in ("tokens_in", "tokens_out"))
    cost = token_cost(sent, written, price_in, price_out)
    return {"tokens sent": sent, "tokens written": written, "cost": cost}


def mining_funnel(
    rates: Sequence[BaseRate],
    hard: int,
    trajectories: Sequence[Trajectory],
    turns: int,
    looked_at: int | None = None,
) -> pd.DataFrame:
    """Return how many problems are left after each step: columns ``step``, ``problems``, ``share``.

    The rows "repaired in turn t" share out those that were kept; the others count what is left.

    Args:
        rates: of all problems that fit the coder's context.
        hard: how many are below the threshold.
        trajectories: of those that are not like an evaluation problem either.
        turns: attempts that the teacher had.
        looked_at: problems in all, None if they all fit.
    """
    looked_at = len(rates) if looked_at is None else looked_at
    outcomes = Counter(trajectory.outcome for trajectory in trajectories)
    taught = len(trajectories) - outcomes["teacher silent"]
    repaired = Counter(len(t.turns) - 1 for t in trajectories if t.kept)
    rows = [
        ("problems looked at", looked_at),
        *([("fits the coder's context", len(rates))] if len(rates) < looked_at else []),
        ("base pass rate below the threshold", hard),
        ("not like an evaluation problem", len(trajectories)),
        ("with a teacher", taught),
        ("first program fails", taught - outcomes["first attempt passed"]),
        *((f"repaired in turn {turn}", repaired[turn]) for turn in range(1, turns + 1)),
        ("kept", outcomes["kept"]),
    ]
    table = pd.DataFrame(rows, columns=["step", "problems"])
    return table.assign(share=table["problems"] / max(looked_at, 1))
