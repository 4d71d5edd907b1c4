"""A frozen coder with the sandbox behind it: what happens when it gets a problem with a tip, or without."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tipprobe.errors import DataError
from tipprobe.evaluation.grade import Failure, TestReport, grade, run_tests
from tipprobe.files import append_jsonl, complete_records
from tipprobe.models.open import sample_fitting, sampler_options
from tipprobe.models.types import Completion, Sampler, Sampling
from tipprobe.probes.rng import keyed_seed
from tipprobe.problems.schema import Problem, write_jsonl
from tipprobe.prompts import code_prompt
from tipprobe.sandbox import Executor, program_of

#: Requests that are sampled and graded together; what a kill can cost.
CHUNK = 64
#: Reason of an attempt that was none: the prompt does not fit the coder's context, so nobody was asked.
TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One program that the coder wrote, with its outcome on the problem's tests.

    Attributes:
        program: the program, None if the reply held none or was cut off, or if there was none.
        passed: number of tests passed.
        n_tests: number of tests, at least 1.
        reason: ``passed``, `TOO_LONG`, ``truncated``, ``no_code``, ``wrong_output`` or how the first failing
            run ended.
        n_tokens: length of the reply in tokens.
        failures: the first tests that failed.
    """

    program: str | None
    passed: int
    n_tests: int
    reason: str
    n_tokens: int
    failures: tuple[Failure, ...] = ()

    @property
    def solved(self) -> bool:
        """Whether every test passed."""
        return self.passed == self.n_tests

    @property
    def share(self) -> float:
        """Share of the tests passed, in [0, 1]."""
        return self.passed / self.n_tests


