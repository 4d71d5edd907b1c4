"""From a sample to the program that is graded."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from tipprobe.evaluation.samples import Sample
from tipprobe.problems.asserts import parse
from tipprobe.problems.schema import Problem
from tipprobe.sandbox import extract_code


def sample_program(sample: Sample, problem: Problem) -> str | None:
    """Return the program of a sample, None where there is none.

    A ``program`` is taken as it is.  From a ``completion`` the code is taken (`extract_code`).  Where the
    benchmark's prompt is itself source, a completion that does not define the function continues the prompt,
    and one that does is put behind it, for prompts bring imports and helpers that the function may use.
    """
    if sample.is_program:
        return sample.text if sample.text.strip() else None
    found = extract_code(sample.text)
    stub = stub_of(problem)
    if stub is None or not sample.text.strip():
        return found.code
    if found.code is not None and defines(found.code, problem.entry_point):
        if re.search(r"^from __future__ ", found.code, re.MULTILINE):  # must come first
            return found.code
        return f"{stub}\n    pass\n\n\n{found.code}\n"
    body = found.code if found.reason in ("fenced", "unclosed_fence") else sample.text
    return None if body is None else f"{stub}\n{body}"


def stub_of(problem: Problem) -> str | None:
    """Return the source that a completion continues, ends in a function's head or docstring; else None."""
    if problem.entry_point is None:
        return None
    return _stub(problem.meta.get("stub", problem.statement).rstrip(), problem.entry_point)


@lru_cache(maxsize=2_000)  # asked for each completion
def _stub(text: str, entry_point: str) -> str | None:
    try:
        parse(f"{text}\n    pass\n")
    except SyntaxError:
        return None
    return text if defines(f"{text}\n    pass\n", entry_point) else None


def defines(source: str, name: str) -> bool:
    """Return whether `source` defines the function `name`, itself or as a method of a class ``Solution``."""
    head = name.partition(".")[0]
    try:
        body = parse(source).body
    except SyntaxError:
        return (
            re.search(rf"^(?:async )?(?:def|class)\s+{re.escape(head)}\b", source, re.MULTILINE) is not None
        )
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            methods = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
            if node.name == head or (node.name == "Solution" and name in methods):
                return True
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == head for target in targets):
                return True
    return False
