"""A stage as its notebook sees it: checked parameters, a folder, inputs, progress, and a last word when it
is done.

A stage folder tells its own state: ``started.json`` says under which key its files are being computed, and
``done.json``, written last, that they are complete.  Nothing else counts as success, since an executed
notebook looks finished even after its kernel was killed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tipprobe import paths
from tipprobe.errors import ParameterError, StageError
from tipprobe.files import read_json, write_json
from tipprobe.series import hardware, keys, notebooks, outputs, provenance
from tipprobe.series.params import Params, check_values
from tipprobe.series.progress import MARK, Progress, is_headless
from tipprobe.series.stages import StageSpec, get_stage

DONE = "done.json"
STARTED = "started.json"
PROVENANCE = "provenance.json"
RETIRED = "retired"


def read_done(folder: Path) -> dict[str, Any] | None:
    """Return what ``done.json`` says of a finished stage; None if it is missing, torn or of another shape."""
    done = read_json(folder / DONE)
    needed = ("key", "resume_key", "params", "parts", "outputs")
    return done if done is not None and all(key in done for key in needed) else None


class StageParams(SimpleNamespace):
    """The parameters of one stage, as attributes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = "" if name in Params.model_fields else " (and no such parameter exists)"
        raise AttributeError(f"{name} is not in this notebook's parameters cell{known}")


def upstream_keys(spec: StageSpec, out: Path) -> dict[str, dict[str, str]]:
    """Return the recorded keys of the stages that `spec` reads from.

    Raises:
        StageError: one of them is not done in `out`.
    """
    found = {}
    for name in spec.upstream:
        done = read_done(out / name)
        if done is None:
            raise StageError(f"{spec.name} needs {name}, which is not done in {out}: {_how(name)}")
        found[name] = {"key": done["key"], "resume_key": done["resume_key"]}
    return found


def outdated(spec: StageSpec, out: Path) -> list[str]:
    """Return one line for each stage that `spec` reads from and that would be made differently today."""
    lines = []
    for name in spec.upstream:
        done = read_done(out / name)
        if done is None:
            continue
        earlier = get_stage(name).for_params(done["params"])
        try:
            now = keys.key_parts(earlier, done["params"], upstream_keys(earlier, out))
        except StageError as error:
            lines.append(f"{name} could not be made again ({error}); its results are used as they are")
            continue
        why = keys.explain(done["parts"], now)
        if why:
            lines.append(f"{name} is out of date ({why}); its results are used as they are")
    return lines


def _how(name: str) -> str:
    return f"run that notebook first, or `tipprobe run PROFILE --only {name[:2]}`"


class Stage:
    """One opened stage.  Made by `open_stage`.

    Attributes:
        spec: the registry's entry.
        params: the notebook's parameters as attributes, checked.
        out: folder of the whole series' results.
        dir: folder of this stage's results.
    """

    def __init__(self, spec: StageSpec, params: Mapping[str, Any]) -> None:
        spec = spec.for_params(params)
        self.spec = spec
        self.params = StageParams(**params)
        self.out = paths.resolve(params["out"])
        self.dir = self.out / spec.name
        self._values = dict(params)
        self._inputs: dict[str, dict[str, Any]] = {}
        self._begin = time.monotonic()
        self._started = _now()
        self._parts = keys.key_parts(spec, params, upstream_keys(spec, self.out))
        self._key, self._resume = keys.stage_key(self._parts), keys.resume_key(spec, self._parts)

    def prepare(self) -> str:
        """Make the folder ready and say what was found in it.

        Results that other parameters or other code left there are moved to ``<out>/retired/``, so that
        nothing is continued under false pretences; results of the same key stay, and the notebook goes on
        from them.

        Raises:
            StageError: the folder cannot be written.
        """
        try:
            self.dir.mkdir(parents=True, exist_ok=True)
            note = self._retire_if_stale()
            (self.dir / DONE).unlink(missing_ok=True)
            begun = {"resume_key": self._resume, "parts": self._parts}
            write_json(self.dir / STARTED, begun)
        except OSError as error:
            raise StageError(f"cannot write into {self.dir}: {error.strerror}") from error
        return note

    def _retire_if_stale(self) -> str:
        if not any(self.dir.iterdir()):
            return ""
        begun = read_json(self.dir / STARTED) or {}
        if begun.get("resume_key") == self._resume:
            return "goes on from the results that are there"
        why = keys.explain(begun["parts"], self._parts) if begun else "nothing says how they were made"
        if self._bring_back():
            return (
                f"earlier results of these parameters brought back from {RETIRED}/, others set aside ({why})"
            )
        return f"earlier results set aside in {retire(self.dir)} ({why})"

    def _bring_back(self) -> bool:
        """Exchange the folder with one set aside that was made under the same key, if there is one."""
        aside = self.dir.parent / RETIRED / self.dir.name
        if (read_json(aside / STARTED) or {}).get("resume_key") != self._resume:
            return False
        between = aside.with_name(f"{aside.name}-exchanged")
        self.dir.rename(between)
        aside.rename(self.dir)
        between.rename(aside)
        return True

    def input(self, path: str) -> Path:
        """Return the absolute path of a file written by an earlier stage
        (``"05_probe_generation/probes.jsonl"``).

        Raises:
            StageError: it is not declared in the registry, not there, or was altered since.
        """
        if path not in self.spec.inputs:
            declared = ", ".join(self.spec.inputs) or "none"
            raise StageError(f"{path} is not a declared input of {self.spec.name} (declared: {declared})")
        full = self.out / path
        if not full.is_file():
            raise StageError(f"{full} is missing: {_how(path.split('/')[0])}")
        facts = outputs.fingerprints(self.out, [full])[path]
        name, _, file = path.partition("/")
        recorded = (read_done(self.out / name) or {}).get("outputs", {}).get(file, facts)
        if facts != recorded:
            raise StageError(f"{full} is no longer what {name} wrote: {_how(name)}")
        self._inputs[path] = facts
        return full

    def progress(self, total: int | None, what: str) -> Progress:
        """Return a counter to show how far a loop is: see `Progress`."""
        return Progress(total, what)

    def finish(self, summary: Mapping[str, Any] | None = None) -> None:
        """Check the declared outputs, then write ``provenance.json`` and, last of all, ``done.json``.

        Args:
            summary: the stage's key numbers for the report's first page, ``{"label": number or text}``.

        Raises:
            StageError: an output is missing, empty or unreadable.
        """
        files, problems = outputs.check(self.dir, self.spec.outputs)
        if problems:
            raise StageError(f"{self.spec.name} did not produce what it declares: {'; '.join(problems)}")
        duration = time.monotonic() - self._begin
        times = {"started": self._started, "finished": _now(), "duration_s": round(duration, 1)}
        record = provenance.collect(self._values, self._parts, self._inputs)
        write_json(self.dir / PROVENANCE, record | {"times": times})
        done = {
            "stage": self.spec.name,
            "key": self._key,
            "resume_key": self._resume,
            "params": self._values,
            "summary": dict(summary or {}),
            "outputs": outputs.fingerprints(self.dir, files),
            "parts": self._parts,
            **times,
        }
        write_json(self.dir / DONE, done)

    def __repr__(self) -> str:
        return f"Stage({self.spec.name!r}, dir={str(self.dir)!r})"


