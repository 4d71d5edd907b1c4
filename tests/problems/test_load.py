"""Every known record shape on small records of our own, odd records, and the real files where they are."""

import base64
import gzip
import json
import pickle
import zlib

import pytest

from tipprobe.errors import DataError, ParameterError
from tipprobe.evaluation.grade import grade
from tipprobe.paths import ROOT
from tipprobe.problems import load
from tipprobe.problems.benchmarks import flag_in, record_id
from tipprobe.problems.inprocess import restore_types, view_of
from tipprobe.problems.load import describe, load_problems, load_with_report
from tipprobe.problems.schema import Problem, Test, write_jsonl
from tipprobe.sandbox import Run, Sandbox, grading_flag, is_correct

BENCHMARKS = ROOT.parent / "shared" / "data"

MBPP = {
    "task_id": 7,
    "text": "Write a function that adds one.\r\nIt takes a number.",
    "code": "import math\r\ndef add_one(n):\r\n    return n + 1\r\n",
    "test_setup_code": "",
    "test_list": ["assert add_one(1) == 2", "assert add_one(-1) == 0"],
    "challenge_test_list": ["assert add_one(10) == 11"],
}
STUB = 'def add_one(n: int) -> int:\n    """Add one.\n\n    >>> add_one(1)\n    2\n    """\n'
HUMANEVAL = {
    "task_id": "HumanEval/7",
    "prompt": STUB,
    "canonical_solution": "    return n + 1\n",
    "entry_point": "add_one",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n",
}
HUMANEVALPLUS = HUMANEVAL | {"base_input": [[1]], "plus_input": [[2], [-3]], "atol": 0, "contract": ""}
MBPPPLUS = {
    "task_id": "Mbpp/7",
    "prompt": '"""\nSum the pairs.\nassert sums([(1, 2)]) == [3]\n"""\n',
    "entry_point": "sums",
    "canonical_solution": "def sums(pairs):\n    return [sum(p) for p in pairs if isinstance(p, tuple)]",
    "base_input": [[[[1, 2]]], [[[3, 4], [5, 6]]]],
    "plus_input": [[[]], [[[7, 8]]]],
    "atol": 0,
    "contract": "",
    "assertion": "assert sums([(1, 2)]) == [3]\nassert sums([(3, 4), (5, 6)]) == [7, 11]\n",
}
BIGCODEBENCH = {
    "task_id": "BigCodeBench/7",
    "complete_prompt": "",
    "instruct_prompt": "Add one. Start with:\n```\ndef task_func(n):\n```",
    "code_prompt": "def task_func(n):\n",
    "canonical_solution": "    return n + 1",
    "test": (
        "import unittest\n\nclass TestCases(unittest.TestCase):\n    def test_one(self):\n"
        "        self.assertEqual(task_func(1), 2)\n"
    ),
    "entry_point": "task_func",
    "doc_struct": "{}",
    "libs": "['math']",
}
ACECODE = {
    "id": "ace_7",
    "source": "oss",
    "question": "Write add_one.",
    "test_cases": ["assert add_one(1) == 2", "assert add_one(2) == 3"],
    "inferences": [],
    "context_messages": [],
}
CODECONTESTS = {
    "name": "7_A. Add One",
    "description": "Read n, print n + 1.",
    "public_tests": {"input": ["1\n"], "output": ["2\n"]},
    "private_tests": {"input": ["5\n"], "output": ["6\n"]},
    "generated_tests": {"input": ["-1\n"], "output": ["0\n"]},
    "solutions": {"language": [2, 3], "solution": ["int main() {}", "print(int(input()) + 1)"]},
    "time_limit": {"seconds": 3, "nanos": 500_000_000},
    "input_file": "",
    "output_file": "",
}
REDUCED = {
    "id": "7_a",
    "name": "7_A. Add One",
    "description": "Read n, print n + 1.",
    "public_tests": {"input": ["1"], "output": ["2"]},
    "hidden_tests": {"input": ["5"], "output": ["6"]},
    "solution_py": "print(int(input()) + 1)",
    "grading": "exact",
}


