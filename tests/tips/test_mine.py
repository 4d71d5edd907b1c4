"""Trajectories: a failed program, a teacher, the tests' verdicts."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tipprobe.errors import DataError
from tipprobe.models.types import Sampling
from tipprobe.problems.schema import Problem, Test
from tipprobe.sandbox import Sandbox
from tipprobe.tips.base_rates import BaseRate
from tipprobe.tips.environment import Attempt
from tipprobe.tips.mine import (
    CHUNK,
    first_attempts,
    judge,
    mine_trajectories,
    mining_funnel,
    read_trajectories,
    teacher_bill,
)
from tipprobe.tips.teachers import RecordedTeacher, TeacherReply

TESTS = (Test("1\n", "2\n"), Test("2\n", "4\n"), Test("0\n", "0\n"))
SQUARE, DOUBLE, TRIPLE = (f"print(int(input()) {what})" for what in ("** 2", "* 2", "* 3"))
LIMITS = {"time_limit_s": 2, "memory_mb": 512}


def problem(name="double"):
    return Problem(name, "Double the number.", tests=TESTS)


def reply(program):
    return f"Here it is.\n```python\n{program}\n```"


class Teacher:
    """Says what a test says, one text a turn for every problem; None is silence."""

    revision = "scripted"

    def __init__(self, *said):
        self.said, self.requests, self.outcomes = said, [], Counter()

    def reply(self, requests, *, progress=None):
        self.requests += requests
        replies = []
        for request in requests:
            text = self.said[request.turn - 1] if request.turn <= len(self.said) else None
            replies.append(TeacherReply(text, "ok" if text else "empty", 10, 5))
        return replies


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(1) as pool:
        yield pool


def mine(teacher, sandbox, program=SQUARE, turns=3, problems=(), **options):
    problems = list(problems) or [problem()]
    firsts = judge([(p, program) for p in problems], sandbox, **LIMITS)
    return mine_trajectories(problems, firsts, teacher, sandbox, turns=turns, **LIMITS, **options)


def test_repaired_in_the_second_turn(sandbox):
    teacher = Teacher(reply(TRIPLE), reply(DOUBLE))
    (trajectory,) = mine(teacher, sandbox)
    assert trajectory.kept and trajectory.why == ""
    assert [turn.passed for turn in trajectory.turns] == [2, 1, 3]
    assert [turn.reply for turn in trajectory.turns] == [None, reply(TRIPLE), reply(DOUBLE)]
    assert (trajectory.failed_program, trajectory.repaired_program) == (SQUARE, DOUBLE)
    assert (trajectory.tokens_in, trajectory.tokens_out) == (20, 10)
    first, second = trajectory.turns[:2]
    assert [(f.input, f.expected) for f in first.failures] == [("1\n", "2\n")]
    assert "2 of 3" in first.feedback and "expected" in first.feedback and trajectory.turns[2].feedback == ""
    # The second request carries the first reply and what its program did.
    assert [request.turn for request in teacher.requests] == [1, 2]
    conversation = teacher.requests[1].messages
    assert [message["role"] for message in conversation] == ["user", "assistant", "user"]
    assert first.feedback in conversation[0]["content"] and SQUARE in conversation[0]["content"]
    assert conversation[1]["content"] == reply(TRIPLE) and second.feedback in conversation[2]["content"]


@pytest.mark.parametrize(
    ("said", "turns", "outcome", "why", "programs"),
    [
        ((reply(TRIPLE), reply(SQUARE), reply(DOUBLE)), 2, "not repaired", "", 3),
        ((None,), 3, "teacher silent", "empty", 1),
        ((reply(TRIPLE), None), 3, "not repaired", "empty", 2),
        (("I see no mistake.", reply(DOUBLE)), 3, "kept", "", 3),
        (("I see no mistake.",), 1, "not repaired", "", 2),
    ],
)
def test_other_outcomes(sandbox, said, turns, outcome, why, programs):
    (trajectory,) = mine(Teacher(*said), sandbox, turns=turns)
    assert (trajectory.outcome, trajectory.why, len(trajectory.turns)) == (outcome, why, programs)
    assert (trajectory.repaired_program is not None) == (outcome == "kept")


def test_a_program_that_passes_is_nothing_to_repair(sandbox):
    teacher = Teacher(reply(DOUBLE))
    (trajectory,) = mine(teacher, sandbox, program=DOUBLE)
    assert trajectory.outcome == "first attempt passed" and not teacher.requests


def test_a_reply_without_a_program_says_so_to_the_teacher(sandbox):
    teacher = Teacher("I see no mistake.", reply(DOUBLE))
    mine(teacher, sandbox)
    assert "no complete program" in teacher.requests[1].messages[-1]["content"]


def test_nothing_is_asked_twice_and_the_file_is_the_same(sandbox, tmp_path):
    problems = [problem(f"p{i}") for i in range(CHUNK + 2)]
    whole, path = tmp_path / "whole.jsonl", tmp_path / "half.jsonl"
    found = mine(Teacher(reply(DOUBLE)), sandbox, problems=problems, path=whole)
    mine(Teacher(reply(DOUBLE)), sandbox, problems=problems[:CHUNK], path=path)
    with path.open("a") as file:
        file.write('{"problem_id": "torn')
    later, shown = Teacher(reply(DOUBLE)), []
    again = mine(
        later, sandbox, problems=problems, path=path, progress=lambda done, total: shown.append((done, total))
    )
    assert [request.problem_id for request in later.requests] == ["p32", "p33"]
    assert again == found and path.read_bytes() == whole.read_bytes()
    assert read_trajectories(path) == found and shown == [(34, 34)]


def test_another_teachers_work_is_not_taken_over(sandbox, tmp_path):
    path = tmp_path / "trajectories.jsonl"
    mine(Teacher(None), sandbox, path=path)
    other = Teacher(reply(DOUBLE))
    other.revision = "somebody else"
    (trajectory,) = mine(other, sandbox, path=path)
    assert trajectory.kept and len(read_trajectories(path)) == 1


def test_work_on_another_task_is_not_taken_over(sandbox, tmp_path):
    path = tmp_path / "trajectories.jsonl"
    problems = [problem("a"), problem("b")]
    mine(Teacher(reply(DOUBLE)), sandbox, problems=problems, path=path)

    def asked(problems, teacher=None, **options):
        teacher = teacher or Teacher(reply(DOUBLE))
        mine(teacher, sandbox, problems=problems, path=path, **options)
        return [request.problem_id for request in teacher.requests]

    assert asked(problems) == []
    assert asked([problems[0], replace(problems[1], statement="Other words.")]) == ["b"]
    assert asked(problems, program=TRIPLE) == ["a", "b"]
    longer = Teacher(reply(DOUBLE))
    longer.sampling = Sampling(max_tokens=99)
    assert asked(problems, longer, program=TRIPLE) == ["a", "b"]
    for options in ({"extra_body": {"reasoning_effort": "low"}}, {"chat_template_kwargs": {"think": True}}):
        other = Teacher(reply(DOUBLE))
        other.sampling, other.sampler = longer.sampling, SimpleNamespace(**options)
        assert asked(problems, other, program=TRIPLE) == ["a", "b"]
        other.requests.clear()
        assert asked(problems, other, program=TRIPLE) == []
    assert asked(problems, program=TRIPLE, turns=2) == ["a", "b"]


def test_the_first_program_is_the_coders_first_failure_with_code(sandbox):
    attempts = [
        Attempt(program, passed, 3, "", 0)
        for program, passed in ((DOUBLE, 3), (None, 0), (TRIPLE, 1), (SQUARE, 2))
    ]
    (first,) = first_attempts([problem()], [attempts], Teacher(), sandbox, **LIMITS)
    assert first.program == TRIPLE and first.passed == 1 and first.failures
    (nothing,) = first_attempts([problem()], [attempts[:2]], Teacher(), sandbox, **LIMITS)
    assert nothing.program is None and nothing.reason == "no_code"
    with pytest.raises(DataError, match="nothing to repair"):
        first_attempts([problem()], [attempts[:1]], Teacher(), sandbox, **LIMITS)


def test_a_transcript_brings_its_own_program(sandbox, tmp_path):
    path = tmp_path / "transcripts.jsonl"
    records = [
        {"problem_id": "a", "failed_program": SQUARE, "repairs": [{"reply": reply(DOUBLE)}]},
        {"problem_id": "b", "failed_program": DOUBLE},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    teacher, problems = RecordedTeacher(path), [problem(name) for name in "abc"]
    firsts = first_attempts(problems, [[]] * 3, teacher, sandbox, **LIMITS)
    assert [first and first.program for first in firsts] == [SQUARE, DOUBLE, None]
    found = mine_trajectories(problems, firsts, teacher, sandbox, turns=3, **LIMITS)
    assert [t.outcome for t in found] == ["kept", "first attempt passed", "teacher silent"]
    assert found[2].why == "not recorded" and found[2].turns == () and found[2].failed_program is None
    rates = [BaseRate(name, 4, 0, {}, 0, 3, "wrong_output") for name in "abcd"]
    funnel = mining_funnel(rates, 3, found, 2).set_index("step")["problems"]
    assert list(funnel) == [4, 3, 3, 2, 1, 1, 0, 1] and funnel["repaired in turn 1"] == funnel["kept"] == 1


def test_the_funnel_begins_with_what_does_not_fit():
    rates = [BaseRate(name, 4, 0, {}, 0, 3, "wrong_output") for name in "abcd"]
    plain, cut = (mining_funnel(rates, 0, [], 1, looked_at).set_index("step") for looked_at in (None, 5))
    assert "fits the coder's context" not in plain.index
    assert list(cut["problems"])[:3] == [5, 4, 0] and list(cut.index)[1] == "fits the coder's context"
    assert cut["share"].iloc[1] == 0.8 and plain["share"].iloc[0] == 1


def test_half_a_character_in_a_reply_is_kept(sandbox, tmp_path):
    path = tmp_path / "trajectories.jsonl"
    said = reply(f"# \ud83d\n{DOUBLE}")
    (trajectory,) = mine(Teacher(said), sandbox, program="# \ud83d\npass", path=path)
    assert trajectory.kept and trajectory.turns[1].reply == said
    later = Teacher(said)
    assert mine(later, sandbox, program="# \ud83d\npass", path=path) == [trajectory]
    assert not later.requests and read_trajectories(path) == [trajectory]


def test_the_bill(sandbox):
    found = mine(Teacher(reply(TRIPLE), reply(DOUBLE)), sandbox)
    assert teacher_bill(found, 2.0, 10.0) == {
        "tokens sent": 20,
        "tokens written": 10,
        "cost": pytest.approx(140e-6),
    }


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "trajectories.jsonl"
    path.write_text('{"problem_id": "p"}\n')
    with pytest.raises(DataError, match="no trajectory"):
        read_trajectories(path)
