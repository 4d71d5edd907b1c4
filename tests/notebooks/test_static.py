"""What can be said about the notebooks without running them."""

import ast
import re
import statistics
import subprocess
import sys

import nbformat
import pytest

from tipprobe import paths
from tipprobe.series import notebooks
from tipprobe.series.params import BASE_PROFILE, KEYS, check_values, profile_path, read_profile
from tipprobe.series.stages import STAGES

NOTEBOOKS = sorted(paths.NOTEBOOKS.glob("*.ipynb"))
MAX_LINES, MAX_MEDIAN_LINES = 40, 15
ABSOLUTE_PATH = re.compile(
    r"(?<![\w.:/<])/(home|root|work|tmp|usr|mnt|data|Users|content|workspace)/|[A-Z]:\\\\"
)
TOKEN = re.compile(r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}")
POOLS = {"multiprocessing", "concurrent", "joblib"}

per_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path, kind=None):
    return [cell for cell in notebooks.read_cells(path) if kind is None or cell["cell_type"] == kind]


def test_every_stage_has_its_notebook_and_every_notebook_its_stage():
    assert [path.stem for path in NOTEBOOKS] == [stage.name for stage in STAGES]


@per_notebook
def test_the_format_is_valid_and_the_kernel_is_anybodys(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    nbformat.validate(notebook)
    kernel = notebook.metadata.kernelspec
    assert (kernel.name, kernel.display_name) == ("python3", "Python 3 (ipykernel)")


@per_notebook
def test_cell_ids_are_unique_and_made_by_hand(path):
    ids = [cell["id"] for cell in cells_of(path)]
    assert len(ids) == len(set(ids))
    generated = [name for name in ids if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f-]{27})?|\d+", name)]
    assert not generated
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name) for name in ids)


@per_notebook
def test_no_output_is_stored(path):
    for cell in cells_of(path, "code"):
        assert not cell["outputs"] and cell["execution_count"] is None
    assert "papermill" not in nbformat.read(path, as_version=4).metadata


@per_notebook
def test_the_first_code_cell_holds_the_default_parameters(path):
    values = notebooks.parameters(path)
    assert notebooks.has_tag(cells_of(path, "code")[0], "parameters")
    assert set(values) <= set(KEYS)
    check_values(values, path.stem)
    default = read_profile(profile_path(BASE_PROFILE))
    assert values == {name: default[name] for name in values}


@per_notebook
def test_every_parameter_is_explained_and_used(path):
    source = cells_of(path, "code")[0]["source"]
    lines = source.splitlines()
    for statement in ast.parse(source).body:
        last = lines[statement.end_lineno - 1]
        assert "#" in last[statement.end_col_offset :], f"no comment: {last}"
    rest = "\n".join(notebooks.code_cells(path))
    used = set(re.findall(r"\b(?:p|params|stage\.params)\.(\w+)", rest))
    implied = {"out", "profile"}
    assert set(notebooks.parameters(path)) - used <= implied
    assert used <= set(notebooks.parameters(path))


@per_notebook
def test_the_stage_is_opened_by_its_own_name_and_finished_last(path):
    code = notebooks.code_cells(path)
    assert f'open_stage("{path.stem}", globals())' in code[0]
    assert sum("open_stage(" in cell for cell in code) == 1
    assert "stage.finish(" in code[-1]
    assert sum("stage.finish(" in cell for cell in code) == 1


@per_notebook
def test_cells_are_short_and_prose_leads(path):
    lengths = [len(cell["source"].splitlines()) for cell in cells_of(path, "code")]
    assert max(lengths) <= MAX_LINES
    assert statistics.median(lengths) <= MAX_MEDIAN_LINES
    prose, code = cells_of(path, "markdown"), cells_of(path, "code")
    program = [cell for cell in code if "parameters" not in cell["metadata"].get("tags", [])]
    words = [sum(len(cell["source"].split()) for cell in cells) for cells in (prose, program)]
    assert len(prose) > len(code) and words[0] > words[1]


@per_notebook
def test_the_code_is_plain_python(path):
    for source in notebooks.code_cells(path):
        assert not re.search(r"^\s*[!%]", source, re.MULTILINE)
        tree = ast.parse(source)
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            # Worker processes cannot be given functions that were defined in a cell.
            assert not POOLS & {name.split(".")[0] for name in names}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                # A notebook that exits looks successful to papermill.
                assert ast.unparse(node.func) != "sys.exit"


@per_notebook
def test_nothing_private_is_in_it(path):
    text = "\n".join(cell["source"] for cell in cells_of(path))
    assert not ABSOLUTE_PATH.search(text)
    assert not TOKEN.search(text)


@per_notebook
def test_headings_carry_the_number_of_the_file(path):
    first = cells_of(path)[0]
    number = path.stem[:2]
    assert first["cell_type"] == "markdown"
    assert re.match(rf"# {number}\b", first["source"])
    titles = [
        line
        for cell in cells_of(path, "markdown")
        for line in re.findall(r"^# .*", cell["source"], re.MULTILINE)
    ]
    assert len(titles) == 1
    for cell in cells_of(path, "markdown"):
        for heading in re.findall(r"^## +(\d+)[.\d]*", cell["source"], re.MULTILINE):
            assert int(heading) == int(number)


@pytest.mark.skipif(not NOTEBOOKS, reason="no notebook yet")
def test_nbstripout_agrees():
    command = [sys.executable, "-m", "nbstripout", "--verify", "--keep-id", *map(str, NOTEBOOKS)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