def packed(tests):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def livecodebench(kind="stdin", **changes):
    io = {"stdin": ("3\n", "4\n"), "functional": ('[1, true]\n"a"', "[null, 2.5]")}[kind]
    test = {"input": io[0], "output": io[1], "testtype": kind}
    record = {
        "question_title": "Add one",
        "question_content": "Add one.",
        "platform": "leetcode",
        "question_id": "add-one",
        "contest_date": "2024-01-01T00:00:00",
        "starter_code": "class Solution:\n    def addOne(self, a, b):\n        "
        if kind == "functional"
        else "",
        "difficulty": "easy",
        "public_test_cases": json.dumps([test]),
        "private_test_cases": packed([test, test]),
        "metadata": json.dumps({"func_name": "addOne"} if kind == "functional" else {}),
    }
    return record | changes


def load_one(tmp_path, *records):
    path = tmp_path / "records.jsonl"
    write_jsonl(path, records)
    problems, report = load_with_report(str(path))
    return problems[0], report


def test_mbpp_becomes_calls(tmp_path):
    problem, report = load_one(tmp_path, MBPP)
    assert report.format == "MBPP"
    assert (problem.id, problem.kind, problem.entry_point) == ("7", "call", "add_one")
    assert problem.statement == "Write a function that adds one.\nIt takes a number."
    assert problem.starter_code == "def add_one(n):"
    assert problem.examples == (Test("1", "2"),)
    assert problem.tests == (Test("1", "2"), Test("-1", "0"), Test("10", "11"))
    assert "\r" not in problem.reference


def test_mbpp_that_is_no_calls_keeps_its_asserts(tmp_path):
    asserts = ["assert set(add_one(1)) == {2}", "assert add_one(2) == 3"]
    problem, report = load_one(tmp_path, MBPP | {"test_list": asserts, "challenge_test_list": []})
    assert problem.kind == "unittest"
    assert problem.entry_point == "add_one"
    assert problem.test_code == "import math\n" + "\n".join(asserts) + "\n"
    assert problem.examples == ()
    assert report.in_process == {"the call stands inside another expression": 1}
    with_setup, _ = load_one(tmp_path, MBPP | {"test_setup_code": "limit = 3"})
    assert with_setup.test_code.startswith("import math\nlimit = 3\nassert add_one(1) == 2")
    assert with_setup.examples == (Test("1", "2"),)


def test_sanitized_mbpp_has_its_text_in_prompt(tmp_path):
    record = {key: MBPP[key] for key in ("task_id", "code", "test_list")}
    record |= {"prompt": "Add one.", "test_imports": [], "source_file": "x"}
    problem, report = load_one(tmp_path, record)
    assert report.format == "MBPP (sanitized)"
    assert problem.statement == "Add one."
    hub, report = load_one(tmp_path, record | {"test": "assert add_one(3) == 4\n"})
    assert report.format == "MBPP+ (hub)"
    assert hub.kind == "unittest"
    assert hub.examples == (Test("1", "2"),)


def test_humaneval_shapes(tmp_path):
    problem, report = load_one(tmp_path, HUMANEVAL)
    assert report.format == "HumanEval"
    assert problem.kind == "call"
    assert problem.starter_code == "def add_one(n: int) -> int:"
    assert problem.examples == (Test("1", "2"),)
    assert problem.tests == (Test("1", "2"), Test("5", "6"))
    assert problem.statement == STUB.strip()
    pack = HUMANEVAL | {"test": "def check(add_one):\n    assert add_one(1) == 2\n\ncheck(add_one)"}
    assert load_one(tmp_path, pack)[0].tests == (Test("1", "2"),)
    loop = HUMANEVAL | {
        "test": "def check(candidate):\n    for i in range(9):\n        assert candidate(i) == i + 1\n"
    }
    problem, _ = load_one(tmp_path, loop)
    assert problem.kind == "unittest"
    assert problem.test_code.rstrip().endswith("check(add_one)")


