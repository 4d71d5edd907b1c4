"""A real model server, and what happens when it, or the way to it, fails."""

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipprobe.errors import DataError, EndpointError, ParameterError
from tipprobe.models import endpoint
from tipprobe.models.endpoint import EndpointCompletion, EndpointSampler, ReplyCache
from tipprobe.models.open import endpoint_usage, open_sampler, sampler_options, split_endpoint
from tipprobe.models.transformers_sampler import TransformersSampler
from tipprobe.models.types import Sampling
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
    for name in endpoint.KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


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
    sampler.sample([PROMPT], 1, GREEDY)
    assert sampler.usage.refused == {left_out}
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


def test_the_key_comes_from_the_environment(proxy, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    to(proxy).sample([PROMPT], 1, GREEDY)
    monkeypatch.setenv("TIPPROBE_API_KEY", "ours")
    to(proxy).sample([PROMPT], 1, GREEDY)
    assert [r["headers"]["authorization"] for r in proxy.seen] == ["Bearer other", "Bearer ours"]


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
