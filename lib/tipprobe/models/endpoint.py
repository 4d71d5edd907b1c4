"""Sampling from a server that speaks the OpenAI chat protocol, with every reply kept on disk.

A server is the one part of a run that fails for reasons of its own.  What may pass (429, a server error, a
time-out, a broken connection, half a reply) is tried again and counted by kind; what does not pass raises
`EndpointError`.  No failure becomes an empty reply.  A prompt that is too long for the model is no failure of
the server: the others are answered before `PromptTooLong` names it.

The client's own retries are switched off: they tell neither what was retried nor when, so they could be
neither counted nor held to a rate.
"""

from __future__ import annotations

import email.utils
import hashlib
import ipaddress
import itertools
import json
import math
import os
import random
import re
import sqlite3
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import openai

from tipprobe.errors import DataError, EndpointError, ParameterError
from tipprobe.models.open import token_cost
from tipprobe.models.types import CHAT_TEMPLATE_KWARGS, Completion, Prompt, PromptTooLong, Sampling
from tipprobe.probes.rng import keyed_seed

#: Environment variable with the key for any server; `key_variable` names the one for a single host.
KEY_VARIABLE = "TIPPROBE_API_KEY"
#: The one host that gets what is meant for it alone: ``OPENAI_API_KEY``, organization and project.
OPENAI_HOST = "api.openai.com"
#: Last labels of names that no public name server knows.
PRIVATE_DOMAINS = ("localhost", "local", "internal")
#: Fields that not every server takes; the first refusal that names one is the last time it is sent.
OPTIONAL_FIELDS = ("top_k", "chat_template_kwargs", "seed", "n")
#: Fields that decide which replies are likely: without one of them it is another question.
DRAWING_FIELDS = ("temperature", "top_p", "top_k", "chat_template_kwargs")
#: Finish reasons of a reply that the model itself ended, as the protocol and its imitators word them.
ENDED = ("stop", "eos", "eos_token", "end_turn", "stop_sequence")
#: Finish reasons that leave a reply incomplete: a filter stops one in the middle as a limit does.
CUT = ("length", "max_tokens", "model_length", "content_filter")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: What servers say of a prompt beyond the context: OpenAI's code, llama.cpp's type, and sentences of vLLM,
#: SGLang, Mistral, text-generation-inference, llama-cpp-python and Anthropic.
_TOO_LONG = re.compile(
    "context_length_exceeded|exceed_context_size_error|maximum context length|context length is only"
    "|longer than the (?:maximum model length|model's context length)|available context size"
    "|`?inputs`? tokens \\+ `?max_new_tokens`? must be|exceed context window of|prompt is too long",
    re.IGNORECASE,
)
_CONTEXT_LENGTH = re.compile(
    r'(?:context (?:length|size|window)|model length|n_ctx"?|must be <=)(?: is| of)?(?: only)?[ (:]*(\d+)',
    re.IGNORECASE,
)
#: Longest pause before a retry that we choose ourselves, in seconds.
MAX_BACKOFF_S = 60.0
#: Longest pause that a server may ask for (Retry-After), in seconds; beyond it the run stops and says so.
MAX_RETRY_AFTER_S = 300.0


@dataclass(frozen=True, slots=True)
class EndpointCompletion(Completion):
    """A completion with what its prompt cost.

    Attributes:
        prompt_tokens: length of the prompt in the server's tokens, 0 if the server does not tell.
    """

    prompt_tokens: int = 0


