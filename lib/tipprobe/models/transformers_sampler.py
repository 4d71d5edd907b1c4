"""Sampling from any causal language model of `transformers`, with a decode loop of our own.

``model.generate`` spends most of its time per token, on a small model, outside the model: it copies the whole
key-value cache to append one position, sorts the full vocabulary, and goes on computing rows that ended.
The loop here writes into a cache that was allocated ahead, truncates the distribution on the few tokens that
survive top-k, computes a prompt once however many samples are drawn from it, and drops rows as they end.  It
draws from the same distribution (``tests/models`` compares it with the warpers of `transformers`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer

from tipprobe.errors import DataError, ParameterError
from tipprobe.models.types import CHAT_TEMPLATE_KWARGS, Completion, Prompt, Sampling

#: Finished rows are removed from the batch once fewer than this share of its rows is still being written.
#: Removing copies the cache of the rest, about the price of one step, so it should not happen at every step.
COMPACT_BELOW = 0.8
#: Smallest number of positions by which a full cache grows; beyond that it grows by half.
CACHE_BLOCK = 64


class PreallocatedLayer(DynamicLayer):
    """A cache layer that appends in place; `DynamicLayer` copies every earlier position for each new one.

    `keys` and `values` have shape (batch, heads, capacity, head size); `length` positions are filled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Remember dtype and device; `update` allocates."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        """Append the new positions; return all filled ones as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            capacity = max(end + CACHE_BLOCK, end * 3 // 2)
            self.keys = self._grown(self.keys, key_states, capacity)
            self.values = self._grown(self.values, value_states, capacity)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _grown(self, old: Tensor, like: Tensor, capacity: int) -> Tensor:
        batch, heads, _, size = like.shape
        new = old.new_empty(batch, heads, capacity, size)
        new[:, :, : self.length] = old[:, :, : self.length]
        return new

    def get_seq_length(self) -> int:
        """Number of filled positions."""
        return self.length

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep (or repeat) the given rows."""
        self.keys, self.values = self.keys.index_select(0, indices), self.values.index_select(0, indices)


def new_cache(model: PreTrainedModel) -> DynamicCache:
    """Return an empty cache for `model`: preallocated if all its layers attend to every earlier position."""
    cache = DynamicCache(config=model.config)
    if all(type(layer) is DynamicLayer for layer in cache.layers):  # not sliding, not recurrent
        cache.layers = [PreallocatedLayer() for _ in cache.layers]
    return cache


def truncated_distribution(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor | None]:
    """Apply temperature, then top-k, then top-p, in the order of `transformers`.

    Args:
        logits: (batch, vocabulary).
        sampling: `temperature` must be above 0.

    Returns:
        Probabilities (batch, K), summing to 1 in each row, and the token ids (batch, K) they belong to, most
        likely first; the ids are None where K is the whole vocabulary in its own order.
    """
    logits = logits.float() / sampling.temperature
    size = logits.shape[-1]
    if 0 < sampling.top_k < size:
        values, ids = logits.topk(sampling.top_k)
        # Tokens that tie with the k-th one stay, as they do in transformers (half precision has many ties).
        smallest = values[:, -1:]
        count = int((logits >= smallest).sum(-1).max())
        if count > sampling.top_k:
            values, ids = logits.topk(count)
            values = values.masked_fill(values < smallest, -torch.inf)
    elif sampling.top_p < 1:
        values, ids = logits.sort(descending=True)
    else:
        return logits.softmax(-1), None
    probabilities = values.softmax(-1)
    if sampling.top_p < 1:
        more_likely = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(more_likely >= sampling.top_p, 0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return probabilities, ids


def context_length(model: PreTrainedModel) -> int | None:
    """Return how many tokens the model attends to, None if its config sets no limit."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


def _too_long(what: str, length: int, context: int) -> str:
    return (
        f"{what} has {length} tokens, but the model's context holds {context}; "
        "leave that problem out or take a model with a longer context"
    )


def draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Return a token id for each row of `logits` (batch, vocabulary); temperature 0 takes the most likely."""
    if sampling.temperature == 0:
        return logits.argmax(-1)
    probabilities, ids = truncated_distribution(logits, sampling)
    choice = torch.multinomial(probabilities, 1, generator=generator)
    return (choice if ids is None else ids.gather(1, choice)).squeeze(1)


def generate_ids(
    model: PreTrainedModel,
    prompt_ids: Sequence[Sequence[int]],
    n: int,
    sampling: Sampling,
    *,
    eos_token_ids: Collection[int],
    pad_token_id: int,
    generator: torch.Generator,
    batch_size: int = 256,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[int]]:
    """Sample `n` completions of each prompt; usable inside a trainer.

    No gradient is recorded, the model is in eval mode meanwhile and goes back to the mode it was in, and the
    caller's autocast context applies.  A prompt that occurs more than once (a trainer repeats them) is
    computed once a batch.

    Args:
        model: a causal language model, not wrapped for data parallelism.
        prompt_ids: token ids of each prompt.
        n: completions a prompt.
        sampling: its `seed` is not used here, `generator` is.
        eos_token_ids: tokens that end a completion.
        pad_token_id: any valid token id; it fills positions that no row attends to.
        generator: on the model's device; its state advances.
        batch_size: rows computed together.
        progress: called with the completions finished and the total.

    Returns:
        ``len(prompt_ids) * n`` lists of token ids, those of a prompt together.  Each ends with an end token,
        unless `sampling.max_tokens` or the model's context stopped it first.

    Raises:
        DataError: a prompt is empty or leaves no room in the model's context.
        ParameterError: `n`, `batch_size` or `sampling.max_tokens` is below 1.
    """
    if n < 1 or batch_size < 1 or sampling.max_tokens < 1:
        raise ParameterError(
            f"n, batch_size and max_tokens must be at least 1, got {n}, {batch_size}, {sampling.max_tokens}"
        )
    context = context_length(model)
    for index, ids in enumerate(prompt_ids):
        if not len(ids):
            raise DataError(f"prompt {index} has no tokens")
        if context is not None and len(ids) >= context:
            raise DataError(_too_long(f"prompt {index}", len(ids), context))
    prompts = [tuple(ids) for ids in prompt_ids for _ in range(n)]
    # Longest first, so that a batch too large for the memory fails at once; equal prompts side by side.
    order = sorted(range(len(prompts)), key=lambda row: (-len(prompts[row]), prompts[row]))
    results: list[list[int]] = [[] for _ in prompts]
    finished = 0

    def count(rows: int) -> None:
        nonlocal finished
        finished += rows
        if progress is not None:
            progress(finished, len(prompts))

    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                batch = [prompts[row] for row in rows]
                room = sampling.max_tokens if context is None else context - len(batch[0])
                completions = _decode_batch(
                    model,
                    batch,
                    min(sampling.max_tokens, room),
                    sampling,
                    frozenset(eos_token_ids),
                    pad_token_id,
                    generator,
                    count,
                )
                for row, completion in zip(rows, completions, strict=True):
                    results[row] = completion
    finally:
        model.train(was_training)
    return results


def _decode_batch(
    model: PreTrainedModel,
    batch: Sequence[tuple[int, ...]],
    max_tokens: int,
    sampling: Sampling,
    eos: frozenset[int],
    pad: int,
    generator: torch.Generator,
    count: Callable[[int], None],
) -> list[list[int]]:
    """Return one completion for each prompt of `batch`; `count` is told how many rows ended at each step."""
    device = model.device
    unique = {prompt: index for index, prompt in enumerate(dict.fromkeys(batch))}
    width = max(map(len, unique))
    ids = torch.tensor([[pad] * (width - len(p)) + list(p) for p in unique], device=device)
    padding = torch.tensor([width - len(p) for p in unique], device=device)
    positions = torch.arange(width + max_tokens, device=device)
    mask = (positions >= padding[:, None]).long()
    padded = bool((padding > 0).any())

    def forward(tokens: Tensor, first: int) -> Tensor:
        """Run the model on `tokens` (rows, length) from position `first` on; return the last logits."""
        last = first + tokens.shape[1]
        return model(
            input_ids=tokens,
            # Without padding no mask is needed, which spares building one for each token.
            attention_mask=mask[:, :last] if padded else None,
            position_ids=(positions[first:last] - padding[:, None]).clamp_min(0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]

    cache = new_cache(model)
    logits = forward(ids, 0)
    expand = torch.tensor([unique[prompt] for prompt in batch], device=device)
    cache.batch_select_indices(expand)
    logits, mask, padding = logits[expand], mask[expand], padding[expand]

    completions: list[list[int]] = [[] for _ in batch]
    live = list(range(len(batch)))  # row of the tensors -> index into `completions`
    ended = [False] * len(batch)
    for step in range(max_tokens):
        tokens = draw(logits, sampling, generator)
        newly_ended = 0
        for row, token in zip(live, tokens.tolist(), strict=True):
            if not ended[row]:
                completions[row].append(token)
                if token in eos or step == max_tokens - 1:
                    ended[row] = True
                    newly_ended += 1
        if newly_ended:
            count(newly_ended)
            kept = [index for index, row in enumerate(live) if not ended[row]]
            if not kept:
                break
            if len(kept) < COMPACT_BELOW * len(live):
                keep = torch.tensor(kept, device=device)
                cache.batch_select_indices(keep)
                tokens, mask, padding = tokens[keep], mask[keep], padding[keep]
                live = [live[index] for index in kept]
                padded = bool((padding > 0).any())
        logits = forward(tokens[:, None], width + step)
    return completions


class TransformersSampler:
    """`tipprobe.models.types.Sampler` over a model in this process.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        revision: what identifies the weights (`tipprobe.models.load.model_revision`).
        batch_size: rows computed together; bounds the memory of the key-value cache.
        chat_template_kwargs: passed on to the chat template, in place of or beside `CHAT_TEMPLATE_KWARGS`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        revision: str,
        batch_size: int = 256,
        chat_template_kwargs: dict[str, object] | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.revision = revision
        self.batch_size = batch_size
        self.chat_template_kwargs = dict(chat_template_kwargs or {})

    def sample(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[list[Completion]]:
        """Return `n` completions for each prompt; the same call gives the same completions.

        Raises:
            DataError: a prompt does not fit the model's context; the message shows how it begins.
        """
        if not prompts:
            return []
        encoded = [encode_prompt(self.tokenizer, prompt, self.chat_template_kwargs) for prompt in prompts]
        context = context_length(self.model)
        for prompt, ids in zip(prompts, encoded, strict=True):
            if context is not None and len(ids) >= context:
                start = prompt[-1]["content"][:80]
                raise DataError(_too_long(f"the prompt that begins {start!r}", len(ids), context))
        eos = end_token_ids(self.model, self.tokenizer)
        generator = torch.Generator(self.model.device).manual_seed(sampling.seed)
        flat = generate_ids(
            self.model,
            encoded,
            n,
            sampling,
            eos_token_ids=eos,
            pad_token_id=pad_token_id(self.tokenizer, eos),
            generator=generator,
            batch_size=self.batch_size,
            progress=progress,
        )
        texts = self.tokenizer.batch_decode(
            flat, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        completions = [
            Completion(text, len(ids), "stop" if ids[-1] in eos else "length")
            for text, ids in zip(texts, flat, strict=True)
        ]
        return [completions[start : start + n] for start in range(0, len(completions), n)]


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Prompt,
    chat_template_kwargs: dict[str, object] | None = None,
) -> list[int]:
    """Return the token ids of a chat prompt, ready for the reply.

    A tokenizer without a chat template (a base model's) gets the messages' text, each followed by a line end.
    Models that can reason first are asked not to (`CHAT_TEMPLATE_KWARGS`), unless `chat_template_kwargs` says
    otherwise.
    """
    if tokenizer.chat_template is None:
        return tokenizer("".join(message["content"] + "\n" for message in prompt))["input_ids"]
    kwargs = CHAT_TEMPLATE_KWARGS | (chat_template_kwargs or {})
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, **kwargs)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end a reply: those of the generation config and the tokenizer's own.

    Raises:
        DataError: neither names one, so no reply could end.
    """
    configured = model.generation_config.eos_token_id
    ids = set(configured if isinstance(configured, list) else [configured]) | {tokenizer.eos_token_id}
    ids.discard(None)
    if not ids:
        raise DataError("neither the generation config nor the tokenizer names an end token (eos_token)")
    return frozenset(ids)


def pad_token_id(tokenizer: PreTrainedTokenizerBase, eos_token_ids: Collection[int]) -> int:
    """Return the tokenizer's padding token, or an end token where it has none."""
    return min(eos_token_ids) if tokenizer.pad_token_id is None else tokenizer.pad_token_id
