"""Behavioural consensus: how often a candidate's output is the one that most candidates agree on.

Nothing here knows programs or models.  Input is a table of *vote keys*, one row a candidate and one column
a probe; two outputs are the same answer exactly if their keys are equal, and None says that the candidate
failed on that probe (see `tipprobe.sandbox.vote_key`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tipprobe.errors import DataError


@dataclass(frozen=True, eq=False)
class Consensus:
    """Agreement of a group of candidates on a set of probes.

    Attributes:
        hits: (G,) int64, number of probes on which the candidate's output is in the majority set.
        n_probes: number of probes, those on which every candidate failed included.
        n_voted: number of probes on which at least one candidate produced an output.
        majority: per probe the set of keys with the highest count; empty where nobody voted.
        pcr: (G,) float64 in [0, 1], probe consensus reward: ``hits / n_probes``; 0 without probes.
        pcr_voted: (G,) float64 in [0, 1], ``hits / n_voted``; NaN where no probe was voted on.
    """

    hits: np.ndarray
    n_probes: int
    n_voted: int
    majority: tuple[frozenset[str], ...]
    pcr: np.ndarray
    pcr_voted: np.ndarray


def probe_consensus(keys: Sequence[Sequence[str | None]]) -> Consensus:
    """Return the consensus of a group.

    Ties are all majority.  A probe on which every candidate failed credits nobody and stays in the
    denominator of `Consensus.pcr`, which leaves z-scored advantages inside a group as they are (every score
    shrinks by the same factor) but moves thresholds on the reward across problems; `Consensus.pcr_voted`
    leaves such probes out.

    Args:
        keys: ``keys[i][j]`` is candidate i's vote key on probe j, None if it failed there.

    Raises:
        DataError: there is no candidate, or the rows differ in length.

    Example:
        >>> c = probe_consensus([["1", "7"], ["1", "8"], ["2", None]])
        >>> c.hits.tolist(), [sorted(m) for m in c.majority]
        ([2, 2, 0], [['1'], ['7', '8']])
    """
    if not keys:
        raise DataError("probe_consensus needs at least one candidate")
    n_probes = len(keys[0])
    if any(len(row) != n_probes for row in keys):
        raise DataError("probe_consensus: every candidate needs one vote key (or None) for each probe")
    majority = tuple(_majority([row[j] for row in keys]) for j in range(n_probes))
    # s_i (paper): share of probes whose majority set M_j holds candidate i's output.
    hits = np.array(
        [sum(key in top for key, top in zip(row, majority, strict=True)) for row in keys], dtype=np.int64
    )
    n_voted = sum(bool(top) for top in majority)
    return Consensus(
        hits=hits,
        n_probes=n_probes,
        n_voted=n_voted,
        majority=majority,
        pcr=hits / n_probes if n_probes else np.zeros(len(keys)),
        pcr_voted=hits / n_voted if n_voted else np.full(len(keys), np.nan),
    )


def _majority(column: Sequence[str | None]) -> frozenset[str]:
    counts = Counter(key for key in column if key is not None)
    top = max(counts.values(), default=0)
    return frozenset(key for key, count in counts.items() if count == top)