@dataclass(slots=True)
class Usage:
    """What an endpoint was asked and what that cost.

    Attributes:
        requests: requests sent, retries included.
        replies: completions that came from the server.
        cache_hits: completions that came from the disk instead.
        prompt_tokens: tokens read, as the server counts them, those of malformed replies included.
        completion_tokens: tokens written, counted likewise.
        retries: requests sent again, by kind: ``rate limit``, ``timeout``, ``connection``, ``server error``,
            ``malformed``.
        finish_reasons: choices by the server's own word for why they ended, useless ones included.
        refused: fields left out because the server did not take them, now or earlier (see `ReplyCache`).
        price_in: price of a million prompt tokens, in any currency; None if unknown.
        price_out: price of a million completion tokens.
    """

    requests: int = 0
    replies: int = 0
    cache_hits: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    finish_reasons: Counter[str] = field(default_factory=Counter)
    refused: set[str] = field(default_factory=set)
    price_in: float | None = None
    price_out: float | None = None

    @property
    def cost(self) -> float | None:
        """What the tokens cost at the given prices; None without prices.  Cached replies cost nothing."""
        if self.price_in is None or self.price_out is None:
            return None
        return token_cost(self.prompt_tokens, self.completion_tokens, self.price_in, self.price_out)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {
            "requests": self.requests,
            "replies": self.replies,
            "cache_hits": self.cache_hits,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "retries": dict(sorted(self.retries.items())),
            "finish_reasons": dict(sorted(self.finish_reasons.items())),
            "refused": sorted(self.refused),
            "cost": self.cost,
        }


class ReplyCache:
    """Completions on disk by the hash of the request that they answer.

    An SQLite file: a killed process leaves no half record in it, and several processes may use it at once.
    The first reply to a request stays; whoever brings another one later is given the first.

    The file also says which fields a server refused.  They are part of what a reply is kept under, so a later
    run has to know them before it asks.

    Args:
        path: the file; it and its folder are made if missing.

    Raises:
        DataError: the file is there but is no such cache.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._run("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, request TEXT, reply TEXT)")
        self._run(
            "CREATE TABLE IF NOT EXISTS refused "
            "(server TEXT, model TEXT, field TEXT, PRIMARY KEY (server, model, field))"
        )

    def get(self, key: str) -> EndpointCompletion | None:
        """Return the completion kept under `key`, None if there is none."""
        rows = self._run("SELECT reply FROM replies WHERE key = ?", (key,))
        return EndpointCompletion(**json.loads(rows[0][0])) if rows else None

    def put(self, key: str, request: Mapping[str, Any], reply: EndpointCompletion) -> EndpointCompletion:
        """Keep `reply` unless the request was answered meanwhile; return the reply that is kept."""
        # In ASCII: a lone surrogate in a text cannot be written as UTF-8.
        record = (key, json.dumps(request), json.dumps(asdict(reply)))
        self._run("INSERT OR IGNORE INTO replies VALUES (?, ?, ?)", record)
        return self.get(key) or reply

    def refused(self, server: str, model: str) -> set[str]:
        """Return the fields that a server is known to refuse for a model."""
        rows = self._run("SELECT field FROM refused WHERE server = ? AND model = ?", (server, model))
        return {field for (field,) in rows}

    def remember_refused(self, server: str, model: str, fields: Collection[str]) -> None:
        """Keep that a server refuses `fields` for a model."""
        for name in sorted(fields):
            self._run("INSERT OR IGNORE INTO refused VALUES (?, ?, ?)", (server, model, name))

    def __len__(self) -> int:
        return self._run("SELECT COUNT(*) FROM replies")[0][0]

    def _run(self, statement: str, values: tuple[str, ...] = ()) -> list[tuple]:
        # A connection a statement: cheap beside a request, and nothing to share between threads or forks.
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
                return connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise DataError(
                f"{self.path} cannot be used as a cache of replies ({error}); "
                "free some space, give another file, or delete this one"
            ) from error


class _Pacer:
    """Lets requests through at most `per_minute` a minute, evenly, and not before a server's own date."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap = 60 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self, stop: threading.Event) -> None:
        """Sleep until the next request may be sent, or `stop` is set."""
        with self._lock:
            slot = max(time.monotonic(), self._next)
            self._next = slot + self._gap
        stop.wait(slot - time.monotonic())

    def hold(self, seconds: float) -> None:
        """Send nothing for so many seconds: what a server asks of one request, it means for all."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)


class _MalformedReply(Exception):
    """The server said yes and then sent something that is not a chat completion."""


class _TooLong(Exception):
    """The server says that a prompt does not fit the model's context."""


class _Stopped(Exception):
    """Another request of the same call failed for good."""


