"""Asking a model for tips, before any program is written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tipprobe.models.types import Completion, Sampler, Sampling
from tipprobe.problems.schema import Problem
from tipprobe.prompts import RequestStyle, tip_request_prompt
from tipprobe.sandbox.extract import answer_of

__all__ = ["Proposal", "Reason", "RequestStyle", "proposal_counts", "propose_tips", "read_tip"]

#: What a reply to a request for a tip may be.
READ = ("ok", "empty", "cut")
#: The same, or why nobody was asked.
Reason = Literal["ok", "empty", "cut", "no_code", "none found"]
_LABEL = re.compile(r"^(?:[*_#]*\s*)tips?\s*:[*_]*\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One tip that a proposer wrote.

    Attributes:
        tip: the tip's text, None if there is none (then the coder gets the problem as it is).
        reason: ``ok``, ``empty`` (nothing but blanks or a label), ``cut`` (the reply reached its token limit,
            or ended before its reasoning did; half a sentence may say the opposite of the whole), ``no_code``
            (there was no program to remark on) or ``none found`` (a search found no instruction).
        n_tokens: length of the reply in tokens.
        reply: what the proposer wrote.
    """

    tip: str | None
    reason: Reason
    n_tokens: int
    reply: str


def read_tip(completion: Completion) -> Proposal:
    """Return the tip in a reply: without reasoning, a leading label such as ``Tip:`` and blanks around it."""
    answer = answer_of(completion.text)
    if answer is None or completion.finish_reason == "length":
        return Proposal(None, "cut", completion.n_tokens, completion.text)
    text = _LABEL.sub("", answer.strip()).strip()
    if not any(character.isalnum() for character in text):
        return Proposal(None, "empty", completion.n_tokens, completion.text)
    return Proposal(text, "ok", completion.n_tokens, completion.text)


def propose_tips(
    sampler: Sampler,
    problems: Sequence[Problem],
    sampling: Sampling,
    n: int = 1,
    *,
    style: RequestStyle = "short",
    progress: Callable[[int, int], None] | None = None,
) -> list[list[Proposal]]:
    """Return `n` proposals for each problem; the proposer sees the statement alone.

    Raises:
        DataError: a prompt does not fit the proposer's context.
    """
    prompts = [tip_request_prompt(problem, style) for problem in problems]
    replies = sampler.sample(prompts, n, sampling, progress=progress)
    return [[read_tip(reply) for reply in group] for group in replies]


def proposal_counts(proposals: Sequence[Sequence[Proposal]]) -> dict[str, int]:
    """Return the number of proposals by reason: `READ` in any case, others where they occur."""
    found = Counter(proposal.reason for group in proposals for proposal in group)
    return {reason: found[reason] for reason in dict.fromkeys((*READ, *sorted(found)))}
