"""Runs the stages of a profile in order, skips what is done and intact, and says why it does the rest."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from tipprobe import paths
from tipprobe.errors import ParameterError, StageError
from tipprobe.files import read_json, write_json
from tipprobe.series import keys, notebooks, outputs, processes
from tipprobe.series.params import KEYS, load_params, profile_path, read_profile
from tipprobe.series.progress import MARK, duration_text
from tipprobe.series.stage import (
    DONE,
    STARTED,
    read_done,
    refuse_missing_gpu,
    retire,
    upstream_keys,
)
from tipprobe.series.stages import STAGES, StageSpec, get_stage

RUN_FILE = "run.json"
LOCK_FILE = ".lock"
#: Below this there is no point in starting: notebooks, logs and samples of the smallest profile need more.
MIN_FREE_MB = 100
_POLL_S = 0.2
_ELSEWHERE = "choose another folder with --out"
_DISK_FULL = "the disk is full (results so far are kept: make room and run the same command again)"
#: What a file system may refuse, by error number.
_REFUSALS = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EROFS: f"the file system is read-only, {_ELSEWHERE}",
    errno.EACCES: f"permission denied, {_ELSEWHERE}",
    errno.EPERM: f"permission denied, {_ELSEWHERE}",
    errno.ENOTDIR: f"a file stands where a folder should be, {_ELSEWHERE}",
    errno.EEXIST: f"a file stands where a folder should be, {_ELSEWHERE}",
}

State = Literal["done", "ran", "failed", "stopped", "not run", "not in profile"]


#: Environment of a stage's process, whatever the user's is.
_FIXED_ENV = {
    "TIPPROBE_HEADLESS": "1",
    "TIPPROBE_PREFIX": sys.prefix,
    "TIPPROBE_ROOT": str(paths.ROOT),
    # A kernel of the same name in the user's home would otherwise win over this environment's.
    "JUPYTER_PREFER_ENV_PATH": "1",
    "PYTHONUNBUFFERED": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


@dataclass(slots=True)
class StageResult:
    """What happened to one stage in a run."""

    name: str
    state: State
    reason: str
    duration_s: float = 0.0


@dataclass(slots=True)
class Options:
    """What `tipprobe run` was asked for."""

    profile: str = "minicode"
    overrides: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    start: str | None = None
    only: str | None = None
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a stage has to run, and why."""

    run: bool
    reason: str


def run_series(options: Options, console: IO[str] | None = None) -> list[StageResult]:
    """Run the stages that `options` select and build the report.

    Args:
        options: profile, overrides and selection.
        console: where progress goes, standard output by default.

    Returns:
        one result per stage of the series.

    Raises:
        ParameterError: the parameters are not valid, or ask for a GPU that is not there.
        StageError: a stage failed, or the results folder cannot be used.  What was done stays done.
    """
    screen = Screen(console or sys.stdout)
    overrides = dict(options.overrides)
    if options.out is not None:
        if options.out == Path():
            raise ParameterError("--out is empty, or the current folder: name a folder for the results")
        overrides["out"] = _relative_to_root(options.out)
    params = load_params(options.profile, overrides).model_dump()
    refuse_missing_gpu(params)
    selected = _select(options, params)
    out = paths.resolve(params["out"])
    screen.line(f"profile {params['profile']}, results in {_relative_to_root(out)}")
    for line in _borrowed(options.profile, overrides) + cost_lines(params):
        screen.line(line)
    if options.dry_run:
        return _dry_run(selected, params, out, options.force, screen)
    with _locked(out):
        return _run(selected, params, out, options, screen)


def _run(
    selected: list[StageSpec], params: dict[str, Any], out: Path, options: Options, screen: Screen
) -> list[StageResult]:
    begin = time.monotonic()
    results = [
        StageResult(stage.name, "not run", "not selected")
        if stage.applies(params)
        else StageResult(stage.name, "not in profile", stage.skip_note)
        for stage in STAGES
    ]
    by_name = {result.name: result for result in results}
    try:
        for stage in selected:
            result = by_name[stage.name]
            _one_stage(stage, params, out, options.force, result, screen)
            _write_run_file(out, params, results)
    except (StageError, KeyboardInterrupt):
        _write_run_file(out, params, results)
        raise
    # Imported here: nbconvert takes longer than a run that has nothing to do.
    from tipprobe.series.report import build_report

    index = build_report(out)
    screen.line("")
    for result in results:
        if result.state in ("ran", "done"):
            screen.line(f"  {result.name:<24} {result.state:<5} {duration_text(result.duration_s):>12}")
    screen.line(f"total {duration_text(time.monotonic() - begin)}; report: {index}")
    return results


