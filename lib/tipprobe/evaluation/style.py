"""How every figure looks and how it is saved: the one module that knows colours, fonts and file formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

#: One colour a method, everywhere; told apart with any common colour blindness (Okabe and Ito), grey for
#: the unadapted model.
PALETTE: dict[str, str] = {
    "base": "#7f7f7f",
    "grpo_pub": "#0072b2",
    "grpo_pcr": "#e69f00",
    "nsr_pcr": "#cc79a7",
    "erpo": "#009e73",
    "grpo_random": "#56b4e9",
    "grpo_oracle": "#d55e00",
    "best_of_2": "#999999",
    "self_hint": "#56b4e9",
    "opro": "#e69f00",
    "gepa": "#d55e00",
    "ctrl": "#cc79a7",
    "tipcoder_sft": "#0072b2",
    "tipcoder_rl": "#009e73",
}
#: The same for those who see no colour at all.
MARKERS: dict[str, str] = {
    "base": "o",
    "grpo_pub": "s",
    "grpo_pcr": "^",
    "nsr_pcr": "v",
    "erpo": "D",
    "grpo_random": "P",
    "grpo_oracle": "X",
    "best_of_2": "o",
    "self_hint": "P",
    "opro": "^",
    "gepa": "X",
    "ctrl": "v",
    "tipcoder_sft": "s",
    "tipcoder_rl": "D",
}
#: For what is not about methods: a strong and a weak line, and what the paper reported.
INK, FAINT, REPORTED = "#333333", "#bbbbbb", "#000000"

_DPI = 160
_RC: dict[str, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": _DPI,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "tipprobe",  # ids in the file do not change from run to run
}


def figure_style() -> AbstractContextManager[None]:
    """Return a context in which figures are made in the project's style."""
    theme = sns.axes_style("ticks") | sns.plotting_context("notebook") | _RC
    return mpl.rc_context(theme)


def new_figure(
    rows: int, columns: int, size: tuple[float, float], **kwargs: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes, always a (rows, columns) array; `size` is in inches."""
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **kwargs)
    return figure, axes


def figure_title(figure: Figure) -> str:
    """Return a figure's title on one line, its first panel's where it has none of its own."""
    title = figure.get_suptitle() or next((axis.get_title() for axis in figure.axes), "")
    return " ".join(title.split())


def save_figure(
    figure: Figure, stem: str | Path, data: pd.DataFrame | Sequence[Mapping[str, Any]]
) -> list[Path]:
    """Save a figure as PNG and SVG, and the numbers it shows as CSV; the same input gives the same bytes.

    Both images carry the figure's title in their metadata, for those who cannot see them.
    The figure is closed, so that a notebook shows it once, where it is displayed.

    Args:
        figure: what to save.
        stem: path without suffix; folders are made.
        data: exactly the numbers plotted, one row a mark.

    Returns:
        The three paths.
    """
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg, csv = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("png", "svg", "csv"))
    with mpl.rc_context({key: _RC[key] for key in ("svg.fonttype", "svg.hashsalt")}):
        title = figure_title(figure)
        figure.savefig(png, dpi=_DPI, metadata={"Title": title})
        figure.savefig(svg, metadata={"Date": None, "Title": title})
    pd.DataFrame(data).to_csv(csv, index=False, lineterminator="\n")
    plt.close(figure)
    return [png, svg, csv]
