"""Running adaptations: one at a time or several side by side, resumable after a kill at any moment.

A run folder holds ``config.json`` (what the run depends on), ``prompts.jsonl``, ``dropped.json`` (problems
that could not be used, with the reason), ``rollouts.jsonl`` (a record a sample), ``metrics.jsonl`` (a
record a rollout step), ``state/`` (restart points, removed at the end), ``checkpoint/`` (the weights after
the last scheduled step) and, last, ``done.json``.

This module imports no torch: worker processes limit their threads before they do (`tipprobe.workers`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tipprobe.errors import DataError, StageError
from tipprobe.files import complete_records, read_json, write_json
from tipprobe.probes.types import read_probe_sets
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl
from tipprobe.training.config import AdaptConfig, identity_hash
from tipprobe.workers import run_side_by_side

#: Called with (run name, rollout steps done, rollout steps in all, metrics of the last one).
Progress = Callable[[str, int, int, dict[str, Any]], None]


def adapt(config: AdaptConfig, progress: Progress | None = None) -> Path:
    """Adapt a model with one method and one seed; return the run folder.

    A finished run with the same identity is returned as it is.  An unfinished one goes on from its last
    restart point and ends as if it had not been interrupted: records of steps after that point are
    discarded and made again.  A folder of another identity is emptied first.

    Args:
        config: all that the run depends on.
        progress: called after every rollout step.

    Raises:
        DataError: model, problems or probes are missing or do not fit together.
        SandboxError: the execution machinery failed.
        StageError: another process is working in the run folder.
    """
    identity = config.identity()
    folder = config.folder
    if _is_done(folder, identity):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with _Lock(folder / ".lock"):
        if read_json(folder / "config.json") != identity:
            _clear(folder)
        write_json(folder / "config.json", identity)
        _train(config, progress)
        write_json(folder / "done.json", {"identity": identity_hash(identity), "steps": config.steps})
        shutil.rmtree(folder / "state")  # only now: a kill before would repeat the whole run
    return folder


def adapt_all(
    configs: Sequence[AdaptConfig], workers: int = 0, progress: Progress | None = None
) -> list[Path]:
    """Run adaptations in worker processes side by side; return their folders in order.

    Finished runs are skipped.  Each worker gets an equal share of the cores as threads; on a GPU the
    workers share the card.  Workers die with this process.

    Args:
        configs: runs with pairwise different folders.
        workers: processes, 0 for one a core.
        progress: called when a run advances, for skipped ones once with all steps done.

    Raises:
        DataError: as `adapt`, and if two runs share a folder; the message starts with the run's name.  The
            other runs are stopped and go on from their restart points next time.
        SandboxError: as `adapt`.
        StageError: a worker process died (most often for lack of memory).
    """
    if len({config.folder for config in configs}) < len(configs):
        raise DataError("two adaptation runs share a folder; every method and seed may occur once")
    todo = []
    for config in configs:
        if _is_done(config.folder, config.identity()):
            if progress:
                progress(config.name, config.steps, config.steps, _last_metrics(config.folder))
        else:
            todo.append(config)
    seen = {config.name: 0 for config in todo}

    def on_poll() -> None:
        for config in todo:
            _report(config, seen, progress)

    run_side_by_side(adapt, todo, [config.name for config in todo], workers, on_poll)
    return [config.folder for config in configs]


def _report(config: AdaptConfig, seen: dict[str, int], progress: Progress | None) -> None:
    if progress is None:
        return
    metrics = _last_metrics(config.folder)
    step = metrics.get("step", 0)
    if step != seen[config.name]:
        seen[config.name] = step
        progress(config.name, step, config.steps, metrics)


def _train(config: AdaptConfig, progress: Progress | None) -> None:
    import torch

    from tipprobe.models.load import load_model
    from tipprobe.sandbox import Sandbox
    from tipprobe.training.trainer import ProbePolicyTrainer, unusable_problems

    folder = config.folder
    problems = [Problem.from_json(record) for record in read_jsonl(Path(config.problems))]
    probe_sets = read_probe_sets(Path(config.probes))
    model, tokenizer = load_model(config.model, config.device)
    dropped = unusable_problems(problems, probe_sets, tokenizer, model, config)
    write_json(folder / "dropped.json", dropped)
    usable = [problem for problem in problems if problem.id not in dropped]
    if len(usable) < config.prompts_per_step:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in list(dropped.items())[:5])
        raise DataError(
            f"{len(usable)} of {len(problems)} problems can be trained on, but prompts_per_step is "
            f"{config.prompts_per_step} ({reasons or 'none was dropped'})"
        )
    checkpoint, done = _restart_point(folder / "state", config.minibatches_per_step)
    _keep_steps(folder / "rollouts.jsonl", done)
    _keep_steps(folder / "metrics.jsonl", done)

    def on_step(metrics: dict[str, Any]) -> None:
        if progress:
            progress(config.name, metrics["step"], config.steps, metrics)

    if done == config.steps:
        # Killed after the last step.  A trainer that resumes there looks at its step limit one update late.
        model, _ = load_model(str(checkpoint), config.device)
    else:
        # Training and executing take turns, so both get all of this process's share of the cores.
        with Sandbox(workers=torch.get_num_threads()) as sandbox:
            trainer = ProbePolicyTrainer(
                config, model, tokenizer, usable, probe_sets, sandbox, folder, on_step=on_step
            )
            write_jsonl(folder / "prompts.jsonl", trainer.prompt_records())
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        model = trainer.accelerator.unwrap_model(trainer.model)
    part = folder / "checkpoint.part"
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    shutil.rmtree(config.checkpoint, ignore_errors=True)
    part.rename(config.checkpoint)


def _restart_point(state: Path, updates_per_step: int) -> tuple[Path | None, int]:
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


def _keep_steps(path: Path, last: int) -> None:
    """Discard the records of steps after `last`, and a torn last line."""
    if path.is_file():
        write_jsonl(path, [record for record in complete_records(path) if record["step"] <= last])


def _last_metrics(folder: Path) -> dict[str, Any]:
    """Return the last complete record of a run's metrics, {} if there is none yet."""
    records = complete_records(folder / "metrics.jsonl")
    return records[-1] if records else {}


def _is_done(folder: Path, identity: dict[str, Any]) -> bool:
    record = read_json(folder / "done.json")
    return record is not None and record["identity"] == identity_hash(identity)


def _clear(folder: Path) -> None:
    """Empty a run folder that this process has locked."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != ".lock":
            path.unlink()


class _Lock:
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
