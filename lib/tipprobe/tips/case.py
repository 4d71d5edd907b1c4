"""One trial told in full, for people."""

from __future__ import annotations

from collections.abc import Mapping

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem
from tipprobe.selection.types import Selection
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
    if method not in results.methods:
        raise DataError(f"there are no trials of the method {method!r}")
    trial, choices = find_case(results, problems, method, selector)
    problem = problems[trial.problem_id]
    lines = [
        f"**{TITLES[method]}, run {trial.run}, problem {problem.id}**",
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
    return "\n".join(lines) + "\n"