def _one_stage(
    stage: StageSpec, params: dict[str, Any], out: Path, force: bool, result: StageResult, screen: Screen
) -> None:
    own = keys.own_params(stage, params)
    decision = decide(stage, own, out, force)
    result.reason = decision.reason
    if not decision.run:
        result.state = "done"
        result.duration_s = (read_done(out / stage.name) or {}).get("duration_s", 0.0)
        screen.line(f"{stage.name}: skipped, {decision.reason}")
        return
    screen.line(f"{stage.name}: {decision.reason}")
    if force and (out / stage.name).exists():
        retire(out / stage.name)
    begin = time.monotonic()
    result.state = "failed"
    try:
        execute(stage, own, out, screen)
    except KeyboardInterrupt:
        result.state = "stopped"
        raise
    finally:
        result.duration_s = round(time.monotonic() - begin, 1)
    result.state = "ran"
    screen.line(f"{stage.name}: done in {duration_text(result.duration_s)}")


def decide(stage: StageSpec, own: Mapping[str, Any], out: Path, force: bool) -> Decision:
    """Say whether `stage` has to run in `out` with its parameters `own`.

    Raises:
        StageError: a stage that it reads from is not done.
    """
    folder = out / stage.name
    parts = keys.key_parts(stage, own, upstream_keys(stage, out))
    done = read_done(folder)
    if force:
        return Decision(True, "runs again from the start (--force)")
    if done is None:
        begun = read_json(folder / STARTED)
        if begun is None:
            return Decision(True, "runs for the first time")
        if begun["resume_key"] == keys.resume_key(stage, parts):
            return Decision(True, "was not finished, goes on where it stopped")
        return Decision(
            True, f"was not finished and has changed since: {keys.explain(begun['parts'], parts)}"
        )
    if done["key"] != keys.stage_key(parts):
        return Decision(True, f"runs again: {keys.explain(done['parts'], parts)}")
    wrong = outputs.altered(folder, done["outputs"])
    if wrong:
        return Decision(True, f"runs again: {', '.join(wrong[:3])}")
    return Decision(False, "done and intact")


def _dry_run(
    selected: list[StageSpec], params: dict[str, Any], out: Path, force: bool, screen: Screen
) -> list[StageResult]:
    results: list[StageResult] = []
    will_run: set[str] = set()
    for stage in selected:
        waiting = [name for name in stage.upstream if name in will_run]
        if waiting:
            decision = Decision(True, f"would run after {' and '.join(waiting)}")
        else:
            try:
                decision = decide(stage, keys.own_params(stage, params), out, force)
            except StageError as error:
                decision = Decision(True, f"cannot run: {error}")
        if decision.run:
            will_run.add(stage.name)
        screen.line(f"{stage.name}: {'' if decision.run else 'would be skipped, '}{decision.reason}")
        parts = _library_parts(keys.module_closure(notebooks.code_cells(stage.notebook)))
        screen.line(f"    runs again when these parts of the library change: {', '.join(parts)}")
        results.append(StageResult(stage.name, "not run" if decision.run else "done", decision.reason))
    return results


def _library_parts(modules: Iterable[str]) -> list[str]:
    """Return the packages and single modules of the library that `modules` belong to."""
    return list(dict.fromkeys(name.split(".")[1] for name in modules if "." in name))


def _select(options: Options, params: Mapping[str, Any]) -> list[StageSpec]:
    stages = [stage.for_params(params) for stage in STAGES if stage.applies(params)]
    if options.only is not None:
        only = get_stage(options.only)
        stages = [stage for stage in stages if stage.name == only.name]
        if not stages:
            raise StageError(f"{only.name} is not part of profile {params['profile']}: it {only.skip_note}")
    elif options.start is not None:
        start = get_stage(options.start)
        stages = [stage for stage in stages if stage.number >= start.number]
    missing = [stage for stage in stages if not stage.notebook.is_file()]
    if missing:
        raise StageError(
            f"{missing[0].notebook} is missing: use a checkout of the project, or set TIPPROBE_ROOT to one"
        )
    return stages


def _borrowed(profile: str, overrides: Mapping[str, Any]) -> list[str]:
    """Say which keys a params file leaves to the default profile."""
    missing = [key for key in KEYS if key not in read_profile(profile_path(profile)) and key not in overrides]
    return [f"not in {profile}, so as in minicode: {', '.join(missing)}"] if missing else []


