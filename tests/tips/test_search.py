"""Searching one instruction for all problems."""

import pytest

from tipprobe.errors import EndpointError, ParameterError, SandboxError
from tipprobe.models.types import Completion, Sampling
from tipprobe.problems.schema import Problem
from tipprobe.tips.environment import Attempt
from tipprobe.tips.search import (
    NOTHING,
    Failed,
    OptimiserWriter,
    Scored,
    TipWriter,
    gepa,
    opro,
    validation_problems,
)

PROBLEMS = [Problem(f"p{i}", f"Statement {i}.") for i in range(6)]


class Environment:
    """A coder that needs the word in the problem's meta; counts what it is asked."""

    def __init__(self, fault=False):
        self.asked, self.fault = [], fault

    def attempts(self, requests, n=1, *, progress=None):
        if self.fault:
            raise SandboxError("no worker")
        self.asked += [(problem.id, tip) for problem, tip in requests]
        return [[self._attempt(problem, tip)] for problem, tip in requests]

    @staticmethod
    def _attempt(problem, tip):
        passed = 1 + (tip is not None and "zero" in tip) + (tip is not None and "zero counts" in tip)
        return Attempt("pass", passed, 3, "passed" if passed == 3 else "wrong_output", 5)


class Writer:
    """Writes the given sentences one after another."""

    def __init__(self, *sentences):
        self.sentences, self.tokens, self.calls = list(sentences), 0, []

    def write(self, history, failed, n, seed):
        self.calls.append((len(history), [f.problem.id for f in failed], n, seed))
        written, self.sentences = self.sentences[:n], self.sentences[n:]
        self.tokens += 3 * len(written)
        return written


def test_opro_keeps_the_best_and_never_spends_more_than_its_budget():
    environment = Environment()
    writer = Writer("mind one", "mind zero", "mind zero", "zero counts", "never reached")
    found = opro(PROBLEMS, environment, writer, budget=6 * 4, seed=0)
    assert (found.instruction, found.score) == ("zero counts", 1.0)
    assert found.programs == len(environment.asked) == 24
    assert [(s.instruction, round(s.score, 2)) for s in found.history] == [
        (None, 0.33),
        ("mind one", 0.33),
        ("mind zero", 0.67),
        ("zero counts", 1.0),
    ]
    assert found.tokens == writer.tokens


def test_opro_says_no_instruction_where_none_is_better():
    found = opro(PROBLEMS, Environment(), Writer("mind one"), budget=100, seed=0)
    assert found.instruction is None and len(found.history) == 2


def test_opro_repeats_itself():
    first, second = (opro(PROBLEMS, Environment(), w, budget=30, seed=3) for w in (Writer("a"), Writer("a")))
    assert first == second


def test_gepa_climbs_and_counts_what_it_spends():
    environment = Environment()
    writer = Writer("mind one", "mind zero", "zero counts", *["worse"] * 50)
    found = gepa(PROBLEMS, environment, writer, budget=80, seed=0)
    assert found.instruction == "zero counts" and found.score == 1.0
    assert found.history[0].instruction is None
    assert found.programs == len(environment.asked) == len(set(environment.asked)) <= 90
    assert "mind one" not in {s.instruction for s in found.history}, "no better than its parent on the few"


@pytest.mark.parametrize("search", [opro, gepa])
def test_a_fault_of_the_machinery_is_no_score(search):
    with pytest.raises(SandboxError):
        search(PROBLEMS, Environment(fault=True), Writer("a"), budget=60, seed=0)


@pytest.mark.parametrize("search", [opro, gepa])
def test_a_writer_that_fails_is_not_one_that_finds_nothing(search):
    class Failing(Writer):
        def write(self, history, failed, n, seed):
            super().write(history, failed, n, seed)
            raise EndpointError("nobody answers")

    writer = Failing()
    with pytest.raises(EndpointError, match="nobody answers"):
        search(PROBLEMS, Environment(), writer, budget=60, seed=0)
    assert len(writer.calls) == 1


@pytest.mark.parametrize("search", [opro, gepa])
def test_a_budget_that_pays_for_nothing(search):
    with pytest.raises(ParameterError, match="search_budget = 5 does not pay"):
        search(PROBLEMS, Environment(), Writer("a"), budget=5, seed=0)
    with pytest.raises(ParameterError, match="at least one"):
        search([], Environment(), Writer("a"), budget=5, seed=0)


def test_validation_problems_are_a_seeded_subset():
    chosen = validation_problems(PROBLEMS, 3, seed=1)
    assert len(chosen) == 3 and chosen == validation_problems(PROBLEMS, 3, seed=1)
    assert [p.id for p in chosen] == sorted(p.id for p in chosen)
    assert len(validation_problems(PROBLEMS, 99, seed=1)) == 6


class Model:
    """Replies with the same text and remembers its prompts."""

    revision = "scripted"

    def __init__(self, text):
        self.text, self.prompts = text, []

    def sample(self, prompts, n, sampling, *, progress=None):
        self.prompts += [prompt[0]["content"] for prompt in prompts]
        return [[Completion(self.text, 4, "stop")] * n for _ in prompts]


FAILED = [Failed(PROBLEMS[0], Attempt("print(1)", 0, 2, "wrong_output", 3))]


def test_the_optimiser_sees_scores_from_worst_to_best_and_failed_programs():
    model = Model("Zero counts.")
    writer = OptimiserWriter(model, Sampling())
    assert writer.write([Scored("good", 0.8, 5), Scored(None, 0.2, 5)], FAILED, 2, 0) == ["Zero counts."] * 2
    text = model.prompts[0]
    assert text.index(f"{NOTHING}\nscore: 20") < text.index("good\nscore: 80") < text.index("print(1)")
    assert writer.tokens == 8


def test_the_tip_writer_asks_about_a_failed_problem():
    model = Model("Zero counts.")
    writer = TipWriter(model, Sampling())
    assert writer.write([], FAILED, 1, 0) == ["Zero counts."]
    assert writer.write([], [], 1, 0) == []
    assert len(model.prompts) == 1 and "Statement 0." in model.prompts[0]
    assert TipWriter(Model(" "), Sampling()).write([], FAILED, 1, 0) == []


def test_the_optimiser_sees_fewer_programs_where_more_do_not_fit(monkeypatch):
    failed = [Failed(problem, Attempt("print(1)", 0, 2, "wrong_output", 3)) for problem in PROBLEMS[:3]]
    history = [Scored(None, 0.2, 5)]

    def prompts(most):
        monkeypatch.setattr(
            "tipprobe.probes.generate.prompt_fits",
            lambda _, prompt: prompt[0]["content"].count("print(1)") <= most,
        )
        model = Model("Zero counts.")
        written = OptimiserWriter(model, Sampling()).write(history, failed, 1, 0)
        return written, [text.count("print(1)") for text in model.prompts]

    assert prompts(9) == (["Zero counts."], [2])
    assert prompts(1) == (["Zero counts."], [1])
    assert prompts(0) == (["Zero counts."], [0])
    assert prompts(-1) == ([], [])