class EndpointSampler:
    """`tipprobe.models.types.Sampler` over an OpenAI-compatible server.

    The key is read from the environment; a server that wants none works without.  Looked for are, in this
    order, ``TIPPROBE_API_KEY_<HOST>`` (the host in capitals with ``_`` for whatever is no letter or digit:
    ``TIPPROBE_API_KEY_API_TOGETHER_XYZ``), ``TIPPROBE_API_KEY`` and, for ``api.openai.com`` alone,
    ``OPENAI_API_KEY``.  Whoever asks servers of several owners gives each its own variable, or all of them
    get to see ``TIPPROBE_API_KEY``.  In clear text (plain http), a host outside this machine and private
    networks is sent a key only from the variable that names it.

    What is cached under: model, messages, sampling, the number of the sample, `chat_template_kwargs`,
    `extra_body`, and which of the `DRAWING_FIELDS` the server refused.  Not the server's address: the model's
    name stands for the weights, as in `revision`, and the same server comes back on another port or behind
    another name.  If two servers give one name to different weights, give each its own cache file.

    What a server refuses is remembered in the cache file by address and model, so that a later run looks in
    the right place at once and goes on asking the same way; for a server that has changed, take a new file.
    At an address that the file does not know, the refusal comes first, which costs nothing, and then the
    cache is looked through again.  Greedy decoding needs the temperature: where that is refused, asking for
    temperature 0 is an error.

    The seed sent is made from `Sampling.seed` and the number of the first sample that a request asks for.  A
    request for several samples has one seed, so a prompt of which the cache holds a part of the samples is
    answered with other draws than one asked afresh; what is in the cache stays.  Servers differ in what they
    make of a seed: with the same one some repeat themselves only while nobody else is asking, some never do.

    A prompt is too long if it does not fit the model's context together with `Sampling.max_tokens`, which
    servers reserve in full.  They are recognised by what OpenAI, vLLM, SGLang, llama.cpp and others say then.

    ``transformers serve`` has three ways of its own.  It never says that a prompt is too long, and reads on
    beyond the positions that the model knows.  It computes in the checkpoint's precision unless it is started
    with ``--dtype float32``, so greedy replies may differ from those of `load_model`.  And it never turns
    sampling on: a model whose ``generation_config.json`` lacks ``"do_sample": true`` is decoded greedily at
    any temperature, unless `extra_body` holds a whole ``generation_config`` as JSON text, end token included.

    Args:
        model: the name under which the server knows the model.
        base_url: address up to and including the version, ``http://127.0.0.1:8000/v1``.
        cache: file that keeps every reply (see `ReplyCache`), None to keep nothing.
        concurrency: requests on their way at the same time.
        requests_per_minute: most requests sent a minute, retries included; None for no limit.
        timeout_s: seconds after which a request counts as lost.
        tries: how often a request is sent before its failure is final.
        backoff_s: pause before the first retry; it doubles each time, up to `MAX_BACKOFF_S`, is shortened by
            a random part of up to a half, and gives way to what the server asks for (Retry-After).
        price_in: price of a million prompt tokens, None if unknown.
        price_out: price of a million completion tokens.
        chat_template_kwargs: as in `TransformersSampler`; left out if the server does not take it.
        extra_body: further fields of each request, for what a server has beyond the protocol.

    Raises:
        ParameterError: a limit is out of range.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        cache: Path | str | None = None,
        concurrency: int = 8,
        requests_per_minute: float | None = None,
        timeout_s: float = 120.0,
        tries: int = 6,
        backoff_s: float = 1.0,
        price_in: float | None = None,
        price_out: float | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        if concurrency < 1 or tries < 1:
            raise ParameterError(f"concurrency and tries must be at least 1, got {concurrency}, {tries}")
        if timeout_s <= 0 or backoff_s < 0 or (requests_per_minute is not None and requests_per_minute <= 0):
            raise ParameterError(
                "timeout_s and requests_per_minute must be above 0 and backoff_s not below it, "
                f"got {timeout_s}, {requests_per_minute}, {backoff_s}"
            )
        self.model = model
        self.base_url = base_url
        self.revision = f"endpoint:{model}"
        self.cache = None if cache is None else ReplyCache(Path(cache))
        self.concurrency = concurrency
        self.timeout_s = timeout_s
        self.tries = tries
        self.backoff_s = backoff_s
        self.chat_template_kwargs = CHAT_TEMPLATE_KWARGS | dict(chat_template_kwargs or {})
        self.extra_body = dict(extra_body or {})
        self.usage = Usage(price_in=price_in, price_out=price_out)
        if self.cache is not None:
            self.usage.refused |= self.cache.refused(self._server, model)
        self._remembered = set(self.usage.refused)
        self._lock = threading.Lock()  # guards `usage` and `_remembered`
        self._pacer = _Pacer(requests_per_minute)
        # The client adds these from the environment, whomever it talks to.
        foreign = () if _host(base_url) == OPENAI_HOST else ("OpenAI-Organization", "OpenAI-Project")
        self._client = openai.OpenAI(
            api_key=find_key(base_url) or "none",  # the client insists on one
            base_url=base_url,
            timeout=timeout_s,
            max_retries=0,
            default_headers={name: openai.Omit() for name in foreign},
        )

    @property
    def _server(self) -> str:
        """What the cache knows the server by."""
        return self.base_url.rstrip("/")

    def sample(
        self,
        prompts: Sequence[Prompt],
        n: int,
        sampling: Sampling,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[list[Completion]]:
        """Return `n` completions for each prompt; a prompt given twice gets samples of its own each time.

        Every reply is in the cache as soon as it is there, so a call that failed or was killed goes on where
        it was.

        Raises:
            EndpointError: the server is not there, refuses, or fails each time.
            ParameterError: `n` or `sampling.max_tokens` is below 1.
            PromptTooLong: prompts do not fit the model's context; all others were answered.
        """
        if n < 1 or sampling.max_tokens < 1:
            raise ParameterError(f"n and max_tokens must be at least 1, got {n}, {sampling.max_tokens}")
        left_out = self._left_out(sampling)
        wanted = _numbered(prompts, n)
        results = [
            self._kept(prompt, numbers, sampling, left_out)
            for prompt, numbers in zip(prompts, wanted, strict=True)
        ]
        done, total = sum(map(len, results)), n * len(prompts)
        if progress is not None and done:
            progress(done, total)
        stop = threading.Event()
        pool = ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="endpoint")
        running: dict[Future[dict[int, EndpointCompletion]], tuple[int, list[int]]] = {}
        too_long: dict[int, str] = {}

        def fetch(position: int, numbers: list[int]) -> dict[int, EndpointCompletion]:
            if position in too_long:  # another request for this prompt was told so
                raise _TooLong
            try:
                return self._fetch(prompts[position], numbers, sampling, left_out, stop)
            except _TooLong as error:
                too_long[position] = str(error)
                raise

        def submit(position: int, numbers: list[int]) -> None:
            missing = [number for number in numbers if number not in results[position]]
            for group in self._groups(missing):
                running[pool.submit(fetch, position, group)] = (position, group)

        try:
            for position, numbers in enumerate(wanted):
                submit(position, numbers)
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    position, numbers = running.pop(future)
                    failure = future.exception()
                    if isinstance(failure, _Stopped):
                        continue  # the one that failed is among the others
                    if isinstance(failure, _TooLong):
                        done += len(numbers)
                    else:
                        found = future.result()
                        results[position] |= found
                        done += len(found)
                        submit(position, numbers)  # those that did not come, see `_fetch`
                    if progress is not None:
                        progress(done, total)
        finally:
            # Whoever interrupts is not kept waiting; a reply that is on its way still reaches the cache.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
        groups: list[list[Completion] | None] = [
            None if position in too_long else [results[position][number] for number in numbers]
            for position, numbers in enumerate(wanted)
        ]
        answered = [group for group in groups if group is not None]
        if sampling.temperature > 0 and n >= 4 and answered and all(map(_all_equal, answered)):
            warnings.warn(
                f"{self.base_url}: all {n} samples of each prompt are equal although the temperature is "
                f"{sampling.temperature:g}; the server may decode greedily (see EndpointSampler)",
                stacklevel=2,
            )
        if too_long:
            first = min(too_long)
            raise PromptTooLong(
                f"{len(too_long)} of {len(prompts)} prompts do not fit the context of {self.model!r} at "
                f"{self.base_url} together with {sampling.max_tokens} tokens of reply; the first one begins "
                f"{prompts[first][-1]['content'][:80]!r} ({too_long[first]}); leave those problems out, "
                "lower max_tokens, or serve the model with a longer context",
                groups,
            )
        return answered

    def _groups(self, numbers: list[int]) -> list[list[int]]:
        """Split the missing samples of a prompt into requests."""
        if not numbers or "n" in self.usage.refused:
            return [[number] for number in numbers]
        return [numbers]

    def _left_out(self, sampling: Sampling) -> frozenset[str]:
        """Return which of the fields that decide about the replies the server is known to refuse.

        Raises:
            EndpointError: greedy decoding is asked for, and the temperature is among them.
        """
        with self._lock:
            left_out = self.usage.refused & _drawing(sampling, self.chat_template_kwargs).keys()
        if "temperature" in left_out and sampling.temperature == 0:
            raise EndpointError(
                f"{self.base_url} takes no temperature for {self.model!r}, so it cannot be asked to decode "
                "greedily (temperature 0); take another model, or a temperature above 0 if samples will do"
            )
        return frozenset(left_out)

    def _request(
        self, prompt: Prompt, sampling: Sampling, number: int, left_out: frozenset[str]
    ) -> dict[str, Any]:
        """Return all that decides about one sample: what it is cached under."""
        return {
            "model": self.model,
            "messages": prompt,
            "sampling": asdict(sampling),
            "number": number,
            "chat_template_kwargs": self.chat_template_kwargs,
            "extra_body": self.extra_body,
            "left_out": sorted(left_out),
        }

    def _kept(
        self, prompt: Prompt, numbers: Sequence[int], sampling: Sampling, left_out: frozenset[str]
    ) -> dict[int, EndpointCompletion]:
        """Return those of the samples with these numbers that the cache holds."""
        if self.cache is None:
            return {}
        kept = {}
        for number in numbers:
            reply = self.cache.get(_digest(self._request(prompt, sampling, number, left_out)))
            if reply is not None:
                kept[number] = reply
        with self._lock:
            self.usage.cache_hits += len(kept)
        return kept

    def _fetch(
        self,
        prompt: Prompt,
        numbers: list[int],
        sampling: Sampling,
        left_out: frozenset[str],
        stop: threading.Event,
    ) -> dict[int, EndpointCompletion]:
        """Return samples with these numbers, not all of them if the server or the cache has only a part.

        Args:
            left_out: what `_left_out` said when the cache was looked through for them.
        """
        completions = None
        try:
            while completions is None:
                known = self._left_out(sampling)
                if known != left_out:  # so this is another question than the one looked for
                    left_out = known
                    kept = self._kept(prompt, numbers, sampling, left_out)
                    if kept:
                        return kept
                seed = keyed_seed(sampling.seed, numbers[0])
                completions = self._ask(prompt, len(numbers), seed, sampling, left_out, stop)
        except _TooLong:
            raise
        except BaseException:
            stop.set()
            raise
        if len(completions) < len(numbers):
            self._leave_out("n")
        found = dict(zip(numbers, completions, strict=False))
        if self.cache is not None:
            for number, completion in found.items():
                request = self._request(prompt, sampling, number, left_out)
                found[number] = self.cache.put(_digest(request), request, completion)
            self._remember()
        return found

    def _remember(self) -> None:
        """Write what the server refuses into the cache, now that it has answered without."""
        with self._lock:
            new = self.usage.refused - self._remembered
            self._remembered |= new
        if self.cache is not None and new:
            self.cache.remember_refused(self._server, self.model, new)

    def _ask(
        self,
        prompt: Prompt,
        n: int,
        seed: int,
        sampling: Sampling,
        left_out: frozenset[str],
        stop: threading.Event,
    ) -> list[EndpointCompletion] | None:
        """Send one request until it is answered; count what happened on the way.

        Returns:
            One to `n` completions; None if the server refused one of the `DRAWING_FIELDS`, which makes this
            another request.

        Raises:
            EndpointError: the failure is final.
            _TooLong: the prompt does not fit the model's context.
            _Stopped: `stop` is set.
        """
        failures: Counter[str] = Counter()
        while True:
            fields = self._fields(n, seed, sampling, left_out)
            self._pacer.wait(stop)
            if stop.is_set():
                raise _Stopped
            with self._lock:
                self.usage.requests += 1
            try:
                return self._read(self._send(prompt, fields))[:n]
            except openai.APIStatusError as error:
                if _says_too_long(error):
                    if sampling.max_tokens >= (_context_length(error) or math.inf):
                        advice = f"max_tokens {sampling.max_tokens} leaves no room for any prompt"
                        raise EndpointError(self._refusal(error, advice)) from error
                    raise _TooLong(_brief(error)) from error
                refused = self._can_do_without(error, fields)
                if refused in DRAWING_FIELDS:
                    return None
                if refused is not None:
                    continue
                kind = _kind(error)
                failure: Exception = error
            except (openai.APIError, json.JSONDecodeError, _MalformedReply) as error:
                kind = _kind(error)
                failure = error
            if kind is None:
                raise EndpointError(self._refusal(failure)) from failure
            failures[kind] += 1
            asked = _retry_after_s(failure)
            if failures.total() >= self.tries or (asked or 0) > MAX_RETRY_AFTER_S:
                raise EndpointError(self._surrender(failures, failure, asked)) from failure
            with self._lock:
                self.usage.retries[kind] += 1
            if asked is not None:
                self._pacer.hold(asked)
                continue
            pause = min(MAX_BACKOFF_S, self.backoff_s * 2 ** (failures.total() - 1))
            stop.wait(pause * random.uniform(0.5, 1))

    def _fields(self, n: int, seed: int, sampling: Sampling, left_out: frozenset[str]) -> dict[str, Any]:
        """Return the request's fields beside model and messages, without those that the server refused.

        Of the `DRAWING_FIELDS` those in `left_out` are missing and no others: what another request has found
        out meanwhile is not what this one is cached under.
        """
        drawing = _drawing(sampling, self.chat_template_kwargs)
        fields = {"seed": seed} | ({"n": n} if n > 1 else {})
        # The name that newer models of the protocol's author insist on, and other servers may not know.
        longest = "max_completion_tokens" if "max_tokens" in self.usage.refused else "max_tokens"
        fields[longest] = sampling.max_tokens
        return {name: value for name, value in drawing.items() if name not in left_out} | {
            name: value for name, value in fields.items() if name not in self.usage.refused
        }

    def _send(self, prompt: Prompt, fields: dict[str, Any]) -> Any:
        # All through `extra_body`: the client's own arguments would be the same fields with fewer names.
        return self._client.chat.completions.create(
            model=self.model, messages=prompt, extra_body=fields | self.extra_body
        )

    def _read(self, reply: Any) -> list[EndpointCompletion]:
        """Turn a reply into completions and count its tokens.

        A server counts the tokens of all choices together; with several they are shared out by length.

        Raises:
            _MalformedReply: it has no choices, or one that neither the model nor a limit has ended: vLLM says
                yes to a request that it aborts, with ``abort`` and whatever was written until then.
        """
        choices = getattr(reply, "choices", None)
        if not choices or any(getattr(choice, "message", None) is None for choice in choices):
            raise _MalformedReply(f"no choices in {str(reply)[:200]!r}")
        usage = getattr(reply, "usage", None)
        read = getattr(usage, "prompt_tokens", None) or 0
        written = getattr(usage, "completion_tokens", None) or 0
        with self._lock:  # paid for, whatever it is worth
            self.usage.prompt_tokens += read
            self.usage.completion_tokens += written
            self.usage.finish_reasons.update(str(choice.finish_reason) for choice in choices)
        endings = [_ending(choice.finish_reason, choice.message.content) for choice in choices]
        # Half of a surrogate pair is no text: files and digests would choke on it.
        texts = [_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", c.message.content or "") for c in choices]
        lengths = _shares(written, [len(text) for text in texts])
        with self._lock:
            self.usage.replies += len(choices)
        return [
            EndpointCompletion(text, length, ending, read)
            for text, length, ending in zip(texts, lengths, endings, strict=True)
        ]

    def _can_do_without(self, error: openai.APIStatusError, fields: Mapping[str, Any]) -> str | None:
        """Return the field that a refusal is about if it can be left out, and leave it out from now on."""
        if error.status_code not in (400, 422):
            return None
        said = error.response.text
        for name in OPTIONAL_FIELDS:
            # Not the n of a line end that JSON spells out.
            if name in fields and re.search(rf"(?<![\w.\\]){name}(?!\w)", said):
                return self._leave_out(name)
        if "max_tokens" in fields and "max_completion_tokens" in said and "nsupported" in said:
            return self._leave_out("max_tokens")
        # Models that reason first take no temperature; elsewhere such an answer means a bad value.
        name = getattr(error, "param", None)
        if name in ("temperature", "top_p") and name in fields and str(error.code).startswith("unsupported"):
            return self._leave_out(name)
        return None

    def _leave_out(self, name: str) -> str:
        with self._lock:
            self.usage.refused.add(name)
        return name

    def _refusal(self, error: Exception, advice: str | None = None) -> str:
        """Word an answer that no retry will change."""
        status = getattr(error, "status_code", None)
        advice = advice or {
            401: _key_advice(self.base_url),
            403: "this key may not use that model",
            404: "check the model's name and the address, which usually ends in /v1",
        }.get(status, "the request will not do as it is")
        if getattr(error, "code", None) == "insufficient_quota":
            advice = "the account behind the key has nothing left to spend"
        return f"{self.base_url} refused a request to {self.model!r}: {advice} ({_brief(error)})"

    def _surrender(self, failures: Counter[str], last: Exception, asked: float | None) -> str:
        """Word a failure that stayed."""
        tried = ", ".join(f"{kind} × {count}" for kind, count in failures.items())
        if asked is not None and asked > MAX_RETRY_AFTER_S:
            advice = f"the server asks to wait {asked:.0f} s: run again after that"
        elif failures["rate limit"]:
            advice = "lower concurrency or requests_per_minute"
        elif failures["timeout"]:
            advice = f"raise timeout_s, now {self.timeout_s:g}, or lower concurrency"
        elif failures["connection"] == failures.total():
            advice = (
                "is a server running there? `transformers serve MODEL --port 8000` and `vllm serve MODEL` "
                "each start one at http://127.0.0.1:8000/v1"
            )
        else:
            advice = "look at the server's log"
        kept = "" if self.cache is None else f"; what was answered is kept in {self.cache.path}"
        return (
            f"no answer from {self.base_url} (model {self.model!r}) after {failures.total()} tries: {tried}; "
            f"last: {_brief(last)}; {advice}{kept}"
        )


def key_variable(base_url: str) -> str:
    """Return the environment variable that holds the key for one host alone.

    Example:
        >>> key_variable("https://api.together.xyz/v1")
        'TIPPROBE_API_KEY_API_TOGETHER_XYZ'
    """
    return f"{KEY_VARIABLE}_{re.sub('[^0-9A-Za-z]', '_', _host(base_url)).upper()}"


def find_key(base_url: str) -> str | None:
    """Return the key that the environment holds for a server (see `EndpointSampler`), None without one."""
    names = [key_variable(base_url)]
    if not _in_the_open(base_url):
        names.append(KEY_VARIABLE)
        if _host(base_url) == OPENAI_HOST:
            names.append("OPENAI_API_KEY")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _key_advice(base_url: str) -> str:
    own = key_variable(base_url)
    if _in_the_open(base_url):
        return (
            f"{KEY_VARIABLE} is not sent to a public host in clear text: use https, "
            f"or set the key in {own} to send it all the same"
        )
    return f"set the key in {own} or {KEY_VARIABLE}"


def _host(base_url: str) -> str:
    return (urlsplit(base_url).hostname or "").rstrip(".")


def _in_the_open(base_url: str) -> bool:
    """Say whether a key would cross other people's networks in clear text."""
    host = _host(base_url)
    if urlsplit(base_url).scheme == "https":
        return False
    try:
        return not ipaddress.ip_address(host).is_private  # this machine's own addresses are private too
    except ValueError:
        # A name without a dot is the local network's; a number is an address in another spelling.
        return host[:1].isdigit() or ("." in host and host.rpartition(".")[2] not in PRIVATE_DOMAINS)


