"""Probes: inputs without outputs, and the file in which they are frozen before training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl

Source = Literal["example", "model", "mutation"]
#: Version of the file format, in its header.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Probe:
    """One input on which candidate programs are compared.

    Attributes:
        input: stdin text, or the literals of an argument list (`tipprobe.problems.schema`).
        source: ``example`` (an input of a public example), ``model`` (written by a model from the
            statement) or ``mutation`` (an example input, changed).
    """

    input: str
    source: Source


@dataclass(frozen=True, slots=True)
class ProbeSet:
    """The probes of one problem and what became of those that were asked for.

    Attributes:
        problem_id: whose probes these are.
        probes: pairwise distinct after normalisation, examples first.
        counts: ``requested`` inputs, of which ``too_long_prompt`` could not be asked for (the prompt does not
            fit the model's context) and ``generated`` came back, of which ``malformed``, ``too_long`` and
            ``duplicate`` were dropped and ``kept`` became probes; ``examples`` is the number of example
            inputs among the probes.  ``malformed:<reason>`` splits ``malformed`` by `static_reason`.
        fingerprint: `problem_fingerprint` of the problem they were made for.
    """

    problem_id: str
    probes: tuple[Probe, ...]
    counts: dict[str, int] = field(default_factory=dict)
    fingerprint: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The probes' inputs."""
        return tuple(probe.input for probe in self.probes)


def problem_fingerprint(problem: Problem) -> str:
    """Return 12 hex digits that change with anything about a problem that its probes depend on."""
    parts = [problem.id, problem.kind, problem.statement, problem.entry_point, problem.starter_code]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def check_probe_sets(problems: Iterable[Problem], sets: dict[str, ProbeSet], source: object) -> None:
    """Make sure that every problem has probes of its own in `sets`.

    Args:
        problems: problems about to be run on probes.
        sets: probe sets by problem id.
        source: where they come from, for the message.

    Raises:
        DataError: a problem is missing, or its probes were made for another problem of the same id.
    """
    for problem in problems:
        if problem.id not in sets:
            what = f"problem {problem.id!r} is not in {source}: the probes were made for other problems"
        elif sets[problem.id].fingerprint != problem_fingerprint(problem):
            what = f"the probes of {problem.id!r} in {source} were made for another problem of that name"
        else:
            continue
        raise DataError(f"{what}; run notebook 05 again with these problems")


def write_probe_sets(path: Path, sets: Iterable[ProbeSet], header: dict[str, Any]) -> None:
    """Freeze probe sets to a JSONL file, replacing it; the first line holds `header`.

    Args:
        path: file to write.
        sets: one a problem.
        header: what identifies the probes: model revision, prompt hashes, sampling, seed.

    Raises:
        DataError: no set has a probe, so that nothing could be compared.
    """
    sets = list(sets)
    if not any(s.probes for s in sets):
        raise DataError(
            f"none of the {len(sets)} problems has a probe, so programs cannot be compared: take another "
            "probe_source, or raise n_probes or probe_max_tokens"
        )
    records: list[dict[str, Any]] = [{"format": FORMAT, "header": header}]
    records += [
        {
            "problem_id": s.problem_id,
            "fingerprint": s.fingerprint,
            "probes": [{"input": p.input, "source": p.source} for p in s.probes],
            "counts": s.counts,
        }
        for s in sets
    ]
    write_jsonl(path, records)


def read_probe_sets(path: Path) -> dict[str, ProbeSet]:
    """Return ``{problem id: probe set}`` of a frozen file.

    Raises:
        DataError: the file is missing, is not a probe file, or has a malformed or repeated record.
    """
    records = list(read_jsonl(path))
    _header(path, records)
    sets: dict[str, ProbeSet] = {}
    for number, record in enumerate(records[1:], 2):
        try:
            probes = tuple(Probe(p["input"], p["source"]) for p in record["probes"])
            probe_set = ProbeSet(record["problem_id"], probes, record["counts"], record["fingerprint"])
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}, record {number}: not a probe set ({error})") from error
        if any(p.source not in get_args(Source) for p in probes):
            raise DataError(f"{path}, record {number}: a probe's source is not one of {get_args(Source)}")
        if probe_set.problem_id in sets:
            raise DataError(f"{path}, record {number}: second probe set of problem {probe_set.problem_id!r}")
        sets[probe_set.problem_id] = probe_set
    return sets


def read_probe_header(path: Path) -> dict[str, Any]:
    """Return the header of a frozen file.

    Raises:
        DataError: the file is missing or is not a probe file.
    """
    return _header(path, list(read_jsonl(path)))


def _header(path: Path, records: list[dict[str, Any]]) -> dict[str, Any]:
    if not records or records[0].get("format") != FORMAT or "header" not in records[0]:
        raise DataError(
            f"{path} is not a probe file of format {FORMAT}: its first line must hold the header; "
            "run notebook 05 again to make it"
        )
    return records[0]["header"]
