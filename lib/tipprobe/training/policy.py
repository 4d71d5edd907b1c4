"""Policy optimisation on rewards of our own: a thin subclass of TRL's `GRPOTrainer`.

TRL keeps the loop, optimiser, schedule, checkpoints, device placement and the clipped loss with its k3
divergence.  What is ours is what happens between sampling and that loss:

1. One rollout step samples G replies for each prompt and has a subclass score all of them at once and turn
   the scores of each group into advantages and a mask.
2. A mini-batch holds whole groups.  (TRL shuffles rows across prompts.)
3. TRL's ``dapo`` loss is a sum over rows divided by one token count.  Divergence and entropy are means over
   all response tokens N of the mini-batch; rows that the mask took out of the policy term have advantage 0
   there.  Where the policy term is to be averaged over the retained tokens M only, advantages are scaled
   by N / M, which is exact because the clipped loss is homogeneous in the advantage.
4. Forward passes carry little padding, and nothing is computed that is not used: log-probabilities of the
   sampling policy only for mini-batches after the first, reference ones only with a divergence term.

Log-probabilities and entropies are of the full vocabulary at the rollout temperature, whatever top_p and
top_k cut off in sampling.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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
from tipprobe.models.load import load_model
from tipprobe.models.transformers_sampler import (
    context_length,
    encode_prompt,
    generate_ids,
    pad_token_id,
)
from tipprobe.models.types import Completion, Prompt
from tipprobe.probes.rng import keyed_rng, keyed_seed
from tipprobe.problems.schema import write_jsonl
from tipprobe.training.config import PolicyConfig
from tipprobe.training.objectives import policy_denominator
from tipprobe.training.runs import Silent, check_training_device, keep_steps, restart_point, save_checkpoint

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


def grpo_config(config: PolicyConfig, output_dir: Path, device: str) -> GRPOConfig:
    """Translate a `PolicyConfig` into TRL's terms.

    TRL counts optimiser updates where the paper counts rollout steps.  The divergence weight stays 0 here:
    with another value TRL would load the reference model a second time by name.

    Raises:
        ParameterError: a GPU is asked for by number.
    """
    updates = config.minibatches_per_step
    check_training_device(device)
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


#: Records of a rollout step, and (advantages, keep) of each group.
Scored = tuple[list[dict[str, Any]], list[tuple[np.ndarray, np.ndarray]]]


class PolicyTrainer(Silent, GRPOTrainer):
    """Trains a policy on groups of replies; a subclass says what the replies are worth.

    A subclass gives `score` and `summarise`, and may add a term to the loss (`entropy_term`).

    Args:
        config: all numbers.
        model: float32 causal language model; a frozen copy serves as reference.
        tokenizer: its tokenizer.
        prompts: what to sample replies for; each must leave room for a reply in the context.
        problem_ids: the problem behind each prompt.
        folder: run folder; ``rollouts.jsonl`` and ``metrics.jsonl`` are appended to, restart points lie in
            ``state/``.
        on_step: called with the metrics of each finished rollout step.

    Raises:
        ParameterError: processes do not divide the prompts of a mini-batch.
        DataError: there are fewer problems than prompts a step.
    """

    def __init__(
        self,
        config: PolicyConfig,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Prompt],
        problem_ids: Sequence[str],
        folder: Path,
        on_step: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        if len(prompts) < config.prompts_per_step:
            raise DataError(
                f"{len(prompts)} usable problems, but prompts_per_step is {config.prompts_per_step}: "
                "give more problems or lower it"
            )
        self.adapt = config
        self.problem_ids = list(problem_ids)
        self.folder = folder
        self.on_step = on_step
        self.prompt_ids = [encode_prompt(tokenizer, prompt) for prompt in prompts]
        self._windows: list[Window] = []
        self._updates: list[dict[str, float]] = []
        self._rollout: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        reference = copy.deepcopy(model).requires_grad_(False).eval() if config.kl_coef else None
        rows = [{"prompt": prompt, "index": i} for i, prompt in enumerate(prompts)]
        super().__init__(
            model=model,
            reward_funcs=_scored_elsewhere,
            args=grpo_config(
                config, folder / "state", config.device if ":" in config.device else model.device.type
            ),
            train_dataset=Dataset.from_list(rows),
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

    def prompt_records(self) -> list[dict[str, Any]]:
        """Return hash (as in the rollout records), problem id and rendered text of each prompt."""
        texts = self._tokenizer.batch_decode(self.prompt_ids)
        return [
            {"prompt": prompt_hash(ids), "problem_id": problem_id, "text": text}
            for ids, problem_id, text in zip(self.prompt_ids, self.problem_ids, texts, strict=True)
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
        """Begin an update."""
        self._window = window

    @property
    def _one_pass(self) -> bool:
        """Whether a mini-batch's entropy comes out of its own forward pass."""
        return self.adapt.micro_batches == 1 and self.accelerator.num_processes == 1

    # -- rollout --

    def score(self, indices: list[int], groups: list[list[Completion]]) -> Scored:
        """Return a record for each reply, groups in order, and (advantages, keep) of each group.

        Args:
            indices: the prompt behind each group.
            groups: (prompts, G) replies.
        """
        raise NotImplementedError

    def summarise(self, records: list[dict[str, Any]]) -> dict[str, float]:
        """Return the rollout step's metrics from its records."""
        raise NotImplementedError

    def _roll_out(self, indices: list[int]) -> list[Window]:
        """Sample, score and weigh one group for each prompt index; return the updates to make of them."""
        config = self.adapt
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
            records, weights = self.score(indices, _split(completions, config.group_size))
        records = gather_object(records)
        if self.accelerator.is_main_process:
            append_jsonl(self.folder / "rollouts.jsonl", records)
        self._rollout = self.summarise(records)
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
        return loss + self.entropy_term(window, entropy_sum)

    def entropy_term(self, window: Window, entropy_sum: Tensor) -> Tensor | float:
        """Return what a pass adds to the loss; `entropy_sum` is its sum of token entropies, with gradient."""
        return 0.0

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
        metrics: dict[str, Any] = {
            "step": self.state.global_step // config.minibatches_per_step,
            **self._rollout,
            "entropy": sums["entropy"] / tokens,
            **self.entropy_metrics(entropies),
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

    def entropy_metrics(self, entropies: Sequence[float]) -> dict[str, Any]:
        """Return further metrics of a rollout step from the mean token entropy of each mini-batch."""
        return {}

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
    """Stand in for a reward function, which TRL insists on; rewards are computed in `PolicyTrainer.score`."""
    raise AssertionError("rewards come from PolicyTrainer.score")


def too_long(
    prompt: Prompt, max_tokens: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> str | None:
    """Say why a prompt leaves no room for a reply of `max_tokens` tokens, None if it does."""
    context = context_length(model)
    length = len(encode_prompt(tokenizer, prompt))
    if context is None or length + max_tokens <= context:
        return None
    return f"prompt of {length} tokens + max_tokens {max_tokens} > context {context}"


def prompt_hash(ids: list[int]) -> str:
    """Return 8 hex digits that stand for a prompt's token ids in the rollout records."""
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:8]


def _split(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def train_resumable(
    config: PolicyConfig,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    build: Callable[[], AbstractContextManager[PolicyTrainer]],
) -> None:
    """Train from the last restart point of the run folder, if there is one, and save the final weights.

    Records of steps after that point are discarded; they are made again.

    Args:
        config: of the run.
        model: what `build` trains.
        tokenizer: saved beside the weights.
        build: opens a trainer of `model`, and what it needs; not called if only the saving was left.
    """
    folder = config.folder
    checkpoint, done = restart_point(folder / "state", config.minibatches_per_step)
    keep_steps(folder / "rollouts.jsonl", done)
    keep_steps(folder / "metrics.jsonl", done)
    if done == config.steps:
        # Killed after the last step.  A trainer that resumes there looks at its step limit one update late.
        model, _ = load_model(str(checkpoint), config.device)
    else:
        with build() as trainer:
            write_jsonl(folder / "prompts.jsonl", trainer.prompt_records())
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        model = trainer.accelerator.unwrap_model(trainer.model)
    save_checkpoint(model, tokenizer, config.checkpoint)
