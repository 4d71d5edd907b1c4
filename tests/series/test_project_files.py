"""README, constraints, continuous integration and documents agree with each other and with the code."""

import importlib
import os
import re
import subprocess
import tomllib

import pytest
import yaml

from tipprobe import __version__, paths
from tipprobe.series import notebooks
from tipprobe.series.params import KEYS, profiles
from tipprobe.series.stages import STAGES

ROOT = paths.ROOT
README = (ROOT / "README.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e . && .venv/bin/tipprobe run"
TEST = 'python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e ".[dev]" && .venv/bin/pytest'


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_readme_gives_both_commands():
    lines = README.splitlines()
    assert lines.count(RUN) == 1
    assert lines.count(TEST) == 1


def test_continuous_integration_runs_readmes_test_command():
    pattern = re.search(r"grep -E '([^']+)' README\.md", CI).group(1)
    assert [line for line in README.splitlines() if re.search(pattern, line)] == [TEST]
    assert "install=${command% && *}" in CI and "tests=${command##* && }" in CI
    assert 'bash -ec "$install"' in CI and CI.rstrip().endswith("exec $tests")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=True)


def test_every_dependency_is_pinned_to_one_version():
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            assert re.fullmatch(r"[\w.]+", version), line
            pins[normal(name)] = version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [
        item for extra in project["optional-dependencies"].values() for item in extra
    ]
    names = {normal(re.match(r"[\w.-]+", item).group()) for item in wanted}
    assert names <= set(pins)
    assert (pins["torch"], pins["transformers"], pins["trl"]) == ("2.13.0", "5.17.0", "1.16.0")


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert str(citation["version"]) == project["version"] == __version__
    assert len(citation["references"]) == 2


def test_readme_names_every_profile_and_notebook():
    for name in profiles():
        assert f"`{name}`" in README, name
    for stage in STAGES:
        assert f"`{stage.name}`" in README, stage.name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_parameters_in_the_list_of_choices_exist():
    rows = [
        line.split("|")
        for line in (ROOT / "docs" / "choices.md").read_text().splitlines()
        if line.startswith("|")
    ]
    named = {name for row in rows if len(row) == 6 for name in re.findall(r"`(\w+)`", row[4])}
    assert len(named) > 10 and named <= set(KEYS)


def map_rows():
    lines = (ROOT / "docs" / "map.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in rows if len(row) == 4 and re.search(r"`\d\d_", row[1])]


def test_the_map_has_rows():
    assert len(map_rows()) >= 12


@pytest.mark.parametrize("row", map_rows(), ids=lambda row: row[0])
def test_the_map_leads_to_cells_functions_and_files_that_exist(row):
    _, cell, function, output = row
    for stage, cell_id in re.findall(r"`(\d\d_\w+)`, `([\w-]+)`", cell):
        ids = [c["id"] for c in notebooks.read_cells(paths.NOTEBOOKS / f"{stage}.ipynb")]
        assert cell_id in ids
    for name in re.findall(r"`([\w.]+)`", function):
        module, _, attribute = f"tipprobe.{name}".rpartition(".")
        assert attribute in vars(importlib.import_module(module)), name
    for name in re.findall(r"`([^`]+)`", output):
        assert name.split("/")[0] in {stage.name for stage in STAGES}
