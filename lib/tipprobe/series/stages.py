"""The stages of the series, in order.  Adding one = one entry here and one notebook of the same name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tipprobe import paths
from tipprobe.errors import StageError
from tipprobe.series import notebooks


def _always(_: Mapping[str, Any]) -> bool:
    return True


def _embedded_world(params: Mapping[str, Any]) -> bool:
    return str(params["model"]).startswith("minicode-")


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What the runner knows about a stage.

    Attributes:
        name: name of the notebook, and of the stage's folder below ``out``.
        title: one line for the terminal and the report.
        outputs: files, relative to the stage's folder, that must exist and parse when it is done; ``*`` and
            ``**`` as in `pathlib.Path.glob`, each pattern has to match at least once.
        inputs: files it reads, relative to ``out``, each beginning with the name of the stage that writes it.
        extendable: list parameters to which a value can be added without losing what was computed for the
            others.
        applies: whether a profile has this stage at all; `skip_note` says why if not.
        skip_note: see `applies`.
    """

    name: str
    title: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    extendable: tuple[str, ...] = ()
    applies: Callable[[Mapping[str, Any]], bool] = _always
    skip_note: str = ""

    @property
    def number(self) -> str:
        """The two digits that the name begins with."""
        return self.name[:2]

    @property
    def notebook(self) -> Path:
        """The notebook's file."""
        return paths.NOTEBOOKS / f"{self.name}.ipynb"

    @property
    def upstream(self) -> tuple[str, ...]:
        """Names of the stages whose files this one reads."""
        return tuple(dict.fromkeys(path.split("/")[0] for path in self.inputs))


STAGES: tuple[StageSpec, ...] = (
    StageSpec(
        name="00_minicode",
        title="The embedded world and its coder",
        outputs=(
            "problems/adaptation.jsonl",
            "problems/transfer.jsonl",
            "problems/heldout.jsonl",
            "coder.json",
            "figures/*.png",
        ),
        applies=_embedded_world,
        skip_note="shows the embedded world, which this profile does not use",
    ),
    StageSpec(
        name="05_probe_generation",
        title="Probe inputs for every problem",
        outputs=("probes.jsonl", "probe_summary.csv", "figures/*.png"),
    ),
    StageSpec(
        name="06_erpo_adaptation",
        title="Adaptation by policy optimisation",
        inputs=("05_probe_generation/probes.jsonl",),
        outputs=("training_curves.csv", "figures/*.png"),
        extendable=("methods", "seeds"),
    ),
    StageSpec(
        name="07_evaluation",
        title="Evaluation on hidden tests",
        inputs=("05_probe_generation/probes.jsonl", "06_erpo_adaptation/training_curves.csv"),
        outputs=(
            "samples/*.jsonl",
            "main_table.csv",
            "main_table.md",
            "pcr_vs_hidden.csv",
            "pcr_vs_hidden.md",
            "claims.json",
            "figures/*.png",
            "figures/*.svg",
            "figures/*.csv",
        ),
        extendable=("methods", "seeds"),
    ),
)


def get_stage(name: str) -> StageSpec:
    """Return the stage called `name`, by its full name or its number.

    Raises:
        StageError: there is none.
    """
    for stage in STAGES:
        if name == stage.name or name == stage.number or name == str(int(stage.number)):
            return stage
    names = [stage.name for stage in STAGES]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise StageError(f"no stage {name!r}{hint} (stages: {', '.join(names)})")


def parameter_use() -> dict[str, list[str]]:
    """Return the numbers of the notebooks that name each parameter in their parameters cells."""
    use: dict[str, list[str]] = {}
    for stage in STAGES:
        if stage.notebook.is_file():
            for name in notebooks.parameters(stage.notebook):
                use.setdefault(name, []).append(stage.number)
    return use
