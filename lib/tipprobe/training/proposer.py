"""Reinforcing the proposer: tips are sampled in groups, a frozen coder tries them, the gain is the reward.

The optimiser's side is `tipprobe.training.policy`; here is what a tip is worth and how a run is kept.  One
rollout step asks the environment once for all of its tips.  A fault of the machinery raises and never becomes
a reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tipprobe.errors import DataError, ParameterError
from tipprobe.files import complete_records, write_json
from tipprobe.models.load import load_model, model_revision
from tipprobe.models.open import is_endpoint, open_sampler
from tipprobe.models.types import Completion, Sampler, Sampling
from tipprobe.problems.schema import Problem, read_jsonl
from tipprobe.prompts import CODE_PROMPTS, RequestStyle, prompt_hashes, tip_request_name, tip_request_prompt
from tipprobe.sandbox import Sandbox
from tipprobe.tips.base_rates import check_greedy, read_base_rates
from tipprobe.tips.environment import TOO_LONG, Attempt, CodeEnvironment
from tipprobe.tips.propose import Proposal, read_tip
from tipprobe.tips.utility import NO_TIP, group_of, reward_fields
from tipprobe.training.config import PolicyConfig
from tipprobe.training.policy import PolicyTrainer, Scored, too_long, train_resumable
from tipprobe.training.runs import run_once

#: Called with (rollout steps done, rollout steps in all, metrics of the last one).
Progress = Callable[[int, int, dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class ProposerConfig(PolicyConfig):
    """Reinforcement of one proposer; see `PolicyConfig` for the fields that it shares.

    ``max_tokens`` is the longest tip, ``model`` the fine-tuned proposer, which is also the reference of the
    divergence.

    Attributes:
        base_rates: file of base rates, for P_base.
        environment: the frozen coder, named like ``model`` or ``openai:MODEL@URL``.
        program_tokens: longest program, tokens.
        tip_style: wording of the request for a tip.
        length_threshold: L_th, tokens of a tip that cost nothing.
        length_penalty: lambda, reward lost per token beyond.
        cache: file of the environment's outcomes, kept from run to run; a server's replies lie beside it.
        workers: processes that run programs, 0 for one a core.
    """

    base_rates: str
    environment: str
    program_tokens: int
    tip_style: RequestStyle
    length_threshold: int
    length_penalty: float
    cache: str
    workers: int = 0

    NOT_IDENTITY: ClassVar[tuple[str, ...]] = (
        *PolicyConfig.NOT_IDENTITY,
        "base_rates",
        "environment",
        "cache",
        "workers",
    )
    FILES: ClassVar[tuple[str, ...]] = ("problems", "base_rates")

    @property
    def name(self) -> str:
        """Name of the run and of its folder."""
        return "proposer"

    def identity(self) -> dict[str, Any]:
        """Return what decides the run's result; see `PolicyConfig.identity`."""
        server = is_endpoint(self.environment)
        revision = self.environment if server else model_revision(self.environment)
        prompts = prompt_hashes(tip_request_name(self.tip_style), *CODE_PROMPTS)
        return {**super().identity(), "environment_revision": revision, "prompts": prompts}


def train_proposer(
    config: ProposerConfig, progress: Progress | None = None, coder: Sampler | None = None
) -> Path:
    """Reinforce a proposer; return the run folder (laid out as in `tipprobe.training.adapt`).

    A finished run of the same identity is returned as it is, an unfinished one goes on from its last restart
    point.

    Args:
        config: of the run.
        progress: called after each rollout step.
        coder: the environment's coder if it is open already; `config.environment` still names it.

    Raises:
        DataError: the model, the problems or their base rates are missing or do not fit together.
        EndpointError: the environment is a server that keeps failing.
        SandboxError: the execution machinery failed.
        StageError: another process is working in the run folder, or the run diverged.
    """
    return run_once(
        config.folder, config.identity(), lambda: _train(config, progress, coder), steps=config.steps
    )


def _train(config: ProposerConfig, progress: Progress | None, opened: Sampler | None) -> None:
    problems = [Problem.from_json(record) for record in read_jsonl(Path(config.problems))]
    p_base = read_p_base(Path(config.base_rates), problems)
    model, tokenizer = load_model(config.model, config.device)
    reasons = {
        problem.id: too_long(
            tip_request_prompt(problem, config.tip_style), config.max_tokens, model, tokenizer
        )
        for problem in problems
    }
    write_json(config.folder / "dropped.json", {key: reason for key, reason in reasons.items() if reason})
    usable = [problem for problem in problems if not reasons[problem.id]]

    def on_step(metrics: dict[str, Any]) -> None:
        if progress:
            progress(metrics["step"], config.steps, metrics)

    @contextmanager
    def trainer() -> Iterator[ProposerTrainer]:
        with Sandbox(config.workers) as sandbox:
            coder = opened or open_sampler(
                config.environment,
                device=config.device,
                batch_size=config.sampler_batch_size,
                cache=Path(config.cache).with_suffix(".sqlite"),
            )
            environment = CodeEnvironment(
                coder,
                sandbox,
                Sampling.greedy(config.program_tokens),
                time_limit_s=config.time_limit_s,
                memory_mb=config.memory_mb,
                cache=Path(config.cache),
            )
            check_greedy(Path(config.base_rates), environment)
            yield ProposerTrainer(config, model, tokenizer, usable, p_base, environment, on_step)

    train_resumable(config, model, tokenizer, trainer)


