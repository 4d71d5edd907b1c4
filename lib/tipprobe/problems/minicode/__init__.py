"""The embedded world: a controllable source of small programming problems, and the coder trained on it.

`ops` is the vocabulary, `programs` turns a specification into text, `world` decides which problems exist and
how programmers err on them, `corpus` writes what the coder learns from, `train` trains it, `estimate` and
`calibrate` say how it behaves, `card` writes that down, `show` shows it in notebook 00.
"""

from pathlib import Path

from tipprobe.problems.minicode.world import SPLITS, WorldConfig, error_rates, split

#: Packaged checkpoints: ``WEIGHTS / "1m"`` and ``WEIGHTS / "5m"``.
WEIGHTS = Path(__file__).parent / "weights"

__all__ = ["SPLITS", "WEIGHTS", "WorldConfig", "error_rates", "split"]
