from tipprobe.sandbox.bench import Bench, Speed, hundred_lines, run_bench
from tipprobe.sandbox.types import Job


def test_bench_measures_every_program(sandbox):
    told = []
    bench = run_bench(sandbox, seconds=0.01, step_programs=4, progress=told.append)
    assert [speed.program for speed in bench.speeds][:2] == ["trivial", "100 lines"]
    assert all(speed.sandbox_per_s > 0 and speed.subprocess_per_s > 0 for speed in bench.speeds)
    assert len(told) == len(bench.speeds) + 1


def test_the_long_program_runs(sandbox):
    run = sandbox.run([Job(hundred_lines(), ("5",))])[0][0]
    assert run.ok and int(run.stdout) > 0
    assert hundred_lines().count("\n") > 100


def test_bench_prints_a_table():
    text = str(Bench(2, "landlock", (Speed("trivial", 600.0, 150.0),), 256, 5.0))
    assert "trivial" in text and "4.0" in text and "5.0 s" in text
