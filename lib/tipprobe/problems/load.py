"""Problem sets by one text: an embedded split, a file of ours, a benchmark's own file, or a hub id."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tipprobe.errors import DataError, ParameterError
from tipprobe.paths import resolve
from tipprobe.problems.benchmarks import FORMATS, Unusable, recognise, record_id
from tipprobe.problems.schema import Problem, read_jsonl

EMBEDDED_PREFIX = "minicode:"
FILE_SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
_HUB_ID = re.compile(
    r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.-]+))?(?:#(?P<split>[\w.-]+))?(?:@(?P<revision>.+))?"
)
#: Hub data sets that are a loading script, which `datasets` refuses since version 4, with their plain files.
SCRIPT_DATASETS = {
    "livecodebench/code_generation_lite": {
        "files": [f"test{number}.jsonl" for number in ("", 2, 3, 4, 5, 6)],
        "note": "release_v1 to release_v6 (the default) take the first files, v1 to v6 one of them",
    }
}


@dataclass(slots=True)
class LoadReport:
    """What became of a source's records.

    Attributes:
        spec: what was asked for.
        format: name of the record format.
        records: records read.
        problems: problems made of them, before `limit`.
        dropped: records that could not be used, by reason.
        in_process: problems graded in the program's own process instead of by calls, by reason.
        first: the first record concerned by each reason of `dropped`.
        dropped_ids: the reason by id, of dropped records that have one.
        fields: the first record's fields.
    """

    spec: str
    format: str = ""
    records: int = 0
    problems: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    in_process: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    dropped_ids: dict[str, str] = field(default_factory=dict)
    fields: tuple[str, ...] = ()


def load_problems(spec: str, limit: int | None = None, seed: int = 0) -> list[Problem]:
    """Return the problems that `spec` names.

    Args:
        spec: ``minicode:<split>``; or the path of a ``.jsonl``, ``.jsonl.gz`` or ``.parquet`` file (relative
            paths count from the project root) of our own problems or of a benchmark, recognised by its
            fields; or a hub id, ``owner/name[:config][#split][@revision]``.
        limit: at most this many problems, a random subset by `seed` in the source's order; None takes all.
        seed: of that choice.

    Raises:
        DataError: nothing is found under that name, its records have an unknown shape, or none is usable.
        ParameterError: `limit` is below 1.
    """
    return load_with_report(spec, limit, seed)[0]


def load_with_report(spec: str, limit: int | None = None, seed: int = 0) -> tuple[list[Problem], LoadReport]:
    """Return what `load_problems` returns, and what became of the records that are not there."""
    if limit is not None and limit < 1:
        raise ParameterError(f"limit must be at least 1, got {limit}")
    if spec.startswith(EMBEDDED_PREFIX):
        from tipprobe.problems.minicode import split

        problems = split(spec.removeprefix(EMBEDDED_PREFIX), limit, seed)
        return problems, LoadReport(spec, "embedded world", len(problems), len(problems))
    report = LoadReport(spec)
    problems = convert_records(_records(spec), report)
    if limit is not None and limit < len(problems):
        chosen = sorted(random.Random(seed).sample(range(len(problems)), limit))
        problems = [problems[index] for index in chosen]
    return problems, report


def convert_records(records: Iterable[Mapping[str, Any]], report: LoadReport) -> list[Problem]:
    """Convert records of one known format; `report` is filled in.

    Raises:
        DataError: the first record's shape is unknown, or no record could be used.
    """
    problems: dict[str, Problem] = {}
    shape = None
    for record in records:
        report.records += 1
        if shape is None:
            shape = recognise(record)
            if shape is None:
                known = "; ".join(f"{f.name}: {', '.join(sorted(f.fields))}" for f in FORMATS)
                raise DataError(
                    f"{report.spec}: records with the fields {', '.join(sorted(record))} have no known "
                    f"shape. Known shapes need these fields. {known}"
                )
            report.format, report.fields = shape.name, tuple(record)
        try:
            problem = shape.convert(record)
            if problem.id in problems:
                raise Unusable("an id that occurred before")
        except Unusable as reason:
            _drop(report, str(reason), record)
            continue
        except DataError as error:  # of our own format, whose author can mend the record
            raise DataError(f"{report.spec}, record {report.records}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, SyntaxError) as error:
            # A benchmark's stray record must not hide the others; it is counted and the first one named.
            _drop(report, f"malformed record ({type(error).__name__}: {error})"[:120], record)
            continue
        if "in_process" in problem.meta:
            report.in_process[problem.meta["in_process"]] += 1
        problems[problem.id] = problem
    if not problems:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in report.dropped.items())
        raise DataError(f"{report.spec}: no usable problem among {report.records} records. {reasons}".strip())
    report.problems = len(problems)
    return list(problems.values())


def _drop(report: LoadReport, reason: str, record: Mapping[str, Any]) -> None:
    report.dropped[reason] += 1
    name = record_id(record)
    report.first.setdefault(reason, name or f"record {report.records}")
    if name is not None and name not in report.dropped_ids:
        report.dropped_ids[name] = reason


def describe(spec: str) -> dict[str, Any]:
    """Return what ``tipprobe data describe`` shows: format, counts, drops, sizes, and the first problem.

    Raises:
        DataError: see `load_problems`.
    """
    problems, report = load_with_report(spec)
    kinds = Counter(problem.kind for problem in problems)

    def spread(values: list[int]) -> dict[str, float]:
        return {"min": min(values), "median": median(values), "max": max(values)}

    first = problems[0].to_json()
    for key in ("examples", "tests"):
        first[key] = [dict(test) for test in first.get(key, ())][:2]
    return {
        "spec": spec,
        "format": report.format,
        "fields": list(report.fields),
        "records": report.records,
        "problems": report.problems,
        "dropped": dict(report.dropped),
        "first_dropped": report.first,
        "in_process": dict(report.in_process),
        "kinds": dict(sorted(kinds.items())),
        "with_reference": sum(problem.reference is not None for problem in problems),
        "statement_characters": spread([len(problem.statement) for problem in problems]),
        "examples": spread([len(problem.examples) for problem in problems]),
        "tests": spread([len(problem.tests) for problem in problems]),
        "first": {
            key: value[:400] + " ..." if isinstance(value, str) and len(value) > 400 else value
            for key, value in first.items()
        },
    }


# --- reading ----------------------------------------------------------------------------------------------


def _records(spec: str) -> Iterator[dict[str, Any]]:
    path = resolve(spec)
    if path.is_dir():
        raise DataError(f"{path} is a folder; give one file: {', '.join(FILE_SUFFIXES)}")
    if path.is_file():
        return _file_records(path)
    match = _HUB_ID.fullmatch(spec)
    if spec.endswith(FILE_SUFFIXES) or spec.startswith((".", "/", "~")) or match is None:
        raise DataError(
            f"no problem set {spec!r}: no such file ({path}), and it is neither {EMBEDDED_PREFIX}<split> "
            "nor a hub id (owner/name[:config][#split][@revision])"
        )
    return _hub_records(**match.groupdict())


def _file_records(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(path)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is not a parquet file: {error}") from error
        yield from table.to_pylist()
        return
    if not path.name.endswith(FILE_SUFFIXES):
        raise DataError(f"{path}: unknown kind of file; known: {', '.join(FILE_SUFFIXES)}")
    yield from read_jsonl(path, whole=True)


def _hub_records(
    name: str, config: str | None, split: str | None, revision: str | None
) -> Iterator[dict[str, Any]]:
    if name in SCRIPT_DATASETS:
        yield from _script_dataset_records(name, split, revision)
        return
    from datasets import get_dataset_split_names, load_dataset

    try:
        if split is None:
            splits = get_dataset_split_names(name, config, revision=revision)
            if "test" not in splits and len(splits) > 1:
                raise DataError(f"{name} has the splits {', '.join(splits)}; choose one: {name}#{splits[0]}")
            split = "test" if "test" in splits else splits[0]
        dataset = load_dataset(name, config, split=split, revision=revision)
    except DataError:
        raise
    except Exception as error:  # the hub client has no common base class for what may go wrong
        raise DataError(_hub_failure(name, error)) from error
    yield from dataset


def _script_dataset_records(name: str, release: str | None, revision: str | None) -> Iterator[dict[str, Any]]:
    """Yield the records of a script data set from its plain files; `release` says which ones."""
    from huggingface_hub import hf_hub_download

    source = SCRIPT_DATASETS[name]
    files: list[str] = source["files"]
    match = re.fullmatch(rf"(release_)?v([1-{len(files)}])", release or f"release_v{len(files)}")
    if match is None:
        raise DataError(f"{name} has no version {release!r}: {source['note']}")
    last = int(match[2])
    for file in files[:last] if match[1] else files[last - 1 : last]:
        try:
            path = hf_hub_download(name, file, repo_type="dataset", revision=revision)
        except Exception as error:  # as above
            raise DataError(_hub_failure(name, error)) from error
        yield from read_jsonl(Path(path), whole=True)


def _hub_failure(name: str, error: Exception) -> str:
    reason = (str(error).strip() or type(error).__name__).split("\n")[0]
    if "scripts are no longer supported" in reason:
        return (
            f"{name} is a data set with a loading script, which is no longer run: download its data files "
            "and give a path, or take a copy in parquet"
        )
    return (
        f"problem set {name!r} is neither a local file nor to be had from the hub: {reason} "
        "(check the spelling, the network and HF_TOKEN, or download it and give the path)"
    )