def test_livecodebench_shapes(tmp_path):
    problem, _ = load_one(tmp_path, livecodebench())
    assert (problem.id, problem.kind) == ("add-one", "stdin")
    assert problem.examples == (Test("3\n", "4\n"),)
    assert len(problem.tests) == 3
    problem, _ = load_one(tmp_path, livecodebench("functional"))
    assert (problem.kind, problem.entry_point) == ("call", "addOne")
    assert problem.tests[0] == Test("[1, True], 'a'", "[None, 2.5]")
    assert problem.meta["json_values"]
    assert problem.starter_code.startswith("class Solution")
    problem, _ = load_one(tmp_path, livecodebench(question_id="abc311_c"))
    assert problem.meta["grading"] == "multiple_answers"


class Payload:
    def __reduce__(self):
        return (open, ("/dev/null",))


def test_private_tests_cannot_run_code(tmp_path):
    evil = base64.b64encode(zlib.compress(pickle.dumps(Payload()))).decode()
    good = livecodebench()
    _, report = load_one(tmp_path, good, livecodebench(private_test_cases=evil, question_id="evil"))
    assert report.dropped == {"private tests hold more than text": 1}
    _, report = load_one(tmp_path, good, livecodebench(private_test_cases="%%%", question_id="torn"))
    assert report.dropped == {"private tests cannot be decoded": 1}
    assert report.first == {"private tests cannot be decoded": "torn"}


def test_codecontests_shapes(tmp_path):
    problem, _ = load_one(tmp_path, CODECONTESTS)
    assert problem.id == "7_A. Add One"
    assert problem.tests == (Test("1\n", "2\n"), Test("5\n", "6\n"), Test("-1\n", "0\n"))
    assert problem.reference == "print(int(input()) + 1)"
    assert problem.time_limit_s == 3.5
    problem, report = load_one(tmp_path, REDUCED, REDUCED | {"name": "x", "grading": "unheard of"})
    assert problem.tolerance == 0 and grading_flag(problem) is None
    assert report.dropped == {"cannot be graded by comparing outputs (unheard of)": 1}
    problem, _ = load_one(tmp_path, REDUCED | {"grading": "needs_checker_or_suspect"})
    assert grading_flag(problem) == "checker"
    assert load_one(tmp_path, REDUCED | {"grading": "float_1e-6"})[0].tolerance == 1e-6


CODEFORCES = {
    "id": "7/A",
    "title": "Add one",
    "description": "Read n.",
    "input_format": "One number.",
    "output_format": "Print n + 1.",
    "interaction_format": None,
    "note": None,
    "examples": [{"input": "1\n", "output": "2\n"}],
    "official_tests": [{"input": "1\n", "output": "2\n"}, {"input": "5\n", "output": "6\n"}],
    "official_tests_complete": True,
    "input_mode": "stdio",
    "generated_checker": None,
    "time_limit": 2.5,
    "rating": 800,
}


def test_codeforces_and_what_its_records_say_about_grading(tmp_path):
    problem, report = load_one(tmp_path, CODEFORCES)
    assert report.format == "Codeforces"
    assert problem.tests == (Test("1\n", "2\n"), Test("5\n", "6\n"))
    assert problem.examples == (Test("1\n", "2\n"),)
    assert problem.statement == "Read n.\n\nInput\n\nOne number.\n\nOutput\n\nPrint n + 1."
    assert problem.time_limit_s == 2.5 and grading_flag(problem) is None
    for changes, flag in (
        ({"generated_checker": "print(1)"}, "checker"),
        ({"interaction_format": "Ask."}, "interactive"),
        ({"output_format": "If there are several, print any of them."}, "multiple_answers"),
    ):
        assert grading_flag(load_one(tmp_path, CODEFORCES | changes)[0]) == flag
    _, report = load_one(tmp_path, CODEFORCES, CODEFORCES | {"id": "8/A", "input_mode": "file"})
    assert report.dropped == {"reads or writes a named file": 1}
    assert report.dropped_ids == {"8/A": "reads or writes a named file"}


