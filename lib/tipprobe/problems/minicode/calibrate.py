"""Measure the coder's base behaviour on a split: the numbers the world was tuned to.

    python -m tipprobe.problems.minicode.calibrate --model DIR --split adaptation --out FILE.json

Programs are sampled at T=1, top_p 0.8, top_k 20 and run in the sandbox on hidden tests and on probes that the
coder wrote itself, joined with the example inputs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tipprobe.errors import DataError
from tipprobe.evaluation.grade import grade
from tipprobe.evaluation.intervals import Interval
from tipprobe.models.load import load_model, model_revision, resolve_model
from tipprobe.models.types import Completion, Sampler, Sampling
from tipprobe.probes.generate import generate_probes
from tipprobe.probes.types import ProbeSet
from tipprobe.problems.minicode.estimate import behaviour, tip_gains
from tipprobe.problems.minicode.world import WorldConfig, split_with_specs
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt, tip_request_prompt
from tipprobe.sandbox import Limits, Sandbox, extract_code, program_of
from tipprobe.training.rollouts import score_groups

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Progress = Callable[[int, int], None]
CODE = Sampling(temperature=1.0, top_p=0.8, top_k=20, max_tokens=160)
PROBE = replace(CODE, max_tokens=48)
LIMITS = Limits()
#: Samples a problem and tip where the statement is complete: there the effect of a tip is a side issue.
SPECIFIED_SAMPLES = 4


def recorded_world(folder: Path) -> WorldConfig:
    """Return the world that the coder in `folder` was trained on.

    Raises:
        DataError: the folder's ``recipe.json`` is missing, or describes a world this version cannot build.
    """
    try:
        record = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
        return WorldConfig(**record["world"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder / 'recipe.json'} does not describe the coder's world ({error}); "
            "train the coder again with this version"
        ) from error


@dataclass(frozen=True, eq=False)
class Sampled:
    """Sampled programs of some problems, graded.

    Attributes:
        problems: the problems.
        replies: a group of replies a problem.
        passed: (problems, samples) bool, whether all hidden tests passed.
        pcr: (problems, samples) float64.
    """

    problems: list[Problem]
    replies: list[list[Completion]]
    passed: np.ndarray
    pcr: np.ndarray


def passes(
    problems: Sequence[Problem], replies: Sequence[Sequence[Completion]], sandbox: Sandbox
) -> list[list[bool]]:
    """Return whether each reply's program passes its problem's hidden tests."""
    items = [
        (problem, program_of(reply).code)
        for problem, group in zip(problems, replies, strict=True)
        for reply in group
    ]
    verdicts = iter(grade(items, sandbox, time_limit_s=LIMITS.cpu_s, memory_mb=LIMITS.memory_mb))
    return [[next(verdicts).passed for _ in group] for group in replies]


def sample_programs(
    problems: Sequence[Problem],
    sampler: Sampler,
    sandbox: Sandbox,
    probes: Sequence[ProbeSet],
    n: int,
    sampling: Sampling,
    progress: Progress | None = None,
) -> Sampled:
    """Sample `n` programs a problem without a tip; grade them by hidden tests and by consensus."""
    prompts = [code_prompt(problem) for problem in problems]
    replies = sampler.sample(prompts, n, sampling, progress=progress)
    scored = score_groups(problems, probes, replies, sandbox, reward="pcr", limits=LIMITS, seed=0, step=0)
    pcr = np.array([group.consensus.pcr for group in scored])
    return Sampled(list(problems), replies, np.array(passes(problems, replies, sandbox)), pcr)


def tip_rates(
    problems: Sequence[Problem],
    sampler: Sampler,
    sandbox: Sandbox,
    n: int,
    sampling: Sampling,
    kinds: Sequence[str] = ("none", "tip", "wrong_tip"),
    progress: Progress | None = None,
) -> dict[str, np.ndarray]:
    """Return pass@1 of each problem from `n` samples by the kind of tip in the prompt.

    Args:
        problems: with ``tip`` and ``wrong_tip`` in their meta data.
        sampler: the coder.
        sandbox: runs the programs.
        n: samples a problem and kind.
        sampling: how they are drawn.
        kinds: which prompts to try.
        progress: called with the replies sampled so far and their total.
    """
    prompts = [code_prompt(problem, problem.meta.get(kind)) for kind in kinds for problem in problems]
    replies = sampler.sample(prompts, n, sampling, progress=progress)
    verdicts = np.array(passes([*problems] * len(kinds), replies, sandbox))
    return dict(zip(kinds, verdicts.reshape(len(kinds), len(problems), n).mean(2), strict=True))


def mean_entropy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sampled: Sampled, batch: int = 64
) -> float:
    """Return the mean entropy in nats of the next-token distribution over reply tokens (T=1, all tokens).

    The first reply of each problem is looked at.
    """
    import torch

    from tipprobe.models.transformers_sampler import encode_prompt

    total, count = 0.0, 0
    for first in range(0, len(sampled.problems), batch):
        rows, starts = [], []
        for problem, group in zip(
            sampled.problems[first : first + batch], sampled.replies[first : first + batch], strict=True
        ):
            head = encode_prompt(tokenizer, code_prompt(problem))
            rows.append(head + tokenizer(group[0].text)["input_ids"] + [tokenizer.eos_token_id])
            starts.append(len(head))
        ids = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row) for row in rows], batch_first=True, padding_value=tokenizer.pad_token_id
        )
        with torch.no_grad():
            log_p = model(ids.to(model.device)).logits.float().log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1).cpu()
        for values, row, start in zip(entropy, rows, starts, strict=True):
            total += float(values[start - 1 : len(row) - 1].sum())
            count += len(row) - start
    return total / count


def calibrate(
    folder: Path,
    *,
    split: str = "adaptation",
    problems: int = 256,
    samples: int = 16,
    rounds: int = 8,
    batch_size: int = 2048,
    device: str = "auto",
    workers: int = 0,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the coder's base behaviour on a split, JSON-ready; percentages are 0 to 100.

    Problems are those of the world that the coder was trained on, whatever the defaults are by now.
    """
    from tipprobe.models.transformers_sampler import TransformersSampler

    begin = time.perf_counter()
    world = recorded_world(folder)
    chosen = [problem for problem, _ in split_with_specs(split, problems, config=world)]
    opened = np.array([problem.meta["underspecified"] for problem in chosen])
    told = np.array(["tip" in problem.meta for problem in chosen])
    model, tokenizer = load_model(str(folder), device)
    revision = model_revision(str(folder))
    sampler = TransformersSampler(model, tokenizer, revision=revision, batch_size=batch_size)
    code, probe = replace(CODE, seed=seed), replace(PROBE, seed=seed)
    probes = generate_probes(chosen, sampler, n=rounds, sampling=probe)
    tips = {}
    with Sandbox(workers) as sandbox:
        base = sample_programs(chosen, sampler, sandbox, probes, samples, code)
        for name, rows, n in (
            ("underspecified", opened, samples),
            ("specified", ~opened & told, min(samples, SPECIFIED_SAMPLES)),
        ):
            if rows.any():
                group = [chosen[i] for i in np.flatnonzero(rows)]
                rates = tip_rates(group, sampler, sandbox, n, code, ("tip", "wrong_tip"))
                tips[name] = records(tip_gains({"none": base.passed[rows].mean(1)} | rates))
    asked = sampler.sample([tip_request_prompt(problem) for problem in chosen[:8]], 1, probe)
    replies = [reply for group in base.replies for reply in group]
    return {
        "split": split,
        "samples": samples,
        "sampling": asdict(code),
        "world": asdict(world),
        "model_revision": sampler.revision,
        "device": str(model.device),
        "behaviour": {
            name: records(behaviour(base.passed[rows], base.pcr[rows]))
            for name, rows in (("all", opened | True), ("specified", ~opened), ("underspecified", opened))
            if rows.any()
        },
        "no_code": sum(extract_code(reply.text).code is None for reply in replies),
        "truncated": sum(reply.finish_reason == "length" for reply in replies),
        "reply_tokens": {
            "mean": round(float(np.mean([reply.n_tokens for reply in replies])), 1),
            "max": max(reply.n_tokens for reply in replies),
        },
        "entropy": round(mean_entropy(model, tokenizer, base), 4),
        "probes": dict(sum((Counter(found.counts) for found in probes), Counter())),
        "failure_by_op": failure_by_op(base),
        "tips": tips,
        "tips_written": [reply.text for (reply,) in asked],
        "total_s": round(time.perf_counter() - begin, 1),
    }


