"""Tips are tried, reworded, tried again, and measured afresh."""

from collections import Counter
from dataclasses import asdict, replace

import pytest

from tipprobe.errors import DataError
from tipprobe.models.types import Completion, Sampling
from tipprobe.problems.schema import Problem, Test
from tipprobe.sandbox import Sandbox
from tipprobe.tips.base_rates import BaseRate
from tipprobe.tips.distil import Draft
from tipprobe.tips.environment import TOO_LONG, CodeEnvironment
from tipprobe.tips.mine import Trajectory, Turn
from tipprobe.tips.teachers import RecordedTeacher, TeacherReply
from tipprobe.tips.verify import (
    check_inputs,
    measure_fresh,
    read_verified_tips,
    record_json,
    tip_labels,
    tip_losses,
    verified_tips,
    verify_tips,
    write_verified_tips,
)

PROBLEM = Problem("p", "Double the number.", tests=(Test("1\n", "2\n"), Test("51\n", "102\n")))
REPAIRED = "qq_2 = int(input())\nprint(qq_2 * 2)"
TRAJECTORY = Trajectory(
    "p", (Turn("no", 0, 2, "wrong_output", ""), Turn(REPAIRED, 2, 2, "passed", "", (), "")), "kept"
)
HELPS, FAILS, LEAKS, NAMES = "Twice.", "Squared.", "Do print(2 * n).", "Keep qq_2 in mind."


class Coder:
    """Doubles when told "Twice", squares otherwise; sampled with a seed other than 0, half the time."""

    revision = "scripted"

    def __init__(self):
        self.prompts = []

    def sample(self, prompts, n, sampling, *, progress=None):
        self.prompts += [prompt[0]["content"] for prompt in prompts]
        rows = []
        for prompt in prompts:
            right = "Twice" in prompt[0]["content"]
            programs = ["* 2" if right and (sampling.temperature == 0 or i % 2) else "** 2" for i in range(n)]
            rows.append(
                [Completion(f"```python\nprint(int(input()) {what})\n```", 5, "stop") for what in programs]
            )
        return rows


class Teacher:
    revision = "scripted"

    def __init__(self, *said):
        self.said, self.requests, self.outcomes = said, [], Counter()

    def reply(self, requests, *, progress=None):
        self.requests += requests
        texts = [self.said[r.turn - 1] if r.turn <= len(self.said) else None for r in requests]
        return [TeacherReply(text, "ok" if text else "not recorded", 10, 5) for text in texts]


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(1) as pool:
        yield pool


def environment(sandbox, temperature=0.0, coder=None):
    sampling = Sampling(temperature=temperature)
    return CodeEnvironment(coder or Coder(), sandbox, sampling, time_limit_s=2, memory_mb=512)


def verify(sandbox, tip, *said, refinements=2, coder=None, solved=()):
    teacher = Teacher(*said)
    draft = Draft("p", "seen", tip, "" if tip else "tip", "" if tip else "empty", 1, 1, "masked talk")
    env = environment(sandbox, coder=coder)
    (record,) = verify_tips(
        {"p": PROBLEM}, [TRAJECTORY], [draft], teacher, env, solved=solved, refinements=refinements
    )
    return record, teacher


@pytest.mark.parametrize(
    ("tip", "said", "outcome", "wordings", "why"),
    [
        (HELPS, (), "verified", 1, ""),
        (FAILS, (HELPS,), "verified", 2, ""),
        (LEAKS, (FAILS, HELPS), "verified", 3, ""),
        (FAILS, (FAILS, FAILS, HELPS), "does not help", 3, ""),
        (FAILS, (LEAKS, NAMES), "leaks", 3, ""),
        (LEAKS, (), "leaks", 1, "not recorded"),
        (FAILS, (LEAKS,), "leaks", 2, "not recorded"),
        (None, (), "no tip", 0, "empty"),
    ],
)
def test_outcomes(sandbox, tip, said, outcome, wordings, why):
    record, _ = verify(sandbox, tip, *said)
    assert (record.outcome, len(record.wordings), record.why) == (outcome, wordings, why)
    assert (record.tip is not None) == (outcome == "verified")


def test_a_leaking_tip_never_reaches_the_coder(sandbox):
    coder = Coder()
    record, teacher = verify(sandbox, LEAKS, HELPS, coder=coder)
    assert len(coder.prompts) == 1 and "Twice" in coder.prompts[0] and LEAKS not in coder.prompts[0]
    assert record.wordings[0].passed is None and record.wordings[0].leaks[0].reason == "code"
    (request,) = teacher.requests
    assert (request.purpose, request.turn) == ("refine", 1)
    asked = request.messages[0]["content"]
    assert LEAKS in asked and "holds code (print(2 * n))" in asked and PROBLEM.statement in asked


def test_a_failing_tip_goes_back_with_what_happened(sandbox):
    record, teacher = verify(sandbox, FAILS, HELPS)
    assert (record.wordings[0].passed, record.wordings[0].n_tests) == (0, 2)
    asked = teacher.requests[0].messages[0]["content"]
    assert "** 2" in asked and "0 of 2" in asked and "102" in asked
    assert (record.tokens_in, record.tokens_out) == (11, 6)


