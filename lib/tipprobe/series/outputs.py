"""Checking what a stage wrote: declared files exist, are not empty, and are what their name says."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tipprobe.errors import DataError
from tipprobe.problems.schema import read_jsonl
from tipprobe.series import keys


def matching(folder: Path, patterns: tuple[str, ...]) -> tuple[list[Path], list[str]]:
    """Return the files below `folder` that match, sorted, and the patterns that match none."""
    files: set[Path] = set()
    unmatched = []
    for pattern in patterns:
        found = [path for path in folder.glob(pattern) if path.is_file()]
        files.update(found)
        if not found:
            unmatched.append(pattern)
    return sorted(files), unmatched


def problem_with(path: Path) -> str | None:
    """Return what is wrong with an output file, None if it can be read as what its suffix says."""
    if path.stat().st_size == 0:
        return "is empty"
    try:
        match path.suffix:
            case ".json":
                json.loads(path.read_text(encoding="utf-8"))
            case ".jsonl":
                if not sum(1 for _ in read_jsonl(path)):
                    return "holds no record"
            case ".csv":
                with path.open(encoding="utf-8", newline="") as file:
                    if len(list(csv.reader(file))) < 2:
                        return "has no row below its header"
            case ".svg":
                ElementTree.parse(path)
            case ".png":
                with path.open("rb") as file:
                    if file.read(8) != b"\x89PNG\r\n\x1a\n":
                        return "is not a PNG image"
    except (json.JSONDecodeError, UnicodeDecodeError, DataError, csv.Error, ElementTree.ParseError) as error:
        return f"cannot be read ({str(error).splitlines()[0]})"
    return None


def check(folder: Path, patterns: tuple[str, ...]) -> tuple[list[Path], list[str]]:
    """Return the declared files that are there, and one line for each thing that is wrong."""
    files, unmatched = matching(folder, patterns)
    problems = [f"{pattern} is missing" for pattern in unmatched]
    for path in files:
        problem = problem_with(path)
        if problem:
            problems.append(f"{path.relative_to(folder)} {problem}")
    return files, problems


def fingerprints(folder: Path, files: list[Path]) -> dict[str, dict[str, Any]]:
    """Return ``{relative path: {sha256, bytes}}``."""
    return {
        path.relative_to(folder).as_posix(): {"sha256": keys.file_hash(path), "bytes": path.stat().st_size}
        for path in files
    }


def altered(folder: Path, recorded: dict[str, dict[str, Any]]) -> list[str]:
    """Return one line for each recorded file that is missing or is no longer what was recorded."""
    lines = []
    for name, facts in recorded.items():
        path = folder / name
        if not path.is_file():
            lines.append(f"{name} is missing")
        elif path.stat().st_size != facts["bytes"] or keys.file_hash(path) != facts["sha256"]:
            lines.append(f"{name} was altered")
    return lines
