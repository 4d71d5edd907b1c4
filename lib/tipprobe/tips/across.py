"""Several proposer seeds together: one table over result folders that differ in nothing else.

``python -m tipprobe.tips.across outputs/a outputs/b ...`` prints it as Markdown; each folder holds a finished
``07_evaluation``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tipprobe.errors import DataError, TipprobeError
from tipprobe.evaluation.intervals import Interval, mean_interval, paired_interval
from tipprobe.evaluation.tables import interval_text
from tipprobe.tips.results import CONTRASTS, FIXED, SELECTOR_TITLES, TipResults
from tipprobe.tips.trials import TITLES, read_trials


def read_folder(folder: Path, draws: int, seed: int) -> TipResults:
    """Return the trials of a results folder.

    Raises:
        DataError: it holds no finished trials.
    """
    return TipResults(*read_trials(folder / "07_evaluation" / "tips" / "candidates.jsonl"), draws, seed)


def across_seeds(results: Sequence[TipResults]) -> pd.DataFrame:
    """Return pass@1 and paired differences over proposer seeds and problems.

    A problem's value under one seed is its mean over that seed's runs; seeds are the second level of the
    bootstrap.

    Args:
        results: one a proposer seed, on the same problems with the same methods.

    Returns:
        One row a quantity: ``quantity, choice, problems, seeds, mean, low, high`` (percent, or points for
        differences).

    Raises:
        DataError: the results are not of the same problems and methods.
    """
    first = results[0]
    if any((r.problem_ids, r.methods) != (first.problem_ids, first.methods) for r in results):
        raise DataError("the folders hold trials of different problems or methods: they cannot be averaged")
    rows = []
    for choice in ("raw", *first.selectors, "upper"):
        values = {
            method: np.stack(
                [r.passed(method, "raw" if method == "base" else choice).mean(axis=0) for r in results]
            )
            for method in first.methods
        }
        for method, of_method in values.items():
            rows.append(_row(TITLES[method], choice, mean_interval(of_method, first.draws, first.seed)))
        pairs = [(m, "base") for m in first.methods if m != "base"] + [
            pair for pair in CONTRASTS if set(pair) <= set(first.methods)
        ]
        for method, other in pairs:
            gain = paired_interval(values[method], values[other], first.draws, first.seed)
            rows.append(_row(f"{TITLES[method]} - {TITLES[other]}", choice, gain))
    return pd.DataFrame(rows)


def _row(quantity: str, choice: str, interval: Interval) -> dict[str, object]:
    scaled = interval.scaled(100)
    return {
        "quantity": quantity,
        "choice": choice,
        "problems": scaled.n,
        "seeds": scaled.seeds,
        "mean": scaled.mean,
        "low": scaled.low,
        "high": scaled.high,
    }


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as text, a row a quantity, a column a choice."""
    rows = []
    for quantity, group in table.groupby("quantity", sort=False):
        row = {"": quantity}
        for record in group.to_dict("records"):
            interval = Interval(record["mean"], record["low"], record["high"], record["problems"])
            title = FIXED.get(record["choice"]) or SELECTOR_TITLES.get(record["choice"], record["choice"])
            row[title] = interval_text(interval, sign=" - " in quantity)
        rows.append(row)
    return pd.DataFrame(rows)


def main(folders: Sequence[str]) -> int:
    """Print the table of some result folders; return the exit code."""
    if not folders:
        sys.stderr.write("error: name at least one results folder\n")
        return 1
    try:
        table = across_seeds([read_folder(Path(folder), 10_000, 1000) for folder in folders])
    except TipprobeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sizes = f"{table['problems'].iloc[0]} problems, {table['seeds'].iloc[0]} proposer seeds"
    sys.stdout.write(f"{sizes}\n\n{readable(table).to_markdown(index=False)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
