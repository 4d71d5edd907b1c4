"""Grading somebody else's generations: a problem set and a file of samples in, results and a page out.

The samples file is read twice: once to check every line before anything runs, once to grade it chunk by chunk
in the file's order.  Results are appended as they come, so a grading that was killed goes on after the last
chunk that is there; they are read back line by line.  What stays in memory is the problems, a few hashes a
sample and a verdict a program, no texts.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from tipprobe import __version__
from tipprobe.errors import DataError, ParameterError
from tipprobe.evaluation.completions import sample_program
from tipprobe.evaluation.generations_page import write_page
from tipprobe.evaluation.generations_summary import Record, rows_of, summarise
from tipprobe.evaluation.grade import Verdict, check_tests, grade, missing_modules, needed_modules
from tipprobe.evaluation.samples import Sample, SamplesChanged, Survey, read_samples, survey_samples
from tipprobe.files import append_jsonl, read_json, write_json
from tipprobe.problems.load import load_with_report
from tipprobe.problems.schema import Problem, read_jsonl
from tipprobe.sandbox import Sandbox, grading_flag
from tipprobe.sandbox.compare import check_mode
from tipprobe.series import hardware, keys
from tipprobe.series.provenance import git_state, versions

#: Samples graded between two writes, a worker: few at first, so that an early stop loses little.
FIRST_CHUNK, CHUNK = 2, 16

Counting = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class GradeJob:
    """What to grade and how.

    Attributes:
        problems: what `load_problems` takes.
        samples: JSONL file, plain or gzipped, of ``{"task_id", "completion"}`` or ``{"task_id", "program"}``.
        out: folder of the results.
        mode: whose rules to compare by (`tipprobe.sandbox.modes`).
        ks: values of k for pass@k.
        limit: grade the samples of this many problems only, the first that the samples file names; None
            takes all.
        time_limit_s: CPU seconds of one execution, where the problem itself does not allow more.
        memory_mb: memory of one execution.
        workers: worker processes, 0 for one a core.
        force: grade again what DIR has already.
    """

    problems: str
    samples: Path
    out: Path
    mode: str = "strict"
    ks: tuple[int, ...] = (1,)
    limit: int | None = None
    time_limit_s: float = 2.0
    memory_mb: int = 2048
    workers: int = 0
    force: bool = False


def grade_generations(
    job: GradeJob, progress: Counting | None = None, note: Callable[[str], None] | None = None
) -> Record:
    """Grade a samples file and write ``results.jsonl``, ``summary.json`` and ``index.html`` into its folder.

    Args:
        job: what to grade.
        progress: called with (samples graded, samples).
        note: called with a sentence where something is left out or taken up again.

    Returns:
        The summary.

    Raises:
        DataError: problems or samples cannot be used, the samples file was changed meanwhile, or the folder
            holds the results of another grading.
        ParameterError: a parameter is out of range.
        SandboxError: the execution machinery failed; the same call goes on from there.
    """
    note = note or (lambda text: None)
    _check(job)
    problems, report = load_with_report(job.problems)
    by_id = {problem.id: problem for problem in problems}
    survey = survey_samples(job.samples, by_id, report.dropped_ids, job.limit)
    chosen = {task: by_id[task] for task in survey.counts}
    check_tests(chosen.values())
    check_mode(job.mode, chosen.values())
    _check_ks(job.ks, survey.counts)
    for reason, count in survey.left_out.items():
        note(f"{count} samples are not graded: {reason}")
    if survey.repeated:
        note(f"{survey.repeated} lines repeat an earlier one; each counts as a sample of its own")
    started = time.time()
    with Sandbox(job.workers) as sandbox:
        missing = missing_modules(
            chosen.values(), sandbox, time_limit_s=job.time_limit_s, memory_mb=job.memory_mb
        )
        lacking = {
            task: sorted(needed_modules(problem) & missing)
            for task, problem in chosen.items()
            if missing and needed_modules(problem) & missing
        }
        if lacking:
            note(
                f"{len(lacking)} problems need libraries that programs cannot import here "
                f"({', '.join(sorted(missing))}): their samples are not run and pass@k leaves them out"
            )
        identity = _identity(job, chosen, survey, sandbox.isolation.level, missing)
        kept = _open(job, identity, survey, note)
        _grade_all(job, chosen, lacking, sandbox, kept, survey, progress)
        isolation = sandbox.isolation.to_json()
    rows = rows_of(read_jsonl(job.out / "results.jsonl"))
    summary = summarise(rows, lacking, job.ks, job.mode) | {
        "left_out": dict(survey.left_out),
        "repeated_lines": survey.repeated,
        "isolation": isolation,
        "provenance": _provenance(job, identity),
        "times": {
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "duration_s": round(time.time() - started, 1),
            "resumed_after": kept,
        },
    }
    write_json(job.out / "summary.json", summary)
    write_page(job.out / "index.html", summary, rows)
    return summary


def _check(job: GradeJob) -> None:
    check_mode(job.mode)
    if not job.ks or any(k < 1 for k in job.ks):
        raise ParameterError(f"k must be at least 1, got {', '.join(map(str, job.ks)) or 'none'}")
    if job.limit is not None and job.limit < 1:
        raise ParameterError(f"limit must be at least 1, got {job.limit}")
    if not 0 < job.time_limit_s <= 86_400:
        raise ParameterError(
            f"the time limit must be above 0 and at most 86400 seconds, got {job.time_limit_s}"
        )
    if not 16 <= job.memory_mb <= 1 << 20:
        raise ParameterError(f"the memory limit must be 16 to {1 << 20} MiB, got {job.memory_mb}")


def _check_ks(ks: Sequence[int], counts: Mapping[str, int]) -> None:
    largest = max(counts.values())
    for k in ks:
        if k > largest:
            raise DataError(
                f"pass@{k} needs {k} samples of a problem, but none has more than {largest} here: "
                "draw more samples or ask for a smaller k"
            )


def _identity(
    job: GradeJob, chosen: Mapping[str, Problem], survey: Survey, isolation: str, missing: Iterable[str]
) -> Record:
    """Return what a results file depends on: equal identities mean that its lines stay valid."""
    return {
        "problems": keys.json_hash([problem.to_json() for problem in chosen.values()]),
        "samples": survey.sha256,
        "mode": job.mode,
        "limit": job.limit,
        "time_limit_s": float(job.time_limit_s),
        "memory_mb": job.memory_mb,
        "library": keys.json_hash(keys.library_hashes(keys.module_closure([f"import {__name__}"]))),
        "isolation": isolation,
        "python": platform.python_version(),
        "missing_modules": sorted(missing),
    }


def _open(job: GradeJob, identity: Record, survey: Survey, note: Callable[[str], None]) -> int:
    """Prepare the folder and return how many samples its results file has already."""
    job.out.mkdir(parents=True, exist_ok=True)
    header, results = job.out / "grading.json", job.out / "results.jsonl"
    earlier = read_json(header)
    if job.force or not (results.exists() or header.exists()):
        results.unlink(missing_ok=True)
        write_json(header, identity)
        return 0
    if earlier != identity:
        differs = [key for key in identity if (earlier or {}).get(key) != identity[key]]
        raise DataError(
            f"{job.out} holds the results of another grading (different: {', '.join(differs)}): "
            "choose another --out, or say --force to replace them"
        )
    kept = keep_whole_lines(results)
    if kept:
        note(f"{kept} of {survey.counts.total()} samples were graded before; going on from there")
    return kept


def keep_whole_lines(path: Path) -> int:
    """Cut a growing JSONL file after its last whole line, for what follows was being written when the writer
    was killed, and return the number of lines."""
    if not path.exists():
        return 0
    count = end = 0
    with path.open("rb+") as file:
        for line in file:
            try:
                json.loads(line)
            except ValueError:
                break
            if not line.endswith(b"\n"):
                break
            count, end = count + 1, end + len(line)
        file.truncate(end)
    return count


def _grade_all(
    job: GradeJob,
    chosen: Mapping[str, Problem],
    lacking: Mapping[str, Sequence[str]],
    sandbox: Sandbox,
    kept: int,
    survey: Survey,
    progress: Counting | None,
) -> None:
    total = survey.counts.total()
    known: dict[tuple[str, bytes], Verdict] = {}  # of programs in earlier chunks, by hash
    path = job.out / "results.jsonl"
    size_before = path.stat().st_size if path.exists() else 0
    if progress is not None:
        progress(kept, total)
    samples = islice(read_samples(job.samples, chosen, survey), kept, None)
    done, size = kept, FIRST_CHUNK
    try:
        while chunk := list(islice(samples, size * sandbox.workers)):
            size = min(2 * size, CHUNK)
            append_jsonl(path, _grade_chunk(job, chunk, chosen, lacking, sandbox, known))
            done += len(chunk)
            if progress is not None:
                progress(done, total)
    except SamplesChanged:
        if path.exists():
            os.truncate(path, size_before)  # what was graded now may be of another file
        raise


def _grade_chunk(
    job: GradeJob,
    chunk: Sequence[Sample],
    chosen: Mapping[str, Problem],
    lacking: Mapping[str, Sequence[str]],
    sandbox: Sandbox,
    known: dict[tuple[str, bytes], Verdict],
) -> list[Record]:
    programs = [sample_program(sample, chosen[sample.task_id]) for sample in chunk]
    ids = [
        (sample.task_id, hashlib.sha256((program or "").encode("utf-8", "surrogatepass")).digest())
        for sample, program in zip(chunk, programs, strict=True)
    ]
    new = {
        key: (chosen[sample.task_id], program)
        for key, sample, program in zip(ids, chunk, programs, strict=True)
        if key not in known and sample.task_id not in lacking
    }
    verdicts = grade(
        list(new.values()),
        sandbox,
        time_limit_s=job.time_limit_s,
        memory_mb=job.memory_mb,
        mode=job.mode,
    )
    known |= dict(zip(new, verdicts, strict=True))
    records = []
    for key, sample in zip(ids, chunk, strict=True):
        if sample.task_id in lacking:
            verdict = Verdict(False, "missing_library", ", ".join(lacking[sample.task_id]))
        else:
            verdict = known[key]
        record = {
            "task_id": sample.task_id,
            "sample": sample.number,
            "verdict": verdict.reason,
            "passed": verdict.passed,
            "reason": verdict.detail,
            "cpu_s": round(verdict.cpu_s, 4),
            "mode": "in_process" if chosen[sample.task_id].test_code is not None else job.mode,
            "line": sample.line,
        }
        flag = grading_flag(chosen[sample.task_id])
        records.append(record | ({"flag": flag} if flag else {}))
    return records


def _provenance(job: GradeJob, identity: Record) -> Record:
    parameters = asdict(job) | {"samples": str(job.samples), "out": str(job.out), "ks": list(job.ks)}
    return {
        "tipprobe": __version__,
        "parameters": parameters,
        "inputs": {"problems_sha256": identity["problems"], "samples_sha256": identity["samples"]},
        "library_sha256": identity["library"],
        "code": git_state(),
        "machine": hardware.describe(),
        "versions": versions(),
    }
