"""Run folders that survive a kill at any moment: identity, lock, restart points, the final checkpoint.

This module imports no torch: worker processes limit their threads before they do (`tipprobe.workers`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipprobe.errors import ParameterError, StageError
from tipprobe.files import complete_records, read_json, write_json
from tipprobe.problems.schema import write_jsonl
from tipprobe.training.config import identity_hash

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def check_training_device(device: str) -> None:
    """Raise ParameterError if a GPU is asked for by number: TRL takes the first visible one."""
    if ":" in device:
        raise ParameterError(
            f"device {device!r}: training runs on the first visible GPU; set CUDA_VISIBLE_DEVICES to choose "
            "another one, and device to cuda"
        )


def run_once(folder: Path, identity: dict[str, Any], work: Callable[[], None], **facts: Any) -> Path:
    """Have `work` fill a run folder unless a run of the same identity has finished in it; return the folder.

    An unfinished run of the same identity finds what it left; a folder of another identity is emptied first.

    Args:
        folder: the run folder.
        identity: what decides the result, JSON-ready.
        work: makes the results; it goes on from what is in the folder.
        facts: written into ``done.json`` beside the identity's hash.

    Raises:
        StageError: another process is working in the run folder.
    """
    if is_done(folder, identity):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with RunLock(folder / ".lock"):
        if read_json(folder / "config.json") != identity:
            _clear(folder)
        write_json(folder / "config.json", identity)
        work()
        write_json(folder / "done.json", {"identity": identity_hash(identity), **facts})
        # Only now: a kill before would repeat the whole run.
        shutil.rmtree(folder / "state", ignore_errors=True)
    return folder


def is_done(folder: Path, identity: dict[str, Any]) -> bool:
    """Say whether a run of this identity has finished in `folder`."""
    record = read_json(folder / "done.json")
    return record is not None and record["identity"] == identity_hash(identity)


def restart_point(state: Path, updates_per_step: int) -> tuple[Path | None, int]:
    """Return the last complete restart point and its rollout step, (None, 0) if there is none.

    ``trainer_state.json`` is written last; a folder without a readable one was being written when the run was
    killed, and is removed.
    """
    best: tuple[Path | None, int] = (None, 0)
    for path in sorted(state.glob("checkpoint-*")):
        record = read_json(path / "trainer_state.json")
        if record is None:
            shutil.rmtree(path)
        elif record["global_step"] // updates_per_step > best[1]:
            best = path, record["global_step"] // updates_per_step
    return best


def keep_steps(path: Path, last: int) -> None:
    """Discard the records of steps after `last`, and a torn last line."""
    if path.is_file():
        write_jsonl(path, [record for record in complete_records(path) if record["step"] <= last])


def save_checkpoint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, target: Path) -> None:
    """Save a model with its tokenizer; `target` is replaced once everything is written."""
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)


def _clear(folder: Path) -> None:
    """Empty a run folder that this process has locked."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()


class RunLock:
    """Keeps a second process out of a run folder; the system lets go of it when the holder ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._file = self._path.open("w")
        if sys.platform == "win32":
            return
        import fcntl

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise StageError(f"{self._path.parent.name} is being trained by another process") from error

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Silent:
    """For a TRL trainer: nothing is sent anywhere, and checkpoints need no model card."""

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write no card."""
