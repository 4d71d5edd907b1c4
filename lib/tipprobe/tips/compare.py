"""What proposers' tips do to programs: the same problems with a tip of each, computed once and compared.

The common shape is the *looked-at problem*, one record a problem: ``problem_id, statement, p_base, meta`` and
``tips``, by proposer ``{tip, reason, share, program_reason}``, where `share` is that of the tests which the
coder's greedy program passes with the tip (without, if there is none, since the coder then gets the problem
as it is).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tipprobe.evaluation.intervals import Interval, mean_interval, paired_interval
from tipprobe.evaluation.tables import interval_text
from tipprobe.problems.schema import Problem
from tipprobe.tips.environment import CodeEnvironment
from tipprobe.tips.propose import Proposal
from tipprobe.tips.trials import TITLES as METHOD_TITLES

#: No tip at all.
BASE = "base"
#: Proposers in table order: key -> name in tables.
TITLES = {
    BASE: "no tip",
    **{name: METHOD_TITLES[name] for name in ("self_hint", "tipcoder_sft", "tipcoder_rl")},
    "oracle": "the world's own tip",
}
#: Parts of the validation problems that are shown apart: name -> whether a problem belongs there.
PARTS = {"all": lambda record: True, "unsolved": lambda record: record["p_base"] < 1}
_LEAD_IN = re.compile(r"^(careful|note|remember):\s*", re.IGNORECASE)


def oracle_proposals(problems: Sequence[Problem]) -> list[Proposal]:
    """Return each problem's own right tip as a proposal, an empty one where the problem has none."""
    tips = [problem.meta.get("tip") for problem in problems]
    return [Proposal(tip, "ok" if tip else "empty", 0, tip or "") for tip in tips]


def look_at(
    environment: CodeEnvironment,
    problems: Sequence[Problem],
    p_base: Mapping[str, float],
    proposals: Mapping[str, Sequence[Proposal]],
) -> list[dict[str, Any]]:
    """Have the environment try one tip of each proposer on each problem; return looked-at problems.

    Args:
        environment: the frozen coder with its sandbox.
        problems: what to look at.
        p_base: P_base by problem id.
        proposals: by proposer, one proposal a problem.

    Raises:
        SandboxError: the execution machinery failed.
    """
    requests = [
        (problem, proposal.tip)
        for of_one in proposals.values()
        for problem, proposal in zip(problems, of_one, strict=True)
        if proposal.tip is not None
    ]
    found = iter(environment.attempts(requests))
    records = [
        {"problem_id": p.id, "statement": p.statement, "p_base": p_base[p.id], "meta": p.meta, "tips": {}}
        for p in problems
    ]
    for name, of_one in proposals.items():
        for record, proposal in zip(records, of_one, strict=True):
            share, why = record["p_base"], None
            if proposal.tip is not None:
                (attempt,) = next(found)
                share, why = attempt.share, attempt.reason
            entry = {"tip": proposal.tip, "reason": proposal.reason, "share": share, "program_reason": why}
            record["tips"][name] = entry
    return records


