"""How often the frozen coder solves each problem without a tip: measured once, shared by all that follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tipprobe.errors import DataError
from tipprobe.evaluation.intervals import Interval, wilson_interval
from tipprobe.models.open import sampler_options
from tipprobe.models.types import Sampler, Sampling
from tipprobe.problems.schema import Problem, read_jsonl, write_jsonl
from tipprobe.prompts import CODE_PROMPTS, prompt_hashes
from tipprobe.tips.environment import TOO_LONG, Attempt, CodeEnvironment


@dataclass(frozen=True, slots=True)
class BaseRate:
    """What the coder does on one problem without a tip.

    Attributes:
        problem_id: the problem.
        n: programs sampled, at least 1.
        solved: how many of them passed every test.
        reasons: how the `n` programs ended (`tipprobe.tips.environment.Attempt.reason`), with counts.
        greedy_passed: tests that the one greedy program passed.
        n_tests: number of tests, at least 1.
        greedy_reason: how the greedy program ended.
    """

    problem_id: str
    n: int
    solved: int
    reasons: Mapping[str, int]
    greedy_passed: int
    n_tests: int
    greedy_reason: str

    @property
    def pass_at_1(self) -> float:
        """Share of the sampled programs that passed every test."""
        return self.solved / self.n

    @property
    def interval(self) -> Interval:
        """`pass_at_1` with its Wilson interval."""
        return wilson_interval(self.solved, self.n)

    @property
    def greedy_share(self) -> float:
        """P_base of the tip rewards: share of the tests that the greedy program passed."""
        return self.greedy_passed / self.n_tests

    @classmethod
    def of(cls, problem: Problem, sampled: Sequence[Attempt], greedy: Attempt) -> BaseRate:
        """Return the rate of a problem from its sampled programs and its greedy one."""
        reasons = Counter(attempt.reason for attempt in sampled)
        solved = sum(attempt.solved for attempt in sampled)
        counts = dict(sorted(reasons.items()))
        return cls(problem.id, len(sampled), solved, counts, greedy.passed, greedy.n_tests, greedy.reason)


def measure_base_rates(
    problems: Sequence[Problem],
    sampled: CodeEnvironment,
    greedy: CodeEnvironment,
    n: int,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[BaseRate]:
    """Return the base rate of every problem that fits the coder's context; one that does not has none.

    Args:
        problems: with tests.
        sampled: the coder with the sampling that pass@1 is about.
        greedy: the same coder at temperature 0.
        n: programs sampled a problem.
        progress: called with (problems done, problems in all) while programs are sampled.

    Raises:
        DataError: a problem has no tests, or `n` is below 1.
        SandboxError: the execution machinery failed.
    """
    if n < 1:
        raise DataError(f"a base rate needs at least one program a problem, got n = {n}")
    ones = [attempts[0] for attempts in greedy.attempts([(problem, None) for problem in problems])]
    fitting = [pair for pair in zip(problems, ones, strict=True) if pair[1].reason != TOO_LONG]
    if problems and not fitting:
        raise DataError(f"none of the {len(problems)} problems fits the coder's context: choose shorter ones")
    groups = sampled.attempts([(problem, None) for problem, _ in fitting], n, progress=progress)
    return [BaseRate.of(problem, group, one) for (problem, one), group in zip(fitting, groups, strict=True)]


def base_rates_header(sampled: CodeEnvironment, greedy: CodeEnvironment) -> dict[str, Any]:
    """Return what base rates depend on: model, sampling, limits and the prompts for programs."""
    return {"sampling": asdict(sampled.sampling)} | greedy_header(greedy)


def greedy_header(greedy: CodeEnvironment) -> dict[str, Any]:
    """Return what P_base depends on: the part of `base_rates_header` that P_curr must have in common."""
    limits = {"time_limit_s": greedy.time_limit_s, "memory_mb": greedy.memory_mb}
    return _conditions(greedy.sampler, greedy.sampling, limits)


def _conditions(coder: Sampler, greedy: Sampling, limits: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model_revision": coder.revision,
        "model_options": sampler_options(coder),
        "greedy": asdict(greedy),
        **limits,
        "prompts": prompt_hashes(*CODE_PROMPTS),
    }


def check_greedy(path: Path, greedy: CodeEnvironment) -> None:
    """Make sure that programs with a tip are compared with programs made under the same conditions.

    Args:
        path: file of base rates; what its header does not record is not compared.
        greedy: where tips are tried.

    Raises:
        DataError: the file was measured with another coder, prompt, greedy decoding or limit.
    """
    _compare(read_base_rates_header(path), greedy_header(greedy))


def check_conditions(
    header: Mapping[str, Any], coder: Sampler, sampling: Sampling, *, time_limit_s: float, memory_mb: int
) -> None:
    """Make sure that programs will be drawn and run as those were that base rates come from.

    Args:
        header: of the base rates; what it does not record is not compared.
        coder: who will write programs, greedily and sampled.
        sampling: of the sampled ones; its seed may be another.
        time_limit_s: CPU seconds of one execution.
        memory_mb: memory of one execution.

    Raises:
        DataError: the base rates were measured with another coder, prompt, sampling or limit.
    """
    limits = {"time_limit_s": time_limit_s, "memory_mb": memory_mb}
    here = _conditions(coder, Sampling.greedy(sampling.max_tokens), limits)
    _compare(header, here | {"sampling": asdict(sampling)})


def _compare(header: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    for name, value in here.items():
        before, now = _differing(header.get(name, value), value)
        if before != now:
            raise DataError(
                f"base rates were measured with {name} {before}, but here it is {now}: programs with and "
                "without a tip must come from one coder in the same conditions, so run 01_data_mining again "
                "with these"
            )


def _differing(before: Any, now: Any) -> tuple[Any, Any]:
    """Return what two values differ in; a seed is no condition."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return before, now
    names = [n for n in {**before, **now} if n != "seed" and before.get(n) != now.get(n)]
    return tuple({n: part[n] for n in names if n in part} for part in (before, now))


