"""Measure the coder's base behaviour on a split: the numbers the world was tuned to.

    python -m tipprobe.problems.minicode.calibrate --model DIR --problems 256 --samples 16 --out FILE.json

Programs are sampled at T=1, top_p 0.8, top_k 20 and run in the sandbox on hidden tests and on probes that the
coder wrote itself, joined with the example inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tipprobe.models.transformers_sampler import TransformersSampler
from tipprobe.models.types import Completion, Prompt, Sampling
from tipprobe.probes.consensus import probe_consensus
from tipprobe.problems.minicode.estimate import behaviour
from tipprobe.problems.minicode.programs import parse_input
from tipprobe.problems.minicode.world import split
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt, probe_prompt, tip_request_prompt
from tipprobe.sandbox import Job, Sandbox, extract_code, is_correct, vote_key

CODE = Sampling(temperature=1.0, top_p=0.8, top_k=20, max_tokens=160)
PROBE = Sampling(temperature=1.0, top_p=0.8, top_k=20, max_tokens=48)


@dataclass(frozen=True, slots=True)
class Graded:
    """Outcome of sampled programs.

    Attributes:
        passed: (problems, samples) bool, whether all hidden tests passed.
        pcr: (problems, samples) float64.
        missing: replies without a program, counted by reason.
    """

    passed: np.ndarray
    pcr: np.ndarray
    missing: dict[str, int]


def write_probes(
    sampler: TransformersSampler, problems: Sequence[Problem], rounds: int, seed: int
) -> tuple[list[list[str]], dict[str, int]]:
    """Return the valid, distinct inputs that the model wrote in `rounds` attempts a problem, and counts."""
    kept: list[list[str]] = [[] for _ in problems]
    counts = {"asked": 0, "malformed": 0, "duplicate": 0, "kept": 0}
    for turn in range(rounds):
        prompts = [probe_prompt(problem, found) for problem, found in zip(problems, kept, strict=True)]
        replies = sampler.sample(prompts, 1, replace(PROBE, seed=seed + turn))
        for problem, found, (reply,) in zip(problems, kept, replies, strict=True):
            text = reply.text + ("\n" if problem.kind == "stdin" else "")
            counts["asked"] += 1
            if parse_input(problem.meta["layout"], ", k" in problem.starter_code, text) is None:
                counts["malformed"] += 1
            elif text in found:
                counts["duplicate"] += 1
            else:
                counts["kept"] += 1
                found.append(text)
    return kept, counts


def grade(
    sandbox: Sandbox,
    problems: Sequence[Problem],
    replies: Sequence[Sequence[Completion]],
    probes: Sequence[list[str]],
) -> Graded:
    """Run every program on hidden tests and probes."""
    missing: dict[str, int] = defaultdict(int)
    jobs: list[Job] = []
    places: list[tuple[int, int]] = []
    for row, (problem, group) in enumerate(zip(problems, replies, strict=True)):
        inputs = tuple(test.input for test in problem.tests) + tuple(probes[row])
        for column, reply in enumerate(group):
            found = extract_code(reply.text)
            if found.code is None:
                missing[found.reason] += 1
                continue
            jobs.append(Job(found.code, inputs, problem.entry_point))
            places.append((row, column))
    shape = (len(problems), len(replies[0]))
    passed = np.zeros(shape, dtype=bool)
    keys: list[list[list[str | None]]] = [[[None] * len(found)] * shape[1] for found in probes]
    for (row, column), runs in zip(places, sandbox.run(jobs), strict=True):
        problem = problems[row]
        n_tests = len(problem.tests)
        passed[row, column] = all(
            is_correct(run, test.expected, problem)
            for run, test in zip(runs[:n_tests], problem.tests, strict=True)
        )
        keys[row][column] = [vote_key(run, problem) for run in runs[n_tests:]]
    pcr = np.array([probe_consensus(table).pcr for table in keys])
    return Graded(passed, pcr, dict(missing))


def mean_entropy(
    model: torch.nn.Module, tokenizer: Any, prompts: Sequence[Prompt], replies: Sequence[str], batch: int = 64
) -> float:
    """Return the mean entropy in nats of the next-token distribution over reply tokens (T=1, all tokens)."""
    total, count = 0.0, 0
    device = next(model.parameters()).device
    for first in range(0, len(prompts), batch):
        heads = tokenizer.apply_chat_template(
            list(prompts[first : first + batch]), add_generation_prompt=True, tokenize=False
        )
        heads = tokenizer(heads, add_special_tokens=False)["input_ids"]
        tails = [
            tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in replies[first : first + batch]
        ]
        rows = [torch.tensor(head + tail) for head, tail in zip(heads, tails, strict=True)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
        with torch.no_grad():
            log_p = model(ids.to(device)).logits.float().log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1).cpu()
        for row, head, tail in zip(entropy, heads, tails, strict=True):
            total += float(row[len(head) - 1 : len(head) + len(tail) - 1].sum())
            count += len(tail)
    return total / count


def subset(graded: Graded, rows: np.ndarray) -> dict[str, float | None]:
    """Return `behaviour` of the chosen problems."""
    return behaviour(graded.passed[rows], graded.pcr[rows]) if rows.any() else {"problems": 0}


def calibrate(
    model: torch.nn.Module,
    tokenizer: Any,
    sandbox: Sandbox,
    *,
    split_name: str = "adaptation",
    n_problems: int = 256,
    n_samples: int = 16,
    rounds: int = 8,
    batch_size: int = 2048,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the coder's base behaviour on a split, JSON-ready; percentages are 0 to 100."""
    problems = split(split_name, n_problems)
    sampler = TransformersSampler(model, tokenizer, revision="calibration", batch_size=batch_size)
    code = replace(CODE, seed=seed)
    replies = sampler.sample([code_prompt(problem) for problem in problems], n_samples, code)
    written, probe_counts = write_probes(sampler, problems, rounds, seed)
    probes = [[test.input for test in p.examples] + found for p, found in zip(problems, written, strict=True)]
    probes = [list(dict.fromkeys(inputs)) for inputs in probes]
    graded = grade(sandbox, problems, replies, probes)
    flat = [reply for group in replies for reply in group]
    opened = np.array([problem.meta["underspecified"] for problem in problems])
    stdin = np.array([problem.kind == "stdin" for problem in problems])
    fails: dict[str, list[float]] = defaultdict(list)
    for problem, row in zip(problems, graded.passed, strict=True):
        for name in problem.meta["ops"]:
            fails[name].append(100 * (1 - float(row.mean())))
    report: dict[str, Any] = {
        "split": split_name,
        "samples": n_samples,
        "all": behaviour(graded.passed, graded.pcr),
        "specified": subset(graded, ~opened),
        "underspecified": subset(graded, opened),
        "stdin": subset(graded, stdin),
        "call": subset(graded, ~stdin),
        "no_code": graded.missing,
        "truncated": round(sum(r.finish_reason == "length" for r in flat) / len(flat), 4),
        "reply_tokens": percentiles([reply.n_tokens for reply in flat]),
        "entropy": round(
            mean_entropy(model, tokenizer, [code_prompt(p) for p in problems], [g[0].text for g in replies]),
            4,
        ),
        "probes": probe_counts,
        "probes_per_problem": percentiles([len(found) for found in written]),
        "failure_by_op": {name: round(float(np.mean(rates)), 1) for name, rates in sorted(fails.items())},
    }
    report["tips"] = {
        "underspecified": tip_effect(
            sampler, sandbox, [p for p in problems if p.meta["underspecified"]], n_samples, code
        ),
        "specified": tip_effect(
            sampler,
            sandbox,
            [p for p in problems if not p.meta["underspecified"] and "tip" in p.meta],
            n_samples,
            code,
        ),
    }
    asked = sampler.sample(
        [tip_request_prompt(problem) for problem in problems[:8]], 1, replace(PROBE, seed=seed)
    )
    report["tips_written"] = [reply.text for (reply,) in asked]
    return report


