import json

import pytest

from tipprobe import paths
from tipprobe.errors import StageError
from tipprobe.series import keys, notebooks
from tipprobe.series.stages import STAGES, StageSpec, get_stage


def test_imports_are_found_wherever_and_however_they_are_written():
    source = """
    %matplotlib inline
import os, tipprobe.paths
from tipprobe.problems import schema
def later():
    from tipprobe.models.types import Sampler
command = ["-m", "tipprobe.sandbox.types"]
"""
    found = keys.imported_modules(source.replace("    %", "%"))
    assert {"tipprobe.paths", "tipprobe.problems.schema", "tipprobe.models.types"} <= found
    assert "tipprobe.sandbox.types" in found
    assert not any(name.startswith("os") for name in found)


def test_relative_imports_and_neighbouring_files_are_resolved():
    found = keys.imported_modules(
        "from .types import Job\nrun('types.py')", "tipprobe.sandbox", is_package=True
    )
    assert found == {"tipprobe.sandbox.types"}
    assert keys.imported_modules("from . import schema", "tipprobe.problems.x") >= {
        "tipprobe.problems.schema"
    }


def test_a_name_that_a_package_offers_is_followed_to_where_it_is_defined():
    found = keys.imported_modules("from tipprobe.sandbox import Limits, Sandbox")
    assert found == {"tipprobe.sandbox.types", "tipprobe.sandbox.pool"}
    modules = keys.module_closure(["from tipprobe.sandbox import Limits"])
    assert set(modules) == {"tipprobe", "tipprobe.sandbox", "tipprobe.sandbox.types"}


def test_the_program_of_the_sandboxes_workers_counts():
    assert "tipprobe.sandbox.worker.main" in keys.module_closure(["from tipprobe.sandbox import Sandbox"])


def test_the_closure_follows_imports_and_leaves_the_machinery_out():
    modules = keys.module_closure(
        ["from tipprobe.prompts import code_prompt\nfrom tipprobe.series import Stage"]
    )
    assert {"tipprobe.prompts", "tipprobe.problems.schema", "tipprobe.errors"} <= set(modules)
    assert not any(name.startswith("tipprobe.series") for name in modules)


def test_modules_that_only_draw_can_be_left_out():
    sources = ["from tipprobe.probes.show import probe_summary"]
    assert "tipprobe.probes.show" in keys.module_closure(sources)
    assert "tipprobe.probes.show" not in keys.module_closure(sources, presentation=False)


def test_data_files_of_a_package_count():
    hashes = keys.library_hashes(keys.module_closure(["import tipprobe.prompts"]))
    assert "prompts/code_stdin.txt" in hashes
    assert "prompts/__init__.py" in hashes


def _project(tmp_path, monkeypatch, body="x = 1"):
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path)
    cells = [
        {"cell_type": "code", "source": "steps = 3", "metadata": {"tags": ["parameters"]}},
        {"cell_type": "code", "source": body, "metadata": {}},
    ]
    (tmp_path / "98_test.ipynb").write_text(json.dumps({"cells": cells}))
    return StageSpec("98_test", "a test", outputs=("a.csv",), extendable=("seeds",))


def test_what_cannot_change_a_result_stays_out_of_the_key(tmp_path, monkeypatch):
    spec = _project(tmp_path, monkeypatch)
    base = {"steps": 3, "seeds": [0], "workers": 1, "out": "a", "device": "cpu", "profile": "p"}
    other = base | {"workers": 2, "out": "b", "device": "cuda", "profile": "q"}
    assert keys.stage_key(keys.key_parts(spec, base, {})) == keys.stage_key(keys.key_parts(spec, other, {}))


def test_the_two_keys_react_to_what_they_should(tmp_path, monkeypatch):
    spec = _project(tmp_path, monkeypatch)
    upstream = {"97_before": {"key": "k", "resume_key": "r"}}
    base = {"steps": 3, "seeds": [0]}

    def both(params, up=upstream):
        parts = keys.key_parts(spec, params, up)
        return keys.stage_key(parts), keys.resume_key(spec, parts)

    full, resume = both(base)
    more_seeds = both(base | {"seeds": [0, 1]})
    assert more_seeds[0] != full and more_seeds[1] == resume
    more_steps = both(base | {"steps": 4})
    assert more_steps[0] != full and more_steps[1] != resume
    renarrated_upstream = both(base, {"97_before": {"key": "other", "resume_key": "r"}})
    assert renarrated_upstream[0] != full and renarrated_upstream[1] == resume

    _project(tmp_path, monkeypatch, body="x = 2")
    edited = both(base)
    assert edited[0] != full and edited[1] == resume


def test_a_changed_file_behind_a_parameter_changes_the_key(tmp_path, monkeypatch):
    spec = _project(tmp_path, monkeypatch)
    data = tmp_path / "mine.jsonl"
    data.write_text("{}\n")
    params = {"problems": str(data)}
    before = keys.key_parts(spec, params, {})
    data.write_text("{}\n{}\n")
    after = keys.key_parts(spec, params, {})
    assert keys.stage_key(before) != keys.stage_key(after)
    assert keys.explain(before, after) == "the file given as problems changed"


def test_the_explanation_names_what_changed(tmp_path, monkeypatch):
    spec = _project(tmp_path, monkeypatch)
    before = keys.key_parts(spec, {"steps": 3}, {})
    after = keys.key_parts(spec, {"steps": 4}, {}) | {"library": {"probes/consensus.py": "changed"}}
    text = keys.explain(before, after)
    assert text == "parameter steps: 3 -> 4, library file probes/consensus.py changed"
    assert keys.explain(before, before) == ""


def test_parameters_are_read_as_literals_only(tmp_path):
    path = tmp_path / "n.ipynb"

    def write(*sources):
        cells = [
            {"cell_type": "code", "source": source, "metadata": {"tags": ["parameters"]}}
            for source in sources
        ]
        path.write_text(json.dumps({"cells": cells}))

    write("a = 1  # unit\nb: float = -2.0\nc = ['x', 1]\n")
    assert notebooks.parameters(path) == {"a": 1, "b": -2.0, "c": ["x", 1]}
    write("a = 1 + int('2')")
    with pytest.raises(StageError, match="only lines"):
        notebooks.parameters(path)
    write("a = 1", "b = 2")
    with pytest.raises(StageError, match="found 2"):
        notebooks.parameters(path)


def test_stages_are_found_by_name_or_number():
    assert get_stage("6").name == get_stage("06").name == "06_erpo_adaptation"
    with pytest.raises(StageError, match="did you mean 07_evaluation"):
        get_stage("07_evaluatoin")


def test_the_registry_is_in_order_and_every_input_has_a_writer():
    numbers = [stage.number for stage in STAGES]
    assert numbers == sorted(set(numbers))
    seen = set()
    for stage in STAGES:
        assert set(stage.upstream) <= seen
        seen.add(stage.name)
