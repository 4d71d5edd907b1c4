"""Trials as arrays: pass@1 by method and selector, repairs and breakages, best-of-N, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from tipprobe.errors import DataError
from tipprobe.evaluation.intervals import Interval, mean_interval, paired_interval
from tipprobe.evaluation.tables import interval_text
from tipprobe.selection.bounds import lower_bound, upper_bound
from tipprobe.selection.types import Selection
from tipprobe.tips.trials import TITLES, Trial

#: Ways to end a trial that need no selector: key -> name in tables.  The last two look at hidden tests.
FIXED = {"raw": "always the added one", "upper": "oracle, best", "lower": "oracle, worst"}
SELECTOR_TITLES = {"reward_model": "reward model", "pcr": "PCR on probes", "random": "random"}
#: Pairs of methods whose difference is said in words, beside each method's to Base.
CONTRASTS = (
    ("tipcoder_sft", "self_hint"),
    ("tipcoder_rl", "tipcoder_sft"),
    ("tipcoder_rl", "self_hint"),
    ("tipcoder_rl", "best_of_2"),
)
Chosen = Sequence[Mapping[str, Selection]]


class TipResults:
    """All trials, by method.

    Args:
        trials: of any methods, ``base`` among them, each on the same problems and runs.
        chosen: each trial's selections.
        draws: bootstrap draws of every interval.
        seed: of the bootstrap.

    Raises:
        DataError: there is no base, a method lacks a run or a problem, or hidden tests were not run.
    """

    def __init__(self, trials: Sequence[Trial], chosen: Chosen, draws: int, seed: int) -> None:
        self.draws, self.seed = draws, seed
        self.problem_ids = tuple(dict.fromkeys(trial.problem_id for trial in trials))
        self.runs = 1 + max((trial.run for trial in trials), default=-1)
        self._cells = {(t.method, t.run, t.problem_id): (t, c) for t, c in zip(trials, chosen, strict=True)}
        present = {trial.method for trial in trials}
        self.methods = [method for method in TITLES if method in present]
        self.selectors = list(dict.fromkeys(name for choices in chosen for name in choices))
        if "base" not in present:
            raise DataError("there are no trials of the method base")
        if any(branch.passed is None for trial in trials for branch in trial.branches):
            raise DataError("there are trials whose programs were not run on hidden tests")
        for method in self.methods:
            for run in range(self.runs):
                for problem_id in self.problem_ids:
                    if (method, run, problem_id) not in self._cells:
                        raise DataError(f"{method} has no trial of run {run} on {problem_id}")

    def cells(self, method: str) -> list[list[tuple[Trial, Mapping[str, Selection]]]]:
        """Return a method's trials with their selections, runs x problems."""
        return [[self._cells[method, run, key] for key in self.problem_ids] for run in range(self.runs)]

    def passed(self, method: str, choice: str) -> np.ndarray:
        """Return whether the chosen program passes, (runs, problems) float64.

        Args:
            method: key of `TITLES`.
            choice: a selector, or a key of `FIXED`.
        """
        return np.array(
            [
                [float(_outcome(trial, choices, choice)) for trial, choices in row]
                for row in self.cells(method)
            ]
        )

    def value(self, method: str, choice: str) -> Interval:
        """Return pass@1 in percent with its interval."""
        return mean_interval(self.passed(method, choice), self.draws, self.seed).scaled(100)

    def difference(
        self, method: str, choice: str, other: str = "base", other_choice: str = "raw"
    ) -> Interval:
        """Return the paired difference to another method (run with run) in points."""
        values, against = self.passed(method, choice), self.passed(other, other_choice)
        return paired_interval(values, against, self.draws, self.seed).scaled(100)


def _outcome(trial: Trial, choices: Mapping[str, Selection], choice: str) -> bool:
    passed = [branch.passed for branch in trial.branches]
    match choice:
        case "raw":
            return passed[-1]
        case "upper":
            return passed[upper_bound(passed)]
        case "lower":
            return passed[lower_bound(passed)]
    return passed[choices[choice].index]


def main_table(results: TipResults) -> pd.DataFrame:
    """Return pass@1 of every method under every selector and both bounds.

    Returns:
        One row a method and choice: ``method, title, choice, problems, runs, mean, std, low, high, gain,
        gain_low, gain_high`` (percent and points; ``std`` over runs, empty with one run; gains are paired
        with Base).
    """
    rows = []
    for method in results.methods:
        choices = ["raw"] if method == "base" else ["raw", *results.selectors, "upper", "lower"]
        for choice in choices:
            values = 100 * results.passed(method, choice).mean(axis=1)
            value, gain = results.value(method, choice), results.difference(method, choice)
            rows.append(
                {
                    "method": method,
                    "title": TITLES[method],
                    "choice": choice,
                    "problems": value.n,
                    "runs": value.seeds,
                    "mean": value.mean,
                    "std": values.std(ddof=1) if len(values) > 1 else None,
                    "low": value.low,
                    "high": value.high,
                    "gain": gain.mean,
                    "gain_low": gain.low,
                    "gain_high": gain.high,
                }
            )
    return pd.DataFrame(rows)


