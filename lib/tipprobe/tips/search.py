"""Searching one instruction for all problems: OPRO and GEPA, the baselines that know nothing of the problem.

Both are scored by the same thing as the proposer's reward: the share of tests that the frozen coder's greedy
program passes with the instruction, over validation problems.  Test problems are never looked at, and what a
search spends is counted in guided programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tipprobe.errors import ParameterError
from tipprobe.models.open import sample_fitting
from tipprobe.models.types import Prompt, Sampler, Sampling
from tipprobe.probes.rng import keyed_rng, keyed_seed
from tipprobe.problems.schema import Problem
from tipprobe.prompts import fill, user_prompt
from tipprobe.tips.environment import Attempt, CodeEnvironment
from tipprobe.tips.propose import propose_tips, read_tip

#: Instructions that one round of OPRO asks for, past ones and failed programs that its prompt shows.
PER_ROUND, SHOWN, SHOWN_FAILED = 4, 8, 2
#: Rounds without a new instruction after which OPRO gives up.
PATIENCE = 5
#: GEPA may look at an instruction on a problem this many times its budget, repeated looks included.
LOOKS = 4
#: Problems on which GEPA compares an instruction with its parent.
MINIBATCH = 4
#: What stands for "no instruction" in a prompt's history.
NOTHING = "(no instruction)"
COMPONENT = "instruction"


@dataclass(frozen=True, slots=True)
class Scored:
    """An instruction (None: none at all) with its mean share of tests passed over `n` problems."""

    instruction: str | None
    score: float
    n: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A problem that the coder failed, with what it wrote: material for a better instruction."""

    problem: Problem
    attempt: Attempt


class Writer(Protocol):
    """Writes new instructions."""

    def write(self, history: Sequence[Scored], failed: Sequence[Failed], n: int, seed: int) -> list[str]:
        """Return up to `n` instructions; fewer where replies held none."""
        ...


@dataclass(slots=True)
class TipWriter:
    """Proposes a problem's tip as the instruction for all.

    For models that can write tips and nothing else, such as the embedded coder.  It reads neither scores nor
    programs, so a search with it is a random search among tips of failed problems.

    Attributes:
        sampler: writes the tips.
        sampling: temperature above 0, or every call gives the same.
        tokens: generated so far.
    """

    sampler: Sampler
    sampling: Sampling
    tokens: int = 0

    def write(self, history: Sequence[Scored], failed: Sequence[Failed], n: int, seed: int) -> list[str]:
        """See `Writer.write`; needs at least one failed problem."""
        if not failed:
            return []
        order = keyed_rng("tip writer", seed).permutation(max(n, len(failed)))[:n] % len(failed)
        problems = [failed[i].problem for i in order]
        groups = propose_tips(self.sampler, problems, replace(self.sampling, seed=seed))
        self.tokens += sum(group[0].n_tokens for group in groups)
        return [group[0].tip for group in groups if group[0].tip is not None]


@dataclass(slots=True)
class OptimiserWriter:
    """Asks an instruction model for a better instruction, shown past ones with scores and failed programs.

    Attributes:
        sampler: the optimiser.
        sampling: temperature above 0.
        tokens: generated so far.
    """

    sampler: Sampler
    sampling: Sampling
    tokens: int = 0

    def write(self, history: Sequence[Scored], failed: Sequence[Failed], n: int, seed: int) -> list[str]:
        """See `Writer.write`; past instructions are shown from worst to best.

        Failed programs are left out where the prompt would not fit the optimiser's context; if it does not
        fit without any, there is no instruction.
        """
        for examples in range(min(len(failed), SHOWN_FAILED), -1, -1):
            prompt = _opro_prompt(history, failed[:examples])
            (replies,) = sample_fitting(self.sampler, [prompt], n, replace(self.sampling, seed=seed))
            if replies is not None:
                break
        self.tokens += sum(reply.n_tokens for reply in replies or ())
        read = [read_tip(reply) for reply in replies or ()]
        return [proposal.tip for proposal in read if proposal.tip is not None]


def _opro_prompt(history: Sequence[Scored], failed: Sequence[Failed]) -> Prompt:
    best = sorted(history, key=lambda scored: scored.score)[-SHOWN:]
    return user_prompt(
        fill(
            "opro",
            history="\n\n".join(f"{s.instruction or NOTHING}\nscore: {100 * s.score:.0f}" for s in best),
            failed="\n\n".join(_describe(one) for one in failed) or "(none)",
        )
    )


