"""The text the coder learns from: programs with their authors' errors, tips, probe inputs; its tokenizer."""

from __future__ import annotations

import multiprocessing
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tipprobe.models.types import Prompt
from tipprobe.problems.minicode.programs import (
    Spec,
    draw_data,
    starter_code,
    statement,
    write_input,
    write_program,
)
from tipprobe.problems.minicode.world import Tip, WorldConfig, draw_deeds, draw_spec, draw_tip, specs
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt, probe_prompt, tip_request_prompt

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

PAD, END, USER, ASSISTANT = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|assistant|>' if message['role'] == 'assistant' else '<|user|>' }}"
    "{{ message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
VOCABULARY = 1024
CONTEXT = 512
#: Longest document, in tokens, that enters the corpus; measured, fewer than 1 in 1,000 are longer.
LONGEST_DOCUMENT = 288
#: Documents that one process makes at a time; part of what the seed decides.
SHARD = 10_000


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of the corpus: programs without a tip take the rest.

    Attributes:
        guided: programs written with a tip in the prompt: 50 % right, 40 % misleading, the rest about an
            operation of some other problem, so that a tip is not followed blindly.
        guided_underspecified: share of under-specified problems among those.  Left at the world's 0.2, there
            are about a thousand documents for each open rule, and a coder of a million parameters then
            ignores the tips about half of the rules.
        probes: probe inputs, with zero to eight earlier inputs shown.
        tips: tips asked for, right about half of the time.
    """

    guided: float = 0.3
    guided_underspecified: float = 0.6
    probes: float = 0.15
    tips: float = 0.05


def fenced(program: str) -> str:
    """Return a reply that holds `program`."""
    return f"```python\n{program}\n```"


def bare_problem(spec: Spec) -> Problem:
    """Return the problem without tests, enough for a prompt."""
    entry_point = "solve" if spec.kind == "call" else None
    return Problem(
        "corpus", statement(spec), spec.kind, entry_point=entry_point, starter_code=starter_code(spec)
    )


def draw_document(config: WorldConfig, mixture: Mixture, rng: random.Random) -> tuple[Prompt, str]:
    """Return one prompt with one reply, as some programmer may have written it."""
    task = rng.random() - mixture.guided
    guided = task < 0
    spec = next(specs(config, rng, "pretraining", mixture.guided_underspecified if guided else None))
    problem = bare_problem(spec)
    if 0 <= task < mixture.probes:
        return probe_document(spec, problem, rng)
    if 0 <= task - mixture.probes < mixture.tips:
        return tip_request_prompt(problem), draw_corpus_tip(spec, config, rng, right=0.5, misleading=0.2).text
    tip = draw_corpus_tip(spec, config, rng, right=0.5, misleading=0.4) if guided else None
    program = write_program(spec, draw_deeds(spec, config, rng, tip), rng)
    return code_prompt(problem, tip.text if tip else None), fenced(program)


def draw_corpus_tip(
    spec: Spec, config: WorldConfig, rng: random.Random, *, right: float, misleading: float
) -> Tip:
    """Return a tip that is right, misleading, or (the rest) about an operation of some other problem."""
    opened = [step for step in spec.steps if step.op.open]
    step = opened[0] if opened and rng.random() < 0.8 else rng.choice(spec.steps)
    kind = rng.random()
    if kind < right + misleading:
        return draw_tip(step, kind < right, rng)
    names = {step.op.name for step in spec.steps}
    others = [step for step in draw_spec(config, rng, "pretraining").steps if step.op.name not in names]
    return Tip(draw_tip(rng.choice(others or spec.steps), True, rng).text)


def probe_document(spec: Spec, problem: Problem, rng: random.Random) -> tuple[Prompt, str]:
    """Return a request for one more probe with its answer: mostly new and valid, at times faulty."""
    wanted = rng.randint(1, 9)
    inputs = list(dict.fromkeys(write_input(spec, draw_data(spec, rng)).rstrip("\n") for _ in range(wanted)))
    *previous, reply = inputs
    fault = rng.random()
    if fault < 0.03 and previous:
        reply = rng.choice(previous)
    elif fault < 0.05:
        reply = reply[: rng.randint(1, len(reply))] + rng.choice((" a", ",,", " [", "?"))
    return probe_prompt(problem, previous), reply


def render(prompt: Prompt, reply: str) -> tuple[str, str]:
    """Return the text before and after the point where the model starts to write (the chat template's)."""
    return "".join(f"{USER}{m['content']}{END}" for m in prompt) + ASSISTANT, reply + END


def train_tokenizer(config: WorldConfig, mixture: Mixture, seed: int, n_documents: int = 20_000) -> Tokenizer:
    """Return a byte-level BPE tokenizer trained on documents of the corpus."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    rng = random.Random(f"tokenizer/{seed}")
    texts: list[str] = []
    for _ in range(n_documents):
        prompt, reply = draw_document(config, mixture, rng)
        texts += [prompt[0]["content"], reply]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, END, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def fast_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Return `tokenizer` in the shape that engines load, with its chat template."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokenised documents.

    Attributes:
        ids: (n, LONGEST_DOCUMENT) uint16, padded with 0 on the right.
        starts: (n,) int32, where the replies begin.
        lengths: (n,) int32, where the documents end.
    """

    ids: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


def tokenise_shard(job: tuple[WorldConfig, Mixture, str, str, int]) -> Tokens:
    """Return the documents of one shard: (config, mixture, tokenizer as JSON, seed, number of documents)."""
    from tokenizers import Tokenizer

    config, mixture, tokenizer_json, seed, n_documents = job
    tokenizer = Tokenizer.from_str(tokenizer_json)
    rng = random.Random(seed)
    texts = [render(*draw_document(config, mixture, rng)) for _ in range(n_documents)]
    heads = tokenizer.encode_batch_fast([head for head, _ in texts])
    tails = tokenizer.encode_batch_fast([tail for _, tail in texts])
    fitting = [
        (h.ids, t.ids) for h, t in zip(heads, tails, strict=True) if len(h) + len(t) <= LONGEST_DOCUMENT
    ]
    ids = np.zeros((len(fitting), LONGEST_DOCUMENT), dtype=np.uint16)
    for row, (head, tail) in zip(ids, fitting, strict=True):
        row[: len(head) + len(tail)] = head + tail
    starts = np.array([len(head) for head, _ in fitting], dtype=np.int32)
    return Tokens(ids, starts, starts + np.array([len(tail) for _, tail in fitting], dtype=np.int32))


def make_tokens(
    config: WorldConfig, mixture: Mixture, tokenizer: Tokenizer, n_documents: int, seed: int, workers: int
) -> Tokens:
    """Return about `n_documents` tokenised documents (too long ones left out), made by `workers` processes.

    The result depends on `seed`, not on the number of workers.
    """
    jobs = [
        (config, mixture, tokenizer.to_str(), f"corpus/{seed}/{first}", min(SHARD, n_documents - first))
        for first in range(0, n_documents, SHARD)
    ]
    if workers <= 1:
        shards = [tokenise_shard(job) for job in jobs]
    else:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            shards = pool.map(tokenise_shard, jobs, chunksize=1)
    return Tokens(
        np.concatenate([shard.ids for shard in shards]),
        np.concatenate([shard.starts for shard in shards]),
        np.concatenate([shard.lengths for shard in shards]),
    )
