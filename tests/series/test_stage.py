import json
from typing import get_args

import pytest

from tipprobe.errors import ParameterError, StageError
from tipprobe.series import open_stage, outputs, provenance
from tipprobe.series import stage as stage_module
from tipprobe.series.params import TipMethodName
from tipprobe.series.stages import get_stage
from tipprobe.tips.trials import LEARNT


@pytest.fixture
def namespace(project, monkeypatch):
    """The globals of a notebook of the throw-away project, opened in this process."""
    monkeypatch.setattr("tipprobe.paths.NOTEBOOKS", project.root / "notebooks")
    monkeypatch.setattr("tipprobe.paths.ROOT", project.root)
    monkeypatch.setattr(provenance, "model_revisions", lambda params: {})
    return {"out": "outputs/minicode", "seed": 0, "steps": 20}


def write_outputs(stage):
    for pattern in stage.spec.outputs:
        path = stage.dir / pattern.replace("*", "x")
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {".png": "\x89PNG\r\n\x1a\n", ".csv": "a\n1\n"}.get(path.suffix, "{}\n")
        path.write_bytes(content.encode("latin-1"))


def test_a_stage_hands_out_checked_parameters_and_only_its_own(namespace, project):
    stage = open_stage("05_probe_generation", namespace | {"group_size": 4})
    assert (stage.params.steps, stage.params.seed) == (20, 0)
    assert stage.dir == project.out / "05_probe_generation" and stage.dir.is_dir()
    with pytest.raises(AttributeError, match="group_size is not in this notebook's parameters cell"):
        _ = stage.params.group_size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stepz": 3}, "unknown parameter 'stepz'; did you mean steps"),
        ({"steps": "3"}, "write 3"),
        ({"steps": -1}, "at least 1"),
        ({"steps": True}, "whole number"),
    ],
)
def test_bad_parameters_stop_the_setup_cell(namespace, change, message):
    with pytest.raises(ParameterError, match=message):
        open_stage("05_probe_generation", namespace | change)


def test_in_a_notebook_only_parameter_cells_are_checked(namespace):
    mine = {
        "counter": 3,
        "probes": [1],
        "In": ["", "steps = 20\nseed = 0\nout = 'x'", "counter = 3", "probes = [1]"],
    }
    assert open_stage("05", namespace | mine).params.steps == 20
    injected = {"stepz": 3, "In": [*mine["In"], "# Parameters\nstepz = 3\n"]}
    with pytest.raises(ParameterError, match="stepz"):
        open_stage("05", namespace | mine | injected)
    edited = {"stepz": 3, "In": ["", "steps = 20\nseed = 0\nstepz = 3\nout = 'x'"]}
    with pytest.raises(ParameterError, match="stepz"):
        open_stage("05", namespace | edited)


def test_a_missing_parameter_is_named(namespace):
    del namespace["steps"]
    with pytest.raises(ParameterError, match="steps has no value"):
        open_stage("05", namespace)


def test_a_gpu_profile_is_refused_without_a_gpu(namespace, monkeypatch):
    monkeypatch.setattr("tipprobe.series.hardware.gpus", lambda: [])
    with pytest.raises(ParameterError, match="needs a GPU"):
        open_stage("05", namespace | {"device": "cuda", "profile": "minicode-gpu"})


def test_another_environments_kernel_is_refused(namespace, monkeypatch):
    monkeypatch.setenv("TIPPROBE_PREFIX", "/somewhere/else")
    with pytest.raises(StageError, match="install ipykernel"):
        open_stage("05", namespace)


def test_a_stage_is_done_only_when_its_outputs_were_checked(namespace):
    stage = open_stage("05", namespace)
    with pytest.raises(StageError, match=r"probes\.jsonl is missing"):
        stage.finish()
    write_outputs(stage)
    (stage.dir / "probes.jsonl").write_text('{"a": 1}\n{"torn')
    with pytest.raises(StageError, match=r"probes\.jsonl cannot be read"):
        stage.finish()
    assert not (stage.dir / "done.json").exists()
    write_outputs(stage)
    stage.finish({"kept": 3})
    done = json.loads((stage.dir / "done.json").read_text())
    assert done["summary"] == {"kept": 3}
    assert set(done["outputs"]) == {"probes.jsonl", "tip_probes.jsonl", "probe_summary.csv", "figures/x.png"}


def test_a_stage_needs_no_files_of_a_half_that_is_left_out():
    evaluation = get_stage("07")
    probes_alone = evaluation.for_params({"tip_methods": [], "tip_selectors": ["pcr"]})
    assert probes_alone.upstream == ("05_probe_generation", "06_erpo_adaptation")
    assert "main_table.csv" in probes_alone.outputs and "tips_main_table.csv" not in probes_alone.outputs
    tips_alone = evaluation.for_params(
        {"methods": ["base"], "tip_methods": ["base", "tipcoder_sft"], "tip_selectors": ["random"]}
    )
    assert tips_alone.upstream == ("01_data_mining", "05_probe_generation", "03_proposer_sft")
    nothing_learnt = evaluation.for_params(
        {"methods": ["base"], "tip_methods": ["base", "self_hint"], "tip_selectors": ["random"]}
    )
    assert nothing_learnt.upstream == ("05_probe_generation",)
    assert get_stage("03").for_params({"tip_methods": ["base"]}).outputs[0].startswith("proposer/")
    assert "opro.json" not in get_stage("03").for_params({"tip_methods": ["base"]}).outputs
    assert "tips_main_table.csv" in tips_alone.outputs
    assert evaluation.for_params({}).inputs == evaluation.inputs