def _describe(failed: Failed) -> str:
    lines = [failed.problem.statement, "", failed.attempt.program or "(no program)"]
    for failure in failed.attempt.failures[:1]:
        lines += ["", f"input: {failure.input}", f"expected: {failure.expected}", f"got: {failure.got}"]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Search:
    """Outcome of a search.

    Attributes:
        instruction: the best one, None if no instruction beat the bare problem.
        score: its mean share of tests passed on the validation problems.
        history: everything that was scored on all validation problems, in order; the first is no instruction.
        programs: guided programs spent.
        tokens: tokens that the writer generated.
    """

    instruction: str | None
    score: float
    history: tuple[Scored, ...]
    programs: int
    tokens: int

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready record."""
        history = [{"instruction": s.instruction, "score": s.score, "n": s.n} for s in self.history]
        return {
            "instruction": self.instruction,
            "score": self.score,
            "programs": self.programs,
            "tokens": self.tokens,
            "history": history,
        }


@dataclass(slots=True)
class _Scorer:
    """Scores instructions and keeps the bill; a pair that was seen before costs nothing again."""

    environment: CodeEnvironment
    programs: int = 0
    seen: dict[tuple[str, str | None], Attempt] = field(default_factory=dict)

    def attempts(self, problems: Sequence[Problem], instruction: str | None) -> list[Attempt]:
        unseen = {p.id: p for p in problems if (p.id, instruction) not in self.seen}
        new = list(unseen.values())
        found = self.environment.attempts([(problem, instruction) for problem in new])
        self.programs += len(new)
        self.seen.update({(p.id, instruction): a for p, (a,) in zip(new, found, strict=True)})
        return [self.seen[problem.id, instruction] for problem in problems]

    def score(self, problems: Sequence[Problem], instruction: str | None) -> Scored:
        shares = [attempt.share for attempt in self.attempts(problems, instruction)]
        return Scored(instruction, sum(shares) / len(shares), len(shares))


def validation_problems(problems: Sequence[Problem], n: int, seed: int) -> list[Problem]:
    """Return `n` of the problems (fewer if there are not as many) to choose an instruction on.

    Args:
        problems: never those that methods are compared on.
        n: how many, a seeded subset in the given order.
        seed: of the subset.
    """
    chosen = sorted(keyed_rng("validation problems", seed).permutation(len(problems))[:n])
    return [problems[i] for i in chosen]


def _check(problems: Sequence[Problem], budget: int) -> None:
    if not problems:
        raise ParameterError("a search for an instruction needs at least one validation problem")
    if budget < len(problems):
        raise ParameterError(
            f"search_budget = {budget} does not pay for one look at the {len(problems)} validation problems"
        )


def opro(
    problems: Sequence[Problem], environment: CodeEnvironment, writer: Writer, *, budget: int, seed: int
) -> Search:
    """Search by optimisation through prompting: write instructions, score them, show the scores, repeat.

    Args:
        problems: validation problems; every instruction is scored on all of them.
        environment: the frozen coder, greedy.
        writer: writes instructions.
        budget: guided programs that may be spent; the last round may fall short of it, never beyond.
        seed: of what the writer draws.

    Raises:
        ParameterError: there is no problem, or the budget does not cover a single instruction.
    """
    _check(problems, budget)
    scorer = _Scorer(environment)
    history = [scorer.score(problems, None)]
    number = silent = 0
    while (left := (budget - scorer.programs) // len(problems)) > 0 and silent < PATIENCE:
        best = max(history, key=lambda scored: scored.score)
        attempts = scorer.attempts(problems, best.instruction)
        failed = [Failed(p, a) for p, a in zip(problems, attempts, strict=True) if not a.solved]
        if not failed:
            break
        order = keyed_rng("opro", seed, number).permutation(len(failed))
        written = writer.write(
            history, [failed[i] for i in order], min(PER_ROUND, left), keyed_seed("opro", seed, number)
        )
        number += 1
        known = {scored.instruction for scored in history}
        new = [text for text in dict.fromkeys(written) if text not in known]
        history += [scorer.score(problems, text) for text in new]
        silent = 0 if new else silent + 1
    return _outcome(history, scorer, writer)


def gepa(
    problems: Sequence[Problem], environment: CodeEnvironment, writer: Writer, *, budget: int, seed: int
) -> Search:
    """Search by reflective evolution, with the `gepa` library: mutate an instruction that is best somewhere.

    The library keeps the Pareto front over validation problems, compares a mutated instruction with its
    parent on a few problems, and scores it on all of them only if it does better there.  The writer takes the
    part of the reflection model.

    Args:
        problems, environment, writer, seed: as in `opro`.
        budget: guided programs that may be spent; a pair that was seen before costs nothing, as in `opro`.
            The library looks at the bill between rounds only and may go over it by one round.

    Raises:
        ParameterError: as in `opro`.
        TipprobeError: whatever environment or writer raises.
    """
    from gepa import optimize
    from gepa.core.adapter import EvaluationBatch

    _check(problems, budget)
    scorer = _Scorer(environment)
    by_id = {problem.id: problem for problem in problems}
    history: list[Scored] = []

    class Adapter:
        """What the library needs to know of coder and tests."""

        propose_new_texts = None

        def evaluate(
            self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False
        ) -> EvaluationBatch[dict[str, Any], Attempt]:
            chosen = [by_id[problem_id] for problem_id in batch]
            attempts = scorer.attempts(chosen, candidate[COMPONENT] or None)
            shares = [attempt.share for attempt in attempts]
            if set(batch) == set(by_id):
                history.append(Scored(candidate[COMPONENT] or None, sum(shares) / len(shares), len(shares)))
            traces = [{"problem_id": problem_id} for problem_id in batch] if capture_traces else None
            return EvaluationBatch(outputs=attempts, scores=shares, trajectories=traces)

        def make_reflective_dataset(
            self, candidate: dict[str, str], evaluated: Any, components: list[str]
        ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
            pairs = zip(evaluated.trajectories, evaluated.outputs, strict=True)
            return {COMPONENT: [{**trace, "solved": attempt.solved} for trace, attempt in pairs]}

    calls = 0
    # The library takes a proposer that raises for one that found nothing, asks it again and goes on.
    faults: list[Exception] = []

    def mutate(
        candidate: dict[str, str], dataset: Mapping[str, Sequence[Mapping[str, Any]]], components: list[str]
    ) -> dict[str, str]:
        nonlocal calls
        if faults:
            raise faults[0]
        calls += 1
        try:
            return reworded(candidate, dataset)
        except Exception as fault:
            faults.append(fault)
            raise

    def reworded(
        candidate: dict[str, str], dataset: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> dict[str, str]:
        parent = candidate[COMPONENT] or None
        chosen = [by_id[record["problem_id"]] for record in dataset[COMPONENT] if not record["solved"]]
        failed = [Failed(p, a) for p, a in zip(chosen, scorer.attempts(chosen, parent), strict=True)]
        known = [scored for scored in history if scored.instruction == parent]
        written = writer.write(known, failed, 1, keyed_seed("gepa", seed, calls))
        return {COMPONENT: written[0] if written else candidate[COMPONENT]}

    ids = list(by_id)
    optimize(
        seed_candidate={COMPONENT: ""},
        trainset=ids,
        valset=ids,
        adapter=Adapter(),
        custom_candidate_proposer=mutate,
        reflection_minibatch_size=min(MINIBATCH, len(ids)),
        # Looks that cost nothing count here; without a limit a writer that repeats itself would never end.
        max_metric_calls=LOOKS * budget,
        stop_callbacks=[lambda _: bool(faults) or scorer.programs >= budget],
        logger=_Silent(),
        seed=seed,
    )
    if faults:
        raise faults[0]
    unique = {scored.instruction: scored for scored in history}
    return _outcome(list(unique.values()), scorer, writer)


class _Silent:
    """The library narrates every round; a notebook shows the history instead."""

    def log(self, message: str) -> None:
        pass


def _outcome(history: Sequence[Scored], scorer: _Scorer, writer: Writer) -> Search:
    best = max(history, key=lambda scored: scored.score)  # of equals the earliest
    tokens = getattr(writer, "tokens", 0)
    return Search(best.instruction, best.score, tuple(history), scorer.programs, tokens)
