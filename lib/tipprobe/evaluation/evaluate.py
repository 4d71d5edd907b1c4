"""Sampling a model, grading every sample by hidden tests, scoring it on probes; one record a sample.

The samples file is the result: a header line that says what it depends on, then records in the order of the
problems.  Work goes chunk by chunk, a chunk's seed depends on its number only, and its records are appended
together, so a run that was killed ends with the same file as one that was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tipprobe.errors import DataError
from tipprobe.evaluation.grade import grade
from tipprobe.models.load import load_model, model_revision
from tipprobe.models.types import Completion, Sampler, Sampling
from tipprobe.probes.types import ProbeSet, read_probe_sets
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl
from tipprobe.prompts import code_prompt, prompt_hashes
from tipprobe.sandbox import Limits, Sandbox, extract_code
from tipprobe.training.rollouts import score_groups
from tipprobe.workers import run_side_by_side

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class EvalJob:
    """One model on one problem set.  Plain values, so that it can go to another process.

    Attributes:
        name: for messages, such as ``erpo-seed0 on transfer``.
        model: what `load_model` takes.
        problems: JSONL file of the problem schema.
        path: samples file to write.
        n: samples a problem.
        sampling: how they are drawn.
        probes: frozen probe file, None to leave consensus out.
        device: ``auto``, ``cpu`` or ``cuda``.
        batch_size: samples generated together.
        time_limit_s: CPU seconds of one execution.
        memory_mb: memory of one execution.
        meta: anything to be kept in the file's header (method, seed, split).
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


def evaluate(
    model: str | Sampler,
    problems: Sequence[Problem],
    *,
    n: int,
    sampling: Sampling,
    path: Path,
    sandbox: Sandbox,
    probes: Mapping[str, ProbeSet] | None = None,
    device: str = "auto",
    batch_size: int = 256,
    time_limit_s: float = 2.0,
    memory_mb: int = 1024,
    meta: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Record]:
    """Sample `n` programs a problem, grade them, and append a record for each to `path`.

    What `path` already holds of the same evaluation is kept; a file of another one is replaced.

    Args:
        model: what `load_model` takes, or a sampler.
        problems: with hidden tests.
        n: samples a problem.
        sampling: how they are drawn; `sampling.seed` seeds all chunks.
        path: samples file.
        sandbox: runs the programs.
        probes: probe sets by problem id; with them each sample gets its consensus with the problem's others.
        device: for a model given by name.
        batch_size: samples generated together, and (divided by `n`) problems a chunk.
        time_limit_s: CPU seconds of one execution.
        memory_mb: memory of one execution.
        meta: anything to be kept in the file's header.
        progress: called with the samples done and their total.

    Returns:
        One record a sample: ``problem_id``, ``sample``, ``completion``, ``finish_reason``, ``n_tokens``,
        ``program`` (None if there is none), ``extraction``, ``passed``, ``reason`` and, with probes,
        ``hits``, ``n_probes``, ``n_voted``, ``pcr`` and ``pcr_voted`` (None where nobody voted).

    Raises:
        DataError: the model cannot be loaded, or a problem has no tests, or no probe set.
        SandboxError: the execution machinery failed.
    """
    if probes is not None and (missing := [p.id for p in problems if p.id not in probes]):
        raise DataError(f"no probe set for {len(missing)} problems, the first is {missing[0]!r}")
    revision = model_revision(model) if isinstance(model, str) else model.revision
    header = {
        **(meta or {}),
        "model_revision": revision,
        "prompts": prompt_hashes(),
        "n": n,
        "sampling": asdict(sampling),
        "batch_size": batch_size,
        "limits": {"time_limit_s": time_limit_s, "memory_mb": memory_mb},
        "problems": [p.id for p in problems],
        "probes": {p.id: len(probes[p.id].probes) for p in problems} if probes is not None else None,
    }
    header = json.loads(json.dumps(header))  # as it will be read back
    size = max(1, batch_size // n)
    chunks = [problems[start : start + size] for start in range(0, len(problems), size)]
    records = _resume(path, header, chunks, n)
    total = len(problems) * n
    if progress is not None:
        progress(len(records), total)
    if len(records) == total:
        return records
    sampler = model if not isinstance(model, str) else _sampler(model, revision, device, batch_size)
    done = len(records) // (n * size)
    for index, chunk in list(enumerate(chunks))[done:]:
        seed = int(np.random.SeedSequence((sampling.seed, index)).generate_state(1)[0])
        groups = sampler.sample([code_prompt(p) for p in chunk], n, replace(sampling, seed=seed))
        new = _score(chunk, groups, probes, sandbox, time_limit_s, memory_mb)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in new))
        records += new
        if progress is not None:
            progress(len(records), total)
    return records


