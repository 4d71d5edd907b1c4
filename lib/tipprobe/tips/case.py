"""Trials told in full, for people."""

from __future__ import annotations

from collections.abc import Mapping

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem
from tipprobe.selection.types import Selection
from tipprobe.tips.categories import changed_by_tips
from tipprobe.tips.results import TipResults
from tipprobe.tips.trials import TITLES, Trial


def find_case(
    results: TipResults, problems: Mapping[str, Problem], method: str, selector: str
) -> tuple[Trial, Mapping[str, Selection]]:
    """Return the trial most worth telling: a selected repair, of an under-specified problem if there is one.

    Without any repair: a trial with a guided program, of an under-specified problem if there is one.
    """
    cells = [cell for row in results.cells(method) for cell in row]

    def worth(cell: tuple[Trial, Mapping[str, Selection]]) -> tuple[bool, bool, bool]:
        trial, choices = cell
        index = choices[selector].index if selector in choices else 0
        repaired = trial.branches[index].passed and not trial.branches[0].passed
        unsaid = bool(problems[trial.problem_id].meta.get("underspecified"))
        return repaired, len(trial.branches) > 1, unsaid

    return max(cells, key=worth)  # of equals the first


def case_study(results: TipResults, problems: Mapping[str, Problem], method: str, selector: str) -> str:
    """Return statement, tip, both programs, scores and verdicts of one trial as Markdown.

    Raises:
        DataError: the method was not run.
    """
    _check_method(results, method)
    trial, choices = find_case(results, problems, method, selector)
    return "\n".join(_told(trial, choices, problems[trial.problem_id])) + "\n"


def changed_cases(results: TipResults, problems: Mapping[str, Problem], method: str, selector: str) -> str:
    """Return the first trial in which a selected tip repaired and the first in which it broke, as Markdown.

    Raises:
        DataError: the method was not run.
    """
    _check_method(results, method)
    cells = results.cells(method)
    lines = []
    changed = changed_by_tips(results, [method], selector)
    for heading, records in zip(("Repaired", "Broken"), changed, strict=True):
        lines += [f"### {heading} by a selected tip", ""]
        if records:
            problem_id = str(records[0]["problem_id"])
            trial, choices = cells[int(records[0]["run"])][results.problem_ids.index(problem_id)]
            lines += [*_told(trial, choices, problems[problem_id]), ""]
        else:
            lines += [f"None: no selected tip of {TITLES[method]} did that.", ""]
    return "\n".join(lines)


def _check_method(results: TipResults, method: str) -> None:
    if method not in results.methods:
        raise DataError(f"there are no trials of the method {method!r}")


def _told(trial: Trial, choices: Mapping[str, Selection], problem: Problem) -> list[str]:
    """Return the lines of one trial."""
    lines = [
        f"**{TITLES[trial.method]}, run {trial.run}, problem {problem.id}**",
        "",
        *(f"> {line}" for line in problem.statement.splitlines()),
        "",
    ]
    if problem.meta.get("rule"):
        lines += [f"The statement does not say: *{problem.meta['rule']}*.", ""]
    for number, branch in enumerate(trial.branches):
        verdict = "passes every hidden test" if branch.passed else f"fails ({branch.reason})"
        tip = f", tip: *{branch.tip}*" if branch.tip else ""
        lines += [f"Program {number}, {branch.branch}{tip}: {verdict}", ""]
        lines += ["```python", branch.program or "# the reply held no program", "```", ""]
    for name, selection in choices.items():
        scores = ", ".join(f"{score:.3f}" for score in selection.scores)
        lines.append(f"- {name} takes program {selection.index} ({selection.reason}; scores {scores})")
    return lines
