"""A real model server, and what happens when it, or the way to it, fails."""

import asyncio
import inspect
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipprobe.errors import DataError, EndpointError, ParameterError
from tipprobe.models import endpoint
from tipprobe.models.endpoint import EndpointCompletion, EndpointSampler, ReplyCache
from tipprobe.models.open import (
    ENDPOINT_OPTIONS,
    endpoint_usage,
    open_sampler,
    sample_fitting,
    sampler_options,
    split_endpoint,
)
from tipprobe.models.transformers_sampler import TransformersSampler
from tipprobe.models.types import PromptTooLong, Sampling
from tipprobe.problems.minicode.world import split
from tipprobe.prompts import code_prompt, probe_prompt, tip_request_prompt, user_prompt
from tipprobe.sandbox import Sandbox
from tipprobe.tips.environment import CodeEnvironment
from tipprobe.tips.teachers import SamplerTeacher

GREEDY = Sampling(temperature=0, max_tokens=160)
FREE = Sampling(temperature=1.0, max_tokens=160, seed=3)
PROBLEMS = split("adaptation", 4)
PROMPT = code_prompt(PROBLEMS[0])


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    for name in os.environ:
        if name.startswith(("TIPPROBE_API_KEY", "OPENAI_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def local():
    return open_sampler("minicode-1m", device="cpu")


def to(proxy, **options) -> EndpointSampler:
    options = {"backoff_s": 0.01, "timeout_s": 30, "tries": 4} | options
    return open_sampler(f"openai:{proxy.name}@{proxy.base_url}", **options)


def fields(completion):
    return completion.text, completion.n_tokens, completion.finish_reason


def test_a_served_model_writes_greedily_what_it_writes_here(proxy, local):
    assert isinstance(local, TransformersSampler)
    prompts = [
        make(problem)
        for problem in PROBLEMS
        for make in (code_prompt, tip_request_prompt, lambda problem: probe_prompt(problem, []))
    ]
    served = to(proxy)
    heard = []
    ours = served.sample(prompts, 1, GREEDY, progress=lambda *args: heard.append(args))
    theirs = local.sample(prompts, 1, GREEDY)
    assert [fields(c) for (c,) in ours] == [fields(c) for (c,) in theirs]
    assert len({c.text for (c,) in ours}) > 1 and all(c.prompt_tokens > 0 for (c,) in ours)
    assert heard == [(i + 1, 12) for i in range(12)]
    usage = served.usage
    assert (usage.requests, usage.replies, usage.retries, usage.cost) == (12, 12, {}, None)
    assert usage.completion_tokens == sum(c.n_tokens for (c,) in ours)
    assert served.revision == f"endpoint:{proxy.name}"


def test_a_reply_at_the_limit_is_cut(proxy, local):
    short = Sampling(temperature=0, max_tokens=5)
    ((reply,),) = to(proxy).sample([PROMPT], 1, short)
    assert fields(reply) == fields(local.sample([PROMPT], 1, short)[0][0])
    assert reply.finish_reason == "length" and reply.n_tokens == 5


def test_samples_have_seeds_of_their_own(proxy):
    # This server draws from one generator for everybody, so seeds hold while nobody else is asking.
    sampler = to(proxy, concurrency=1)
    first = sampler.sample([PROMPT, PROMPT], 4, FREE)
    assert first == to(proxy, concurrency=1).sample([PROMPT, PROMPT], 4, FREE)
    seeds = [request["body"]["seed"] for request in proxy.seen]
    assert len(set(seeds)) == 8 and len({c.text for row in first for c in row}) > 4
    assert sampler.sample([PROMPT], 4, Sampling(max_tokens=160, seed=4))[0] != first[0]


def test_fields_that_a_server_refuses_are_left_out(proxy):
    sampler = to(proxy)
    sampler.sample([PROMPT], 3, FREE)
    sampler.sample([PROMPT], 1, FREE)
    assert sampler.usage.refused == {"top_k", "n"}  # the server ignores `n`: one choice comes back
    bodies = [request["body"] for request in proxy.seen]
    assert [("top_k" in body, body.get("n")) for body in bodies] == [
        (True, 3),
        (False, 3),
        (False, None),
        (False, None),
        (False, None),
    ]
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in bodies)


@pytest.mark.parametrize(
    ("answer", "left_out"),
    [
        ({"message": "Unsupported: 'max_tokens'. Use 'max_completion_tokens'."}, "max_tokens"),
        ({"code": "unsupported_value", "param": "temperature", "message": "no temperature"}, "temperature"),
        ({"message": 'Invalid JSON payload received. Unknown name "seed"'}, "seed"),
    ],
)
def test_other_dialects(proxy, answer, left_out):
    proxy.faults.append({"status": 400, "body": json.dumps({"error": answer})})
    sampler = to(proxy)
    sampler.sample([PROMPT], 1, FREE)
    assert "top_k" in sampler.usage.refused  # by the server itself
    assert sampler.usage.refused - {"top_k"} == {left_out}
    assert left_out in proxy.seen[0]["body"] and left_out not in proxy.seen[1]["body"]
    assert ("max_completion_tokens" in proxy.seen[1]["body"]) == (left_out == "max_tokens")


def test_a_bad_value_is_not_silently_left_out(proxy):
    proxy.always = {"status": 400, "body": '{"error": {"message": "temperature must be below 2"}}'}
    with pytest.raises(EndpointError, match="temperature must be below 2"):
        to(proxy).sample([PROMPT], 1, FREE)
    assert len(proxy.seen) == 1


def test_what_passes_is_tried_again_and_counted(proxy, local):
    proxy.faults += [
        {"status": 429, "headers": {"Retry-After": "0.05"}},
        {"status": 503},
        {"drop": True},
        {"cut": True},
        {"half": True},
        {"status": 200, "body": '{"error": "overloaded"}'},
        {"sleep_s": 3.0},
    ]
    short = Sampling(temperature=0, max_tokens=20)
    sampler = to(proxy, tries=8, timeout_s=2.5, concurrency=1)
    ((reply,),) = sampler.sample([PROMPT], 1, short)
    assert reply.text == local.sample([PROMPT], 1, short)[0][0].text
    assert sampler.usage.retries == {
        "rate limit": 1,
        "server error": 1,
        "connection": 2,
        "malformed": 2,
        "timeout": 1,
    }
    assert (sampler.usage.requests, sampler.usage.replies) == (8, 1)


def test_a_server_that_stays_busy_is_an_error(proxy, tmp_path):
    sampler = to(proxy, concurrency=1, cache=tmp_path / "replies.sqlite")
    sampler.sample([PROMPT], 1, GREEDY)
    proxy.always = {"status": 429, "body": '{"error": {"message": "slow down"}}'}
    other = code_prompt(PROBLEMS[1])
    with pytest.raises(
        EndpointError, match=r"after 4 tries: rate limit × 4; .*slow down.*requests_per_minute"
    ):
        sampler.sample([PROMPT, other], 1, GREEDY)
    assert sampler.usage.retries == {"rate limit": 3}
    proxy.always = None
    again = to(proxy, cache=tmp_path / "replies.sqlite")
    assert all(c.text for (c,) in again.sample([PROMPT, other], 1, GREEDY))
    assert (again.usage.cache_hits, again.usage.requests) == (
        1,
        1,
    )  # nothing empty was kept for the failed one


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"status": 429, "headers": {"Retry-After": "3600"}}, "wait 3600 s"),
        (
            {"status": 429, "body": '{"error": {"code": "insufficient_quota", "message": "x"}}'},
            "left to spend",
        ),
        ({"status": 401}, "TIPPROBE_API_KEY"),
        ({"status": 404}, "/v1"),
    ],
)
def test_what_waiting_does_not_mend_is_not_waited_for(proxy, answer, message):
    proxy.always = answer
    with pytest.raises(EndpointError, match=message):
        to(proxy, concurrency=1).sample([PROMPT], 1, GREEDY)
    assert len(proxy.seen) == 1


