"""Bytes on the socket between a pool and its worker: length-prefixed frames of fixed structs, never
pickles."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

HELLO, COMPILED, RUN, DONE = range(1, 5)  # frame kinds a worker sends; a pool sends jobs only

# Exit codes of a worker that gives up (its pool then starts a fresh one).
EXIT_INFRASTRUCTURE = 70  # something failed that no program is to blame for
EXIT_SUPERVISOR_DIED = 77  # the process that watches one program was killed while the program ran

NOT_ASKED_FOR = "not asked for"  # why a layer above the highest level to try is missing

STATUSES = (
    "ok",
    "compile_error",
    "runtime_error",
    "bad_value",
    "signal",
    "cpu_limit",
    "wall_limit",
    "memory_limit",
    "output_limit",
    "skipped",
)

FRAME = struct.Struct("<BQ")  # kind, payload length
_LENGTH = struct.Struct("<Q")
_JOB = struct.Struct("<ddQQqBB")  # cpu_s, wall_s, memory_mb, output_bytes, seed, is_call, wait_for_verdict
_RUN = struct.Struct("<IBBiidddQQQ")  # index, status, truncated, exit, signal, cpu, wall, rss, three lengths

GO_ON, STOP = b"g", b"s"  # a pool's answer after each run, when the job asks for one


class JobFrame(NamedTuple):
    """A job as it travels: texts are UTF-8 (lone surrogates kept), inputs in order."""

    cpu_s: float
    wall_s: float
    memory_mb: int
    output_bytes: int
    seed: int
    is_call: bool
    wait_for_verdict: bool
    source: bytes
    entry_point: bytes
    inputs: list[bytes]


class RunFrame(NamedTuple):
    """Outcome of one input; `exit_code` is -1 where there is none, `signal` 0."""

    index: int
    status: int
    truncated: bool
    exit_code: int
    signal: int
    cpu_s: float
    wall_s: float
    max_rss_mb: float
    stdout: bytes
    value: bytes
    stderr: bytes


def pack_job(job: JobFrame) -> bytes:
    """Return the job as one length-prefixed block."""
    head = _JOB.pack(*job[:7])
    parts = [head]
    for part in (job.source, job.entry_point, *job.inputs):
        parts += (_LENGTH.pack(len(part)), part)
    body = b"".join(parts)
    return _LENGTH.pack(len(body)) + body


def read_job(sock: socket.socket) -> JobFrame:
    """Read one job from a blocking socket; EOFError if the pool is gone."""
    body = read_exactly(sock, _LENGTH.unpack(read_exactly(sock, _LENGTH.size))[0])
    head = _JOB.unpack_from(body)
    parts, at = [], _JOB.size
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        parts.append(bytes(body[at : at + length]))
        at += length
    return JobFrame(*head[:5], bool(head[5]), bool(head[6]), parts[0], parts[1], parts[2:])


def pack_run(run: RunFrame) -> list[bytes]:
    """Return the pieces of one run frame, header first (for `sendmsg`)."""
    lengths = (len(run.stdout), len(run.value), len(run.stderr))
    head = _RUN.pack(*run[:8], *lengths)
    return [FRAME.pack(RUN, len(head) + sum(lengths)) + head, run.stdout, run.value, run.stderr]


def unpack_run(payload: memoryview) -> RunFrame:
    """Read a run frame's payload; ValueError if the lengths do not add up."""
    if len(payload) < _RUN.size:
        raise ValueError("short run frame")
    *head, n_out, n_value, n_err = _RUN.unpack_from(payload)
    if _RUN.size + n_out + n_value + n_err != len(payload):
        raise ValueError("lengths of a run frame do not add up")
    at = _RUN.size
    out, value = bytes(payload[at : at + n_out]), bytes(payload[at + n_out : at + n_out + n_value])
    return RunFrame(*head[:2], bool(head[2]), *head[3:], out, value, bytes(payload[at + n_out + n_value :]))


def read_exactly(sock: socket.socket, size: int) -> bytearray:
    """Read `size` bytes; EOFError if the other end closes first."""
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        n = sock.recv_into(view[got:])
        if n == 0:
            raise EOFError("the other end of the socket is closed")
        got += n
    return data


def send_all(sock: socket.socket, parts: list[bytes]) -> None:
    """Send `parts` in order; small frames leave in one system call."""
    if sum(map(len, parts)) <= 1 << 16:
        sock.sendall(b"".join(parts))
        return
    for part in parts:
        sock.sendall(part)
