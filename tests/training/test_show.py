import matplotlib
import pytest

from tipprobe.models.types import Completion
from tipprobe.probes import Probe, ProbeSet, mutation_probes
from tipprobe.probes.show import dropped_shares, findings, plot_outcomes, probe_summary
from tipprobe.problems.schema import write_jsonl
from tipprobe.sandbox import Limits, Run
from tipprobe.training.rollouts import score_groups
from tipprobe.training.show import group_table, headline, live, load_curves, plot_curves, unlike_candidates

matplotlib.use("Agg")
METRICS = {
    "step": 1,
    "reward": 0.5,
    "pcr": 0.5,
    "probe_pass_share": 0.75,
    "kept_positive_share": 0.1,
    "truncated_share": 0.0,
    "entropy": 0.12,
    "entropy_ceiling": 0.2,
    "kl": 0.001,
    "step_s": 3.0,
}


@pytest.fixture
def group(sandbox, problems):
    sandbox.table = {
        "a": [Run("ok", stdout=b"1\n2")],
        "b": [Run("ok", stdout=b"7" * 30)],
        "c": [Run("signal")],
    }
    replies = [Completion(f"```python\n{code}\n```", 3, "stop") for code in "aabc"]
    probes = ProbeSet("p0", (Probe("1 2\n", "example"), Probe("3 4\n", "model")))
    return score_groups(
        problems[:1], [probes], [replies], sandbox, reward="pcr", limits=Limits(), seed=0, step=1
    )[0]


def test_group_table_marks_votes_and_failures(group):
    table = group_table(group)
    assert table.shape == (4, 2)
    assert table.iloc[0, 0] == "1⏎2 *"
    assert table.iloc[2, 0] == "7" * 17 + "…"
    assert table.iloc[3, 1] == "[signal]"


def test_unlike_candidates_behave_differently(group):
    assert unlike_candidates(group) == [0, 2, 3]
    assert unlike_candidates(group, 2) == [0, 3]
    assert list(group_table(group, [0, 3]).index) == ["candidate 0", "candidate 3"]


def test_live_counts_steps_over_all_runs():
    shown = []
    report = live(lambda done, **values: shown.append((done, values)))
    report("a-seed0", 1, 2, METRICS)
    report("b-seed0", 1, 2, METRICS | {"entropy_ceiling": None, "kl": None})
    report("a-seed0", 2, 2, METRICS)
    assert [done for done, _ in shown] == [1, 2, 3]
    assert shown[0][1]["H"] == "0.120/0.200" and shown[1][1]["H"] == "0.120" and shown[1][1]["KL"] == "off"
    assert headline({}) == {}


def test_curves(tmp_path):
    folders = [tmp_path / "erpo-seed0", tmp_path / "erpo-seed1", tmp_path / "nsr_pcr-seed0"]
    for folder in folders:
        records = [METRICS | {"step": step} for step in (1, 2, 3)]
        if folder.name.startswith("nsr"):
            records = [r | {"entropy_ceiling": None} for r in records]
        write_jsonl(folder / "metrics.jsonl", records)
    curves = load_curves(folders)
    assert len(curves) == 9 and list(curves.columns[:3]) == ["method", "seed", "step"]
    assert "step_s" not in curves
    figure = plot_curves(curves, "a toy", "8 problems × 4 rollouts")
    assert figure.get_suptitle().endswith("\na point: 8 problems × 4 rollouts")
    assert "a toy" in figure.get_suptitle()
    assert len(figure.axes[2].lines) == 5  # two runs and their mean, another run, the ceiling


def test_probe_summary_and_figure(problems):
    sets = mutation_probes(problems, n=3, seed=0)
    sets[0] = ProbeSet("p0", (), {"requested": 3, "generated": 3, "malformed": 3, "malformed:empty": 3})
    summary = probe_summary(problems, sets)
    assert list(summary["probes"]) == [0, 5, 5, 5]
    assert list(summary["malformed:empty"]) == [3, 0, 0, 0]
    shares = dropped_shares(summary)
    assert shares.loc["malformed:empty", "probes"] == 3
    assert shares.loc["kept", "share"] == 9 / 12
    figure = plot_outcomes(summary, "mutation")
    assert figure.get_suptitle() == "Probes of 4 problems, 12 asked for, written by mutation"
    bars, stack, sizes = figure.axes
    assert [text.get_text() for text in bars.get_yticklabels()] == ["kept", "malformed: empty"]
    assert [text.get_text() for text in bars.texts] == ["9 (75%)", "3 (25%)"]
    assert sum(patch.get_height() for patch in stack.patches) == 12  # every request has an outcome
    assert sum(patch.get_height() for patch in sizes.patches) == len(problems)


def test_findings_are_counted(problems):
    sets = mutation_probes(problems, n=3, seed=0)
    text = findings(probe_summary(problems, sets), "mutation", 100, 0)
    assert text.startswith("Of 12 probes asked for, on 4 problems, 12 by mutation were kept: 100.0 [100.0, ")
    assert "lost" not in text and text.endswith("No problems ended without any.")
    sets[1] = ProbeSet("p1", (), {"requested": 3, "too_long_prompt": 3})
    text = findings(probe_summary(problems, sets), "mutation", 100, 0)
    assert "9 by mutation were kept: 75.0 [" in text
    assert "lost as *prompt too long*: 3 of 3 (100%)" in text and "0 to 5 distinct probes, 5 in" in text
    assert text.endswith("1 problem ended without any; 1 had a prompt that does not fit the model's context.")
