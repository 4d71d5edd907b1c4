"""Reinforcing a proposer: rewards in the records, faults, determinism, and runs that were interrupted."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tipprobe.errors import DataError, ParameterError, SandboxError
from tipprobe.models.types import Completion, Sampling
from tipprobe.problems.schema import Problem, Test, read_jsonl, write_jsonl
from tipprobe.tips.base_rates import BaseRate, write_base_rates
from tipprobe.tips.environment import CodeEnvironment
from tipprobe.tips.utility import rescore
from tipprobe.training import proposer as proposer_module
from tipprobe.training.proposer import ProposerConfig, ProposerTrainer, tip_metrics, train_proposer

TESTS = tuple(Test(f"{i}\n", f"{i}\n") for i in range(4))
TASKS = [Problem(f"t{i}", f"Task {i}: echo.", tests=TESTS) for i in range(4)]


class Coder:
    """Writes a program that names the tip it was given, a dull one without."""

    revision = "scripted"

    def __init__(self):
        self.asked = []

    def sample(self, prompts, n, sampling, *, progress=None):
        self.asked += [prompt[0]["content"] for prompt in prompts]
        tips = [re.match(r"Tip: (.*?)\n\n", text + "\n\n", re.DOTALL) for text in self.asked[-len(prompts) :]]
        return [[Completion(f"```python\n# {m and m[1]!r}\n```", 5, "stop")] for m in tips]


class Counting:
    """Runs nothing: the first k tests pass, k from the program's length."""

    broken = False

    def run(self, jobs):
        from tipprobe.sandbox import Run

        if self.broken:
            raise SandboxError("the machinery is broken")
        return [
            [
                Run("ok", stdout=text.encode() if i < len(job.source) % 5 else b"wrong")
                for i, text in enumerate(job.inputs)
            ]
            for job in jobs
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture(autouse=True)
def scripted(monkeypatch):
    torch.set_num_threads(1)
    sandbox, coder = Counting(), Coder()
    monkeypatch.setattr(proposer_module, "Sandbox", lambda workers: sandbox)
    monkeypatch.setattr(proposer_module, "open_sampler", lambda spec, **_: coder)
    return coder, sandbox


@pytest.fixture
def fields(tmp_path, toy, toy_coder_folder):
    write_jsonl(tmp_path / "tasks.jsonl", (task.to_json() for task in TASKS))
    rates = [BaseRate(t.id, 4, 1, {"wrong_output": 3, "passed": 1}, 1, 4, "wrong_output") for t in TASKS]
    write_base_rates(tmp_path / "base_rates.jsonl", rates, {})
    shared = {k: v for k, v in toy.items() if k in ProposerConfig.__dataclass_fields__}
    return shared | {
        "problems": str(tmp_path / "tasks.jsonl"),
        "base_rates": str(tmp_path / "base_rates.jsonl"),
        "environment": str(toy_coder_folder),
        "program_tokens": 20,
        "tip_style": "short",
        "length_threshold": 4,
        "length_penalty": 0.01,
        "cache": str(tmp_path / "environment.jsonl"),
        "top_k": 0,
        "max_tokens": 12,
        "steps": 3,
    }


def comparable(folder):
    metrics = [
        {k: v for k, v in m.items() if not k.endswith("_s")} for m in read_jsonl(folder / "metrics.jsonl")
    ]
    weights = load_file(folder / "checkpoint" / "model.safetensors")
    return list(read_jsonl(folder / "rollouts.jsonl")), metrics, {k: v.tolist() for k, v in weights.items()}


def test_a_run_is_complete_and_its_records_add_up(fields):
    calls = []
    folder = train_proposer(ProposerConfig(**fields), lambda *args: calls.append(args[:2]))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    records, metrics, weights = comparable(folder)
    assert len(records) == 3 * 2 * 4 and len(metrics) == 3
    before = load_file(Path(fields["model"]) / "model.safetensors")
    assert any(before[k].tolist() != v for k, v in weights.items())
    for record in records:
        if record["tip"] is None:
            assert record["reason"] in ("empty", "cut") and record["p_curr"] == 0
            assert record["program_reason"] is None
        else:
            assert record["reason"] == "ok" and record["program_reason"] in ("passed", "wrong_output")
        assert record["p_base"] == 0.25
        gain = 1.0 if record["p_curr"] == 1 else record["p_curr"] - 0.25
        assert record["delta"] == pytest.approx(gain)
        penalty = 0.01 * max(0, record["n_tokens"] - 4)
        assert record["length_penalty"] == pytest.approx(penalty)
        if record["tip"] is not None:
            assert record["reward"] == pytest.approx(gain - penalty)
    for start in range(0, len(records), 4):
        own = [r["delta"] - r["length_penalty"] for r in records[start : start + 4]]
        silent = {r["reward"] for r in records[start : start + 4] if r["tip"] is None}
        assert silent <= {min(own)}
        rewards = np.array([r["reward"] for r in records[start : start + 4]])
        expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
        found = [r["advantage"] for r in records[start : start + 4]]
        assert found == pytest.approx(expected if rewards.min() < rewards.max() else 0 * rewards)
    assert rescore(records, threshold=4, penalty=0.01) == records
    assert metrics[0]["reward"] == pytest.approx(np.mean([r["reward"] for r in records[:8]]))
    assert {"entropy", "kl", "zero_advantage_groups", "distinct_tips", "known"} <= set(metrics[0])


def test_the_environment_is_asked_once_for_each_tip(fields, scripted):
    folder = train_proposer(ProposerConfig(**fields))
    records = list(read_jsonl(folder / "rollouts.jsonl"))
    tried = {(r["problem_id"], r["tip"]) for r in records if r["tip"] is not None}
    assert len(scripted[0].asked) == len(tried)
    assert sum(not r["known"] for r in records) == len({(r["problem_id"], r["tip"]) for r in records})
    # A second run over the same tips asks for nothing.
    again = train_proposer(ProposerConfig(**(fields | {"out": fields["out"] + "-again"})))
    assert len(scripted[0].asked) == len(tried)
    assert comparable(again) == comparable(folder)


def test_a_fault_of_the_machinery_is_no_reward(fields, scripted):
    scripted[1].broken = True
    with pytest.raises(SandboxError, match="broken"):
        train_proposer(ProposerConfig(**fields))
    folder = Path(fields["out"]) / "proposer"
    assert not (folder / "done.json").exists() and not (folder / "rollouts.jsonl").exists()
    scripted[1].broken = False
    assert (train_proposer(ProposerConfig(**fields)) / "done.json").exists()


@pytest.mark.parametrize("die_in", ["rollout", "update"])
def test_an_interrupted_run_ends_like_an_uninterrupted_one(fields, tmp_path, monkeypatch, die_in):
    """Six steps of two prompts out of four: the interruption lies in the second epoch."""
    fields = fields | {"steps": 6, "save_every": 2}
    other = {"out": str(tmp_path / "whole"), "cache": str(tmp_path / "other.jsonl")}
    whole = train_proposer(ProposerConfig(**(fields | other)))
    name = "_make_windows" if die_in == "rollout" else "_finish_step"
    original = getattr(ProposerTrainer, name)
    calls = []

    def dying(self, *args):
        calls.append(self.state.global_step)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(ProposerTrainer, name, dying)
        with pytest.raises(KeyboardInterrupt):
            train_proposer(ProposerConfig(**fields))
    folder = Path(fields["out"]) / "proposer"
    with (folder / "rollouts.jsonl").open("a") as file:
        file.write('{"step": 4, "problem')  # the line that was being written
    steps = []
    assert train_proposer(ProposerConfig(**fields), lambda step, *_: steps.append(step)) == folder
    assert steps == [3, 4, 5, 6]
    assert comparable(folder) == comparable(whole)
    train_proposer(ProposerConfig(**fields), lambda step, *_: steps.append(step))
    assert steps == [3, 4, 5, 6]


def test_long_prompts_are_left_out_and_named(fields, tmp_path):
    tasks = [*TASKS, Problem("long", "x" * 600, tests=TESTS)]
    write_jsonl(tmp_path / "tasks.jsonl", (task.to_json() for task in tasks))
    with pytest.raises(DataError, match="no base rate of problem 'long'"):
        train_proposer(ProposerConfig(**fields))
    rates = [BaseRate(t.id, 1, 0, {"wrong_output": 1}, 1, 4, "wrong_output") for t in tasks]
    write_base_rates(tmp_path / "base_rates.jsonl", rates, {})
    folder = train_proposer(ProposerConfig(**(fields | {"steps": 1})))
    assert list(json.loads((folder / "dropped.json").read_text())) == ["long"]


def test_base_rates_of_another_coder_are_refused(fields, tmp_path):
    rates = [BaseRate(t.id, 1, 0, {"wrong_output": 1}, 1, 4, "wrong_output") for t in TASKS]
    write_base_rates(tmp_path / "base_rates.jsonl", rates, {"model_revision": "another"})
    with pytest.raises(DataError, match="measured with model_revision another, but here it is scripted"):
        train_proposer(ProposerConfig(**fields))


def test_too_few_problems_and_a_random_environment_are_refused(fields, toy_coder, scripted):
    with pytest.raises(DataError, match="4 usable problems, but prompts_per_step is 6"):
        train_proposer(ProposerConfig(**(fields | {"prompts_per_step": 6})))
    environment = CodeEnvironment(*scripted, Sampling(temperature=1), time_limit_s=1, memory_mb=256)
    with pytest.raises(ParameterError, match="deterministic"):
        ProposerTrainer(ProposerConfig(**fields), *toy_coder, TASKS, {}, environment)


def test_another_environment_is_another_run(fields, toy_coder_folder, tiny_model_folder):
    one = ProposerConfig(**fields).identity()
    assert ProposerConfig(**(fields | {"environment": str(tiny_model_folder)})).identity() != one
    assert ProposerConfig(**(fields | {"length_penalty": 0.02})).identity() != one
    assert (
        ProposerConfig(**(fields | {"cache": "elsewhere", "save_every": 7, "workers": 1})).identity() == one
    )
    assert set(one["prompts"]) == {"tip_request", "tip", "code_call", "code_stdin"}
    assert "tip_request_mentor" in ProposerConfig(**(fields | {"tip_style": "mentor"})).identity()["prompts"]
    server = ProposerConfig(**(fields | {"environment": "openai:coder@http://127.0.0.1:9/v1"})).identity()
    assert server["environment_revision"] == "openai:coder@http://127.0.0.1:9/v1"


def test_metrics_of_a_step_by_hand():
    def row(problem, tip, p_curr, advantage, known=False):
        fixed = {"p_base": 0.5, "length_penalty": 0.0, "n_tokens": 3, "known": known, "jumped": p_curr == 1}
        delta = 1.0 if p_curr == 1 else p_curr - 0.5
        values = {"p_curr": p_curr, "delta": delta, "reward": delta, "advantage": advantage}
        reason = None if tip is None else "too_long" if tip == "y" else "passed"
        return {"problem_id": problem, "tip": tip, "program_reason": reason} | fixed | values

    rows = [row("a", "x", 1.0, 0.7), row("a", "y", 0.25, -0.7), row("b", "x", 0.5, 0.0, True)]
    rows.append(row("b", None, 0.0, 0.0))
    found = tip_metrics(rows)
    assert found["reward"] == pytest.approx((1 - 0.25 + 0 - 0.5) / 4)
    wanted = {"jumped": 0.25, "better": 0.25, "worse": 0.25, "no_tip": 0.25, "too_long": 0.25, "known": 0.25}
    assert {name: found[name] for name in wanted} == wanted
    assert (found["zero_advantage_groups"], found["distinct_tips"]) == (0.5, 2.0)


def test_a_coder_that_is_open_already_is_used(fields, scripted):
    mine = Coder()
    train_proposer(ProposerConfig(**fields), coder=mine)
    assert mine.asked and not scripted[0].asked
