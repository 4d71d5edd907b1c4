"""Using a proposer: propose, write one program without and one with the tip, select.  No test is needed.

It is what notebook 07 does in steps, with grades in between: the same functions, for whoever has problems and
no hidden tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tipprobe.errors import DataError
from tipprobe.models.types import Completion, Sampler, Sampling
from tipprobe.problems.schema import Problem
from tipprobe.prompts import RequestStyle, code_prompt
from tipprobe.sandbox import program_of
from tipprobe.selection.types import Selection, Selector
from tipprobe.tips.methods import by_proposer, prompt_counter
from tipprobe.tips.trials import Branch, Trial, base_trials, guided_trials, select_trials

#: What trials are called that are made here; they stand in no table of methods.
METHOD = "tip"


@dataclass(frozen=True, slots=True)
class Solution:
    """A program for one problem, and everything that led to it.

    Attributes:
        trial: the candidates, the base program first, with tip, prompt and reply lengths; nothing is graded.
            It holds the base program alone where there was no tip.
        selection: the choice among them, every score, and what selecting cost.
    """

    trial: Trial
    selection: Selection

    @property
    def chosen(self) -> Branch:
        """The selected candidate."""
        return self.trial.branches[self.selection.index]

    @property
    def program(self) -> str | None:
        """The selected program, None if no reply held one."""
        return self.chosen.program

    @property
    def tip(self) -> str | None:
        """The tip that was proposed, None if there was none."""
        return self.trial.branches[-1].tip

    @property
    def tokens(self) -> int | None:
        """Tokens read and written by proposer, coder and reward model; None if nobody counted a prompt."""
        return None if self.trial.tokens is None else self.trial.tokens + self.selection.tokens_scored


def solve(
    problems: Problem | Iterable[Problem],
    proposer: Sampler,
    coder: Sampler,
    selector: Selector,
    *,
    sampling: Sampling,
    tip_sampling: Sampling,
    style: RequestStyle = "short",
) -> Solution | list[Solution]:
    """Solve problems with a tip's help: one tip, one program without and one with it, and a choice.

    Args:
        problems: one, or several with different ids; only statements are read.
        proposer: writes the tips.
        coder: writes the programs.
        selector: chooses, such as `tipprobe.selection.RewardSelector`.
        sampling: of the programs.
        tip_sampling: of the tips, such as `Sampling.greedy(48)`.
        style: wording of the request for a tip, the one that the proposer was trained with.

    Returns:
        A solution, or for a sequence a solution a problem, in order.  The same call gives the same.

    Raises:
        DataError: two problems share an id, or a prompt does not fit a model's context.

    Example:
        >>> selector = RewardSelector(load_reward_model("minicode-rm-1m"))
        >>> greedy, drawn = Sampling.greedy(48), Sampling(max_tokens=160)
        >>> solution = solve(problem, proposer, coder, selector, sampling=drawn, tip_sampling=greedy)
        >>> solution.tip, solution.selection.scores, solution.program, solution.tokens
    """
    if isinstance(problems, Problem):
        settings = {"sampling": sampling, "tip_sampling": tip_sampling, "style": style}
        return solve([problems], proposer, coder, selector, **settings)[0]
    problems = list(problems)
    by_id = {problem.id: problem for problem in problems}
    if len(by_id) < len(problems):
        raise DataError("two of the problems to solve have the same id")
    if not problems:
        return []
    added = by_proposer(proposer, problems, tip_sampling, prompt_counter(proposer), style=style)
    tipped = [problem for problem in problems if added.tips[problem.id][0].tip is not None]
    plain = [code_prompt(problem) for problem in problems]
    guided = [added.prompts[problem.id][0] for problem in tipped]
    replies = [group[0] for group in coder.sample([*plain, *guided], 1, sampling)]
    count = prompt_counter(coder)
    lengths = {problem.id: count(prompt) for problem, prompt in zip(problems, plain, strict=True)}
    records = [_record(problem, reply) for problem, reply in zip([*problems, *tipped], replies, strict=True)]
    base = base_trials(records[: len(problems)], 1, lengths, best_of_2=False)
    with_tips = records[len(problems) :]
    trials = guided_trials(METHOD, base, with_tips, added.tips, added.prompt_tokens(count), added.asked)
    choices = select_trials(trials, by_id, {selector.name: selector})
    return [Solution(t, chosen[selector.name]) for t, chosen in zip(trials, choices, strict=True)]


def _record(problem: Problem, reply: Completion) -> dict[str, str | int | None]:
    """Return a reply as a sample that nobody graded; see `tipprobe.evaluation.evaluate.read_samples`."""
    return {
        "problem_id": problem.id,
        "program": program_of(reply).code,
        "n_tokens": reply.n_tokens,
        "passed": None,
        "reason": "",
    }
