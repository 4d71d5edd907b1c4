"""From sampled replies to rewards: extract the program, run it, vote, score; one record a reply.

A reply can fail in many ways (no code, cut off, crash, time-out, ...); each counts as failed on the probe
and is counted by reason.  A fault of the execution machinery is none of them: it raises and never becomes a
reward of 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tipprobe.errors import DataError
from tipprobe.models.types import Completion
from tipprobe.probes.consensus import Consensus, probe_consensus
from tipprobe.probes.rng import keyed_rng
from tipprobe.probes.types import ProbeSet
from tipprobe.problems.schema import Problem, Test
from tipprobe.sandbox import Executor, Extraction, Job, Limits, Run, is_correct, program_of, vote_key
from tipprobe.sandbox.recheck import Recheck, first_input, run_rechecked
from tipprobe.training.methods import Reward

#: Why a (candidate, probe) pair has no output, in the order of the metrics' columns.
REASONS = (
    "truncated",
    "no_code",
    "compile_error",
    "runtime_error",
    "signal",
    "cpu_limit",
    "wall_limit",
    "memory_limit",
    "output_limit",
    "unusable_output",
    "nondeterministic",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one candidate did on one probe: ``ok`` with a vote key, or one of `REASONS` without."""

    status: str
    key: str | None = None


@dataclass(frozen=True)
class Candidate:
    """One sampled reply and what its program did.

    Attributes:
        completion: the reply.
        program: the program in it, None if there is none.
        extraction: how the program was found, or why not (`tipprobe.sandbox.program_of`).
        outcomes: one a probe.
    """

    completion: Completion
    program: str | None
    extraction: str
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, eq=False)
class ScoredGroup:
    """The candidates of one problem with their consensus and reward.

    Attributes:
        problem_id: the problem.
        candidates: (G,) in sampling order.
        consensus: agreement on the probes, whatever the reward is made of.
        hits: (G,) int64, numerators of the reward.
        n: its denominator: probes for ``pcr``, 1 for a binary reward.
        parts: reward components by name, each (G,); only what the method may see is computed.
    """

    problem_id: str
    candidates: tuple[Candidate, ...]
    consensus: Consensus
    hits: np.ndarray
    n: int
    parts: dict[str, list[float]]

    @property
    def rewards(self) -> np.ndarray:
        """(G,) float64 in [0, 1]."""
        return self.hits / self.n if self.n else np.zeros(len(self.hits))


def score_groups(
    problems: Sequence[Problem],
    probe_sets: Sequence[ProbeSet],
    groups: Sequence[Sequence[Completion]],
    sandbox: Executor,
    *,
    reward: Reward,
    limits: Limits,
    seed: int,
    step: int,
) -> list[ScoredGroup]:
    """Score groups of replies, all programs of all problems in one sandbox call.

    Args:
        problems: one a group.
        probe_sets: probes of each problem.
        groups: replies of each problem.
        sandbox: runs the programs.
        reward: what the reward is made of.  Expected outputs are read for ``public`` (examples) and
            ``oracle`` (hidden tests) only.
        limits: of one execution.
        seed: of the run; with `step` and the problem it seeds the ``random`` reward.
        step: rollout step.

    Raises:
        SandboxError: the execution machinery failed.
        DataError: the reward needs tests that a problem does not have.
    """
    problems = [_votable(problem) for problem in problems]
    batch = _Executions(sandbox, limits)
    labels = [_labelled_tests(problem, reward) for problem in problems]
    extracted = [[program_of(completion) for completion in group] for group in groups]
    for problem, probes, tests, programs in zip(problems, probe_sets, labels, extracted, strict=True):
        inputs = tuple(dict.fromkeys(probes.inputs + tuple(test.input for test in tests)))
        for found in programs:
            if found.code is not None:
                batch.add(problem, found.code, inputs, voted=bool(probes.inputs))
    batch.run()
    scored = []
    for problem, probes, tests, group, programs in zip(
        problems, probe_sets, labels, groups, extracted, strict=True
    ):
        candidates = tuple(
            Candidate(completion, found.code, found.reason, _outcomes(problem, probes, found, batch))
            for completion, found in zip(group, programs, strict=True)
        )
        consensus = probe_consensus([[o.key for o in c.outcomes] for c in candidates])
        parts = {"pcr": consensus.pcr.tolist()}
        hits, n = consensus.hits, consensus.n_probes
        if reward in ("public", "oracle"):
            hits, n = np.array([_passes(problem, c, tests, batch) for c in candidates], dtype=np.int64), 1
            parts[reward] = hits.tolist()
        elif reward == "random":
            hits, n = keyed_rng("random reward", seed, step, problem.id).integers(0, 2, len(candidates)), 1
            parts[reward] = hits.tolist()
        scored.append(ScoredGroup(problem.id, candidates, consensus, hits, n, parts))
    return scored


