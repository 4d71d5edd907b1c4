"""Small problem sets and scripted models for the evaluation's tests."""

import pytest

from tipprobe.models.types import Completion
from tipprobe.probes.types import Probe, ProbeSet, problem_fingerprint, write_probe_sets
from tipprobe.problems.schema import Problem, Test, write_jsonl
from tipprobe.sandbox import Sandbox

RIGHT = "```python\nprint(int(input()) + 1)\n```"
WRONG = "```python\nprint(int(input()) - 1)\n```"
CRASH = "```python\nraise SystemExit(3)\n```"
NO_CODE = "I do not know."


def make_problem(number):
    tests = tuple(Test(f"{i + number}\n", f"{i + number + 1}\n") for i in range(4))
    return Problem(f"p{number:02}", f"Read n, print n + 1. ({number})", examples=tests[:1], tests=tests)


@pytest.fixture(scope="session")
def sandbox():
    """One sandbox for all tests."""
    with Sandbox(1) as sandbox:
        yield sandbox


@pytest.fixture
def problem_files(tmp_path):
    """Paths of ten problems and of their probes."""
    problems = [make_problem(number) for number in range(10)]
    write_jsonl(tmp_path / "problems.jsonl", [problem.to_json() for problem in problems])
    sets = [
        ProbeSet(p.id, (Probe("5\n", "model"), Probe("7\n", "model")), {}, problem_fingerprint(p))
        for p in problems
    ]
    write_probe_sets(tmp_path / "probes.jsonl", sets, {})
    return str(tmp_path / "problems.jsonl"), str(tmp_path / "probes.jsonl")


class Scripted:
    """Answers by the seed and the prompt, so that every chunk gets replies of its own."""

    revision = "scripted"

    def __init__(self):
        self.calls = []

    def sample(self, prompts, n, sampling, *, progress=None):
        self.calls.append((len(prompts), sampling.seed))
        replies = (RIGHT, WRONG, CRASH, NO_CODE)
        return [
            [
                Completion(replies[(len(prompt[0]["content"]) + sampling.seed + i) % 4], 5 + i, "stop")
                for i in range(n)
            ]
            for prompt in prompts
        ]


@pytest.fixture
def scripted(monkeypatch):
    """Replace the model of `tipprobe.evaluation.evaluate` by `Scripted`; returns it."""
    from tipprobe.evaluation import evaluate as module

    sampler = Scripted()
    monkeypatch.setattr(module, "_sampler", lambda job, revision: sampler)
    monkeypatch.setattr(module, "model_revision", lambda name: f"revision of {name}")
    return sampler
