"""What a program can do to tests that share its process, and what comes of it."""

import ast

import pytest

from tipprobe.errors import DataError
from tipprobe.evaluation.grade import check_tests, grade, needed_modules
from tipprobe.problems import asserts, inprocess
from tipprobe.problems.inprocess import (
    agreement_source,
    count_test_methods,
    guarded_source,
    imported_names,
    outcome_of,
    unittest_source,
)
from tipprobe.problems.schema import Problem

SUITE = """
import unittest

class TestCases(unittest.TestCase):
    def test_one(self):
        self.assertEqual(double(1), 2)

    def test_two(self):
        self.assertTrue(double(3) == 6)
"""
ASSERTS = "import math\nassert double(1) == 2\nassert math.isclose(double(2), 4)\n"
RIGHT = "def double(n):\n    return n * 2\n"
WRONG = "def double(n):\n    return 1\n"


def reasons(sandbox, tests, *programs):
    problem = Problem("p", "", kind="unittest", entry_point="double", test_code=tests)
    verdicts = grade([(problem, program) for program in programs], sandbox, time_limit_s=5, memory_mb=512)
    assert all(verdict.passed == (verdict.reason == "passed") for verdict in verdicts)
    return [verdict.reason for verdict in verdicts]


@pytest.fixture(scope="module")
def suite():
    return unittest_source(SUITE)


def test_right_and_wrong_programs(sandbox, suite):
    programs = (RIGHT, WRONG, "def double(n): return 1 / 0", "def double(n:", "", "import no_such_module")
    expected = [
        "passed",
        "wrong_output",
        "runtime_error",
        "compile_error",
        "runtime_error",
        "missing_library",
    ]
    for tests in (suite, ASSERTS):
        assert reasons(sandbox, tests, *programs) == expected


AT_LOADING = {
    "assert method": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n",
    "all attributes": (
        "import unittest\nunittest.TestCase.__getattribute__ = lambda s, n: (lambda *a: None)"
        " if n.startswith('assert') else object.__getattribute__(s, n)\n"
    ),
    "setUp skips": "import unittest\nunittest.TestCase.setUp = lambda self: self.skipTest('')\n",
    "runner": "import unittest\nunittest.TextTestRunner.run = lambda *a: None\n",
    "result": "import unittest\nunittest.TestResult.addFailure = lambda *a: None\n",
    "whole module": "import sys, types\nsys.modules['unittest'] = types.ModuleType('unittest')\n",
    "exception": "import builtins\nbuiltins.AssertionError = ZeroDivisionError\n",
    "own builtin": "def isinstance(*a): return True\ndef all(x): return True\n",
    "builtins of the module": "__builtins__ = {}\n",
    "trace": "import sys\nsys.settrace(lambda *a: None)\n",
    "exit hook": "import atexit, os\natexit.register(os._exit, 0)\n",
    "except hook": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\n",
    "code of an assert method": (
        "import unittest\nunittest.TestCase.assertEqual.__code__ = (lambda *a, **k: None).__code__\n"
        "unittest.TestCase.assertTrue.__code__ = (lambda *a, **k: None).__code__\n"
    ),
    "loader": (
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n"
        "unittest.defaultTestLoader.loadTestsFromTestCase = lambda c: unittest.TestSuite([T('test')])\n"
    ),
    "harness": (
        "import __main__, unittest\n[setattr(v, n, lambda *a, **k: '') for v in vars(__main__).values()"
        " if isinstance(v, type) for n in ('restore', 'changes') if n in vars(v)]\n"
        "unittest.TestCase.assertEqual = unittest.TestCase.assertTrue = lambda *a: None\n"
    ),
    "builtins of the harness": (
        "import builtins, unittest\nbuiltins.vars = lambda *a: {}\n"
        "unittest.TestCase.assertEqual = unittest.TestCase.assertTrue = lambda *a: None\n"
    ),
    "library function": "import math\nmath.isclose = lambda *a: True\n",
}