def _sampler(model: str, revision: str, device: str, batch_size: int) -> Sampler:
    from tipprobe.models.transformers_sampler import TransformersSampler  # imports torch

    network, tokenizer = load_model(model, device)
    return TransformersSampler(network, tokenizer, revision=revision, batch_size=batch_size)


def _score(
    problems: Sequence[Problem],
    groups: Sequence[Sequence[Completion]],
    probes: Mapping[str, ProbeSet] | None,
    sandbox: Sandbox,
    time_limit_s: float,
    memory_mb: int,
) -> list[Record]:
    extractions = [[extract_code(completion.text) for completion in group] for group in groups]
    items = [(p, e.code) for p, row in zip(problems, extractions, strict=True) for e in row]
    verdicts = iter(grade(items, sandbox, time_limit_s=time_limit_s, memory_mb=memory_mb))
    records = [
        {
            "problem_id": problem.id,
            "sample": sample,
            "completion": completion.text,
            "finish_reason": completion.finish_reason,
            "n_tokens": completion.n_tokens,
            "program": extraction.code,
            "extraction": extraction.reason,
            **asdict(next(verdicts)),
        }
        for problem, group, row in zip(problems, groups, extractions, strict=True)
        for sample, (completion, extraction) in enumerate(zip(group, row, strict=True))
    ]
    if probes is None:
        return records
    scored = score_groups(
        problems,
        [probes[p.id] for p in problems],
        groups,
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
                hits=hits,
                n_probes=consensus.n_probes,
                n_voted=consensus.n_voted,
                pcr=float(consensus.pcr[i]),
                pcr_voted=float(consensus.pcr_voted[i]) if consensus.n_voted else None,
            )
    return records


# --- files ------------------------------------------------------------------------------------------------


def read_samples(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """Return the header and the records of a samples file.

    Raises:
        DataError: the file is missing, or not a samples file.
    """
    records = read_jsonl(path)
    first = next(records, {})
    if "header" not in first:
        raise DataError(f"{path} is not a samples file: its first line has no header")
    return first["header"], list(records)


def _resume(path: Path, header: dict[str, Any], chunks: Sequence[Sequence[Problem]], n: int) -> list[Record]:
    """Return the records of complete chunks in `path`, and leave exactly them in the file."""
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    records = []
    for line in lines[:-1]:  # what follows the last line end is nothing, or a torn line
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    if not records or records[0] != {"header": header}:
        write_jsonl(path, [{"header": header}])
        return []
    records = records[1:]
    complete = 0
    for chunk in chunks:
        if complete + len(chunk) * n > len(records):
            break
        complete += len(chunk) * n
    if complete < len(records) or lines[-1]:
        write_jsonl(path, [{"header": header}, *records[:complete]])
    return records[:complete]


# --- several evaluations side by side ---------------------------------------------------------------------


def evaluate_job(job: EvalJob) -> None:
    """Carry out one job in this process."""
    problems = [Problem.from_json(record) for record in read_jsonl(Path(job.problems))]
    probes = None if job.probes is None else read_probe_sets(Path(job.probes))
    with Sandbox(workers=1) as sandbox:
        evaluate(
            job.model,
            problems,
            n=job.n,
            sampling=job.sampling,
            path=Path(job.path),
            sandbox=sandbox,
            probes=probes,
            device=job.device,
            batch_size=job.batch_size,
            time_limit_s=job.time_limit_s,
            memory_mb=job.memory_mb,
            meta=job.meta,
        )


def evaluate_all(
    jobs: Sequence[EvalJob], workers: int = 0, progress: Callable[[int, int], None] | None = None
) -> list[Path]:
    """Carry out jobs in worker processes side by side; return the samples files in order.

    Finished jobs are recognised by their files and cost no more than reading them.

    Args:
        jobs: with pairwise different files.
        workers: processes, 0 for one a core.
        progress: called with the samples done and their total over all jobs.

    Raises:
        DataError, SandboxError: as `evaluate`; the message starts with the job's name.
        StageError: a worker process died.
    """
    paths = [Path(job.path) for job in jobs]
    if len(set(paths)) < len(paths):
        raise DataError("two evaluation jobs share a samples file")
    sizes = {job.problems: sum(1 for _ in read_jsonl(Path(job.problems))) for job in jobs}
    total = sum(sizes[job.problems] * job.n for job in jobs)

    def report() -> None:
        if progress is not None:
            progress(min(total, sum(_count_records(path) for path in paths)), total)

    run_side_by_side(evaluate_job, jobs, [job.name for job in jobs], workers, report)
    report()
    return paths


def _count_records(path: Path) -> int:
    """Return the complete lines of a samples file, the header not counted."""
    return max(0, path.read_bytes().count(b"\n") - 1) if path.is_file() else 0
