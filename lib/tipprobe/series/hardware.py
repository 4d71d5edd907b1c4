"""What this machine has, found without importing torch: CUDA must first be touched where it is used."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from typing import Any

import psutil

from tipprobe.workers import cores


def gpus() -> list[dict[str, str]]:
    """Return name, memory and driver of each NVIDIA GPU that ``CUDA_VISIBLE_DEVICES`` does not hide."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or not shutil.which("nvidia-smi"):
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        result = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if result.returncode != 0:
        return []
    rows = [[part.strip() for part in line.split(",")] for line in result.stdout.splitlines() if line.strip()]
    return [dict(zip(("name", "memory", "driver"), row, strict=False)) for row in rows]


def describe() -> dict[str, Any]:
    """Return the machine's facts for provenance: platform, Python, CPU, memory, GPUs."""
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu_cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": gpus(),
    }
