"""Where a result came from: parameters, code, inputs, versions, machine, durations.  Works without git."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from tipprobe import __version__, paths
from tipprobe.prompts import prompt_hashes
from tipprobe.series import hardware, keys

_RECORDED_ENV = re.compile(
    r"^(VLLM_|HF_|CUDA_VISIBLE|PYTHONHASHSEED$|OMP_NUM_|TOKENIZERS_|TIPPROBE_|TRANSFORMERS_)"
)
_PLACES = ("TIPPROBE_ROOT", "TIPPROBE_PREFIX")  # where the project lies changes no result
_SECRET_NAME = re.compile(r"TOKEN$|KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)


def redact(text: str) -> str:
    """Return `text` with what looks like an access token or a password blotted out."""
    return _SECRET_VALUE.sub("<redacted>", text)


def environment() -> dict[str, str]:
    """Return the environment variables that can change a result; the values of secrets are left out."""
    return {
        name: "<redacted>" if _SECRET_NAME.search(name) else redact(value)
        for name, value in sorted(os.environ.items())
        if _RECORDED_ENV.match(name) and name not in _PLACES
    }


def git_state() -> dict[str, Any]:
    """Return commit, whether tracked files differ from it, and the hash of the difference."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(paths.ROOT), *arguments]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return result.stdout if result.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    if top is None or os.path.realpath(top.strip()) != os.path.realpath(paths.ROOT):
        return {"commit": None, "note": "not a git checkout: see the library and notebook hashes"}
    changes = git("diff", "HEAD") or ""
    return {
        "commit": (git("rev-parse", "HEAD") or "").strip() or None,
        "dirty": bool(changes),
        "patch_sha256": keys.sha256(changes) if changes else None,
    }


def versions() -> dict[str, str]:
    """Return name and version of every installed distribution."""
    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found[name] = distribution.version
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def peak_memory() -> dict[str, float]:
    """Return peak memory in MiB: this process, its largest finished child, the GPU if torch used one."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    peaks = {
        "process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit,
        "largest_child_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / unit,
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        peaks["gpu_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return {name: round(value, 1) for name, value in peaks.items()}


def model_revisions(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the revision of the model that `params` name, if they name one."""
    if "model" not in params:
        return {}
    from tipprobe.models.load import model_revision  # transformers is loaded in such a stage anyway

    return {params["model"]: model_revision(params["model"])}


def isolation() -> dict[str, Any] | None:
    """Return what was proven to keep programs in (`IsolationReport.to_json`), None if this stage ran none."""
    if "tipprobe.sandbox.pool" not in sys.modules:
        return None
    from tipprobe.sandbox import Sandbox

    with Sandbox(1) as sandbox:
        return sandbox.isolation.to_json()


def collect(params: Mapping[str, Any], parts: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything about a stage's run except its times.

    Args:
        params: the stage's resolved parameters.
        parts: `keys.key_parts` of the stage.
        inputs: fingerprints of the files it read.
    """
    return {
        "tipprobe": __version__,
        "params": {name: redact(v) if isinstance(v, str) else v for name, v in params.items()},
        "params_sha256": keys.json_hash(dict(params)),
        "seeds": {name: value for name, value in params.items() if "seed" in name},
        "code": git_state(),
        "notebook_sha256": parts["notebook"],
        "library_sha256": keys.json_hash(parts["library"]),
        "library": parts["library"],
        "inputs": dict(inputs),
        "upstream": parts["upstream"],
        "models": model_revisions(params),
        "prompts": prompt_hashes(),
        "machine": hardware.describe(),
        "isolation": isolation(),
        "environment": environment(),
        "peak_memory": peak_memory(),
        "versions": versions(),
    }
