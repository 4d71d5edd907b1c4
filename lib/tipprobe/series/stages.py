"""The stages of the series, in order.  Adding one = one entry here and one notebook of the same name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tipprobe import paths
from tipprobe.errors import StageError
from tipprobe.series import notebooks

Condition = Callable[[Mapping[str, Any]], bool]


def _always(_: Mapping[str, Any]) -> bool:
    return True


def _embedded_world(params: Mapping[str, Any]) -> bool:
    return str(params["model"]).startswith("minicode-")


# A stage sees the parameters of its own notebook; what is not among them cannot switch anything off.


def _adapts(params: Mapping[str, Any]) -> bool:
    return params.get("methods") != ["base"]


def _tip_half(params: Mapping[str, Any]) -> bool:
    return params.get("tip_methods") != []


def _reinforced(params: Mapping[str, Any]) -> bool:
    return _tip_half(params) and params.get("rl_steps") != 0


def _compares(method: str) -> Condition:
    """Return the condition that `method` is among the test-time methods."""
    return lambda params: method in params.get("tip_methods", [method])


def _tip_probes(params: Mapping[str, Any]) -> bool:
    return _tip_half(params) and "pcr" in params.get("tip_selectors", ["pcr"])


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
        only_if: which of `outputs` and `inputs` belong to one half of the series alone, with the condition
            under which they do; see `for_params`.
    """

    name: str
    title: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    extendable: tuple[str, ...] = ()
    applies: Condition = _always
    skip_note: str = ""
    only_if: tuple[tuple[Condition, tuple[str, ...]], ...] = ()

    def for_params(self, params: Mapping[str, Any]) -> StageSpec:
        """Return the stage with the files that it reads and writes under `params`."""
        left_out = {path for holds, files in self.only_if if not holds(params) for path in files}
        return replace(
            self,
            outputs=tuple(path for path in self.outputs if path not in left_out),
            inputs=tuple(path for path in self.inputs if path not in left_out),
            only_if=(),
        )

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


_NO_TIPS = "is of the tip half, which this profile leaves out"
_BASELINE_FILES = {
    "ctrl": "03_proposer_sft/critic/checkpoint/config.json",
    "opro": "03_proposer_sft/opro.json",
    "gepa": "03_proposer_sft/gepa.json",
}
#: What the evaluation reads for a test-time method, if it compares it.
_METHOD_FILES = {
    "tipcoder_sft": "03_proposer_sft/proposer/checkpoint/config.json",
    "tipcoder_rl": "04_proposer_rl/proposer/checkpoint/config.json",
    **_BASELINE_FILES,
}


def _learnt(params: Mapping[str, Any]) -> bool:
    """Whether the evaluation tests something that was learnt from the mined problems."""
    return bool(set(params.get("tip_methods", _METHOD_FILES)) & set(_METHOD_FILES))


_TIP_EVALUATION = (
    "tips/candidates.jsonl",
    "tips_main_table.csv",
    "tips_main_table.md",
    "tips_selection.csv",
    "tips_cost.csv",
    "tip_categories.csv",
)

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
        name="01_data_mining",
        title="Failed attempts and their repair",
        outputs=(
            "base_rates.jsonl",
            "contamination.csv",
            "evaluation_sets.json",
            "trajectories.jsonl",
            "mining_summary.csv",
            "figures/*.png",
        ),
        applies=_tip_half,
        skip_note=_NO_TIPS,
    ),
    StageSpec(
        name="02_tip_distillation",
        title="Tips from repaired attempts",
        inputs=("01_data_mining/base_rates.jsonl", "01_data_mining/trajectories.jsonl"),
        outputs=("tips.jsonl", "verified_tips.jsonl", "tip_losses.csv", "figures/*.png"),
        applies=_tip_half,
        skip_note=_NO_TIPS,
    ),
    StageSpec(
        name="03_proposer_sft",
        title="A proposer learns from verified tips",
        inputs=(
            "01_data_mining/base_rates.jsonl",
            "01_data_mining/contamination.csv",
            "01_data_mining/trajectories.jsonl",
            "02_tip_distillation/verified_tips.jsonl",
        ),
        outputs=(
            "proposer/checkpoint/config.json",
            "critic/checkpoint/config.json",
            "opro.json",
            "gepa.json",
            "sft_metrics.csv",
            "tips_side_by_side.jsonl",
            "pass_rates.csv",
            "figures/*.png",
        ),
        applies=_tip_half,
        skip_note=_NO_TIPS,
        only_if=tuple(
            (_compares(method), (path.partition("/")[2],)) for method, path in _BASELINE_FILES.items()
        ),
    ),
    StageSpec(
        name="04_proposer_rl",
        title="The proposer is rewarded for useful tips",
        inputs=(
            "01_data_mining/base_rates.jsonl",
            "01_data_mining/contamination.csv",
            "02_tip_distillation/verified_tips.jsonl",
            "03_proposer_sft/proposer/checkpoint/config.json",
            "03_proposer_sft/tips_side_by_side.jsonl",
        ),
        outputs=(
            "proposer/checkpoint/config.json",
            "proposer/rollouts.jsonl",
            "metrics.csv",
            "rl_problems.csv",
            "tips_side_by_side.jsonl",
            "pass_rates.csv",
            "figures/*.png",
        ),
        applies=_reinforced,
        skip_note="is the reinforcement of a proposer, which this profile leaves out",
    ),
    StageSpec(
        name="05_probe_generation",
        title="Probe inputs for every problem",
        outputs=("probes.jsonl", "tip_probes.jsonl", "probe_summary.csv", "figures/*.png"),
        only_if=((_tip_probes, ("tip_probes.jsonl",)),),
    ),
    StageSpec(
        name="06_erpo_adaptation",
        title="Adaptation by policy optimisation",
        inputs=("05_probe_generation/probes.jsonl",),
        outputs=("training_curves.csv", "figures/*.png"),
        extendable=("methods", "seeds"),
        applies=_adapts,
        skip_note="adapts a model, which this profile does not",
    ),
    StageSpec(
        name="07_evaluation",
        title="Evaluation on hidden tests",
        inputs=(
            "01_data_mining/evaluation_sets.json",
            "05_probe_generation/probes.jsonl",
            "06_erpo_adaptation/training_curves.csv",
            *_METHOD_FILES.values(),
            "05_probe_generation/tip_probes.jsonl",
        ),
        outputs=(
            "samples/*.jsonl",
            "main_table.csv",
            "main_table.md",
            "pcr_vs_hidden.csv",
            "pcr_vs_hidden.md",
            *_TIP_EVALUATION,
            "claims.json",
            "figures/*.png",
            "figures/*.svg",
            "figures/*.csv",
        ),
        extendable=("methods", "seeds"),
        only_if=(
            (_adapts, ("06_erpo_adaptation/training_curves.csv",)),
            (_tip_half, _TIP_EVALUATION),
            (_learnt, ("01_data_mining/evaluation_sets.json",)),
            *((_compares(method), (path,)) for method, path in _METHOD_FILES.items()),
            (_tip_probes, ("05_probe_generation/tip_probes.jsonl",)),
        ),
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
