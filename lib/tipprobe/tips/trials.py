"""Tips at test time: propose, write a base and a guided program, select; every step on record.

A *trial* is one method's run on one problem: its candidates, of which the first is the base program, each
selector's choice among them, and the bill.  Base programs come from one pool of samples that all methods
share, so methods differ in what they add to it and in nothing else.  Selectors see statements and programs;
verdicts by hidden tests are carried along for the bounds and for the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tipprobe.errors import DataError
from tipprobe.models.reward import RewardModel
from tipprobe.models.types import Prompt, Sampler, Sampling
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl
from tipprobe.prompts import code_prompt, fill, user_prompt
from tipprobe.selection.types import Candidate, Selection, Selector
from tipprobe.tips.propose import Proposal, RequestStyle, read_tip

#: Methods in table order: key -> name in tables.
TITLES = {
    "base": "Base",
    "best_of_2": "Best-of-2",
    "self_hint": "Self-Hint",
    "opro": "OPRO",
    "gepa": "GEPA",
    "ctrl": "CTRL-style",
    "tipcoder_sft": "TipCoder-SFT",
    "tipcoder_rl": "TipCoder-RL",
}
#: Base samples that vote on probes and are no run's candidates.
WITNESSES = 8
#: Methods whose guided program rests on a tip of the problem itself.
TIPPED = ("self_hint", "ctrl", "tipcoder_sft", "tipcoder_rl")
#: Methods that use something learnt or chosen on the mined problems.
LEARNT = ("opro", "gepa", "ctrl", "tipcoder_sft", "tipcoder_rl")


def critique_prompt(problem: Problem, program: str) -> Prompt:
    """Return the prompt that asks what may be wrong with a program that nobody has run."""
    return user_prompt(fill("critique", statement=problem.statement, program=program))


def revision_prompt(problem: Problem, program: str, critique: str, style: RequestStyle = "short") -> Prompt:
    """Return the prompt that asks for a revised program.

    `style` ``short`` is for the embedded coder, which cannot read an earlier program: it gets the critique as
    a tip.
    """
    if style == "short":
        return code_prompt(problem, critique)
    (request,) = code_prompt(problem)
    return user_prompt(fill("revise", request=request["content"], program=program, critique=critique))


def critiques(
    critic: Sampler,
    problems: Sequence[Problem],
    programs: Sequence[str | None],
    sampling: Sampling,
) -> list[Proposal]:
    """Return a critique of each program; a missing program gets none (reason ``no_code``)."""
    present = [i for i, program in enumerate(programs) if program is not None]
    prompts = [critique_prompt(problems[i], programs[i]) for i in present]
    replies = iter(critic.sample(prompts, 1, sampling)) if prompts else iter(())
    return [
        read_tip(next(replies)[0]) if program is not None else Proposal(None, "no_code", 0, "")
        for program in programs
    ]


def base_programs(
    records: Sequence[Mapping[str, Any]], first: int, last: int | None = None
) -> dict[str, list[str | None]]:
    """Return the programs of samples `first` to `last` (exclusive; to the end if None), by problem id."""
    return {
        key: [record["program"] for record in pool[first:last]] for key, pool in _by_problem(records).items()
    }


def pool_size(runs: int, best_of: Sequence[int]) -> int:
    """Return how many base samples a problem needs: for best-of-N, and `WITNESSES` beyond all candidates.

    The witnesses vote in the consensus on probes and are nobody's candidate: a program that votes for itself
    twice would have an advantage over one that votes once.
    """
    return max([*best_of, 2 * runs + WITNESSES])


def pool_arrays(
    records: Sequence[Mapping[str, Any]], problems: Mapping[str, Problem], judge: RewardModel | None
) -> dict[str, np.ndarray]:
    """Return the pool of base samples as arrays for `tipprobe.tips.results.best_of_n_table`.

    Args:
        records: samples, the same number for every problem.
        problems: by id; rows come in their order.
        judge: scores the samples; None gives all of them the same score, so that one of N is taken at random.

    Returns:
        ``scores`` (NaN where there is no program), ``passed``, ``reply_tokens`` and ``scored_tokens``, each
        (problems, samples).
    """
    groups = _by_problem(records)
    rows = [groups[key] for key in problems]
    passed = np.array([[record["passed"] for record in row] for row in rows])
    scores = np.where([[record["program"] is not None for record in row] for row in rows], 0.0, np.nan)
    tokens = np.zeros(scores.shape)
    present = [(i, j) for i, row in enumerate(rows) for j, r in enumerate(row) if r["program"] is not None]
    if judge is not None and present:
        prompts = [code_prompt(problem) for problem in problems.values()]
        pairs = [(prompts[i], rows[i][j]["program"]) for i, j in present]
        where = tuple(np.array(present).T)
        scores[where], tokens[where] = judge.score(pairs), judge.token_counts(pairs)
    return {
        "scores": scores,
        "passed": passed,
        "reply_tokens": np.array([[record["n_tokens"] for record in row] for row in rows], dtype=float),
        "scored_tokens": tokens,
    }


@dataclass(frozen=True, slots=True)
class Branch:
    """One candidate program with what led to it.

    Attributes:
        branch: ``base``, ``sample`` (another one without a tip) or ``guided``.
        tip: what was prepended, None for the problem alone.
        program: None if the reply held none.
        prompt_tokens: length of the prompt, 0 where a shared prompt was counted already, None if nobody
            counts (a server's tokenizer is not here).
        n_tokens: length of the reply.
        passed: whether all hidden tests pass, None where they were not run.
        reason: as in `tipprobe.evaluation.grade.Verdict`, ``""`` where they were not run.
    """

    branch: str
    tip: str | None
    program: str | None
    prompt_tokens: int | None
    n_tokens: int
    passed: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One method's run on one problem.

    Attributes:
        method: key of `TITLES`, or any other name for trials that stand in no table.
        run: from 0.
        problem_id: the problem.
        branches: the candidates, the base first.
        tip_tokens: prompt and reply of whoever was asked for a tip, also where the reply held none; None if
            nobody counted the prompt.
    """

    method: str
    run: int
    problem_id: str
    branches: tuple[Branch, ...]
    tip_tokens: int | None = 0

    @property
    def candidates(self) -> list[Candidate]:
        """The candidates as selectors see them."""
        return [Candidate(branch.program, branch.branch) for branch in self.branches]

    @property
    def tokens(self) -> int | None:
        """Tokens read and written by proposer and coder, None if nobody counted a prompt."""
        read = [self.tip_tokens, *(branch.prompt_tokens for branch in self.branches)]
        if None in read:
            return None
        return sum(read) + sum(branch.n_tokens for branch in self.branches)


def base_trials(
    records: Sequence[Mapping[str, Any]],
    runs: int,
    prompt_tokens: Mapping[str, int | None],
    *,
    best_of_2: bool,
) -> list[Trial]:
    """Return the trials of Base and, if asked for, Best-of-2 from one pool of samples without tips.

    Run r takes sample r as its base program; Best-of-2 adds sample ``runs + r``, so that no sample serves two
    runs.

    Args:
        records: samples of the unguided coder (`tipprobe.evaluation.evaluate.read_samples`).
        runs: independent runs.
        prompt_tokens: length of each problem's prompt, by id.
        best_of_2: whether to add Best-of-2.

    Raises:
        DataError: the pool is too small.
    """
    trials = []
    for problem_id, pool in _by_problem(records).items():
        needed = 2 * runs if best_of_2 else runs
        if len(pool) < needed:
            raise DataError(f"{len(pool)} base samples of {problem_id!r}, but {runs} runs need {needed}")
        for run in range(runs):
            first = _branch("base", None, pool[run], prompt_tokens[problem_id])
            trials.append(Trial("base", run, problem_id, (first,)))
            if best_of_2:
                second = _branch("sample", None, pool[runs + run], 0)
                trials.append(Trial("best_of_2", run, problem_id, (first, second)))
    return trials


def guided_trials(
    method: str,
    base: Sequence[Trial],
    records: Sequence[Mapping[str, Any]],
    tips: Mapping[str, Sequence[Proposal]],
    prompt_tokens: Mapping[str, Sequence[int | None]],
    tip_prompt_tokens: Mapping[str, Sequence[int | None]],
) -> list[Trial]:
    """Return a method's trials: each base program beside the guided one of the same run.

    Where there is no tip there is no guided program either: a second sample without a tip would be credited
    to a tip that does not exist.

    Args:
        method: name of the method.
        base: trials of the method ``base``.
        records: samples of the guided coder, one a run.
        tips: of each problem, one for all runs or one a run.
        prompt_tokens: lengths of the guided prompts, likewise.
        tip_prompt_tokens: lengths of the prompts that asked for the tips, likewise; 0 where nobody was asked.
    """
    groups = _by_problem(records)
    trials = []
    for trial in base:
        if trial.method != "base":
            continue
        proposal, prompt, asked = (
            values[trial.problem_id][min(trial.run, len(values[trial.problem_id]) - 1)]
            for values in (tips, prompt_tokens, tip_prompt_tokens)
        )
        branches = trial.branches
        if proposal.tip is not None:
            record = groups[trial.problem_id][trial.run]
            branches = (*branches, _branch("guided", proposal.tip, record, prompt))
        spent = None if asked is None else asked + proposal.n_tokens
        trials.append(Trial(method, trial.run, trial.problem_id, branches, spent))
    return trials


def _branch(branch: str, tip: str | None, record: Mapping[str, Any], prompt_tokens: int | None) -> Branch:
    return Branch(
        branch,
        tip,
        record["program"],
        prompt_tokens,
        record["n_tokens"],
        record["passed"],
        record["reason"],
    )


def _by_problem(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["problem_id"], []).append(record)
    return groups


def select_trials(
    trials: Sequence[Trial], problems: Mapping[str, Problem], selectors: Mapping[str, Selector]
) -> list[dict[str, Selection]]:
    """Return every selector's choice in every trial, all trials in one call of each selector."""
    of_trials = [problems[trial.problem_id] for trial in trials]
    lists = [trial.candidates for trial in trials]
    columns = {name: selector.select_all(of_trials, lists) for name, selector in selectors.items()}
    return [{name: column[i] for name, column in columns.items()} for i in range(len(trials))]


def write_trials(path: Path, trials: Sequence[Trial], chosen: Sequence[Mapping[str, Selection]]) -> None:
    """Write one record a trial: every candidate, score, choice and cost."""
    write_jsonl(
        path,
        (
            {
                **asdict(trial),
                "tokens": trial.tokens,
                "selected": {name: _selection(selection) for name, selection in choices.items()},
            }
            for trial, choices in zip(trials, chosen, strict=True)
        ),
    )


def _selection(selection: Selection) -> dict[str, Any]:
    record = asdict(selection)
    record["scores"] = [None if score != score else float(score) for score in selection.scores]
    return record


def read_trials(path: Path) -> tuple[list[Trial], list[dict[str, Selection]]]:
    """Return what `write_trials` wrote.

    Raises:
        DataError: the file is missing or not of that shape.
    """
    trials, chosen = [], []
    for number, record in enumerate(read_jsonl(path), 1):
        try:
            branches = tuple(Branch(**branch) for branch in record["branches"])
            trials.append(
                Trial(
                    record["method"],
                    record["run"],
                    record["problem_id"],
                    branches,
                    record["tip_tokens"],
                )
            )
            chosen.append({name: _read_selection(entry) for name, entry in record["selected"].items()})
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}, line {number}: not a record of a trial ({error})") from error
    return trials, chosen


def _read_selection(record: Mapping[str, Any]) -> Selection:
    scores = tuple(float("nan") if score is None else score for score in record["scores"])
    return Selection(**{**record, "scores": scores})
