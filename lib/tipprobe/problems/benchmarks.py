"""Public benchmarks' records as problems: one converter a record format, recognised by its fields.

Two choices hold throughout.  A problem is graded the way its benchmark grades it: MBPP by all its asserts,
evalplus by agreement with the reference on all inputs, LiveCodeBench and CodeContests by every test it has.
And what the benchmark shows to a solver anyway is *public*: examples in the statement, LiveCodeBench's and
CodeContests' public tests, and of MBPP the first assert, without which its statements do not even name the
function.  Inputs of public tests may serve as probes; their outputs reward `grpo_pub` and nothing else.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import json
import pickle
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tipprobe.problems import inprocess
from tipprobe.problems.asserts import (
    NotCalls,
    asserts_in_check,
    called_function,
    calls_of,
    doctest_calls,
    imports_of,
    parse,
    signature_of,
)
from tipprobe.problems.schema import Problem, Test

Record = Mapping[str, Any]
#: CPU seconds for a program under in-process tests, which run all inputs: evalplus' own cap.
IN_PROCESS_LIMIT_S = 60.0
BIGCODEBENCH_LIMIT_S = 60.0
#: evalplus' own limit; results of hundreds of inputs and scientific libraries take room.
IN_PROCESS_MEMORY_MB = 4096
LIVECODEBENCH_LIMIT_S = 6.0
SLOW_LIMIT_S = 20.0
#: LiveCodeBench's published list of problems that comparing with one output misjudges, as grading flags
#: (`tipprobe.sandbox.compare.FLAGS`).
LIVECODEBENCH_ERRATA = {
    "abc311_c": "multiple_answers",
    "abc326_d": "multiple_answers",
    "abc327_b": "multiple_answers",
    "abc333_e": "multiple_answers",
    "abc343_a": "multiple_answers",
    "abc343_e": "multiple_answers",
    "abc362_c": "multiple_answers",
    "arc185_c": "multiple_answers",
    "find-the-peaks": "multiple_answers",
    "find-words-containing-character": "multiple_answers",
    "generate-binary-strings-without-adjacent-zeros": "multiple_answers",
    "abc337_e": "interactive",
    "abc355_e": "interactive",
    "abc350_c": "wrong_tests",
    "apply-operations-to-make-string-empty": "wrong_tests",
    "arc189_a": "wrong_tests",
    "most-frequent-ids": "wrong_tests",
}
#: MBPP+ functions whose result has an order nobody asked for: their reference lists the items of a set.
UNORDERED_RESULTS = {"find_dissimilar", "Diff"}


class Unusable(ValueError):
    """A record that cannot become a gradable problem; the message is the reason, fit for counting."""


@dataclass(frozen=True, slots=True)
class Format:
    """One record format.

    Attributes:
        name: for messages and `describe`.
        fields: all of these must be there ...
        absent: ... and none of these.
        convert: from a record to a problem, raising `Unusable`.
    """

    name: str
    fields: frozenset[str]
    absent: frozenset[str]
    convert: Callable[[Record], Problem]


def recognise(record: Record) -> Format | None:
    """Return the first format that fits the record's fields, None if there is none."""
    keys = set(record)
    return next((f for f in FORMATS if f.fields <= keys and not f.absent & keys), None)


def record_id(record: Record) -> str | None:
    """Return the id under which a record's problem is known, whatever its format; None if it has none."""
    for key in ("task_id", "question_id", "url", "name", "id"):
        if record.get(key) not in (None, ""):
            return str(record[key])
    question = record.get("question")
    return short_id(question) if isinstance(question, str) else None


def _id(record: Record) -> str:
    found = record_id(record)
    if found is None:
        raise Unusable("no id")
    return found


def _text(source: str) -> str:
    return source.replace("\r\n", "\n")


def _asserts_problem(
    *,
    id: str,
    statement: str,
    asserts: list[str],
    reference: str | None,
    examples: tuple[Test, ...] | int,
    setup: str = "",
    meta: dict[str, Any] | None = None,
) -> Problem:
    """Build a ``call`` problem where every assert is a plain comparison, else one with in-process tests.

    `examples` is the public tests, or how many of the asserts are public.
    """
    entry_point = called_function(asserts, reference)
    if entry_point is None:
        raise Unusable("no assert calls a function of the program")
    common = {
        "id": id,
        "statement": statement,
        "entry_point": entry_point,
        "starter_code": signature_of(reference, entry_point),
        "reference": reference,
    }
    try:
        if setup.strip():
            raise NotCalls("the asserts need set-up code")
        tests = calls_of(asserts, entry_point)
    except NotCalls as reason:
        shown = examples if isinstance(examples, tuple) else _some_calls(asserts[:examples], entry_point)
        parts = [imports_of(reference), setup, *asserts]
        return Problem(
            **common,
            kind="unittest",
            examples=shown,
            test_code="\n".join(part for part in parts if part.strip()) + "\n",
            meta={**(meta or {}), "in_process": str(reason)},
        )
    shown = examples if isinstance(examples, tuple) else tests[:examples]
    return Problem(**common, kind="call", examples=shown, tests=tests, meta=meta or {})


