"""``tipprobe sandbox check`` and ``tipprobe sandbox bench``."""

import json

import pytest
from typer.testing import CliRunner

from tipprobe.cli import app


def run(*arguments):
    return CliRunner().invoke(app, ["sandbox", *arguments])


def test_check_says_what_was_refused_and_what_is_missing():
    result = run("check", "--max", "process", "--min", "process")
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0]) == (0, "isolation level process")
    assert "  allowed  reading files outside" in lines
    assert any(line.startswith("  missing  landlock") for line in lines)
    assert "kernel is shared" in lines[-1]


def test_check_fails_below_the_level_asked_for_and_still_reports():
    result = run("check", "--max", "process", "--min", "seccomp")
    assert result.exit_code == 1
    assert result.stdout.startswith("isolation level process\n")
    assert "below the 'seccomp' asked for" in result.stderr


def test_check_fails_below_the_environments_level(monkeypatch):
    assert run("check", "--max", "process").exit_code == 1
    monkeypatch.setenv("TIPPROBE_MIN_ISOLATION", "process")
    assert run("check", "--max", "process").exit_code == 0


def test_check_prints_json(sandbox):
    found = json.loads(run("check", "--min", "process", "--json").stdout)
    assert found == sandbox.isolation.to_json()


@pytest.mark.parametrize("option", ["--min", "--max"])
def test_an_unknown_level_is_named(option):
    result = run("check", option, "docker")
    assert result.exit_code == 1 and "'docker'" in result.stderr


def test_bench_prints_a_table_and_tells_what_it_does():
    result = run("bench", "--quick", "--workers", "1", "--min", "process", "--max", "process")
    assert result.exit_code == 0, result.stderr
    assert "measuring: trivial" in result.stderr and "measuring" not in result.stdout
    lines = result.stdout.splitlines()
    assert lines[0].startswith("isolation level process, 1 workers")
    assert lines[3].split()[0] == "trivial"
    assert lines[-1].startswith("32 trivial programs x 12 inputs: ")
