"""From a parameter's text to something that can be sampled from: a model of this process or a server's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tipprobe.errors import ParameterError
from tipprobe.models.types import Sampler

ENDPOINT_PREFIX = "openai:"


def open_sampler(
    spec: str,
    *,
    device: str = "auto",
    batch_size: int = 256,
    cache: Path | str | None = None,
    **endpoint_options: Any,
) -> Sampler:
    """Return the sampler that `spec` names.

    Args:
        spec: what `tipprobe.models.load.load_model` loads (an embedded coder, a checkpoint folder, a
            ``.gguf`` file, a hub id), or ``openai:MODEL@BASE_URL`` for a server that speaks the OpenAI chat
            protocol, for example ``openai:Qwen/Qwen3-4B@http://127.0.0.1:8000/v1``.
        device: where a model of this process goes (`tipprobe.models.load.pick_device`).
        batch_size: rows that a model of this process computes together.
        cache: file for a server's replies; a model of this process needs none.
        endpoint_options: further options of `tipprobe.models.endpoint.EndpointSampler`.

    Raises:
        ParameterError: `spec` is empty, or starts like an endpoint and is none.
        DataError: there is no such model.
    """
    if not spec.strip():
        raise ParameterError(
            "no model is named; "
            "give an embedded coder, a folder, a .gguf file, a hub id or openai:MODEL@BASE_URL"
        )
    if is_endpoint(spec):
        from tipprobe.models.endpoint import EndpointSampler

        model, base_url = split_endpoint(spec)
        return EndpointSampler(model, base_url, cache=cache, **endpoint_options)
    from tipprobe.models.load import load_model, model_revision
    from tipprobe.models.transformers_sampler import TransformersSampler

    model, tokenizer = load_model(spec, device)
    return TransformersSampler(model, tokenizer, revision=model_revision(spec), batch_size=batch_size)


def is_endpoint(spec: str) -> bool:
    """Say whether `spec` names a server rather than weights."""
    return spec.startswith(ENDPOINT_PREFIX)


def split_endpoint(spec: str) -> tuple[str, str]:
    """Return model and base URL of ``openai:MODEL@BASE_URL``.

    Raises:
        ParameterError: a part is missing, or the address holds a password.
    """
    match = re.fullmatch(rf"{ENDPOINT_PREFIX}(.+?)@(https?://[^/\s]\S*)", spec)
    if match is None:
        raise ParameterError(
            f"{spec!r} is not openai:MODEL@BASE_URL, for example openai:Qwen/Qwen3-4B@http://127.0.0.1:8000/v1"
        )
    if urlsplit(match[2]).username is not None:
        raise ParameterError(
            f"the address of model {match[1]!r} holds a user name or password; "
            "put the key into TIPPROBE_API_KEY instead"
        )
    return match[1], match[2]
