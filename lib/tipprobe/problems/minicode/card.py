"""The model card of a coder, made from the files beside its weights so that no number is typed by hand.

    python -m tipprobe.problems.minicode.card DIR

``recipe.json`` is written by `train`; ``calibration/<split>.json`` holds what `calibrate` measured.  These
files lie in a folder of their own, so that they are no part of the checkpoint that `model_revision` hashes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tipprobe.errors import DataError
from tipprobe.problems.minicode.estimate import LEAST_GAIN, TARGETS

TEMPLATE = Path(__file__).with_name("card_template.md")
QUANTITIES = {
    "pass@1": "pass@1, %",
    "pass@16": "pass@16, %",
    "auc": "AUC of PCR against hidden tests, pooled",
    "auc_within": "the same within problems",
    "fail_at_pcr<=0.5": "failing among programs with PCR <= 0.5, %",
    "fail_at_pcr=1": "failing among programs with PCR = 1, %",
}
TIPS = {
    "none": "under-specified problems, no tip: pass@1, %",
    "tip": "with the right tip, %",
    "wrong_tip": "with a wrong tip, %",
    "gain_tip": "gain by the right tip, points",
    "gain_wrong_tip": "gain by a wrong tip, points",
}


def read_record(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        DataError: it is missing or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def calibrations(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what was measured of the coder in `folder`, by split."""
    return {path.stem: read_record(path) for path in sorted((folder / "calibration").glob("*.json"))}


def calibration_table(folder: Path) -> list[dict[str, str]]:
    """Return the measured behaviour of a coder, one row a quantity.

    Returns:
        Rows with ``quantity``, ``target`` and one column a split, ``mean [low, high]``; none without files.
    """
    targets = {name: f"{low:g} to {high:g}" for name, (low, high) in TARGETS.items()}
    targets |= {"gain_tip": f">= {LEAST_GAIN:g}", "gain_wrong_tip": "<= 0"}
    measured = {
        split: report["behaviour"]["all"] | report["tips"]["underspecified"]
        for split, report in calibrations(folder).items()
    }
    return [
        {"quantity": title, "target": targets.get(name, "")}
        | {split: cell(found[name]) for split, found in measured.items()}
        for name, title in (QUANTITIES | TIPS).items()
        if measured and all(name in found for found in measured.values())
    ]


def cell(found: dict[str, float | None]) -> str:
    """Return a recorded interval as ``mean [low, high]``, without bounds if none were recorded."""
    if found["mean"] is None:
        return "-"
    bounds = "" if found["low"] is None else f" [{found['low']:g}, {found['high']:g}]"
    return f"{found['mean']:g}{bounds}"


def markdown_table(rows: list[dict[str, str]]) -> str:
    """Return rows of equal keys as a Markdown table."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([*row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def model_card(folder: Path) -> str:
    """Return the card's text from the files in a checkpoint folder.

    Raises:
        DataError: ``recipe.json`` is missing or unreadable.
    """
    recipe = read_record(folder / "recipe.json")
    mixture = recipe.pop("mixture")
    return TEMPLATE.read_text(encoding="utf-8").format(
        **recipe,
        **recipe["shape"],
        **mixture,
        plain=1 - mixture["guided"] - mixture["probes"] - mixture["tips"],
        loss=recipe["curve"][-1]["loss"],
        libraries=", ".join(f"{name} {number}" for name, number in recipe["versions"].items()),
        measured=_measured(folder),
    )


def _measured(folder: Path) -> str:
    reports = list(calibrations(folder).values())
    if not reports:
        return "Not done yet."
    first = reports[0]
    problems = first["behaviour"]["all"]["pass@1"]["problems"]
    tokens = first["reply_tokens"]["mean"]
    about = (
        f"{problems} problems of each split, {first['samples']} samples each, probes written by the coder.",
        f"On `{first['split']}`: entropy {first['entropy']:.3f} nats a token, {tokens:.0f} tokens a reply,",
        f"{first['truncated']} replies cut off. Brackets, if any: 95 % bootstrap intervals over problems.",
    )
    return "\n".join(about) + "\n\n" + markdown_table(calibration_table(folder))


def write_card(folder: Path) -> Path:
    """Write ``README.md`` into a checkpoint folder and return its path."""
    path = folder / "README.md"
    path.write_text(model_card(folder), encoding="utf-8")
    return path


def main() -> None:
    """Write the cards of the folders given on the command line."""
    parser = argparse.ArgumentParser(description="Write the model card of a coder from the files beside it.")
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        write_card(folder)


if __name__ == "__main__":
    main()
