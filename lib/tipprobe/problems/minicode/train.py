"""Train the embedded coder from scratch: corpus, tokenizer, model, checkpoint.

    python -m tipprobe.problems.minicode.train --size 1m --out DIR

The recipe is plain: next-token loss on the replies, AdamW, a warm-up and a linear decay, batches of similar
length.  Every number of a run is written to ``recipe.json`` beside the weights.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from tipprobe.problems.minicode.card import write_card
from tipprobe.problems.minicode.corpus import (
    CONTEXT,
    Mixture,
    Tokens,
    fast_tokenizer,
    make_tokens,
    train_tokenizer,
)
from tipprobe.problems.minicode.world import WorldConfig
from tipprobe.prompts import prompt_hashes

#: Shapes; heads are 64 wide because inference engines refuse narrower ones.
SIZES = {
    "1m": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 2},
    "5m": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 4},
}
STEPS = {"1m": 5600, "5m": 3360}
LEARNING_RATE = {"1m": 4e-3, "5m": 2e-3}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what comes out of a training run, machine and library versions apart.

    Attributes:
        size: key of `SIZES`.
        steps: optimiser steps.
        batch: documents a step.
        learning_rate: peak, after a warm-up over the first `warmup` share of steps; it decays linearly to 0.
        documents: size of the corpus; repeated as often as the steps need.
        tokenizer_documents: documents the tokenizer is trained on.
        seed: of corpus, initial weights and batch order.
    """

    size: str = "1m"
    steps: int = 5600
    batch: int = 256
    learning_rate: float = 4e-3
    warmup: float = 0.05
    weight_decay: float = 0.05
    max_grad_norm: float = 1.0
    documents: int = 600_000
    tokenizer_documents: int = 20_000
    seed: int = 0
    world: WorldConfig = field(default_factory=WorldConfig)
    mixture: Mixture = field(default_factory=Mixture)