def _some_calls(asserts: list[str], entry_point: str) -> tuple[Test, ...]:
    """Return the plain comparisons among `asserts`."""
    tests: list[Test] = []
    for source in asserts:
        try:
            tests += calls_of([source], entry_point)
        except NotCalls:
            continue
    return tuple(tests)


# --- MBPP -------------------------------------------------------------------------------------------------


def _mbpp(record: Record) -> Problem:
    asserts = [_text(source) for source in [*record["test_list"], *record.get("challenge_test_list", ())]]
    if not asserts:
        raise Unusable("no tests")
    setup = "\n".join([*record.get("test_imports", ()), _text(record.get("test_setup_code") or "")])
    return _asserts_problem(
        id=_id(record),
        statement=_text(record.get("text") or record["prompt"]).strip(),
        asserts=asserts,
        reference=_text(record["code"]),
        examples=1,
        setup=setup,
    )


def _mbppplus_hub(record: Record) -> Problem:
    asserts = [_text(source) for source in record["test_list"]]
    reference = _text(record["code"])
    entry_point = called_function(asserts, reference)
    if entry_point is None:
        raise Unusable("no assert calls a function of the program")
    return Problem(
        id=_id(record),
        statement=_text(record["prompt"]).strip(),
        kind="unittest",
        entry_point=entry_point,
        starter_code=signature_of(reference, entry_point),
        examples=_some_calls(asserts[:1], entry_point),
        test_code="\n".join([*record.get("test_imports", ()), record["test"]]),
        reference=reference,
        time_limit_s=IN_PROCESS_LIMIT_S,
        meta={"in_process": "published as a test module"},
    )


def _mbppplus(record: Record) -> Problem:
    entry_point, asserts = record["entry_point"], record["assertion"]
    reference = _text(record["canonical_solution"]).strip()
    shown = _text(record["prompt"]).strip().strip('"').strip()
    public = [line for line in shown.split("\n") if line.startswith("assert ")]
    # One record of the published file has {} for no plus inputs.
    inputs = [*record["base_input"], *(record["plus_input"] or ())]
    try:
        inputs = inprocess.restore_types(inputs, asserts, entry_point)
    except NotCalls as reason:
        raise Unusable(str(reason)) from reason
    views = {inprocess.view_of("\n".join(public) or "pass"), inprocess.view_of(asserts)}
    if entry_point in UNORDERED_RESULTS:
        views.add("set")
    view = next((v for v in ("set", "truth") if v in views), "value")
    return Problem(
        id=_id(record),
        statement=shown,
        kind="unittest",
        entry_point=entry_point,
        starter_code=signature_of(reference, entry_point),
        examples=_some_calls(public, entry_point),
        test_code=inprocess.agreement_source(entry_point, reference, inputs, record["atol"], view),
        reference=reference,
        time_limit_s=IN_PROCESS_LIMIT_S,
        meta={"in_process": "evalplus inputs come without outputs", "memory_mb": IN_PROCESS_MEMORY_MB},
    )


# --- HumanEval --------------------------------------------------------------------------------------------


def _stub_parts(prompt: str, entry_point: str) -> tuple[str, str]:
    """Return the signature line and the docstring of a function stub."""
    source = prompt.rstrip() + "\n    pass\n"
    try:
        functions = {n.name: n for n in parse(source).body if isinstance(n, ast.FunctionDef)}
    except SyntaxError as error:
        raise Unusable("the prompt is not a function stub") from error
    if entry_point not in functions:
        raise Unusable("the prompt does not define the entry point")
    return signature_of(source, entry_point), ast.get_docstring(functions[entry_point]) or ""