def read_p_base(path: Path, problems: Sequence[Problem]) -> dict[str, float]:
    """Return P_base of each problem.

    Raises:
        DataError: the file is missing or has no rate for one of them.
    """
    rates = read_base_rates(path)
    missing = [problem.id for problem in problems if problem.id not in rates]
    if missing:
        raise DataError(f"{path} has no base rate of problem {missing[0]!r}")
    return {problem.id: rates[problem.id].greedy_share for problem in problems}


class ProposerTrainer(PolicyTrainer):
    """Trains a proposer on what its tips do to the environment's programs.

    Args:
        config: all numbers.
        model: the fine-tuned proposer, float32; a frozen copy serves as reference.
        tokenizer: its tokenizer.
        problems: problems to reinforce on.
        p_base: P_base by problem id.
        environment: the frozen coder with its sandbox.
        on_step: called with the metrics of each finished rollout step.

    Raises:
        DataError: there are fewer problems than prompts a step.
        ParameterError: the environment is not deterministic.
    """

    def __init__(
        self,
        config: ProposerConfig,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        problems: Sequence[Problem],
        p_base: Mapping[str, float],
        environment: CodeEnvironment,
        on_step: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        if environment.sampling.temperature != 0:
            raise ParameterError("the environment must be deterministic: sampling at temperature 0")
        self.problems = list(problems)
        self.p_base = dict(p_base)
        self.environment = environment
        # What was tried in this run, a part of it that ended early included; the environment's own memory
        # may reach back to other runs.
        earlier = complete_records(config.folder / "rollouts.jsonl")
        self._tried = {(record["problem_id"], record["tip"]) for record in earlier}
        prompts = [tip_request_prompt(problem, config.tip_style) for problem in problems]
        ids = [problem.id for problem in problems]
        super().__init__(config, model, tokenizer, prompts, ids, config.folder, on_step)

    def score(self, indices: list[int], groups: list[list[Completion]]) -> Scored:
        """Try all tips of a rollout step in one call of the environment; see `PolicyTrainer.score`."""
        problems = [self.problems[i] for i in indices]
        proposals = [[read_tip(completion) for completion in group] for group in groups]
        attempts = try_tips(self.environment, problems, proposals)
        records: list[dict[str, Any]] = []
        weights = []
        for problem, tips, outcomes in zip(problems, proposals, attempts, strict=True):
            rewards, advantages = group_of(
                self.p_base[problem.id],
                [NO_TIP if outcome is None else outcome.share for outcome in outcomes],
                [tip.n_tokens for tip in tips],
                threshold=self.adapt.length_threshold,
                penalty=self.adapt.length_penalty,
            )
            weights.append((advantages, np.ones(len(tips), dtype=bool)))
            for sample, parts in enumerate(zip(tips, outcomes, rewards, advantages, strict=True)):
                tip, outcome, reward, advantage = parts
                key = (problem.id, tip.tip)
                records.append(
                    {
                        "step": self.step,
                        "problem_id": problem.id,
                        "sample": sample,
                        "tip": tip.tip,
                        "reason": tip.reason,
                        "n_tokens": tip.n_tokens,
                        "reply": tip.reply,
                        **reward_fields(reward),
                        "advantage": float(advantage),
                        "program_reason": None if outcome is None else outcome.reason,
                        "known": key in self._tried,
                    }
                )
                self._tried.add(key)
        return records, weights

    def summarise(self, records: list[dict[str, Any]]) -> dict[str, float]:
        """Return the rollout step's metrics from its records."""
        return tip_metrics(records)


def try_tips(
    environment: CodeEnvironment, problems: Sequence[Problem], proposals: Sequence[Sequence[Proposal]]
) -> list[list[Attempt | None]]:
    """Return the environment's program for every proposal, None where there is no tip.

    Raises:
        DataError: a problem does not fit the coder's context.
        SandboxError: the execution machinery failed.
    """
    requests = [
        (problem, proposal.tip)
        for problem, group in zip(problems, proposals, strict=True)
        for proposal in group
        if proposal.tip is not None
    ]
    found = iter(environment.attempts(requests))
    return [[None if proposal.tip is None else next(found)[0] for proposal in group] for group in proposals]


def tip_metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the statistics of one rollout step from its samples' records.

    ``zero_advantage_groups`` is a share of groups, ``distinct_tips`` a mean over groups; ``known`` is the
    share of samples whose tip had been tried on that problem before in this run, so that the environment did
    not have to; the other shares are of samples.  ``better`` and ``worse`` are tips with which the program
    passes more or fewer tests than without; replies without a tip are in ``no_tip`` alone.  ``too_long`` are
    tips that did not fit the coder's context together with the problem.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["problem_id"], []).append(record)
    return {
        **{name: _mean(r[name] for r in records) for name in ("reward", "delta", "p_base", "p_curr")},
        "jumped": _mean(r["jumped"] for r in records),
        "better": _mean(r["tip"] is not None and r["p_curr"] > r["p_base"] for r in records),
        "worse": _mean(r["tip"] is not None and r["p_curr"] < r["p_base"] for r in records),
        "no_tip": _mean(r["tip"] is None for r in records),
        "too_long": _mean(r["program_reason"] == TOO_LONG for r in records),
        "length_penalty": _mean(r["length_penalty"] for r in records),
        "tip_tokens": _mean(r["n_tokens"] for r in records),
        "zero_advantage_groups": _mean(all(r["advantage"] == 0 for r in rows) for rows in groups.values()),
        "distinct_tips": _mean(len({r["tip"] for r in rows}) for rows in groups.values()),
        "known": _mean(r["known"] for r in records),
    }


def _mean(values: Iterable[float]) -> float:
    return fmean(map(float, values))