def test_a_tip_that_does_not_fit_goes_back_too(sandbox, monkeypatch):
    long = "Twice. " * 100
    monkeypatch.setattr(
        "tipprobe.probes.generate.prompt_fits", lambda _, prompt: len(prompt[0]["content"]) < 600
    )
    record, teacher = verify(sandbox, long, HELPS)
    assert record.outcome == "verified"
    assert [(w.passed, w.reason) for w in record.wordings] == [(0, TOO_LONG), (2, "passed")]
    asked = teacher.requests[0].messages[0]["content"]
    assert "so long that it does not fit" in asked and "nothing was written" not in asked


def test_no_rewording_allowed(sandbox):
    record, teacher = verify(sandbox, FAILS, HELPS, refinements=0)
    assert record.outcome == "does not help" and not teacher.requests


def test_names_of_the_repaired_program_are_secret(sandbox):
    record, _ = verify(sandbox, NAMES)
    assert [leak.reason for leak in record.wordings[0].leaks] == ["identifier"]


def test_the_fresh_rate_is_not_the_selected_one(sandbox, tmp_path):
    verified, lost = verify(sandbox, HELPS)[0], replace(verify(sandbox, FAILS)[0], problem_id="q")
    records = measure_fresh({"p": PROBLEM}, [lost, verified], environment(sandbox, 1.0), 4)
    assert [(r.fresh_n, r.fresh_solved, r.fresh_base_solved) for r in records] == [(0, 0, 0), (4, 2, 0)]
    rate = BaseRate("p", 8, 1, {}, 1, 2, "wrong_output")
    (tip,) = verified_tips({"p": PROBLEM}, records, {"p": rate}, {"p": ("sizes", "double")})
    assert (tip.tip, tip.statement, tip.fresh_solved, tip.base_solved) == (HELPS, PROBLEM.statement, 2, 1)
    assert (tip.base_greedy_share, tip.family, tip.op) == (0.5, "sizes", "double")
    path = tmp_path / "verified_tips.jsonl"
    write_verified_tips(path, [tip])
    assert read_verified_tips(path) == [tip]
    record = record_json(records[1], rate)
    assert record["masked"] == "masked talk"
    assert record["tip"] == HELPS and record["base_n"] == 8 and record["wordings"][0]["text"] == HELPS


OF_SCRIPTED = {"model_revision": "scripted", "greedy": asdict(Sampling.greedy(160)), "memory_mb": 512}


@pytest.mark.parametrize(
    ("trajectories", "header", "max_tokens", "message"),
    [
        ([], OF_SCRIPTED, 160, "no trajectory was kept"),
        ([replace(TRAJECTORY, problem_id="q")], OF_SCRIPTED, 160, "'q': there is no such problem"),
        ([TRAJECTORY], OF_SCRIPTED | {"model_revision": "other"}, 160, "of coder other, but .* scripted"),
        ([TRAJECTORY], {}, 160, "of coder None, but .* scripted"),
        ([TRAJECTORY], OF_SCRIPTED, 320, "'max_tokens': 160.*'max_tokens': 320.*run 01_data_mining again"),
    ],
)
def test_inputs_that_do_not_belong_together(trajectories, header, max_tokens, message):
    rates = {"p": BaseRate("p", 8, 1, {}, 1, 2, "wrong_output")}

    def check(trajectories, header, max_tokens):
        sampling = Sampling(max_tokens=max_tokens)
        check_inputs(
            {"p": PROBLEM}, trajectories, rates, header, Coder(), sampling, time_limit_s=2, memory_mb=512
        )

    check([TRAJECTORY], OF_SCRIPTED, 160)
    with pytest.raises(DataError, match=message):
        check(trajectories, header, max_tokens)


def test_labels(tmp_path):
    problems = {"p": PROBLEM, "q": replace(PROBLEM, id="q", meta={"tip_about": "double"})}
    assert tip_labels(problems, Teacher()) == {"p": (None, None), "q": (None, "double")}
    path = tmp_path / "transcripts.jsonl"
    path.write_text('{"problem_id": "p", "failed_program": "x", "family": "sizes", "op": "twice"}\n')
    assert tip_labels(problems, RecordedTeacher(path)) == {"p": ("sizes", "twice"), "q": (None, "double")}


def test_no_verified_tip_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no tip was verified"):
        write_verified_tips(tmp_path / "verified_tips.jsonl", [])


def test_losses_add_up(sandbox):
    records = [verify(sandbox, *case)[0] for case in ((HELPS,), (FAILS,), (LEAKS,), (None,), (FAILS, HELPS))]
    records.append(verify(sandbox, HELPS, solved={"p"})[0])
    table = tip_losses(6, records).set_index("step")
    assert list(table["lost"]) == [0, 0, 1, 1, 1, 1] and list(table["left"]) == [6, 6, 5, 4, 3, 2]


@pytest.mark.parametrize("tip", [HELPS, FAILS, LEAKS])
def test_what_the_coder_solves_without_a_tip_verifies_none(sandbox, tip):
    coder = Coder()
    record, teacher = verify(sandbox, tip, HELPS, coder=coder, solved={"p"})
    assert (record.outcome, record.tip, len(record.wordings)) == ("not needed", None, 1)
    assert not coder.prompts and not teacher.requests
    assert bool(record.wordings[0].leaks) == (tip == LEAKS)
    assert verify(sandbox, None, solved={"p"})[0].outcome == "no tip"


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "verified_tips.jsonl"
    path.write_text('{"tip": "t"}\n')
    with pytest.raises(DataError, match="no verified tip"):
        read_verified_tips(path)
