"""From trajectories to drafts of tips."""

from collections import Counter

import pytest

from tipprobe.errors import ParameterError
from tipprobe.problems.schema import Problem
from tipprobe.tips.distil import contrast_prompt, distil, masked_conversation, observe_prompt
from tipprobe.tips.mine import Trajectory, Turn
from tipprobe.tips.teachers import TeacherReply

PROBLEM = Problem("p", "Double the number {n}.")
TURNS = (
    Turn("SQUARES", 2, 3, "wrong_output", "input:\n51\nexpected:\n102\ngot:\n2601"),
    Turn(
        "CRASHES",
        0,
        3,
        "runtime_error",
        "input:\n51\ngot: ZeroDivisionError",
        (),
        "For 51 you print 2601; `x ** 2` is a square.\n```python\nCRASHES\n```",
    ),
    Turn("DOUBLES", 3, 3, "passed", "", (), "Twice, not squared.\n```python\nDOUBLES\n```"),
)
KEPT = Trajectory("p", TURNS, "kept")


class Teacher:
    revision = "scripted"

    def __init__(self, **said):
        self.said, self.requests, self.outcomes = said, [], Counter()

    def reply(self, requests, *, progress=None):
        self.requests += requests
        texts = [self.said.get(request.purpose) for request in requests]
        return [TeacherReply(text, "ok" if text else "cut", 10, 5) for text in texts]


def test_the_masked_conversation_shows_what_was_said_and_nothing_else():
    text = masked_conversation(PROBLEM, KEPT)
    assert text == (
        "Programmer: [CODE]\n\n"
        "Tests: 2 of 3 pass, the others see a wrong output. [TESTS]\n\n"
        "Mentor: For [VALUE] you print [VALUE]; [CODE] is a square.\n[CODE]\n\n"
        "Tests: 0 of 3 pass; the first failure is: runtime error. [TESTS]\n\n"
        "Mentor: Twice, not squared.\n[CODE]\n\n"
        "Tests: All tests pass."
    )
    prompt = observe_prompt(PROBLEM, KEPT)[0]["content"]
    assert PROBLEM.statement in prompt and text in prompt
    for secret in ("SQUARES", "CRASHES", "DOUBLES", "51", "102", "2601", "ZeroDivision"):
        assert secret not in prompt


def test_two_steps():
    teacher = Teacher(observe="Squares are not doubles.", tip="Twice the number, not its square.")
    (draft,) = distil({"p": PROBLEM}, [KEPT], teacher)
    assert (draft.observation, draft.tip) == ("Squares are not doubles.", "Twice the number, not its square.")
    assert (draft.lacking, draft.why, draft.tokens_in, draft.tokens_out) == ("", "", 20, 10)
    assert [request.purpose for request in teacher.requests] == ["observe", "tip"]
    asked = teacher.requests[1].messages[0]["content"]
    assert (
        draft.masked == masked_conversation(PROBLEM, KEPT)
        and draft.masked in teacher.requests[0].messages[0]["content"]
    )
    assert draft.observation in asked and PROBLEM.statement in asked and "DOUBLES" not in asked


@pytest.mark.parametrize(
    ("said", "lacking", "asked"),
    [({}, "observation", ["observe"]), ({"observe": "Something."}, "tip", ["observe", "tip"])],
)
def test_what_the_teacher_does_not_give(said, lacking, asked):
    teacher = Teacher(**said)
    (draft,) = distil({"p": PROBLEM}, [KEPT], teacher)
    assert (draft.tip, draft.lacking, draft.why) == (None, lacking, "cut")
    assert [request.purpose for request in teacher.requests] == asked


def test_direct_contrast_sees_both_programs():
    teacher = Teacher(contrast="Twice, not squared.")
    (draft,) = distil({"p": PROBLEM}, [KEPT], teacher, "contrast")
    assert (draft.observation, draft.tip, draft.lacking) == (None, "Twice, not squared.", "")
    assert draft.masked is None
    assert [request.purpose for request in teacher.requests] == ["contrast"]
    prompt = contrast_prompt(PROBLEM, KEPT)[0]["content"]
    assert prompt.index("SQUARES") < prompt.index("DOUBLES") and "CRASHES" not in prompt
    (silent,) = distil({"p": PROBLEM}, [KEPT], Teacher(), "contrast")
    assert (silent.lacking, silent.why) == ("tip", "cut")


def test_order_is_kept_where_some_have_no_observation():
    class Picky(Teacher):
        def reply(self, requests, *, progress=None):
            known = [r for r in requests if r.problem_id != "q"]
            replies = dict(zip([r.problem_id for r in known], super().reply(known), strict=True))
            return [replies.get(r.problem_id, TeacherReply(None, "empty")) for r in requests]

    trajectories = [Trajectory(name, TURNS, "kept") for name in "pqr"]
    problems = {name: Problem(name, name) for name in "pqr"}
    drafts = distil(problems, trajectories, Picky(observe="o", tip="t"))
    assert [(d.problem_id, d.tip, d.lacking) for d in drafts] == [
        ("p", "t", ""),
        ("q", None, "observation"),
        ("r", "t", ""),
    ]


def test_only_repairs_are_learnt_from():
    with pytest.raises(ParameterError, match="'p'"):
        distil({"p": PROBLEM}, [Trajectory("p", TURNS[:1], "not repaired")], Teacher())
