"""Random generators that depend on what they decide about, not on when they are asked."""

from __future__ import annotations

import hashlib

import numpy as np


def keyed_rng(*parts: int | str) -> np.random.Generator:
    """Return a generator that depends on `parts` alone: not on call order, process or Python's hash seed."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def keyed_seed(*parts: int | str) -> int:
    """Return a seed in [0, 2**31) that depends on `parts` alone, for libraries that want an integer."""
    return int(keyed_rng(*parts).integers(2**31))