@pytest.mark.parametrize("trick", AT_LOADING)
def test_what_is_rebound_while_loading_is_put_back(sandbox, suite, trick):
    for tests in (suite, ASSERTS):
        assert reasons(sandbox, tests, AT_LOADING[trick] + WRONG) == ["wrong_output"]
        assert reasons(sandbox, tests, AT_LOADING[trick] + RIGHT) == ["passed"]


def test_what_is_rebound_while_tests_run_is_noticed(sandbox, suite):
    late = "import unittest\ndef double(n):\n    unittest.TestCase.fail = lambda *a: None\n    return 2\n"
    assert reasons(sandbox, suite, late) == ["tampered"]
    late = "import math\ndef double(n):\n    math.isclose = lambda *a: True\n    return 2\n"
    assert reasons(sandbox, "import math\nassert double(1) == 2\n" + ASSERTS, late) == ["tampered"]
    late = "import builtins\ndef double(n):\n    builtins.abs = lambda x: 0\n    return n * 2\n"
    assert reasons(sandbox, ASSERTS, late) == ["tampered"]


def test_code_replaced_in_a_library_is_noticed(sandbox):
    tests = "import statistics\nassert statistics.mean([double(2)]) == 4\n"
    late = "import statistics\ndef double(n):\n"
    late += "    statistics.mean.__code__ = (lambda data: 4).__code__\n    return 1\n"
    early = late.replace("def double(n):\n    ", "").replace("    return", "def double(n): return")
    assert reasons(sandbox, tests, RIGHT, late, early) == ["passed", "tampered", "wrong_output"]
    tests = "import numpy as np\nnp.testing.assert_allclose(double(2), 4)\n"
    testing = "import numpy.testing\nnumpy.testing.assert_allclose = lambda *a, **k: None\n"
    assert reasons(sandbox, tests, testing + WRONG, testing + RIGHT) == ["wrong_output", "passed"]


def test_programs_do_not_find_the_tests(sandbox, suite):
    agreement = agreement_source("double", RIGHT, [[1], [2]], 0)
    same = "def double(n):\n    globals()['_tipprobe_same'] = lambda *a: True\n    return 0\n"
    call = "def double(n):\n    return globals()['_tipprobe_namespace']['double'](n)\n"
    assert reasons(sandbox, agreement, same, call) == ["wrong_output", "runtime_error"]
    rebind = "def double(n):\n    TestCases.test_two = lambda s: None\n    return 2\n"
    assert reasons(sandbox, suite, rebind) == ["runtime_error"]
    names = "def double(n):\n    own = {'double', '__builtins__', '__name__', '__doc__', '__package__'}\n"
    names += "    own |= {'__loader__', '__spec__', 'math', 'unittest'}\n"
    names += "    assert not set(globals()) - own\n    return n * 2\n"
    assert reasons(sandbox, agreement, names) == ["passed"]
    assert reasons(sandbox, suite, names) == reasons(sandbox, ASSERTS, names) == ["passed"]


FOUND = "import unittest\ndef double(n):\n    tests = unittest.TestCase.__subclasses__()[-1]\n"
LATE = {
    "method": "tests.test_two = lambda self: None",
    "code": "tests.test_two.__code__ = (lambda self: None).__code__",
    "shadow": "tests.assertTrue = lambda *a: None",
    "skip": "tests.test_two.__unittest_skip__ = True",
    "expected failure": "tests.test_two.__unittest_expecting_failure__ = True",
    "class": "tests.__unittest_expecting_failure__ = True",
}


@pytest.mark.parametrize("trick", LATE)
def test_test_classes_are_compared_with_what_they_were(sandbox, suite, trick):
    assert reasons(sandbox, suite, f"{FOUND}    {LATE[trick]}\n    return 2\n") == ["tampered"]


