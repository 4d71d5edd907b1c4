"""A toy task: a tiny model that writes tiny programs, four problems, a sandbox that only looks them up."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tipprobe.probes import mutation_probes, write_probe_sets
from tipprobe.problems.schema import Problem, Test, write_jsonl
from tipprobe.prompts import code_prompt
from tipprobe.sandbox import Job, Run

PROBLEMS = [
    Problem(
        f"p{i}",
        f"Task {i}",
        examples=(Test(f"{i} 2\n", "3\n"), Test("4 5\n", "9\n")),
        tests=(Test("1\n", "1\n"),),
    )
    for i in range(4)
]
PROGRAMS = ["print(1)", "print(2)", "print(input())", "print(x)", "input(", "no code"]


class LookupSandbox:
    """Answers jobs without running anything: outputs come from `table`, else from a hash of the program."""

    def __init__(self, table: dict[str, Sequence[Run]] | None = None) -> None:
        self.table = table or {}
        self.calls: list[list[Job]] = []

    def run(self, jobs: Sequence[Job]) -> list[list[Run]]:
        self.calls.append(list(jobs))
        return [[self._one(job, i) for i in range(len(job.inputs))] for job in jobs]

    def _one(self, job: Job, i: int) -> Run:
        if job.source in self.table:
            return self.table[job.source][i % len(self.table[job.source])]
        digest = hashlib.sha256(f"{job.source}{i}".encode()).digest()
        return Run("runtime_error") if digest[0] < 64 else Run("ok", stdout=b"%d" % (digest[1] % 3))


@pytest.fixture(scope="session")
def problems() -> list[Problem]:
    return PROBLEMS


@pytest.fixture
def sandbox() -> LookupSandbox:
    return LookupSandbox()


@pytest.fixture(scope="session")
def toy_coder(tiny_model):
    """The tiny model after a moment of training on `PROGRAMS`: (model, tokenizer)."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, tokenizer = copy.deepcopy(tiny_model[0]).train(), tiny_model[1]
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    texts = [
        tokenizer.apply_chat_template(code_prompt(p), tokenize=False, add_generation_prompt=True)
        + f"{code}<|end|>"
        for p in PROBLEMS
        for code in PROGRAMS
    ]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
    for _ in range(60):
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval(), tokenizer


@pytest.fixture(scope="session")
def toy_coder_folder(toy_coder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "toy-coder"
    for part in toy_coder:
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def toy(tmp_path: Path, toy_coder_folder: Path) -> dict:
    """Fields of an `AdaptConfig` for a run of seconds."""
    write_jsonl(tmp_path / "problems.jsonl", (p.to_json() for p in PROBLEMS))
    write_probe_sets(tmp_path / "probes.jsonl", mutation_probes(PROBLEMS, n=3, seed=0), {})
    return {
        "seed": 0,
        "model": str(toy_coder_folder),
        "problems": str(tmp_path / "problems.jsonl"),
        "probes": str(tmp_path / "probes.jsonl"),
        "out": str(tmp_path / "out"),
        "device": "cpu",
        "steps": 2,
        "prompts_per_step": 2,
        "group_size": 4,
        "minibatches_per_step": 2,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "clip_ratio": 0.2,
        "dual_clip": 3.0,
        "kl_coef": 1e-3,
        "entropy_coef": 0.5,
        "entropy_ceiling": 0.1,
        "entropy_ceiling_mode": "absolute",
        "mask_ratio": 0.5,
        "negative_only": False,
        "denominator": "retained",
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 20,
        "max_tokens": 20,
        "sampler_batch_size": 256,
        "train_micro_batch": 32,
        "time_limit_s": 2.0,
        "memory_mb": 1024,
        "save_every": 1,
    }
