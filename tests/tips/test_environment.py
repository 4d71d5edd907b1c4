"""The coder with the sandbox behind it."""

import pytest

from tipprobe import prompts
from tipprobe.errors import DataError
from tipprobe.models.open import open_sampler
from tipprobe.models.types import Completion, PromptTooLong, Sampling
from tipprobe.problems.schema import Problem, Test
from tipprobe.sandbox import Sandbox
from tipprobe.tips.environment import CHUNK, TOO_LONG, CodeEnvironment

DOUBLE = Problem(
    "double", "Double the number.", tests=(Test("1\n", "2\n"), Test("2\n", "4\n"), Test("0\n", "0\n"))
)
CALL = Problem(
    "call",
    "Double x.",
    "call",
    entry_point="f",
    starter_code="def f(x):",
    tests=(Test("1", "2"), Test("2", "4")),
)
SUITE = Problem(
    "suite", "Double x.", "unittest", entry_point="f", test_code="assert f(2) == 4, 'not doubled'\n"
)
RIGHT = "```python\nprint(int(input()) * 2)\n```"
SQUARE = "```python\nprint(int(input()) ** 2)\n```"


class Coder:
    """Writes what a test says, by whether the prompt holds a tip."""

    revision = "scripted"

    def __init__(self, plain, guided=None, finish="stop"):
        self.plain, self.guided, self.finish, self.calls, self.seeds = plain, guided or plain, finish, 0, []

    def sample(self, prompts, n, sampling, *, progress=None):
        self.calls += len(prompts)
        self.seeds.append(sampling.seed)
        texts = [self.guided if prompt[0]["content"].startswith("Tip:") else self.plain for prompt in prompts]
        return [[Completion(text, 7, self.finish)] * n for text in texts]


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(1) as pool:
        yield pool


def environment(coder, sandbox, cache=None, **options):
    return CodeEnvironment(
        coder, sandbox, Sampling(temperature=0), time_limit_s=2, memory_mb=512, cache=cache, **options
    )


def test_all_tests_are_run_and_the_failed_ones_kept(sandbox):
    ((attempt,), (guided,)) = environment(Coder(SQUARE, RIGHT), sandbox).attempts(
        [(DOUBLE, None), (DOUBLE, "two times, not squared")]
    )
    assert (attempt.passed, attempt.n_tests, attempt.reason, attempt.solved) == (2, 3, "wrong_output", False)
    assert [(f.input, f.expected, f.got.strip()) for f in attempt.failures] == [("1\n", "2\n", "1")]
    assert guided.solved and guided.share == 1 and guided.failures == ()


@pytest.mark.parametrize(
    ("problem", "reply", "share", "reason", "got"),
    [
        (CALL, "```python\ndef f(x):\n    return x + 1\n```", 0.5, "wrong_output", "3"),
        (CALL, "```python\ndef f(x):\n    return x / 0\n```", 0.0, "runtime_error", "ZeroDivisionError"),
        (SUITE, "```python\ndef f(x):\n    return x\n```", 0.0, "wrong_output", "not doubled"),
        (SUITE, "```python\ndef f(x):\n    return x * 2\n```", 1.0, "passed", None),
    ],
)
def test_other_kinds_of_problems(sandbox, problem, reply, share, reason, got):
    ((attempt,),) = environment(Coder(reply), sandbox).attempts([(problem, None)])
    assert (attempt.share, attempt.reason) == (share, reason)
    assert got is None or got in attempt.failures[0].got


@pytest.mark.parametrize("reply", [RIGHT, SQUARE, "no code"])
def test_in_a_hurry_only_the_verdict_is_the_same(sandbox, reply, tmp_path):
    cache = tmp_path / "attempts.jsonl"
    coder = Coder(reply)
    ((slow,),) = environment(coder, sandbox, cache).attempts([(DOUBLE, None)])
    ((fast,),) = environment(coder, sandbox, cache, all_tests=False).attempts([(DOUBLE, None)])
    assert coder.calls == 2  # one outcome is not mistaken for the other
    assert (fast.solved, fast.reason, fast.n_tests) == (slow.solved, slow.reason, slow.n_tests)
    assert fast.passed in (0, 3) and fast.failures == ()


def test_a_reply_that_was_cut_is_not_run(sandbox):
    ((attempt,),) = environment(Coder(RIGHT, finish="length"), sandbox).attempts([(DOUBLE, None)])
    assert (attempt.program, attempt.passed, attempt.reason) == (None, 0, "truncated")


def test_nothing_is_asked_twice_not_even_by_the_next_process(sandbox, tmp_path):
    cache = tmp_path / "attempts.jsonl"
    coder = Coder(SQUARE, RIGHT)
    first = environment(coder, sandbox, cache)
    requests = [(DOUBLE, None), (DOUBLE, "a tip"), (DOUBLE, None)]
    before = first.attempts(requests, 2)
    assert (coder.calls, first.misses, first.hits) == (2, 2, 1)
    with cache.open("a") as file:
        file.write('{"key": "torn')
    later = environment(coder, sandbox, cache)
    assert later.attempts(requests, 2) == before
    assert coder.calls == 2
    later.attempts([(DOUBLE, "another tip")], 2)
    assert coder.calls == 3
    assert environment(coder, sandbox, cache).attempts([(DOUBLE, "another tip")], 2) and coder.calls == 3


