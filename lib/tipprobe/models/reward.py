"""Reward models: a number for a problem with a program, higher where the program is more likely right.

Two kinds of checkpoint are read, told apart by what is in them.  A *value head* model (AceCodeRM) is a causal
language model with one linear layer, ``v_head.summary``, bias included.  A *sequence classification* model
(Skywork, and what TRL's ``RewardTrainer`` saves) has one label, its layer is called ``score``.  Both are read
at one position, and both heads are applied here in float32, whatever the weights' type.

A score must not depend on what else is in the batch.  So rows are padded on the right, the position is taken
from the row's own tokens, and `TransformersRewardModel.self_test` compares a mixed batch with single rows
when a model is loaded.
"""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from tipprobe.errors import DataError, ParameterError
from tipprobe.models.load import (
    first_line,
    hub_config,
    model_revision,
    pick_device,
    resolve_model,
    split_revision,
)
from tipprobe.models.types import Prompt
from tipprobe.paths import PACKAGE, resolve
from tipprobe.problems.minicode.corpus import fenced
from tipprobe.prompts import user_prompt

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Kind = Literal["value_head", "classification"]
Reply = Literal["fenced", "bare"]
Progress = Callable[[int, int], None]

#: The reward models that come with the package, and where their checkpoints lie.
EMBEDDED_REWARD = {"minicode-rm-1m": PACKAGE / "problems" / "minicode" / "weights" / "rm-1m"}
#: How a program stands in the scored reply, by kind, as the authors of the two families show it.
USUAL_REPLY: dict[Kind, Reply] = {"value_head": "bare", "classification": "fenced"}
#: Largest difference between a score in a mixed batch and alone that the self-test lets pass.  Half precision
#: rounds differently in batches of another shape; scores of the published models span tens.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.05}
#: Texts of the self-test, of different lengths on purpose; the first one is the longest.
_SELF_TEST = (
    (
        "Read two integers from one line and print their sum, or the word none if the line is empty.",
        'line = input().split()\nprint(sum(map(int, line)) if line else "none")',
    ),
    ("Print 1.", "print(1)"),
    ("Return the number of even entries of xs.", "def solve(xs):\n    return sum(x % 2 == 0 for x in xs)"),
    ("Print the input.", "print(input())"),
)

log = logging.getLogger(__name__)


class RewardModel(Protocol):
    """Something that scores programs."""

    #: What identifies the weights: hub id with revision, or a hash of the checkpoint's files.
    revision: str

    def score(self, pairs: Sequence[tuple[Prompt, str]], *, progress: Progress | None = None) -> np.ndarray:
        """Return (pairs,) float32: a score for each prompt (*without* a tip) with a program; NaN for none."""
        ...

    def token_counts(self, pairs: Sequence[tuple[Prompt, str]]) -> np.ndarray:
        """Return (pairs,) int64: how many tokens scoring each pair reads."""
        ...


def load_reward_model(
    spec: str,
    device: str = "auto",
    *,
    dtype: str = "float32",
    batch_size: int = 64,
    max_tokens: int | None = None,
    reply: Reply | None = None,
) -> TransformersRewardModel:
    """Load a reward model, and try it on a few texts before it is used.

    Args:
        spec: ``minicode-rm-1m``, a checkpoint folder, or a hub id, optionally with ``@revision``.
        device: see `tipprobe.models.load.pick_device`.
        dtype: type of the weights; the head works in float32 in any case.  ``bfloat16`` halves the memory (a
            model of 32 B parameters needs 65 GB instead of 130) and lets a score change by up to
            ``TOLERANCE["bfloat16"]`` with the rest of its batch, so programs whose scores are closer than
            that are ranked by chance, if the same chance in every run.
        batch_size: pairs computed together.
        max_tokens: longest conversation that is scored; the model's context if None.
        reply: whether the program is fenced in the scored reply; by default `USUAL_REPLY` of the kind.

    Raises:
        DataError: nothing can be loaded under that name, the checkpoint is no reward model or lacks its head,
            or the self-test failed.
        ParameterError: the device or the type does not exist.
    """
    where = resolve_reward_model(spec)
    target = pick_device(device)
    if dtype not in TOLERANCE:
        raise ParameterError(f"dtype {dtype!r} is not one of {', '.join(TOLERANCE)}")
    backbone, head, kind, tokenizer = _load(where, dtype)
    model = TransformersRewardModel(
        backbone.to(target).eval(),
        head.to(target).eval(),
        tokenizer,
        kind=kind,
        revision=model_revision(where),
        batch_size=batch_size,
        max_tokens=max_tokens,
        reply=reply or USUAL_REPLY[kind],
    )
    model.self_test(TOLERANCE[dtype])
    return model