def new_model(size: str, vocabulary: int, pad: int, end: int) -> LlamaForCausalLM:
    """Return an untrained coder in float32."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
        **SIZES[size],
    )
    return LlamaForCausalLM(config)


def batches(tokens: Tokens, batch: int, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield `steps` arrays of `batch` document indices; documents of a batch have similar lengths."""
    n = len(tokens.lengths)
    batch = min(batch, n)
    done = 0
    while done < steps:
        order = rng.permutation(n)
        for first in range(0, n, 32 * batch):
            chunk = order[first : first + 32 * batch]
            chunk = chunk[np.argsort(tokens.lengths[chunk], kind="stable")]
            for start in batch * rng.permutation(len(chunk) // batch):
                if done == steps:
                    return
                yield chunk[start : start + batch]
                done += 1


def reply_loss(
    model: LlamaForCausalLM, ids: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Return the mean next-token loss over the reply tokens of right-padded documents `ids` (B, T)."""
    hidden = model.model(
        input_ids=ids[:, :-1]
    ).last_hidden_state  # padding is to the right: causal masking suffices
    places = torch.arange(1, ids.shape[1], device=ids.device)
    replies = (places >= starts[:, None]) & (places < ends[:, None])
    return F.cross_entropy(model.lm_head(hidden[replies]).float(), ids[:, 1:][replies])


def fit(model: LlamaForCausalLM, tokens: Tokens, recipe: Recipe, device: str) -> list[dict[str, float]]:
    """Train `model` in place and return the loss curve; prints a line every 5 % of the steps."""
    model.to(device).train()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98), fused=device == "cuda")
    warmup = max(1, math.ceil(recipe.warmup * recipe.steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warmup, (recipe.steps - s) / max(1, recipe.steps - warmup))
    )
    ids = torch.from_numpy(tokens.ids.astype(np.int16)).to(device)  # the vocabulary fits
    starts, ends = torch.from_numpy(tokens.starts).to(device), torch.from_numpy(tokens.lengths).to(device)
    every = max(1, recipe.steps // 20)
    curve: list[dict[str, float]] = []
    recent: list[torch.Tensor] = []
    begin = time.perf_counter()
    order = batches(tokens, recipe.batch, recipe.steps, np.random.default_rng(recipe.seed))
    for step, rows in enumerate(order, 1):
        longest = int(tokens.lengths[rows].max())
        index = torch.from_numpy(rows).to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = reply_loss(model, ids[index, :longest].long(), starts[index], ends[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimizer.step()
        schedule.step()
        recent.append(loss.detach())
        if step % every == 0 or step == recipe.steps:
            mean = float(torch.stack(recent).mean())
            recent.clear()
            curve.append({"step": step, "loss": round(mean, 5)})
            spent = time.perf_counter() - begin
            say(f"{recipe.size} step {step}/{recipe.steps} loss {mean:.4f} after {spent:.0f} s")
    return curve


def say(line: str) -> None:
    """Print one progress line at once; this module is a program, not only a library."""
    print(line, flush=True)  # noqa: T201


def train(recipe: Recipe, out: Path, device: str = "cpu", workers: int = 1) -> Path:
    """Run the whole recipe and write the checkpoint folder `out`; return it."""
    begin = time.perf_counter()
    torch.manual_seed(recipe.seed)
    tokenizer = train_tokenizer(recipe.world, recipe.mixture, recipe.seed, recipe.tokenizer_documents)
    tokens = make_tokens(recipe.world, recipe.mixture, tokenizer, recipe.documents, recipe.seed, workers)
    fast = fast_tokenizer(tokenizer)
    model = new_model(recipe.size, tokenizer.get_vocab_size(), fast.pad_token_id, fast.eos_token_id)
    parameters = sum(p.numel() for p in model.parameters())
    corpus_s = time.perf_counter() - begin
    say(
        f"{recipe.size}: {parameters:,} parameters; {len(tokens.ids):,} documents, "
        f"{tokens.lengths.mean():.0f} tokens on average, after {corpus_s:.0f} s"
    )
    curve = fit(model, tokens, recipe, device)
    out.mkdir(parents=True, exist_ok=True)
    model.to("cpu", torch.bfloat16)
    model.generation_config = GenerationConfig(
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        do_sample=True,
        temperature=1.0,
        top_p=0.8,
        top_k=20,
    )
    model.save_pretrained(out)
    fast.save_pretrained(out)
    record = asdict(recipe) | {
        "shape": SIZES[recipe.size],
        "parameters": parameters,
        "documents_kept": len(tokens.ids),
        "mean_tokens": round(float(tokens.lengths.mean()), 2),
        "curve": curve,
        "prompts": prompt_hashes(),
        "command": command_line(recipe),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "workers": workers,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "corpus_s": round(corpus_s, 1),
        "train_s": round(time.perf_counter() - begin, 1),
    }
    (out / "recipe.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    write_card(out)
    return out


def usual_recipe(size: str) -> Recipe:
    """Return the recipe that a packaged checkpoint was trained by."""
    return Recipe(size, STEPS[size], learning_rate=LEARNING_RATE[size])


def flat(recipe: Recipe) -> dict[str, Any]:
    """Return all knobs of a recipe by their names on the command line (underscores for hyphens)."""
    values = asdict(recipe)
    world, mixture = values.pop("world"), values.pop("mixture")
    return values | {"world_seed" if name == "seed" else name: v for name, v in world.items()} | mixture


def command_line(recipe: Recipe) -> str:
    """Return the command that runs `recipe`; options at their defaults are left out."""
    usual = flat(usual_recipe(recipe.size))
    changed = [f"--{k.replace('_', '-')} {v}" for k, v in flat(recipe).items() if v != usual[k]]
    words = ["python -m tipprobe.problems.minicode.train", f"--size {recipe.size}", *changed, "--out DIR"]
    return " ".join(words)


def parse_recipe(arguments: list[str] | None = None) -> tuple[Recipe, argparse.Namespace]:
    """Return the recipe and the remaining options of a command line."""
    parser = argparse.ArgumentParser(description="Train the embedded coder.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes making documents")
    parser.add_argument("--size", choices=sorted(SIZES), default="1m")
    for name, value in flat(Recipe()).items():
        if name != "size":
            parser.add_argument(
                f"--{name.replace('_', '-')}", type=type(value), default=argparse.SUPPRESS, help=f"{value}"
            )
    options = parser.parse_args(arguments)
    values = flat(usual_recipe(options.size)) | vars(options)
    world = {f.name: values["world_seed" if f.name == "seed" else f.name] for f in fields(WorldConfig)}
    mixture = {f.name: values[f.name] for f in fields(Mixture)}
    plain = {f.name: values[f.name] for f in fields(Recipe) if f.name not in ("world", "mixture")}
    return Recipe(**plain, world=WorldConfig(**world), mixture=Mixture(**mixture)), options


def main() -> None:
    """Train as the command line says."""
    recipe, options = parse_recipe()
    train(recipe, options.out, options.device, options.workers)


if __name__ == "__main__":
    main()
