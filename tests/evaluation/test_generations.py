"""Samples files good and bad, programs from completions, resumption, numbers and page."""

import ast
import gzip
import json
import platform
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tipprobe.cli import app
from tipprobe.errors import DataError, ParameterError
from tipprobe.evaluation import completions, generations, samples
from tipprobe.evaluation.completions import defines, sample_program, stub_of
from tipprobe.evaluation.generations import GradeJob, grade_generations
from tipprobe.evaluation.generations_summary import headline
from tipprobe.evaluation.grade import grade
from tipprobe.evaluation.samples import Sample, survey_samples
from tipprobe.problems.schema import Problem, Test, write_jsonl

RIGHT = "print(int(input()) + 1)"


def problem(name, **changes):
    return Problem(name, "Add one.", tests=(Test("1\n", "2\n"), Test("5\n", "6\n")), **changes)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A job on three problems, one of them flagged; its samples are to be written."""
    monkeypatch.setenv("TIPPROBE_MIN_ISOLATION", "process")
    problems = [problem("a"), problem("b"), problem("c", meta={"grading": "checker"})]
    write_jsonl(tmp_path / "problems.jsonl", [p.to_json() for p in problems])
    return GradeJob(
        problems=str(tmp_path / "problems.jsonl"),
        samples=tmp_path / "samples.jsonl",
        out=tmp_path / "out",
        memory_mb=256,
        workers=1,
    )


def write_samples(job, *rows):
    write_jsonl(job.samples, [{"task_id": task, "program": program} for task, program in rows])


def results(job):
    return [json.loads(line) for line in (job.out / "results.jsonl").read_text(encoding="utf-8").splitlines()]


SAMPLES = (
    *(("a", RIGHT), ("a", "print(0)"), ("b", "1/0"), ("b", "print(0)"), ("a", RIGHT)),
    *(("c", "print(0)"), ("c", RIGHT), ("b", " ")),
)


def test_results_summary_and_page(files):
    write_samples(files, *SAMPLES)
    notes, seen = [], []
    job = GradeJob(**{**vars_of(files), "ks": (1, 3)})
    summary = grade_generations(job, lambda done, total: seen.append((done, total)), notes.append)
    records = results(files)
    assert [(r["task_id"], r["sample"], r["verdict"]) for r in records] == [
        ("a", 0, "passed"),
        ("a", 1, "wrong_output"),
        ("b", 0, "runtime_error"),
        ("b", 1, "wrong_output"),
        ("a", 2, "passed"),
        ("c", 0, "undecided"),
        ("c", 1, "passed"),
        ("b", 2, "no_code"),
    ]
    assert records[2]["reason"] == "test 1 of 2: ZeroDivisionError: division by zero"
    assert records[5]["flag"] == "checker" and "flag" not in records[0]
    assert all(record["mode"] == "strict" for record in records)
    assert records[0]["cpu_s"] > 0 and records[7]["cpu_s"] == 0
    assert seen[-1] == (8, 8)
    assert any("repeat" in note for note in notes)
    assert summary == json.loads((files.out / "summary.json").read_text(encoding="utf-8"))
    one, three = summary["pass_at_k"]["1"], summary["pass_at_k"]["3"]
    assert one["all"]["mean"] == pytest.approx((2 / 3 + 0 + 1 / 2) / 3)
    assert one["without_flagged"]["mean"] == pytest.approx(1 / 3)
    assert one["all"]["low"] <= one["all"]["mean"] <= one["all"]["high"]
    assert three["all"]["mean"] == 0.5 and three["all"]["n_problems"] == 2
    assert three["all"]["too_few_samples"] == 1
    assert summary["verdicts"] == {"passed": 2, "wrong_output": 2, "no_code": 1, "runtime_error": 1}
    assert summary["verdicts_of_flagged"] == {"passed": 1, "undecided": 1}
    assert summary["flagged"]["checker"]["undecided"] == 1
    assert summary["isolation"]["level"]
    assert summary["provenance"]["parameters"]["mode"] == "strict"
    assert "pass@3 50.0 %" in headline(summary) and "undecided 1" in headline(summary)
    page = (files.out / "index.html").read_text(encoding="utf-8")
    assert "pass@1, without flagged (n = 2)" in page
    assert page.index("<td>b") < page.index("<td>c") < page.index("<td>a")
    assert "://" not in page and "<script" not in page and "src=" not in page


def vars_of(job):
    return {name: getattr(job, name) for name in GradeJob.__dataclass_fields__}


def test_a_grading_goes_on_after_a_kill(files, monkeypatch):
    write_samples(files, *SAMPLES)
    grade_generations(files)
    whole = [{**r, "cpu_s": 0} for r in results(files)]
    lines = (files.out / "results.jsonl").read_bytes().splitlines(keepends=True)
    graded = []
    monkeypatch.setattr(
        generations, "grade", lambda items, *a, **k: graded.extend(items) or grade(items, *a, **k)
    )
    for cut in (0, 3, 7):
        (files.out / "results.jsonl").write_bytes(b"".join(lines[:cut]) + lines[cut][:9])
        graded.clear()
        summary = grade_generations(files)
        assert [{**r, "cpu_s": 0} for r in results(files)] == whole
        assert summary["times"]["resumed_after"] == cut
        assert len(graded) < 8 or cut == 0
    graded.clear()
    grade_generations(files)
    assert graded == []


def test_results_of_another_grading_are_not_mixed(files):
    write_samples(files, *SAMPLES)
    grade_generations(files)
    other = GradeJob(**vars_of(files) | {"mode": "codecontests"})
    with pytest.raises(DataError, match=r"another grading \(different: mode\).*--force"):
        grade_generations(other)
    forced = GradeJob(**vars_of(other) | {"force": True})
    assert grade_generations(forced)["mode"] == "codecontests"
    write_samples(files, *SAMPLES, ("a", "x"))
    with pytest.raises(DataError, match="different: samples"):
        grade_generations(other)


def test_results_depend_on_every_module_that_may_change_a_verdict(files, monkeypatch):
    write_samples(files, *SAMPLES)
    seen = {}
    hashes = generations.keys.library_hashes
    monkeypatch.setattr(
        generations.keys, "library_hashes", lambda modules: seen.update(modules) or hashes(modules)
    )
    grade_generations(files)
    names = {name.removeprefix("tipprobe.") for name in seen}
    assert names >= {"evaluation.generations", "evaluation.completions", "evaluation.samples"}
    assert names >= {
        "evaluation.grade",
        "sandbox.extract",
        "sandbox.compare",
        "sandbox.modes",
        "sandbox.pool",
    }
    assert names >= {"sandbox.worker.main", "sandbox.worker.confine", "problems.load", "problems.benchmarks"}
    assert names >= {"problems.harness", "problems.inprocess"}
    header = json.loads((files.out / "grading.json").read_text(encoding="utf-8"))
    assert header["isolation"] and header["python"] == platform.python_version()
    monkeypatch.setattr(platform, "python_version", lambda: "3.10.0")
    with pytest.raises(DataError, match="different: python"):
        grade_generations(files)


def test_results_are_cut_after_the_last_whole_line(tmp_path):
    path = tmp_path / "results.jsonl"
    assert generations.keep_whole_lines(path) == 0
    for content, kept in (
        (b'{"a": 1}\n{"a": 2}\n', b'{"a": 1}\n{"a": 2}\n'),
        (b'{"a": 1}\n{"a": 2}', b'{"a": 1}\n'),
        (b'{"a": 1}\n{"a"\n{"a": 3}\n', b'{"a": 1}\n'),
        (b'{"a": 1}\n\xff\n', b'{"a": 1}\n'),
        (b"", b""),
    ):
        path.write_bytes(content)
        assert generations.keep_whole_lines(path) == kept.count(b"\n")
        assert path.read_bytes() == kept


def test_tests_in_the_program_s_process_have_a_mode_of_their_own(files):
    asserts = Problem("u", "", kind="unittest", entry_point="f", test_code="assert f(1) == 2\n")
    write_jsonl(files.samples.parent / "problems.jsonl", [problem("a").to_json(), asserts.to_json()])
    write_samples(files, ("a", RIGHT), ("u", "def f(n): return n + 1"))
    summary = grade_generations(GradeJob(**vars_of(files) | {"mode": "livecodebench"}))
    assert [record["mode"] for record in results(files)] == ["livecodebench", "in_process"]
    assert summary["passed"] == 2 and summary["mode"] == "livecodebench"


def test_compressed_files_and_limits(files):
    write_samples(files, *SAMPLES)
    files.samples.write_bytes(gzip.compress(b"\xef\xbb\xbf\n" + files.samples.read_bytes()))
    summary = grade_generations(GradeJob(**vars_of(files) | {"limit": 2}))
    assert {record["task_id"] for record in results(files)} == {"a", "b"}
    assert summary["left_out"] == {"beyond the first 2 problems": 2}
    assert results(files)[0]["line"] == 2  # the byte order mark's line is blank


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ('{"task_id": "a"', r"1 of 1 lines.*\n  line 1: not JSON"),
        ("[1]", "line 1: a JSON list, not an object"),
        ('{"id": "a", "completion": ""}', "line 1: no task_id among the fields id, completion"),
        ('{"task_id": "a"}', "neither completion nor program among the fields task_id"),
        ('{"task_id": "a", "solution": "x"}', "call it 'program'"),
        ('{"task_id": "a", "completion": "x", "program": "x"}', "both a completion and a program"),
        ('{"task_id": "a", "program": null}', "program is null, not text"),
        ('{"task_id": null, "program": ""}', "task_id is null, not text"),
        ('{"task_id": "aa", "program": ""}', "unknown task id 'aa', the nearest is 'a'"),
        ('{"task_id": "zzz", "program": ""}', "unknown task id 'zzz', the set has 'a'"),
        ('{"task_id": "a", "program": "", "sample": "0"}', 'sample is "0", not a whole number'),
        ('{"task_id": "a", "program": "", "sample": 0}\n' * 2, "line 2: sample 0 of 'a' is there already"),
        ("\n{}\n" * 9, r"9 of 9 lines cannot be used\n  line 2.*\n  and 4 more"),
    ],
)
def test_bad_samples_say_where_and_why(files, content, message):
    files.samples.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=f"(?s){message}"):
        grade_generations(files)
    assert not files.out.exists()


def test_files_that_cannot_be_read(files, monkeypatch):
    with pytest.raises(DataError, match="no samples file"):
        grade_generations(files)
    write_samples(files, *SAMPLES)
    packed = gzip.compress(files.samples.read_bytes())
    files.samples.write_bytes(packed[:-12])
    with pytest.raises(DataError, match="cannot be read"):
        grade_generations(files)
    files.samples.write_bytes(b'{"task_id": "a", "program": "\xff"}\n')
    with pytest.raises(DataError, match="line 1: not UTF-8"):
        grade_generations(files)
    monkeypatch.setattr(samples, "MAX_LINE_BYTES", 100)
    write_samples(files, ("a", "x" * 200))
    with pytest.raises(DataError, match="line 1: longer than"):
        grade_generations(files)


def test_parameters_out_of_range(files):
    write_samples(files, *SAMPLES)
    for changes, message in (
        ({"ks": (0,)}, "k must be"),
        ({"limit": 0}, "limit"),
        ({"time_limit_s": 0.0}, "time limit"),
        ({"memory_mb": 1}, "memory limit"),
        ({"mode": "lcb"}, "no mode 'lcb'"),
    ):
        with pytest.raises(ParameterError, match=message):
            grade_generations(GradeJob(**vars_of(files) | changes))
    with pytest.raises(ParameterError, match="no mode 'lcb'"):  # before any file is opened
        grade_generations(GradeJob(**vars_of(files) | {"mode": "lcb", "problems": "nowhere.jsonl"}))
    with pytest.raises(DataError, match=r"pass@9 needs 9 samples.*more than 3"):
        grade_generations(GradeJob(**vars_of(files) | {"ks": (1, 9)}))


def test_samples_of_records_that_the_loader_dropped_are_counted(files):
    write_samples(files, ("a", RIGHT), ("gone", RIGHT))
    survey = survey_samples(files.samples, {"a": problem("a")}, {"gone": "no tests"})
    assert survey.counts == {"a": 1}
    assert survey.left_out == {"the problem cannot be graded: no tests": 1}


def test_samples_keep_their_own_numbers(files):
    rows = [("a", 7), ("a", None), ("b", None), ("a", 3), ("b", None), ("a", None)]
    lines = [{"task_id": task, "program": RIGHT} | ({} if n is None else {"sample": n}) for task, n in rows]
    write_jsonl(files.samples, lines)
    grade_generations(files)
    numbers = [(record["task_id"], record["sample"]) for record in results(files)]
    assert numbers == [("a", 7), ("a", 8), ("b", 0), ("a", 3), ("b", 1), ("a", 9)]


@pytest.mark.parametrize("change", ["more", "fewer", "other", "broken"])
def test_a_file_that_changes_while_it_is_graded_is_noticed(files, monkeypatch, change):
    write_samples(files, *SAMPLES)
    changes = {"more": (*SAMPLES, ("a", "x")), "fewer": SAMPLES[:-1], "other": (*SAMPLES[:-1], ("b", RIGHT))}

    def changing(*arguments):
        survey = survey_samples(*arguments)
        if change == "broken":
            files.samples.write_text("{", encoding="utf-8")
        else:
            write_samples(files, *changes[change])
        return survey

    monkeypatch.setattr(generations, "CHUNK", 2)
    monkeypatch.setattr(generations, "survey_samples", changing)
    with pytest.raises(DataError, match="was changed while"):
        grade_generations(files)
    if change != "broken":  # chunks that had been graded were taken back
        assert (files.out / "results.jsonl").read_bytes() == b""
    monkeypatch.undo()
    monkeypatch.setenv("TIPPROBE_MIN_ISOLATION", "process")
    write_samples(files, *SAMPLES)  # put back: graded as if nothing had been
    assert grade_generations(files)["n_samples"] == 8


def test_many_unknown_ids_are_looked_up_a_few_times_only(files, monkeypatch):
    asked = []
    monkeypatch.setattr(samples.difflib, "get_close_matches", lambda task, *_: asked.append(task) or [])
    write_samples(files, *((f"unknown{n}", "x") for n in range(50)))
    with pytest.raises(DataError, match=r"50 of 50 lines(.|\n)*and 45 more$"):
        grade_generations(files)
    assert len(asked) == 5


STUB = 'from typing import List\n\n\ndef first(xs: List[int]) -> int:\n    """Return the first."""'
HUMANEVAL = Problem("h", STUB, kind="call", entry_point="first", tests=(Test("[3]", "3"),))


@pytest.mark.parametrize(
    "completion",
    [
        "    return xs[0]\n",
        "\n    return xs[0]\n\n\ndef other():\n    pass\n",
        "```python\n    return xs[0]\n```",
        "def first(xs: List[int]) -> int:\n    return xs[0]\n",
        "Here:\n```python\nfrom typing import List\ndef first(xs: List[int]):\n    return xs[0]\n```\nDone.",
        "```python\nfrom __future__ import annotations\ndef first(xs: List[int]):\n    return xs[0]\n```",
        STUB + "\n    return xs[0]\n",
        "first = lambda xs: xs[0]\n",
    ],
)
def test_completions_continue_a_prompt_or_replace_it(completion, sandbox):
    program = sample_program(Sample(1, "h", 0, completion, False), HUMANEVAL)
    assert grade([(HUMANEVAL, program)], sandbox, time_limit_s=5, memory_mb=256)[0].reason == "passed"


def test_programs_are_taken_as_they_are():
    assert sample_program(Sample(1, "h", 0, "    return 1", True), HUMANEVAL) == "    return 1"
    assert sample_program(Sample(1, "h", 0, " \n", True), HUMANEVAL) is None
    assert sample_program(Sample(1, "h", 0, "", False), HUMANEVAL) is None
    plain = problem("p")
    assert sample_program(Sample(1, "p", 0, "```python\nx = 1\n```", False), plain) == "x = 1"
    assert sample_program(Sample(1, "p", 0, "I cannot.", False), plain) is None


def test_a_prompt_is_parsed_once(monkeypatch):
    parsed = []
    monkeypatch.setattr(completions, "parse", lambda source: parsed.append(source) or ast.parse(source))
    fresh = replace(HUMANEVAL, statement=STUB.replace("first", "other"), entry_point="other")
    for body in ("    return 1\n", "    return 2\n"):
        assert sample_program(Sample(1, "h", 0, body, False), fresh).endswith(body)
    assert sum("def other" in source for source in parsed) == 2  # is it source, and of what


def test_what_a_prompt_and_a_program_define():
    assert stub_of(HUMANEVAL) == STUB
    assert stub_of(problem("p")) is None
    prose = Problem("m", "Write first.", kind="call", entry_point="first", tests=(Test("[3]", "3"),))
    assert stub_of(prose) is None
    own = Problem(
        "b", "Say it.", kind="unittest", entry_point="f", meta={"stub": "def f(x):\n"}, test_code="0"
    )
    assert stub_of(own) == "def f(x):"
    assert defines("class Solution:\n    def f(self): pass\n", "f")
    assert defines("class A:\n    def f(self): pass\n", "A.f")
    assert not defines("class A:\n    def f(self): pass\n", "f")
    assert defines("x = 1\ndef f(:\n", "f")  # broken, but it tries
    assert not defines("# def f\nx(", "f")


def test_problems_whose_libraries_are_missing_are_left_out(files):
    tests = "import no_such_library_here\nassert f(1) == 2\n"
    lacking = Problem("l", "Add.", kind="unittest", entry_point="f", test_code=tests)
    write_jsonl(files.samples.parent / "problems.jsonl", [problem("a").to_json(), lacking.to_json()])
    write_samples(files, ("a", RIGHT), ("l", "def f(n): return n + 1"), ("a", "import another_one"))
    notes = []
    summary = grade_generations(files, note=notes.append)
    assert [record["verdict"] for record in results(files)] == [
        "passed",
        "missing_library",
        "missing_library",
    ]
    assert summary["missing_libraries"] == {"another_one": 1, "no_such_library_here": 1}
    assert summary["pass_at_k"]["1"]["all"] | {"low": 0, "high": 0} == {
        "mean": 0.5,
        "low": 0,
        "high": 0,
        "n_problems": 1,
        "too_few_samples": 0,
        "bootstrap_draws": 10_000,
    }
    assert "no_such_library_here" in notes[0]


def test_the_command(files, tmp_path):
    write_samples(files, *SAMPLES)
    arguments = ["grade", files.problems, str(files.samples), "--out", str(files.out), "-k", "1", "-k", "2"]
    result = CliRunner().invoke(app, [*arguments, "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert "pass@2" in result.output and "index.html" in result.output
    result = CliRunner().invoke(app, [*arguments, "--mode", "lcb"])
    assert result.exit_code == 2 and "no mode 'lcb'" in result.output
    result = CliRunner().invoke(app, ["grade", files.problems, "nowhere", "--out", str(files.out)])
    assert result.exit_code == 1 and "no samples file" in result.output
    piped = ["grade", files.problems, "-", "--out", str(tmp_path / "piped")]
    result = CliRunner().invoke(app, piped, input=files.samples.read_bytes())
    assert result.exit_code == 0, result.output
    assert len((tmp_path / "piped" / "results.jsonl").read_text(encoding="utf-8").splitlines()) == 8


def test_samples_from_a_pipe_are_kept_and_not_replaced_by_others(files, tmp_path):
    write_samples(files, *SAMPLES)
    first = files.samples.read_bytes()
    out, kept = tmp_path / "piped", tmp_path / "piped" / "samples.jsonl"
    piped = ["grade", files.problems, "-", "--out", str(out), "--workers", "1"]
    result = CliRunner().invoke(app, [*piped, "--mode", "lcb"], input=first)
    assert result.exit_code == 2 and not out.exists()
    for _ in range(2):  # the same samples again: nothing is left to do
        result = CliRunner().invoke(app, piped, input=first)
        assert result.exit_code == 0 and f"give {kept} instead of -" in result.output
        assert kept.read_bytes() == first
    other = first.replace(b"print(0)", b"print(1)")
    result = CliRunner().invoke(app, piped, input=other)
    assert result.exit_code == 1 and "holds other samples" in result.output
    assert kept.read_bytes() == first and {p.name for p in out.iterdir()} >= {"results.jsonl"}
    assert not (out / "samples.jsonl.part").exists()
    result = CliRunner().invoke(app, [*piped, "--force"], input=other)
    assert result.exit_code == 0 and kept.read_bytes() == other
    again = ["grade", files.problems, str(kept), "--out", str(out), "--workers", "1"]
    result = CliRunner().invoke(app, again)
    assert result.exit_code == 0, result.output
