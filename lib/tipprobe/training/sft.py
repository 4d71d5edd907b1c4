"""Fine-tuning a proposer on verified tips: TRL's `SFTTrainer` on rows that were tokenised here.

A row is the very prompt that the proposer gets later (`tipprobe.prompts.tip_request_prompt`), then the tip
and the end token; only tip and end token are learnt.  Rows longer than `TipTuning.max_tokens` are dropped and
counted: TRL would cut them without a word, and a tip without its end teaches to go on for ever.

The run folder holds ``config.json``, ``rows.jsonl`` (what was learnt), ``dropped.json``, ``log.csv`` (a row
an update), ``checkpoint/`` and, last, ``done.json``.  It takes seconds to minutes, so a run that was killed
starts again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import Dataset
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
)
from trl import SFTConfig, SFTTrainer

from tipprobe.errors import DataError, StageError
from tipprobe.files import write_json
from tipprobe.models.load import load_model, model_revision
from tipprobe.models.transformers_sampler import encode_prompt
from tipprobe.models.types import Prompt
from tipprobe.problems.schema import Problem, write_jsonl
from tipprobe.prompts import RequestStyle, tip_request_prompt
from tipprobe.training.runs import Silent, check_training_device, run_once, save_checkpoint

#: Label of a token that the loss leaves out.
IGNORED = -100
#: Share of the updates, rounded down, over which the learning rate rises (see `rate_share`).
WARMUP = 0.03
#: Columns of the log, as TRL names them.
LOGGED = ("epoch", "loss", "learning_rate", "grad_norm", "mean_token_accuracy", "entropy")

#: Called with (updates done, updates in all, values of the last one).
Progress = Callable[[int, int, dict[str, Any]], None]
#: Problem id, what is read, what is to be written.
Example = tuple[str, Prompt, str]


@dataclass(frozen=True, kw_only=True)
class TipTuning:
    """One fine-tuning.

    Attributes:
        model: what becomes the proposer: checkpoint folder, hub id, GGUF file or embedded coder.
        out: folder in which the run folder is made.
        tip_style: wording of the request for a tip.
        epochs: passes over the tips.
        learning_rate: peak of AdamW's.
        batch_size: tips per optimiser update.
        micro_batch: tips per forward and backward pass at most; changes memory, not the gradient.
        max_tokens: longest prompt with tip.
        max_grad_norm: gradients are clipped to it.
        seed: of the order of rows.
        device: ``auto``, ``cpu`` or ``cuda``.
        name: of the run folder.
    """

    model: str
    out: str
    tip_style: RequestStyle
    epochs: int
    learning_rate: float
    batch_size: int
    micro_batch: int
    max_tokens: int
    max_grad_norm: float
    seed: int
    device: str = "auto"
    name: str = "proposer"

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.out) / self.name

    @property
    def checkpoint(self) -> Path:
        """Where the weights are."""
        return self.folder / "checkpoint"

    @property
    def passes(self) -> int:
        """Passes an update: the fewest that split it evenly and fit `micro_batch`."""
        size = self.batch_size
        return next(k for k in range(1, size + 1) if size % k == 0 and size // k <= self.micro_batch)


def fine_tune(
    config: TipTuning, pairs: Sequence[tuple[Problem, str]], progress: Progress | None = None
) -> Path:
    """Fine-tune a proposer on (problem, tip) pairs; return the run folder.

    A finished run of the same pairs and numbers is returned as it is.

    Raises:
        DataError: there is no pair, none is short enough, or the model cannot be loaded.
        StageError: another process is working in the run folder, or the loss is no number.
    """
    return learn(config, as_examples(pairs, config.tip_style), progress)


def as_examples(pairs: Sequence[tuple[Problem, str]], style: RequestStyle = "short") -> list[Example]:
    """Return (problem, tip) pairs as what a proposer reads and writes."""
    return [(problem.id, tip_request_prompt(problem, style), tip) for problem, tip in pairs]


def learn(config: TipTuning, examples: Sequence[Example], progress: Progress | None = None) -> Path:
    """Fine-tune on any prompts with their replies; return the run folder.  See `fine_tune`."""
    if not examples:
        raise DataError("no tip to learn from: no pair of a problem and a verified tip was given")
    digest = hashlib.sha256(json.dumps(examples).encode()).hexdigest()[:16]
    fields = {k: v for k, v in asdict(config).items() if k not in ("model", "out", "device", "name")}
    identity = {**fields, "model_revision": model_revision(config.model), "pairs_sha256": digest}
    return run_once(config.folder, identity, lambda: _tune(config, examples, progress), tips=len(examples))


def tip_rows(
    pairs: Sequence[tuple[Problem, str]],
    tokenizer: PreTrainedTokenizerBase,
    max_tokens: int,
    style: RequestStyle = "short",
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rows to learn from, and why others were dropped, by problem id.

    A row has ``problem_id``, ``input_ids`` (prompt, tip, end token) and ``labels`` (the same with `IGNORED`
    on the prompt).
    """
    return example_rows(as_examples(pairs, style), tokenizer, max_tokens)