@pytest.mark.parametrize(
    ("statement", "flag"),
    [
        ("Print the sum.", {}),
        ("If there are multiple answers, print any.", {"grading": "multiple_answers"}),
        ("You can output any valid colouring.", {"grading": "multiple_answers"}),
        ("You may print any one of them.", {"grading": "multiple_answers"}),
        ("You may find any one of them there.", {}),
        ("It may jump to any of them. Print how often.", {}),
        ("This is an interactive problem.", {"grading": "interactive"}),
    ],
)
def test_flags_from_a_statement_s_own_words(statement, flag):
    assert flag_in(statement) == flag


def test_taco(tmp_path):
    record = {
        "question": "Add one.",
        "solutions": json.dumps(["print(int(input()) + 1)"]),
        "starter_code": "",
        "input_output": json.dumps({"inputs": ["1\n", ["5", "6"]], "outputs": ["2\n", ["6"]]}),
        "difficulty": "EASY",
        "url": "https://example.org/a",
        "time_limit": "3.0 seconds",
    }
    problem, report = load_one(tmp_path, record)
    assert report.format == "TACO"
    assert (problem.kind, problem.time_limit_s) == ("stdin", 3.0)
    assert problem.tests == (Test("1\n", "2\n"), Test("5\n6", "6"))
    packed = {"fn_name": "f", "inputs": [[1, [2]], [3, []]], "outputs": [[4], [[5]]]}
    problem, _ = load_one(tmp_path, record | {"input_output": json.dumps(packed), "url": None})
    assert (problem.kind, problem.entry_point, len(problem.id)) == ("call", "f", 16)
    assert problem.tests == (Test("1, [2]", "4"), Test("3, []", "[5]"))
    assert problem.meta["wrapped_values"]
    verdicts = {
        (value, mode): is_correct(Run("ok", value=value), "[5]", problem, mode)
        for value in ("[5]", "5", "[[5]]")
        for mode in ("strict", "taco")
    }
    assert verdicts == {
        ("[5]", "strict"): True,
        ("5", "strict"): False,  # one item of the right value
        ("[[5]]", "strict"): False,
        ("[5]", "taco"): True,
        ("5", "taco"): False,
        ("[[5]]", "taco"): True,  # as published
    }
    bare = packed | {"outputs": [[4, 4], [5]]}
    problem, _ = load_one(tmp_path, record | {"input_output": json.dumps(bare)})
    assert problem.tests[1] == Test("3, []", "[5]") and "wrapped_values" not in problem.meta
    assert is_correct(Run("ok", value="5"), "[5]", problem, "taco")  # as upstream
    _, report = load_one(tmp_path, record, record | {"input_output": "", "url": "b"})
    assert report.dropped == {"no tests": 1}
    assert report.dropped_ids == {"b": "no tests"}
    nameless = {"input_output": "", "url": None, "question": "Add two."}
    _, report = load_one(tmp_path, record, record | nameless)
    assert report.dropped_ids == {record_id(nameless): "no tests"}


def test_suites_without_a_test_are_dropped(tmp_path):
    empty = "import unittest\n\nclass TestCases(unittest.TestCase):\n    pass\n"
    _, report = load_one(tmp_path, BIGCODEBENCH, BIGCODEBENCH | {"task_id": "x", "test": empty})
    assert report.dropped_ids == {"x": "no tests"}


def test_acecode_and_bigcodebench(tmp_path):
    problem, _ = load_one(tmp_path, ACECODE)
    assert (problem.kind, problem.entry_point, len(problem.tests)) == ("call", "add_one", 2)
    assert problem.examples == ()
    problem, _ = load_one(tmp_path, BIGCODEBENCH)
    assert (problem.kind, problem.entry_point) == ("unittest", "task_func")
    assert problem.starter_code == "def task_func(n):"