def _humaneval(record: Record) -> Problem:
    """Convert HumanEval in its original shape, HumanEval+ as on the hub, and HumanEvalPack."""
    entry_point, prompt = record["entry_point"], _text(record["prompt"])
    signature, docstring = _stub_parts(prompt, entry_point)
    reference = prompt + _text(record["canonical_solution"])
    common = {
        "id": _id(record),
        "statement": prompt.strip(),
        "entry_point": entry_point,
        "starter_code": signature,
        "examples": doctest_calls(docstring, entry_point),
        "reference": reference,
    }
    test = _text(record["test"])
    try:
        body = asserts_in_check(test)
        # HumanEval calls the function ``candidate``; HumanEvalPack names the parameter after it.
        tests = calls_of([body], entry_point, alias="candidate")
        return Problem(**common, kind="call", tests=tests)
    except NotCalls as reason:
        call = "" if re.search(r"^check\(", test, re.M) else f"\ncheck({entry_point})\n"
        return Problem(
            **common,
            kind="unittest",
            test_code=f"{imports_of(prompt)}\n{test}{call}",
            time_limit_s=IN_PROCESS_LIMIT_S,
            meta={"in_process": str(reason)},
        )


def _humanevalplus(record: Record) -> Problem:
    entry_point, prompt = record["entry_point"], _text(record["prompt"])
    signature, docstring = _stub_parts(prompt, entry_point)
    reference = prompt + _text(record["canonical_solution"])
    inputs = [*record["base_input"], *record["plus_input"]]
    if entry_point == "find_zero":
        test_code = inprocess.root_source(entry_point, inputs, record["atol"] or 1e-4)
    else:
        test_code = inprocess.agreement_source(entry_point, reference, inputs, record["atol"])
    return Problem(
        id=_id(record),
        statement=prompt.strip(),
        kind="unittest",
        entry_point=entry_point,
        starter_code=signature,
        examples=doctest_calls(docstring, entry_point),
        test_code=test_code,
        reference=reference,
        time_limit_s=IN_PROCESS_LIMIT_S,
        meta={"in_process": "evalplus inputs come without outputs", "memory_mb": IN_PROCESS_MEMORY_MB},
    )


def _bigcodebench(record: Record) -> Problem:
    head = _text(record["code_prompt"])
    if inprocess.count_test_methods(_text(record["test"])) == 0:
        raise Unusable("no tests")
    return Problem(
        id=_id(record),
        statement=_text(record["instruct_prompt"]).strip(),
        kind="unittest",
        entry_point=record["entry_point"],
        starter_code=signature_of(head.rstrip() + "\n    pass\n", record["entry_point"]),
        test_code=inprocess.unittest_source(_text(record["test"])),
        reference=head + _text(record["canonical_solution"]),
        time_limit_s=BIGCODEBENCH_LIMIT_S,
        meta={
            "in_process": "published as a test class",
            "libs": record.get("libs", "[]"),
            "stub": head,
            "memory_mb": IN_PROCESS_MEMORY_MB,
        },
    )


# --- AceCode ----------------------------------------------------------------------------------------------


def _acecode(record: Record) -> Problem:
    asserts = [_text(source) for source in record["test_cases"]]
    if not asserts:
        raise Unusable("no tests")
    return _asserts_problem(
        id=_id(record),
        statement=_text(record["question"]).strip(),
        asserts=asserts,
        reference=None,
        examples=0,
        meta={"source": record["source"]},
    )


# --- LiveCodeBench ----------------------------------------------------------------------------------------


