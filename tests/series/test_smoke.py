"""The real series on the `smoke` profile: it runs, repeats itself exactly, and survives a kill."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tipprobe.series.stages import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

#: Files whose purpose is to say when, where and how fast.
ABOUT_THE_RUN = {"provenance.json", "done.json", "started.json", "timings.json", "run.json", "config.json"}
RESULTS = {".csv", ".json", ".jsonl", ".md"}


def command(out):
    return [sys.executable, "-m", "tipprobe.cli", "run", "smoke", "--out", str(out)]


def run(out):
    result = subprocess.run(command(out), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def run_and_kill_in_adaptation(out):
    """Start a run and end everything at once, as a power cut would, after the first recorded rollouts."""
    runner = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while runner.poll() is None and not list((out / "06_erpo_adaptation").glob("*/rollouts.jsonl")):
        time.sleep(0.1)
    assert runner.poll() is None, "the run ended before it could be killed"
    everybody = [psutil.Process(runner.pid), *psutil.Process(runner.pid).children(recursive=True)]
    for process in everybody:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    runner.wait()
    psutil.wait_procs(everybody, timeout=30)
    assert not (out / "06_erpo_adaptation" / "done.json").exists()


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    out = tmp_path_factory.mktemp("straight") / "out"
    run(out)
    return out


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    out = tmp_path_factory.mktemp("resumed") / "out"
    run_and_kill_in_adaptation(out)
    said = run(out)
    return out, said


def without_times(value):
    """Drop everything whose key says that it is a duration in seconds."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not k.endswith("_s") or k == "time_limit_s"}
    if isinstance(value, list):
        return [without_times(item) for item in value]
    return value


def comparable(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [without_times(json.loads(line)) for line in text.split("\n") if line]
    if path.suffix == ".json":
        return without_times(json.loads(text))
    if path.suffix == ".csv":
        return [without_times(row) for row in csv.DictReader(io.StringIO(text))]
    return text


def result_files(out):
    found = {}
    for stage in STAGES:
        for path in sorted((out / stage.name).rglob("*")):
            inside = path.relative_to(out)
            if "checkpoint" in inside.parts or path.name in ABOUT_THE_RUN or path.suffix not in RESULTS:
                continue
            found[inside.as_posix()] = path
    return found


def test_every_stage_is_done_and_the_report_is_small(straight):
    for stage in STAGES:
        assert (straight / stage.name / "done.json").is_file()
    pages = list((straight / "report").glob("*.html"))
    assert len(pages) == len(STAGES) + 1
    assert all(page.stat().st_size < 3_000_000 for page in pages)
    assert "Stand-in model" in (straight / "report" / "index.html").read_text()


def test_two_runs_agree_to_the_last_digit_even_if_one_was_killed(straight, resumed):
    out, said = resumed
    assert "06_erpo_adaptation: was not finished, goes on where it stopped" in said
    assert "05_probe_generation: skipped, done and intact" in said
    ours, theirs = result_files(straight), result_files(out)
    assert sorted(ours) == sorted(theirs)
    assert len(ours) > 10
    different = [name for name, path in ours.items() if comparable(path) != comparable(theirs[name])]
    assert different == []


def test_no_absolute_path_or_machine_name_is_in_the_results(straight):
    for name, path in result_files(straight).items():
        assert str(straight) not in path.read_text(encoding="utf-8"), name
