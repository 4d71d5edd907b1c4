"""Base rates: counting, and a file that says where they come from."""

import json
import re
from dataclasses import asdict, replace

import pytest

from tipprobe.errors import DataError
from tipprobe.models.types import Completion, Sampling
from tipprobe.problems.schema import Problem, Test
from tipprobe.prompts import CODE_PROMPTS
from tipprobe.sandbox import Sandbox
from tipprobe.tips.base_rates import (
    BaseRate,
    base_rates_header,
    check_conditions,
    check_greedy,
    measure_base_rates,
    read_base_rates,
    read_base_rates_header,
    write_base_rates,
)
from tipprobe.tips.environment import CodeEnvironment

DOUBLE = Problem("double", "Double it.", tests=(Test("1\n", "2\n"), Test("2\n", "4\n"), Test("0\n", "0\n")))
RIGHT = "```python\nprint(int(input()) * 2)\n```"
SQUARE = "```python\nprint(int(input()) ** 2)\n```"


class Coder:
    """Greedy it squares; sampled, it is right every other time."""

    revision = "scripted"

    def sample(self, prompts, n, sampling, *, progress=None):
        texts = [SQUARE] if sampling.temperature == 0 else [RIGHT, SQUARE] * n
        return [[Completion(text, 7, "stop") for text in texts[:n]] for _ in prompts]


@pytest.fixture(scope="module")
def environments():
    with Sandbox(1) as sandbox:
        yield tuple(
            CodeEnvironment(Coder(), sandbox, sampling, time_limit_s=2, memory_mb=512)
            for sampling in (Sampling(temperature=1.0), Sampling.greedy(256))
        )


def test_sampled_and_greedy_are_counted_apart(environments, tmp_path):
    rates = measure_base_rates([DOUBLE], *environments, 5)
    (rate,) = rates
    assert (rate.n, rate.solved, rate.pass_at_1) == (5, 3, 0.6)
    assert rate.reasons == {"passed": 3, "wrong_output": 2}
    assert (rate.greedy_share, rate.greedy_reason) == (pytest.approx(2 / 3), "wrong_output")
    path = tmp_path / "base_rates.jsonl"
    write_base_rates(path, rates, base_rates_header(*environments))
    assert read_base_rates(path) == {"double": rate}
    header = read_base_rates_header(path)
    assert header["model_revision"] == "scripted" and set(header["prompts"]) == set(CODE_PROMPTS)
    assert (header["sampling"]["temperature"], header["greedy"]["temperature"]) == (1.0, 0.0)
    line = json.loads(path.read_text().splitlines()[1])
    assert line["pass_at_1"] == 0.6 and line["low"] < 0.6 < line["high"] and line["problem_id"] == "double"


def test_the_interval_is_wilsons():
    # For 1 of 8: (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), z = 1.959964
    interval = BaseRate("p", 8, 1, {}, 0, 3, "wrong_output").interval
    assert (interval.low, interval.high) == (
        pytest.approx(0.02242, abs=1e-4),
        pytest.approx(0.47091, abs=1e-4),
    )
    assert BaseRate("p", 8, 0, {}, 0, 3, "wrong_output").interval.low == 0


def test_a_problem_that_does_not_fit_has_no_rate(monkeypatch):
    monkeypatch.setattr(
        "tipprobe.probes.generate.prompt_fits", lambda _, prompt: "long" not in prompt[0]["content"]
    )
    long = replace(DOUBLE, id="long", statement="A long story.")
    with Sandbox(1) as sandbox:
        sampled, greedy = (
            CodeEnvironment(Coder(), sandbox, sampling, time_limit_s=2, memory_mb=512)
            for sampling in (Sampling(temperature=1.0), Sampling.greedy(256))
        )
        rates = measure_base_rates([long, DOUBLE], sampled, greedy, 2)
        assert [rate.problem_id for rate in rates] == ["double"]
        assert (greedy.misses, sampled.misses) == (2, 1), "one greedy question says it"
        with pytest.raises(DataError, match="none of the 1 problems fits the coder's context"):
            measure_base_rates([long], sampled, greedy, 2)


def test_no_program_is_no_measurement(environments):
    with pytest.raises(DataError, match="n = 0"):
        measure_base_rates([DOUBLE], *environments, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"header": {}}\n{"problem_id": "p"}\n', "line 2: not a base rate"),
        (
            '{"problem_id": "p", "n": 2, "solved": 3, "reasons": {}, "greedy_passed": 0, "n_tests": 1, '
            '"greedy_reason": "x"}\n',
            "counts that cannot be",
        ),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, text, message):
    path = tmp_path / "base_rates.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_base_rates(path)


def test_a_file_without_header_has_none(tmp_path):
    path = tmp_path / "base_rates.jsonl"
    path.write_text("")
    assert read_base_rates(path) == {}
    with pytest.raises(DataError, match="no header"):
        read_base_rates_header(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_revision", "another"),
        ("time_limit_s", 5),
        ("memory_mb", 64),
        ("greedy", {"temperature": 0, "max_tokens": 7}),
        ("prompts", {"tip": "0123"}),
        ("model_options", {"extra_body": {"x": 1}}),
    ],
)
def test_conditions_that_differ_are_named(environments, tmp_path, name, value):
    sampled, greedy = environments
    path = tmp_path / "base_rates.jsonl"
    header = base_rates_header(sampled, greedy)
    write_base_rates(path, [], header)
    check_greedy(path, greedy)
    write_base_rates(path, [], {})
    check_greedy(path, greedy)  # what was not recorded cannot be compared
    write_base_rates(path, [], header | {name: value})
    with pytest.raises(DataError, match=f"measured with {name} .*run 01_data_mining again"):
        check_greedy(path, greedy)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"max_tokens": 320}, "greedy {'max_tokens': 256}, but here it is {'max_tokens': 320}"),
        ({"temperature": 0.5}, "sampling {'temperature': 1.0}, but here it is {'temperature': 0.5}"),
        ({"time_limit_s": 9}, "time_limit_s 2, but here it is 9"),
        ({"memory_mb": 64}, "memory_mb 512, but here it is 64"),
        ({"seed": 7}, None),
        ({}, None),
    ],
)
def test_conditions_of_all_programs(environments, changed, said):
    header = base_rates_header(*environments)
    here = asdict(Sampling(temperature=1.0)) | {"time_limit_s": 2, "memory_mb": 512} | changed
    limits = {name: here.pop(name) for name in ("time_limit_s", "memory_mb")}

    def check():
        check_conditions(header, Coder(), Sampling(**here), **limits)

    if said is None:
        check()
    else:
        with pytest.raises(DataError, match=re.escape(f"measured with {said}") + ".*01_data_mining again"):
            check()