def test_a_killed_run_draws_the_same_afterwards(sandbox, tmp_path):
    problems = [Problem(f"p{i}", "Double.", tests=DOUBLE.tests) for i in range(CHUNK + 3)]
    requests = [(problem, None) for problem in problems]
    whole, half = Coder(RIGHT), Coder(RIGHT)
    environment(whole, sandbox).attempts(requests)
    cache = tmp_path / "attempts.jsonl"
    environment(half, sandbox, cache).attempts(requests[:CHUNK])
    environment(half, sandbox, cache).attempts(requests)
    assert half.seeds == whole.seeds and len(set(whole.seeds)) == 2


def test_greedy_has_one_spelling_and_other_prompts_or_options_other_outcomes(sandbox, tmp_path, monkeypatch):
    assert Sampling.greedy(7) == Sampling.greedy(7) != Sampling(temperature=0, max_tokens=7)
    cache, coder = tmp_path / "attempts.jsonl", Coder(SQUARE)

    def calls():
        environment(coder, sandbox, cache).attempts([(DOUBLE, "a tip")])
        return coder.calls

    assert (calls(), calls()) == (1, 1)
    coder.chat_template_kwargs = {"enable_thinking": True}
    assert (calls(), calls()) == (2, 2)
    monkeypatch.setattr(prompts, "FOLDER", tmp_path)
    for name in ("tip", "code_stdin"):
        (tmp_path / f"{name}.txt").write_text("{tip} {request}" if name == "tip" else "Solve: {statement}")
    assert (calls(), calls()) == (3, 3)


class ShortSighted(Coder):
    """Reads prompts of up to so many characters, and says which were longer, as a server does."""

    def __init__(self, reply, longest):
        super().__init__(reply)
        self.longest = longest

    def sample(self, prompts, n, sampling, *, progress=None):
        found = super().sample(prompts, n, sampling)
        fits = [len(prompt[0]["content"]) <= self.longest for prompt in prompts]
        if not all(fits):
            groups = [group if fit else None for group, fit in zip(found, fits, strict=True)]
            raise PromptTooLong("too long", groups)
        return found


def test_a_tip_that_does_not_fit_has_failed_and_nobody_else(sandbox, tmp_path):
    cache = tmp_path / "attempts.jsonl"
    coder = ShortSighted(RIGHT, 300)
    requests = [(DOUBLE, None), (DOUBLE, "too " * 100), (DOUBLE, "two times")]
    groups = environment(coder, sandbox, cache).attempts(requests, 2)
    assert [[attempt.reason for attempt in group] for group in groups] == [
        ["passed"] * 2,
        [TOO_LONG] * 2,
        ["passed"] * 2,
    ]
    (attempt, _) = groups[1]
    assert (attempt.program, attempt.share, attempt.n_tests, attempt.n_tokens) == (None, 0, 3, 0)
    lines = cache.read_text()
    asked = coder.calls
    assert environment(coder, sandbox, cache).attempts(requests, 2) == groups
    assert (coder.calls, cache.read_text()) == (asked + 1, lines)
    coder.longest = 1000  # the server was started again
    found = environment(coder, sandbox, cache).attempts(requests, 2)
    assert found[1][0].reason == "passed" and found[::2] == groups[::2]
    asked = coder.calls
    assert environment(coder, sandbox, cache).attempts(requests, 2) == found and coder.calls == asked


def test_what_does_not_fit_moves_nobody_to_another_draw(sandbox, tmp_path):
    problems = [Problem(f"p{i}", "Double.", tests=DOUBLE.tests) for i in range(CHUNK + 3)]
    requests = [(problem, "too " * 100 if i == 5 else None) for i, problem in enumerate(problems)]
    whole, half = ShortSighted(RIGHT, 300), ShortSighted(RIGHT, 300)
    environment(whole, sandbox).attempts(requests)
    cache = tmp_path / "attempts.jsonl"
    environment(half, sandbox, cache).attempts(requests[:CHUNK])
    environment(half, sandbox, cache).attempts(requests)
    assert set(whole.seeds) < set(half.seeds) and half.seeds[-1] == whole.seeds[1]


def test_a_tip_is_not_blamed_for_a_problem_that_does_not_fit(sandbox, tmp_path):
    cache = tmp_path / "attempts.jsonl"
    short_sighted = environment(ShortSighted(RIGHT, 10), sandbox, cache)
    ((attempt,),) = short_sighted.attempts([(DOUBLE, None)])
    assert attempt.reason == TOO_LONG
    for _ in range(2):  # from the cache the second time
        with pytest.raises(
            DataError, match="'double' does not fit the coder's context, with a tip or without"
        ):
            environment(ShortSighted(RIGHT, 10), sandbox, cache).attempts([(DOUBLE, "a tip")])


def test_a_model_of_this_process_is_not_asked_what_does_not_fit(sandbox):
    coder = open_sampler("minicode-1m", device="cpu")
    requests = [(DOUBLE, None), (DOUBLE, "x " * 2000)]
    (plain,), (long,) = environment(coder, sandbox).attempts(requests)
    assert long.reason == TOO_LONG and plain.reason != TOO_LONG
    assert environment(coder, sandbox).attempts(requests[:1]) == [[plain]]


def test_half_a_character_in_tips_and_programs_is_kept(sandbox, tmp_path):
    cache = tmp_path / "attempts.jsonl"
    coder = Coder("```python\n# \ud83d\nprint(int(input()) * 2)\n```")
    ((attempt,),) = environment(coder, sandbox, cache).attempts([(DOUBLE, "a \ud83d tip")])
    assert attempt.solved and "\ud83d" in attempt.program
    assert environment(coder, sandbox, cache).attempts([(DOUBLE, "a \ud83d tip")]) == [[attempt]]
    assert coder.calls == 1