@pytest.mark.parametrize(
    "record",
    [MBPP, HUMANEVAL, HUMANEVALPLUS, MBPPPLUS, BIGCODEBENCH, CODECONTESTS, REDUCED],
    ids=["mbpp", "humaneval", "humaneval+", "mbpp+", "bigcodebench", "codecontests", "reduced"],
)
def test_references_pass_and_wrong_programs_do_not(tmp_path, record):
    problem, _ = load_one(tmp_path, record)
    name = problem.entry_point
    wrong = f"def {name}(*_):\n    return 10**9\n" if name else "print(10**9)"
    early = "import sys\nsys.exit(0)\n"
    with Sandbox(1, min_isolation="process") as sandbox:
        items = [(problem, problem.reference), (problem, wrong), (problem, early), (problem, None)]
        verdicts = grade(items, sandbox, time_limit_s=2, memory_mb=512)
    assert [verdict.passed for verdict in verdicts] == [True, False, False, False]
    assert verdicts[1].reason == "wrong_output"
    assert verdicts[3].reason == "no_code"


def test_agreement_allows_what_the_benchmark_allows(tmp_path):
    reference = "    return n / 3\n"
    record = HUMANEVALPLUS | {"canonical_solution": reference, "plus_input": [[1], [2]]}
    problem, _ = load_one(tmp_path, record)
    programs = [
        "def add_one(n):\n    return n / 3 + 1e-8\n",
        "def add_one(n):\n    return n / 3 + 1e-3\n",
        "def add_one(n):\n    return str(n / 3)\n",
        "if __name__ == '__main__':\n    input()\n\ndef add_one(n):\n    return n / 3\n",
    ]
    with Sandbox(1, min_isolation="process") as sandbox:
        verdicts = grade([(problem, p) for p in programs], sandbox, time_limit_s=2, memory_mb=512)
    assert [verdict.passed for verdict in verdicts] == [True, False, False, True]


def test_types_that_json_lost_come_back():
    asserts = "assert f((1, 2), {1: [(3,)]}, 2j) == 1\nassert f((), {}, 1j) == 1\n"
    more = [[[5], {"7": [[8, 9], []]}, "(1-2j)"]]
    assert restore_types(more, asserts, "f") == [[(5,), {7: [(8, 9), ()]}, 1 - 2j]]
    nested = restore_types([[[1, [2, [3, [4, [5]]]]]]], "assert f((1, (2, (3,)))) == 1", "f")
    assert nested == [[(1, (2, (3, (4, (5,)))))]]
    assert restore_types([[[[1], [2]]]], "assert f([{1}]) == 1", "f") == [[[{1}, {2}]]]


def test_what_of_a_result_counts():
    assert view_of("assert set(f(1)) == {1}") == "set"
    assert view_of("assert f(1) == {1}") == "value"
    assert view_of("assert f(1)\nassert not f(2)") == "truth"
    assert view_of("import math\nassert math.isclose(f(1), 2)") == "value"


def test_our_own_files_round_trip(tmp_path):
    problems = [
        Problem(f"p{i}", "Say\u2028hello", tests=(Test("", "hello\n"),), meta={"i": i}) for i in range(9)
    ]
    path = tmp_path / "ours.jsonl"
    write_jsonl(path, [problem.to_json() for problem in problems])
    assert load_problems(str(path)) == problems
    packed_path = tmp_path / "ours.jsonl.gz"
    packed_path.write_bytes(gzip.compress(path.read_bytes()))
    assert load_problems(str(packed_path)) == problems
    few = load_problems(str(path), limit=4, seed=1)
    assert few == load_problems(str(path), limit=4, seed=1)
    assert [problems.index(p) for p in few] == sorted(problems.index(p) for p in few)
    assert few != load_problems(str(path), limit=4, seed=3)
    assert load_problems(str(path), limit=99) == problems
    with pytest.raises(ParameterError, match="limit"):
        load_problems(str(path), limit=0)


def test_parquet_reads_like_json(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "records.parquet"
    pandas.DataFrame([CODECONTESTS]).to_parquet(path)
    assert load_problems(str(path)) == load_problems_of(tmp_path, CODECONTESTS)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="parquet"):
        load_problems(str(broken))


