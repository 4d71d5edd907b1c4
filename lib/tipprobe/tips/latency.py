"""How long a user waits: one problem at a time, as at an interactive prompt."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from tipprobe.models.reward import RewardModel
from tipprobe.models.types import Sampler, Sampling
from tipprobe.problems.schema import Problem
from tipprobe.prompts import code_prompt
from tipprobe.sandbox import extract_code
from tipprobe.tips.propose import RequestStyle, propose_tips

#: Scores (problem, program) pairs.
Score = Callable[[Sequence[tuple[Problem, str]]], Any]


def score_programs(judge: RewardModel, pairs: Sequence[tuple[Problem, str]]) -> Any:
    """Score programs for their problems, without any tip."""
    return judge.score([(code_prompt(problem), program) for problem, program in pairs])


def measure_latency(
    problems: Sequence[Problem],
    coder: Sampler,
    sampling: Sampling,
    proposers: Mapping[str, Sampler],
    tip_sampling: Sampling,
    *,
    style: RequestStyle = "short",
    score: Score | None = None,
) -> pd.DataFrame:
    """Return the median seconds that each part takes, a row a method.

    Columns: ``method, problems, base_s, proposer_s, guided_s, scoring_s, wall_s``.  Both branches can run at
    the same time, so ``wall_s`` is ``max(base, proposer + guided) + scoring`` of each problem, then the
    median.  Loading is not counted; one unmeasured problem warms everything up.

    Args:
        problems: the first one serves to warm up, and is measured too.
        coder: writes the programs, one sample a call.
        sampling: of the programs.
        proposers: method -> who writes its tips.
        tip_sampling: of the tips.
        style: wording of the request for a tip.
        score: scores two programs a problem; None where no model selects.
    """
    rows = []
    for method, proposer in proposers.items():
        measured = []
        for problem in (problems[0], *problems):
            base_s, (base,) = _timed(lambda p=problem: _program(coder, p, None, sampling))
            proposer_s, ((proposal,),) = _timed(
                lambda p=problem, w=proposer: propose_tips(w, [p], tip_sampling, style=style)
            )
            guided_s, (guided,) = _timed(lambda p=problem, t=proposal.tip: _program(coder, p, t, sampling))
            pairs = [(problem, program) for program in (base, guided) if program is not None]
            scoring_s = _timed(lambda x=pairs: score(x))[0] if score is not None and pairs else 0.0
            measured.append(
                {
                    "base_s": base_s,
                    "proposer_s": proposer_s,
                    "guided_s": guided_s,
                    "scoring_s": scoring_s,
                    "wall_s": max(base_s, proposer_s + guided_s) + scoring_s,
                }
            )
        medians = {key: statistics.median(row[key] for row in measured[1:]) for key in measured[0]}
        rows.append({"method": method, "problems": len(problems), **medians})
    return pd.DataFrame(rows)


def _program(coder: Sampler, problem: Problem, tip: str | None, sampling: Sampling) -> list[str | None]:
    ((reply,),) = coder.sample([code_prompt(problem, tip)], 1, sampling)
    return [extract_code(reply.text).code]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result
