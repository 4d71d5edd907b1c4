"""The embedded world: which problems exist, how programmers err on them, how problems fall into splits."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tipprobe.errors import ParameterError
from tipprobe.problems.minicode.ops import (
    ALL_OPS,
    ALL_TERMINALS,
    MAIN_OPS,
    MAIN_TERMINALS,
    TRANSFER_OPS,
    TRANSFER_TERMINALS,
)
from tipprobe.problems.minicode.programs import (
    LAYOUTS,
    Data,
    Deed,
    Spec,
    Step,
    draw_data,
    outcome,
    right_deeds,
    starter_code,
    statement,
    write_input,
    write_program,
)
from tipprobe.problems.schema import Problem, Test

#: Split -> how many problems `split` gives by default.
SPLITS = {"pretraining": 512, "sft": 256, "adaptation": 256, "transfer": 256, "heldout": 256}
#: Share of all operation sequences, in percent, by the hash of the sequence: [first, past the last).
BUCKETS = {
    "pretraining": (0, 70),
    "sft": (70, 80),
    "adaptation": (80, 90),
    "heldout": (90, 100),
    "transfer": (70, 100),
}
#: Weights of one, two and three list operations.  Under-specified problems are shorter, so that their success
#: turns on the open rule more than on the other steps.
LONG, SHORT = (3, 4, 3), (5, 4, 1)
N_EXAMPLES = 3
N_TESTS = 12
LEAD_INS = ("", "Careful: ", "Note: ", "Remember: ")


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """Knobs of the world's error structure and composition.

    Attributes:
        seed: draws which operations are misconceived how often, and which are hard.  The default was picked
            out of 24 because `estimate` puts it in the middle of the calibrated ranges on both splits.
        misconception_a: first parameter of the Beta distribution of misconception rates.
        misconception_b: second parameter; a small sum of both makes rates near 0 and near 1 frequent.
        slip_easy: rate at which another operation's code stands in for an easy one.
        slip_hard: the same for a hard one.
        hard_share: share of operations that are hard.
        hard_link: in [0, 1], how much hard operations are the ones with high misconception rates; 0 draws
            them independently.  Linked, a wrong majority is less often unanimous.
        guess_low: rate of the common wrong guess at an open rule, lowest operation.
        guess_high: the same, highest operation; the others are spaced evenly between.
        underspecified_share: share of problems with one operation whose rule the statement leaves open.
        call_share: share of call problems, the others read standard input.
        follow: probability that a tip about a step is followed.
    """

    seed: int = 22
    misconception_a: float = 0.15
    misconception_b: float = 0.4
    slip_easy: float = 0.02
    slip_hard: float = 0.6
    hard_share: float = 0.3
    hard_link: float = 0.6
    guess_low: float = 0.65
    guess_high: float = 0.85
    underspecified_share: float = 0.2
    call_share: float = 0.4
    follow: float = 0.97


@dataclass(frozen=True, slots=True)
class Rates:
    """How often programmers err at one operation: by its misconception, and by slipping into other code."""

    misconception: float
    slip: float


@lru_cache(maxsize=8)
def error_rates(config: WorldConfig) -> dict[str, Rates]:
    """Return the error rates of every operation, by name.

    Rates are evenly spaced quantiles in shuffled order rather than independent draws, apart for each group of
    operations, so that two seeds give worlds of about the same difficulty.
    """
    rng = np.random.default_rng([config.seed, 17])
    beta = np.random.default_rng(17).beta(config.misconception_a, config.misconception_b, 50_000)
    rates: dict[str, Rates] = {}
    for group in (MAIN_OPS, MAIN_TERMINALS, TRANSFER_OPS, TRANSFER_TERMINALS):
        plain = [op.name for op in group if not op.open]
        levels = (np.arange(len(plain)) + 0.5) / len(plain)
        order = rng.permutation(levels)
        wrong = np.quantile(beta, order)
        proneness = config.hard_link * order + (1 - config.hard_link) * rng.permutation(levels)
        hard = np.argsort(np.argsort(-proneness)) < round(config.hard_share * len(plain))
        for name, rate, is_hard in zip(plain, wrong, hard, strict=True):
            rates[name] = Rates(float(rate), config.slip_hard if is_hard else config.slip_easy)
        unsaid = [op.name for op in group if op.open]
        for name, rate in zip(
            unsaid, np.linspace(config.guess_low, config.guess_high, len(unsaid)), strict=True
        ):
            rates[name] = Rates(float(rate), config.slip_easy)
    return rates


def draw_spec(
    config: WorldConfig, rng: random.Random, split: str, underspecified: float | None = None
) -> Spec:
    """Return a random specification; whether its sequence belongs to `split` is for `in_split` to say.

    `underspecified` takes the place of the share in `config`.
    """
    if split == "transfer":
        ops, terminals = TRANSFER_OPS, TRANSFER_TERMINALS
    elif split == "pretraining":
        ops, terminals = ALL_OPS, ALL_TERMINALS
    else:
        ops, terminals = MAIN_OPS, MAIN_TERMINALS
    unsaid = rng.random() < (config.underspecified_share if underspecified is None else underspecified)
    n_ops = rng.choices((1, 2, 3), SHORT if unsaid else LONG)[0]
    chosen = rng.sample([op for op in ops if not op.open], n_ops)
    chosen.append(rng.choice([op for op in terminals if not op.open]))
    if unsaid:
        place = rng.choice((rng.randrange(n_ops), n_ops))
        chosen[place] = rng.choice([op for op in (terminals if place == n_ops else ops) if op.open])
    layout = "call" if rng.random() < config.call_share else rng.choice(list(LAYOUTS))
    with_k = [i for i, op in enumerate(chosen) if op.ks]
    argument = rng.choice(with_k) if layout == "call" and with_k and rng.random() < 0.6 else -1
    steps = tuple(
        Step(op, "k" if i == argument else str(rng.choice(op.ks)) if op.ks else "")
        for i, op in enumerate(chosen)
    )
    return Spec(layout, steps, tuple(rng.randrange(12) for _ in range(len(steps) + 2)))


def in_split(spec: Spec, split: str) -> bool:
    """Return whether the sequence of operations belongs to `split`: splits share no sequence.

    Sequences made of transfer operations alone are kept from the SFT, adaptation and held-out splits by the
    operations they use, and from pretraining by their hash.
    """
    bucket = int.from_bytes(hashlib.sha256(spec.key.encode()).digest()[:4], "big") % 100
    first, past = BUCKETS[split]
    return first <= bucket < past


def specs(
    config: WorldConfig, rng: random.Random, split: str, underspecified: float | None = None
) -> Iterator[Spec]:
    """Yield endless specifications of one split; for `underspecified` see `draw_spec`."""
    while True:
        spec = draw_spec(config, rng, split, underspecified)
        if in_split(spec, split):
            yield spec


@dataclass(frozen=True, slots=True)
class Tip:
    """A tip as it stands in a prompt, with what it does: makes `op` right or wrong (None: nothing here)."""

    text: str
    op: str | None = None
    right: bool = True


def draw_tip(step: Step, right: bool, rng: random.Random) -> Tip:
    """Return a right or a misleading tip about `step`."""
    sentence = (step.op.rule if right else step.op.wrong_rule).format(k=step.k)
    lead_in = rng.choice(LEAD_INS)
    return Tip(
        f"{lead_in}{sentence if lead_in else sentence[:1].upper() + sentence[1:]}.", step.op.name, right
    )


def draw_deeds(
    spec: Spec, config: WorldConfig, rng: random.Random, tip: Tip | None = None, top_p: float = 1.0
) -> list[Deed]:
    """Return what one programmer's attempt does, errors included.

    With `top_p` below 1 the attempt is that of a sampler which cuts off each choice's unlikely tail.
    """
    rates = error_rates(config)
    deeds: list[Deed] = []
    for step in spec.steps:
        wrong, slip = rates[step.op.name].misconception, rates[step.op.name].slip
        if tip is not None and tip.op == step.op.name:
            wrong = 1 - config.follow if tip.right else config.follow
            slip = config.slip_easy
        if rng.random() < sharpen(slip, len(ALL_OPS) - 1, top_p):
            deeds.append(draw_slip(step, rng))
        else:
            deeds.append((step.op, step.k, rng.random() < sharpen(wrong, 1, top_p)))
    return deeds


def sharpen(rate: float, others: int, top_p: float) -> float:
    """Return the rate that a nucleus of mass `top_p` makes of a deviation spread over `others` choices."""
    if top_p >= 1:
        return rate
    shares = sorted([(1 - rate, 0)] + [(rate / others, 1)] * others, reverse=True)
    kept, mass = [0.0, 0.0], 0.0
    for share, which in shares:
        if mass >= top_p:
            break
        mass += share
        kept[which] += share
    return kept[1] / mass


def draw_slip(step: Step, rng: random.Random) -> Deed:
    """Return another operation's deed in place of `step`'s."""
    group = ALL_OPS if step.op.result is None else ALL_TERMINALS
    other = rng.choice([op for op in group if op is not step.op])
    k = "" if not other.ks else step.k or str(rng.choice(other.ks))
    return other, k, rng.random() < 0.5


def with_misconception(spec: Spec, name: str) -> list[Deed]:
    """Return the deeds of a program whose only error is the misconception of operation `name`."""
    return [(step.op, step.k, step.op.name == name) for step in spec.steps]


def choose_tests(spec: Spec, rng: random.Random) -> tuple[list[Data], list[Data], list[str]] | None:
    """Return example inputs, hidden inputs and the operations whose misconception the hidden inputs catch.

    Two inputs that expose each misconception come first, the rest is random.  None if the problem is dull:
    its output hardly depends on the input, or nothing tells an open rule from the common guess.
    """
    right = right_deeds(spec)
    pool = list(dict.fromkeys(draw_data(spec, rng, plain=i < 16) for i in range(64)))
    answers = {data: outcome(spec, right, data) for data in pool}
    most_frequent = max(list(answers.values()).count(answer) for answer in set(answers.values()))
    if len(pool) < N_EXAMPLES + N_TESTS + 5 or most_frequent > 0.6 * len(pool):
        return None
    examples, rest = pool[:N_EXAMPLES], pool[N_EXAMPLES:]
    hidden: list[Data] = []
    pitfalls: list[str] = []
    for step in spec.steps:
        wrong = with_misconception(spec, step.op.name)
        exposing = [data for data in rest if outcome(spec, wrong, data) != answers[data]]
        if exposing:
            pitfalls.append(step.op.name)
            hidden += rng.sample(exposing, min(2, len(exposing)))
        elif step.op.open:
            return None
    hidden = list(dict.fromkeys(hidden))
    others = [data for data in rest if data not in hidden]
    return examples, hidden + rng.sample(others, N_TESTS - len(hidden)), pitfalls


def make_problem(
    spec: Spec, problem_id: str, split: str, config: WorldConfig, rng: random.Random
) -> Problem | None:
    """Return a specification's problem with tests and meta data, None if it is too dull to test anything."""
    chosen = choose_tests(spec, rng)
    if chosen is None:
        return None
    examples, hidden, pitfalls = chosen
    right = right_deeds(spec)
    rates = error_rates(config)
    opened = [step for step in spec.steps if step.op.open]
    prone = [step for step in spec.steps if step.op.name in pitfalls]
    about = (
        opened[0] if opened else max(prone, key=lambda step: rates[step.op.name].misconception, default=None)
    )
    meta = {
        "split": split,
        "ops": [step.op.name for step in spec.steps],
        "params": [step.k for step in spec.steps],
        "layout": spec.layout,
        "difficulty": "hard" if any(rates[s.op.name].slip > config.slip_easy for s in spec.steps) else "easy",
        "underspecified": bool(opened),
        "pitfalls": pitfalls,
    }
    if about is not None:
        meta |= {
            "tip_about": about.op.name,
            "tip": draw_tip(about, True, rng).text,
            "wrong_tip": draw_tip(about, False, rng).text,
        }
    if opened:
        meta["rule"] = about.op.rule.format(k=about.k)
    return Problem(
        id=problem_id,
        statement=statement(spec),
        kind=spec.kind,
        entry_point="solve" if spec.kind == "call" else None,
        starter_code=starter_code(spec),
        examples=tuple(Test(write_input(spec, d), outcome(spec, right, d)) for d in examples),
        tests=tuple(Test(write_input(spec, d), outcome(spec, right, d)) for d in hidden),
        reference=write_program(spec, right, rng),
        meta=meta,
    )


