"""Grading somebody else's generations: a problem set and a file of samples in, results and a page out.

The samples file is read twice and never held in memory: once to check every line before anything runs, once
to grade it chunk by chunk in the file's order.  Results are appended as they come, so a grading that was
killed goes on after the last chunk that is there.
"""

from __future__ import annotations

import ast
import difflib
import gzip
import hashlib
import json
import re
import shutil
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import jinja2
import numpy as np
from markupsafe import Markup

from tipprobe import __version__, paths
from tipprobe.errors import DataError, ParameterError
from tipprobe.evaluation.grade import Verdict, check_tests, grade, missing_modules, needed_modules
from tipprobe.evaluation.intervals import mean_interval
from tipprobe.evaluation.passk import pass_at_k
from tipprobe.files import append_jsonl, complete_records, read_json, write_json
from tipprobe.problems.asserts import parse
from tipprobe.problems.load import load_with_report
from tipprobe.problems.schema import Problem
from tipprobe.sandbox import Sandbox, extract_code, grading_flag
from tipprobe.sandbox.compare import FLAGS, check_mode
from tipprobe.sandbox.modes import PARITY
from tipprobe.series import hardware, keys
from tipprobe.series.provenance import git_state, versions

TEMPLATES = paths.PACKAGE / "series" / "templates"
#: Bootstrap draws, fewer for very large sets: a draw takes memory for every problem.
DRAWS = 10_000
_DRAWS_TIMES_PROBLEMS = 20_000_000
MAX_LINE_BYTES = 32 << 20
#: Samples graded between two writes, a worker.
CHUNK = 16
_SHOWN_ERRORS = 5
_SHOWN_PROBLEMS = 1_000
_ENDPOINTS = ("task_id", "completion", "program")

Record = dict[str, Any]
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


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the samples file."""

    line: int
    task_id: str
    number: int  # among the task's samples, from 0
    text: str
    is_program: bool


@dataclass(slots=True)
class Survey:
    """What a samples file holds, known before anything runs.

    Attributes:
        counts: samples of each problem that will be graded, in the order of the file.
        repeated: lines that repeat an earlier one word for word; each counts as a sample of its own.
        left_out: samples that are not graded, by reason.
        sha256: of the file's content.
    """

    counts: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    sha256: str = ""


# --- reading samples --------------------------------------------------------------------------------------


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line) of a text file, plain or gzipped, blank lines left out.

    Raises:
        DataError: there is no such file, it cannot be read, or a line is longer than 32 MiB.
    """
    if not path.is_file():
        raise DataError(f"no samples file {path}")
    number = 0
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise DataError(f"{path}, line {number}: longer than {MAX_LINE_BYTES >> 20} MiB")
                if line.strip(b" \t\r\n\xef\xbb\xbf"):
                    yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}, after line {number}: cannot be read ({error})") from error


def sample_of(line: bytes) -> tuple[str, str, bool, int | None]:
    """Return (task id, text, whether the text is a program, the sample's own number if it has one).

    Raises:
        ValueError: the line is no sample; the message says why.
    """
    try:
        record = json.loads(line)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:  # thousands of digits, or of brackets
        raise ValueError(f"JSON that Python does not read ({error})") from None
    if not isinstance(record, dict):
        raise ValueError(f"a JSON {type(record).__name__}, not an object")
    if "task_id" not in record:
        raise ValueError(f"no task_id among the fields {', '.join(record) or '(none)'}")
    task = record["task_id"]
    if isinstance(task, bool) or not isinstance(task, str | int):
        raise ValueError(f"task_id is {json.dumps(task):.40}, not text")
    present = [key for key in ("completion", "program") if key in record]
    if len(present) == 2:
        raise ValueError("both a completion and a program: which one is to be graded?")
    if not present:
        hint = "; is it what 'solution' holds? Then call it 'program'" if "solution" in record else ""
        raise ValueError(f"neither completion nor program among the fields {', '.join(record)}{hint}")
    text = record[present[0]]
    if not isinstance(text, str):
        raise ValueError(f"{present[0]} is {json.dumps(text):.40}, not text")
    number = record.get("sample")
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise ValueError(f"sample is {json.dumps(number):.40}, not a whole number")
    return str(task), text, present[0] == "program", number