def open_stage(name: str, namespace: Mapping[str, Any]) -> Stage:
    """Open a stage from its notebook's setup cell: ``stage = open_stage("06_erpo_adaptation", globals())``.

    Args:
        name: the notebook's name, or its number.
        namespace: the notebook's globals, where the parameters cell and papermill left their values.

    Raises:
        ParameterError: a parameter is unknown, of the wrong type, out of range or gone.
        StageError: an earlier stage is not done, or the notebook runs under another Python than the runner's.
    """
    spec = get_stage(name)
    _check_prefix()
    own = notebooks.parameters(spec.notebook)
    given = _given_parameters(namespace)
    values = check_values(given, spec.name)
    missing = [key for key in own if key not in values]
    if missing:
        raise ParameterError(f"{spec.name}: {missing[0]} has no value: run the parameters cell first")
    refuse_missing_gpu(values)
    stage = Stage(spec, {key: values[key] for key in own})
    note = stage.prepare()
    marked = [note] if RETIRED in note else []  # what moves results is said on the runner's console, too
    plain = f"; {note}" if note and not marked else ""
    sys.stdout.write(f"{spec.name}: results go to {_short(stage.dir)}{plain}\n")
    for line in [*marked, *outdated(stage.spec, stage.out)]:
        sys.stdout.write(f"{MARK}note: {line}\n")
    # Libraries underneath ask for widgets, which are left out on purpose.
    warnings.filterwarnings("ignore", message="IProgress not found")
    if is_headless():
        # Their bars would fill the log with half-drawn lines.
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return stage


def retire(folder: Path) -> str:
    """Move a stage's folder to ``retired/`` beside it, in place of what was set aside there before.

    Unfinished results do not take the place of finished ones: they have one of their own.
    """
    target = folder.parent / RETIRED / folder.name
    if (target / DONE).exists() and not (folder / DONE).exists():
        target = target.with_name(f"{folder.name}-unfinished")
    if target.exists():
        shutil.rmtree(target)
    target.parent.mkdir(exist_ok=True)
    folder.rename(target)
    folder.mkdir()
    return f"{RETIRED}/{target.name}"


def refuse_missing_gpu(params: Mapping[str, Any]) -> None:
    """Raise ParameterError if `params` ask for a GPU and this machine has none."""
    device = params.get("device", "auto")
    if str(device).startswith("cuda") and not hardware.gpus():
        name = params.get("profile", "this run")
        raise ParameterError(
            f"{name} needs a GPU (device: {device}) and this machine shows none: choose another profile, "
            "or add `-p device=cpu` with counts that a CPU can carry"
        )


def _check_prefix() -> None:
    """Make sure that Jupyter did not start another environment's kernel."""
    expected = os.environ.get("TIPPROBE_PREFIX")
    if expected and Path(expected).resolve() != Path(sys.prefix).resolve():
        raise StageError(
            f"the Jupyter kernel 'python3' runs {sys.prefix}, but tipprobe was started from {expected}: "
            "install ipykernel there, or remove the stale kernel that `jupyter kernelspec list` shows"
        )


def _given_parameters(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of everything that was set as a parameter, known or not.

    Under IPython these are the names assigned in cells of nothing but literals: the parameters cell and the
    one that papermill injects.  Elsewhere every plain public value counts.
    """
    cells = namespace.get("In")
    if cells is None:
        plain = (str, int, float, list, dict, type(None))
        return {k: v for k, v in namespace.items() if not k.startswith("_") and isinstance(v, plain)}
    names: dict[str, None] = {}
    for cell in cells:
        assigned = notebooks.literal_assignments(cell) or {}
        # A cell of literals that touches no parameter is the reader's own, unless papermill wrote it.
        if set(assigned) & set(Params.model_fields) or cell.lstrip().startswith("# Parameters"):
            names.update(dict.fromkeys(assigned))
    return {name: namespace[name] for name in names if name in namespace}


def _short(path: Path) -> str:
    return str(path.relative_to(paths.ROOT)) if path.is_relative_to(paths.ROOT) else str(path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