def example_rows(
    examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, max_tokens: int
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """`tip_rows` for any prompts with their replies."""
    rows, dropped = [], {}
    for problem_id, chat, text in examples:
        prompt = encode_prompt(tokenizer, chat)
        reply = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        if len(prompt) + len(reply) > max_tokens:
            dropped[problem_id] = f"{len(prompt)} + {len(reply)} tokens > {max_tokens}"
        else:
            labels = [IGNORED] * len(prompt) + reply
            rows.append({"problem_id": problem_id, "input_ids": [*prompt, *reply], "labels": labels})
    return rows, dropped


def tip_trainer(
    config: TipTuning,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[dict[str, Any]],
    progress: Progress | None = None,
) -> SFTTrainer:
    """Return TRL's trainer over tokenised rows (`tip_rows`).

    Raises:
        ParameterError: a GPU is asked for by number.
    """
    check_training_device(config.device)
    on_cpu = model.device.type == "cpu"
    args = SFTConfig(
        output_dir=str(config.folder / "state"),
        max_length=config.max_tokens,
        dataset_kwargs={"skip_prepare_dataset": True},  # rows are ready, and none is too long
        packing=False,
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size // config.passes,
        gradient_accumulation_steps=config.passes,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        weight_decay=0.0,
        gradient_checkpointing=False,
        bf16=not on_cpu,
        use_cpu=on_cpu,
        seed=config.seed,
        data_seed=config.seed,
        save_strategy="no",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    args._n_gpu = 1  # without a launcher, more visible GPUs would mean DataParallel
    columns = ("input_ids", "labels")
    trainer = TipTrainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list([{name: row[name] for name in columns} for row in rows]),
        processing_class=tokenizer,
        callbacks=[_Report(progress)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def rate_share(update: int, updates: int) -> float:
    """Return the learning rate of an update as a share of its peak, in (0, 1]: up a line, then down a cosine.

    The schedule of `transformers` begins at 0, so that its first update does nothing, which in a short run is
    a large part of it and in a run of one update all.

    Args:
        update: its number, from 0.
        updates: how many there are, at least 1.
    """
    warmup = int(WARMUP * updates)
    if update < warmup:
        return (update + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (update - warmup) / (updates - warmup)))


class TipTrainer(Silent, SFTTrainer):
    """TRL's trainer with the learning rates of `rate_share`, without telemetry and model cards."""

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LambdaLR:
        """Called by the training loop."""
        if self.lr_scheduler is None:
            shares = partial(rate_share, updates=num_training_steps)
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, shares)
            self._created_lr_scheduler = True
        return self.lr_scheduler


def _tune(config: TipTuning, examples: Sequence[Example], progress: Progress | None) -> None:
    model, tokenizer = load_model(config.model, config.device)
    rows, dropped = example_rows(examples, tokenizer, config.max_tokens)
    write_json(config.folder / "dropped.json", dropped)
    if not rows:
        raise DataError(
            f"every one of the {len(examples)} tips is longer than {config.max_tokens} tokens with its "
            "prompt: raise sft_max_tokens"
        )
    write_jsonl(config.folder / "rows.jsonl", _readable(rows, tokenizer))
    trainer = tip_trainer(config, model, tokenizer, rows, progress)
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    table = pd.DataFrame([{name: entry.get(name) for name in LOGGED} for entry in log])
    table.insert(0, "update", range(1, len(table) + 1))
    table.to_csv(config.folder / "log.csv", index=False, lineterminator="\n")
    if not table["loss"].map(math.isfinite).all():
        raise StageError("the fine-tuning diverged: lower sft_learning_rate")
    save_checkpoint(trainer.accelerator.unwrap_model(trainer.model), tokenizer, config.checkpoint)


def _readable(rows: Sequence[dict[str, Any]], tokenizer: PreTrainedTokenizerBase) -> list[dict[str, Any]]:
    """Return each row as text, split where learning begins."""
    found = []
    for row in rows:
        start = row["labels"].count(IGNORED)
        prompt, learnt = tokenizer.batch_decode([row["input_ids"][:start], row["input_ids"][start:]])
        found.append(
            {
                "problem_id": row["problem_id"],
                "prompt": prompt,
                "learnt": learnt,
                "n_tokens": len(row["labels"]),
            }
        )
    return found


class _Report(TrainerCallback):
    """Passes what TRL logs at each update to a progress function."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Called by the training loop."""
        if self._progress and "loss" in (logs or {}):
            self._progress(state.global_step, state.max_steps, dict(logs))