class _TextOnly(pickle.Unpickler):
    """Reads a pickled text; anything that would import or call something is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise Unusable("private tests hold more than text")

    def persistent_load(self, pid: Any) -> Any:
        raise Unusable("private tests hold more than text")


def _test_list(packed: str) -> list[dict[str, str]]:
    """Return the tests of a field that holds JSON, or base64 of zlib of a pickle of JSON."""
    try:
        return json.loads(packed)
    except json.JSONDecodeError:
        pass
    try:
        text = _TextOnly(io.BytesIO(zlib.decompress(base64.b64decode(packed)))).load()
    except Unusable:
        raise
    except Exception as error:  # base64, zlib and pickle each have their own
        raise Unusable("private tests cannot be decoded") from error
    return json.loads(text)


def _json_arguments(text: str) -> str:
    """Turn one JSON value a line into an argument list."""
    return ", ".join(repr(json.loads(line)) for line in text.split("\n") if line.strip())


def _livecodebench(record: Record) -> Problem:
    public, private = (_test_list(record[key]) for key in ("public_test_cases", "private_test_cases"))
    kinds = {test["testtype"] for test in [*public, *private]}
    if len(kinds) != 1:
        raise Unusable("no tests" if not kinds else "tests of two types")
    metadata = json.loads(record.get("metadata") or "{}")
    functional = kinds == {"functional"}
    if functional and not metadata.get("func_name"):
        raise Unusable("functional tests without a function name")

    def convert(test: dict[str, str]) -> Test:
        if functional:
            return Test(_json_arguments(test["input"]), repr(json.loads(test["output"])))
        return Test(test["input"], test["output"])

    examples = tuple(convert(test) for test in public)
    meta = {
        key: record[key]
        for key in ("difficulty", "platform", "contest_date")
        if isinstance(record.get(key), str)
    }
    if functional:
        meta["json_values"] = True
    if record["question_id"] in LIVECODEBENCH_ERRATA:
        meta["grading"] = LIVECODEBENCH_ERRATA[record["question_id"]]
    return Problem(
        id=_id(record),
        statement=_text(record["question_content"]).strip(),
        kind="call" if functional else "stdin",
        entry_point=metadata["func_name"] if functional else None,
        starter_code=_text(record.get("starter_code") or "") if functional else "",
        examples=examples,
        # The published benchmark grades by both lists.
        tests=(*examples, *(convert(test) for test in private)),
        reference=record.get("reference_solution"),
        time_limit_s=LIVECODEBENCH_LIMIT_S,
        meta=meta,
    )


# --- CodeContests -----------------------------------------------------------------------------------------

_PYTHON3 = 3


def _pairs(tests: Record) -> tuple[Test, ...]:
    return tuple(Test(a, b) for a, b in zip(tests["input"], tests["output"], strict=True))


def _codecontests(record: Record) -> Problem:
    examples = _pairs(record["public_tests"])
    hidden = _pairs(record["private_tests"]) + _pairs(record["generated_tests"])
    solutions = record.get("solutions") or {"language": (), "solution": ()}
    python = [
        source
        for language, source in zip(solutions["language"], solutions["solution"], strict=True)
        if language == _PYTHON3
    ]
    limit = record.get("time_limit") or {}
    seconds = (limit.get("seconds") or 0) + (limit.get("nanos") or 0) / 1e9
    return _contest_problem(record, examples, hidden, python[0] if python else None, seconds)


def _codecontests_reduced(record: Record) -> Problem:
    """Convert the smaller shape in which hidden tests are one list and the way of grading is named."""
    grading = record["grading"]
    if grading not in ("exact", "float_1e-6", "slow_in_cpython", "needs_checker_or_suspect"):
        raise Unusable(f"cannot be graded by comparing outputs ({grading})")
    problem = _contest_problem(
        record,
        _pairs(record["public_tests"]),
        _pairs(record["hidden_tests"]),
        record["solution_py"],
        SLOW_LIMIT_S if grading == "slow_in_cpython" else 0.0,
        tolerance=1e-6 if grading == "float_1e-6" else 0.0,
    )
    if grading == "needs_checker_or_suspect":
        return replace(problem, meta={"grading": "checker"} | problem.meta)
    return problem


_ANY_ANSWER = re.compile(
    r"\b(?:print|output|display|report|return|give|write) (?:out )?any"
    r"(?:[.,!]| of (?:them|these)| (?:one|such|valid|suitable|possible|correct|answer|solution|optimal)\b)",
    re.IGNORECASE,
)
_INTERACTIVE = re.compile(r"\binteractive (?:problem|task)\b|\bthe interaction (?:will|starts|ends)\b", re.I)


def flag_in(statement: str) -> dict[str, str]:
    """Return ``{"grading": flag}`` where a contest's statement itself says that its answer is not one text.

    It finds the usual phrases, so a statement without them may still need a checker.
    """
    if _INTERACTIVE.search(statement):
        return {"grading": "interactive"}
    return {"grading": "multiple_answers"} if _ANY_ANSWER.search(statement) else {}


def _codeforces(record: Record) -> Problem:
    """Convert open-r1's Codeforces records; their generated tests are files of their own and not read."""
    if record.get("input_mode") == "file":
        raise Unusable("reads or writes a named file")
    examples, official = (
        tuple(Test(test["input"], test["output"]) for test in record.get(key) or ())
        for key in ("examples", "official_tests")
    )
    if not examples and not official:
        raise Unusable("no tests")
    parts = [record.get(key) or "" for key in ("description", "input_format", "output_format", "note")]
    flag = flag_in("\n".join(parts))
    if record.get("interaction_format"):
        flag = {"grading": "interactive"}
    elif record.get("generated_checker"):
        flag = {"grading": "checker"}
    heads = ("", "Input\n\n", "Output\n\n", "Note\n\n")
    return Problem(
        id=_id(record),
        statement="\n\n".join(h + _text(part).strip() for h, part in zip(heads, parts, strict=True) if part),
        examples=examples,
        tests=tuple(dict.fromkeys([*examples, *official])),
        time_limit_s=max(2.0, record.get("time_limit") or 0.0),
        meta={
            "rating": record.get("rating"),
            "all_official_tests": bool(record.get("official_tests_complete")),
            **flag,
        },
    )