def cost_lines(params: Mapping[str, Any]) -> list[str]:
    """Return upper bounds of what each half of a profile generates, as text; nothing for the tiny ones."""
    return _probe_cost(params) + _tip_cost(params)


def _tip_cost(params: Mapping[str, Any]) -> list[str]:
    if not params["tip_methods"]:
        return []
    tips = params["rl_steps"] * params["rl_prompts_per_step"] * params["tip_group_size"]
    if tips < 50_000:
        return []
    # Imported here: numpy and what follows take longer than a run that has nothing to do.
    from tipprobe.tips.trials import pool_size

    guided = [method for method in params["tip_methods"] if method not in ("base", "best_of_2")]
    per_problem = pool_size(params["tip_runs"], params["best_of"]) + params["tip_runs"] * len(guided)
    calls = params["repair_turns"] + 2 + params["tip_refinements"]
    return [
        f"tips ask for {params['base_samples']} programs and up to {calls} teacher replies a mined problem, "
        f"{tips:,} tips of up to {params['tip_max_tokens']:,} tokens in rollouts with a greedy program each, "
        f"and {per_problem} programs a test problem"
    ]


def _probe_cost(params: Mapping[str, Any]) -> list[str]:
    trained = [method for method in params["methods"] if method != "base"]
    runs = len(trained) * len(params["seeds"])
    rollouts = runs * params["steps"] * params["prompts_per_step"] * params["group_size"]
    if rollouts < 50_000:
        return []
    models = runs + 1
    problems = params["n_problems"] + params["n_transfer_problems"]
    evaluated = models * problems * params["eval_samples"]
    size = f"{evaluated:,} evaluation samples" if problems else f"{models} models to evaluate"
    return [
        f"this asks for {runs} training runs, {rollouts:,} rollouts of up to {params['max_tokens']:,} "
        f"tokens, {rollouts * params['n_probes']:,} executions and {size}"
    ]