def load_problems_of(tmp_path, record):
    write_jsonl(tmp_path / "one.jsonl", [record])
    return load_problems(str(tmp_path / "one.jsonl"))


def test_odd_records_are_counted_not_fatal(tmp_path):
    odd = [
        MBPP | {"task_id": 8, "test_list": []} | {"challenge_test_list": []},
        MBPP | {"task_id": 9, "test_list": None},
        MBPP,
        {"task_id": 10},
        MBPP | {"task_id": 11, "test_list": ["assert 1 == 1"], "challenge_test_list": []},
    ]
    _, report = load_one(tmp_path, MBPP, *odd)
    assert report.records == 6
    assert report.problems == 1
    assert report.dropped["no tests"] == 1
    assert report.dropped["an id that occurred before"] == 1
    assert report.dropped["no assert calls a function of the program"] == 1
    assert sum(report.dropped.values()) == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n', "no known shape"),
        ("not json\n", "line 1: not JSON"),
        ("[1]\n", "line 1: not a JSON object"),
        ("", "no usable problem"),
        (json.dumps(MBPP | {"test_list": None}) + "\n", "no usable problem.*malformed"),
        ('{"id": "a", "statement": "\\ud800"}\n', "line 1: holds half of a surrogate pair"),
        ('{"id": "a", "statement": "", "n": ' + "9" * 5000 + "}\n", "line 1: JSON that Python does not read"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}\n", "line 1: JSON that Python does not read"),
        ('{"id": "a", "statement": ""}\n{"id": "b"}\n', "record 2: problem field 'statement'"),
        ('{"id": "a", "statement": "", "n": 1}\n', "record 1: unknown problem field 'n'"),
        (
            '{"id": "a", "statement": "", "time_limit_s": "5"}\n',
            "time_limit_s is '5', but must be a number from 0 to 86400",
        ),
        ('{"id": "a", "statement": "", "time_limit_s": NaN}\n', "time_limit_s is nan"),
        ('{"id": "a", "statement": "", "tolerance": -1}\n', "tolerance is -1"),
        ('{"id": "a", "statement": "", "starter_code": null}\n', "starter_code is None"),
        ('{"id": "a", "statement": "", "entry_point": "f"}\n', "'a' has an entry_point and no kind: add"),
        ('{"id": "a", "statement": "", "meta": [1]}\n', "meta is \\[1\\], but must be an object"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        load_problems(str(path))


def test_windows_line_ends_and_byte_order_marks(tmp_path):
    path = tmp_path / "windows.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"id": "a", "statement": "s\xc3\xa9"}\r\n\r\n{"id": "b", "statement": "t"}\r\n'
    )
    assert [problem.statement for problem in load_problems(str(path))] == ["s\u00e9", "t"]


