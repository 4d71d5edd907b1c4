"""Sampling models, grading every sample by hidden tests, scoring it on probes; one record a sample.

The work is done in two passes.  *Sampling* runs models side by side and appends raw replies to
``<samples file>.replies``.  *Grading* goes through the problems once for all models together, so that a
program that several models wrote, which is common among adaptations of one base model, runs once; it writes
the samples files, in the order of the problems.  Both passes work chunk by chunk, a chunk's seed depends on
its number only, and its records are appended together: an evaluation that was killed ends with the same
files as one that was not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from tipprobe.errors import DataError
from tipprobe.evaluation.grade import check_tests, grade
from tipprobe.files import append_jsonl, complete_records
from tipprobe.models.load import load_model, model_revision
from tipprobe.models.types import Completion, Prompt, Sampler, Sampling
from tipprobe.probes.types import ProbeSet, check_probe_sets, read_probe_sets
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl
from tipprobe.prompts import code_prompt
from tipprobe.sandbox import Executor, Limits, Sandbox, program_of
from tipprobe.training.rollouts import score_groups, short_hash
from tipprobe.workers import run_side_by_side

Record = dict[str, Any]
Progress = Callable[[int, int], None]
#: Problems graded together; what a kill can cost.
GRADED_TOGETHER = 8


@dataclass(frozen=True, kw_only=True)
class EvalJob:
    """One model on one problem set.  Plain values, so that it can go to another process.

    Attributes:
        name: for messages, such as ``erpo-seed0 on transfer``.
        model: what `load_model` takes.
        problems: JSONL file of the problem schema.
        path: samples file to write.
        n: samples a problem.
        sampling: how they are drawn; its seed seeds all chunks.
        probes: frozen probe file; with it each sample gets its consensus with the problem's other samples.
        device: ``auto``, ``cpu`` or ``cuda``.
        batch_size: samples generated together, and (divided by `n`) problems a chunk.
        time_limit_s: CPU seconds of one execution.
        memory_mb: memory of one execution.
        meta: anything to be kept in the file's header (method, seed, split).
        prompts: JSONL file of `write_prompts` with other prompts than `code_prompt`'s, such as guided ones.
    """

    name: str
    model: str
    problems: str
    path: str
    n: int
    sampling: Sampling
    probes: str | None = None
    device: str = "auto"
    batch_size: int = 256
    time_limit_s: float = 2.0
    memory_mb: int = 1024
    meta: Mapping[str, Any] = field(default_factory=dict)
    prompts: str | None = None


def write_prompts(path: Path, prompts: Mapping[str, Sequence[Prompt]]) -> None:
    """Write prompts by problem id: one for all samples of the problem, or one for each sample."""
    write_jsonl(path, ({"problem_id": key, "prompts": list(value)} for key, value in prompts.items()))


def plan_jobs(
    models: Mapping[tuple[str, int], str],
    problems: Mapping[str, str | Path],
    folder: Path,
    *,
    label: str,
    probes: Mapping[str, str | Path],
    **shared: Any,
) -> list[EvalJob]:
    """Return one job for each model and problem set; its samples file is ``<folder>/<model>--<split>.jsonl``.

    Args:
        models: what to load, by (method, training seed).
        problems: problem files by split.
        folder: where samples files go.
        label: name of the unadapted model, method ``base``; adapted ones are called ``<method>-seed<k>``.
        probes: probe files by split; splits without one are evaluated without consensus.
        shared: the other fields of `EvalJob`.
    """
    names = {key: label if key[0] == "base" else f"{key[0]}-seed{key[1]}" for key in models}
    if len(set(names.values())) < len(names):  # the base model is itself a run's checkpoint
        names = {key: f"base-{label}" if key[0] == "base" else name for key, name in names.items()}
    jobs = []
    for (method, seed), model in models.items():
        name = names[method, seed]
        for split, file in problems.items():
            jobs.append(
                EvalJob(
                    name=f"{name} on {split}",
                    model=model,
                    problems=str(file),
                    path=str(folder / f"{name}--{split}.jsonl"),
                    probes=str(probes[split]) if split in probes else None,
                    meta={"method": method, "seed": seed, "split": split},
                    **shared,
                )
            )
    return jobs


def evaluate(job: EvalJob, sandbox: Executor, progress: Progress | None = None) -> list[Record]:
    """Carry out one job in this process; see `evaluate_all`.

    Returns:
        The records of the samples file, see `read_samples`.
    """
    if progress is not None:
        progress(0, job.n * len(_problems(job)))
    sample(job)
    grade_all([job], sandbox, progress)
    return read_samples(Path(job.path))[1]


def evaluate_all(
    jobs: Sequence[EvalJob],
    workers: int = 0,
    *,
    sampled: Progress | None = None,
    graded: Progress | None = None,
) -> list[Path]:
    """Carry out jobs, models side by side; return the samples files in order.

    What earlier calls finished is recognised by the files' headers and kept.

    Args:
        jobs: with pairwise different files.
        workers: processes, 0 for one a core.
        sampled: called with the samples drawn and their total.
        graded: called with the samples graded and their total.

    Raises:
        DataError: a model cannot be loaded, a problem has no tests or no probe set, or two jobs share a file.
        SandboxError: the execution machinery failed.
        StageError: a worker process died.
    """
    if len({job.path for job in jobs}) < len(jobs):
        raise DataError("two evaluation jobs share a samples file")
    total = sum(job.n * len(_problems(job)) for job in jobs)

    def report() -> None:
        if sampled is not None:
            sampled(min(total, sum(max(map(_count, (job.path, _replies(job)))) for job in jobs)), total)

    run_side_by_side(sample, jobs, [job.name for job in jobs], workers, report)
    report()
    with Sandbox(workers) as sandbox:
        grade_all(jobs, sandbox, graded)
    return [Path(job.path) for job in jobs]


# --- first pass: replies ----------------------------------------------------------------------------------


def sample(job: EvalJob) -> None:
    """Draw a job's replies and append them to its replies file, unless they are there or graded already."""
    problems = _problems(job)
    check_tests(problems)  # before hours of sampling, not after
    own = _prompts(job, problems)
    header = _header(job, problems)
    if len(_kept(Path(job.path), header, [job.n] * len(problems))) == job.n * len(problems):
        return
    size = max(1, job.batch_size // job.n)
    chunks = [problems[start : start + size] for start in range(0, len(problems), size)]
    done = _open(_replies(job), header, [len(chunk) * job.n for chunk in chunks])
    sampler: Sampler | None = None
    for index, chunk in enumerate(chunks):
        if done >= (index + 1) * size * job.n or done == len(problems) * job.n:
            continue
        sampler = sampler or _sampler(job, header["model_revision"])
        seed = int(np.random.SeedSequence((job.sampling.seed, index)).generate_state(1)[0])
        prompts = [prompt for problem in chunk for prompt in own[problem.id]]
        each = job.n * len(chunk) // len(prompts)
        flat = sampler.sample(prompts, each, replace(job.sampling, seed=seed))
        replies = iter(completion for group in flat for completion in group)
        append_jsonl(
            _replies(job),
            [
                {"problem_id": problem.id, "sample": number, **asdict(completion)}
                for problem in chunk
                for number, completion in enumerate(islice(replies, job.n))
            ],
        )


def _prompts(job: EvalJob, problems: Sequence[Problem]) -> dict[str, list[Prompt]]:
    """Return the prompts of each problem: one, or one a sample, the same way for all problems.

    Raises:
        DataError: the prompts file lacks a problem, or its numbers of prompts do not fit.
    """
    if job.prompts is None:
        return {problem.id: [code_prompt(problem)] for problem in problems}
    found = {record["problem_id"]: record["prompts"] for record in read_jsonl(Path(job.prompts))}
    missing = [problem.id for problem in problems if problem.id not in found]
    if missing:
        raise DataError(f"{job.prompts} has no prompts for problem {missing[0]!r}")
    numbers = {len(found[problem.id]) for problem in problems}
    if numbers not in ({1}, {job.n}):
        raise DataError(
            f"{job.prompts} must hold 1 or {job.n} prompts for every problem, it holds {sorted(numbers)}"
        )
    return {problem.id: found[problem.id] for problem in problems}


def _sampler(job: EvalJob, revision: str) -> Sampler:
    from tipprobe.models.transformers_sampler import TransformersSampler  # imports torch

    network, tokenizer = load_model(job.model, job.device)
    return TransformersSampler(network, tokenizer, revision=revision, batch_size=job.batch_size)


def _problems(job: EvalJob) -> list[Problem]:
    return [Problem.from_json(record) for record in read_jsonl(Path(job.problems))]


def _header(job: EvalJob, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return all that a job's result depends on, as it will be read back from the file."""
    probes = None if job.probes is None else read_probe_sets(Path(job.probes))
    if probes is not None:
        check_probe_sets(problems, probes, job.probes)
    header = {
        **job.meta,
        "model_revision": model_revision(job.model),
        "prompts": _digest(_prompts(job, problems)),
        "n": job.n,
        "sampling": asdict(job.sampling),
        "batch_size": job.batch_size,
        "limits": {"time_limit_s": job.time_limit_s, "memory_mb": job.memory_mb},
        "problems": _digest([problem.to_json() for problem in problems]),
        "probes": probes and _digest([probes[problem.id].inputs for problem in problems]),
    }
    return json.loads(json.dumps(header))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


# --- second pass: verdicts and consensus ------------------------------------------------------------------


def grade_all(jobs: Sequence[EvalJob], sandbox: Executor, progress: Progress | None = None) -> None:
    """Grade the replies of jobs and write their samples files; equal programs of a problem run once.

    Args:
        jobs: after `sample`.
        sandbox: runs the programs.
        progress: called with the samples graded and their total over all jobs.

    Raises:
        DataError: a problem has no tests.
        SandboxError: the execution machinery failed.
    """
    open_jobs: dict[tuple[str, str | None, int, float, int], list[_Open]] = {}
    total = done = 0
    for job in jobs:
        problems = _problems(job)
        header = _header(job, problems)
        kept = _open(Path(job.path), header, _chunk_sizes(len(problems), job.n))
        total, done = total + job.n * len(problems), done + kept
        if kept < job.n * len(problems):
            replies = read_samples(_replies(job))[1]
            key = (job.problems, job.probes, job.n, job.time_limit_s, job.memory_mb)
            open_jobs.setdefault(key, []).append(_Open(job, problems, kept // job.n, replies))
    if progress is not None:
        progress(done, total)
    for (_, probes_path, _, time_limit_s, memory_mb), group in open_jobs.items():
        probes = None if probes_path is None else read_probe_sets(Path(probes_path))
        for start in range(0, len(group[0].problems), GRADED_TOGETHER):
            concerned = [entry for entry in group if entry.graded <= start]
            if not concerned:
                continue
            chunk = group[0].problems[start : start + GRADED_TOGETHER]
            samples = [entry.completions(chunk) for entry in concerned]
            graded = _score(chunk, samples, probes, sandbox, time_limit_s, memory_mb)
            for entry, records in zip(concerned, graded, strict=True):
                append_jsonl(Path(entry.job.path), records)
                done += len(records)
            if progress is not None:
                progress(done, total)
    for job in jobs:
        _replies(job).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Open:
    """A job whose samples file is not complete: `graded` problems are."""

    job: EvalJob
    problems: list[Problem]
    graded: int
    replies: list[Record]

    def completions(self, chunk: Sequence[Problem]) -> list[list[Completion]]:
        wanted = {problem.id for problem in chunk}
        rows = groupby((r for r in self.replies if r["problem_id"] in wanted), lambda r: r["problem_id"])
        return [[Completion(r["text"], r["n_tokens"], r["finish_reason"]) for r in row] for _, row in rows]


def _score(
    problems: Sequence[Problem],
    samples: Sequence[Sequence[Sequence[Completion]]],
    probes: Mapping[str, ProbeSet] | None,
    sandbox: Executor,
    time_limit_s: float,
    memory_mb: int,
) -> list[list[Record]]:
    """Return the records of each job for `problems`; `samples` is jobs x problems x samples, not ragged."""
    rows = [
        (problem, number, completion, program_of(completion))
        for groups in samples
        for problem, group in zip(problems, groups, strict=True)
        for number, completion in enumerate(group)
    ]
    programs = [(problem, extraction.code) for problem, _, _, extraction in rows]
    verdicts = grade(programs, sandbox, time_limit_s=time_limit_s, memory_mb=memory_mb)
    records = [
        {
            "problem_id": problem.id,
            "sample": number,
            "completion": completion.text,
            "finish_reason": completion.finish_reason,
            "n_tokens": completion.n_tokens,
            "program": extraction.code,
            "extraction": extraction.reason,
            "passed": verdict.passed,
            "reason": "truncated" if extraction.reason == "truncated" else verdict.reason,
        }
        for (problem, number, completion, extraction), verdict in zip(rows, verdicts, strict=True)
    ]
    if probes is not None:
        scored = score_groups(
            [problem for _ in samples for problem in problems],
            [probes[problem.id] for _ in samples for problem in problems],
            [group for groups in samples for group in groups],
            sandbox,
            reward="pcr",
            limits=Limits(cpu_s=time_limit_s, memory_mb=memory_mb),
            seed=0,
            step=0,
        )
        place = iter(records)
        for group in scored:
            consensus = group.consensus
            for i, hits in enumerate(consensus.hits.tolist()):
                next(place).update(
                    probes=[[o.status, short_hash(o.key)] for o in group.candidates[i].outcomes],
                    hits=hits,
                    n_probes=consensus.n_probes,
                    n_voted=consensus.n_voted,
                    pcr=float(consensus.pcr[i]),
                    pcr_voted=float(consensus.pcr_voted[i]) if consensus.n_voted else None,
                )
    per_job = len(records) // len(samples)
    return [records[start : start + per_job] for start in range(0, len(records), per_job)]


# --- files ------------------------------------------------------------------------------------------------


def read_samples(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """Return the header and the records of a samples file.

    A record holds ``problem_id``, ``sample``, ``completion``, ``finish_reason``, ``n_tokens``, ``program``
    (None if there is none or the reply was cut off), ``extraction``, ``passed``, ``reason`` (``truncated`` or
    as in `tipprobe.evaluation.grade.Verdict`) and, if there were probes, ``probes``
    (status and a hash of the vote on each, as in rollouts), ``hits``, ``n_probes``, ``n_voted``, ``pcr`` and
    ``pcr_voted`` (None where nobody voted).

    Raises:
        DataError: the file is missing, or not a samples file.
    """
    records = read_jsonl(path)
    first = next(records, {})
    if "header" not in first:
        raise DataError(f"{path} is not a samples file: its first line has no header")
    return first["header"], list(records)


def _replies(job: EvalJob) -> Path:
    return Path(f"{job.path}.replies")


def _chunk_sizes(problems: int, n: int) -> list[int]:
    return [min(GRADED_TOGETHER, problems - start) * n for start in range(0, problems, GRADED_TOGETHER)]


def _kept(path: Path, header: dict[str, Any], sizes: Sequence[int]) -> list[Record]:
    """Return the records of complete chunks in a file with this header; a torn last line does not count."""
    records = complete_records(path)
    if not records or records[0] != {"header": header}:
        return []
    complete = 0
    for size in sizes:
        if complete + size >= len(records):  # the header is one of them
            break
        complete += size
    return records[1 : complete + 1]


def _open(path: Path, header: dict[str, Any], sizes: Sequence[int]) -> int:
    """Leave exactly the header and the complete chunks in a file; return the number of records."""
    kept = _kept(path, header, sizes)
    write_jsonl(path, [{"header": header}, *kept])
    return len(kept)


def _count(path: str | Path) -> int:
    """Return the complete lines of a samples file, the header not counted."""
    path = Path(path)
    return max(0, path.read_bytes().count(b"\n") - 1) if path.is_file() else 0
