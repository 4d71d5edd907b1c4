"""What methods add to a base program."""

import json

from tipprobe.models.types import Completion, Sampling
from tipprobe.problems.schema import Problem
from tipprobe.tips.methods import by_critique, by_instruction, by_proposer, write_tips

PROBLEMS = [Problem("a", "Statement a."), Problem("b", "Statement b.")]


class Model:
    """Writes a tip about problem a and nothing about any other."""

    revision = "scripted"

    def sample(self, prompts, n, sampling, *, progress=None):
        texts = ["Mind zero." if "Statement a." in prompt[0]["content"] else "" for prompt in prompts]
        return [[Completion(text, len(text), "stop")] for text in texts]


def count(prompt):
    return len(prompt[0]["content"])


def plain(prompt):
    return not prompt[0]["content"].startswith("Tip:")


def test_a_proposer_adds_its_tip_or_nothing(tmp_path):
    added = by_proposer(Model(), PROBLEMS, Sampling(), count)
    assert added.tips["a"][0].tip == "Mind zero." and added.tips["b"][0].reason == "empty"
    assert not plain(added.prompts["a"][0]) and plain(added.prompts["b"][0])
    assert added.prompt_tokens(count)["a"][0] > added.prompt_tokens(count)["b"][0]
    assert added.asked["a"] == added.asked["b"]
    write_tips(tmp_path / "tips.jsonl", {"self_hint": added})
    records = [json.loads(line) for line in (tmp_path / "tips.jsonl").read_text().splitlines()]
    assert [(r["method"], r["problem_id"], r["reason"]) for r in records] == [
        ("self_hint", "a", "ok"),
        ("self_hint", "b", "empty"),
    ]


def test_an_instruction_is_the_same_everywhere_and_costs_nothing_to_ask_for():
    added = by_instruction("Mind zero.", PROBLEMS)
    assert {added.tips[key][0].tip for key in "ab"} == {"Mind zero."}
    assert added.asked == {"a": [0], "b": [0]}
    none = by_instruction(None, PROBLEMS)
    assert none.tips["a"][0].tip is None and plain(none.prompts["a"][0])


def test_a_critic_remarks_on_every_runs_program():
    programs = {"a": ["print(1)", None], "b": ["print(2)", "print(3)"]}
    added = by_critique(Model(), PROBLEMS, programs, Sampling(), count)
    assert [proposal.reason for proposal in added.tips["a"]] == ["ok", "no_code"]
    assert [plain(prompt) for prompt in added.prompts["a"]] == [False, True]
    assert [plain(prompt) for prompt in added.prompts["b"]] == [True, True], "nothing was said about b"
    assert added.asked["a"][1] == 0 and added.asked["b"][0] > 0
    full = by_critique(Model(), PROBLEMS, programs, Sampling(), count, style="mentor")
    assert "print(1)" in full.prompts["a"][0][0]["content"]
