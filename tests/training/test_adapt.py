import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tipprobe.errors import DataError, ParameterError, StageError
from tipprobe.problems.schema import read_jsonl
from tipprobe.training import runs as runs_module
from tipprobe.training import trainer as trainer_module
from tipprobe.training.adapt import adapt, adapt_all
from tipprobe.training.config import AdaptConfig, plan_runs


def comparable(folder: Path) -> tuple:
    """What must be equal between two runs: records, metrics without times, weights."""
    metrics = [
        {k: v for k, v in m.items() if not k.endswith("_s")} for m in read_jsonl(folder / "metrics.jsonl")
    ]
    weights = load_file(folder / "checkpoint" / "model.safetensors")
    return list(read_jsonl(folder / "rollouts.jsonl")), metrics, {k: v.tolist() for k, v in weights.items()}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("method", ["grpo_pub", "grpo_pcr", "nsr_pcr", "erpo", "grpo_random", "grpo_oracle"])
def test_each_method_trains(toy, method):
    calls = []
    folder = adapt(AdaptConfig(**toy, method=method), progress=lambda *args: calls.append(args))
    assert folder == Path(toy["out"]) / f"{method}-seed0"
    assert [(name, step, steps) for name, step, steps, _ in calls] == [
        (folder.name, 1, 2),
        (folder.name, 2, 2),
    ]
    assert not (folder / "state").exists()
    assert json.loads((folder / "dropped.json").read_text()) == {}
    base = load_file(Path(toy["model"]) / "model.safetensors")
    tuned = load_file(folder / "checkpoint" / "model.safetensors")
    assert base.keys() == tuned.keys() and any(not torch.equal(base[k], tuned[k]) for k in base)
    assert (folder / "checkpoint" / "tokenizer.json").exists()
    records = list(read_jsonl(folder / "rollouts.jsonl"))
    assert len(records) == 2 * 2 * 4
    assert {r["prompt"] for r in records} <= {p["prompt"] for p in read_jsonl(folder / "prompts.jsonl")}


def test_a_repeated_run_is_identical_and_a_finished_one_is_skipped(toy, tmp_path):
    first = adapt(AdaptConfig(**toy, method="erpo"))
    second = adapt(AdaptConfig(**(toy | {"out": str(tmp_path / "again")}), method="erpo"))
    assert comparable(first) == comparable(second)
    stamp = (first / "done.json").stat().st_mtime_ns
    assert adapt(AdaptConfig(**toy, method="erpo")) == first
    assert (first / "done.json").stat().st_mtime_ns == stamp
    other = adapt(AdaptConfig(**(toy | {"learning_rate": 2e-3}), method="erpo"))
    assert other == first and (first / "done.json").stat().st_mtime_ns != stamp
    assert len(list(read_jsonl(first / "metrics.jsonl"))) == 2  # the old run's records are gone


def test_half_precision_passes_keep_full_precision_weights(toy):
    folder = adapt(AdaptConfig(**toy, method="erpo", precision="bfloat16"))
    weights = load_file(folder / "checkpoint" / "model.safetensors")
    assert {w.dtype for w in weights.values()} == {torch.float32}
    base = load_file(Path(toy["model"]) / "model.safetensors")
    assert any(not torch.equal(base[k], weights[k]) for k in base)


def test_seeds_differ(toy):
    one, two = (adapt(config) for config in plan_runs(["base", "grpo_pcr"], [0, 1], **_without_seed(toy)))
    assert comparable(one)[0] != comparable(two)[0]


@pytest.mark.parametrize("die_in", ["rollout", "update"])
def test_an_interrupted_run_ends_like_an_uninterrupted_one(toy, tmp_path, monkeypatch, die_in):
    """Six steps of two prompts out of four: the interruption lies in the second epoch."""
    toy = toy | {"steps": 6, "save_every": 2, "entropy_ceiling_mode": "relative", "entropy_ceiling": 0.9}
    whole = adapt(AdaptConfig(**(toy | {"out": str(tmp_path / "whole")}), method="erpo"))
    config = AdaptConfig(**toy, method="erpo")
    name = "_make_windows" if die_in == "rollout" else "_finish_step"
    original = getattr(trainer_module.ProbePolicyTrainer, name)
    calls = []

    def dying(self, *args):
        calls.append(self.state.global_step)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module.ProbePolicyTrainer, name, dying)
        with pytest.raises(KeyboardInterrupt):
            adapt(config)
    with (config.folder / "rollouts.jsonl").open("a") as file:
        file.write('{"step": 4, "problem')  # the line that was being written
    assert adapt(config) == config.folder
    assert comparable(config.folder) == comparable(whole)


def test_a_kill_after_the_last_step_repeats_no_step(toy, tmp_path, monkeypatch):
    toy = toy | {"steps": 3}
    whole = adapt(AdaptConfig(**(toy | {"out": str(tmp_path / "whole")}), method="grpo_pcr"))
    config = AdaptConfig(**toy, method="grpo_pcr")
    original = runs_module.write_json

    def dying(path, record):
        if path.name == "done.json":
            raise KeyboardInterrupt
        original(path, record)

    with monkeypatch.context() as patch:
        patch.setattr(runs_module, "write_json", dying)
        with pytest.raises(KeyboardInterrupt):
            adapt(config)
    steps = []
    adapt(config, lambda name, step, total, metrics: steps.append(step))
    assert steps == []
    assert comparable(config.folder) == comparable(whole)
    assert not (config.folder / "state").exists()


