"""Scripted coders and teachers."""

from tipprobe.models.types import Sampling
from tipprobe.prompts import user_prompt
from tipprobe.sandbox import program_of
from tipprobe.tips.teachers import TeacherRequest, outcome_table
from tipprobe.tips.toys import ScriptedCoder, ScriptedTeacher, ScriptedWriter


def test_a_scripted_coder_writes_what_it_is_told_to():
    coder = ScriptedCoder(lambda request, heat: ["print(1)", f"print({request!r})"] if heat else ["print(0)"])
    drawn = coder.sample([user_prompt("a"), user_prompt("b")], 3, Sampling(temperature=1.0))
    assert [[program_of(reply).code for reply in group] for group in drawn] == [
        ["print(1)", "print('a')", "print(1)"],
        ["print(1)", "print('b')", "print(1)"],
    ]
    (greedy,) = coder.sample([user_prompt("a")], 2, Sampling.greedy(9))
    assert [program_of(reply).code for reply in greedy] == ["print(0)"] * 2


def test_a_scripted_teacher_falls_silent_after_its_last_reply():
    teacher = ScriptedTeacher("first", "second")
    asked = [TeacherRequest("repair", "p", user_prompt("?"), turn) for turn in (1, 2, 3)]
    replies = teacher.reply(asked)
    assert [(reply.text, reply.why) for reply in replies] == [
        ("first", "ok"),
        ("second", "ok"),
        (None, "not recorded"),
    ]
    assert outcome_table(teacher)[0]["ok"] == 2


def test_a_scripted_writer_proposes_one_instruction_a_call_and_then_none():
    writer = ScriptedWriter("first", "second")
    assert [writer.write([], [], 4, 0) for _ in range(3)] == [["first"], ["second"], []]
