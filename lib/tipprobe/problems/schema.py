"""One shape for every problem, whatever benchmark it came from.

Inputs and expected outputs are always *text*: for ``stdin`` problems the bytes a program reads and prints,
for ``call`` problems the Python literals of an argument list (``"[3, 1], 2"``) and of a return value
(``"[1, 3]"``).  Probes, examples and hidden tests therefore share one representation, one normaliser and one
file format.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from tipprobe.errors import DataError
from tipprobe.files import json_text

Kind = Literal["stdin", "call", "unittest"]


@dataclass(frozen=True, slots=True)
class Test:
    """One input with the output that a correct program gives on it.

    Attributes:
        input: text on stdin; for a function what stands in the parentheses of a call: ``"[3, 1], 2"``.
        expected: text on stdout; for a function the returned value as a literal.
    """

    __test__ = False  # not a pytest class

    input: str
    expected: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A programming problem.

    Attributes:
        id: the benchmark's own id, unique inside a problem set.
        statement: what a solver is shown, without example outputs unless the benchmark's text has them.
        kind: ``stdin`` (a whole program), ``call`` (a function; see `entry_point`) or ``unittest`` (graded by
            `test_code` beside the program, because the tests could not be turned into calls).
        entry_point: the function's name for ``call`` and ``unittest`` problems.
        starter_code: signature line shown to the solver, ``""`` if there is none.
        examples: public tests; their *inputs* may serve as probes, their outputs only reward ``grpo_pub``.
        tests: hidden tests, read once, after training.
        test_code: source of the in-process tests of a ``unittest`` problem.
        reference: a correct program, if the benchmark has one.
        tolerance: 0.0 for exact comparison, else the absolute and relative tolerance for numbers.
        time_limit_s: CPU seconds a program may use on one input.
        meta: anything else the source knows (JSON values only): split, difficulty, tip, operations, ...
    """

    id: str
    statement: str
    kind: Kind = "stdin"
    entry_point: str | None = None
    starter_code: str = ""
    examples: tuple[Test, ...] = ()
    tests: tuple[Test, ...] = ()
    test_code: str | None = None
    reference: str | None = None
    tolerance: float = 0.0
    time_limit_s: float = 2.0
    meta: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict; fields at their default are left out."""
        record = asdict(self)
        for f in fields(self):
            if record[f.name] == f.default or record[f.name] in ((), {}):
                del record[f.name]
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Problem:
        """Build a problem from `to_json`'s dict.

        Raises:
            DataError: a key is unknown, missing or of the wrong type, or a test is not an
                ``{input, expected}`` pair of strings.
        """
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(record) - known)
        if unknown:
            raise DataError(f"unknown problem field {unknown[0]!r}; known fields: {', '.join(sorted(known))}")
        for key in ("id", "statement"):
            if not isinstance(record.get(key), str):
                raise DataError(f"problem field {key!r} is missing or not text")
        kind = record.get("kind", "stdin")
        if kind not in ("stdin", "call", "unittest"):
            raise DataError(f"problem {record['id']!r}: kind {kind!r} is not stdin, call or unittest")
        if "kind" not in record and record.get("entry_point"):
            raise DataError(
                f'problem {record["id"]!r} has an entry_point and no kind: add "kind": "call" (or '
                '"unittest"), or drop the entry_point of a program that reads stdin'
            )
        if kind == "call" and not record.get("entry_point"):
            raise DataError(
                f"problem {record['id']!r}: a call problem needs entry_point, the function's name"
            )
        for key, (fits, wanted) in _FIELD_CHECKS.items():
            if key in record and not fits(record[key]):
                raise DataError(
                    f"problem {record['id']!r}: {key} is {record[key]!r:.40}, but must be {wanted}"
                )
        record = dict(record)
        for key in ("examples", "tests"):
            try:
                record[key] = tuple(Test(str_(t["input"]), str_(t["expected"])) for t in record.get(key, ()))
            except (TypeError, KeyError) as error:
                raise DataError(
                    f"problem {record['id']!r}: every entry of {key!r} needs text 'input' and 'expected'"
                ) from error
        return cls(**record)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


#: What the optional fields of a record may hold, and how to say so.
_FIELD_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "entry_point": (_is_text_or_none, "text"),
    "starter_code": (_is_text, "text"),
    "test_code": (_is_text_or_none, "text"),
    "reference": (_is_text_or_none, "text"),
    "tolerance": (_is_number, "a number from 0"),
    "time_limit_s": (lambda value: _is_number(value) and 0 < value <= 86_400, "a number from 0 to 86400"),
    "meta": (lambda value: isinstance(value, dict), "an object"),
}


def str_(value: object) -> str:
    """Return `value` if it is text, else raise TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def write_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line, replacing `path` only once everything is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json_text(record) + "\n")
    part.replace(path)


def read_jsonl(path: Path, *, whole: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file; lines end at ``\\n`` only (records may hold U+2028).

    Raises:
        DataError: the file is missing, or a line is not a JSON object (the message names the line).
    """
    return (record for _, record in numbered_jsonl(path, whole=whole))


def numbered_jsonl(path: Path, *, whole: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, object) of a JSONL file; see `read_jsonl`.

    Args:
        path: the file, gzipped if its name says so, with or without a byte order mark.
        whole: refuse halves of surrogate pairs, which no model can be shown.
    """
    if not path.is_file():
        raise DataError(f"no such file: {path}")
    opener = gzip.open if path.name.endswith(".gz") else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _json_object(line, f"{path}, line {number}", whole=whole)
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DataError(f"{path}, after line {number}: not readable as JSON lines ({error})") from error


def _json_object(line: str, where: str, *, whole: bool) -> dict[str, Any]:
    """Return the object that a line of JSON holds.

    Args:
        line: the text.
        where: file and line, for messages.
        whole: refuse halves of surrogate pairs.

    Raises:
        DataError: it holds none, or one that Python or UTF-8 cannot take.
    """
    try:
        record = json.loads(line)
        if whole and ("\\ud" in line or "\\uD" in line):
            json.dumps(record, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON ({error.msg})") from error
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: holds half of a surrogate pair, which is no character") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or too many brackets
        raise DataError(f"{where}: JSON that Python does not read ({error})") from error
    if not isinstance(record, dict):
        raise DataError(f"{where}: not a JSON object")
    return record
