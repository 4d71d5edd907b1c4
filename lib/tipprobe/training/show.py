"""What notebooks show of adaptation: live progress, one group as a table, curves of finished runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tipprobe.problems.schema import read_jsonl
from tipprobe.training.rollouts import ScoredGroup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Panels of the curves: column of the metrics, title.
PANELS = (
    ("pcr", "mean PCR of rollouts"),
    ("probe_pass_share", "probes answered (share)"),
    ("entropy", "token entropy (nats)"),
    ("kl", "KL to the base model (nats a token)"),
    ("kept_positive_share", "kept rows with A > 0 (share)"),
    ("truncated_share", "replies cut off (share)"),
)


def live(show: Callable[..., None]) -> Callable[[str, int, int, dict[str, Any]], None]:
    """Return a callback for `adapt` and `adapt_all` that feeds a counter of rollout steps over all runs.

    Args:
        show: called as ``show(steps done in all runs, run=..., **values of that run's last step)``.
    """
    done: dict[str, int] = {}

    def report(name: str, step: int, steps: int, metrics: Mapping[str, Any]) -> None:
        done[name] = step
        show(sum(done.values()), run=f"{name} {step}/{steps}", **headline(metrics))

    return report


def headline(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the few values of a rollout step that tell whether a run is healthy."""
    if not metrics:
        return {}
    ceiling, kl = metrics["entropy_ceiling"], metrics["kl"]
    return {
        "reward": round(metrics["reward"], 3),
        "answered": round(metrics["probe_pass_share"], 3),
        "H": f"{metrics['entropy']:.3f}" + (f"/{ceiling:.3f}" if ceiling is not None else ""),
        "KL": "off" if kl is None else f"{kl:.1e}",
        "kept A>0": round(metrics["kept_positive_share"], 2),
        "cut off": round(metrics["truncated_share"], 3),
        "failed": round(1 - metrics["probe_pass_share"], 3),
    }


def group_table(group: ScoredGroup, rows: Sequence[int] | None = None, width: int = 18) -> pd.DataFrame:
    """Return candidates x probes: the vote, or the reason of failure in brackets; ``*`` marks the majority.

    Args:
        group: a scored group.
        rows: candidates to show, all by default.
        width: longest vote shown, in characters.
    """
    consensus = group.consensus
    table = {
        f"candidate {i}": [
            _cell(outcome.status, outcome.key, outcome.key in top, width)
            for outcome, top in zip(group.candidates[i].outcomes, consensus.majority, strict=True)
        ]
        for i in (range(len(group.candidates)) if rows is None else rows)
    }
    return pd.DataFrame(table, index=[f"probe {j}" for j in range(consensus.n_probes)]).T


def _cell(status: str, key: str | None, majority: bool, width: int) -> str:
    if key is None:
        return f"[{status}]"
    text = key.replace("\n", "⏎")
    return (text if len(text) <= width else text[: width - 1] + "…") + (" *" if majority else "")


def unlike_candidates(group: ScoredGroup, k: int = 4) -> list[int]:
    """Return up to `k` candidates that behave differently from each other, highest consensus first."""
    chosen: dict[tuple[str, ...], int] = {}
    for i in np.argsort(-group.consensus.hits, kind="stable"):
        behaviour = tuple(
            o.key if o.key is not None else f"[{o.status}]" for o in group.candidates[i].outcomes
        )
        chosen.setdefault(behaviour, int(i))
    picks = list(chosen.values())
    if len(picks) <= k:
        return picks
    # Spread over the range of consensus: the best, the worst, and evenly between.
    return [picks[round(place)] for place in np.linspace(0, len(picks) - 1, k)]


def load_curves(folders: Sequence[Path]) -> pd.DataFrame:
    """Return the metrics of finished runs, a row a rollout step, ``method`` and ``seed`` in front.

    Times are left out, so that the table is the same whenever the runs are.
    """
    rows = []
    for folder in folders:
        method, _, seed = folder.name.rpartition("-seed")
        for record in read_jsonl(folder / "metrics.jsonl"):
            values = {k: v for k, v in record.items() if not k.endswith("_s")}
            rows.append({"method": method, "seed": int(seed), **values})
    return pd.DataFrame(rows)


def plot_curves(curves: pd.DataFrame, label: str, point: str = "") -> Figure:
    """Return `PANELS` over rollout steps: a thin line a run, a thick one for the mean over seeds.

    Args:
        curves: from `load_curves`.
        label: name of the model, for the title.
        point: what one step of a run is measured on, for the title, such as ``8 problems × 16 rollouts``.
    """
    from tipprobe.evaluation.figures import small_multiples
    from tipprobe.evaluation.reported import title_name

    n_seeds = curves["seed"].nunique()
    seeds = f"{n_seeds} seed{'s' * (n_seeds > 1)} a method"
    title = f"Adaptation of {title_name(label)} ({seeds}; dotted: the ceiling)"
    ceilings = sorted(curves["entropy_ceiling"].dropna().unique())
    point = point and f"a point: {point}"
    return small_multiples(curves, PANELS, title, lines={"entropy": ceilings}, point=point)[0]
