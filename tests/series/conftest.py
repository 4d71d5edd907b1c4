"""A throw-away project: the real stage names, with notebooks that write tiny files of the declared kinds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tipprobe import paths
from tipprobe.series.stages import STAGES, StageSpec

WRITE_OUTPUTS = """
import base64
from pathlib import Path
CONTENT = {
    ".json": '{"a": 1}', ".jsonl": '{"a": 1}\\n', ".csv": "a,b\\n1,2\\n", ".md": "| a |\\n|---|\\n| 1 |\\n",
    ".svg": '<svg xmlns="http://www.w3.org/2000/svg"/>',
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
for pattern in stage.spec.outputs:
    path = stage.dir / pattern.replace("*", "x")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        path.write_bytes(base64.b64decode(PNG))
    else:
        path.write_text(CONTENT[path.suffix])
"""
CLAIMS = """
import json
claims = [{"claim": "ERPO beats the base model", "ours": 31.5, "reported": 36.7, "verdict": "reproduced"}]
(stage.dir / "claims.json").write_text(json.dumps(claims))
"""


def notebook(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a notebook with the metadata that the project's notebooks carry."""
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def code(name: str, source: str, *tags: str) -> dict[str, Any]:
    """Return a code cell."""
    metadata = {"tags": list(tags)} if tags else {}
    return {
        "cell_type": "code",
        "id": name,
        "metadata": metadata,
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def text(name: str, source: str) -> dict[str, Any]:
    """Return a Markdown cell."""
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


class Project:
    """The throw-away project; `run` calls the command line on it in a process of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = root / "outputs" / "minicode"
        self.first_run = ""

    @classmethod
    def create(cls, root: Path) -> "Project":
        """Make a project in which nothing has run."""
        project = cls(root)
        (root / "notebooks").mkdir(parents=True)
        (root / "params").symlink_to(paths.PARAMS)
        for stage in STAGES:
            project.write(stage)
        return project

    def copy(self, root: Path) -> "Project":
        """Return a copy of the project with its results."""
        shutil.copytree(self.root, root, symlinks=True)
        return Project(root)

    def write(self, stage: StageSpec, work: str = "", setup: str = "") -> None:
        """Write the notebook of `stage`; `work` runs before its outputs are written."""
        inputs = "\n".join(f"stage.input({path!r})" for path in stage.inputs)
        claims = CLAIMS if stage.number == "07" else ""
        cells = [
            text(
                "title",
                f"# {stage.number} {stage.title}\n\nA formula: $A_i = \\frac{{s_i - \\mu}}{{\\sigma}}$.",
            ),
            code("params", 'out = "outputs/minicode"\nseed = 0  # seed\nsteps = 20', "parameters"),
            code(
                "setup",
                f"{setup}\nfrom tipprobe.series import open_stage\n"
                f"stage = open_stage({stage.name!r}, globals())\n{inputs}",
            ),
            code("work", f"# Does the work\n{work or 'pass'}\n{WRITE_OUTPUTS}{claims}"),
            code("finish", 'stage.finish({"answer": 42, "share": 0.5})'),
        ]
        path = self.root / "notebooks" / f"{stage.name}.ipynb"
        path.write_text(json.dumps(notebook(cells)), encoding="utf-8")

    def env(self, **extra: str) -> dict[str, str]:
        """Return the environment of a command on this project."""
        return os.environ | {"TIPPROBE_ROOT": str(self.root)} | extra

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run ``tipprobe ARGUMENTS`` from another folder and return what it said."""
        return subprocess.run(
            [sys.executable, "-m", "tipprobe.cli", *arguments],
            cwd=self.root.parent,
            env=self.env(**env),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def done(self, stage: str) -> dict[str, Any] | None:
        """Return a stage's ``done.json``, None if there is none."""
        path = self.out / stage / "done.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.create(tmp_path / "project")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which the whole series ran once; tests must leave it as it is."""
    project = Project.create(tmp_path_factory.mktemp("finished") / "project")
    result = project.run("run")
    assert result.returncode == 0, result.stdout + result.stderr
    project.first_run = result.stdout
    return project


@pytest.fixture
def done_project(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished project, to be changed at will."""
    return finished.copy(tmp_path / "project")
