"""Run inside the sandbox as if it were a candidate: tries what must be refused, prints what was (JSON).

Reads ``{"folder", "package", "port", "owner", "pid_namespace"}`` from stdin.  Attempts that succeed do no
harm.
"""

import ctypes
import errno
import json
import os
import resource
import socket
import sys

given = json.load(sys.stdin)
libc = ctypes.CDLL(None, use_errno=True)


def read():
    with open(given["folder"] + "/canary") as file:
        file.read()


def write():
    with open(given["folder"] + "/made-by-selftest", "w") as file:
        file.write("x")


def package():
    with open(given["package"] + "/__init__.py") as file:
        file.read()


def imports():
    __import__(os.path.basename(given["package"]))


def modes():
    os.chmod(given["folder"] + "/canary", 0o600)


def connect():
    with socket.socket() as client:
        client.settimeout(2)
        client.connect(("127.0.0.1", given["port"]))


def signals():
    if own_pid_namespace():
        raise PermissionError
    os.kill(given["owner"], 0)


def limits():
    if own_pid_namespace():
        raise PermissionError
    resource.prlimit(given["owner"], resource.RLIMIT_CORE)


def trace():
    peek_user = 3  # fails for a process that is not traced, but with another error than a refusal
    if libc.ptrace(peek_user, given["owner"], None, None) < 0 and ctypes.get_errno() == errno.EPERM:
        raise PermissionError


def namespaces():
    new_user_namespace = 0x10000000
    if libc.unshare(new_user_namespace) != 0:
        raise PermissionError


def processes():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def own_pid_namespace():
    """Whether process ids here mean other processes than the owner's do."""
    try:
        return os.readlink("/proc/self/ns/pid") != given["pid_namespace"]
    except OSError:
        return False


refused = []
for attempt in (read, write, package, imports, modes, connect, signals, limits, trace, processes, namespaces):
    try:
        attempt()
    except (OSError, AttributeError, ImportError):
        refused.append(attempt.__name__)
print(json.dumps(refused))