def _drawing(sampling: Sampling, chat_template_kwargs: Mapping[str, object]) -> dict[str, Any]:
    """Return the `DRAWING_FIELDS` of a request."""
    fields: dict[str, Any] = {"temperature": sampling.temperature}
    if sampling.temperature > 0:  # truncation does nothing to greedy decoding
        fields |= {"top_p": sampling.top_p, "top_k": sampling.top_k}
    return fields | {"chat_template_kwargs": chat_template_kwargs}


def _ending(reason: object, content: object) -> Literal["stop", "length"]:
    """Return how a choice ended.

    Raises:
        _MalformedReply: neither the model nor a limit has ended it, or it ended without any text.
    """
    if reason in CUT and content is None:  # all of the limit may have gone into reasoning
        return "length"
    if reason not in ENDED + CUT:
        raise _MalformedReply(f"a reply that ended with finish reason {reason!r}")
    if not isinstance(content, str):
        raise _MalformedReply(f"a reply without text, its content is {str(content)[:200]}")
    return "stop" if reason in ENDED else "length"


def _all_equal(completions: Sequence[Completion]) -> bool:
    return len({completion.text for completion in completions}) == 1


def _numbered(prompts: Sequence[Prompt], n: int) -> list[list[int]]:
    """Return the numbers of each prompt's samples; a prompt's second occurrence counts on from the first."""
    seen: Counter[str] = Counter()
    numbers = []
    for prompt in prompts:
        key = json.dumps(prompt)
        numbers.append(list(range(seen[key] * n, (seen[key] + 1) * n)))
        seen[key] += 1
    return numbers


