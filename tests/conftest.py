"""Fixtures shared by all tests."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tipprobe.models.load import EMBEDDED

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_model():
    """A random two-layer Llama with a byte-level tokenizer and a chat template: (model, tokenizer)."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"]
    symbols = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(symbols)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(symbols),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
    )
    return model.eval(), tokenizer


@pytest.fixture(scope="session")
def tiny_model_folder(tiny_model, tmp_path_factory) -> Path:
    """The folder that `tiny_model` was saved to."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    for part in tiny_model:
        part.save_pretrained(folder)
    return folder


def pytest_collection_modifyitems(items):
    """Mark what needs the model server as slow: it takes its time to start."""
    for item in items:
        if "model_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def model_server(tmp_path_factory) -> tuple[str, int]:
    """The embedded coder behind the server that comes with transformers: (its name there, port)."""
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    name = str(EMBEDDED["minicode-1m"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [str(Path(sys.executable).with_name("transformers")), "serve", name, "--device", "cpu"]
    command += ["--dtype", "float32"]  # the checkpoint is in half precision, we compute in single
    with log.open("wb") as stream:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
    try:
        for _ in range(600):
            if server.poll() is not None:
                pytest.fail(f"the model server ended:\n{log.read_text()[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        else:
            pytest.fail(f"the model server does not listen:\n{log.read_text()[-2000:]}")
        yield name, port
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


class FaultyProxy(ThreadingHTTPServer):
    """Stands in front of a model server and spoils its answers, one planned fault a request, then none.

    Faults: ``{"status": int, "headers": {}, "body": str}`` (does not ask the server), ``{"sleep_s": float}``,
    ``{"drop": True}`` (closes without an answer), ``{"cut": True}`` (closes in the middle of the answer),
    ``{"half": True}`` (half an answer that claims to be whole), ``{"content": str}`` (another reply),
    ``{"choice": dict}`` (other fields of the choice).
    """

    daemon_threads = True

    def __init__(self, name: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _FaultyHandler)
        self.name, self.behind = name, port
        self.faults: deque[dict] = deque()
        self.always: dict | None = None
        self.seen: list[dict] = []
        self.base_url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address) -> None:
        """Clients that gave up are part of the tests."""


class _FaultyHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(
            {"body": json.loads(sent), "headers": {k.lower(): v for k, v in self.headers.items()}}
        )
        faults = self.server.faults
        fault = faults.popleft() if faults else self.server.always or {}
        if "status" in fault:
            return self._answer(fault["status"], fault.get("body", "{}").encode(), fault.get("headers", {}))
        time.sleep(fault.get("sleep_s", 0))
        if "drop" in fault:
            return None
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        behind.request("POST", self.path, sent, {"Content-Type": "application/json"})
        answer = behind.getresponse()
        body = answer.read()
        if answer.status == 200 and ("content" in fault or "choice" in fault):
            reply = json.loads(body)
            if "content" in fault:
                reply["choices"][0]["message"]["content"] = fault["content"]
            reply["choices"][0].update(fault.get("choice", {}))
            body = json.dumps(reply).encode()
        if "half" in fault:
            body = body[: len(body) // 2]
        return self._answer(answer.status, body, {}, len(body) // 2 if "cut" in fault else None)

    def _answer(self, status: int, body: bytes, headers: dict[str, str], sent: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body[:sent])

    def log_message(self, *args) -> None:
        """Say nothing."""


@pytest.fixture
def proxy(model_server):
    """A `FaultyProxy` in front of `model_server`."""
    server = FaultyProxy(*model_server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