def write_base_rates(path: Path, rates: Iterable[BaseRate], header: Mapping[str, Any]) -> None:
    """Write a header line (see `base_rates_header`), then one line a problem with its rates spelled out."""
    lines: list[dict[str, Any]] = [{"header": dict(header)}]
    for rate in rates:
        interval = rate.interval
        lines.append(
            {
                **asdict(rate),
                "pass_at_1": rate.pass_at_1,
                "low": interval.low,
                "high": interval.high,
                "greedy_share": rate.greedy_share,
            }
        )
    write_jsonl(path, lines)


def read_base_rates(path: Path) -> dict[str, BaseRate]:
    """Return the base rates of a file written by `write_base_rates`, by problem id.

    Raises:
        DataError: the file is missing, or a record is not one of ours.
    """
    return {rate.problem_id: rate for rate in _rates(path)}


def read_base_rates_header(path: Path) -> dict[str, Any]:
    """Return the header of a file of base rates.

    Raises:
        DataError: the file is missing or has none.
    """
    first = next(read_jsonl(path), {})
    if not isinstance(first.get("header"), dict):
        raise DataError(f"{path}: the first line is no header of base rates")
    return first["header"]


_DERIVED = ("pass_at_1", "low", "high", "greedy_share")


def _rates(path: Path) -> Iterable[BaseRate]:
    for number, record in enumerate(read_jsonl(path), 1):
        if number == 1 and "header" in record:
            continue
        try:
            rate = BaseRate(**{key: value for key, value in record.items() if key not in _DERIVED})
        except TypeError as error:
            raise DataError(f"{path}, line {number}: not a base rate ({error})") from error
        if not (0 <= rate.solved <= rate.n and 0 <= rate.greedy_passed <= rate.n_tests and rate.n):
            raise DataError(f"{path}, line {number}: counts that cannot be ({rate.problem_id})")
        yield rate
