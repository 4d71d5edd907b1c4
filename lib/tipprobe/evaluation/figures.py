"""The figures of the evaluation.  Each function returns the figure and the table of what it shows."""

from __future__ import annotations

from tipprobe.evaluation.style import save_figure

__all__ = ["save_figure"]
