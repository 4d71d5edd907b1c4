"""Looking back at training with hidden tests: every rollout was saved, so nothing is sampled again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tipprobe.errors import DataError
from tipprobe.evaluation.grade import grade
from tipprobe.evaluation.intervals import ratio_interval
from tipprobe.evaluation.passk import pass_at_k
from tipprobe.evaluation.results import ModelSamples
from tipprobe.models.types import Completion
from tipprobe.problems.schema import Problem, read_jsonl
from tipprobe.sandbox import Executor, program_of

#: What is known of programs: (problem id, program) -> passed.
Known = dict[tuple[str, str], bool]


def known_verdicts(samples: Sequence[ModelSamples]) -> Known:
    """Return the verdicts on programs that an evaluation has graded already."""
    return {
        (record["problem_id"], record["program"]): record["passed"]
        for entry in samples
        for record in entry.records
        if record["program"] is not None
    }


def hidden_curves(
    folders: Sequence[Path],
    problems: Sequence[Problem],
    base: ModelSamples,
    sandbox: Executor,
    *,
    time_limit_s: float,
    memory_mb: int,
    known: Mapping[tuple[str, str], bool] | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Grade the rollouts of finished runs by hidden tests, after training.

    A step sees a few problems only, and they differ in difficulty more than steps do in ability.  So each
    step is compared with the unadapted model on the same problems, and averaged over as many steps as it
    takes to see every problem once.

    Args:
        folders: run folders, ``<method>-seed<k>``, with ``rollouts.jsonl``.
        problems: with hidden tests.
        base: the unadapted model's samples on these problems.
        sandbox: runs the programs.
        time_limit_s: CPU seconds of one execution.
        memory_mb: memory of one execution.
        known: verdicts that need not be found again.
        draws: bootstrap draws over the problems of a running mean.
        seed: seeds them.

    Returns:
        One row a run and step: ``method, seed, step, k`` (samples a problem), ``pass_at_1, pass_at_k``
        (percent, of the step's rollouts), ``gain_1, gain_k`` (points over base on the same problems),
        ``gain_1_mean, gain_k_mean`` (their running means, from the step on at which there are enough, with
        95 % intervals over problems in ``gain_1_mean_low`` and so on) and ``problems`` (distinct ones behind
        the running mean).

    Raises:
        DataError: a rollout is of a problem that is not given.
    """
    by_id = {problem.id: problem for problem in problems}
    correct_of_base = dict(zip(base.problem_ids, map(sum, base.passed), strict=True))
    samples_of_base = dict(zip(base.problem_ids, map(len, base.passed), strict=True))
    rollouts = []
    for folder in folders:
        method, _, run_seed = folder.name.rpartition("-seed")
        for record in read_jsonl(folder / "rollouts.jsonl"):
            if record["problem_id"] not in by_id:
                raise DataError(
                    f"{folder.name}: rollouts of {record['problem_id']!r}, which is not evaluated"
                )
            reply = Completion(
                record["completion"], record.get("n_tokens", 0), record.get("finish_reason", "stop")
            )
            program = program_of(reply).code
            rollouts.append((method, int(run_seed), record["step"], record["problem_id"], program))
    verdicts = dict(known or {})
    new = dict.fromkeys((p, c) for *_, p, c in rollouts if c is not None and (p, c) not in verdicts)
    graded = grade(
        [(by_id[p], program) for p, program in new], sandbox, time_limit_s=time_limit_s, memory_mb=memory_mb
    )
    verdicts |= {key: verdict.passed for key, verdict in zip(new, graded, strict=True)}
    columns = ["method", "seed", "step", "problem_id", "program"]
    table = pd.DataFrame(rollouts, columns=columns)
    table["passed"] = [c is not None and verdicts[p, c] for *_, p, c in rollouts]
    groups = table.groupby(["method", "seed", "step", "problem_id"], sort=False)["passed"]
    counts = groups.agg(["sum", "size"]).reset_index()
    counts[["gain_1", "gain_k"]] = 0.0
    rows = []
    for (method, run_seed, step), part in counts.groupby(["method", "seed", "step"], sort=False):
        k = int(min(part["size"].min(), min(samples_of_base[p] for p in part["problem_id"])))
        row = {"method": method, "seed": run_seed, "step": step, "k": k, "problems": len(part)}
        for name, allowed in (("1", 1), ("k", k)):
            ours = [pass_at_k(n, c, allowed) for c, n in zip(part["sum"], part["size"], strict=True)]
            theirs = [pass_at_k(samples_of_base[p], correct_of_base[p], allowed) for p in part["problem_id"]]
            row[f"pass_at_{name}"] = 100 * sum(ours) / len(ours)
            row[f"gain_{name}"] = 100 * (sum(ours) - sum(theirs)) / len(ours)
            counts.loc[part.index, f"gain_{name}"] = 100 * (np.array(ours) - np.array(theirs))
        rows.append(row)
    curves = pd.DataFrame(rows).sort_values(["method", "seed", "step"], ignore_index=True, kind="stable")
    window = max(1, round(len(base.problem_ids) / curves["problems"].median()))
    window = min(window, curves["step"].nunique())
    for name in ("gain_1", "gain_k"):
        runs = curves.groupby(["method", "seed"], sort=False)[name]
        curves[f"{name}_mean"] = runs.transform(lambda v: v.rolling(window).mean())
    bounds = _window_intervals(counts, window, draws, seed)
    return curves.drop(columns="problems").merge(bounds, on=["method", "seed", "step"], how="left")


def _window_intervals(counts: pd.DataFrame, window: int, draws: int, seed: int) -> pd.DataFrame:
    """Return the problems behind each running mean and its intervals over them.

    Args:
        counts: a row a run, step and problem: ``method, seed, step, problem_id, gain_1, gain_k``.
        window: steps of a running mean.
        draws: bootstrap draws.
        seed: seeds them.
    """
    rows = []
    for (method, run_seed), run in counts.groupby(["method", "seed"], sort=False):
        steps = sorted(run["step"].unique())
        for first, last in zip(steps, steps[window - 1 :], strict=False):
            part = run[run["step"].between(first, last)].groupby("problem_id", sort=False)
            row = {"method": method, "seed": run_seed, "step": last, "problems": part.ngroups}
            for name in ("gain_1", "gain_k"):
                found = ratio_interval(part[name].sum(), part.size(), draws, seed)
                row |= {f"{name}_mean_low": found.low, f"{name}_mean_high": found.high}
            rows.append(row)
    return pd.DataFrame(rows)
