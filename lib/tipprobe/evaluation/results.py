"""Samples files as arrays: what tables, figures and claims are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from tipprobe.errors import DataError
from tipprobe.evaluation.evaluate import read_samples
from tipprobe.evaluation.intervals import Interval, mean_interval, paired_interval
from tipprobe.evaluation.passk import pass_at_k_per_problem
from tipprobe.training.methods import METHODS

BASE = "base"


@dataclass(frozen=True)
class ModelSamples:
    """One model's samples on one problem set.

    Attributes:
        method: key of `tipprobe.training.methods.METHODS`.
        seed: of its training, 0 for the unadapted model.
        split: ``in_domain`` or ``transfer``.
        problem_ids: the problems, in order.
        passed: for each problem, whether each sample is correct.
        pcr: for each problem, each sample's consensus; None without probes.
        pcr_voted: the same over probes that somebody answered (NaN where nobody did).
        votes: for each problem, each sample's vote on each probe, None where it failed; None without probes.
        records: the samples themselves.
    """

    method: str
    seed: int
    split: str
    problem_ids: tuple[str, ...]
    passed: list[list[bool]]
    pcr: list[list[float]] | None
    pcr_voted: list[list[float]] | None
    votes: list[list[list[str | None]]] | None
    records: list[dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> ModelSamples:
        """Read a samples file whose header's `meta` named method, seed and split.

        Raises:
            DataError: it is not such a file.
        """
        header, records = read_samples(path)
        missing = [key for key in ("method", "seed", "split") if key not in header]
        if missing:
            raise DataError(f"{path}: the header does not say which {missing[0]} the samples are of")
        return cls.build(records, header)

    @classmethod
    def build(cls, records: Sequence[dict[str, Any]], header: Mapping[str, Any]) -> ModelSamples:
        """Build from records and the header's method, seed and split."""
        groups = [(key, list(rows)) for key, rows in groupby(records, lambda r: r["problem_id"])]
        scored = bool(records) and "pcr" in records[0]

        def column(name: str) -> list[list[Any]]:
            return [[np.nan if row[name] is None else row[name] for row in rows] for _, rows in groups]

        return cls(
            header["method"],
            header["seed"],
            header["split"],
            tuple(key for key, _ in groups),
            column("passed"),
            column("pcr") if scored else None,
            column("pcr_voted") if scored else None,
            [[[vote for _, vote in row["probes"]] for row in rows] for _, rows in groups] if scored else None,
            list(records),
        )


class Results:
    """All models on all problem sets.

    Args:
        samples: one a method, seed and split.
        draws: bootstrap draws of every interval.
        seed: of the bootstrap.

    Raises:
        DataError: two samples are of the same model and split, the models of a split saw different problems,
            or the unadapted model is missing.
    """

    def __init__(self, samples: Iterable[ModelSamples], draws: int, seed: int) -> None:
        self.draws, self.seed = draws, seed
        self._cells: dict[tuple[str, str], dict[int, ModelSamples]] = {}
        for entry in samples:
            runs = self._cells.setdefault((entry.method, entry.split), {})
            if entry.seed in runs:
                raise DataError(f"{entry.method}, seed {entry.seed} occurs twice on {entry.split}")
            runs[entry.seed] = entry
        for split in self.splits:
            if (BASE, split) not in self._cells:
                raise DataError(f"the unadapted model (method base) was not evaluated on {split}")
            ids = self.runs(BASE, split)[0].problem_ids
            for method in self.methods:
                if any(run.problem_ids != ids for run in self.runs(method, split)):
                    raise DataError(f"{method} and base saw different problems on {split}")

    @property
    def methods(self) -> list[str]:
        """Methods, in the order of `METHODS`."""
        present = {method for method, _ in self._cells}
        return [name for name in METHODS if name in present]

    @property
    def splits(self) -> list[str]:
        """Problem sets, the one adapted on first."""
        return sorted({split for _, split in self._cells}, key=("in_domain", "transfer").index)

    def runs(self, method: str, split: str) -> list[ModelSamples]:
        """Return a method's runs on a split by seed; empty if there are none."""
        return [run for _, run in sorted(self._cells.get((method, split), {}).items())]

    def samples_per_problem(self, split: str) -> int:
        """Return the number of samples of each problem."""
        return len(self.runs(BASE, split)[0].passed[0])

    def pass_at_k(self, method: str, split: str, k: int) -> np.ndarray:
        """Return pass@k, (seeds, problems)."""
        return np.stack([pass_at_k_per_problem(run.passed, k) for run in self.runs(method, split)])

    def interval(self, method: str, split: str, k: int) -> Interval:
        """Return mean pass@k with its interval, in percent."""
        return mean_interval(self.pass_at_k(method, split, k), self.draws, self.seed).scaled(100)

    def gain(self, method: str, split: str, k: int) -> Interval:
        """Return the paired difference of pass@k to the unadapted model with its interval, in points."""
        values, base = (self.pass_at_k(name, split, k) for name in (method, BASE))
        return paired_interval(values, base, self.draws, self.seed).scaled(100)

    def consensus_groups(
        self, method: str, split: str, over: str = "pcr"
    ) -> tuple[list[list[float]], list[list[bool]], list[int]]:
        """Return consensus, correctness and the problem's number of each run's samples of each problem.

        Runs without probes, and groups whose consensus is undefined, are left out.
        """
        scores, passed, units = [], [], []
        for run in self.runs(method, split):
            column = run.pcr if over == "pcr" else run.pcr_voted
            for unit, (row, labels) in enumerate(zip(column or (), run.passed, strict=False)):
                if not np.isnan(row).any():
                    scores.append(row)
                    passed.append(labels)
                    units.append(unit)
        return scores, passed, units