def records(intervals: dict[str, Interval]) -> dict[str, dict[str, float | None]]:
    """Return intervals as JSON values, rounded; None for NaN."""
    return {
        name: {
            key: None if np.isnan(value) else round(value, 3 if name.startswith("auc") else 1)
            for key, value in (("mean", found.mean), ("low", found.low), ("high", found.high))
        }
        | {"problems": found.n}
        for name, found in intervals.items()
    }


def failure_by_op(base: Sampled) -> dict[str, float]:
    """Return the failure rate in percent over the problems that hold an operation, by its name."""
    rates: dict[str, list[float]] = defaultdict(list)
    for problem, row in zip(base.problems, base.passed, strict=True):
        for name in problem.meta["ops"]:
            rates[name].append(100 * (1 - float(row.mean())))
    return {name: round(float(np.mean(values)), 1) for name, values in sorted(rates.items())}


def main() -> None:
    """Calibrate as the command line says and write a JSON file."""
    parser = argparse.ArgumentParser(description="Measure the embedded coder's base behaviour.")
    parser.add_argument("--model", required=True, help="checkpoint folder, minicode-1m or minicode-5m")
    parser.add_argument("--split", default="adaptation")
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=8, help="probe inputs asked for, per problem")
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=0, help="sandbox processes; 0: one a core")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = vars(parser.parse_args())
    out, folder = options.pop("out"), Path(resolve_model(options.pop("model")))
    report = calibrate(folder, **options)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report))  # noqa: T201


if __name__ == "__main__":
    main()
