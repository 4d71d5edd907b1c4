"""From samples to tables, figures, claims and hidden-test curves, on invented samples."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tipprobe.errors import DataError
from tipprobe.evaluation import claims as claims_module
from tipprobe.evaluation import reported, rescore, tables
from tipprobe.evaluation.claims import (
    CONTRADICTED,
    NOT,
    OPEN,
    PARTLY,
    REPRODUCED,
    Evidence,
    combine,
    side,
    within,
)
from tipprobe.evaluation.figures import (
    agreement_figure,
    gain_against_auc,
    main_comparison,
    pass_at_k_curves,
    save_figure,
    small_multiples,
)
from tipprobe.evaluation.intervals import Interval
from tipprobe.evaluation.results import ModelSamples, Results
from tipprobe.problems.schema import Problem, Test, write_jsonl

PROBLEMS, SAMPLES = 12, 8
RATES = {"base": 0.3, "grpo_pcr": 0.4, "erpo": 0.6}


def samples_of(method, split, seed=0, rate=None, shift=0):
    """Invented records: the share `rate` of samples is right, and right ones have the higher consensus."""
    rng = np.random.default_rng(abs(hash_of(method, split, seed)))
    records = []
    for problem in range(PROBLEMS):
        for number in range(SAMPLES):
            passed = bool(rng.random() < (RATES[method] if rate is None else rate))
            pcr = float(rng.choice([0.5, 1.0] if passed else [0.0, 0.25, 1.0]))
            record = {
                "problem_id": f"p{problem + shift}",
                "sample": number,
                "program": f"print({number % 3})",
                "passed": passed,
                "reason": "passed" if passed else "wrong_output",
                "finish_reason": "stop",
                "n_tokens": 9,
            }
            if split == "in_domain":
                vote = ["ok", "right"] if passed else ["ok", f"wrong {number % 2}"]
                record |= {
                    "pcr": pcr,
                    "pcr_voted": pcr if problem else None,
                    "probes": [vote, ["no_code", None]],
                }
            records.append(record)
    return ModelSamples.build(records, {"method": method, "seed": seed, "split": split})


def hash_of(*parts):
    return sum(ord(c) * 31**i for i, c in enumerate("/".join(map(str, parts)))) % 2**32


@pytest.fixture(scope="module")
def results():
    entries = [samples_of(m, split) for m in RATES for split in ("in_domain", "transfer")]
    return Results(entries, draws=200, seed=0)


CURVES = pd.DataFrame(
    [
        {
            "method": method,
            "seed": seed,
            "step": step,
            "reward": 0.5,
            "pcr": 0.4,
            "entropy": 0.1 + slope * step,
            "kl": None if method == "nsr_pcr" else 1e-3 * step,
            "kept_positive_share": 0.1,
            "truncated_share": 0.0,
            "entropy_ceiling": 0.2 if method == "erpo" else None,
        }
        for method, slope in (("nsr_pcr", 0.1), ("erpo", 0.01))
        for seed in (0, 1)
        for step in range(1, 11)
    ]
)


def test_results_know_their_cells(results):
    assert results.methods == ["base", "grpo_pcr", "erpo"]
    assert results.splits == ["in_domain", "transfer"]
    assert results.pass_at_k("erpo", "transfer", 2).shape == (1, PROBLEMS)
    base = results.runs("base", "in_domain")[0]
    assert results.interval("base", "in_domain", 1).mean == pytest.approx(100 * np.mean(base.passed))
    assert results.gain("base", "in_domain", 1) == Interval(0, 0, 0, PROBLEMS)
    assert results.gain("erpo", "in_domain", 1).mean == pytest.approx(
        results.interval("erpo", "in_domain", 1).mean - results.interval("base", "in_domain", 1).mean
    )


def test_results_refuse_what_cannot_be_compared():
    with pytest.raises(DataError, match="unadapted"):
        Results([samples_of("erpo", "in_domain")], 10, 0)
    with pytest.raises(DataError, match="different problems"):
        Results([samples_of("base", "in_domain"), samples_of("erpo", "in_domain", shift=1)], 10, 0)
    with pytest.raises(DataError, match="twice"):
        Results([samples_of("base", "in_domain"), samples_of("base", "in_domain")], 10, 0)


def test_seeds_are_averaged():
    entries = [samples_of("base", "in_domain")] + [samples_of("erpo", "in_domain", seed) for seed in (3, 1)]
    results = Results(entries, 100, 0)
    assert [run.seed for run in results.runs("erpo", "in_domain")] == [1, 3]
    interval = results.interval("erpo", "in_domain", 1)
    assert interval.seeds == 2
    assert interval.mean == pytest.approx(
        100 * np.mean([run.passed for run in results.runs("erpo", "in_domain")])
    )
    scores, _, units = results.consensus_groups("erpo", "in_domain")
    assert len(scores) == 2 * PROBLEMS
    assert units == [*range(PROBLEMS)] * 2


def test_main_table_has_ours_and_theirs(results, tmp_path):
    table = tables.main_table(results, [1, 8])
    assert len(table) == 2 * 3 * 2
    row = table[(table["split"] == "in_domain") & (table["method"] == "erpo") & (table["k"] == 1)].iloc[0]
    assert (row["problems"], row["samples"], row["seeds"]) == (PROBLEMS, SAMPLES, 1)
    assert row["low"] < row["mean"] < row["high"]
    assert row["reported_Qwen3-4B"] == 36.7
    assert row["reported_gain_Qwen3-8B"] == pytest.approx(9.5)
    assert np.isnan(table[table["k"] == 8]["reported_Qwen3-4B"]).all()
    readable = tables.readable_main_table(table)
    assert list(readable["method"]) == ["Base", "GRPO_PCR", "ERPO"] * 2
    assert readable["paper @1"].iloc[2] == "36.7 (+10.7) / 35.1 (+9.5)"
    assert readable["Δ@1"].iloc[0] == ""
    tables.save_table(table, readable, tmp_path / "main.v1", "Main table, stand-in x", "A note.")
    text = (tmp_path / "main.v1.md").read_text()
    assert text.startswith("**Main table, stand-in x** (in domain: ")
    assert text.rstrip().endswith("A note.")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "main.v1.csv")[["mean"]], table[["mean"]])


def test_agreement_tables(results):
    found = tables.agreements(results)
    assert list(found) == ["base", "grpo_pcr", "erpo"]
    table = tables.agreement_table(found)
    assert len(table) == 3 * 6
    base = table[table["method"] == "base"].set_index("quantity")
    assert base.loc["AUC, pooled", "reported_Qwen3-4B"] == 0.79
    assert base.loc["failure rate at PCR = 1", "reported_Qwen3-8B"] == 51.9
    assert base.loc["failure rate at PCR <= 0.25", "mean"] == 100
    assert np.isnan(table[table["method"] == "erpo"]["reported_Qwen3-4B"].astype(float)).all()
    readable = tables.readable_agreement_table(table)
    assert list(readable.columns) == [
        "quantity",
        "Base",
        "GRPO_PCR",
        "ERPO",
        "paper, Qwen3-4B",
        "paper, Qwen3-8B",
    ]
    # One group has no voted probe and is left out there.
    voted = tables.agreements(results, over="pcr_voted")
    assert voted["base"].samples == found["base"].samples - SAMPLES
    assert tables.agreements(results, "transfer") == {}


def test_outcome_shares_add_up(results):
    shares = tables.outcome_shares(results)
    assert list(shares.columns) == ["passed", "wrong_output", "cut off"]
    np.testing.assert_allclose(shares[["passed", "wrong_output"]].sum(axis=1), 100)
    assert shares.loc[("in domain", "Base"), "passed"] == results.interval("base", "in_domain", 1).mean


def test_gain_by_auc_uses_other_samples_for_sorting(results):
    table = tables.gain_by_auc(results)
    assert list(table["method"]) == ["grpo_pcr"] * 3 + ["erpo"] * 3
    assert table["auc"].iloc[:3].is_monotonic_increasing
    assert tables.gain_by_auc(results, k=SAMPLES).empty
    # Two sets of samples of one model that solves every problem half of the time. Where it was lucky, right
    # programs are the majority; sorting by that must not look like a loss, nor bad luck like a gain.
    rng = np.random.default_rng(0)
    drawn = [
        [
            {
                "problem_id": f"p{i}",
                "passed": bool(right),
                "pcr": 1.0,
                "pcr_voted": 1.0,
                "probes": [["ok", "right" if right else "wrong"]],
            }
            for i in range(1500)
            for right in rng.random(16) < 0.5
        ]
        for _ in range(2)
    ]
    entries = [
        ModelSamples.build(rows, {"method": m, "seed": 0, "split": "in_domain"})
        for rows, m in zip(drawn, ("base", "erpo"), strict=True)
    ]
    gains = tables.gain_by_auc(Results(entries, 50, 0))
    assert gains["auc"].iloc[0] == 0
    assert gains["auc"].iloc[2] == 1
    assert (gains["mean"].abs() < 3.5).all()


def test_figures_show_what_they_save(results, tmp_path):
    table = tables.main_table(results, [1, 8])
    pcr_table = tables.agreement_table(tables.agreements(results))
    figures = {
        "main": main_comparison(table, "stand-in x"),
        "curves": pass_at_k_curves(results, "in_domain", "stand-in x"),
        "transfer": pass_at_k_curves(results, "transfer", "stand-in x"),
        "pcr": agreement_figure(results, pcr_table, "stand-in x"),
        "gain": gain_against_auc(tables.gain_by_auc(results), "stand-in x"),
    }
    for name, (figure, data) in figures.items():
        assert "stand-in x" in figure.get_suptitle(), name
        _, svg, csv = save_figure(figure, tmp_path / name, data)
        assert b"stand-in x" in svg.read_bytes()
        assert len(pd.read_csv(csv)) == len(data) > 0
    data = figures["curves"][1]
    assert set(data[data["panel"].str.startswith("stand-in x")]["k"]) == {1, 2, 4, 8}
    assert data[data["panel"].str.startswith("paper")]["k"].max() == 256
    # The transfer mean has no curve in the paper.
    assert figures["transfer"][1]["panel"].nunique() == 2


def test_small_multiples_take_any_columns():
    figure, data = small_multiples(CURVES, [("entropy", "H")], "title", lines={"entropy": [0.2]})
    assert list(data.columns) == ["method", "seed", "step", "entropy"]
    assert figure.get_suptitle() == "title"
    axis = figure.axes[0]
    # Two runs and their mean for each of two methods, and the line.
    assert len(axis.lines) == 2 * 3 + 1
    assert axis.get_legend_handles_labels()[1] == ["NSR_PCR", "ERPO"]


def test_small_multiples_name_their_n_and_draw_bands():
    with_band = CURVES.assign(entropy_low=CURVES["entropy"] - 0.1, entropy_high=CURVES["entropy"] + 0.1)
    with_band = with_band.assign(problems=[np.nan, *[64] * (len(CURVES) - 1)], k=8)
    figure, data = small_multiples(with_band, [("entropy", "H"), ("kl", "KL")], "title")
    note = "a point: 64 problems × 8 rollouts, 2 training seeds; band: 95 % over problems"
    assert figure.get_suptitle() == f"title\n{note}"
    assert [len(axis.collections) for axis in figure.axes[:2]] == [
        2,
        0,
    ]  # a band a method, none without bounds
    assert {"entropy_low", "entropy_high", "problems", "k"} <= set(data)
    figure, _ = small_multiples(CURVES, [("entropy", "H")], "title", point="a point: 4 problems")
    assert figure.get_suptitle() == "title\na point: 4 problems"


def test_captions_name_problems_samples_and_seeds(results, tmp_path):
    table = tables.main_table(results, [1])
    sizes = "in domain: 12 problems × 8 samples; transfer: 12 problems × 8 samples; 1 training seed"
    assert tables.sizes_text(table) == sizes
    tables.save_table(table, tables.readable_main_table(table), tmp_path / "main", "Main table, x")
    assert (tmp_path / "main.md").read_text().startswith(f"**Main table, x** ({sizes})\n")
    pcr_table = tables.agreement_table(tables.agreements(results))
    assert tables.sizes_text(pcr_table) == "12 problems, 96 samples a method"
    assert tables.sizes_text(pd.DataFrame({"a": [1]})) == ""
    assert sizes in main_comparison(table, "x")[0].get_suptitle()
    assert "12 problems × 8 samples" in pass_at_k_curves(results, "transfer", "x")[0].get_suptitle()
    assert "12 problems, 96 samples" in agreement_figure(results, pcr_table, "x")[0].get_suptitle()
    gains = tables.gain_by_auc(results)
    figure, _ = gain_against_auc(gains, "x")
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert shown == [f"n = {n}" for n in gains.groupby("part")["problems"].first()]


@pytest.mark.parametrize(
    ("mean", "low", "high", "verdict"),
    [
        (5, 1, 9, REPRODUCED),
        (5, -1, 9, PARTLY),
        (-1, -3, 2, NOT),
        (-2, -3, -1, CONTRADICTED),
        (0, 0, 0, NOT),
        (np.nan,) * 3 + (OPEN,),
    ],
)
def test_verdicts_on_a_side(mean, low, high, verdict):
    assert side(Interval(mean, low, high, 9), 0, above=True) == verdict
    assert side(Interval(-mean, -high, -low, 9), 0, above=False) == verdict
    assert side(Interval(mean + 50, low + 50, high + 50, 9), 50, above=True) == verdict


def test_verdicts_on_small_gains_and_parts():
    assert within(Interval(1, -2, 3, 9), 3) == REPRODUCED
    assert within(Interval(1, -4, 3, 9), 3) == PARTLY
    assert within(Interval(4, 3, 5, 9), 3) == NOT
    assert within(Interval(6, 4, 8, 9), 3) == within(Interval(-6, -8, -4, 9), 3) == CONTRADICTED
    assert combine([REPRODUCED, REPRODUCED]) == REPRODUCED
    assert combine([NOT, NOT]) == NOT
    assert combine([REPRODUCED, NOT]) == PARTLY
    assert combine([REPRODUCED, OPEN]) == OPEN
    assert combine([REPRODUCED, CONTRADICTED]) == CONTRADICTED


def test_claims_have_verdicts_and_are_json(results):
    evidence = Evidence(results, tables.agreements(results), CURVES, [1, 8])
    judged = json.loads(json.dumps(claims_module.judge_claims(evidence, "x", True)))
    assert judged["stand_in"] is True
    assert judged["problems"] == {"in_domain": PROBLEMS, "transfer": PROBLEMS}
    by_id = {claim["id"]: claim for claim in judged["claims"]}
    assert len(by_id) == len(judged["claims"])
    assert {claim["verdict"] for claim in judged["claims"]} <= {
        REPRODUCED,
        PARTLY,
        NOT,
        OPEN,
        CONTRADICTED,
    }
    # ERPO was made to pass twice as often as the base model.
    assert by_id["erpo_in_domain"]["ours"].startswith("Δpass@1 +")
    assert "Δpass@8" in by_id["erpo_in_domain"]["ours"]
    assert by_id["erpo_in_domain"]["reported"] == "Δpass@1 +10.7 / +9.5; Δpass@16 +11.9 / +16.3"
    assert by_id["grpo_pub"]["verdict"] == OPEN
    assert by_id["best_of_n"]["verdict"] == OPEN
    assert by_id["low_pcr_fails"]["verdict"] in (CONTRADICTED, NOT, PARTLY, REPRODUCED)
    # Entropy: NSR_PCR from 0.2 to 1.1; ERPO ends at the ceiling.
    assert by_id["erpo_entropy"]["verdict"] == REPRODUCED
    assert by_id["nsr_entropy"]["verdict"] == OPEN  # there is no GRPO_PCR to compare with


def test_a_model_that_never_passes_proves_nothing_about_consensus(results):
    found = tables.agreements(results)
    nothing = Interval(np.nan, np.nan, np.nan, 9)
    dead = {"base": replace(found["base"], auc_pooled=nothing)}
    by_id = {
        c["id"]: c["verdict"]
        for c in claims_module.judge_claims(Evidence(results, dead, CURVES, [1, 8]), "x", True)["claims"]
    }
    assert by_id["auc"] == by_id["low_pcr_fails"] == by_id["full_pcr_is_no_proof"] == OPEN


@pytest.mark.parametrize(
    ("nsr", "runs_away", "held"), [(0.5, REPRODUCED, REPRODUCED), (0.24, PARTLY, OPEN), (0.1, NOT, OPEN)]
)
def test_entropies_are_compared_on_the_same_problems(results, nsr, runs_away, held):
    last = {"nsr_pcr": nsr, "grpo_pcr": 0.2, "erpo": 0.21}
    rows = [
        # The first step's problems have a high entropy under every method, which must not matter.
        {"method": m, "seed": 0, "step": step, "entropy": entropy if step == 2 else 5.0}
        for m, entropy in last.items()
        for step in (1, 2)
    ]
    curves = pd.DataFrame(rows)
    curves["entropy_ceiling"] = np.where(curves["method"] == "erpo", 0.2, np.nan)
    evidence = Evidence(results, tables.agreements(results), curves, [1, 8])
    by_id = {c["id"]: c["verdict"] for c in claims_module.judge_claims(evidence, "x", True)["claims"]}
    assert (by_id["nsr_entropy"], by_id["erpo_entropy"]) == (runs_away, held)


def test_claims_about_many_samples_need_more_than_one(results):
    evidence = Evidence(results, tables.agreements(results), CURVES, [1])
    by_id = {c["id"]: c for c in claims_module.judge_claims(evidence, "x", True)["claims"]}
    assert by_id["erpo_in_domain"]["verdict"] == by_id["only_erpo"]["verdict"] == OPEN
    assert by_id["grpo_pcr_transfer"]["verdict"] != OPEN  # about pass@1 alone


def test_only_erpo_needs_everybody_else_to_fail(results):
    def verdict(rate_of_other):
        entries = [
            samples_of("base", "in_domain", rate=0.0),
            samples_of("erpo", "in_domain", rate=0.9),
            samples_of("grpo_pcr", "in_domain", rate=rate_of_other),
        ]
        evidence = Evidence(Results(entries, 100, 0), {}, CURVES, [1, 8])
        return {c["id"]: c for c in claims_module.judge_claims(evidence, "x", True)["claims"]}["only_erpo"][
            "verdict"
        ]

    assert verdict(0.0) == REPRODUCED
    assert verdict(0.9) == PARTLY


def test_reported_numbers():
    assert reported.reported_pass("Qwen3-4B", "base", "in_domain", 16) == 34.4
    assert reported.reported_pass("Qwen3-4B", "erpo", "in_domain", 256) == 51.9
    assert reported.reported_pass("Qwen3-4B", "grpo_oracle", "in_domain", 1) is None
    assert reported.reported_gain("Qwen3-4B", "grpo_pcr", "transfer", 16) == pytest.approx(-3.6)
    assert reported.reported_gain("Qwen3-8B", "erpo", "in_domain", 7) is None
    assert reported.title_name("minicode-1m") == "stand-in minicode-1m"
    assert reported.title_name("Qwen3-8B") == "Qwen3-8B"
    with pytest.raises(DataError, match="erpo_table1"):
        reported.table("nothing")


RIGHT, WRONG = (f"```python\nprint(int(input()) {sign} 1)\n```" for sign in "+-")


def test_rollouts_are_graded_after_training(tmp_path, sandbox):
    test = Test("3\n", "4\n")
    problems = [Problem(f"p{number}", "Read n, print n + 1.", tests=(test,)) for number in range(4)]
    base = ModelSamples.build(
        [
            {"problem_id": p.id, "program": "x", "passed": i == 0, "sample": i}
            for p in problems
            for i in range(4)
        ],
        {"method": "base", "seed": 0, "split": "in_domain"},
    )
    records = [
        {"step": step, "problem_id": problems[number].id, "sample": i, "completion": text}
        for step in (1, 2, 3)
        for number in ((0, 1) if step % 2 else (2, 3))
        for i, text in enumerate([RIGHT, RIGHT if step == 3 else WRONG])
    ]
    folder = tmp_path / "erpo-seed2"
    write_jsonl(folder / "rollouts.jsonl", records)
    options = {"time_limit_s": 2.0, "memory_mb": 512}
    curves = rescore.hidden_curves([folder], problems, base, sandbox, **options)
    assert curves[["method", "seed", "step", "k"]].values.tolist() == [["erpo", 2, s, 2] for s in (1, 2, 3)]
    assert curves["pass_at_1"].tolist() == [50, 50, 100]
    assert curves["pass_at_k"].tolist() == [100, 100, 100]
    # The base model solves each problem once in four: 25 % with one sample, 50 % with two.
    assert curves["gain_1"].tolist() == [25, 25, 75]
    assert curves["gain_k"].tolist() == [50, 50, 50]
    np.testing.assert_array_equal(curves["gain_1_mean"], [np.nan, 25, 50])
    np.testing.assert_array_equal(curves["problems"], [np.nan, 4, 4])
    # All problems gain the same in the first window; in the last two gain 25 points and two 75.
    np.testing.assert_allclose(curves["gain_1_mean_low"], [np.nan, 25, 25])
    np.testing.assert_allclose(curves["gain_1_mean_high"], [np.nan, 25, 75])
    known = {(p.id, "print(int(input()) + 1)"): False for p in problems}
    assert rescore.hidden_curves([folder], problems, base, sandbox, known=known, **options)[
        "pass_at_1"
    ].tolist() == [0, 0, 0]
    with pytest.raises(DataError, match="not evaluated"):
        rescore.hidden_curves([folder], problems[:1], base, sandbox, **options)