def merged(earlier: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return looked-at problems with the proposers of both, in table order; both hold the same problems."""
    by_id = {record["problem_id"]: record["tips"] for record in later}
    found = []
    for record in earlier:
        tips = record["tips"] | by_id[record["problem_id"]]
        found.append({**record, "tips": {name: tips[name] for name in TITLES if name in tips}})
    return found


def pass_rates(records: Sequence[Mapping[str, Any]], draws: int, seed: int) -> pd.DataFrame:
    """Return what the coder does with each proposer's tips, with 95 % intervals over problems.

    Args:
        records: looked-at problems.
        draws: bootstrap draws.
        seed: seeds them.

    Returns:
        One row a part of the problems (`PARTS`), measure (``solved``: every test passed, ``share`` of tests
        passed) and proposer, in percent and points: ``part, measure, proposer, problems, mean, low, high``
        and ``gain, gain_low, gain_high`` over no tip on the same problems.  The oracle is taken over the
        problems that have a tip of their own.
    """
    rows = []
    for part, belongs in PARTS.items():
        chosen = [record for record in records if belongs(record)]
        for measure in ("solved", "share"):
            for name in (BASE, *(chosen[0]["tips"] if chosen else ())):
                has = [r for r in chosen if name != "oracle" or r["tips"][name]["tip"] is not None]
                if has:
                    values, base = _values(has, name, measure), _values(has, BASE, measure)
                    mean = mean_interval(values, draws, seed).scaled(100)
                    gain = paired_interval(values, base, draws, seed).scaled(100)
                    rows.append({"part": part, "measure": measure, "proposer": name} | _row(mean, gain))
    return pd.DataFrame(rows)


def _values(records: Sequence[Mapping[str, Any]], name: str, measure: str) -> np.ndarray:
    shares = [r["p_base"] if name == BASE else r["tips"][name]["share"] for r in records]
    return np.array([float(share == 1) if measure == "solved" else share for share in shares])


def _row(mean: Interval, gain: Interval) -> dict[str, float]:
    values = {"problems": mean.n, "mean": mean.mean, "low": mean.low, "high": mean.high}
    return values | {"gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high}


def gains_between(
    records: Sequence[Mapping[str, Any]], name: str, baseline: str, draws: int, seed: int
) -> list[tuple[str, str, Interval]]:
    """Return the paired differences between two proposers as (part, measure, interval in points)."""
    found = []
    for part, belongs in PARTS.items():
        chosen = [record for record in records if belongs(record)]
        for measure in ("solved", "share") if chosen else ():
            values = (_values(chosen, who, measure) for who in (name, baseline))
            found.append((part, measure, paired_interval(*values, draws, seed).scaled(100)))
    return found


def difference(
    records: Sequence[Mapping[str, Any]], name: str, baseline: str, draws: int, seed: int
) -> pd.DataFrame:
    """Return the paired difference between two proposers in points, a row a part and measure, as text."""
    rows = [
        {
            "problems": f"{part} ({gain.n})",
            "measure": measure,
            "difference": interval_text(gain, sign=True),
        }
        for part, measure, gain in gains_between(records, name, baseline, draws, seed)
    ]
    title = f"{TITLES[name]} - {TITLES[baseline]}, points"
    return pd.DataFrame(rows).rename(columns={"difference": title})


def finding(what: str, gain: Interval) -> str:
    """Say what an interval of a difference shows, and what it does not.

    Args:
        what: the difference in words.
        gain: in points.

    Example:
        >>> finding("RL over SFT, problems solved", Interval(2.1, -1.0, 5.2, 96))
        'RL over SFT, problems solved: +2.1 [-1.0, +5.2] points (n = 96 problems): not shown, ...'
    """
    if gain.low > 0:
        verdict = "shown"
    elif gain.high < 0:
        verdict = "not so: the opposite is shown"
    else:
        verdict = "not shown, since the interval holds zero"
    runs = f" x {gain.seeds} runs" if gain.seeds > 1 else ""
    return f"{what}: {interval_text(gain, sign=True)} points (n = {gain.n} problems{runs}): {verdict}."


def telling_group(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the group with most distinct rewards, the first of them on a tie."""
    groups: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["step"], record["problem_id"]), []).append(record)
    return max(groups.values(), key=lambda rows: len({row["reward"] for row in rows}))


def same_rule(tip: str | None, other: str | None) -> bool:
    """Say whether two tips of the embedded world name the same rule, whatever they begin with."""
    return tip is not None and other is not None and _rule(tip) == _rule(other)


def _rule(tip: str) -> str:
    return _LEAD_IN.sub("", tip.strip()).rstrip(".").lower()


def rule_table(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return how often each proposer names the rule that the problem's own tip names, a row an operation.

    Empty for problems that do not come from the embedded world.  The own tip is about the operation that
    programmers misunderstand most often; a tip about another one may help as well.
    """
    rows = []
    for record in records:
        meta = record["meta"]
        if meta.get("tip") and meta.get("tip_about"):
            named = {
                TITLES[name]: same_rule(entry["tip"], meta["tip"])
                for name, entry in record["tips"].items()
                if name != "oracle"
            }
            rows.append({"operation": meta["tip_about"], "problems": 1, **named})
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows).groupby("operation").sum().astype(int)
    table = table.sort_values("problems", ascending=False, kind="stable")
    table.loc["all"] = table.sum()
    return table