def test_tests_may_keep_things_in_their_class(sandbox):
    set_up = "    @classmethod\n    def setUpClass(cls):\n        cls.x = 1\n        cls.maxDiff = None\n\n"
    tests = SUITE.replace("    def test_one", set_up + "    def test_one")
    assert reasons(sandbox, unittest_source(tests), RIGHT, WRONG) == ["passed", "wrong_output"]


def test_what_tests_import_is_there_for_the_program_too(sandbox):
    # The benchmark runs both as one file, and its own solutions count on it.
    assert reasons(sandbox, ASSERTS, "def double(n):\n    return math.prod([2, n])\n") == ["passed"]
    own = "class math:\n    prod = max\n\ndef double(n):\n    return math.prod([2, n])\n"
    assert reasons(sandbox, ASSERTS, own) == ["wrong_output"]


def test_tests_must_run_to_their_end(sandbox, suite):
    leave = "import sys\nsys.exit(0)\n" + RIGHT
    gone = "import os\ndef double(n):\n    os._exit(0)\n"
    skip = "import unittest\ndef double(n):\n    raise unittest.SkipTest('')\n"
    one = "import unittest\ndef double(n):\n    if n == 3: raise unittest.SkipTest('')\n    return 2 * n\n"
    assert reasons(sandbox, suite, leave, gone, skip, one) == [
        "left_early",
        "left_early",
        "no_tests",
        "wrong_output",
    ]
    assert reasons(sandbox, ASSERTS, leave, gone, "print('passed')\n" + WRONG) == [
        "left_early",
        "left_early",
        "wrong_output",
    ]
    marked = SUITE + "\n    @unittest.skip('not here')\n    def test_three(self):\n        raise ValueError\n"
    assert reasons(sandbox, unittest_source(marked), RIGHT, WRONG) == ["passed", "wrong_output"]


def test_output_around_the_tests_does_not_matter(sandbox, suite):
    noisy = "import atexit, io, sys\nprint('x', end='')\natexit.register(print, 'bye')\n"
    noisy += "sys.stdout = io.StringIO()\n"
    assert reasons(sandbox, suite, noisy + RIGHT, noisy + WRONG) == ["passed", "wrong_output"]


def test_a_function_may_be_called_like_a_builtin(sandbox):
    problem = Problem("p", "", kind="unittest", entry_point="sum", test_code="assert sum(1, 2) == 'both'\n")
    program = "def sum(a, b):\n    return 'both'\n"
    assert grade([(problem, program)], sandbox, time_limit_s=5, memory_mb=512)[0].passed


def test_modules_that_tests_name_can_be_patched(sandbox):
    tests = SUITE.replace("import unittest", "import unittest\nfrom unittest.mock import patch").replace(
        "        self.assertTrue(double(3) == 6)",
        "        with patch(__name__ + '.helper', return_value=7), patch('builtins.open'):\n"
        "            self.assertEqual(double(3), 7)",
    )
    program = "def helper(n):\n    return 2 * n\n\ndef double(n):\n    return helper(n)\n"
    assert reasons(sandbox, unittest_source(tests), program) == ["passed"]
    tests = SUITE.replace(
        "import unittest", "import unittest\nfrom unittest.mock import patch, mock_open"
    ).replace(
        "        self.assertTrue(double(3) == 6)",
        "        with patch('builtins.open', mock_open(read_data='6')):\n"
        "            self.assertEqual(double(3), 6)",
    )
    program = "def double(n):\n    return 2 if n == 1 else int(open('nowhere').read())\n"
    assert reasons(sandbox, unittest_source(tests), program) == ["passed"]