def test_a_half_written_restart_point_is_ignored(toy, tmp_path, monkeypatch):
    toy = toy | {"steps": 3}
    whole = adapt(AdaptConfig(**(toy | {"out": str(tmp_path / "whole")}), method="grpo_pcr"))
    config = AdaptConfig(**toy, method="grpo_pcr")
    original = trainer_module.ProbePolicyTrainer._save_rng_state

    def dying(self, output_dir):
        if self.state.global_step == 4:
            raise KeyboardInterrupt
        return original(self, output_dir)

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module.ProbePolicyTrainer, "_save_rng_state", dying)
        with pytest.raises(KeyboardInterrupt):
            adapt(config)
    assert (config.folder / "state" / "checkpoint-4").exists()
    adapt(config)
    assert comparable(config.folder) == comparable(whole)


def test_too_few_usable_problems_are_refused_before_training(toy):
    with pytest.raises(DataError, match=r"0 of 4 problems can be trained on.*context 512"):
        adapt(AdaptConfig(**(toy | {"max_tokens": 480}), method="erpo"))


def test_configs_are_checked(toy):
    with pytest.raises(ParameterError, match="multiple"):
        AdaptConfig(**(toy | {"method": "erpo", "prompts_per_step": 9}))
    with pytest.raises(ParameterError, match="trains nothing"):
        AdaptConfig(**toy, method="base")
    with pytest.raises(ParameterError, match="unknown field"):
        plan_runs(["erpo"], [0], **_without_seed(toy), lerning_rate=1.0)
    sizes = {"prompts_per_step": 8, "group_size": 6, "train_micro_batch": 10}
    config = AdaptConfig(**(toy | {"method": "erpo"} | sizes))
    assert (config.rows_per_minibatch, config.micro_batches) == (24, 3)


@pytest.mark.slow
def test_side_by_side_equals_alone(toy, tmp_path):
    """Two worker processes; then once more, which skips both."""
    toy = _without_seed(toy) | {"steps": 1}
    configs = plan_runs(["grpo_pcr", "erpo"], [0], **(toy | {"out": str(tmp_path / "pool")}))
    seen = []
    folders = adapt_all(configs, workers=2, progress=lambda *args: seen.append(args[:3]))
    assert set(seen) == {("grpo_pcr-seed0", 1, 1), ("erpo-seed0", 1, 1)}
    alone = adapt(plan_runs(["erpo"], [0], **toy)[0])
    assert comparable(folders[1]) == comparable(alone)
    seen.clear()
    assert adapt_all(configs, workers=2, progress=lambda *args: seen.append(args[:3])) == folders
    assert len(seen) == 2
    with pytest.raises(DataError, match="share a folder"):
        adapt_all([configs[0], configs[0]])


@pytest.mark.slow
def test_errors_of_workers_name_the_run(toy):
    (config,) = plan_runs(["erpo"], [0], **(_without_seed(toy) | {"max_tokens": 480}))
    with pytest.raises(DataError, match=r"^erpo-seed0: 0 of 4"):
        adapt_all([config])


@pytest.mark.slow
def test_sigkill_takes_the_workers_along_and_loses_nothing(toy, tmp_path):
    toy = _without_seed(toy) | {"steps": 40, "save_every": 3}
    (whole,) = plan_runs(["erpo"], [0], **(toy | {"out": str(tmp_path / "whole")}))
    adapt(whole)
    (config,) = plan_runs(["erpo"], [0], **toy)
    script = (
        "import json, sys\n"
        "from tipprobe.training.adapt import adapt_all\n"
        "from tipprobe.training.config import AdaptConfig\n"
        "if __name__ == '__main__':\n"
        "    adapt_all([AdaptConfig(**json.loads(sys.argv[1]))])\n"
    )
    path = tmp_path / "run.py"
    path.write_text(script)
    fields = json.dumps(toy | {"method": "erpo", "seed": 0})
    process = subprocess.Popen([sys.executable, str(path), fields])
    metrics = config.folder / "metrics.jsonl"
    for _ in range(600):
        if metrics.exists() and len(metrics.read_text().splitlines()) >= 5:
            break
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert not (config.folder / "done.json").exists()
    adapt(config)
    assert comparable(config.folder) == comparable(whole.folder)


def test_two_processes_do_not_share_a_run_folder(toy):
    from tipprobe.training.runs import RunLock

    config = AdaptConfig(**toy, method="erpo")
    config.folder.mkdir(parents=True)
    with RunLock(config.folder / ".lock"), pytest.raises(StageError, match="erpo-seed0 is being trained"):
        adapt(config)


def _without_seed(toy: dict) -> dict:
    return {k: v for k, v in toy.items() if k != "seed"}
