"""From a parameter's text to something that can be sampled from: a model of this process or a server's."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tipprobe.errors import ParameterError
from tipprobe.models.types import Completion, Prompt, PromptTooLong, Sampler, Sampling

ENDPOINT_PREFIX = "openai:"
#: What `open_sampler` hands on to `tipprobe.models.endpoint.EndpointSampler`, whose import takes its time.
ENDPOINT_OPTIONS = frozenset(
    {
        "concurrency",
        "requests_per_minute",
        "timeout_s",
        "tries",
        "backoff_s",
        "price_in",
        "price_out",
        "chat_template_kwargs",
        "extra_body",
    }
)


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
        endpoint_options: further options of `tipprobe.models.endpoint.EndpointSampler`; a model of this
            process has no use for them, but their names are checked all the same.

    Raises:
        ParameterError: `spec` is empty, or starts like an endpoint and is none; or there is no such option.
        DataError: there is no such model.
    """
    if not spec.strip():
        raise ParameterError(
            "no model is named; "
            "give an embedded coder, a folder, a .gguf file, a hub id or openai:MODEL@BASE_URL"
        )
    for name in endpoint_options.keys() - ENDPOINT_OPTIONS:
        close = difflib.get_close_matches(name, ENDPOINT_OPTIONS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(ENDPOINT_OPTIONS))}"
        raise ParameterError(f"no option of a server is called {name!r}; {hint}")
    if is_endpoint(spec):
        from tipprobe.models.endpoint import EndpointSampler

        model, base_url = split_endpoint(spec)
        return EndpointSampler(model, base_url, cache=cache, **endpoint_options)
    from tipprobe.models.load import load_model, model_revision
    from tipprobe.models.transformers_sampler import TransformersSampler

    model, tokenizer = load_model(spec, device)
    return TransformersSampler(model, tokenizer, revision=model_revision(spec), batch_size=batch_size)


def sample_fitting(
    sampler: Sampler,
    prompts: Sequence[Prompt],
    n: int,
    sampling: Sampling,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[Completion] | None]:
    """Return `n` completions for each prompt that fits the model's context, None for one that does not.

    What a None means is the caller's to say: it is no reply, so nothing was tried that could have failed.

    Args:
        sampler: a model of this process, whose prompts are measured first, or a server, which tells when
            asked.
        prompts: chat prompts.
        n: completions a prompt.
        sampling: how they are drawn.
        progress: as in `tipprobe.models.types.Sampler.sample`.
    """
    from tipprobe.probes.generate import prompt_fits

    fits = [prompt_fits(sampler, prompt) for prompt in prompts]
    asked = [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]
    groups: Sequence[list[Completion] | None] = []
    if asked:
        try:
            groups = sampler.sample(asked, n, sampling, progress=progress)
        except PromptTooLong as error:
            groups = error.completions
    found = iter(groups)
    return [next(found) if fit else None for fit in fits]


def token_cost(sent: int, written: int, price_in: float, price_out: float) -> float:
    """Return what tokens cost at prices of a million, in the prices' currency."""
    return (sent * price_in + written * price_out) / 1e6


def sampler_options(sampler: Sampler) -> dict[str, Any]:
    """Return what beside weights, prompt and sampling decides about a sampler's replies, for cache keys."""
    names = ("chat_template_kwargs", "extra_body")
    return {name: options for name in names if (options := getattr(sampler, name, None))}


def endpoint_usage(**asked: Any) -> dict[str, int | float | str]:
    """Return what servers were asked in this run, as rows of a stage's summary; empty without a server.

    Args:
        asked: samplers, or teachers with a `sampler`, by what they are called; those that are no server, and
            None, add nothing.
    """
    rows: dict[str, int | float | str] = {}
    for who, one in asked.items():
        usage = getattr(getattr(one, "sampler", one), "usage", None)
        if usage is not None:
            rows |= {f"{who}: {k.replace('_', ' ')}": _shown(v) for k, v in usage.to_json().items()}
    return rows


def _shown(value: Any) -> int | float | str:
    match value:
        case None:
            return "unknown"
        case dict():
            return ", ".join(f"{kind} × {count}" for kind, count in value.items()) or "none"
        case list():
            return ", ".join(value) or "none"
        case _:
            return value


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