def split_with_specs(
    name: str, n: int | None = None, seed: int = 0, config: WorldConfig | None = None
) -> list[tuple[Problem, Spec]]:
    """Return the problems of a split together with their specifications; see `split`."""
    if name not in SPLITS:
        raise ParameterError(f"unknown minicode split {name!r}; there are: {', '.join(SPLITS)}")
    n = SPLITS[name] if n is None else n
    if n < 0:
        raise ParameterError(f"minicode split {name!r}: n is {n}, it must be 0 or more")
    config = config or WorldConfig()
    rng = random.Random(f"minicode/{name}/{seed}")
    found: list[tuple[Problem, Spec]] = []
    seen: set[str] = set()
    for spec in specs(config, rng, name):
        if len(found) >= n:
            break
        if spec.key in seen:
            continue
        problem = make_problem(spec, f"minicode/{name}/{len(found):04d}", name, config, rng)
        if problem is not None:
            seen.add(spec.key)
            found.append((problem, spec))
    return found


def split(name: str, n: int | None = None, seed: int = 0) -> list[Problem]:
    """Return the first `n` problems of a split, the same for the same `seed`; a smaller `n` gives a prefix.

    No sequence of operations occurs twice, in one split or in two.  ``transfer`` uses operations that none of
    ``sft``, ``adaptation`` and ``heldout`` uses; the coder met them in pretraining.

    Raises:
        ParameterError: no such split, or a negative `n`.
    """
    return [problem for problem, _ in split_with_specs(name, n, seed)]
