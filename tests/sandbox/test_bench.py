import json

from tipprobe.sandbox.bench import Bench, Speed, hundred_lines, run_bench
from tipprobe.sandbox.types import Job


def test_bench_measures_every_program(sandbox):
    told = []
    bench = run_bench(sandbox, seconds=0.01, step_programs=4, progress=told.append)
    assert [speed.program for speed in bench.speeds][:2] == ["trivial", "100 lines"]
    for speed in bench.speeds:
        assert min(speed.sandbox_per_s, speed.subprocess_per_s, speed.sandbox_cpu_ms) > 0
        assert speed.cpu_ratio == speed.subprocess_cpu_ms / speed.sandbox_cpu_ms
    assert json.loads(json.dumps(bench.to_json()))["speeds"][0]["ratio"] == bench.speeds[0].ratio
    assert len(told) == len(bench.speeds) + 1


def test_the_long_program_runs(sandbox):
    run = sandbox.run([Job(hundred_lines(), ("5",))])[0][0]
    assert run.ok and int(run.stdout) > 0
    assert hundred_lines().count("\n") > 100


def test_bench_prints_a_table():
    text = str(Bench(2, "landlock", (Speed("trivial", 600.0, 150.0, 3.0, 15.0),), 256, 7.5, (0.1, 0.2)))
    assert text.splitlines()[3].split() == ["trivial", "600", "150", "4.0", "3.0", "15.0", "5.0"]
    assert "landlock" in text and "7.5 s" in text
