"""The runner on a throw-away project whose notebooks take no time."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tipprobe.series.params import load_params
from tipprobe.series.runner import _library_parts, cost_lines
from tipprobe.series.stages import STAGES, get_stage

PROBES = get_stage("05")
ADAPT = get_stage("06")
#: Starts a process in a session of its own, as vLLM and other servers do, then waits if it is told to.
HANG = """
import os, subprocess, sys, time
with open(stage.dir / "partial.txt", "a") as file:
    file.write("x")
if os.environ.get("FAKE_HANG"):
    orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    (stage.out / "pids.txt").write_text(f"{os.getpid()} {orphan.pid}")
    time.sleep(600)
"""


def lines(result, word):
    return [line for line in result.stdout.splitlines() if word in line]


def test_the_whole_series_runs_and_reports(finished):
    for stage in ("00_minicode", "05_probe_generation", "06_erpo_adaptation", "07_evaluation"):
        assert finished.done(stage)["summary"] == {"answer": 42, "share": 0.5}
        assert (finished.out / stage / "provenance.json").is_file()
        assert (finished.out / "notebooks" / f"{stage}.ipynb").is_file()
        assert "Executing Cell" in (finished.out / "logs" / f"{stage}.log").read_text()
    assert (finished.out / "report" / "index.html").is_file()
    assert re.search(r"07_evaluation +ran ", finished.first_run)
    assert finished.first_run.rstrip().endswith("report/index.html")


def test_a_second_run_skips_everything(finished):
    before = finished.done("07_evaluation")
    result = finished.run("run")
    assert result.returncode == 0
    assert len(lines(result, "skipped, done and intact")) == len(STAGES)
    assert finished.done("07_evaluation") == before


def test_a_dry_run_explains_and_changes_nothing(finished):
    result = finished.run("run", "--dry-run", "-p", "steps=5")
    assert result.returncode == 0
    assert "05_probe_generation: runs again: parameter steps: 20 -> 5" in result.stdout
    assert "06_erpo_adaptation: would run after 05_probe_generation" in result.stdout
    assert finished.done("05_probe_generation")["params"]["steps"] == 20


def test_starting_needs_no_heavy_package():
    heavy = "torch", "transformers", "papermill", "nbconvert", "pandas", "matplotlib"
    check = (
        f"import sys, tipprobe.cli, tipprobe.series.runner; print([m for m in {heavy} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_only_the_changed_part_runs_again(done_project):
    project = done_project
    # An altered output: that stage runs again; the next ones were made from the same key.
    (project.out / "06_erpo_adaptation" / "training_curves.csv").write_text("a,b\n")
    result = project.run("run")
    assert lines(result, "runs again") == ["06_erpo_adaptation: runs again: training_curves.csv was altered"]
    assert len(lines(result, "skipped")) == len(STAGES) - 1
    # A missing output.
    (project.out / "07_evaluation" / "claims.json").unlink()
    result = project.run("run")
    assert lines(result, "runs again") == ["07_evaluation: runs again: claims.json is missing"]
    # A changed parameter, on a selection.
    result = project.run("run", "--only", "5", "-p", "steps=5")
    assert lines(result, "05_probe_generation: runs again: parameter steps: 20 -> 5")
    assert "set aside" in (project.out / "logs" / "05_probe_generation.log").read_text()
    # What depends on it.
    result = project.run("run", "--from", "06")
    assert lines(result, "06_erpo_adaptation: runs again: stage 05_probe_generation changed")
    assert not lines(result, "05_probe_generation: ")
    assert not lines(result, "out of date")
    # An edited notebook, and a later stage run on its old results.
    project.write(PROBES, work="edited = True")
    result = project.run("run", "--only", "06", "-p", "steps=6")
    assert lines(result, "05_probe_generation is out of date (the notebook's code changed)")
    result = project.run("run", "--only", "05", "-p", "steps=5")
    assert lines(result, "05_probe_generation: runs again: the notebook's code changed")
    # Force.
    result = project.run("run", "--only", "00", "--force")
    assert lines(result, "00_minicode: runs again from the start (--force)")
    assert result.returncode == 0


def test_a_failing_stage_is_not_done_and_says_where_to_look(done_project):
    project = done_project
    project.write(ADAPT, work='raise ValueError("no such luck")')
    result = project.run("run")
    assert result.returncode == 1
    assert "06_erpo_adaptation failed, cell 'work': ValueError: no such luck" in result.stderr
    assert "logs/06_erpo_adaptation.log" in result.stderr and "goes on from there" in result.stderr
    assert project.done("06_erpo_adaptation") is None
    assert project.done("05_probe_generation") is not None
    states = {s["name"]: s["state"] for s in json.loads((project.out / "run.json").read_text())["stages"]}
    assert states["06_erpo_adaptation"] == "failed" and states["00_minicode"] == "done"
    project.write(ADAPT)
    result = project.run("run")
    assert result.returncode == 0
    assert len(lines(result, "skipped")) == len(STAGES) - 1
    assert lines(result, "06_erpo_adaptation: was not finished, goes on where it stopped")


def test_a_notebook_that_fails_after_finishing_is_not_done(project):
    path = PROBES.notebook
    project.write(PROBES)
    path = project.root / "notebooks" / path.name
    content = json.loads(path.read_text())
    content["cells"].append({**content["cells"][-1], "id": "late", "source": "1 / 0"})
    path.write_text(json.dumps(content))
    result = project.run("run", "--only", "05")
    assert result.returncode == 1 and "ZeroDivisionError" in result.stderr
    assert project.done("05_probe_generation") is None


def test_a_notebook_that_never_finishes_its_stage_is_not_done(project):
    path = project.root / "notebooks" / PROBES.notebook.name
    content = json.loads(path.read_text())
    content["cells"].pop()
    path.write_text(json.dumps(content))
    result = project.run("run", "--only", "05")
    assert result.returncode == 1
    assert "its last cell must call stage.finish" in result.stderr


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError("waited in vain")


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def start_hanging(project):
    """Start a run that hangs in stage 06; return the runner and the pids of child, kernel and orphan."""
    project.write(ADAPT, work=HANG)
    runner = subprocess.Popen(
        [sys.executable, "-m", "tipprobe.cli", "run"],
        env=project.env(FAKE_HANG="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A job started in the background of a script ignores SIGINT, and so would everything it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    file = project.out / "pids.txt"
    kernel, orphan = map(int, wait_for(lambda: file.exists() and file.read_text().split()))
    child = next(
        p.pid for p in psutil.Process(runner.pid).children() if "tipprobe.series.execute" in p.cmdline()
    )
    return runner, child, kernel, orphan


@pytest.mark.skipif(sys.platform != "linux", reason="adopting orphans is a Linux feature")
@pytest.mark.parametrize(
    ("who", "how"),
    [
        ("child", signal.SIGKILL),
        ("kernel", signal.SIGKILL),
        ("runner", signal.SIGKILL),
        ("runner", signal.SIGTERM),
        ("runner", signal.SIGINT),
    ],
)
def test_whoever_is_killed_nothing_survives_and_the_next_run_goes_on(done_project, who, how):
    project = done_project
    shutil.rmtree(project.out / ADAPT.name)
    shutil.rmtree(project.out / "07_evaluation")
    runner, child, kernel, orphan = start_hanging(project)
    try:
        os.kill({"runner": runner.pid, "child": child, "kernel": kernel}[who], how)
        _, err = runner.communicate(timeout=60)
        wait_for(lambda: all(gone(pid) for pid in (child, kernel, orphan)))
    finally:
        for pid in (runner.pid, child, kernel, orphan):
            if not gone(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert runner.returncode == {signal.SIGTERM: 130, signal.SIGINT: 130}.get(
        how, -9 if who == "runner" else 1
    )
    if who == "child":
        assert "06_erpo_adaptation failed, cell 'work'" in err and "killed by signal 9" in err
    if who == "kernel":
        assert "the kernel died" in err and "cell 'work'" in err
    assert project.done("06_erpo_adaptation") is None

    result = project.run("run", "--only", "06")
    assert result.returncode == 0, result.stderr
    assert lines(result, "06_erpo_adaptation: was not finished, goes on where it stopped")
    assert (project.out / "06_erpo_adaptation" / "partial.txt").read_text() == "xx"


def test_two_runs_do_not_write_into_one_folder(finished):
    with (finished.out / ".lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = finished.run("run")
    assert result.returncode == 1
    assert "another run (process " in result.stderr and "--out" in result.stderr


def test_progress_lines_of_the_notebook_reach_the_terminal(project):
    work = "with stage.progress(3, 'items') as p:\n    for _ in range(3):\n        p.update()"
    project.write(PROBES, work=work)
    result = project.run("run", "--only", "05", TIPPROBE_PROGRESS_S="0")
    assert "  05 items 1/3 (33 %)" in result.stdout
    assert "  05 items 3/3 (100 %)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "-p", "stepz=3"], 2, "error: -p: unknown parameter 'stepz'; did you mean steps?"),
        (["run", "-p", "learning_rate=1e-6"], 2, "write 1.0e-6"),
        (["run", "-p", "steps"], 2, "expected key=value"),
        (["run", "minicod"], 2, "did you mean minicode?"),
        (["run", "minicode-gpu"], 2, "minicode-gpu needs a GPU"),
        (["run", "--only", "42"], 1, "no stage '42'"),
        (["run", "--only", "00", "-p", "model=a/b"], 1, "00_minicode is not part of profile"),
        (["run", "--out", "/proc/results"], 1, "cannot write into /proc/results"),
        (["run", "--only", "06"], 1, "06_erpo_adaptation needs 05_probe_generation, which is not done"),
        (["report", "nowhere"], 1, "holds no results"),
        (["data", "describe", "no/such/file.jsonl"], 1, "error: "),
    ],
)
def test_a_mistake_gets_one_clear_line(project, arguments, code, message):
    result = project.run(*arguments, CUDA_VISIBLE_DEVICES="")
    assert (result.returncode, message in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_missing_kernel_is_named(project, tmp_path):
    # An empty data folder hides installed kernels, and this stands in for an environment without ipykernel.
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(
        "from jupyter_client import kernelspec\n"
        "def refuse(self, name): raise kernelspec.NoSuchKernel(name)\n"
        "kernelspec.KernelSpecManager.get_kernel_spec = refuse\n"
    )
    result = project.run("run", "--only", "05", PYTHONPATH=str(tmp_path / "hide"))
    assert result.returncode == 1
    assert (
        "no Jupyter kernel 'python3' is installed" in result.stderr
        and "pip install ipykernel" in result.stderr
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("stepz: 3\n", "ParameterError: 05_probe_generation: unknown parameter 'stepz'; did you mean steps?"),
        ("learning_rate: 1e-6\n", 'learning_rate is the text "1e-6"'),
        ("n_probes: -1\n", "n_probes is -1, but must be at least 1"),
    ],
)
def test_plain_papermill_is_as_strict(project, tmp_path, content, message):
    params = tmp_path / "mine.yaml"
    params.write_text(content)
    notebook = project.root / "notebooks" / "05_probe_generation.ipynb"
    result = subprocess.run(
        [sys.executable, "-m", "papermill", str(notebook), str(tmp_path / "out.ipynb"), "-f", str(params)],
        cwd=tmp_path,
        env=project.env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert message in last
    # The library's own frames are of no use to somebody with a typing error.
    assert "stage.py" not in result.stderr.partition("PapermillExecutionError")[2]


@pytest.mark.parametrize("command", ["papermill", "nbconvert"])
def test_other_ways_of_running_a_notebook_work_from_anywhere(project, tmp_path, command):
    notebook = str(project.root / "notebooks" / "05_probe_generation.ipynb")
    output = str(tmp_path / "out.ipynb")
    arguments = {
        "papermill": ["papermill", notebook, output, "-f", str(project.root / "params" / "smoke.yaml")],
        "nbconvert": ["jupyter", "nbconvert", "--execute", "--to", "notebook", notebook, "--output", output],
    }[command]
    result = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=tmp_path,
        env=project.env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    out = project.root / "outputs" / ("smoke" if command == "papermill" else "minicode")
    assert (out / "05_probe_generation" / "done.json").is_file()


def test_the_estimate_counts_what_a_large_profile_asks_for():
    (line,) = cost_lines(load_params("erpo-qwen3-4b").model_dump())
    # 4 trained methods x 3 seeds x 150 steps x 16 problems x 16 programs, each on 10 probes
    assert "12 training runs" in line and "460,800 rollouts of up to 8,192 tokens" in line
    assert "4,608,000 executions" in line
    assert cost_lines(load_params("smoke").model_dump()) == []


def test_the_estimate_counts_what_the_tip_half_asks_for():
    (line,) = cost_lines(load_params("tipcoder").model_dump())
    # 69 steps x 192 problems x 8 tips; 3 repairs, 2 steps of distillation, 2 refinements
    assert "105,984 tips of up to 4,096 tokens" in line and "up to 7 teacher replies" in line
    assert "34 programs a test problem" in line  # a pool of 16, and 3 runs of 6 methods with a guided one
    params = load_params("tipcoder", {"best_of": [1], "tip_methods": ["base", "best_of_2", "opro"]})
    (line,) = cost_lines(params.model_dump())
    assert "17 programs a test problem" in line  # 2 x 3 candidates, 8 witnesses, and 3 of opro


def test_a_dry_run_names_the_parts_of_the_library():
    names = ["tipprobe", "tipprobe.errors", "tipprobe.probes", "tipprobe.probes.rng", "tipprobe.probes.types"]
    assert _library_parts(names) == ["errors", "probes"]


def test_an_empty_results_folder_is_refused(project):
    result = project.run("run", "--out", "")
    assert result.returncode == 2 and "--out is empty" in result.stderr


def test_a_done_file_of_another_shape_counts_as_not_done(done_project):
    (done_project.out / "05_probe_generation" / "done.json").write_text("{}\n")
    result = done_project.run("run", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert "05_probe_generation: was not finished" in result.stdout