def resolve_reward_model(spec: str) -> str:
    """Return the folder or hub id that `load_reward_model` reads for `spec`.

    Raises:
        DataError: a path without anything there, or the embedded checkpoint is missing.
    """
    if spec not in EMBEDDED_REWARD:
        close = difflib.get_close_matches(spec.lower(), EMBEDDED_REWARD, n=1, cutoff=0.9)
        if close and not resolve(spec).exists():
            raise DataError(f"no reward model {spec!r}; did you mean {close[0]}?")
        return resolve_model(spec)
    folder = EMBEDDED_REWARD[spec]
    if not (folder / "config.json").is_file():
        raise DataError(
            f"the checkpoint of the embedded reward model {spec!r} is missing at {folder}; "
            "install the package again"
        )
    return str(folder)


class TransformersRewardModel:
    """`RewardModel` over a model in this process.

    Args:
        backbone: the language model without its output layer: gives ``last_hidden_state``.
        head: linear, hidden size to 1, float32.
        tokenizer: its tokenizer.
        kind: which family the checkpoint is of; decides the position that is read (`read_position`).
        revision: what identifies the weights.
        batch_size: pairs computed together.
        max_tokens: longest conversation that is scored, the model's context if None.
        reply: whether the program is fenced in the reply.

    Attributes:
        too_long: pairs so far that were longer than that.  Their score is NaN: a text that was cut off has no
            end to read a score at.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        head: nn.Linear,
        tokenizer: PreTrainedTokenizerBase,
        *,
        kind: Kind,
        revision: str,
        batch_size: int = 64,
        max_tokens: int | None = None,
        reply: Reply = "fenced",
    ) -> None:
        from tipprobe.models.transformers_sampler import context_length

        self.backbone, self.head, self.tokenizer = backbone, head, tokenizer
        self.kind, self.revision, self.batch_size, self.reply = kind, revision, batch_size, reply
        limits = [limit for limit in (max_tokens, context_length(backbone)) if limit is not None]
        self.max_tokens = min(limits, default=None)
        self.too_long = 0

    def score(self, pairs: Sequence[tuple[Prompt, str]], *, progress: Progress | None = None) -> np.ndarray:
        """Return (pairs,) float32: the score of each prompt (without a tip) with a program.

        NaN for a pair longer than `max_tokens`; such pairs are counted and logged.
        """
        encoded = self.encode(pairs)
        scores = np.full(len(pairs), np.nan, dtype=np.float32)
        fitting = [
            i for i, ids in enumerate(encoded) if self.max_tokens is None or len(ids) <= self.max_tokens
        ]
        dropped = len(pairs) - len(fitting)
        if dropped:
            self.too_long += dropped
            log.warning(
                "%d of %d pairs are longer than %s tokens and get no score",
                dropped,
                len(pairs),
                self.max_tokens,
            )
        fitting.sort(key=lambda i: len(encoded[i]))  # rows of a batch have similar lengths
        for first in range(0, len(fitting), self.batch_size):
            rows = fitting[first : first + self.batch_size]
            scores[rows] = self.score_ids([encoded[i] for i in rows])
            if progress is not None:
                progress(first + len(rows), len(fitting))
        return scores

    def token_counts(self, pairs: Sequence[tuple[Prompt, str]]) -> np.ndarray:
        """Return (pairs,) int64: tokens read for each pair, 0 for one that is too long to be scored."""
        lengths = np.array([len(ids) for ids in self.encode(pairs)], dtype=np.int64)
        return lengths if self.max_tokens is None else np.where(lengths <= self.max_tokens, lengths, 0)

    def encode(self, pairs: Sequence[tuple[Prompt, str]]) -> list[list[int]]:
        """Return the token ids of each pair as a finished conversation."""
        wrap = fenced if self.reply == "fenced" else str
        return encode_conversations(self.tokenizer, [(prompt, wrap(program)) for prompt, program in pairs])

    def score_ids(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Return (rows,) float32: the scores of token ids, computed as one batch padded on the right."""
        import torch

        width = max(map(len, rows))
        # The filling is never looked at, so a missing pad token does no harm and any valid id will do.
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        device = self.backbone.device
        places = torch.tensor([read_position(row, self._skipped_id()) for row in rows], device=device)
        with torch.no_grad(), full_precision():
            hidden = self.backbone(
                input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False
            ).last_hidden_state
            last = hidden[torch.arange(len(rows), device=device), places]
            # Not under a caller's autocast, which would take the head back to half precision.
            with torch.autocast(device.type, enabled=False):
                return self.head(last.float()).squeeze(-1).cpu().numpy()

    def self_test(self, tolerance: float) -> float:
        """Score texts of different lengths in one batch and alone; return the largest difference.

        Raises:
            DataError: it is above `tolerance`, or a score is not a finite number.
        """
        rows = self.encode([(user_prompt(statement), program) for statement, program in _SELF_TEST])
        together = self.score_ids(rows)
        alone = np.concatenate([self.score_ids([row]) for row in rows])
        if not np.isfinite(together).all() or not np.isfinite(alone).all():
            raise DataError(
                f"reward model {self.revision}: scores are not finite ({together.tolist()}); "
                "the weights are damaged, or need dtype bfloat16 or float32"
            )
        difference = float(np.abs(together - alone).max())
        if difference > tolerance:
            raise DataError(
                f"reward model {self.revision}: a score changes by {difference:.3g} with the rest of its "
                f"batch, {tolerance:g} is allowed; selections by it would be arbitrary. Try dtype float32"
            )
        return difference

    def _skipped_id(self) -> int | None:
        """The token that a classification model's own forward pass takes for padding."""
        if self.kind == "value_head":
            return None
        return getattr(self.backbone.config.get_text_config(), "pad_token_id", None)


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 matrices on a GPU in float32, not in TF32, inside the block.

    Whoever builds `transformers.TrainingArguments` with ``tf32=True`` (this package does where it trains on a
    GPU) switches TF32 on for the whole process, not for the training alone.  Measured on an H200, a score
    then changes by several thousandths with the rest of its batch.
    """
    import torch

    matmul = torch.backends.cuda.matmul
    inherited = matmul.fp32_precision == torch.backends.fp32_precision
    before = "none" if inherited else matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def read_position(ids: Sequence[int], skipped: int | None = None) -> int:
    """Return the index at which a conversation's score is read: its last token that is not `skipped`.

    A classification model of `transformers` looks for the last token that differs from its pad token.  Where
    that is the end token too, the end of the conversation is skipped in training as in use, so it must be
    skipped here.  A value head model reads the last token of the attention mask: nothing is skipped.

    Example:
        >>> read_position([5, 6, 2]), read_position([5, 6, 2], skipped=2)
        (2, 1)
    """
    last = len(ids) - 1
    while last > 0 and ids[last] == skipped:
        last -= 1
    return last


def encode_conversations(
    tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[Prompt, str]]
) -> list[list[int]]:
    """Return the token ids of finished conversations, each a prompt and a reply.

    The chat template writes whatever begins a text, so the tokenizer must not add a second start token.
    Without a template (a base model's tokenizer) the messages' texts follow each other, a line end between.
    """
    if not pairs:
        return []
    chats = [[*prompt, {"role": "assistant", "content": reply}] for prompt, reply in pairs]
    if tokenizer.chat_template is None:
        return tokenizer(["\n".join(message["content"] for message in chat) for chat in chats])["input_ids"]
    texts = [tokenizer.apply_chat_template(chat, tokenize=False) for chat in chats]
    return tokenizer(texts, add_special_tokens=False)["input_ids"]


def _load(where: str, dtype: str) -> tuple[PreTrainedModel, nn.Linear, Kind, PreTrainedTokenizerBase]:
    """Return (backbone, float32 head, kind, tokenizer) of a checkpoint."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

    path, revision = split_revision(where)
    if not Path(path).exists():
        hub_config(path, revision)  # one request that fails soon, before the many of the loaders
    options = {"revision": revision, "dtype": getattr(torch, dtype), "output_loading_info": True}
    with _loading(where):
        config = AutoConfig.from_pretrained(path, revision=revision)
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision)
        if any(name.endswith("ForSequenceClassification") for name in config.architectures or ()):
            kind: Kind = "classification"
            whole, report = AutoModelForSequenceClassification.from_pretrained(path, **options)
            head = _classification_head(whole, where)
            backbone = whole.base_model
        else:
            kind = "value_head"
            head = _value_head(path, revision, where)
            backbone, report = AutoModel.from_pretrained(path, **options)
    missing = sorted(report["missing_keys"])
    if missing:
        raise DataError(f"{where} lacks weights, {missing[0]} for one, so its scores would be random")
    return backbone, head.float(), kind, tokenizer


