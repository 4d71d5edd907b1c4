"""Opening the models of the tip notebooks: all in the same way, and closed again where memory is short."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tipprobe.models.load import load_model, model_revision
from tipprobe.models.open import is_endpoint, open_sampler
from tipprobe.models.transformers_sampler import TransformersSampler
from tipprobe.models.types import Sampler
from tipprobe.tips.teachers import TEACHER_SAMPLING, Teacher, open_teacher


class LocalModel(TransformersSampler):
    """A model of this process that is loaded when it is first needed, and again after `close`.

    Args:
        spec: what `tipprobe.models.load.load_model` loads.
        device: see `tipprobe.models.load.pick_device`.
        batch_size: rows computed together.

    Raises:
        DataError: there is no such model.
    """

    def __init__(self, spec: str, device: str = "auto", batch_size: int = 256) -> None:
        super().__init__(None, None, revision=model_revision(spec), batch_size=batch_size)
        self.spec, self.device = spec, device
        self.close()

    def __getattr__(self, name: str) -> Any:
        # Called for what is not there: the weights, before they are needed.
        if name not in ("model", "tokenizer"):
            raise AttributeError(name)
        free_memory()
        self.model, self.tokenizer = load_model(self.spec, self.device)
        return self.__dict__[name]

    def close(self) -> None:
        """Let the weights go; a later use loads them again."""
        for name in ("model", "tokenizer"):
            self.__dict__.pop(name, None)
        free_memory()


def free_memory() -> None:
    """Give the memory of models that nothing refers to any more back to the GPU.

    A trainer's parts refer to each other in circles, so its model goes only when the circles are found.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def close_models(*models: object) -> None:
    """Close those of `models` that are `LocalModel`; a server's are none of ours."""
    for model in models:
        if isinstance(model, LocalModel):
            model.close()


@dataclass(frozen=True)
class Opener:
    """How a notebook opens models.

    Attributes:
        device: of models of this process.
        batch_size: rows that they compute together.
        concurrency: requests on their way to one server at a time.
        requests_per_minute: most of them a minute, 0 for no limit.
    """

    device: str
    batch_size: int
    concurrency: int = 8
    requests_per_minute: float = 0.0

    def local(self, spec: str) -> LocalModel:
        """Return a model of this process, not yet loaded."""
        return LocalModel(spec, self.device, self.batch_size)

    def coder(self, spec: str, folder: Path) -> Sampler:
        """Return a coder, of this process or a server's, whose replies are kept in `folder`."""
        if is_endpoint(spec):
            return open_sampler(spec, cache=folder / "coder.sqlite", **self._server)
        return self.local(spec)

    def teacher(
        self,
        spec: str,
        folder: Path,
        *,
        max_tokens: int,
        temperature: float,
        price_in: float,
        price_out: float,
    ) -> Teacher:
        """Return a teacher; a server's replies are kept in `folder` and priced by the million tokens."""
        return open_teacher(
            spec,
            sampling=replace(TEACHER_SAMPLING, max_tokens=max_tokens, temperature=temperature),
            cache=folder / "teacher.sqlite",
            price_in=price_in,
            price_out=price_out,
            device=self.device,
            batch_size=self.batch_size,
            **self._server,
        )

    @property
    def _server(self) -> dict[str, Any]:
        return {
            "concurrency": self.concurrency,
            "requests_per_minute": self.requests_per_minute or None,
        }