def execute(stage: StageSpec, own: Mapping[str, Any], out: Path, screen: Screen) -> None:
    """Run a stage's notebook to its end, in a process group of its own, leaving no process behind.

    Raises:
        StageError: the notebook failed, or did not finish its stage; the message says where to look.
        KeyboardInterrupt: the run was stopped.
    """
    for name in ("notebooks", "logs"):
        (out / name).mkdir(exist_ok=True)
    log = out / "logs" / f"{stage.name}.log"
    failure_file = log.with_suffix(".failure.json")
    failure_file.unlink(missing_ok=True)
    log.write_text("", encoding="utf-8")
    output = out / "notebooks" / f"{stage.name}.ipynb"
    request = {
        "notebook": str(stage.notebook),
        "output": str(output),
        "params": dict(own),
        "cwd": str(paths.ROOT),
        "log": str(log),
        "failure": str(failure_file),
        "parent": os.getpid(),
    }
    processes.adopt_orphans()
    before = processes.descendants()
    with log.open("ab") as raw, _sigterm_as_interrupt():
        child = subprocess.Popen(
            [sys.executable, "-m", "tipprobe.series.execute", json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=raw,
            stderr=raw,
            env=_child_env(screen.live) | os.environ | _FIXED_ENV,
            start_new_session=True,
        )
        try:
            _follow(child, stage, log, screen)
        except KeyboardInterrupt:
            screen.line(f"{stage.name}: stopping ...")
            raise
        finally:
            _end(child, before)
    failure = read_json(failure_file)
    if child.returncode != 0 or failure is not None:
        (out / stage.name / DONE).unlink(missing_ok=True)
        raise StageError(_failure_text(stage, child.returncode, failure, output, log))
    if not (out / stage.name / DONE).exists():
        raise StageError(
            f"{stage.name}: the notebook ran to its end without finishing its stage: "
            f"its last cell must call stage.finish(...); executed notebook: {_relative_to_root(output)}"
        )


def _child_env(live: bool) -> dict[str, str]:
    """Return what the environment of a stage has unless the user sets it differently."""
    return {
        "PYTHONHASHSEED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TIPPROBE_PROGRESS_S": "10" if live else "30",
    }


def _follow(child: subprocess.Popen[bytes], stage: StageSpec, log: Path, screen: Screen) -> None:
    """Show the notebook's progress lines until it ends."""
    begin = time.monotonic()
    latest = "starting"
    with log.open(encoding="utf-8", errors="replace") as file:
        pending = ""
        while True:
            ended = child.poll() is not None
            pending += file.read()
            *lines, pending = pending.split("\n")
            for line in lines:
                if line.startswith(MARK):
                    latest = line.removeprefix(MARK)
                    screen.progress(stage.name, latest)
            screen.status(f"{stage.name}  {duration_text(time.monotonic() - begin)}  {latest}")
            if ended:
                screen.clear()
                return
            time.sleep(_POLL_S)


def _end(child: subprocess.Popen[bytes], before: set[Any]) -> None:
    """End the child if it still runs, then everything that it left behind."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout=15)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    processes.reap(processes.descendants() - before)


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C while a stage runs."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    names = (signal.SIGTERM, signal.SIGHUP)
    previous = [signal.signal(name, stop) for name in names]
    try:
        yield
    finally:
        for name, handler in zip(names, previous, strict=True):
            signal.signal(name, handler)


def _failure_text(
    stage: StageSpec, code: int, failure: dict[str, Any] | None, output: Path, log: Path
) -> str:
    if failure is None:
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        what = f"the process that ran the notebook ended early ({how})"
    elif failure["kind"] == "kernel died":
        what = (
            "the kernel died, as it does when the machine runs out of memory (see `dmesg`, lower batch sizes)"
        )
    elif failure["kind"] == "cell":
        first = failure["message"].strip().splitlines()[:1]
        what = f"{failure['name']}: {first[0] if first else ''}"
        if "No space left on device" in what:
            what = _DISK_FULL
    else:
        what = failure["message"]
    cell = (failure or {}).get("cell") or _last_cell(log)
    where = f", cell {_cell_name(output, cell)}" if cell else ""
    return (
        f"{stage.name} failed{where}: {what}\n"
        f"  log: {_relative_to_root(log)}; notebook: {_relative_to_root(output)}\n"
        "  results so far are kept: the same command goes on from there"
    )


def _last_cell(log: Path) -> int | None:
    """Return the number of the cell that ran last: the notebook itself calls all cells completed."""
    numbers = [
        int(line.split()[2].rstrip("-"))
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.startswith("Executing Cell ")
    ]
    return numbers[-1] if numbers else None


def _cell_name(output: Path, number: int) -> str:
    """Return the id of the executed notebook's cell `number`, counted without papermill's error banners."""
    try:
        cells = notebooks.read_cells(output)
        cell = [c for c in cells if not notebooks.has_tag(c, "papermill-error-cell-tag")][number - 1]
    except (StageError, IndexError):
        return str(number)
    return f"'{cell['id']}'" if "id" in cell else str(number)


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the results folder for one run, and turn what the file system refuses into one clear line."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise _refused(out, error) from error
    # The lock lives as long as the open file, so a killed run leaves none behind.
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise StageError(
                f"another run ({file.read().strip() or 'unknown'}) is writing into {out}: "
                "wait for it, or choose another folder with --out"
            ) from error
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M')}")
            file.flush()
            free = shutil.disk_usage(out).free // 2**20
            if free < MIN_FREE_MB:
                raise StageError(f"only {free} MB are free for {out}: make room or choose another --out")
            yield
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            raise _refused(out, error) from error


def _refused(out: Path, error: OSError) -> StageError:
    reason = _REFUSALS.get(error.errno or 0, f"{error.strerror or error}, {_ELSEWHERE}")
    return StageError(f"cannot write into {out}: {reason}")


def _write_run_file(out: Path, params: Mapping[str, Any], results: list[StageResult]) -> None:
    stages = [
        {"name": r.name, "state": r.state, "reason": r.reason, "duration_s": r.duration_s} for r in results
    ]
    write_json(out / RUN_FILE, {"profile": params["profile"], "params": dict(params), "stages": stages})


def _relative_to_root(path: Path) -> str:
    """Return `path` from the project's root if it lies there, else absolute; relative ones are the cwd's."""
    path = path.expanduser().absolute()
    return path.relative_to(paths.ROOT).as_posix() if path.is_relative_to(paths.ROOT) else str(path)


class Screen:
    """The terminal: whole lines, and on a real terminal one line that is drawn over and over."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.live = stream.isatty()
        self._drawn = ""

    def line(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        self._stream.write(text + "\n")
        self._stream.flush()

    def progress(self, stage: str, text: str) -> None:
        """Write a notebook's progress line, unless the status line shows it anyway."""
        if not self.live:
            self.line(f"  {stage[:2]} {text}")

    def status(self, text: str) -> None:
        """Draw the status line."""
        if not self.live:
            return
        width = shutil.get_terminal_size().columns - 1
        text = text if len(text) <= width else text[: width - 1] + "…"
        if text != self._drawn:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
            self._drawn = text

    def clear(self) -> None:
        """Remove the status line."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = ""