@contextmanager
def _loading(where: str) -> Iterator[None]:
    """Turn what the loaders of `transformers` raise into a DataError."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise DataError(
            f"{where} is not a reward model that transformers can load: {first_line(error)}"
        ) from error


def _classification_head(whole: PreTrainedModel, where: str) -> nn.Linear:
    from torch import nn

    head = getattr(whole, "score", None)
    if not isinstance(head, nn.Linear) or head.out_features != 1:
        raise DataError(
            f"{where} is a classifier with {whole.config.num_labels} labels, but a reward model has one, "
            "given by a linear layer called score"
        )
    return head


def _value_head(path: str, revision: str | None, where: str) -> nn.Linear:
    """Return the layer ``v_head.summary``, which the loaders of `transformers` leave aside."""
    import torch
    from torch import nn

    tensors = _read_tensors(path, revision, "v_head.summary.")
    weight, bias = tensors.get("v_head.summary.weight"), tensors.get("v_head.summary.bias")
    if weight is None:
        raise DataError(
            f"{where} is no reward model: it is no classifier of sequences, and its safetensors files hold "
            "no v_head.summary.weight"
        )
    head = nn.Linear(weight.shape[1], 1, bias=bias is not None)
    with torch.no_grad():
        head.weight.copy_(weight)
        if bias is not None:
            head.bias.copy_(bias)
    return head


def _read_tensors(path: str, revision: str | None, prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix`, from one safetensors file or from shards."""
    from safetensors import safe_open
    from transformers.utils.hub import cached_file

    def find(name: str) -> str | None:
        return cached_file(path, name, revision=revision, _raise_exceptions_for_missing_entries=False)

    index = find("model.safetensors.index.json")
    if index is None:
        files = {find("model.safetensors")} - {None}
    else:
        shards = json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"]
        files = {find(shard) for name, shard in shards.items() if name.startswith(prefix)}
    found = {}
    for file in files:
        with safe_open(file, "pt") as tensors:
            found |= {name: tensors.get_tensor(name) for name in tensors.keys() if name.startswith(prefix)}  # noqa: SIM118
    return found
