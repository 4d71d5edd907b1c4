"""Teachers that were recorded, that run here, and that stand behind a real server."""

import json

import pytest

from tipprobe.errors import DataError, EndpointError, ParameterError
from tipprobe.evaluation.grade import Failure
from tipprobe.models.open import open_sampler
from tipprobe.models.types import Completion, PromptTooLong, Sampling
from tipprobe.problems.minicode.world import split
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt, tip_request_prompt, user_prompt
from tipprobe.tips.environment import Attempt
from tipprobe.tips.teachers import (
    FEEDBACK_CHARS,
    RecordedTeacher,
    SamplerTeacher,
    TeacherReply,
    TeacherRequest,
    feedback,
    open_teacher,
    outcome_table,
    repair_again_prompt,
    repair_prompt,
)

RECORD = {
    "problem_id": "p1",
    "op": "sum",
    "family": "signs",
    "failed_program": "print(1)",
    "repairs": [{"reply": "first"}, {"reply": "second"}],
    "observation": "The tests count zero.",
    "tip": "Count zero.",
    "contrast_tip": "One counts zero.",
    "refinements": ["Zero counts.", " "],
    "outcome": "repaired in 2",
    "note": "made for a test",
}
SHORT = {"problem_id": "p2", "failed_program": "print(2)"}
PROBLEMS = split("adaptation", 3)
GREEDY = Sampling(temperature=0, max_tokens=160)


def write(path, *records):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def ask(teacher, *wanted):
    """Ask for (purpose, problem id, turn) each."""
    return teacher.reply([TeacherRequest(p, i, user_prompt("?"), turn) for p, i, turn in wanted])


def test_a_transcript_is_read_turn_by_turn(tmp_path):
    teacher = RecordedTeacher(write(tmp_path / "a.jsonl", RECORD), write(tmp_path / "b.jsonl", SHORT))
    assert teacher.problem_ids == ("p1", "p2")
    assert teacher.failed_program("p1") == "print(1)" and teacher.failed_program("p3") is None
    wanted = [
        (("repair", "p1", 1), "first"),
        (("repair", "p1", 2), "second"),
        (("repair", "p1", 3), None),
        (("repair", "p1", 0), None),
        (("observe", "p1", 1), "The tests count zero."),
        (("tip", "p1", 1), "Count zero."),
        (("contrast", "p1", 1), "One counts zero."),
        (("refine", "p1", 1), "Zero counts."),
        (("refine", "p1", 3), None),
        (("tip", "p2", 1), None),
        (("tip", "p3", 1), None),
    ]
    replies = ask(teacher, *(request for request, _ in wanted))
    assert replies == [TeacherReply(text, "not recorded" if text is None else "ok") for _, text in wanted]
    assert ask(teacher, ("refine", "p1", 2)) == [TeacherReply(None, "empty")]
    assert outcome_table(teacher) == [
        {"purpose": "repair", "ok": 2, "cut": 0, "empty": 0, "too long": 0, "not recorded": 2},
        {"purpose": "observe", "ok": 1, "cut": 0, "empty": 0, "too long": 0, "not recorded": 0},
        {"purpose": "tip", "ok": 1, "cut": 0, "empty": 0, "too long": 0, "not recorded": 2},
        {"purpose": "contrast", "ok": 1, "cut": 0, "empty": 0, "too long": 0, "not recorded": 0},
        {"purpose": "refine", "ok": 1, "cut": 0, "empty": 1, "too long": 0, "not recorded": 1},
    ]


def test_the_revision_follows_the_words(tmp_path):
    first = RecordedTeacher(write(tmp_path / "a.jsonl", RECORD)).revision
    assert first == RecordedTeacher(write(tmp_path / "b.jsonl", RECORD)).revision
    assert first != RecordedTeacher(write(tmp_path / "c.jsonl", RECORD | {"tip": "Else."})).revision


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"problem_id": "\\ud83d"}', "half of a surrogate pair"),
        ('{"problem_id": ' + "9" * 5000 + "}", "JSON that Python does not read"),
        ({"problem_id": "x"}, "failed_program"),
        (SHORT | {"problem_id": ""}, "problem_id"),
        (SHORT | {"tips": "typo"}, "tips"),
        (SHORT | {"tip": 3}, "tip"),
        (SHORT | {"repairs": ["text"]}, r"repairs\.0"),
        (SHORT | {"repairs": [{"reply": None}]}, r"repairs\.0\.reply"),
        (SHORT | {"refinements": "one"}, "refinements"),
        (RECORD, "p1.*already.*line 1"),
    ],
)
def test_malformed_lines_are_named(tmp_path, line, message):
    path = write(tmp_path / "said.jsonl", RECORD, "", line)
    with pytest.raises(DataError, match=rf"said\.jsonl, line 3: .*{message}"):
        RecordedTeacher(path)


