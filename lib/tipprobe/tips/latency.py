"""How long a user waits: one problem at a time, as at an interactive prompt."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tipprobe.models.reward import RewardModel
from tipprobe.models.types import Prompt, Sampler, Sampling
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt
from tipprobe.sandbox import program_of

#: Scores (problem, program) pairs.
Score = Callable[[Sequence[tuple[Problem, str]]], Any]


@dataclass(frozen=True, slots=True)
class Timed:
    """How one method is timed.

    Attributes:
        samples: programs without a tip.
        propose: returns the prompt of the guided program, None where it has none to offer; gets the problem
            and the first base program.  None: the method adds nothing guided.
        needs_base: whether `propose` has to wait for the base program.
    """

    samples: int = 1
    propose: Callable[[Problem, str | None], Prompt | None] | None = None
    needs_base: bool = False


def score_programs(judge: RewardModel, pairs: Sequence[tuple[Problem, str]]) -> np.ndarray:
    """Return (pairs,) float32: scores of programs for their problems, without any tip."""
    return judge.score([(code_prompt(problem), program) for problem, program in pairs])


def measure_latency(
    problems: Sequence[Problem],
    coder: Sampler,
    sampling: Sampling,
    methods: Mapping[str, Timed],
    *,
    score: Score | None = None,
) -> pd.DataFrame:
    """Return the median seconds that each part takes, a row a method.

    Columns: ``method, problems, base_s, proposer_s, guided_s, scoring_s, wall_s``.  Both branches can run at
    the same time, so ``wall_s`` is ``max(base, proposer + guided) + scoring`` of each problem (the sum of all
    where the proposer reads the base program), then the median.  Loading is not counted; one unmeasured
    problem warms everything up.

    Args:
        problems: the first one serves to warm up, and is measured too.
        coder: writes the programs.
        sampling: of the programs.
        methods: what is timed.
        score: scores all programs of a problem, if there is more than one; None where no model selects.
    """
    rows = []
    for name, method in methods.items():
        measured = [_one(problem, coder, sampling, method, score) for problem in (problems[0], *problems)]
        medians = {key: statistics.median(row[key] for row in measured[1:]) for key in measured[0]}
        rows.append({"method": name, "problems": len(problems), **medians})
    return pd.DataFrame(rows)


def _one(
    problem: Problem, coder: Sampler, sampling: Sampling, method: Timed, score: Score | None
) -> dict[str, float]:
    base_s, programs = _timed(lambda: _programs(coder, code_prompt(problem), sampling, method.samples))
    proposer_s = guided_s = scoring_s = 0.0
    if method.propose is not None:
        proposer_s, prompt = _timed(lambda: method.propose(problem, programs[0]))
        if prompt is not None:
            guided_s, guided = _timed(lambda: _programs(coder, prompt, sampling, 1))
            programs = programs + guided
    pairs = [(problem, program) for program in programs if program is not None]
    if score is not None and len(programs) > 1 and pairs:
        scoring_s, _ = _timed(lambda: score(pairs))
    added_s = proposer_s + guided_s
    made_s = base_s + added_s if method.needs_base else max(base_s, added_s)
    return {
        "base_s": base_s,
        "proposer_s": proposer_s,
        "guided_s": guided_s,
        "scoring_s": scoring_s,
        "wall_s": made_s + scoring_s,
    }


def _programs(coder: Sampler, prompt: Prompt, sampling: Sampling, n: int) -> list[str | None]:
    (replies,) = coder.sample([prompt], n, sampling)
    return [program_of(reply).code for reply in replies]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result
