"""Choosing which of several programs to hand in: one interface, several rules, and the bounds of all rules.

>>> selection = RandomSelector(seed=1).select(problem, [Candidate(a, "base"), Candidate(b, "guided")])
"""

from tipprobe.selection.bounds import lower_bound, upper_bound
from tipprobe.selection.consensus import PcrSelector
from tipprobe.selection.plain import RandomSelector
from tipprobe.selection.reward import RewardSelector
from tipprobe.selection.rules import best_or_base
from tipprobe.selection.types import Branch, Candidate, Reason, Selection, Selector, check_candidates

__all__ = [
    "Branch",
    "Candidate",
    "PcrSelector",
    "RandomSelector",
    "Reason",
    "RewardSelector",
    "Selection",
    "Selector",
    "best_or_base",
    "check_candidates",
    "lower_bound",
    "upper_bound",
]