def test_opening(tmp_path):
    packaged = open_teacher("recorded")
    assert packaged.problem_ids and packaged.revision.startswith("recorded:")
    assert all(packaged.failed_program(problem_id) for problem_id in packaged.problem_ids)
    path = write(tmp_path / "said.jsonl", RECORD)
    assert open_teacher(f"recorded:{path}").problem_ids == ("p1",)
    with pytest.raises(DataError, match="no such file"):
        open_teacher(f"recorded:{tmp_path / 'other.jsonl'}")
    with pytest.raises(DataError, match="no transcript"):
        open_teacher(f"recorded:{write(tmp_path / 'empty.jsonl')}")
    for spec in ("recorded:", "", "openai:m"):
        with pytest.raises(ParameterError):
            open_teacher(spec)


class Scripted:
    revision = "scripted"

    def __init__(self, *replies):
        self.replies = replies

    def sample(self, prompts, n, sampling, *, progress=None):
        assert (len(prompts), n) == (len(self.replies), 1)
        return [[reply] for reply in self.replies]


def test_what_is_no_reply():
    teacher = SamplerTeacher(
        Scripted(
            Completion("Tip: zero counts.", 4, "stop"),
            Completion("Tip: zero cou", 4, "length"),
            Completion("**Tip:** ", 2, "stop"),
            Completion("Tip: kept as it is", 5, "stop"),
            Completion(" \n", 1, "stop"),
        )
    )
    replies = ask(teacher, *((p, "p", 1) for p in ("tip", "refine", "contrast", "repair", "observe")))
    assert [(r.text, r.why, r.tokens_out) for r in replies] == [
        ("zero counts.", "ok", 4),
        (None, "cut", 4),
        (None, "empty", 2),
        ("Tip: kept as it is", "ok", 5),
        (None, "empty", 1),
    ]
    assert teacher.outcomes["contrast", "empty"] == teacher.outcomes["refine", "cut"] == 1


def test_what_a_teacher_thought_is_not_what_it_said():
    thought = "<think>\nZero?\n</think>\n\n"
    teacher = SamplerTeacher(
        Scripted(
            Completion(f"{thought}Tip: zero counts.", 9, "stop"),
            Completion(f"{thought}The tests count zero.", 9, "stop"),
            Completion(f"{thought}Try this:\n```python\nprint(0)\n```", 9, "stop"),
            Completion("<think>\nZero? It counts", 9, "stop"),
            Completion(thought, 9, "stop"),
        )
    )
    replies = ask(teacher, *((p, "p", 1) for p in ("tip", "observe", "repair", "observe", "observe")))
    assert [(r.text and r.text.strip(), r.why) for r in replies] == [
        ("zero counts.", "ok"),
        ("The tests count zero.", "ok"),
        ("Try this:\n```python\nprint(0)\n```", "ok"),
        (None, "cut"),
        (None, "empty"),
    ]


def test_a_server_that_finds_a_conversation_too_long_answers_the_others():
    class Server(Scripted):
        def sample(self, prompts, n, sampling, *, progress=None):
            raise PromptTooLong("one is too long", [[Completion("Zero counts.", 3, "stop")], None])

    replies = ask(SamplerTeacher(Server()), ("tip", "p", 1), ("tip", "q", 1))
    assert [(reply.text, reply.why) for reply in replies] == [("Zero counts.", "ok"), (None, "too long")]


def requests_for_tips():
    return [TeacherRequest("tip", problem.id, tip_request_prompt(problem)) for problem in PROBLEMS]


