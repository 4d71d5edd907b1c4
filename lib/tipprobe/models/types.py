"""What a model is to the rest of the package: something that samples completions for chat prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from tipprobe.errors import DataError

Message = dict[str, str]
#: A chat prompt: ``[{"role": "user", "content": ...}, ...]``.
Prompt = list[Message]
#: Given to every chat template, which ignores what it does not know.  The paper's models reason before they
#: answer unless told not to, and the paper told them not to.
CHAT_TEMPLATE_KWARGS: dict[str, object] = {"enable_thinking": False}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How completions are drawn.

    Attributes:
        temperature: softmax temperature, 0 for greedy decoding.
        top_p: nucleus mass in (0, 1], 1 switches it off.
        top_k: number of most likely tokens kept, 0 switches it off.
        max_tokens: longest completion, in tokens.
        seed: seeds the draw; the same seed, prompts and machine give the same completions.
    """

    temperature: float = 1.0
    top_p: float = 0.8
    top_k: int = 20
    max_tokens: int = 256
    seed: int = 0

    @classmethod
    def greedy(cls, max_tokens: int) -> Self:
        """Return greedy decoding in its one spelling: caches compare every field."""
        return cls(temperature=0.0, top_p=1.0, top_k=0, max_tokens=max_tokens)


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled reply.

    Attributes:
        text: the reply without special tokens.
        n_tokens: its length in tokens, the end token included.
        finish_reason: ``stop`` (the model ended it) or ``length`` (cut at ``max_tokens``).
    """

    text: str
    n_tokens: int
    finish_reason: Literal["stop", "length"]


class PromptTooLong(DataError):
    """Prompts do not fit a model's context, as is known once the model behind a server was asked.

    `tipprobe.models.open.sample_fitting` turns it into a None for each such prompt.

    Attributes:
        completions: what the call would have returned, None for each prompt that does not fit.
        indices: which ones these are, ascending.
    """

    def __init__(self, message: str, completions: Sequence[list[Completion] | None]) -> None:
        super().__init__(message)
        self.completions = list(completions)
        self.indices = tuple(i for i, group in enumerate(self.completions) if group is None)


class Sampler(Protocol):
    """A model that can be sampled from."""

    #: What identifies the weights: hub id with revision, or a hash of the checkpoint's files.
    revision: str

    def sample(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[list[Completion]]:
        """Return `n` completions for each prompt; `progress(done, total)` is called as completions finish.

        Raises:
            DataError: a prompt does not fit the model's context (`PromptTooLong` where others were answered).
        """
        ...
