import json

import pytest

from tipprobe.errors import SandboxError
from tipprobe.sandbox.bench import (
    Bench,
    Speed,
    _sandbox_speed,
    _subprocess_speed,
    hundred_lines,
    run_bench,
)
from tipprobe.sandbox.types import Job


def test_bench_measures_every_program(sandbox):
    told = []
    bench = run_bench(sandbox, seconds=0.01, step_programs=4, progress=told.append)
    assert [speed.program for speed in bench.speeds][:2] == ["trivial", "100 lines"]
    for speed in bench.speeds:
        assert min(speed.sandbox_per_s, speed.subprocess_per_s, speed.sandbox_cpu_ms) > 0
    assert json.loads(json.dumps(bench.to_json()))["speeds"][0]["ratio"] == bench.speeds[0].ratio
    assert len(told) == len(bench.speeds) + 1


def test_cpu_is_what_the_programs_used(sandbox):
    burn = "import time\nend = time.process_time() + 0.02\nwhile time.process_time() < end: pass\n"
    for measure in (_sandbox_speed, _subprocess_speed):
        per_s, cpu_ms = measure(sandbox, burn, 0.0)
        _, idle_ms = measure(sandbox, "pass\n", 0.0)
        assert cpu_ms > idle_ms and cpu_ms > 19, measure
        assert 0 < per_s < sandbox.workers / 0.019


def test_a_program_that_fails_is_not_measured(sandbox):
    with pytest.raises(SandboxError, match="benchmark's own program"):
        _sandbox_speed(sandbox, "1/0\n", 0.0)


def test_the_long_program_runs(sandbox):
    run = sandbox.run([Job(hundred_lines(), ("5",))])[0][0]
    assert run.ok and int(run.stdout) > 0
    assert hundred_lines().count("\n") > 100


def test_bench_prints_a_table():
    text = str(Bench(2, "landlock", (Speed("trivial", 600.0, 150.0, 3.0, 15.0),), 256, 7.5, (0.1, 0.2)))
    assert text.splitlines()[3].split() == ["trivial", "600", "150", "4.0", "3.0", "15.0", "5.0"]
    assert "landlock" in text and "7.5 s" in text
