"""What the corpus alone says about a coder that learnt it perfectly: base behaviour without any training.

A truncated sampler (top_p) sharpens every choice that the corpus leaves open; `sharpen` does the same to the
rates of the error model.  The numbers are a guide for turning the knobs, not a measurement.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tipprobe.evaluation.agreement import auc
from tipprobe.probes.consensus import probe_consensus
from tipprobe.problems.minicode.ops import ALL_OPS
from tipprobe.problems.minicode.programs import Deed, Spec, draw_data, outcome, parse_input
from tipprobe.problems.minicode.world import (
    Tip,
    WorldConfig,
    draw_deeds,
    draw_slip,
    error_rates,
    split_with_specs,
)


def sharpen(rate: float, others: int, top_p: float) -> float:
    """Return the rate that a nucleus of mass `top_p` makes of a deviation spread over `others` choices."""
    shares = sorted([(1 - rate, 0)] + [(rate / others, 1)] * others, reverse=True)
    kept, mass = [0.0, 0.0], 0.0
    for share, which in shares:
        if mass >= top_p:
            break
        mass += share
        kept[which] += share
    return kept[1] / mass


def sharpened_deeds(
    spec: Spec, config: WorldConfig, rng: random.Random, tip: Tip | None = None, top_p: float = 0.8
) -> list[Deed]:
    """Return one attempt as a perfectly trained coder would make it under nucleus sampling."""
    rates = error_rates(config)
    deeds: list[Deed] = []
    for step in spec.steps:
        wrong, slip = rates[step.op.name].misconception, rates[step.op.name].slip
        if tip is not None and tip.op == step.op.name:
            wrong = 1 - config.follow if tip.right else config.follow
            slip = config.slip_easy
        if rng.random() < sharpen(slip, len(ALL_OPS) - 1, top_p):
            deeds.append(draw_slip(step, rng))
        else:
            deeds.append((step.op, step.k, rng.random() < sharpen(wrong, 1, top_p)))
    return deeds


def behaviour(passed: np.ndarray, pcr: np.ndarray) -> dict[str, float | None]:
    """Return the calibrated quantities of a (problems, samples) table of hidden verdicts and PCR values.

    Rates are in percent; None where there is nothing to take a rate of.
    """
    wrong, flat = ~passed.ravel(), pcr.ravel()
    low, full = flat <= 0.5, flat == 1
    area = auc(flat, passed.ravel())
    return {
        "problems": passed.shape[0],
        "pass@1": round(100 * float(passed.mean()), 1),
        f"pass@{passed.shape[1]}": round(100 * float(passed.any(1).mean()), 1),
        "auc": None if np.isnan(area) else round(area, 3),
        "fail_at_pcr<=0.5": round(100 * float(wrong[low].mean()), 1) if low.any() else None,
        "fail_at_pcr=1": round(100 * float(wrong[full].mean()), 1) if full.any() else None,
        "share_pcr<=0.5": round(float(low.mean()), 3),
        "share_pcr=1": round(float(full.mean()), 3),
    }


def estimate(
    config: WorldConfig,
    *,
    split: str = "adaptation",
    n_problems: int = 256,
    n_samples: int = 16,
    truncated: bool = True,
) -> dict[str, Any]:
    """Return expected base behaviour on a split, and pass@1 on under-specified problems by the tip given."""
    rng = random.Random("estimate")
    attempt = sharpened_deeds if truncated else draw_deeds
    chosen = split_with_specs(split, n_problems, config=config)
    passed = np.zeros((len(chosen), n_samples), dtype=bool)
    pcr = np.zeros((len(chosen), n_samples))
    guided: dict[str, list[float]] = {"none": [], "right": [], "wrong": []}
    for row, (problem, spec) in enumerate(chosen):
        hidden = [parse_input(spec.layout, spec.has_argument, t.input) for t in problem.tests]
        examples = [parse_input(spec.layout, spec.has_argument, t.input) for t in problem.examples]
        expected = [t.expected for t in problem.tests]
        attempts = [attempt(spec, config, rng) for _ in range(n_samples)]
        passed[row] = [[outcome(spec, deeds, d) for d in hidden] == expected for deeds in attempts]
        probes = examples + [draw_data(spec, rng) for _ in range(8)]
        pcr[row] = probe_consensus([[outcome(spec, deeds, d) for d in probes] for deeds in attempts]).pcr
        if problem.meta["underspecified"]:
            guided["none"].append(passed[row].mean())
            for kind in ("right", "wrong"):
                tip = Tip("", problem.meta["tip_about"], kind == "right")
                runs = [attempt(spec, config, rng, tip) for _ in range(n_samples)]
                guided[kind].append(
                    np.mean([[outcome(spec, r, d) for d in hidden] == expected for r in runs])
                )
    under = np.array([problem.meta["underspecified"] for problem, _ in chosen])
    return {
        "all": behaviour(passed, pcr),
        "specified": behaviour(passed[~under], pcr[~under]),
        "underspecified": behaviour(passed[under], pcr[under]),
        "tip pass@1": {kind: round(100 * float(np.mean(rates)), 1) for kind, rates in guided.items()},
    }
