"""Reading notebooks as data: their code, and the literals of their parameters cell."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from tipprobe.errors import StageError


def read_cells(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook, each with `source` as one string.

    Raises:
        StageError: the file is missing or is not a notebook.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except FileNotFoundError as error:
        raise StageError(f"no such notebook: {path}") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise StageError(f"{path} is not a notebook (not JSON with a list 'cells')") from error
    return [cell | {"source": "".join(cell["source"])} for cell in cells]


def code_cells(path: Path) -> list[str]:
    """Return the sources of the code cells but for the parameters cell, in order."""
    return [
        cell["source"]
        for cell in read_cells(path)
        if cell["cell_type"] == "code" and not has_tag(cell, "parameters")
    ]


def has_tag(cell: dict[str, Any], tag: str) -> bool:
    """Return whether `cell` carries `tag`."""
    return tag in cell.get("metadata", {}).get("tags", ())


def parameters(path: Path) -> dict[str, Any]:
    """Return names and values of the cell tagged ``parameters``.

    Raises:
        StageError: there is not exactly one such cell, or it holds more than literal assignments.
    """
    tagged = [cell["source"] for cell in read_cells(path) if has_tag(cell, "parameters")]
    if len(tagged) != 1:
        raise StageError(f"{path.name}: expected one cell tagged 'parameters', found {len(tagged)}")
    values = literal_assignments(tagged[0])
    if values is None:
        raise StageError(f"{path.name}: the parameters cell may hold only lines 'name = literal'")
    return values


def literal_assignments(source: str) -> dict[str, Any] | None:
    """Return ``{name: value}`` if `source` is nothing but ``name = literal`` lines, else None."""
    values = {}
    try:
        for statement in ast.parse(source).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values[name] = ast.literal_eval(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    values[name] = ast.literal_eval(value)
                case _:
                    return None
    except (SyntaxError, ValueError):
        return None
    return values
