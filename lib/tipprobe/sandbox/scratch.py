"""Temporary folders that do not outlive what uses them, ``kill -9`` included: the next one sweeps them up.

A folder is in use while somebody holds the lock on its ``.lock`` file; the kernel lets go of it with the
process, whatever pid namespace that lived in.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "tipprobe-sandbox-"
#: Seconds for which a folder without a lock counts as one that is just being made.
_YOUNG_S = 120.0


def new_folder() -> Path:
    """Make a folder after sweeping; whoever gets it must lock it at once, as workers do."""
    sweep()
    return Path(tempfile.mkdtemp(prefix=PREFIX))


@contextmanager
def locked_folder() -> Iterator[Path]:
    """A folder for the length of a ``with`` block."""
    folder = new_folder()
    try:
        with (folder / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Remove folders whose user is gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            with (folder / ".lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            _remove_if_old(folder)
        except OSError:  # in use, or somebody else's
            continue


def _remove_if_old(folder: Path) -> None:
    try:
        if time.time() - folder.stat().st_mtime > _YOUNG_S:
            shutil.rmtree(folder, ignore_errors=True)
    except FileNotFoundError:  # swept by another process meanwhile
        pass