class CodeEnvironment:
    """Lets a frozen coder write programs, with or without a tip, and runs them on their problems' tests.

    Outcomes are kept by all that decides about them (model and its options, prompt, tests, sampling, n,
    limits): asked again, also by a later process, the coder is not bothered.  The one thing that a later
    process asks again is what did not fit the coder's context: a server may have been given a longer one.

    Args:
        sampler: the coder.
        sandbox: runs the programs.
        sampling: how programs are drawn; temperature 0 makes the environment deterministic.
        time_limit_s: CPU seconds of one execution.
        memory_mb: memory of one execution.
        all_tests: run a program on every test.  False finds out whether it passes them all, in about half the
            time: one that does not has `passed` 0 and no `failures`.
        cache: JSONL file of outcomes, made if missing; None remembers them in this object only.
    """

    def __init__(
        self,
        sampler: Sampler,
        sandbox: Executor,
        sampling: Sampling,
        *,
        time_limit_s: float,
        memory_mb: int,
        all_tests: bool = True,
        cache: Path | None = None,
    ) -> None:
        self.sampler = sampler
        self.sandbox = sandbox
        self.sampling = sampling
        self.time_limit_s = time_limit_s
        self.memory_mb = memory_mb
        self.all_tests = all_tests
        self.cache = cache
        #: Requests answered from memory, and requests that the coder had to answer.
        self.hits, self.misses = 0, 0
        self._known: dict[str, list[Attempt]] = {}
        if cache is not None:
            cache.parent.mkdir(parents=True, exist_ok=True)
            records = complete_records(cache)
            write_jsonl(cache, records)  # without a torn last line, to which nothing could be appended
            self._known = {r["key"]: [_from_json(a) for a in r["attempts"]] for r in records}
        self._did_not_fit = {key for key, (one, *_) in self._known.items() if one.reason == TOO_LONG}
        for key in self._did_not_fit:
            del self._known[key]

    def attempts(
        self,
        requests: Sequence[tuple[Problem, str | None]],
        n: int = 1,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[list[Attempt]]:
        """Return `n` attempts for each (problem, tip); equal requests share their attempts.

        A tip that takes the prompt beyond the coder's context has failed, as one has that makes it write a
        wrong program: its attempts pass nothing, for the reason `TOO_LONG`.  A problem that does not fit
        without a tip has such attempts too; what to do with it is for the caller to say.

        Args:
            requests: problems, each with a tip or None.
            n: programs a request.
            progress: called with (requests done, requests in all).

        Raises:
            DataError: a problem has no tests, or fits the coder's context neither with its tip nor without,
                so that the tip cannot be judged.
            SandboxError: the execution machinery failed.
        """
        keys = [self._key(problem, tip, n) for problem, tip in requests]
        open_ones = {
            key: request for key, request in zip(keys, requests, strict=True) if key not in self._known
        }
        self.misses += len(open_ones)
        self.hits += len(requests) - len(open_ones)
        done = sum(key in self._known for key in keys)
        # What did not fit goes apart: the others must be in the chunks in which they would be without it.
        again = [item for item in open_ones.items() if item[0] in self._did_not_fit]
        waiting = [item for item in open_ones.items() if item[0] not in self._did_not_fit]
        for chunk in map(dict, _chunks(again) + _chunks(waiting)):
            found = self._draw(list(chunk), list(chunk.values()), n)
            self._known.update(zip(chunk, found, strict=True))
            if self.cache is not None:
                append_jsonl(
                    self.cache,
                    [
                        _record(key, problem, tip, attempts)
                        for (key, (problem, tip)), attempts in zip(chunk.items(), found, strict=True)
                        if key not in self._did_not_fit or attempts[0].reason != TOO_LONG
                    ],
                )
            if progress is not None:
                done += sum(key in chunk for key in keys)
                progress(done, len(requests))
        found = [self._known[key] for key in keys]
        self._check_that_tips_are_at_fault(requests, found)
        return found

    def _check_that_tips_are_at_fault(
        self, requests: Sequence[tuple[Problem, str | None]], found: Sequence[Sequence[Attempt]]
    ) -> None:
        pairs = zip(requests, found, strict=True)
        blamed = {p.id: p for (p, tip), (one, *_) in pairs if tip is not None and one.reason == TOO_LONG}
        alone = self.attempts([(problem, None) for problem in blamed.values()]) if blamed else []
        for name, (attempt,) in zip(blamed, alone, strict=True):
            if attempt.reason == TOO_LONG:
                raise DataError(
                    f"problem {name!r} does not fit the coder's context, with a tip or without; leave it out "
                    "or take a coder with a longer context (a server's is set when it is started)"
                )

    def _draw(
        self, keys: Sequence[str], requests: Sequence[tuple[Problem, str | None]], n: int
    ) -> list[list[Attempt]]:
        # The seed depends on what is drawn, so that a run that was killed draws the same afterwards.
        sampling = replace(self.sampling, seed=keyed_seed("attempts", self.sampling.seed, *keys))
        prompts = [code_prompt(problem, tip) for problem, tip in requests]
        replies = [group or [None] * n for group in sample_fitting(self.sampler, prompts, n, sampling)]
        items = [
            (problem, None if reply is None else program_of(reply).code)
            for (problem, _), group in zip(requests, replies, strict=True)
            for reply in group
        ]
        reports, programs = iter(self._run(items)), iter(items)
        attempts = []
        for group in replies:
            row = []
            for reply in group:
                (_, program), report = next(programs), next(reports)
                n_tokens = 0 if reply is None else reply.n_tokens
                reason = _reason(reply, report)
                row.append(Attempt(program, report.passed, report.n_tests, reason, n_tokens, report.failures))
            attempts.append(row)
        return attempts

    def _run(self, items: Sequence[tuple[Problem, str | None]]) -> list[TestReport]:
        limits = {"time_limit_s": self.time_limit_s, "memory_mb": self.memory_mb}
        if self.all_tests:
            return run_tests(items, self.sandbox, **limits)
        reports = []
        for (problem, _), verdict in zip(items, grade(items, self.sandbox, **limits), strict=True):
            n_tests = max(1, len(problem.tests))
            reports.append(TestReport(n_tests * verdict.passed, n_tests, verdict.reason))
        return reports

    def _key(self, problem: Problem, tip: str | None, n: int) -> str:
        coder = [self.sampler.revision, sampler_options(self.sampler), asdict(self.sampling), n]
        limits = [self.time_limit_s, self.memory_mb, self.all_tests]
        asked = [code_prompt(problem, tip), problem.to_json()]
        text = json.dumps([coder, asked, limits], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _chunks(items: list[Any]) -> list[list[Any]]:
    return [items[start : start + CHUNK] for start in range(0, len(items), CHUNK)]


def _reason(reply: Completion | None, report: TestReport) -> str:
    if reply is None:
        return TOO_LONG
    return "truncated" if reply.finish_reason == "length" else report.reason


def _record(key: str, problem: Problem, tip: str | None, attempts: Sequence[Attempt]) -> dict[str, Any]:
    return {"key": key, "problem_id": problem.id, "tip": tip, "attempts": [asdict(a) for a in attempts]}


def _from_json(record: dict[str, Any]) -> Attempt:
    return Attempt(**{**record, "failures": tuple(Failure(**f) for f in record["failures"])})
