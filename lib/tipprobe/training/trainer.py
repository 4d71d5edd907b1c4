"""Policy optimisation on probe consensus: a thin subclass of TRL's `GRPOTrainer`.

TRL keeps the loop, optimiser, schedule, checkpoints, device placement and the clipped loss with its k3
divergence.  What is ours is what happens between sampling and that loss:

1. One rollout step samples G replies for each prompt, scores all of them in one sandbox call, and turns the
   scores of each group into advantages and a mask (`tipprobe.training.methods.update_weights`).
2. A mini-batch holds whole groups.  (TRL shuffles rows across prompts.)
3. TRL's ``dapo`` loss is a sum over rows divided by one token count.  Divergence and entropy are means over
   all response tokens N of the mini-batch; rows that the mask took out of the policy term have advantage 0
   there.  Where the policy term is to be averaged over the retained tokens M only, advantages are scaled
   by N / M, which is exact because the clipped loss is homogeneous in the advantage.
4. The entropy ceiling is added with the exact gradient of the whole mini-batch, however it is split into
   passes.
5. Forward passes carry little padding, and nothing is computed that is not used: log-probabilities of the
   sampling policy only for mini-batches after the first, reference ones only with a divergence term.

Log-probabilities and entropies are of the full vocabulary at the rollout temperature; sampling is cut by
top_p and top_k.  Negative updates then raise the entropy, which is what the ceiling is for.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object, set_seed
from datasets import Dataset
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import RepeatSampler, add_fused_lm_head

from tipprobe.errors import DataError, ParameterError, StageError
from tipprobe.files import append_jsonl
from tipprobe.models.transformers_sampler import encode_prompt, generate_ids, pad_token_id
from tipprobe.models.types import Completion
from tipprobe.probes.rng import keyed_rng, keyed_seed
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
    policy_denominator,
)
from tipprobe.training.rollouts import rollout_metrics, sample_records, score_groups

#: Rows of one forward pass on a CPU.  Rows of similar length share a pass, so little of it is padding; larger
#: passes gain nothing there.  On a GPU a whole micro-batch is one pass.
CPU_ROWS_PER_PASS = 8

Batch = dict[str, Tensor]


class EpochSampler(RepeatSampler):
    """TRL's sampler with an order that depends on (seed, epoch) alone.

    The original draws one permutation after another from a generator, so a run resumed in a later epoch
    starts with the first one again.
    """

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the training loop at the start of each epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(keyed_seed("prompt order", self.seed, self.epoch))
        return super().__iter__()


@dataclass
class Window:
    """One optimiser update: its passes and what is known about the whole mini-batch.

    Attributes:
        passes: micro-batches, as TRL's loss takes them.
        tokens: response tokens of all rows, over all processes.
        entropy: mean token entropy of the current actor, once known; None before.
        sums: running sums over tokens of the statistics that `_collect` takes.
    """

    passes: list[Batch]
    tokens: int
    entropy: float | None = None
    sums: dict[str, float] = field(default_factory=dict)


def grpo_config(config: AdaptConfig, output_dir: Path, device: str) -> GRPOConfig:
    """Translate an `AdaptConfig` into TRL's terms.

    TRL counts optimiser updates where the paper counts rollout steps.  The divergence weight stays 0 here:
    with another value TRL would load the reference model a second time by name.

    Raises:
        ParameterError: a GPU is asked for by number.
    """
    updates = config.minibatches_per_step
    if ":" in device:
        raise ParameterError(
            f"device {device!r}: training runs on the first visible GPU; set CUDA_VISIBLE_DEVICES to choose "
            "another one, and device to cuda"
        )
    use_bf16 = config.precision == "bfloat16" or (config.precision == "auto" and device != "cpu")
    args = GRPOConfig(
        output_dir=str(output_dir),
        per_device_train_batch_size=config.rows_per_minibatch // config.micro_batches,
        gradient_accumulation_steps=config.micro_batches,
        generation_batch_size=config.prompts_per_step * config.group_size,
        num_generations=config.group_size,
        num_iterations=1,  # one inner epoch
        max_steps=config.steps * updates,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=config.warmup_steps * updates,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        loss_type="dapo",
        epsilon=config.clip_ratio,
        delta=config.dual_clip,
        beta=0.0,
        use_bias_correction_kl=False,
        router_aux_loss_coef=0.0,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        max_completion_length=config.max_tokens,
        disable_dropout=True,
        gradient_checkpointing=False,
        bf16=use_bf16,
        use_cpu=device == "cpu",
        seed=config.seed,
        save_strategy="steps",
        save_steps=config.save_every * updates,
        save_total_limit=1,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    args._n_gpu = 1  # without a launcher, more visible GPUs would mean DataParallel, which TRL refuses
    return args


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
    context = model.config.get_text_config().max_position_embeddings
    reward = get_method(config.method).reward
    reasons: dict[str, str] = {}
    for problem in problems:
        length = len(encode_prompt(tokenizer, code_prompt(problem)))
        if length + config.max_tokens > context:
            reasons[problem.id] = (
                f"prompt of {length} tokens + max_tokens {config.max_tokens} > context {context}"
            )
        elif problem.kind != "stdin" and not problem.entry_point:
            reasons[problem.id] = "no function to call on probes"
        elif not probe_sets[problem.id].probes:
            reasons[problem.id] = "no probes"
        elif reward == "public" and not problem.examples:
            reasons[problem.id] = "no public examples"
        elif reward == "oracle" and not problem.tests:
            reasons[problem.id] = "no hidden tests given as inputs and outputs"
    return reasons


class ProbePolicyTrainer(GRPOTrainer):
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
        if len(problems) < config.prompts_per_step:
            raise DataError(
                f"{len(problems)} usable problems, but prompts_per_step is {config.prompts_per_step}: "
                "give more problems or lower it"
            )
        self.adapt = config
        self.method = get_method(config.method)
        self.problems = list(problems)
        self.probe_sets = probe_sets
        self.sandbox = sandbox
        self.folder = folder
        self.on_step = on_step
        self.prompt_ids = [encode_prompt(tokenizer, code_prompt(problem)) for problem in problems]
        self._windows: list[Window] = []
        self._ceiling: float | None = None
        self._updates: list[dict[str, float]] = []
        self._rollout: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        reference = copy.deepcopy(model).requires_grad_(False).eval() if config.kl_coef else None
        prompts = [{"prompt": code_prompt(problem), "index": i} for i, problem in enumerate(problems)]
        super().__init__(
            model=model,
            reward_funcs=_scored_elsewhere,
            args=grpo_config(
                config, folder / "state", config.device if ":" in config.device else model.device.type
            ),
            train_dataset=Dataset.from_list(prompts),
            processing_class=tokenizer,
        )
        self.remove_callback(PrinterCallback)
        if (config.prompts_per_step // config.minibatches_per_step) % self.accelerator.num_processes:
            raise ParameterError(
                f"{self.accelerator.num_processes} processes cannot share a mini-batch of "
                f"{config.prompts_per_step // config.minibatches_per_step} prompts evenly"
            )
        if reference is not None:
            add_fused_lm_head(reference, temperature=self.temperature)
            self.ref_model = self.accelerator.prepare_model(reference, evaluation_mode=True)
            self.beta = config.kl_coef
        # A generation engine inside the trainer may have reseeded the global generators meanwhile.
        set_seed(config.seed, device_specific=True)

    # Nothing is sent anywhere, and a restart point needs no model card.

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write no card."""

    def prompt_records(self) -> list[dict[str, Any]]:
        """Return hash (as in the rollout records), problem id and rendered text of each prompt."""
        texts = self._tokenizer.batch_decode(self.prompt_ids)
        return [
            {"prompt": _prompt_hash(ids), "problem_id": problem.id, "text": text}
            for ids, problem, text in zip(self.prompt_ids, self.problems, texts, strict=True)
        ]

    @property
    def step(self) -> int:
        """Rollout step in progress, from 1."""
        return self.state.global_step // self.adapt.minibatches_per_step + 1

    def _get_train_sampler(self, dataset: Dataset | None = None) -> EpochSampler:
        return EpochSampler(
            data_source=self.train_dataset,
            mini_repeat_count=self.num_generations,
            batch_size=self.adapt.prompts_per_step,
            repeat_count=self.args.steps_per_generation,
            seed=self.args.seed,
        )

    def _prepare_inputs(self, generation_batch: list[dict[str, Any]]) -> Batch:
        """Return the next micro-batch; every `steps_per_generation` calls there is a new rollout."""
        window, micro = divmod(self._step % self.args.steps_per_generation, self.adapt.micro_batches)
        if window == micro == 0 or not self._windows:
            self._seconds = {"step_s": time.perf_counter()}
            self._windows = self._roll_out(
                [row["index"] for row in generation_batch[:: self.num_generations]]
            )
        if micro == 0:
            self._open_window(self._windows[window])
        return self._window.passes[micro]

    def _open_window(self, window: Window) -> None:
        """Begin an update; with several passes the entropy of the whole mini-batch is measured first."""
        self._window = window
        if self._ceiling is not None and not self._one_pass:
            window.entropy = self._measure_entropy(window.passes, window.tokens)

    @property
    def _one_pass(self) -> bool:
        """Whether a mini-batch's entropy comes out of its own forward pass."""
        return self.adapt.micro_batches == 1 and self.accelerator.num_processes == 1

    # -- rollout --

    def _roll_out(self, indices: list[int]) -> list[Window]:
        """Sample, score and weigh one group for each problem index; return the updates to make of them."""
        config, step = self.adapt, self.step
        problems = [self.problems[i] for i in indices]
        with self._timed("generation_s"):
            prompts = [self.prompt_ids[i] for i in indices for _ in range(config.group_size)]
            replies, _ = self._generate_single_turn(prompts, None, {}, config.group_size)
            texts = self._tokenizer.batch_decode(
                replies, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        completions = [
            Completion(text, len(ids), "stop" if ids[-1] in self.eos_token_ids else "length")
            for text, ids in zip(texts, replies, strict=True)
        ]
        with self._timed("execution_s"):
            groups = score_groups(
                problems,
                [self.probe_sets[problem.id] for problem in problems],
                _split(completions, config.group_size),
                self.sandbox,
                reward=self.method.reward,
                limits=config.limits,
                seed=config.seed,
                step=step,
            )
        records: list[dict[str, Any]] = []
        weights = []
        for i, group in zip(indices, groups, strict=True):
            advantages, keep = update_weights(
                self.method,
                group.hits,
                group.n,
                mask_ratio=config.mask_ratio,
                negative_only=config.negative_only,
                rng=keyed_rng("rank mask", config.seed, step, group.problem_id),
            )
            weights.append((advantages, keep))
            prompt_hash = _prompt_hash(self.prompt_ids[i])
            records += sample_records(group, advantages, keep, step=step, prompt_hash=prompt_hash)
        records = gather_object(records)
        if self.accelerator.is_main_process:
            append_jsonl(self.folder / "rollouts.jsonl", records)
        self._rollout = rollout_metrics(records)
        with self._timed("log_probs_s"):
            return self._make_windows(prompts, replies, weights)

    def _generate_single_turn(
        self,
        prompt_ids: list[list[int]],
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        **kwargs: Any,
    ) -> tuple[list[list[int]], None]:
        """Sample one reply for each (repeated) prompt with the project's own decode loop."""
        if self.use_vllm:
            return super()._generate_single_turn(
                prompt_ids, images, multimodal_fields, num_generations, **kwargs
            )
        seed = keyed_seed("rollout", self.adapt.seed, self.step, self.accelerator.process_index)
        with self.accelerator.autocast():
            replies = generate_ids(
                self.accelerator.unwrap_model(self.model),
                prompt_ids,
                1,
                self.adapt.sampling,
                eos_token_ids=self.eos_token_ids,
                pad_token_id=self._tokenizer.pad_token_id,
                generator=torch.Generator(self.accelerator.device).manual_seed(seed),
                batch_size=self.adapt.sampler_batch_size,
            )
        return replies, None

    def _make_windows(
        self,
        prompts: list[list[int]],
        replies: list[list[int]],
        weights: list[tuple[np.ndarray, np.ndarray]],
    ) -> list[Window]:
        """Distribute whole groups over the mini-batches and add the log-probabilities the loss needs."""
        config = self.adapt
        size = config.group_size
        advantages = np.concatenate([a for a, _ in weights])
        keep = np.concatenate([k for _, k in weights])
        tokens = np.array([len(ids) for ids in replies])
        order = keyed_rng("mini-batches", config.seed, self.step).permutation(len(weights))
        windows = []
        for number, chosen in enumerate(np.array_split(order, config.minibatches_per_step)):
            rows = np.concatenate([np.arange(g * size, (g + 1) * size) for g in chosen])
            if config.masked_rows == "drop":
                rows = rows[keep[rows]]
            n_all = self._total(int(tokens[rows].sum()))
            n_policy = self._total(policy_denominator(tokens[rows], keep[rows], config.denominator))
            scale = n_all / n_policy if n_policy else 0.0
            policy = np.where(keep, advantages, 0.0) * scale
            passes = []
            for part in np.array_split(rows[np.argsort(tokens[rows], kind="stable")], config.micro_batches):
                # A pass without rows (all dropped) still takes part in the update, with everything masked.
                real = part if len(part) else np.array([chosen[0] * size])
                batch = self._tensors([prompts[r] for r in real], [replies[r] for r in real])
                batch["advantages"] = torch.tensor(policy[real], dtype=torch.float32, device=self.args.device)
                if not len(part):
                    batch["tool_mask"] = torch.zeros_like(batch["completion_mask"])
                # TRL divides by this count times passes per update over passes per rollout.
                batch["num_items_in_batch"] = torch.tensor(
                    n_all * self.args.steps_per_generation / config.micro_batches, device=self.args.device
                )
                self._add_log_probs(batch, old=number > 0)
                passes.append(batch)
            windows.append(Window(passes, n_all))
        if self.method.ceiling and self._ceiling is None:
            self._ceiling = self._fix_ceiling(windows)
        return windows

    def _tensors(self, prompts: list[list[int]], replies: list[list[int]]) -> Batch:
        """Return prompts padded on the left and replies padded on the right, with their masks."""
        pad = pad_token_id(self._tokenizer, self.eos_token_ids)
        batch = {}
        for name, rows, side in (("prompt", prompts, "left"), ("completion", replies, "right")):
            for key, values, fill in (
                ("ids", [torch.tensor(row) for row in rows], pad),
                ("mask", [torch.ones(len(row), dtype=torch.long) for row in rows], 0),
            ):
                padded = pad_sequence(values, batch_first=True, padding_value=fill, padding_side=side)
                batch[f"{name}_{key}"] = padded.to(self.args.device)
        return batch

    def _add_log_probs(self, batch: Batch, old: bool) -> None:
        """Add log-probabilities of the sampling policy (if it will have changed) and of the reference."""
        with torch.no_grad():
            if old:
                batch["old_per_token_logps"] = self._forward(self.model, batch)[0]
            if self.beta:
                batch["ref_per_token_logps"] = self._forward(self.ref_model, batch)[0]

    def _forward(self, model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor | None]:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        logps, entropies, _ = self._get_per_token_logps_and_entropies(
            model, ids, mask, batch["completion_ids"].shape[1], compute_entropy=True
        )
        return logps, entropies

    def _get_per_token_logps_and_entropies(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """Return (log-probabilities, entropies, None) of the replies, both (rows, logits_to_keep).

        Rows are moved to the left edge, so that causal attention needs no mask, and rows of similar length
        share a pass.  Positions beyond a reply's end hold 0.
        """
        replies = attention_mask[:, -logits_to_keep:].bool()
        lengths = attention_mask.sum(1)
        prompts = (lengths - replies.sum(1))[:, None]
        real_first = (attention_mask == 0).int().argsort(dim=1, stable=True)
        ids = input_ids.gather(1, real_first)
        places = torch.arange(ids.shape[1], device=ids.device)
        labels = ids.masked_fill((places < prompts) | (places >= lengths[:, None]), -100)
        predicted_at = prompts - 1 + places[:logits_to_keep]  # position whose output is about reply token t
        order = lengths.argsort(stable=True)
        logps, entropies = [], []
        for rows in order.split(CPU_ROWS_PER_PASS if ids.device.type == "cpu" else len(order)):
            width = int(lengths[rows].max())
            with self.accelerator.autocast():
                outputs = model(input_ids=ids[rows, :width], labels=labels[rows, :width], fused_lm_head=True)
            at = predicted_at[rows].clamp(max=width - 2)
            logps.append(outputs.log_probs.gather(1, at))
            if outputs.entropy is not None:
                entropies.append(outputs.entropy.gather(1, at))
        back = order.argsort()
        self._last_forward = (
            torch.cat(logps)[back].masked_fill(~replies, 0),
            torch.cat(entropies)[back].masked_fill(~replies, 0) if entropies else None,
        )
        return *self._last_forward, None

    # -- update --

    def _compute_loss(self, model: PreTrainedModel, inputs: Batch) -> Tensor:
        loss = super()._compute_loss(model, inputs)
        logps, entropies = self._last_forward
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        window = self._window
        entropy_sum = (entropies * mask).sum()
        self._collect(window, inputs, logps.detach(), entropy_sum.item(), mask)
        if self._ceiling is not None:
            if self._one_pass:
                window.entropy = entropy_sum.item() / max(window.tokens, 1)
            weight = entropy_ceiling_gradient_weight(window.entropy, self._ceiling, self.adapt.entropy_coef)
            if weight:
                # Gradients are averaged over processes, `tokens` counts those of all.
                share = self.accelerator.num_processes / max(window.tokens, 1)
                loss = loss + weight * entropy_sum * share
        return loss

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

    def _collect(
        self, window: Window, inputs: Batch, logps: Tensor, entropy_sum: float, mask: Tensor
    ) -> None:
        """Add a pass to its mini-batch's token sums: entropy, divergence, clipped tokens, policy tokens."""
        sums = {"entropy": entropy_sum, "tokens": mask.sum().item()}
        advantages = inputs["advantages"][:, None]
        policy = mask.bool() & (advantages != 0)
        sums["policy_tokens"] = policy.sum().item()
        if "old_per_token_logps" in inputs:
            ratio = (logps - inputs["old_per_token_logps"]).exp()
            low = (ratio < 1 - self.epsilon_low) & (advantages < 0)
            high = (ratio > 1 + self.epsilon_high) & (advantages > 0)
            sums["clipped"] = ((low | high) & policy).sum().item()
        if "ref_per_token_logps" in inputs:
            gap = inputs["ref_per_token_logps"] - logps
            sums["kl"] = ((gap.exp() - gap - 1) * mask).sum().item()
        for name, value in sums.items():
            window.sums[name] = window.sums.get(name, 0.0) + value

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Collect what TRL logs at each update; close the rollout step's metrics after its last one."""
        super().log(logs, start_time)
        if "grad_norm" not in logs:
            return  # the summary at the end of training
        if not math.isfinite(logs["grad_norm"]) or not math.isfinite(logs["loss"]):
            step = (self.state.global_step - 1) // self.adapt.minibatches_per_step + 1  # counted already
            raise StageError(
                f"{self.adapt.name} diverged in rollout step {step}: loss {logs['loss']}, gradient norm "
                f"{logs['grad_norm']}; lower learning_rate, or kl_coef if the divergence blew up"
            )
        self._updates.append(logs)
        if self.state.global_step % self.adapt.minibatches_per_step == 0:
            self._finish_step()

    def _finish_step(self) -> None:
        config = self.adapt
        names = ("entropy", "tokens", "policy_tokens", "clipped", "kl")
        sums = {name: self._total(sum(w.sums.get(name, 0.0) for w in self._windows)) for name in names}
        tokens = max(sums["tokens"], 1)
        entropies = [self._total(w.sums["entropy"]) / max(w.tokens, 1) for w in self._windows]
        ceiling = self._ceiling
        metrics: dict[str, Any] = {
            "step": self.state.global_step // config.minibatches_per_step,
            **self._rollout,
            "entropy": sums["entropy"] / tokens,
            "entropy_ceiling": ceiling,
            "entropy_penalty": sum(entropy_ceiling_loss(h, ceiling, config.entropy_coef) for h in entropies)
            / len(entropies)
            if ceiling is not None
            else 0.0,
            "kl": sums["kl"] / tokens if config.kl_coef else None,
            "clip_share": sums["clipped"] / max(sums["policy_tokens"], 1),
            "loss": _mean(update["loss"] for update in self._updates),
            "grad_norm": _mean(float(update["grad_norm"]) for update in self._updates),
            "learning_rate": self._updates[-1]["learning_rate"],
        }
        seconds = dict(self._seconds)
        seconds["step_s"] = time.perf_counter() - seconds["step_s"]
        seconds["update_s"] = seconds["step_s"] - sum(v for k, v in seconds.items() if k != "step_s")
        metrics |= {name: round(value, 4) for name, value in seconds.items()}
        self._updates = []
        if self.accelerator.is_main_process:
            append_jsonl(self.folder / "metrics.jsonl", [metrics])
            if self.on_step:
                self.on_step(metrics)

    def _total(self, value: float) -> float:
        """Return the sum of `value` over all processes."""
        if self.accelerator.num_processes == 1:
            return value
        local = torch.tensor(value, dtype=torch.float64, device=self.args.device)
        return self.accelerator.reduce(local, reduction="sum").item()

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - begin


def _scored_elsewhere(*args: Any, **kwargs: Any) -> list[float]:
    """Stand in for a reward function, which TRL insists on; rewards are computed in `_roll_out`."""
    raise AssertionError("rewards come from score_groups")


def _prompt_hash(ids: list[int]) -> str:
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:8]


def _split(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)