def test_a_teacher_behind_a_server_says_what_it_says_here(proxy):
    there = open_teacher(f"openai:{proxy.name}@{proxy.base_url}", sampling=GREEDY)
    here = SamplerTeacher(open_sampler("minicode-1m", device="cpu"), GREEDY)
    heard = []
    replies = there.reply(requests_for_tips(), progress=lambda *args: heard.append(args))
    assert [(r.text, r.why, r.tokens_out) for r in replies] == [
        (r.text, r.why, r.tokens_out) for r in here.reply(requests_for_tips())
    ]
    assert all(r.why == "ok" and r.tokens_in > 0 for r in replies) and heard[-1] == (3, 3)
    failed = Attempt("print(1)", 0, 2, "wrong_output", 3, (Failure("1\n", "2\n", "1\n"),))
    prompt = repair_prompt(PROBLEMS[0], failed)
    (reply,) = there.reply([TeacherRequest("repair", PROBLEMS[0].id, prompt)])
    again = repair_again_prompt(prompt, reply.text or "", failed)
    assert there.reply([TeacherRequest("repair", PROBLEMS[0].id, again, 2)])[0].tokens_in > reply.tokens_in
    assert [m["role"] for m in proxy.seen[-1]["body"]["messages"]] == ["user", "assistant", "user"]


def test_faults_on_the_way_are_counted_apart(proxy, tmp_path):
    proxy.faults += [
        {"status": 429, "headers": {"Retry-After": "0.05"}},
        {"cut": True},
        {"content": "Tip:"},
        {"choice": {"finish_reason": "length"}},
    ]
    options = {"cache": tmp_path / "replies.sqlite", "concurrency": 1, "backoff_s": 0.01, "tries": 3}
    teacher = open_teacher(f"openai:{proxy.name}@{proxy.base_url}", sampling=GREEDY, **options)
    replies = teacher.reply(requests_for_tips())
    assert [r.why for r in replies] == ["empty", "cut", "ok"] and replies[0].text is replies[1].text is None
    assert outcome_table(teacher) == [
        {"purpose": "tip", "ok": 1, "cut": 1, "empty": 1, "too long": 0, "not recorded": 0}
    ]
    assert teacher.sampler.usage.retries == {"rate limit": 1, "connection": 1}
    proxy.always = {"status": 500}
    again = open_teacher(f"openai:{proxy.name}@{proxy.base_url}", sampling=GREEDY, **options)
    assert again.reply(requests_for_tips()[::-1]) == replies[::-1]  # from the cache, in whatever order
    with pytest.raises(EndpointError, match="server error × 3"):
        ask(again, ("observe", "p", 1))
    assert not any(purpose == "observe" for purpose, _ in again.outcomes)


def test_repair_prompts_show_what_failed():
    problem = Problem("p", "Add {two} numbers.", "call", entry_point="f", starter_code="def f(a, b):")
    failures = tuple(Failure(f"{i}, 1", f"{i + 1}", "") for i in range(5))
    attempt = Attempt("def f(a, b):\n    return {}", 4, 9, "wrong_output", 7, failures)
    (message,) = repair_prompt(problem, attempt)
    assert message["role"] == "user"
    for shown in (code_prompt(problem)[0]["content"], "return {}", "4 of 9", "0, 1", "2, 1", "(nothing)"):
        assert shown in message["content"]
    assert "3, 1" not in message["content"]
    chat = repair_again_prompt([message], "reply", Attempt(None, 0, 9, "no_code", 3))
    assert chat[:2] == [message, {"role": "assistant", "content": "reply"}]
    assert "no complete program" in chat[2]["content"] and "tests" not in chat[2]["content"].split("\n")[0]


def test_long_feedback_is_capped():
    long = "x" * (FEEDBACK_CHARS + 1234)
    said = feedback(Attempt("p", 0, 1, "wrong_output", 1, (Failure(long, "", "timeout"),)))
    assert "1,234 more characters" in said and "expected" not in said and len(said) < FEEDBACK_CHARS + 200


def test_a_conversation_beyond_the_context_stops_nobody():
    teacher = SamplerTeacher(open_sampler("minicode-1m", device="cpu"), GREEDY)
    chat = [*tip_request_prompt(PROBLEMS[0]), {"role": "assistant", "content": "x " * 2000}]
    long = TeacherRequest("tip", "long", [*chat, {"role": "user", "content": "again"}])
    replies = teacher.reply([requests_for_tips()[0], long, requests_for_tips()[1]])
    assert [reply.why for reply in replies] == ["ok", "too long", "ok"] and replies[1].text is None
    assert replies[2] == teacher.reply(requests_for_tips())[1]
    assert teacher.outcomes["tip", "too long"] == 1
    assert teacher.reply([long])[0].why == "too long"