def test_a_slow_server_is_an_error_in_the_end(proxy):
    proxy.always = {"sleep_s": 0.6}
    with pytest.raises(EndpointError, match=r"timeout × 2.*timeout_s, now 0\.1"):
        to(proxy, tries=2, timeout_s=0.1).sample([PROMPT], 1, GREEDY)


def test_nobody_there():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sampler = EndpointSampler("m", f"http://127.0.0.1:{port}/v1", tries=3, backoff_s=0.01)
    with pytest.raises(
        EndpointError, match=rf"127.0.0.1:{port}/v1.*connection × [34].*refused.*transformers serve"
    ):
        sampler.sample([PROMPT, user_prompt("x")], 1, GREEDY)
    assert sampler.usage.replies == 0 and sampler.usage.retries["connection"] >= 2


def test_odd_endings(proxy):
    proxy.faults += [
        {"content": None, "choice": {"finish_reason": "content_filter"}},
        {"content": ""},
    ]
    sampler = to(proxy, concurrency=1)
    (filtered,), (empty,) = sampler.sample([PROMPT, code_prompt(PROBLEMS[1])], 1, GREEDY)
    assert (filtered.text, filtered.finish_reason) == ("", "length")
    assert (empty.text, empty.finish_reason) == ("", "stop")
    assert sampler.usage.finish_reasons == {"content_filter": 1, "stop": 1}


