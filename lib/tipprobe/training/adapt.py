"""Running adaptations: one at a time or several side by side, resumable after a kill at any moment.

A run folder holds ``config.json`` (what the run depends on), ``prompts.jsonl``, ``dropped.json`` (problems
that could not be used, with the reason), ``rollouts.jsonl`` (a record a sample), ``metrics.jsonl`` (a
record a rollout step), ``state/`` (restart points, removed at the end), ``checkpoint/`` (the weights after
the last scheduled step) and, last, ``done.json``.

This module imports no torch: worker processes limit their threads before they do (`tipprobe.workers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tipprobe.errors import DataError
from tipprobe.files import complete_records, write_json
from tipprobe.probes.types import read_probe_sets
from tipprobe.problems.schema import Problem, read_jsonl
from tipprobe.training.config import AdaptConfig
from tipprobe.training.runs import is_done, run_once
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
    return run_once(config.folder, config.identity(), lambda: _train(config, progress), steps=config.steps)


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
        if is_done(config.folder, config.identity()):
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
    from tipprobe.training.policy import train_resumable
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

    def on_step(metrics: dict[str, Any]) -> None:
        if progress:
            progress(config.name, metrics["step"], config.steps, metrics)

    @contextmanager
    def trainer() -> Iterator[ProbePolicyTrainer]:
        # Training and executing take turns, so both get all of this process's share of the cores.
        with Sandbox(workers=torch.get_num_threads()) as sandbox:
            yield ProbePolicyTrainer(
                config, model, tokenizer, usable, probe_sets, sandbox, folder, on_step=on_step
            )

    train_resumable(config, model, tokenizer, trainer)


def _last_metrics(folder: Path) -> dict[str, Any]:
    """Return the last complete record of a run's metrics, {} if there is none yet."""
    records = complete_records(folder / "metrics.jsonl")
    return records[-1] if records else {}
