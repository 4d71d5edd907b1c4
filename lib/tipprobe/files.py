"""JSON files that survive a kill: whole ones are replaced in one move, growing ones may end torn."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if the file is missing or torn."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON so that a reader sees the old file or the new one, never half of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(json_text(value, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return `value` as JSON that can be written as UTF-8.

    Half of a surrogate pair, which a server's reply may hold, is no character and has no bytes; a value with
    one is written in ASCII throughout.  It is read back as it was.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def append_jsonl(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Append records to a JSONL file and hand them to the operating system."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json_text(record) + "\n" for record in records)


def complete_records(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a growing JSONL file up to the first torn line; [] without a file."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except (json.JSONDecodeError, UnicodeDecodeError):
            break
    return records
