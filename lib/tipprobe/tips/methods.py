"""What each test-time method adds to the base program: whose tip, in which prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tipprobe.models.types import Prompt, Sampler, Sampling
from tipprobe.problems.schema import Problem, write_jsonl
from tipprobe.prompts import code_prompt, tip_request_prompt
from tipprobe.tips.latency import Timed
from tipprobe.tips.propose import Proposal, RequestStyle, propose_tips
from tipprobe.tips.trials import critique_prompt, critiques, revision_prompt

#: Length of a prompt in tokens, None if nobody can count.
CountTokens = Callable[[Prompt], int | None]


def prompt_counter(sampler: Sampler) -> CountTokens:
    """Return what counts the tokens of a prompt as the model reads it; a server's tokenizer is not here."""
    from tipprobe.models.transformers_sampler import TransformersSampler, encode_prompt  # imports torch

    if not isinstance(sampler, TransformersSampler):
        return lambda prompt: None
    return lambda prompt: len(encode_prompt(sampler.tokenizer, prompt, sampler.chat_template_kwargs))


@dataclass(frozen=True)
class Added:
    """One method's tips and guided prompts, by problem id: one for all runs, or one a run.

    Attributes:
        tips: who wrote what; a proposal without a tip adds no program.
        prompts: guided prompts, the plain ones where there is no tip.
        asked: tokens of the prompts that asked for the tips, 0 where nobody was asked about this problem,
            None where nobody counted.
    """

    tips: dict[str, list[Proposal]]
    prompts: dict[str, list[Prompt]]
    asked: dict[str, list[int | None]]

    def prompt_tokens(self, count: CountTokens) -> dict[str, list[int | None]]:
        """Return the lengths of the guided prompts."""
        return {key: [count(prompt) for prompt in prompts] for key, prompts in self.prompts.items()}


def by_proposer(
    proposer: Sampler,
    problems: Sequence[Problem],
    sampling: Sampling,
    count: CountTokens,
    *,
    style: RequestStyle = "short",
) -> Added:
    """Return what a proposer adds: one tip a problem, written from the statement alone.

    Args:
        proposer: untrained for Self-Hint, trained for TipCoder.
        problems: whom tips are for.
        sampling: of the tips; temperature 0 in the paper's evaluation.
        count: counts the proposer's prompt tokens.
        style: wording of the request.
    """
    groups = propose_tips(proposer, problems, sampling, style=style)
    return Added(
        {problem.id: group for problem, group in zip(problems, groups, strict=True)},
        {
            problem.id: [code_prompt(problem, group[0].tip)]
            for problem, group in zip(problems, groups, strict=True)
        },
        {problem.id: [count(tip_request_prompt(problem, style))] for problem in problems},
    )


def by_instruction(instruction: str | None, problems: Sequence[Problem]) -> Added:
    """Return what a searched instruction adds: the same one everywhere, nothing if the search found none."""
    proposal = Proposal(instruction, "ok" if instruction else "none found", 0, instruction or "")
    return Added(
        {problem.id: [proposal] for problem in problems},
        {problem.id: [code_prompt(problem, instruction)] for problem in problems},
        {problem.id: [0] for problem in problems},
    )


def by_critique(
    critic: Sampler,
    problems: Sequence[Problem],
    programs: Mapping[str, Sequence[str | None]],
    sampling: Sampling,
    count: CountTokens,
    *,
    style: RequestStyle = "short",
) -> Added:
    """Return what a critic adds: its remark on each run's base program, which nobody has run.

    Args:
        critic: reads statement and program.
        problems: whom the programs are for.
        programs: base programs by problem, one a run.
        sampling: of the critiques.
        count: counts the critic's prompt tokens.
        style: wording of the revision's prompt (`revision_prompt`).
    """
    flat = [(problem, program) for problem in problems for program in programs[problem.id]]
    found = critiques(critic, [p for p, _ in flat], [program for _, program in flat], sampling)
    tips: dict[str, list[Proposal]] = {problem.id: [] for problem in problems}
    prompts: dict[str, list[Prompt]] = {problem.id: [] for problem in problems}
    asked: dict[str, list[int | None]] = {problem.id: [] for problem in problems}
    for (problem, program), critique in zip(flat, found, strict=True):
        useless = program is None or critique.tip is None
        tips[problem.id].append(critique)
        prompts[problem.id].append(
            code_prompt(problem) if useless else revision_prompt(problem, program, critique.tip, style)
        )
        asked[problem.id].append(0 if program is None else count(critique_prompt(problem, program)))
    return Added(tips, prompts, asked)


def timed_methods(
    methods: Sequence[str],
    proposers: Mapping[str, Sampler],
    instructions: Mapping[str, str | None],
    critic: Sampler | None,
    sampling: Sampling,
    style: RequestStyle,
) -> dict[str, Timed]:
    """Return how `tipprobe.tips.latency.measure_latency` times each method.

    Args:
        methods: keys of `tipprobe.tips.trials.TITLES`.
        proposers: who writes the tips of the methods that ask for one.
        instructions: those of the searches.
        critic: of the method ``ctrl``.
        sampling: of tips and critiques.
        style: wording of the requests.
    """

    def proposed(proposer: Sampler) -> Callable[[Problem, str | None], Prompt | None]:
        def propose(problem: Problem, _: str | None) -> Prompt | None:
            ((proposal,),) = propose_tips(proposer, [problem], sampling, style=style)
            return None if proposal.tip is None else code_prompt(problem, proposal.tip)

        return propose

    def fixed(instruction: str | None) -> Callable[[Problem, str | None], Prompt | None]:
        return lambda problem, _: None if instruction is None else code_prompt(problem, instruction)

    def criticised(problem: Problem, program: str | None) -> Prompt | None:
        (critique,) = critiques(critic, [problem], [program], sampling)
        if program is None or critique.tip is None:
            return None
        return revision_prompt(problem, program, critique.tip, style)

    found = {"base": Timed(), "best_of_2": Timed(samples=2), "ctrl": Timed(1, criticised, True)}
    found |= {name: Timed(1, proposed(proposer)) for name, proposer in proposers.items()}
    found |= {name: Timed(1, fixed(instruction)) for name, instruction in instructions.items()}
    return {name: found[name] for name in methods}


def write_tips(path: Path, added: Mapping[str, Added]) -> None:
    """Write one record a method, problem and tip: everything that was proposed, useless replies included."""
    records: list[dict[str, Any]] = []
    for method, entry in added.items():
        for problem_id, proposals in entry.tips.items():
            for number, proposal in enumerate(proposals):
                records.append(
                    {"method": method, "problem_id": problem_id, "number": number, **asdict(proposal)}
                )
    write_jsonl(path, records)