def test_names_that_lead_nowhere(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no such file"):
        load_problems("nowhere.jsonl")
    with pytest.raises(DataError, match="no such file"):
        load_problems("one-word")
    with pytest.raises(DataError, match="folder"):
        load_problems(str(tmp_path))
    (tmp_path / "x.csv").write_text("a")
    with pytest.raises(DataError, match="unknown kind of file"):
        load_problems(str(tmp_path / "x.csv"))

    def offline(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr("datasets.get_dataset_split_names", offline)
    with pytest.raises(DataError, match=r"hub.*no network"):
        load_problems("owner/name")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", offline)
    with pytest.raises(DataError, match="hub"):
        load_problems("livecodebench/code_generation_lite#v6")
    with pytest.raises(DataError, match="no version"):
        load_problems("livecodebench/code_generation_lite#v9")


def test_hub_ids_carry_configuration_split_and_revision(monkeypatch):
    asked = {}

    def fake(name, config, *, split, revision):
        asked.update(name=name, config=config, split=split, revision=revision)
        return [MBPP]

    monkeypatch.setattr("datasets.load_dataset", fake)
    assert load_problems("google-research/mbpp:full#train@abc/1")[0].id == "7"
    assert asked == {"name": "google-research/mbpp", "config": "full", "split": "train", "revision": "abc/1"}
    monkeypatch.setattr("datasets.get_dataset_split_names", lambda *_, **__: ["v1", "v2"])
    with pytest.raises(DataError, match="v1, v2"):
        load_problems("owner/name")
    monkeypatch.setattr("datasets.get_dataset_split_names", lambda *_, **__: ["train", "test"])
    load_problems("owner/name")
    assert asked["split"] == "test"


def test_versions_of_livecodebench_pick_their_files(tmp_path, monkeypatch):
    fetched = []

    def fake(name, file, *, repo_type, revision):
        fetched.append(file)
        path = tmp_path / file
        write_jsonl(path, [livecodebench(question_id=file)])
        return str(path)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fake)
    assert len(load_problems("livecodebench/code_generation_lite#release_v3")) == 3
    assert fetched == ["test.jsonl", "test2.jsonl", "test3.jsonl"]
    fetched.clear()
    load_problems("livecodebench/code_generation_lite#v1")
    assert fetched == ["test.jsonl"]
    fetched.clear()
    load_problems("livecodebench/code_generation_lite")
    assert len(fetched) == 6


@pytest.mark.parametrize(
    "record",
    [MBPP, HUMANEVAL, HUMANEVALPLUS, MBPPPLUS, BIGCODEBENCH, ACECODE, CODECONTESTS, REDUCED, CODEFORCES]
    + [livecodebench(), {"id": "ours", "statement": ""}],
)
def test_problems_are_known_by_their_record_s_id(tmp_path, record):
    assert load_one(tmp_path, record)[0].id == record_id(record)
    assert record_id({}) is None


def test_description_is_json(tmp_path):
    write_jsonl(tmp_path / "m.jsonl", [MBPP, MBPP | {"task_id": 8, "text": "x" * 999}])
    text = json.dumps(describe(str(tmp_path / "m.jsonl")))
    record = json.loads(text)
    assert record["problems"] == 2
    assert record["kinds"] == {"call": 2}
    assert record["tests"] == {"min": 3, "median": 3.0, "max": 3}
    assert record["first"]["id"] == "7"


def test_embedded_splits_need_no_file(monkeypatch):
    import tipprobe.problems.minicode as minicode

    asked = []
    monkeypatch.setattr(
        minicode, "split", lambda name, n, seed: asked.append((name, n, seed)) or [Problem("a", "b")]
    )
    assert load.load_problems("minicode:transfer", 3, 5) == [Problem("a", "b")]
    assert asked == [("transfer", 3, 5)]


REAL = {
    "mbpp/mbpp.jsonl": ("MBPP", 974, 967),
    "humanevalplus/HumanEvalPlus-NoExtreme.jsonl.gz": ("HumanEval+ (evalplus)", 164, 0),
    "mbppplus/MbppPlus-NoExtreme.jsonl.gz": ("MBPP+ (evalplus)", 378, 0),
    "humanevalpack/humanevalpack_python.jsonl": ("HumanEval", 164, 144),
    "bigcodebench/BigCodeBench-hf.jsonl.gz": ("BigCodeBench", 1140, 0),
    "codecontests/problems.jsonl": ("CodeContests (reduced)", 150, 0),
    "shapes/livecodebench_shape.jsonl": ("LiveCodeBench", 115, 0),
    "shapes/acecode_shape_humanevalpack.jsonl": ("AceCode", 157, 143),
}


@pytest.mark.parametrize("file", REAL)
def test_real_files(file):
    path = BENCHMARKS / file
    if not path.is_file():
        pytest.skip(f"{file} is not on this machine")
    name, count, calls = REAL[file]
    problems, report = load_with_report(str(path))
    assert report.format == name
    assert len(problems) == count
    assert report.records == count + sum(report.dropped.values())
    assert sum(problem.kind == "call" for problem in problems) == calls
    assert all(problem.tests or problem.test_code for problem in problems)
    assert all(problem.starter_code for problem in problems if problem.kind != "stdin" and problem.reference)
