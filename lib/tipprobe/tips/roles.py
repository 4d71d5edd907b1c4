"""Which mined problem serves what: learning tips, watching the proposer, or reinforcing it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from tipprobe.probes.rng import keyed_rng
from tipprobe.problems.decontaminate import read_dropped
from tipprobe.problems.schema import Problem
from tipprobe.tips.base_rates import BaseRate, read_base_rates, read_base_rates_header
from tipprobe.tips.verify import VerifiedTip, read_verified_tips

Name = Literal["sft", "validation", "rl", "none"]


@dataclass(frozen=True, slots=True)
class Role:
    """What one problem is used for, and why.

    Attributes:
        name: ``sft`` (its verified tip is learnt), ``validation`` (only looked at), ``rl`` (the proposer is
            rewarded on it) or ``none``.
        reason: in words.
        p_base: share of the tests that the coder's greedy program passes without a tip, None if unknown.
    """

    name: Name
    reason: str
    p_base: float | None


@dataclass(frozen=True)
class Mined:
    """The mined problems, each with its role, and what is learnt from them.

    Attributes:
        problems: all of them.
        roles: by problem id.
        tips: the verified tips that are learnt.
    """

    problems: list[Problem]
    roles: dict[str, Role]
    tips: list[VerifiedTip]

    @property
    def by_id(self) -> dict[str, Problem]:
        """The problems by id."""
        return {problem.id: problem for problem in self.problems}

    def of(self, name: Name) -> list[Problem]:
        """Return the problems of one role, in order."""
        return with_role(self.problems, self.roles, name)

    def p_base(self, name: Name) -> dict[str, float | None]:
        """Return P_base of the problems of one role, by id."""
        return {problem.id: self.roles[problem.id].p_base for problem in self.of(name)}


def read_mined(
    problems: Sequence[Problem],
    *,
    rates: Path,
    tips: Path,
    contamination: Path,
    n_validation: int,
    seed: int,
) -> Mined:
    """Return mined problems with the roles that follow from the files of the earlier stages.

    Args:
        problems: the mined problems.
        rates: base rates, whose header says below which rate a problem is hard.
        tips: verified tips.
        contamination: table of overlaps with evaluation problems.
        n_validation: see `assign_roles`.
        seed: see `assign_roles`.

    Raises:
        DataError: a file is missing or of another shape.
    """
    verified = read_verified_tips(tips)
    roles = assign_roles(
        problems,
        read_base_rates(rates),
        {tip.problem_id for tip in verified},
        n_validation,
        seed,
        threshold=read_base_rates_header(rates)["base_threshold"],
        contaminated=read_dropped(contamination),
    )
    return Mined(list(problems), roles, [tip for tip in verified if roles[tip.problem_id].name == "sft"])


def assign_roles(
    problems: Sequence[Problem],
    rates: Mapping[str, BaseRate],
    with_tip: Collection[str],
    n_validation: int,
    seed: int,
    *,
    threshold: float,
    contaminated: Collection[str],
) -> dict[str, Role]:
    """Return the role of every problem, by id; no problem has two.

    Validation problems are drawn at random from those that gave no tip, whatever their base rate.  Of the
    rest, reinforcement takes the hard ones, as mining does, whose P_base lies strictly between 0 and 1: at 1
    nothing can be gained, at 0 hardly any tip gains anything.

    Args:
        problems: the mined problems.
        rates: base rates by problem id; a problem without one was left out before.
        with_tip: ids of the problems whose verified tip is learnt.
        n_validation: validation problems, at most half of those without a tip.
        seed: of the draw.
        threshold: base pass rate below which a problem is hard; the same as in mining.
        contaminated: ids of the problems that are like an evaluation problem
            (`tipprobe.problems.decontaminate.read_dropped`); they serve nothing, not even if they gave a tip.
    """
    used = {*with_tip, *contaminated}
    free = [problem.id for problem in problems if problem.id in rates and problem.id not in used]
    order = keyed_rng("proposer validation", seed).permutation(len(free))
    validation = {free[i] for i in order[: min(n_validation, len(free) // 2)]}
    return {
        problem.id: Role("none", "like an evaluation problem", _p_base(problem.id, rates))
        if problem.id in contaminated
        else _role(problem.id, rates, with_tip, validation, threshold)
        for problem in problems
    }


def _p_base(name: str, rates: Mapping[str, BaseRate]) -> float | None:
    return rates[name].greedy_share if name in rates else None


def _role(
    name: str,
    rates: Mapping[str, BaseRate],
    with_tip: Collection[str],
    validation: Collection[str],
    threshold: float,
) -> Role:
    if name not in rates:
        return Role("none", "left out in mining", None)
    p_base = rates[name].greedy_share
    if name in with_tip:
        return Role("sft", "gave a verified tip", p_base)
    if name in validation:
        return Role("validation", "kept for looking at the proposer", p_base)
    if p_base == 1:
        return Role("none", "solved without a tip (P_base = 1)", p_base)
    if p_base == 0:
        return Role("none", "no test passed without a tip (P_base = 0)", p_base)
    if rates[name].pass_at_1 >= threshold:
        return Role("none", "solved too often without a tip (pass@1 not below the threshold)", p_base)
    return Role("rl", "hard, with P_base strictly between 0 and 1", p_base)


def role_table(roles: Mapping[str, Role]) -> pd.DataFrame:
    """Return one row a problem: ``problem_id, role, reason, p_base``."""
    rows = [(key, role.name, role.reason, role.p_base) for key, role in roles.items()]
    return pd.DataFrame(rows, columns=["problem_id", "role", "reason", "p_base"])


def with_role(problems: Sequence[Problem], roles: Mapping[str, Role], name: Name) -> list[Problem]:
    """Return the problems of one role, in order."""
    return [problem for problem in problems if roles[problem.id].name == name]