def sample_records(
    group: ScoredGroup, advantages: np.ndarray, keep: np.ndarray, *, step: int, prompt_hash: str
) -> list[dict[str, Any]]:
    """Return one JSON-ready record for each reply of a group: all that is needed to score it again."""
    consensus = group.consensus
    return [
        {
            "step": step,
            "problem_id": group.problem_id,
            "sample": i,
            "prompt": prompt_hash,
            "completion": c.completion.text,
            "n_tokens": c.completion.n_tokens,
            "finish_reason": c.completion.finish_reason,
            "extraction": c.extraction,
            "probes": [[o.status, short_hash(o.key)] for o in c.outcomes],
            "hits": int(consensus.hits[i]),
            "n_probes": consensus.n_probes,
            "n_voted": consensus.n_voted,
            "reward": float(group.rewards[i]),
            "reward_parts": {name: float(values[i]) for name, values in group.parts.items()},
            "advantage": float(advantages[i]),
            "kept": bool(keep[i]),
        }
        for i, c in enumerate(group.candidates)
    ]


def rollout_metrics(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the statistics of one rollout step from its samples' records.

    ``probe_pass_share`` and the ``failed_<reason>`` shares are of (candidate, probe) pairs and add up to 1;
    ``kept_positive_share`` is of kept rows, ``zero_advantage_groups`` of groups, the other shares of replies.
    """
    statuses = [status for record in records for status, _ in record["probes"]]
    kept = [record for record in records if record["kept"]]
    groups: dict[str, bool] = {}
    for record in records:
        groups[record["problem_id"]] = groups.get(record["problem_id"], False) or record["advantage"] != 0
    return {
        "reward": _mean(record["reward"] for record in records),
        "pcr": _mean(record["reward_parts"]["pcr"] for record in records),
        "probe_pass_share": _mean(status == "ok" for status in statuses),
        **{f"failed_{reason}": _mean(status == reason for status in statuses) for reason in REASONS},
        "kept_share": len(kept) / len(records),
        "kept_positive_share": _mean(record["advantage"] > 0 for record in kept),
        "zero_advantage_groups": _mean(not signal for signal in groups.values()),
        "truncated_share": _mean(record["finish_reason"] == "length" for record in records),
        "completion_tokens": _mean(record["n_tokens"] for record in records),
    }


def short_hash(text: str | None) -> str | None:
    """Return the first 8 hex digits of the SHA-256 of `text`; None stays None."""
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()[:8]


class _Executions:
    """The executions of one scoring call; equal programs of a problem run once.

    A program whose answer on the first probe is another one under another seed has the status
    ``nondeterministic`` on all its inputs.
    """

    def __init__(self, sandbox: Executor, limits: Limits) -> None:
        self._sandbox, self._limits = sandbox, limits
        self._jobs: dict[tuple[str, str], Job] = {}
        self._voters: dict[tuple[str, str], Problem] = {}  # programs that have a probe to vote on
        self._runs: dict[tuple[str, str], dict[str, Run]] = {}

    def add(self, problem: Problem, program: str, inputs: tuple[str, ...], voted: bool) -> None:
        """Have a program run on `inputs`; `voted` says that the first of them is a probe."""
        key = (problem.id, program)
        if key in self._jobs or not inputs:
            return
        self._jobs[key] = Job(program, inputs, problem.entry_point, self._limits)
        if voted:
            self._voters[key] = problem

    def run(self) -> None:
        keys, jobs = list(self._jobs), list(self._jobs.values())
        recheck = Recheck(
            place=lambda n, job: first_input(n, job) if keys[n] in self._voters else None,
            key=lambda n, run: vote_key(run, self._voters[keys[n]]),
        )
        results = run_rechecked(self._sandbox, jobs, recheck) if jobs else []
        self._runs = {
            key: dict(zip(job.inputs, runs, strict=True))
            for key, job, runs in zip(keys, jobs, results, strict=True)
        }

    def get(self, problem: Problem, program: str, text: str) -> Run:
        return self._runs[problem.id, program][text]


def _outcomes(
    problem: Problem, probes: ProbeSet, found: Extraction, batch: _Executions
) -> tuple[Outcome, ...]:
    if found.code is None:
        reason = "truncated" if found.reason == "truncated" else "no_code"
        return (Outcome(reason),) * len(probes.probes)
    return tuple(_outcome(batch.get(problem, found.code, text), problem) for text in probes.inputs)


def _outcome(run: Run, problem: Problem) -> Outcome:
    key = vote_key(run, problem)
    if key is not None:
        return Outcome("ok", key)
    return Outcome("unusable_output" if run.ok else run.status)


def _votable(problem: Problem) -> Problem:
    """Return the problem as one whose outputs can be compared.

    A ``unittest`` problem is graded by code, but its function can be called on probes like any other.
    """
    return replace(problem, kind="call") if problem.kind == "unittest" else problem


def _labelled_tests(problem: Problem, reward: Reward) -> tuple[Test, ...]:
    tests = {"public": problem.examples, "oracle": problem.tests}.get(reward, ())
    if reward in ("public", "oracle") and not tests:
        kind = "public examples" if reward == "public" else "hidden tests given as inputs and outputs"
        raise DataError(f"problem {problem.id!r} has no {kind}, which the reward {reward!r} is made of")
    return tests


def _passes(problem: Problem, candidate: Candidate, tests: tuple[Test, ...], batch: _Executions) -> bool:
    if candidate.program is None:
        return False
    runs = ((batch.get(problem, candidate.program, test.input), test.expected) for test in tests)
    return all(is_correct(run, expected, problem) for run, expected in runs)


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values) if values else 0.0
