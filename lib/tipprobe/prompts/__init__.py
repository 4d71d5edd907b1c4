"""Every prompt as a text file beside this module, rendered and hashed in one place.

The requests for programs, probes and tips (``code_*``, ``tip``, ``probe_*``, ``tip_request``) are short on
purpose: the embedded coder was trained on these very files.  The others are for models that follow
instructions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tipprobe.errors import ParameterError
from tipprobe.models.types import Prompt
from tipprobe.problems.schema import Problem

FOLDER = Path(__file__).parent
NO_PREVIOUS = "(none)"
#: What the coder reads: a request for a program, with or without a tip.
CODE_PROMPTS = ("code_call", "code_stdin", "tip")
#: Wording of the request for a tip: the short one that the embedded coder knows, or one for models that
#: follow instructions.
RequestStyle = Literal["short", "mentor"]
_TIP_REQUESTS: dict[str, str] = {"short": "tip_request", "mentor": "tip_request_mentor"}


def template(name: str) -> str:
    """Return the text of prompt file `name`, without its final newline."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").removesuffix("\n")


def prompt_hashes(*names: str) -> dict[str, str]:
    """Return ``{file name: first 12 hex digits of its SHA-256}`` for provenance and cache keys.

    Args:
        names: of prompt files; all of them if none is given.
    """
    found = sorted(names) or sorted(path.stem for path in FOLDER.glob("*.txt"))
    return {name: hashlib.sha256((FOLDER / f"{name}.txt").read_bytes()).hexdigest()[:12] for name in found}


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


def tip_request_prompt(problem: Problem, style: RequestStyle = "short") -> Prompt:
    """Return the prompt that asks for a tip about a problem, before any program is written.

    Raises:
        ParameterError: there is no such style.
    """
    return user_prompt(fill(tip_request_name(style), statement=problem.statement))


def tip_request_name(style: RequestStyle) -> str:
    """Return the prompt file of a style.

    Raises:
        ParameterError: there is no such style.
    """
    if style not in _TIP_REQUESTS:
        raise ParameterError(f"no style {style!r} of asking for a tip; styles: {', '.join(_TIP_REQUESTS)}")
    return _TIP_REQUESTS[style]


def signature(problem: Problem) -> str:
    """Return the line that names the function of a ``call`` problem."""
    return problem.starter_code.strip() or f"def {problem.entry_point}(...):"