def test_whatever_was_learnt_is_tested_on_what_it_was_compared_with():
    compared = "01_data_mining/evaluation_sets.json"
    assert compared.partition("/")[2] in get_stage("01").outputs
    for method in get_args(TipMethodName):
        chosen = get_stage("07").for_params({"tip_methods": ["base", method]})
        assert (compared in chosen.inputs) == (method in LEARNT), method


def test_an_input_names_the_stage_to_run(namespace):
    with pytest.raises(StageError, match=r"needs 05_probe_generation.*--only 05"):
        open_stage("06", namespace)
    upstream = open_stage("05", namespace)
    write_outputs(upstream)
    upstream.finish()
    stage = open_stage("06", namespace)
    assert stage.input("05_probe_generation/probes.jsonl").is_file()
    with pytest.raises(StageError, match="not a declared input"):
        stage.input("05_probe_generation/probe_summary.csv")
    probes = upstream.dir / "probes.jsonl"
    probes.write_bytes(probes.read_bytes()[:-5])
    with pytest.raises(StageError, match=r"no longer what 05_probe_generation wrote.*--only 05"):
        stage.input("05_probe_generation/probes.jsonl")


def test_the_same_key_goes_on_and_another_starts_afresh(namespace, capsys):
    stage = open_stage("05", namespace)
    (stage.dir / "partial.txt").write_text("half")
    assert "goes on" in (open_stage("05", namespace), capsys.readouterr().out)[1]
    assert (stage.dir / "partial.txt").exists()
    open_stage("05", namespace | {"steps": 21})
    assert "set aside in retired/05_probe_generation (parameter steps: 20 -> 21)" in capsys.readouterr().out
    assert not (stage.dir / "partial.txt").exists()
    assert (stage.out / "retired" / "05_probe_generation" / "partial.txt").read_text() == "half"
    open_stage("05", namespace)
    assert "brought back from retired/" in capsys.readouterr().out
    assert (stage.dir / "partial.txt").read_text() == "half"


def test_mistaken_parameters_cost_no_finished_results(namespace):
    stage = open_stage("05", namespace)
    write_outputs(stage)
    stage.finish()
    for steps in (21, 22, 23):
        open_stage("05", namespace | {"steps": steps})  # each is left unfinished
    assert (stage.out / "retired" / "05_probe_generation" / "done.json").is_file()
    names = {path.name for path in (stage.out / "retired").iterdir()}
    assert names == {"05_probe_generation", "05_probe_generation-unfinished"}
    open_stage("05", namespace)
    assert (stage.dir / "probes.jsonl").is_file()


def test_opening_takes_the_done_mark_away(namespace):
    stage = open_stage("05", namespace)
    write_outputs(stage)
    stage.finish()
    open_stage("05", namespace)
    assert not (stage.dir / "done.json").exists()


def test_provenance_holds_what_it_promises_and_no_secret(namespace, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz")
    monkeypatch.setenv("HF_ENDPOINT", "https://user:password@example.org")
    stage = open_stage("05", namespace)
    write_outputs(stage)
    stage.finish()
    text = (stage.dir / "provenance.json").read_text()
    record = json.loads(text)
    assert {
        "params",
        "params_sha256",
        "code",
        "notebook_sha256",
        "library",
        "inputs",
        "versions",
        "machine",
    } <= set(record)
    assert record["times"]["duration_s"] >= 0
    assert record["code"]["commit"] is None and "not a git checkout" in record["code"]["note"]
    assert "abcdefghij" not in text and "password" not in text


def test_provenance_does_not_say_where_the_project_lies(monkeypatch):
    monkeypatch.setenv("TIPPROBE_ROOT", "/home/somebody/project")
    monkeypatch.setenv("TIPPROBE_PROGRESS_S", "9")
    recorded = provenance.environment()
    assert "TIPPROBE_ROOT" not in recorded and recorded["TIPPROBE_PROGRESS_S"] == "9"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "cannot be read"),
        ("a.csv", "only,a,header\n", "no row"),
        ("a.png", "not an image", "not a PNG"),
        ("a.svg", "<svg>", "cannot be read"),
        ("a.md", "", "is empty"),
    ],
)
def test_outputs_that_are_not_what_their_name_says_are_found(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    _, problems = outputs.check(tmp_path, (name,))
    assert len(problems) == 1 and message in problems[0]


def test_half_written_state_files_count_as_absent(tmp_path):
    (tmp_path / "done.json").write_text('{"key": ')
    assert stage_module.read_json(tmp_path / "done.json") is None
    assert stage_module.read_json(tmp_path / "none.json") is None