# --- TACO -------------------------------------------------------------------------------------------------


def _taco(record: Record) -> Problem:
    packed = json.loads(record["input_output"] or "{}")
    inputs, outputs, name = packed.get("inputs") or (), packed.get("outputs") or (), packed.get("fn_name")
    if not inputs or len(inputs) != len(outputs):
        raise Unusable("no tests")

    def text(value: Any) -> str:
        return "\n".join(value) if isinstance(value, list) else value

    wrapped = False
    if name:
        # Every value alone in a list: the benchmark's way of storing it, not part of it.
        wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
        values = [output[0] for output in outputs] if wrapped else outputs
        tests = tuple(
            Test(", ".join(map(repr, args)), repr(value)) for args, value in zip(inputs, values, strict=True)
        )
    else:
        tests = tuple(Test(text(a), text(b)) for a, b in zip(inputs, outputs, strict=True))
    solutions = json.loads(record.get("solutions") or "[]")
    seconds = re.match(r"[\d.]+", str(record.get("time_limit") or ""))
    return Problem(
        id=_id(record),
        statement=_text(record["question"]).strip(),
        kind="call" if name else "stdin",
        entry_point=name,
        starter_code=_text(record.get("starter_code") or ""),
        tests=tests,
        reference=solutions[0] if solutions else None,
        time_limit_s=max(2.0, float(seconds[0]) if seconds else 0.0),
        meta={
            "difficulty": record.get("difficulty"),
            **({"wrapped_values": True} if wrapped else {}),
            **({"json_values": True} if name else flag_in(record["question"])),
        },
    )


def short_id(text: str) -> str:
    """Return 16 hex digits that stand for a text: the name of a record that has none, a statement's mark."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _contest_problem(
    record: Record,
    examples: tuple[Test, ...],
    hidden: tuple[Test, ...],
    reference: str | None,
    seconds: float,
    tolerance: float = 0.0,
) -> Problem:
    if record.get("input_file") or record.get("output_file"):
        raise Unusable("reads or writes a named file")
    if not examples and not hidden:
        raise Unusable("no tests")
    return Problem(
        id=_id(record),
        statement=_text(record["description"]).strip(),
        examples=examples,
        tests=(*examples, *hidden),
        reference=reference,
        tolerance=tolerance,
        # Limits are made for C++; Python never gets less than the default.
        time_limit_s=max(2.0, seconds),
        meta=flag_in(record["description"]),
    )


def _format(name: str, fields: str, convert: Callable[[Record], Problem], absent: str = "") -> Format:
    return Format(name, frozenset(fields.split()), frozenset(absent.split()), convert)


FORMATS = (
    _format("tipprobe", "id statement", lambda record: Problem.from_json(dict(record))),
    _format("BigCodeBench", "task_id instruct_prompt code_prompt test entry_point", _bigcodebench),
    _format("HumanEval+ (evalplus)", "task_id prompt base_input plus_input atol test", _humanevalplus),
    _format("MBPP+ (evalplus)", "task_id prompt base_input plus_input atol assertion", _mbppplus),
    _format("HumanEval", "task_id prompt canonical_solution test entry_point", _humaneval),
    _format("MBPP+ (hub)", "task_id code prompt test_list test", _mbppplus_hub),
    _format("MBPP", "task_id text code test_list", _mbpp),
    _format("MBPP (sanitized)", "task_id prompt code test_list", _mbpp, absent="test"),
    _format("AceCode", "id source question test_cases", _acecode),
    _format(
        "LiveCodeBench", "question_id question_content public_test_cases private_test_cases", _livecodebench
    ),
    _format("CodeContests", "name description public_tests private_tests generated_tests", _codecontests),
    _format(
        "CodeContests (reduced)", "name description public_tests hidden_tests grading", _codecontests_reduced
    ),
    _format("Codeforces", "id description examples official_tests input_format", _codeforces),
    _format("TACO", "question solutions input_output starter_code", _taco),
)