def test_a_second_run_asks_nothing(proxy, tmp_path):
    cache = tmp_path / "deep" / "replies.sqlite"
    prompts = [PROMPT, code_prompt(PROBLEMS[1]), PROMPT]
    first = to(proxy, cache=cache, price_in=2.0, price_out=10.0)
    replies = first.sample(prompts, 2, FREE)
    assert first.usage.cost == pytest.approx(
        (first.usage.prompt_tokens * 2 + first.usage.completion_tokens * 10) / 1e6
    )
    heard = []
    second = to(proxy, cache=cache, price_in=2.0, price_out=10.0)
    assert second.sample(prompts, 2, FREE, progress=lambda *args: heard.append(args)) == replies
    assert (second.usage.cache_hits, second.usage.requests, second.usage.cost) == (6, 0, 0)
    assert heard == [(6, 6)]
    assert second.sample([PROMPT], 3, FREE)[0][:2] == replies[0]
    assert second.usage.requests == 0  # the third is the third prompt's first
    second.sample([PROMPT], 1, Sampling(max_tokens=160, seed=4))
    assert second.usage.replies == 1
    assert "deep" not in json.dumps(second.usage.to_json())


class Stub(ThreadingHTTPServer):
    """Answers a request's body with what `answer` makes of it: a status and something for JSON."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _StubHandler)
        self.base_url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.answer = lambda body: (200, chat(*[f"reply {body['seed']}"] * body.get("n", 1)))
        self.bodies, self.headers = [], []


class _StubHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.headers.append({key.lower(): value for key, value in self.headers.items()})
        status, answer = self.server.answer(body)
        sent = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture
def start_stub():
    """A function that starts a `Stub`."""
    started = []

    def start():
        server = Stub()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        started.append((server, thread))
        return server

    yield start
    for server, thread in started:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def stub(start_stub):
    return start_stub()


def chat(*texts, finish_reason="stop"):
    return {
        "choices": [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
            for i, text in enumerate(texts)
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3 * len(texts)},
    }


def refusing(*names):
    """Return an `answer` that refuses fields by name and says what it was sent otherwise."""

    def answer(body):
        for name in names:
            if name in body:
                error = {"message": f"unknown field '{name}'", "code": "unsupported_value", "param": name}
                return 400, {"error": error}
        sent = f"{sorted(body)} {body['seed']}"
        return 200, chat(*[sent] * body.get("n", 1))

    return answer


def ask(stub, **options) -> EndpointSampler:
    return open_sampler(f"openai:m@{stub.base_url}", **{"backoff_s": 0.001, "tries": 3} | options)


@pytest.mark.parametrize(
    ("text", "finish_reason"),
    [
        ("half a", "abort"),
        ("half a", "error"),
        ("half a", None),
        ("whole", "tool_calls"),
        (None, "stop"),
        (["in parts"], "length"),
    ],
)
def test_a_reply_that_nobody_ended_is_no_reply(stub, tmp_path, text, finish_reason):
    useless = chat(text, finish_reason=finish_reason)
    stub.answer = lambda body: (200, useless)
    sampler = ask(stub, cache=tmp_path / "replies.sqlite")
    with pytest.raises(EndpointError, match=r"malformed × 3.*a reply (that ended with|without)"):
        sampler.sample([PROMPT], 1, GREEDY)
    assert len(sampler.cache) == 0
    assert (sampler.usage.replies, sampler.usage.completion_tokens) == (0, 9)  # paid for all the same
    answers = [useless, chat("whole")]
    stub.answer = lambda body: (200, answers.pop(0))
    ((reply,),) = sampler.sample([PROMPT], 1, GREEDY)
    assert fields(reply) == ("whole", 3, "stop") and sampler.usage.retries == {"malformed": 3}
    assert len(sampler.cache) == 1


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("eos", "stop"), ("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length")],
)
def test_other_words_for_an_end(stub, theirs, ours):
    stub.answer = lambda body: (200, chat("text", finish_reason=theirs))
    assert ask(stub).sample([PROMPT], 1, GREEDY)[0][0].finish_reason == ours


def test_one_spoilt_choice_spoils_the_reply(stub, tmp_path):
    reply = chat("a", "b")
    reply["choices"][1]["finish_reason"] = "abort"
    stub.answer = lambda body: (200, reply)
    sampler = ask(stub, cache=tmp_path / "replies.sqlite")
    with pytest.raises(EndpointError, match="malformed"):
        sampler.sample([PROMPT], 2, FREE)
    assert len(sampler.cache) == 0


def test_half_a_surrogate_pair_is_replaced(stub, tmp_path):
    stub.answer = lambda body: (200, chat("print('\ud83d')"))
    cache = tmp_path / "replies.sqlite"
    replies = ask(stub, cache=cache).sample([PROMPT], 1, GREEDY)
    assert replies[0][0].text == "print('\ufffd')"
    assert ask(stub, cache=cache).sample([PROMPT], 1, GREEDY) == replies and len(stub.bodies) == 1
    kept = ReplyCache(cache).put("key", {"asked": "\ud83d"}, EndpointCompletion("\ud83d", 1, "stop"))
    assert kept.text == "\ud83d"


def test_a_reply_is_kept_under_what_was_sent(start_stub, tmp_path):
    cache, prompts = tmp_path / "replies.sqlite", [PROMPT, user_prompt("other")]
    one, other = start_stub(), start_stub()
    one.answer, other.answer = refusing("top_k", "chat_template_kwargs"), refusing()
    without = ask(one, cache=cache).sample(prompts, 2, FREE)
    whole = ask(other, cache=cache).sample(prompts, 2, FREE)
    assert all("top_k" not in c.text for row in without for c in row)
    assert all("top_k" in c.text and "chat_template_kwargs" in c.text for row in whole for c in row)
    with sqlite3.connect(cache) as connection:
        requests = [json.loads(r) for (r,) in connection.execute("SELECT request FROM replies")]
    assert sorted(map(str, (r["left_out"] for r in requests))) == sorted(
        ["[]"] * 4 + ["['chat_template_kwargs', 'top_k']"] * 4
    )

    # Whoever comes back finds its own replies, before it has heard the refusal and without the server.
    for server, replies in ((one, without), (other, whole)):
        server.answer = lambda body: (500, {})
        again = ask(server, cache=cache)
        assert again.sample(prompts, 2, FREE) == replies and again.usage.requests == 0
    assert ask(one, cache=cache).usage.refused == {"top_k", "chat_template_kwargs"}
    # What greedy decoding does not send cannot be missing from it.
    one.answer = refusing("top_k", "chat_template_kwargs")
    ask(one, cache=cache).sample([PROMPT], 1, GREEDY)
    with sqlite3.connect(cache) as connection:
        (last,) = connection.execute("SELECT request FROM replies ORDER BY rowid DESC LIMIT 1").fetchone()
    assert json.loads(last)["left_out"] == ["chat_template_kwargs"]


def test_a_server_that_moved_is_not_paid_again(start_stub, tmp_path):
    cache, prompts = tmp_path / "replies.sqlite", [user_prompt(f"{i}") for i in range(6)]
    before, after = start_stub(), start_stub()
    before.answer = after.answer = refusing("top_k", "chat_template_kwargs", "seed_")
    replies = ask(before, cache=cache).sample(prompts, 3, FREE)
    moved = ask(after, cache=cache, concurrency=2)
    heard = []
    assert moved.sample(prompts, 3, FREE, progress=lambda *args: heard.append(args)) == replies
    assert moved.usage.replies == 0 and moved.usage.cache_hits == 18 and heard[-1] == (18, 18)
    assert all("top_k" in body or "chat_template_kwargs" in body for body in after.bodies)  # all refused
    # A part of the samples was kept: only the rest is asked for.
    assert ask(before, cache=cache).sample([prompts[0]], 5, FREE)[0][:3] == replies[0]
    assert [body["n"] for body in before.bodies if "top_k" not in body][-1] == 2


def test_greedy_decoding_needs_the_temperature(stub, tmp_path):
    stub.answer = refusing("temperature")
    sampler = ask(stub, cache=tmp_path / "replies.sqlite")
    with pytest.raises(EndpointError, match="takes no temperature"):
        sampler.sample([PROMPT], 1, GREEDY)
    assert len(sampler.cache) == 0 and len(stub.bodies) == 1
    sampler.sample([PROMPT], 1, FREE)  # what the server does by itself, and kept as that
    assert "temperature" not in stub.bodies[-1] and len(sampler.cache) == 1
    with pytest.raises(EndpointError, match="takes no temperature"):
        ask(stub, cache=tmp_path / "replies.sqlite").sample([PROMPT], 1, GREEDY)
    assert len(stub.bodies) == 2


def test_a_line_end_in_a_refusal_is_no_field(stub):
    stub.answer = lambda body: (400, {"error": {"message": "bad value:\n\nsee the manual"}})
    sampler = ask(stub)
    with pytest.raises(EndpointError, match="bad value"):
        sampler.sample([PROMPT], 2, FREE)
    assert sampler.usage.refused == set()


TOO_LONG = [
    (400, {"error": {"message": "Too much of it.", "code": "context_length_exceeded"}}),
    (400, {"message": "This model's maximum context length is 4096 tokens. However, you requested 9 more."}),
    (
        400,
        {
            "error": {
                "message": "You passed 4097 input tokens. However, the model's context length is only 4096"
            }
        },
    ),
    (
        400,
        {
            "error": {
                "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."
            }
        },
    ),
    (400, {"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."}),
    (400, {"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}}),
    (500, {"error": {"message": "request (5000 tokens) exceeds the available context size (4096 tokens)"}}),
    (
        400,
        {
            "message": "Prompt contains 5000 tokens, too large for model with 4096 maximum context length",
            "code": 9,
        },
    ),
    (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"}),
]


@pytest.mark.parametrize("refusal", TOO_LONG)
def test_a_prompt_beyond_the_context_stops_nobody(stub, tmp_path, refusal):
    stub.answer = lambda body: refusal if "long" in str(body["messages"]) else (200, chat("a", "b"))
    prompts = [user_prompt(text) for text in ("one", "long", "two", "longer")]
    sampler, heard = ask(stub, cache=tmp_path / "replies.sqlite", concurrency=1), []
    with pytest.raises(PromptTooLong, match=r"2 of 4 prompts do not fit.*begins 'long'") as caught:
        sampler.sample(prompts, 2, FREE, progress=lambda *args: heard.append(args))
    assert isinstance(caught.value, DataError) and caught.value.indices == (1, 3)
    assert [group and [c.text for c in group] for group in caught.value.completions] == [
        ["a", "b"],
        None,
        ["a", "b"],
        None,
    ]
    assert heard[-1] == (8, 8) and sampler.usage.retries == {} and len(sampler.cache) == 4
    assert sample_fitting(sampler, prompts, 2, FREE) == caught.value.completions
    assert sampler.usage.replies == 4  # a refusal is not kept, a reply is
    assert sample_fitting(sampler, prompts[1:2], 2, FREE) == [None]
    assert sample_fitting(sampler, prompts[:1], 2, FREE) == caught.value.completions[:1]


def test_one_refusal_speaks_for_all_samples_of_a_prompt(stub):
    stub.answer = lambda body: (
        TOO_LONG[0] if "long" in str(body["messages"]) else refusing("top_k")(body | {"n": 1})
    )
    sampler = ask(stub, concurrency=1)
    sampler.sample([PROMPT], 4, FREE)  # this server gives one choice only
    assert sampler.usage.refused == {"n", "top_k"}
    before = len(stub.bodies)
    assert sample_fitting(sampler, [user_prompt("long")], 4, FREE) == [None]
    assert len(stub.bodies) == before + 1


def test_a_limit_that_leaves_no_room_is_no_matter_of_the_prompt(stub):
    stub.answer = lambda body: TOO_LONG[1]
    with pytest.raises(EndpointError, match="max_tokens 4096 leaves no room"):
        ask(stub).sample([PROMPT], 1, Sampling(max_tokens=4096))


@pytest.mark.parametrize(
    ("base_url", "set_", "key"),
    [
        ("https://api.openai.com/v1", ["OPENAI_API_KEY"], "OPENAI_API_KEY"),
        ("https://api.openai.com/v1", ["OPENAI_API_KEY", "TIPPROBE_API_KEY"], "TIPPROBE_API_KEY"),
        ("https://api.together.xyz/v1", ["OPENAI_API_KEY"], None),
        ("https://api.together.xyz/v1", ["TIPPROBE_API_KEY"], "TIPPROBE_API_KEY"),
        (
            "https://api.together.xyz/v1",
            ["TIPPROBE_API_KEY", "TIPPROBE_API_KEY_API_TOGETHER_XYZ"],
            "TIPPROBE_API_KEY_API_TOGETHER_XYZ",
        ),
        ("https://api.mistral.ai/v1", ["TIPPROBE_API_KEY_API_TOGETHER_XYZ"], None),
        ("http://gpu.example.com:8000/v1", ["TIPPROBE_API_KEY"], None),
        ("http://8.8.8.8/v1", ["TIPPROBE_API_KEY"], None),
        ("http://134744072/v1", ["TIPPROBE_API_KEY"], None),
        ("http://api.openai.com/v1", ["OPENAI_API_KEY"], None),
        ("http://8.8.8.8/v1", ["TIPPROBE_API_KEY_8_8_8_8"], "TIPPROBE_API_KEY_8_8_8_8"),
        ("http://127.0.0.1:8000/v1", ["TIPPROBE_API_KEY"], "TIPPROBE_API_KEY"),
        ("http://[::1]:8000/v1", ["TIPPROBE_API_KEY"], "TIPPROBE_API_KEY"),
        ("http://10.0.0.7/v1", ["TIPPROBE_API_KEY"], "TIPPROBE_API_KEY"),
        ("http://localhost:8000/v1", ["TIPPROBE_API_KEY"], "TIPPROBE_API_KEY"),
        ("http://vllm:8000/v1", ["TIPPROBE_API_KEY"], "TIPPROBE_API_KEY"),
        ("http://gpu1.internal/v1", ["TIPPROBE_API_KEY"], "TIPPROBE_API_KEY"),
    ],
)
def test_each_server_gets_its_own_key(monkeypatch, base_url, set_, key):
    for name in set_:
        monkeypatch.setenv(name, name)
    assert endpoint.find_key(base_url) == key
    assert EndpointSampler("m", base_url)._client.api_key == (key or "none")


def test_what_is_sent_of_the_environment(stub, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "theirs")
    ask(stub).sample([PROMPT], 1, GREEDY)
    monkeypatch.setenv("TIPPROBE_API_KEY", "ours")
    ask(stub).sample([PROMPT], 1, GREEDY)
    assert [headers["authorization"] for headers in stub.headers] == ["Bearer none", "Bearer ours"]
    assert not any("theirs" in headers.values() for headers in stub.headers)


def test_a_missing_key_is_asked_for_by_name(stub):
    stub.answer = lambda body: (401, {})
    with pytest.raises(EndpointError, match="TIPPROBE_API_KEY_127_0_0_1 or TIPPROBE_API_KEY"):
        ask(stub).sample([PROMPT], 1, GREEDY)
    assert "not sent to a public host in clear text" in endpoint._key_advice("http://gpu.example.com/v1")


def test_options_of_a_server():
    parameters = inspect.signature(EndpointSampler).parameters
    assert parameters.keys() == ENDPOINT_OPTIONS | {"model", "base_url", "cache"}
    for spec in ("minicode-1m", "openai:m@http://127.0.0.1:1/v1"):
        with pytest.raises(
            ParameterError, match=r"'requests_per_minutes'; did you mean requests_per_minute\?"
        ):
            open_sampler(spec, device="cpu", requests_per_minutes=3)
    assert open_sampler("minicode-1m", device="cpu", requests_per_minute=3, price_in=1.0)


def test_prompts_beyond_the_context_of_a_model_of_this_process(tiny_model):
    sampler = TransformersSampler(*tiny_model, revision="tiny")
    short, long = user_prompt("a"), user_prompt("a" * 600)
    one, none, two = sample_fitting(sampler, [short, long, short], 2, Sampling(max_tokens=3))
    assert none is None and len(one) == len(two) == 2
    assert sample_fitting(sampler, [long], 1, FREE) == [None] and sample_fitting(sampler, [], 1, FREE) == []


WRITER = """
import sys
from pathlib import Path
from tipprobe.models.endpoint import EndpointCompletion, ReplyCache
cache, name, count = ReplyCache(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for i in range(count):
    reply = cache.put(f"shared {i}", {"by": name}, EndpointCompletion(name * 500, i, "stop", 1))
    assert reply.n_tokens == i
"""


def test_two_processes_and_a_kill(tmp_path):
    path = tmp_path / "replies.sqlite"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name, "60"]) for name in "ab"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    cache = ReplyCache(path)
    assert len(cache) == 60
    assert all(cache.get(f"shared {i}").text in ("a" * 500, "b" * 500) for i in range(60))

    killed = subprocess.Popen([*command, "c", "100000"], stdout=subprocess.PIPE)
    killed.stdout.readline()
    while len(cache) < 80:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait(timeout=60)
    killed.stdout.close()
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT reply FROM replies").fetchall()
    assert len(rows) >= 80 and all(EndpointCompletion(**json.loads(reply)) for (reply,) in rows)
    assert cache.put("after", {}, EndpointCompletion("x", 1, "stop")).text == "x"


def test_a_file_that_is_no_cache(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a data base at all, but long enough to look like something" * 20)
    with pytest.raises(DataError, match=r"notes\.txt"):
        ReplyCache(path)


def test_whoever_interrupts_is_not_kept_waiting(proxy, tmp_path):
    proxy.faults += [{}, {"sleep_s": 2.0}]
    sampler = to(proxy, concurrency=2, cache=tmp_path / "replies.sqlite")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sampler.sample([PROMPT, code_prompt(PROBLEMS[1])], 1, GREEDY, progress=interrupt)
    assert sampler.usage.replies == 1
    while len(sampler.cache) < 2:  # the other one was paid for, so it is kept
        time.sleep(0.05)


def test_a_server_that_does_not_sample_is_noticed(proxy):
    proxy.always = {"content": "always the same"}
    with pytest.warns(UserWarning, match="all 4 samples of each prompt are equal"):
        to(proxy).sample([PROMPT], 4, FREE)


def test_it_works_where_an_event_loop_runs(proxy):
    async def cell():
        return to(proxy).sample([PROMPT], 1, GREEDY)

    assert asyncio.run(cell())[0][0].text


def test_an_environment_behind_a_server(proxy, local, tmp_path):
    with Sandbox(1) as sandbox:
        here, there = (
            CodeEnvironment(sampler, sandbox, GREEDY, time_limit_s=2, memory_mb=512)
            for sampler in (local, to(proxy))
        )
        requests = [(problem, tip) for problem in PROBLEMS for tip in (None, problem.meta["tip"])]
        assert here.attempts(requests) == there.attempts(requests)


class Clock:
    """A clock that moves when somebody waits."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(endpoint.time, "monotonic", lambda: self.now)

    def wait(self, seconds):
        self.now += max(0.0, seconds)


def test_requests_keep_to_a_rate(monkeypatch):
    clock = Clock(monkeypatch)
    pacer, sent = endpoint._Pacer(30), []
    for _ in range(3):
        pacer.wait(clock)
        sent.append(clock.now)
    pacer.hold(10)
    pacer.wait(clock)
    assert [*sent, clock.now] == [100, 102, 104, 114]


@pytest.mark.parametrize(("text", "seconds"), [("1.5", 1.5), ("-3", 0), ("soon", None), (None, None)])
def test_how_long_a_server_asks_to_wait(text, seconds):
    assert endpoint._retry_after_s(refused(text)) == seconds


def test_a_date_to_wait_for():
    assert 50 < endpoint._retry_after_s(refused(formatdate(time.time() + 100, usegmt=True))) <= 100
    assert endpoint._retry_after_s(refused(formatdate(0, usegmt=True))) == 0


def refused(retry_after):
    error = Exception()
    error.response = type(
        "Response", (), {"headers": {} if retry_after is None else {"retry-after": retry_after}}
    )
    return error


@given(st.integers(0, 1000), st.lists(st.integers(0, 50), min_size=1, max_size=6))
def test_shares_add_up(total, weights):
    shares = endpoint._shares(total, weights)
    assert sum(shares) == total and min(shares) >= 0 and len(shares) == len(weights)


def test_a_failure_stops_the_others(proxy):
    proxy.faults += [{"status": 503}] * 7  # whoever gets these waits half a minute for the next try
    proxy.always = {"status": 403}
    with pytest.raises(EndpointError, match="403"):
        to(proxy, tries=50, backoff_s=60).sample([user_prompt(f"{i}") for i in range(20)], 1, GREEDY)
    assert len(proxy.seen) == 8


@pytest.mark.parametrize(
    "spec", ["", "openai:", "openai:m", "openai:m@", "openai:m@host/v1", "openai:@http://h/v1"]
)
def test_specs_that_name_nothing(spec):
    with pytest.raises(ParameterError):
        open_sampler(spec)


def test_endpoint_specs():
    assert split_endpoint("openai:a/b@rev@https://h:1/v1") == ("a/b@rev", "https://h:1/v1")
    with pytest.raises(ParameterError, match="TIPPROBE_API_KEY") as caught:
        split_endpoint("openai:m@https://me:secret@h/v1")
    assert "secret" not in str(caught.value)
    with pytest.raises(ParameterError, match="tries"):
        open_sampler("openai:m@http://h/v1", tries=0)
    with pytest.raises(ParameterError, match="timeout_s"):
        open_sampler("openai:m@http://h/v1", timeout_s=0)
    with pytest.raises(DataError, match="no model at"):
        open_sampler("/nowhere/at/all", device="cpu")


def test_what_a_server_was_asked_as_rows_of_a_summary(proxy, local):
    proxy.faults += [{"status": 503}]
    sampler = to(proxy, price_in=1e6, price_out=0.0)
    sampler.sample([PROMPT], 1, GREEDY)
    rows = endpoint_usage(coder=sampler, teacher=SamplerTeacher(sampler), here=local, nobody=None)
    assert rows["coder: requests"] == 2 and rows["coder: retries"] == "server error × 1"
    assert rows["coder: refused"] == "none" and rows["coder: cache hits"] == 0
    assert rows["coder: cost"] == rows["coder: prompt tokens"] > 0
    assert {name.partition(":")[0] for name in rows} == {"coder", "teacher"}
    assert endpoint_usage(coder=to(proxy))["coder: cost"] == "unknown"


def test_options_that_decide_about_replies(proxy, local):
    assert sampler_options(local) == {}
    found = sampler_options(to(proxy, extra_body={"x": 1}))
    assert found == {"chat_template_kwargs": {"enable_thinking": False}, "extra_body": {"x": 1}}
