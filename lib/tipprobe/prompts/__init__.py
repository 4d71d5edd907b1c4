"""Every prompt as a text file beside this module, rendered and hashed in one place.

The wording is short on purpose: the embedded coder was trained on these very files, and larger instruction
models need no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tipprobe.models.types import Prompt
from tipprobe.problems.schema import Problem

FOLDER = Path(__file__).parent
NO_PREVIOUS = "(none)"


def template(name: str) -> str:
    """Return the text of prompt file `name`, without its final newline."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").removesuffix("\n")


def prompt_hashes() -> dict[str, str]:
    """Return ``{file name: first 12 hex digits of its SHA-256}`` for provenance and cache keys."""
    return {
        path.stem: hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in sorted(FOLDER.glob("*.txt"))
    }


def user_prompt(content: str) -> Prompt:
    """Return a chat prompt of one user message."""
    return [{"role": "user", "content": content}]


def fill(name: str, **values: str) -> str:
    """Return prompt file `name` with its fields filled in."""
    # Braces in a statement are safe: str.format reads only those of the template.
    return template(name).format(**values)


def code_prompt(problem: Problem, tip: str | None = None) -> Prompt:
    """Return the prompt that asks for a program; a `tip` is prepended to the user message."""
    if problem.kind == "stdin":
        request = fill("code_stdin", statement=problem.statement)
    else:
        request = fill("code_call", statement=problem.statement, signature=signature(problem))
    return user_prompt(request if tip is None else fill("tip", tip=tip, request=request))


def probe_prompt(problem: Problem, previous: Sequence[str]) -> Prompt:
    """Return the prompt that asks for one more probe input, showing the `previous` ones, oldest first."""
    shown = "\n".join(text.rstrip("\n") for text in previous) or NO_PREVIOUS
    if problem.kind == "stdin":
        return user_prompt(fill("probe_stdin", statement=problem.statement, previous=shown))
    return user_prompt(
        fill("probe_call", statement=problem.statement, signature=signature(problem), previous=shown)
    )


def tip_request_prompt(problem: Problem, style: str = "short") -> Prompt:
    """Return the prompt that asks for a tip about a problem, before any program is written.

    `style` is ``short`` (what the embedded coder was trained on) or ``mentor`` (for instruction models).
    """
    name = {"short": "tip_request", "mentor": "tip_request_mentor"}[style]
    return user_prompt(fill(name, statement=problem.statement))


def signature(problem: Problem) -> str:
    """Return the line that names the function of a ``call`` problem."""
    return problem.starter_code.strip() or f"def {problem.entry_point}(...):"
