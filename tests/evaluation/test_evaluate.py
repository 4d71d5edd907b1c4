"""Records, resuming after a kill, sharing of equal programs, and worker processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from tipprobe.errors import DataError
from tipprobe.evaluation.evaluate import (
    EvalJob,
    evaluate,
    evaluate_all,
    grade_all,
    plan_jobs,
    read_samples,
    sample,
)
from tipprobe.models.types import Sampling
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl


def job_for(problem_files, path, **changes):
    problems, probes = problem_files
    job = EvalJob(
        name="test",
        model="scripted",
        problems=problems,
        path=str(path),
        n=4,
        sampling=Sampling(seed=3),
        probes=probes,
        batch_size=12,
        meta={"method": "base", "seed": 0},
    )
    return replace(job, **changes)


def test_a_base_model_that_is_a_runs_checkpoint_has_a_samples_file_of_its_own(tmp_path):
    models = {("base", 0): "elsewhere/erpo-seed0/checkpoint", ("erpo", 0): "here/erpo-seed0/checkpoint"}
    jobs = plan_jobs(
        models, {"in_domain": "p.jsonl"}, tmp_path, label="erpo-seed0", probes={}, n=1, sampling=Sampling()
    )
    names = [Path(job.path).name for job in jobs]
    assert names == ["base-erpo-seed0--in_domain.jsonl", "erpo-seed0--in_domain.jsonl"]


@pytest.fixture
def run(sandbox):
    return lambda job, progress=None: evaluate(job, sandbox, progress)


class CountingSandbox:
    def __init__(self, sandbox):
        self.sandbox, self.sources = sandbox, []

    def run(self, jobs, **options):
        self.sources += [(job.source, job.inputs) for job in jobs]
        return self.sandbox.run(jobs, **options)


def test_one_record_a_sample(tmp_path, problem_files, scripted, run):
    seen = []
    records = run(
        job_for(problem_files, tmp_path / "s.jsonl"), lambda done, total: seen.append((done, total))
    )
    assert len(records) == 40
    assert [r["problem_id"] for r in records[::4]] == [f"p{i:02}" for i in range(10)]
    assert [r["sample"] for r in records[:4]] == [0, 1, 2, 3]
    by_reason = {r["reason"]: r for r in records}
    assert set(by_reason) == {"passed", "wrong_output", "runtime_error", "no_code"}
    assert by_reason["passed"]["passed"] and by_reason["passed"]["program"].startswith("print")
    assert by_reason["no_code"]["program"] is None
    # Each group has one right and one wrong program, and two that fail: a tie, so both are majority.
    assert by_reason["passed"]["pcr"] == by_reason["wrong_output"]["pcr"] == 1.0
    assert by_reason["no_code"]["pcr"] == 0.0
    assert by_reason["passed"]["hits"] == by_reason["passed"]["n_probes"] == 2
    assert seen[-1] == (40, 40)
    assert [size for size, _ in scripted.calls] == [3, 3, 3, 1]
    assert len({seed for _, seed in scripted.calls}) == 4
    assert not Path(f"{tmp_path}/s.jsonl.replies").exists()


def test_replies_that_were_cut_off_have_failed(tmp_path, problem_files, scripted, run, monkeypatch):
    whole = scripted.sample

    def cut(*arguments, **options):
        groups = whole(*arguments, **options)
        return [[replace(reply, finish_reason="length") for reply in group] for group in groups]

    monkeypatch.setattr(scripted, "sample", cut)
    records = run(job_for(problem_files, tmp_path / "s.jsonl"))
    assert {(r["program"], r["extraction"], r["passed"], r["reason"]) for r in records} == {
        (None, "truncated", False, "truncated")
    }
    assert {r["pcr"] for r in records} == {0.0}  # as its probes say
    assert {status for r in records for status, _ in r["probes"]} == {"truncated"}


def test_jobs_of_different_sizes_are_graded_together(tmp_path, problem_files, scripted, sandbox):
    jobs = [job_for(problem_files, tmp_path / f"{n}.jsonl", n=n) for n in (2, 3)]
    for job in jobs:
        sample(job)
    grade_all(jobs, sandbox)
    for job in jobs:
        _, records = read_samples(Path(job.path))
        expected = [(f"p{i:02}", number) for i in range(10) for number in range(job.n)]
        assert [(r["problem_id"], r["sample"]) for r in records] == expected


def test_header_says_what_the_samples_depend_on(tmp_path, problem_files, scripted, run):
    run(job_for(problem_files, tmp_path / "s.jsonl", probes=None))
    header, records = read_samples(tmp_path / "s.jsonl")
    assert header["method"] == "base"
    assert header["model_revision"] == "revision of scripted"
    assert header["sampling"]["seed"] == 3
    assert header["probes"] is None
    assert "pcr" not in records[0]
    with pytest.raises(DataError, match="header"):
        read_samples(Path(problem_files[0]))


def test_finished_evaluations_are_kept_and_changed_ones_are_not(tmp_path, problem_files, scripted, run):
    job = job_for(problem_files, tmp_path / "s.jsonl")
    first = run(job)
    before = (tmp_path / "s.jsonl").read_bytes()
    calls = len(scripted.calls)
    assert run(job) == first
    assert len(scripted.calls) == calls
    assert (tmp_path / "s.jsonl").read_bytes() == before
    run(replace(job, sampling=Sampling(seed=4)))
    assert len(scripted.calls) == 2 * calls
    assert (tmp_path / "s.jsonl").read_bytes() != before


@pytest.mark.parametrize("cut", [0, 1, 17, 39])
def test_a_kill_changes_nothing(tmp_path, problem_files, scripted, cut, run):
    whole = job_for(problem_files, tmp_path / "whole.jsonl")
    run(whole)
    expected = (tmp_path / "whole.jsonl").read_bytes()
    # Killed while grading: some records are there, the last one is torn.
    broken = job_for(problem_files, tmp_path / "broken.jsonl")
    sample(broken)
    lines = expected.split(b"\n")
    (tmp_path / "broken.jsonl").write_bytes(b"\n".join(lines[:cut]) + b"\n" + lines[cut][:20])
    run(broken)
    assert (tmp_path / "broken.jsonl").read_bytes() == expected
    # Killed while sampling.
    again = job_for(problem_files, tmp_path / "again.jsonl")
    sample(again)
    replies = tmp_path / "again.jsonl.replies"
    lines = replies.read_bytes().split(b"\n")
    replies.write_bytes(b"\n".join(lines[:cut]) + b"\n" + lines[cut][:20])
    run(again)
    assert (tmp_path / "again.jsonl").read_bytes() == expected


def test_a_program_of_several_models_runs_once(tmp_path, problem_files, scripted, sandbox):
    jobs = [job_for(problem_files, tmp_path / f"{name}.jsonl", meta={"method": name}) for name in "abc"]
    for job in jobs:
        sample(job)
    counting = CountingSandbox(sandbox)
    grade_all(jobs, counting)
    # Three programs a problem; first and second half of the tests, and the probes.
    assert len(counting.sources) <= 10 * 3 * 3
    bodies = [(tmp_path / f"{name}.jsonl").read_bytes().split(b"\n", 1)[1] for name in "abc"]
    assert bodies[0] == bodies[1] == bodies[2]


def test_problems_and_probes_must_fit(tmp_path, problem_files, scripted, run):
    problems, probes = problem_files
    records = list(read_jsonl(Path(problems)))
    write_jsonl(Path(problems), [*records, Problem("new", "Print 1.").to_json()])
    with pytest.raises(DataError, match="new"):
        run(job_for((problems, probes), tmp_path / "s.jsonl"))
    with pytest.raises(DataError, match=r"new.*no hidden tests"):
        run(job_for((problems, None), tmp_path / "s.jsonl"))
    assert not list(tmp_path.glob("s.jsonl*"))  # said before anything is sampled
    with pytest.raises(DataError, match="share"):
        evaluate_all([job_for((problems, None), "x"), job_for((problems, None), "x")])


def test_models_side_by_side_in_worker_processes(tmp_path, problem_files, tiny_model_folder, run):
    seen = {"sampled": [], "graded": []}
    jobs = [
        job_for(
            problem_files,
            tmp_path / f"{seed}.jsonl",
            model=str(tiny_model_folder),
            sampling=Sampling(max_tokens=6, seed=seed),
            batch_size=40,
        )
        for seed in (1, 2)
    ]
    calls = {key: (lambda done, total, key=key: seen[key].append((done, total))) for key in seen}
    paths = evaluate_all(jobs, workers=2, **calls)
    assert [len(read_samples(path)[1]) for path in paths] == [40, 40]
    assert seen["sampled"][-1] == seen["graded"][-1] == (80, 80)
    # The same job in this process gives the same file but for nothing.
    alone = replace(jobs[0], path=str(tmp_path / "alone.jsonl"))
    run(alone)
    assert (tmp_path / "alone.jsonl").read_bytes() == paths[0].read_bytes()


def test_errors_of_workers_name_the_job(tmp_path, problem_files):
    job = job_for(
        problem_files, tmp_path / "s.jsonl", model=str(tmp_path / "nothing"), name="erpo on transfer"
    )
    with pytest.raises(DataError, match="erpo on transfer: no model at"):
        evaluate_all([job], workers=1)
