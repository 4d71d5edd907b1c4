"""Policy optimisation on probe consensus: scoring, mask and entropy ceiling on top of `PolicyTrainer`.

All programs of a rollout step run in one sandbox call; each group's scores become advantages and a mask
(`tipprobe.training.methods.update_weights`).  The entropy ceiling is added with the exact gradient of the
whole mini-batch, however it is split into passes.  Sampling is cut by top_p and top_k while the loss sees
the full distribution: negative updates then raise the entropy, which is what the ceiling is for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tipprobe.models.types import Completion
from tipprobe.probes.rng import keyed_rng
from tipprobe.probes.types import ProbeSet, check_probe_sets
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt
from tipprobe.sandbox import Executor
from tipprobe.training.config import AdaptConfig
from tipprobe.training.methods import get_method, update_weights
from tipprobe.training.objectives import (
    effective_ceiling,
    entropy_ceiling_gradient_weight,
    entropy_ceiling_loss,
)
from tipprobe.training.policy import (
    Batch,
    EpochSampler,
    PolicyTrainer,
    Scored,
    Window,
    grpo_config,
    prompt_hash,
    too_long,
)
from tipprobe.training.rollouts import rollout_metrics, sample_records, score_groups

__all__ = ["EpochSampler", "ProbePolicyTrainer", "grpo_config", "unusable_problems"]


def unusable_problems(
    problems: Sequence[Problem],
    probe_sets: dict[str, ProbeSet],
    tokenizer: PreTrainedTokenizerBase,
    model: PreTrainedModel,
    config: AdaptConfig,
) -> dict[str, str]:
    """Return ``{problem id: why it cannot be trained on}``: long prompt, no probes, or no needed tests.

    Raises:
        DataError: a problem has no entry in the probe file, or that of another problem of its name.
    """
    check_probe_sets(problems, probe_sets, config.probes)
    reward = get_method(config.method).reward
    reasons: dict[str, str] = {}
    for problem in problems:
        reason = too_long(code_prompt(problem), config.max_tokens, model, tokenizer)
        if reason:
            reasons[problem.id] = reason
        elif problem.kind != "stdin" and not problem.entry_point:
            reasons[problem.id] = "no function to call on probes"
        elif not probe_sets[problem.id].probes:
            reasons[problem.id] = "no probes"
        elif reward == "public" and not problem.examples:
            reasons[problem.id] = "no public examples"
        elif reward == "oracle" and not problem.tests:
            reasons[problem.id] = "no hidden tests given as inputs and outputs"
    return reasons


class ProbePolicyTrainer(PolicyTrainer):
    """Trains a policy with the reward and update of one method.

    Args:
        config: all numbers.
        model: float32 causal language model; a frozen copy serves as reference.
        tokenizer: its tokenizer.
        problems: problems to adapt on, all usable (`unusable_problems`).
        probe_sets: probes by problem id.
        sandbox: runs the programs.
        folder: run folder; ``rollouts.jsonl`` and ``metrics.jsonl`` are appended to, restart points lie in
            ``state/``.
        on_step: called with the metrics of each finished rollout step.

    Raises:
        ParameterError: processes do not divide the prompts of a mini-batch.
        DataError: there are fewer problems than prompts a step.
    """

    def __init__(
        self,
        config: AdaptConfig,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        problems: Sequence[Problem],
        probe_sets: dict[str, ProbeSet],
        sandbox: Executor,
        folder: Path,
        on_step: Callable[[dict[str, float]], None] | None = None,
    ) -> None:
        self.method = get_method(config.method)
        self.problems = list(problems)
        self.probe_sets = probe_sets
        self.sandbox = sandbox
        self._ceiling: float | None = None
        super().__init__(
            config,
            model,
            tokenizer,
            [code_prompt(problem) for problem in problems],
            [problem.id for problem in problems],
            folder,
            on_step,
        )

    # -- rollout --

    def score(self, indices: list[int], groups: list[list[Completion]]) -> Scored:
        """Run and score the programs of all groups; see `PolicyTrainer.score`."""
        config, step = self.adapt, self.step
        problems = [self.problems[i] for i in indices]
        scored = score_groups(
            problems,
            [self.probe_sets[problem.id] for problem in problems],
            groups,
            self.sandbox,
            reward=self.method.reward,
            limits=config.limits,
            seed=config.seed,
            step=step,
        )
        records: list[dict[str, Any]] = []
        weights = []
        for i, group in zip(indices, scored, strict=True):
            advantages, keep = update_weights(
                self.method,
                group.hits,
                group.n,
                mask_ratio=config.mask_ratio,
                negative_only=config.negative_only,
                rng=keyed_rng("rank mask", config.seed, step, group.problem_id),
            )
            weights.append((advantages, keep))
            records += sample_records(
                group, advantages, keep, step=step, prompt_hash=prompt_hash(self.prompt_ids[i])
            )
        return records, weights

    def summarise(self, records: list[dict[str, Any]]) -> dict[str, float]:
        """Return the rollout step's metrics from its records."""
        return rollout_metrics(records)

    def _make_windows(
        self,
        prompts: list[list[int]],
        replies: list[list[int]],
        weights: list[tuple[np.ndarray, np.ndarray]],
    ) -> list[Window]:
        windows = super()._make_windows(prompts, replies, weights)
        if self.method.ceiling and self._ceiling is None:
            self._ceiling = self._fix_ceiling(windows)
        return windows

    # -- update --

    def _open_window(self, window: Window) -> None:
        """Begin an update; with several passes the entropy of the whole mini-batch is measured first."""
        super()._open_window(window)
        if self._ceiling is not None and not self._one_pass:
            window.entropy = self._measure_entropy(window.passes, window.tokens)

    def entropy_term(self, window: Window, entropy_sum: Tensor) -> Tensor | float:
        """Return the ceiling's share in the loss of one pass."""
        if self._ceiling is None:
            return 0.0
        if self._one_pass:
            window.entropy = entropy_sum.item() / max(window.tokens, 1)
        weight = entropy_ceiling_gradient_weight(window.entropy, self._ceiling, self.adapt.entropy_coef)
        # Gradients are averaged over processes, `tokens` counts those of all.
        share = self.accelerator.num_processes / max(window.tokens, 1)
        return weight * entropy_sum * share if weight else 0.0

    def _measure_entropy(self, passes: list[Batch], tokens: int) -> float:
        """Return the mean token entropy of the current actor over a mini-batch, without gradient."""
        total = 0.0
        with torch.no_grad():
            for batch in passes:
                _, entropies = self._forward(self.model, batch)
                total += (entropies * batch["completion_mask"] * batch.get("tool_mask", 1)).sum().item()
        return self._total(total) / max(tokens, 1)

    def _fix_ceiling(self, windows: list[Window]) -> float:
        """Return the ceiling in nats; a relative one is measured on the first rollout and kept."""
        config = self.adapt
        if config.entropy_ceiling_mode == "absolute":
            return config.entropy_ceiling
        path = self.folder / "initial_entropy.json"
        if self.step == 1 or not path.exists():
            passes = [batch for window in windows for batch in window.passes]
            initial = self._measure_entropy(passes, sum(window.tokens for window in windows))
            if self.accelerator.is_main_process:
                path.write_text(json.dumps({"initial_entropy": initial}) + "\n")
        else:
            initial = json.loads(path.read_text())["initial_entropy"]
        return effective_ceiling(config.entropy_ceiling, "relative", initial)

    def entropy_metrics(self, entropies: Sequence[float]) -> dict[str, Any]:
        """Return the ceiling and the penalty for exceeding it."""
        ceiling, weight = self._ceiling, self.adapt.entropy_coef
        penalty = 0.0
        if ceiling is not None:
            penalty = sum(entropy_ceiling_loss(h, ceiling, weight) for h in entropies) / len(entropies)
        return {"entropy_ceiling": ceiling, "entropy_penalty": penalty}