def readable_main_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the main table as text: a row a method, a column a choice; Δ is of the first selector."""
    choices = list(dict.fromkeys(table["choice"]))
    selector = next((choice for choice in choices if choice not in FIXED), "raw")
    rows = []
    for _, group in table.groupby("method", sort=False):
        records = {record["choice"]: record for record in group.to_dict("records")}
        row: dict[str, Any] = {"method": group["title"].iloc[0]}
        for choice in choices:
            record = records.get(choice)
            row[_choice_title(choice)] = "" if record is None else _mean_and_std(record)
        gain = records.get(selector)
        if gain is None or group["method"].iloc[0] == "base":
            row["Δ to Base"] = ""
        else:
            interval = Interval(gain["gain"], gain["gain_low"], gain["gain_high"], gain["problems"])
            row["Δ to Base"] = interval_text(interval, sign=True)
        rows.append(row)
    return pd.DataFrame(rows)


def _choice_title(choice: str) -> str:
    return FIXED.get(choice) or SELECTOR_TITLES.get(choice, choice)


def _mean_and_std(record: Mapping[str, Any]) -> str:
    std = record["std"]
    return f"{record['mean']:.1f}" + ("" if std is None or np.isnan(std) else f" ± {std:.1f}")


def selection_table(results: TipResults) -> pd.DataFrame:
    """Return what each selector did.

    Columns: ``method, title, choice, trials, added, repaired, broke, net, unscored``.  ``added`` counts
    trials in which the added program was taken; ``repaired`` those where the base fails and the choice
    passes, ``broke`` the reverse.  ``unscored`` counts programs that a scoring selector had no number for,
    such as those that are longer than the reward model reads; empty for what does not score.
    """
    rows = []
    for method in results.methods:
        if method == "base":
            continue
        for choice in ("raw", *results.selectors):
            cells = [cell for row in results.cells(method) for cell in row]
            base = [trial.branches[0].passed for trial, _ in cells]
            taken = [_outcome(trial, choices, choice) for trial, choices in cells]
            added = sum(
                len(trial.branches) > 1 if choice == "raw" else choices[choice].index > 0
                for trial, choices in cells
            )
            repaired = sum(t and not b for t, b in zip(taken, base, strict=True))
            broke = sum(b and not t for t, b in zip(taken, base, strict=True))
            rows.append(
                {
                    "method": method,
                    "title": TITLES[method],
                    "choice": choice,
                    "trials": len(cells),
                    "added": added,
                    "repaired": repaired,
                    "broke": broke,
                    "net": repaired - broke,
                    "unscored": None if choice == "raw" else _unscored(cells, choice),
                }
            )
    return pd.DataFrame(rows)


def _unscored(cells: Sequence[tuple[Trial, Mapping[str, Selection]]], choice: str) -> int | None:
    """Return how many programs got no score, None for a selector that gives none."""
    if any(choices[choice].reason == "random" for _, choices in cells):
        return None
    return sum(
        branch.program is not None and bool(np.isnan(score))
        for trial, choices in cells
        for branch, score in zip(trial.branches, choices[choice].scores, strict=True)
    )


def split_table(results: TipResults, kinds: Mapping[str, str], selector: str) -> pd.DataFrame:
    """Return pass@1 and its gain over Base apart for each kind of problem.

    Args:
        results: trials.
        kinds: problem id -> kind.
        selector: whose choices count.

    Returns:
        One row a kind and method: ``kind, method, problems, base, raw, selected, upper, gain, gain_low,
        gain_high`` (percent and points; the gain is of the selected program).
    """
    rows = []
    for kind in dict.fromkeys(kinds.values()):
        chosen = [i for i, key in enumerate(results.problem_ids) if kinds[key] == kind]
        base = results.passed("base", "raw")[:, chosen]
        for method in results.methods:
            if method == "base":
                continue
            values = {c: results.passed(method, c)[:, chosen] for c in ("raw", selector, "upper")}
            gain = paired_interval(values[selector], base, results.draws, results.seed).scaled(100)
            rows.append(
                {
                    "kind": kind,
                    "method": TITLES[method],
                    "problems": len(chosen),
                    "base": 100 * base.mean(),
                    "raw": 100 * values["raw"].mean(),
                    "selected": 100 * values[selector].mean(),
                    "upper": 100 * values["upper"].mean(),
                    "gain": gain.mean,
                    "gain_low": gain.low,
                    "gain_high": gain.high,
                }
            )
    return pd.DataFrame(rows)


def expected_best_of_n(scores: np.ndarray, passed: np.ndarray, n: int) -> np.ndarray:
    """Return how often the best-scored of `n` samples passes, exactly, over all ways to take `n` of a pool.

    With equal scores each is as likely to be taken.  A NaN ranks below every number.

    Args:
        scores: (problems, samples).
        passed: (problems, samples).
        n: samples allowed, at most the pool.

    Returns:
        (problems,) float64.

    Raises:
        DataError: `n` is larger than the pool.

    Example:
        >>> expected_best_of_n(np.array([[0.9, 0.1]]), np.array([[True, False]]), 1)
        array([0.5])
    """
    scores, passed = np.asarray(scores, dtype=np.float64), np.asarray(passed, dtype=np.float64)
    size = scores.shape[1]
    if not 1 <= n <= size:
        raise DataError(f"best of {n} needs a pool of at least {n} samples, there are {size}")
    scores = np.where(np.isnan(scores), -np.inf, scores)
    ways = comb(size, n)
    values = np.empty(len(scores))
    for i, (row, outcome) in enumerate(zip(scores, passed, strict=True)):
        total = 0.0
        for level in np.unique(row):
            up_to, below = int((row <= level).sum()), int((row < level).sum())
            total += (comb(up_to, n) - comb(below, n)) / ways * outcome[row == level].mean()
        values[i] = total
    return values


def best_of_n_table(
    scores: np.ndarray,
    passed: np.ndarray,
    sizes: Sequence[int],
    *,
    prompt_tokens: np.ndarray,
    reply_tokens: np.ndarray,
    scored_tokens: np.ndarray,
    draws: int,
    seed: int,
) -> pd.DataFrame:
    """Return the best-of-N curve: ``n, problems, pool, mean, low, high, tokens``.

    Args:
        scores: (problems, pool) of the reward model.
        passed: (problems, pool).
        sizes: the N.
        prompt_tokens: (problems,), read once.
        reply_tokens: (problems, pool).
        scored_tokens: (problems, pool), read by the reward model; not counted for N = 1, which asks none.
        draws, seed: of the bootstrap.
    """
    rows = []
    for n in sizes:
        value = mean_interval(expected_best_of_n(scores, passed, n), draws, seed).scaled(100)
        each = reply_tokens.mean() + (scored_tokens.mean() if n > 1 else 0.0)
        rows.append(
            {
                "n": n,
                "problems": value.n,
                "pool": scores.shape[1],
                "mean": value.mean,
                "low": value.low,
                "high": value.high,
                "tokens": prompt_tokens.mean() + n * each,
            }
        )
    return pd.DataFrame(rows)


def cost_table(results: TipResults, selector: str, searches: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Return what a problem costs: ``method, title, pass_at_1, generated, scored, tokens, executions,
    search_programs, search_tokens``.

    Tokens are those that were read and written.  ``executions``, the runs of a program on a probe, are those
    of whichever selectors ran programs, so that their bill stands beside a reward model's tokens; what their
    witnesses cost is `tipprobe.tips.trials.WITNESSES` further base programs, in no column here.

    Args:
        results: trials.
        selector: whose choice and tokens count.
        searches: what a search for one instruction spent once, before any test problem: ``programs`` and
            ``tokens``.  Empty for the others; what training spent is in the stages that trained.
    """
    rows = []
    for method in results.methods:
        cells = [cell for row in results.cells(method) for cell in row]
        choice = "raw" if method == "base" else selector
        scored = 0.0 if method == "base" else np.mean([c[selector].tokens_scored for _, c in cells])
        generated = np.mean([trial.tokens for trial, _ in cells])
        search = searches.get(method, {})
        rows.append(
            {
                "method": method,
                "title": TITLES[method],
                "pass_at_1": 100 * results.passed(method, choice).mean(),
                "generated": generated,
                "scored": scored,
                "tokens": generated + scored,
                "executions": 0.0 if method == "base" else _executions(cells),
                "search_programs": search.get("programs"),
                "search_tokens": search.get("tokens"),
            }
        )
    return pd.DataFrame(rows)


def _executions(cells: Sequence[tuple[Trial, Mapping[str, Selection]]]) -> float:
    return float(np.mean([sum(choice.executions for choice in choices.values()) for _, choices in cells]))