def tip_effect(
    sampler: TransformersSampler, sandbox: Sandbox, problems: Sequence[Problem], n: int, sampling: Sampling
) -> dict[str, float]:
    """Return pass@1 without a tip, with the right one and with the wrong one."""
    rates: dict[str, float] = {"problems": len(problems)}
    if not problems:
        return rates
    for kind in ("none", "tip", "wrong_tip"):
        prompts = [code_prompt(p, None if kind == "none" else p.meta[kind]) for p in problems]
        graded = grade(sandbox, problems, sampler.sample(prompts, n, sampling), [[] for _ in problems])
        rates[kind] = round(100 * float(graded.passed.mean()), 1)
    return rates


def percentiles(values: Sequence[int]) -> dict[str, float]:
    """Return mean, median, 95th percentile and maximum."""
    return {
        "mean": round(float(np.mean(values)), 1),
        "p50": float(np.percentile(values, 50)),
        "p95": float(np.percentile(values, 95)),
        "max": float(np.max(values)),
    }


def main() -> None:
    """Calibrate as the command line says and write a JSON file."""
    parser = argparse.ArgumentParser(description="Measure the embedded coder's base behaviour.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--split", default="adaptation")
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=8, help="probe inputs asked for, per problem")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    begin = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).to(options.device).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    with Sandbox(options.workers) as sandbox:
        report = calibrate(
            model,
            tokenizer,
            sandbox,
            split_name=options.split,
            n_problems=options.problems,
            n_samples=options.samples,
            rounds=options.rounds,
            batch_size=options.batch_size,
            seed=options.seed,
        )
    report["total_s"] = round(time.perf_counter() - begin, 1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report))  # noqa: T201


if __name__ == "__main__":
    main()