def survey_samples(
    path: Path, problems: Mapping[str, Problem], dropped: Mapping[str, str], limit: int | None = None
) -> Survey:
    """Check every line of a samples file.

    Args:
        path: the file.
        problems: by id.
        dropped: ids of the problem set that cannot be graded -> why.
        limit: see `GradeJob`.

    Raises:
        DataError: the file is empty, or lines cannot be used; the message names the first of them.
    """
    survey, errors, seen, numbers = Survey(), [], set(), set()
    digest, total = hashlib.sha256(), 0
    for number, line in read_lines(path):
        digest.update(line)
        total += 1
        try:
            task, _, _, own = sample_of(line)
        except ValueError as error:
            errors.append(f"line {number}: {error}")
            continue
        if task in problems:
            if own is not None and (task, own) in numbers:
                errors.append(f"line {number}: sample {own} of {task!r} is there already")
            numbers.add((task, own))
            if limit is not None and task not in survey.counts and len(survey.counts) == limit:
                survey.left_out[f"beyond the first {limit} problems"] += 1
                continue
            survey.counts[task] += 1
            fingerprint = hashlib.blake2b(line.strip(), digest_size=16).digest()
            survey.repeated += fingerprint in seen
            seen.add(fingerprint)
        elif task in dropped:
            survey.left_out[f"the problem cannot be graded: {dropped[task]}"] += 1
        else:
            near = difflib.get_close_matches(task, problems, 1)
            errors.append(
                f"line {number}: unknown task id {task!r}"
                + (
                    f", the nearest is {near[0]!r}"
                    if near
                    else f", the set has {next(iter(problems))!r}, ..."
                )
            )
    if errors:
        shown = "\n  ".join(errors[:_SHOWN_ERRORS])
        more = f"\n  and {len(errors) - _SHOWN_ERRORS} more" if len(errors) > _SHOWN_ERRORS else ""
        raise DataError(f"{path}: {len(errors)} of {total} lines cannot be used\n  {shown}{more}")
    if not total:
        raise DataError(f"{path} is empty: it needs one JSON object a line with {', '.join(_ENDPOINTS[:2])}")
    if not survey.counts:
        reasons = "; ".join(survey.left_out)
        raise DataError(f"{path}: none of its {total} samples is of a problem that can be graded ({reasons})")
    survey.sha256 = digest.hexdigest()
    return survey


def read_samples(path: Path, chosen: Mapping[str, object]) -> Iterator[Sample]:
    """Yield the samples of the problems in `chosen`, of a file that `survey_samples` has checked."""
    numbers: Counter[str] = Counter()
    for line_number, line in read_lines(path):
        task, text, is_program, _ = sample_of(line)
        if task in chosen:
            yield Sample(line_number, task, numbers[task], text, is_program)
            numbers[task] += 1


def keep_stream(stream: IO[bytes], folder: Path) -> Path:
    """Keep what comes through a pipe as a file of `folder`, so that it can be read twice, and later again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "samples.jsonl"
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file)
    return path


# --- from a sample to a program ---------------------------------------------------------------------------


def program_of(sample: Sample, problem: Problem) -> str | None:
    """Return the program of a sample, None where there is none.

    A ``program`` is taken as it is.  From a ``completion`` the code is taken (`extract_code`).  Where the
    benchmark's prompt is itself source, a completion that does not define the function continues the prompt,
    and one that does is put behind it, for prompts bring imports and helpers that the function may use.
    """
    if sample.is_program:
        return sample.text if sample.text.strip() else None
    found = extract_code(sample.text)
    stub = stub_of(problem)
    if stub is None or not sample.text.strip():
        return found.code
    if found.code is not None and defines(found.code, problem.entry_point):
        if re.search(r"^from __future__ ", found.code, re.MULTILINE):  # must come first
            return found.code
        return f"{stub}\n    pass\n\n\n{found.code}\n"
    body = found.code if found.reason in ("fenced", "unclosed_fence") else sample.text
    return None if body is None else f"{stub}\n{body}"


def stub_of(problem: Problem) -> str | None:
    """Return the source that a completion continues, ends in a function's head or docstring; else None."""
    if problem.entry_point is None:
        return None
    stub = problem.meta.get("stub", problem.statement).rstrip()
    try:
        parse(f"{stub}\n    pass\n")
    except SyntaxError:
        return None
    return stub if defines(f"{stub}\n    pass\n", problem.entry_point) else None


def defines(source: str, name: str) -> bool:
    """Return whether `source` defines the function `name`, itself or as a method of a class ``Solution``."""
    head = name.partition(".")[0]
    try:
        body = parse(source).body
    except SyntaxError:
        return (
            re.search(rf"^(?:async )?(?:def|class)\s+{re.escape(head)}\b", source, re.MULTILINE) is not None
        )
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            methods = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
            if node.name == head or (node.name == "Solution" and name in methods):
                return True
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == head for target in targets):
                return True
    return False


