"""Files of samples that somebody else's model wrote, one JSON object a line."""

from __future__ import annotations

import difflib
import gzip
import hashlib
import json
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem

MAX_LINE_BYTES = 32 << 20
_SHOWN_ERRORS = 5
#: Fields of a sample that may hold its text: a model's reply, or source.
_TEXT_FIELDS = ("completion", "program")


class SamplesChanged(DataError):
    """The samples file is not the one that was checked."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the samples file."""

    line: int
    task_id: str
    number: int  # the line's own ``sample``, else counted from 0, beyond the task's own numbers if it has any
    text: str
    is_program: bool


@dataclass(slots=True)
class Survey:
    """What a samples file holds, known before anything runs.

    Attributes:
        counts: samples of each problem that will be graded, in the order of the file.
        repeated: lines that repeat an earlier one word for word; each counts as a sample of its own.
        left_out: samples that are not graded, by reason.
        next_numbers: of problems some of whose lines have a ``sample`` of their own, the first number above
            those.
        sha256: of the file's content.
    """

    counts: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    next_numbers: dict[str, int] = field(default_factory=dict)
    sha256: str = ""


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
    present = [key for key in _TEXT_FIELDS if key in record]
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
    survey, seen, numbers = Survey(), set(), set()
    digest, total, bad, shown = hashlib.sha256(), 0, 0, []
    for number, line in read_lines(path):
        digest.update(line)
        total += 1
        try:
            task, _, _, own = sample_of(line)
            if task in problems:
                if own is not None and (task, own) in numbers:
                    raise ValueError(f"sample {own} of {task!r} is there already")
            elif task not in dropped:
                # Looking for the nearest name takes long in a large set.
                raise ValueError(_unknown(task, problems) if bad < _SHOWN_ERRORS else "unknown task id")
        except ValueError as error:
            bad += 1
            if bad <= _SHOWN_ERRORS:
                shown.append(f"line {number}: {error}")
            continue
        if task not in problems:
            survey.left_out[f"the problem cannot be graded: {dropped[task]}"] += 1
            continue
        if own is not None:
            numbers.add((task, own))
            survey.next_numbers[task] = max(own + 1, survey.next_numbers.get(task, 0))
        if limit is not None and task not in survey.counts and len(survey.counts) == limit:
            survey.left_out[f"beyond the first {limit} problems"] += 1
            continue
        survey.counts[task] += 1
        fingerprint = hashlib.blake2b(line.strip(), digest_size=16).digest()
        survey.repeated += fingerprint in seen
        seen.add(fingerprint)
    if bad:
        more = f"\n  and {bad - len(shown)} more" if bad > len(shown) else ""
        listed = "\n  ".join(shown)
        raise DataError(f"{path}: {bad} of {total} lines cannot be used\n  {listed}{more}")
    if not total:
        fields = " or ".join(_TEXT_FIELDS)
        raise DataError(f"{path} is empty: it needs one JSON object a line, with task_id and {fields}")
    if not survey.counts:
        reasons = "; ".join(survey.left_out)
        raise DataError(f"{path}: none of its {total} samples is of a problem that can be graded ({reasons})")
    survey.sha256 = digest.hexdigest()
    return survey


def _unknown(task: str, problems: Mapping[str, Problem]) -> str:
    near = difflib.get_close_matches(task, problems, 1)
    hint = f"the nearest is {near[0]!r}" if near else f"the set has {next(iter(problems))!r}, ..."
    return f"unknown task id {task!r}, {hint}"


def read_samples(path: Path, chosen: Mapping[str, object], survey: Survey) -> Iterator[Sample]:
    """Yield the samples of the problems in `chosen`.

    Raises:
        SamplesChanged: the file is not, or at the end was not, the one that `survey` is of.
    """
    changed = f"{path} was changed while its samples were being graded: call again to grade what it holds now"
    numbers = Counter(survey.next_numbers)
    digest = hashlib.sha256()
    for line_number, line in read_lines(path):
        digest.update(line)
        try:
            task, text, is_program, own = sample_of(line)
        except ValueError:
            raise SamplesChanged(changed) from None
        if task in chosen:
            yield Sample(line_number, task, numbers[task] if own is None else own, text, is_program)
            numbers[task] += own is None
    if digest.hexdigest() != survey.sha256:
        raise SamplesChanged(changed)


def keep_stream(stream: IO[bytes], folder: Path, *, force: bool = False) -> Path:
    """Keep what comes through a pipe as ``samples.jsonl`` of `folder`, so that it can be read again.

    Raises:
        DataError: the folder holds other samples already, and `force` does not say to replace them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, part = folder / "samples.jsonl", folder / "samples.jsonl.part"
    try:
        with part.open("wb") as file:
            shutil.copyfileobj(stream, file)
        if path.exists() and not force and _sha256(path) != _sha256(part):
            raise DataError(
                f"{path} holds other samples than those that came through the pipe: choose another --out, "
                f"say --force to replace them, or give {path} instead of - to go on with them"
            )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