def _digest(request: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """Split `total` into whole numbers in proportion to `weights`; they add up to it."""
    scale = sum(weights)
    if not scale:
        weights, scale = [1] * len(weights), len(weights)
    ends = [0]
    for weight in weights:
        ends.append(ends[-1] + weight)
    return [total * b // scale - total * a // scale for a, b in itertools.pairwise(ends)]


def _kind(error: Exception) -> str | None:
    """Name a failure that may pass; None for one that will not."""
    if isinstance(error, openai.APITimeoutError):
        return "timeout"
    if isinstance(error, openai.APIConnectionError):
        return "connection"
    if isinstance(error, openai.APIStatusError) and not isinstance(error, openai.APIResponseValidationError):
        if error.status_code == 429:
            return None if error.code == "insufficient_quota" else "rate limit"
        return "server error" if error.status_code >= 500 or error.status_code in (408, 409) else None
    return "malformed"


def _says_too_long(error: openai.APIStatusError) -> bool:
    """Say whether a server refuses a prompt for its length; old llama.cpp says so as a server error."""
    return error.status_code in (400, 413, 422, 500) and _TOO_LONG.search(error.response.text) is not None


def _context_length(error: openai.APIStatusError) -> int | None:
    """Return the context length in tokens that such a refusal names, None if it names none."""
    found = _CONTEXT_LENGTH.search(error.response.text)
    return int(found[1]) if found else None


def _retry_after_s(error: Exception) -> float | None:
    """Return the seconds that the server asks to wait (``Retry-After`` as a number or a date), if it does."""
    text = getattr(getattr(error, "response", None), "headers", {}).get("retry-after")
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _brief(error: Exception) -> str:
    """Return what a server said, or else an error's message with its cause, on one line."""
    if isinstance(error, openai.APIStatusError):
        text = f"{error.status_code} {error.response.text}"
    else:
        text = f"{error} {error.__cause__ or ''}"
    return " ".join(text.split())[:300] or type(error).__name__
