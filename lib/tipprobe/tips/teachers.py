"""Teachers: whoever mends programs and words tips, be it a server, a model of this process or a transcript.

A teacher is asked in batches, so that a server can work on many requests at once, and says of every request
whether there is a reply and, if not, why.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tipprobe.errors import DataError, ParameterError
from tipprobe.models.open import open_sampler, sample_fitting
from tipprobe.models.types import Completion, Prompt, Sampler, Sampling
from tipprobe.paths import resolve
from tipprobe.problems.schema import Problem, numbered_jsonl
from tipprobe.prompts import code_prompt, fill, user_prompt
from tipprobe.sandbox.extract import answer_of
from tipprobe.tips.environment import Attempt
from tipprobe.tips.propose import read_tip

#: What a teacher is asked for: a mended program, what the tests show, a tip in words, a tip from comparing a
#: wrong program with a right one, another wording of a tip that did not help.
Purpose = Literal["repair", "observe", "tip", "contrast", "refine"]
#: Purposes whose reply is a tip.
TIP_PURPOSES = ("tip", "contrast", "refine")
#: Why a request has a reply or none.
Why = Literal["ok", "cut", "empty", "too long", "not recorded"]

#: Transcripts that come with the package.
TRANSCRIPTS = Path(__file__).parent / "transcripts"
RECORDED = "recorded"
#: How a model is asked unless told otherwise: the likeliest words, and room to think aloud.
TEACHER_SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=0, max_tokens=2048)
#: Failed tests that a repair prompt shows, and characters of each text in them.
FEEDBACK_TESTS, FEEDBACK_CHARS = 3, 400


@dataclass(frozen=True, slots=True)
class TeacherRequest:
    """One thing that a teacher is asked for.

    Attributes:
        purpose: what for.
        problem_id: the problem that it is about.
        messages: the chat prompt; a recorded teacher does not read it.
        turn: number of the attempt, from 1, for ``repair`` and ``refine``.
    """

    purpose: Purpose
    problem_id: str
    messages: Prompt
    turn: int = 1


@dataclass(frozen=True, slots=True)
class TeacherReply:
    """What came of a request.

    Attributes:
        text: the reply without its reasoning, for tips without a label such as ``Tip:``; None unless `why` is
            ``ok``.
        why: ``ok``, ``cut`` (the reply reached its token limit, or ended before its reasoning did; half of
            one may say the opposite), ``empty`` (nothing but blanks or a label), ``too long`` (the
            conversation does not fit the model's context) or ``not recorded``.
        tokens_in: length of the prompt in tokens, None if nobody counted.
        tokens_out: length of the reply in tokens, None if nobody counted.
    """

    text: str | None
    why: Why
    tokens_in: int | None = None
    tokens_out: int | None = None


class Teacher(Protocol):
    """Whoever can be asked."""

    #: What identifies the teacher, for provenance and cache keys.
    revision: str
    #: Requests by (purpose, why).
    outcomes: Counter[tuple[str, str]]

    def reply(
        self,
        requests: Sequence[TeacherRequest],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[TeacherReply]:
        """Return a reply to each request; `progress(done, total)` is called as they come."""
        ...


def outcome_table(teacher: Teacher) -> list[dict[str, Any]]:
    """Return one record a purpose that was asked for, with the number of requests by outcome."""
    purposes = [purpose for purpose in get_args(Purpose) if any(p == purpose for p, _ in teacher.outcomes)]
    return [
        {"purpose": purpose} | {why: teacher.outcomes[purpose, why] for why in get_args(Why)}
        for purpose in purposes
    ]


class SamplerTeacher:
    """A teacher that is a model: behind a server or in this process.

    Args:
        sampler: the model.
        sampling: how its replies are drawn.
    """

    def __init__(self, sampler: Sampler, sampling: Sampling = TEACHER_SAMPLING) -> None:
        self.sampler = sampler
        self.sampling = sampling
        self.revision = sampler.revision
        self.outcomes: Counter[tuple[str, str]] = Counter()

    def reply(
        self,
        requests: Sequence[TeacherRequest],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[TeacherReply]:
        """See `Teacher.reply`.

        Raises:
            EndpointError: the server is not there, refuses, or fails each time.
        """
        # The seed stays the same: what a server replied is found again however requests are batched.
        messages = [request.messages for request in requests]
        groups = sample_fitting(self.sampler, messages, 1, self.sampling, progress=progress)
        replies = [
            TeacherReply(None, "too long") if group is None else _read(request, group[0])
            for request, group in zip(requests, groups, strict=True)
        ]
        self.outcomes.update((q.purpose, r.why) for q, r in zip(requests, replies, strict=True))
        return replies


def _read(request: TeacherRequest, completion: Completion) -> TeacherReply:
    text = answer_of(completion.text)
    why: Why = "ok"
    if text is None or completion.finish_reason == "length":
        text, why = None, "cut"
    elif request.purpose in TIP_PURPOSES:
        text = read_tip(completion).tip
    if why == "ok" and not (text or "").strip():
        text, why = None, "empty"
    return TeacherReply(text, why, getattr(completion, "prompt_tokens", None), completion.n_tokens)


class Turn(BaseModel):
    """A teacher's reply in a transcript."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reply: str


class Transcript(BaseModel):
    """What a teacher said about one program that failed, in the order in which it would be asked.

    Attributes:
        problem_id: the problem.
        failed_program: the program that all of it is about.
        repairs: replies to the repair prompts, one a turn.
        observation: what the tests show, for those who cannot see them.
        tip: the observation as a tip.
        contrast_tip: a tip from comparing the wrong program with the right one.
        refinements: other wordings of the tip, one a turn.
        op, family, outcome, note: for readers.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    problem_id: str = Field(min_length=1)
    failed_program: str
    repairs: tuple[Turn, ...] = Field(default=(), strict=False)
    observation: str | None = None
    tip: str | None = None
    contrast_tip: str | None = None
    refinements: tuple[str, ...] = Field(default=(), strict=False)
    op: str = ""
    family: str = ""
    outcome: str = ""
    note: str = ""

    def find(self, purpose: Purpose, turn: int) -> str | None:
        """Return what was said for a purpose at a turn (from 1); None if nothing was."""
        said: Mapping[str, Sequence[str | None]] = {
            "repair": [repair.reply for repair in self.repairs],
            "observe": [self.observation],
            "tip": [self.tip],
            "contrast": [self.contrast_tip],
            "refine": self.refinements,
        }
        # A recorded tip is worded once, whatever the turn.
        position = turn - 1 if purpose in ("repair", "refine") else 0
        return said[purpose][position] if 0 <= position < len(said[purpose]) else None


def read_transcripts(paths: Sequence[Path]) -> dict[str, Transcript]:
    """Return the transcripts in JSONL files by problem id, in the files' order.

    Raises:
        DataError: a file is missing or empty, a line is no transcript, or a problem has two; the message
            names file and line.
    """
    found: dict[str, Transcript] = {}
    places: dict[str, str] = {}
    for path in paths:
        before = len(found)
        for number, record in numbered_jsonl(path, whole=True):
            where = f"{path}, line {number}"
            try:
                transcript = Transcript.model_validate(record)
            except ValidationError as error:
                first = error.errors()[0]
                key = ".".join(map(str, first["loc"]))
                raise DataError(f"{where}: no transcript: {key}: {first['msg']}") from error
            if transcript.problem_id in found:
                raise DataError(
                    f"{where}: problem {transcript.problem_id!r} has a transcript already "
                    f"({places[transcript.problem_id]})"
                )
            found[transcript.problem_id], places[transcript.problem_id] = transcript, where
        if len(found) == before:
            raise DataError(f"{path} holds no transcript")
    return found


class RecordedTeacher:
    """A teacher that says what somebody wrote down beforehand: costs nothing, and is the same for everybody.

    A transcript is about one failed program (`failed_program`), and would answer if asked about another.

    Args:
        paths: JSONL files of `Transcript` records.

    Raises:
        DataError: see `read_transcripts`.
    """

    def __init__(self, *paths: Path) -> None:
        self._transcripts = read_transcripts(paths)
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths))
        self.revision = f"{RECORDED}:{digest.hexdigest()[:16]}"
        self.outcomes: Counter[tuple[str, str]] = Counter()

    @property
    def problem_ids(self) -> tuple[str, ...]:
        """The problems that there are transcripts for."""
        return tuple(self._transcripts)

    def transcript(self, problem_id: str) -> Transcript | None:
        """Return a problem's transcript, None if there is none."""
        return self._transcripts.get(problem_id)

    def failed_program(self, problem_id: str) -> str | None:
        """Return the program that a problem's transcript is about, None if there is no transcript."""
        transcript = self.transcript(problem_id)
        return None if transcript is None else transcript.failed_program

    def reply(
        self,
        requests: Sequence[TeacherRequest],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[TeacherReply]:
        """See `Teacher.reply`; the messages are not read."""
        replies = []
        for number, request in enumerate(requests, 1):
            transcript = self.transcript(request.problem_id)
            text = None if transcript is None else transcript.find(request.purpose, request.turn)
            why: Why = "not recorded" if text is None else "ok" if text.strip() else "empty"
            replies.append(TeacherReply(text if why == "ok" else None, why))
            self.outcomes[request.purpose, why] += 1
            if progress is not None:
                progress(number, len(requests))
        return replies


def open_teacher(
    spec: str,
    *,
    sampling: Sampling = TEACHER_SAMPLING,
    cache: Path | str | None = None,
    **options: Any,
) -> Teacher:
    """Return the teacher that `spec` names.

    Args:
        spec: ``recorded`` (the transcripts that come with the package), ``recorded:FILE``, or a model (see
            `tipprobe.models.open.open_sampler`).
        sampling: how a model's replies are drawn.
        cache: file for a server's replies.
        options: further options of `open_sampler`.

    Raises:
        ParameterError: `spec` names nothing.
        DataError: a transcript or a model cannot be read.
    """
    name, colon, file = spec.partition(":")
    if name != RECORDED:
        return SamplerTeacher(open_sampler(spec, cache=cache, **options), sampling)
    if colon and not file:
        raise ParameterError(f"teacher {spec!r} names no file; write {RECORDED}:FILE, or {RECORDED} alone")
    try:
        return RecordedTeacher(*([resolve(file)] if file else sorted(TRANSCRIPTS.glob("*.jsonl"))))
    except DataError as error:
        raise DataError(f"teacher {spec!r}: {error}") from error


def repair_prompt(problem: Problem, attempt: Attempt) -> Prompt:
    """Return the prompt that asks to mend a program that failed, shown what the tests said."""
    return user_prompt(
        fill(
            "repair",
            request=code_prompt(problem)[0]["content"],
            program=attempt.program or "# nothing was written",
            feedback=feedback(attempt),
        )
    )


def repair_again_prompt(previous: Prompt, reply: str, attempt: Attempt) -> Prompt:
    """Return `previous` carried on: the reply to it, and what the tests said of the program in it."""
    return [
        *previous,
        {"role": "assistant", "content": reply},
        {"role": "user", "content": fill("repair_again", feedback=feedback(attempt))},
    ]


def feedback(attempt: Attempt) -> str:
    """Put an attempt's failures into words: the first `FEEDBACK_TESTS`, texts cut at `FEEDBACK_CHARS`."""
    if attempt.program is None:
        return "The reply held no complete program in a fenced block."
    lines = [f"The program passes {attempt.passed} of {attempt.n_tests} tests."]
    for failure in attempt.failures[:FEEDBACK_TESTS]:
        lines += ["", f"input:\n{_capped(failure.input)}"]
        if failure.expected:  # an in-process test has none
            lines.append(f"expected:\n{_capped(failure.expected)}")
        lines.append(f"got:\n{_capped(failure.got)}")
    return "\n".join(lines)


def _capped(text: str) -> str:
    text = text.rstrip()
    if len(text) <= FEEDBACK_CHARS:
        return text or "(nothing)"
    return f"{text[:FEEDBACK_CHARS]}\n... {len(text) - FEEDBACK_CHARS:,} more characters"