# --- grading ----------------------------------------------------------------------------------------------


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
        DataError: problems or samples cannot be used, or the folder holds the results of another grading.
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
    identity = _identity(job, chosen, survey)
    results = job.out / "results.jsonl"
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
        kept = _open(job, identity | {"missing_modules": sorted(missing)}, survey, note)
        _grade_all(job, chosen, lacking, sandbox, kept, survey, progress)
        isolation = sandbox.isolation.to_json()
    records = complete_records(results)
    summary = summarise(records, chosen, lacking, job.ks, job.mode) | {
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
    write_page(job.out / "index.html", summary, records, chosen)
    return summary


def _check(job: GradeJob) -> None:
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


def _identity(job: GradeJob, chosen: Mapping[str, Problem], survey: Survey) -> Record:
    """Return what a results file depends on: equal identities mean that its lines stay valid."""
    library = keys.library_hashes(keys.module_closure(["import tipprobe.evaluation.grade"]))
    return {
        "problems": keys.json_hash([problem.to_json() for problem in chosen.values()]),
        "samples": survey.sha256,
        "mode": job.mode,
        "limit": job.limit,
        "time_limit_s": float(job.time_limit_s),
        "memory_mb": job.memory_mb,
        "library": keys.json_hash(library),
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
    records = complete_records(results)
    content = results.read_bytes() if results.exists() else b""
    whole = content.split(b"\n")[: len(records)]
    # What follows the last whole line was being written when the grading was killed.
    results.write_bytes(b"".join(line + b"\n" for line in whole))
    if records:
        note(f"{len(records)} of {survey.counts.total()} samples were graded before; going on from there")
    return len(records)


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
    done, chunk = 0, []
    size = CHUNK * sandbox.workers
    if progress is not None:
        progress(kept, total)
    for sample in read_samples(job.samples, chosen):
        done += 1
        if done <= kept:
            continue
        chunk.append(sample)
        if len(chunk) == size or done == total:
            append_jsonl(job.out / "results.jsonl", _grade_chunk(job, chunk, chosen, lacking, sandbox, known))
            chunk = []
            if progress is not None:
                progress(done, total)


def _grade_chunk(
    job: GradeJob,
    chunk: Sequence[Sample],
    chosen: Mapping[str, Problem],
    lacking: Mapping[str, Sequence[str]],
    sandbox: Sandbox,
    known: dict[tuple[str, bytes], Verdict],
) -> list[Record]:
    programs = [program_of(sample, chosen[sample.task_id]) for sample in chunk]
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
            "mode": job.mode,
            "line": sample.line,
        }
        flag = grading_flag(chosen[sample.task_id])
        records.append(record | ({"flag": flag} if flag else {}))
    return records


# --- summing up -------------------------------------------------------------------------------------------


def summarise(
    records: Sequence[Record],
    problems: Mapping[str, Problem],
    lacking: Mapping[str, Sequence[str]],
    ks: Sequence[int],
    mode: str,
) -> Record:
    """Return the numbers of a grading.

    pass@k is the mean over the problems with at least k samples; problems whose libraries are not installed
    are left out.  It is given over all problems, flagged ones counting as their comparison came out, which is
    a lower bound, and without the flagged ones.
    """
    passed: dict[str, list[bool]] = {}
    for record in records:
        passed.setdefault(record["task_id"], []).append(record["passed"])
    flags = {task: flag for task in passed if (flag := grading_flag(problems[task]))}
    gradable = [task for task in passed if task not in lacking]
    return {
        "mode": mode,
        "mirrors": PARITY[mode].mirrors if mode in PARITY else "the project's own rules",
        "n_problems": len(passed),
        "n_samples": len(records),
        "samples_a_problem": {
            "min": min(map(len, passed.values())),
            "max": max(map(len, passed.values())),
        },
        "passed": sum(record["passed"] for record in records),
        "pass_at_k": {
            str(k): {
                "all": _pass_at_k(gradable, passed, k),
                "without_flagged": _pass_at_k([task for task in gradable if task not in flags], passed, k),
            }
            for k in sorted(set(ks))
        },
        "verdicts": _counts(record["verdict"] for record in records if "flag" not in record),
        "verdicts_of_flagged": _counts(record["verdict"] for record in records if "flag" in record),
        "flagged": {
            flag: {
                "meaning": FLAGS[flag],
                "problems": sum(of == flag for of in flags.values()),
                "samples": sum(record.get("flag") == flag for record in records),
                "undecided": sum(
                    record.get("flag") == flag and record["verdict"] == "undecided" for record in records
                ),
            }
            for flag in sorted(set(flags.values()))
        },
        "missing_libraries": _counts(
            name
            for record in records
            if record["verdict"] == "missing_library"
            for name in record["reason"].split(", ")
        ),
        "problems_left_out_for_libraries": len(lacking),
        "cpu_s": round(sum(record["cpu_s"] for record in records), 2),
    }


def headline(summary: Record) -> str:
    """Return the numbers of a grading that a terminal should show."""
    lines = [
        f"{summary['n_samples']:,} samples of {summary['n_problems']:,} problems, mode {summary['mode']}"
    ]
    for k, both in summary["pass_at_k"].items():
        for label, value in (("", both["all"]), (", without flagged problems", both["without_flagged"])):
            if value is not None and (not label or summary["flagged"]):
                mean, low, high = (100 * value[key] for key in ("mean", "low", "high"))
                lines.append(
                    f"pass@{k} {mean:.1f} % [{low:.1f}, {high:.1f}], {value['n_problems']:,} problems{label}"
                )
                if value["too_few_samples"]:
                    lines[-1] += f" ({value['too_few_samples']:,} others have fewer than {k} samples)"
    for name in ("verdicts", "verdicts_of_flagged"):
        if summary[name]:
            counts = ", ".join(f"{verdict} {count:,}" for verdict, count in summary[name].items())
            lines.append(f"{name.replace('_', ' ')}: {counts}")
    return "\n".join(lines)


def _counts(values: Iterator[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _pass_at_k(tasks: Sequence[str], passed: Mapping[str, Sequence[bool]], k: int) -> Record | None:
    """Return pass@k with its interval and what it is about; None where no problem has k samples."""
    enough = [task for task in tasks if len(passed[task]) >= k]
    if not enough:
        return None
    values = np.array([pass_at_k(len(passed[task]), sum(passed[task]), k) for task in enough])
    draws = min(DRAWS, max(200, _DRAWS_TIMES_PROBLEMS // len(enough)))
    interval = mean_interval(values, draws, seed=0)
    return {
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n_problems": len(enough),
        "too_few_samples": len(tasks) - len(enough),
        "bootstrap_draws": draws,
    }


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


# --- page -------------------------------------------------------------------------------------------------


def write_page(
    path: Path, summary: Record, records: Sequence[Record], problems: Mapping[str, Problem]
) -> None:
    """Write a page that needs nothing beside it: headline numbers, verdicts, one row a problem."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    templates = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    rows = _problem_rows(records)
    total = max(1, summary["n_samples"])
    verdicts = Counter(summary["verdicts"])
    verdicts.update(summary["verdicts_of_flagged"])
    provenance = summary["provenance"]
    machine = provenance["machine"]
    body = templates.get_template("generations.html.j2").render(
        summary=summary,
        headline=[
            (f"pass@{k}", label, value)
            for k, both in summary["pass_at_k"].items()
            for label, value in (("all problems", both["all"]), ("without flagged", both["without_flagged"]))
            if value is not None and (label == "all problems" or summary["flagged"])
        ],
        verdicts=[(name, count, 100 * count / total) for name, count in verdicts.most_common()],
        rows=rows[:_SHOWN_PROBLEMS],
        more=max(0, len(rows) - _SHOWN_PROBLEMS),
        facts=[
            ("mode", f"{summary['mode']} ({summary['mirrors']})"),
            ("problems", Path(provenance["parameters"]["problems"]).name),
            ("samples", Path(provenance["parameters"]["samples"]).name),
            ("isolation", summary["isolation"]["level"]),
            ("CPU time of all programs", f"{summary['cpu_s']:.1f} s"),
            ("machine", f"{machine['cpu_cores']} cores, {machine['platform']}, Python {machine['python']}"),
            ("finished", summary["times"]["finished"]),
        ],
        parameters=json.dumps(provenance["parameters"], indent=1),
        versions="\n".join(f"{name}=={version}" for name, version in provenance["versions"].items()),
    )
    names = [Path(provenance["parameters"][key]).name for key in ("samples", "problems")]
    page = templates.get_template("page.html.j2").render(
        title=" on ".join(names),
        css=Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
        pages=[],
        here="index.html",
        notice="",
        body=Markup(body),
        footer=f"Made by tipprobe {__version__}.",
    )
    path.write_text(page, encoding="utf-8")


def _problem_rows(records: Sequence[Record]) -> list[Record]:
    """Return a row a problem, the least solved first."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["task_id"], []).append(record)
    rows = []
    for task, group in groups.items():
        failed = next((record for record in group if not record["passed"]), None)
        rows.append(
            {
                "task_id": task,
                "n": len(group),
                "passed": sum(record["passed"] for record in group),
                "flag": group[0].get("flag", ""),
                "verdicts": _counts(record["verdict"] for record in group if not record["passed"]),
                "first": failed and {**failed, "reason": failed["reason"][:200]},
                "cpu_s": max(record["cpu_s"] for record in group),
            }
        )
    return sorted(rows, key=lambda row: (row["passed"] / row["n"], row["task_id"]))