def test_values_that_claim_to_equal_everything_do_not_agree_with_a_reference(sandbox):
    tests = agreement_source("double", RIGHT, [[1], [2]], 0)
    liar = "class N(int):\n    def __eq__(self, other): return True\n\ndef double(n):\n    return N(0)\n"
    nested = liar.replace("N(0)", "[N(0)]")
    counter = "from collections import Counter\ndef double(n):\n    return 2 * n\n"
    assert reasons(sandbox, tests, liar, nested, counter) == ["wrong_output", "wrong_output", "passed"]
    module = liar.replace("    def", "    __module__ = 'numpy'\n    def")
    meta = "class M(type):\n    __flags__ = 0\n    __hash__ = type.__hash__\n"
    meta += "    def __eq__(self, other): return True\n\n"
    meta += module.replace("(int)", "(int, metaclass=M)")
    proxy = liar.replace("return N(0)", "global x; x = N(0); import weakref; return weakref.proxy(x)")
    array = liar.replace("return N(0)", "import numpy; return numpy.array([N(0)], dtype=object)")
    raw = "class N(bytes):\n    def __eq__(self, other): return True\n\ndef double(n):\n    return N()\n"
    scalar = "import numpy\ndef double(n):\n    return numpy.int64(2 * n)\n"
    proxy = proxy.replace("N(int)", "N").replace("N(0)", "N()")
    liars = (module, meta, proxy, array, raw)
    assert reasons(sandbox, tests, *liars) == ["wrong_output"] * len(liars)
    assert reasons(sandbox, tests, scalar) == ["passed"]
    emptied = "import copy\ncopy._deepcopy_dispatch[list] = lambda x, memo: [0]\n"
    assert reasons(sandbox, tests, emptied + "def double(n): return 0 * n\n") == ["wrong_output"]
    whole = "from collections import Counter\ndef double(n):\n    return Counter({n: 1})\n"
    assert reasons(sandbox, agreement_source("double", whole, [[1]], 0), whole) == ["passed"]
    assert reasons(sandbox, agreement_source("double", whole, [[1]], 0), "def double(n): return {n: 1}") == [
        "passed"
    ]


def test_empty_suites_are_refused():
    empty = "import unittest\nclass TestCases(unittest.TestCase):\n    pass\n"
    assert count_test_methods(empty) == 0
    assert count_test_methods(SUITE) == 2
    assert count_test_methods("x = 1") is None
    assert count_test_methods("class TestCases(Other):\n    pass") is None
    with pytest.raises(DataError, match=r"'p'.*no test method"):
        check_tests([Problem("p", "", kind="unittest", test_code=unittest_source(empty))])


def test_modules_that_sources_import():
    source = "import a.b, c\nfrom d.e import f\nfrom . import g\nfrom __future__ import annotations\n"
    assert imported_names(source, "def f():\n    import h\n", "not python (") == {"a.b", "c", "d.e", "h"}
    inside = agreement_source("double", "import statistics\n" + RIGHT, [[1]], 0)
    assert "statistics" in imported_names(inside)
    problem = Problem("p", "", kind="unittest", test_code=SUITE, reference="import numpy.random\n")
    assert needed_modules(problem) == {"unittest", "numpy"}
    assert needed_modules(Problem("p", "", reference="import numpy\n")) == set()


def test_tests_are_parsed_once_for_all_programs(monkeypatch):
    parsed = []
    for module in (inprocess, asserts):
        monkeypatch.setattr(module, "parse", lambda source: parsed.append(source) or ast.parse(source))
    tests = unittest_source(SUITE + "\n# parsed once\n")
    for program in ("a", "b"):
        guarded_source(program, tests, "token", reference="import math\n# once\n")
        check_tests([Problem("p", "", kind="unittest", test_code=tests)])
    assert parsed.count(tests) == 3 and len(parsed) == 4  # names, statements, methods; names of the reference


def test_only_lines_with_the_token_are_believed():
    assert outcome_of(b"passed\nabc passed\n", "xyz") is None
    assert outcome_of(b"x\nxyz wrong_output 1 != 2\nbye\n", "xyz") == ("wrong_output", "1 != 2")
    assert "'secret'" in guarded_source("p", "t", "secret")
