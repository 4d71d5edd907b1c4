"""Selection by consensus on probes: the program whose outputs most programs agree with, no model needed.

Between a base and a guided candidate alone a vote decides little: where they differ, both outputs have one
vote.  So a *pool* of further programs sampled without a tip may vote too; they are never chosen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tipprobe.errors import DataError
from tipprobe.models.types import Completion
from tipprobe.probes.types import ProbeSet
from tipprobe.problems.schema import Problem
from tipprobe.sandbox import Executor, Limits
from tipprobe.selection.rules import best_or_base
from tipprobe.selection.types import Candidate, Selection, check_candidates
from tipprobe.training.rollouts import score_groups


class PcrSelector:
    """Chooses by PCR, the share of probes on which a program's output is in the majority set.

    Scores are the PCR of each candidate, 0 for one without a program.  Compared are numbers of probes, so a
    tie is exact, and goes to the base; so does a problem without probes.

    Args:
        probe_sets: frozen probes, by problem id.
        sandbox: runs the programs.
        limits: of one execution.
        pool: further programs that vote, by problem id; None stands for a reply without a program.
    """

    name = "pcr"

    def __init__(
        self,
        probe_sets: Mapping[str, ProbeSet],
        sandbox: Executor,
        *,
        limits: Limits | None = None,
        pool: Mapping[str, Sequence[str | None]] | None = None,
    ) -> None:
        self.probe_sets, self.sandbox = probe_sets, sandbox
        self.limits = limits or Limits()
        self.pool = pool or {}

    def select(self, problem: Problem, candidates: Sequence[Candidate]) -> Selection:
        """Return the choice for one problem."""
        return self.select_all([problem], [candidates])[0]

    def select_all(
        self, problems: Sequence[Problem], candidate_lists: Sequence[Sequence[Candidate]]
    ) -> list[Selection]:
        """Return a choice a problem; all programs run in one call of the sandbox.

        `Selection.executions` counts distinct programs times probes, pool included.  Programs that may answer
        differently from run to run cost one more each (`tipprobe.training.rollouts`), not counted here.

        Raises:
            DataError: a problem has no entry in the probe sets.
            SandboxError: the execution machinery failed.
        """
        check_candidates(problems, candidate_lists)
        missing = [problem.id for problem in problems if problem.id not in self.probe_sets]
        if missing:
            raise DataError(f"problem {missing[0]!r} has no probe set; make probes for these problems first")
        voters = [
            [candidate.program for candidate in candidates] + list(self.pool.get(problem.id, ()))
            for problem, candidates in zip(problems, candidate_lists, strict=True)
        ]
        groups = score_groups(
            problems,
            [self.probe_sets[problem.id] for problem in problems],
            [[as_reply(program) for program in programs] for programs in voters],
            self.sandbox,
            reward="pcr",
            limits=self.limits,
            seed=0,
            step=0,
        )
        selections = []
        for candidates, programs, group in zip(candidate_lists, voters, groups, strict=True):
            hits = group.consensus.hits[: len(candidates)].tolist()
            index, reason = best_or_base([c.program is not None for c in candidates], hits)
            executions = len({p for p in programs if p is not None}) * group.consensus.n_probes
            scores = tuple(group.consensus.pcr[: len(candidates)].tolist())
            selections.append(Selection(index, scores, reason, executions=executions))
        return selections


def as_reply(program: str | None) -> Completion:
    """Return a reply from which exactly `program` is extracted: in a fence longer than any inside it."""
    if program is None:
        return Completion("", 0, "stop")
    longest = max((len(run) for run in re.findall("`+", program)), default=0)
    marks = "`" * max(3, longest + 1)
    return Completion(f"{marks}python\n{program}\n{marks}", 0, "stop")
