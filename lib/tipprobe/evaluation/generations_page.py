"""The page of a grading: one file that needs nothing beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from tipprobe import __version__, paths
from tipprobe.evaluation.generations_summary import Record, Row, add_up

TEMPLATES = paths.PACKAGE / "series" / "templates"
_SHOWN_PROBLEMS = 1_000


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)


def write_page(path: Path, summary: Record, by_problem: Mapping[str, Row]) -> None:
    """Write a page that needs nothing beside it: headline numbers, verdicts, one row a problem."""
    templates = _templates()
    rows = _problem_rows(by_problem.values())
    total = max(1, summary["n_samples"])
    verdicts = Counter(summary["verdicts"])
    verdicts.update(summary["verdicts_of_flagged"])
    provenance = summary["provenance"]
    machine = provenance["machine"]
    body = templates.get_template("generations.html.j2").render(
        summary=summary,
        headline=[
            (f"pass@{k}", label, value)
            for k, both in summary["pass_at_k"].items()
            for label, value in (("all problems", both["all"]), ("without flagged", both["without_flagged"]))
            if value is not None and (label == "all problems" or summary["flagged"])
        ],
        verdicts=[(name, count, 100 * count / total) for name, count in verdicts.most_common()],
        rows=rows[:_SHOWN_PROBLEMS],
        more=max(0, len(rows) - _SHOWN_PROBLEMS),
        facts=[
            ("mode", f"{summary['mode']} ({summary['mirrors']})"),
            ("problems", Path(provenance["parameters"]["problems"]).name),
            ("samples", Path(provenance["parameters"]["samples"]).name),
            ("isolation", summary["isolation"]["level"]),
            ("CPU time of all programs", f"{summary['cpu_s']:.1f} s"),
            ("machine", f"{machine['cpu_cores']} cores, {machine['platform']}, Python {machine['python']}"),
            ("finished", summary["times"]["finished"]),
        ],
        parameters=json.dumps(provenance["parameters"], indent=1),
        versions="\n".join(f"{name}=={version}" for name, version in provenance["versions"].items()),
    )
    names = [Path(provenance["parameters"][key]).name for key in ("samples", "problems")]
    page = templates.get_template("page.html.j2").render(
        title=" on ".join(names),
        css=Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
        pages=[],
        here="index.html",
        notice="",
        body=Markup(body),
        footer=f"Made by tipprobe {__version__}.",
    )
    path.write_text(page, encoding="utf-8")


def _problem_rows(rows: Iterable[Row]) -> list[Record]:
    """Return what the page shows of each problem, the least solved first."""
    return [
        {
            "task_id": row.task_id,
            "n": row.n,
            "passed": row.passed,
            "flag": row.flag,
            "verdicts": add_up([row.verdicts - Counter(passed=row.passed)]),
            "first": row.first and {**row.first, "reason": row.first["reason"][:200]},
            "cpu_s": row.slowest_s,
        }
        for row in sorted(rows, key=lambda row: (row.passed / row.n, row.task_id))
    ]
