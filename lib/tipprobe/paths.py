"""Absolute locations, so that every entry point works from any directory."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
#: Root of the checkout, where ``notebooks/`` and ``params/`` live, and ``outputs/`` by default.
#: ``TIPPROBE_ROOT`` overrides it for an installed package that is used away from its checkout.
ROOT = Path(os.environ.get("TIPPROBE_ROOT") or PACKAGE.parents[1])
NOTEBOOKS = ROOT / "notebooks"
PARAMS = ROOT / "params"


def resolve(path: str | os.PathLike[str]) -> Path:
    """Return `path` as an absolute path; a relative one is taken from the project root, not from the cwd."""
    path = Path(path).expanduser()
    return path if path.is_absolute() else ROOT / path
