"""AUC against scikit-learn and by hand; thresholds; intervals over problems."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from tipprobe.errors import DataError
from tipprobe.evaluation.agreement import agreement, auc, pair_counts, reliability

SAMPLES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=40
)


def test_six_points_by_hand():
    # Correct: 1, 1, 0.5; wrong: 1, 0.5, 0. Of 9 pairs: 1 beats 0.5 and 0 (twice each) and ties with 1
    # (twice), 0.5 loses to 1, ties with 0.5 and beats 0: 4 + 2/2 + 0 + 1/2 + 1 = 6.5.
    scores, labels = [1, 1, 0.5, 1, 0.5, 0], [True, True, True, False, False, False]
    assert auc(scores, labels) == pytest.approx(6.5 / 9)
    assert pair_counts(scores, labels) == (pytest.approx(6.5), 9)


@given(SAMPLES)
def test_equals_scikit_learn(samples):
    scores, labels = zip(*samples, strict=True)
    if len(set(labels)) == 1:
        assert np.isnan(auc(scores, labels))
        assert pair_counts(scores, labels) == (0.0, 0)
    else:
        assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores))


@given(st.lists(SAMPLES, min_size=1, max_size=6))
def test_pooled_and_within(groups):
    scores = [[s for s, _ in group] for group in groups]
    labels = [[y for _, y in group] for group in groups]
    result = agreement(scores, labels, 50, 0)
    pooled = auc(np.concatenate(scores), np.concatenate(labels))
    np.testing.assert_allclose(result.auc_pooled.mean, pooled, equal_nan=True)
    pairs = [pair_counts(s, y) for s, y in zip(scores, labels, strict=True)]
    total = sum(n for _, n in pairs)
    within = sum(won for won, _ in pairs) / total if total else np.nan
    np.testing.assert_allclose(result.auc_within.mean, within, equal_nan=True)


def test_within_ignores_that_easy_problems_agree():
    # Consensus tells an easy problem from a hard one, and nothing inside either.
    scores = [[1.0] * 8, [0.25] * 8]
    labels = [[True] * 6 + [False] * 2, [True] * 2 + [False] * 6]
    result = agreement(scores, labels, 200, 0)
    assert result.auc_pooled.mean == 0.75
    assert result.auc_within.mean == 0.5


def test_thresholds_include_their_edges():
    scores = [[0.25, 0.5, 0.9], [1.0, 0.7, 9 / 10]]
    labels = [[False, True, True], [False, True, True]]
    result = agreement(scores, labels, 100, 0)
    assert result.counts == {"<= 0.25": 1, "<= 0.5": 2, ">= 0.9": 3, "= 1": 1}
    assert result.failure_rates["<= 0.25"].mean == 1.0
    assert result.failure_rates["<= 0.5"].mean == 0.5
    assert result.failure_rates[">= 0.9"].mean == pytest.approx(1 / 3)
    assert result.failure_rates["= 1"].mean == 1.0
    assert result.samples == 6


def test_pooled_interval_equals_resampling_by_hand():
    rng = np.random.default_rng(0)
    scores = [rng.choice([0, 0.5, 1], 8) for _ in range(12)]
    labels = [rng.random(8) < s for s in scores]
    result = agreement(scores, labels, 400, 7).auc_pooled
    chosen = np.random.default_rng(7).integers(0, 12, (400, 12))
    by_hand = [
        auc(np.concatenate([scores[i] for i in row]), np.concatenate([labels[i] for i in row]))
        for row in chosen
    ]
    np.testing.assert_allclose([result.low, result.high], np.percentile(by_hand, [2.5, 97.5]))


def test_reliability_bins():
    records = reliability(
        [[0.0, 0.5, 1.0], [0.5, 0.49]], [[False, True, True], [False, False]], [0, 0.5, 1], 50, 0
    )
    assert [r["samples"] for r in records] == [2, 3]
    assert records[0]["correct"] == 0
    assert records[1]["correct"] == pytest.approx(2 / 3)
    empty = reliability([[0.0]], [[True]], [0, 0.5, 1], 50, 0)[1]
    assert empty["samples"] == 0
    assert np.isnan(empty["correct"])


def test_reliability_resamples_the_runs_of_a_problem_together():
    scores, passed = [[1.0, 1.0], [1.0, 1.0]] * 2, [[True, True], [False, False]] * 2
    (twice,) = reliability(scores, passed, [0, 1], 200, 0, units=[0, 1, 0, 1])
    (once,) = reliability(scores[:2], passed[:2], [0, 1], 200, 0)
    assert twice["samples"] == 2 * once["samples"]
    for name in ("correct", "correct_low", "correct_high"):
        assert twice[name] == once[name]
    (apart,) = reliability([[1.0]] * 8, [[True], [False]] * 4, [0, 1], 200, 0)
    (together,) = reliability([[1.0]] * 8, [[True], [False]] * 4, [0, 1], 200, 0, units=[0, 1] * 4)
    assert apart["correct_low"] > together["correct_low"]


def test_mismatched_data_raise():
    with pytest.raises(DataError):
        agreement([[1.0]], [[True, False]], 10, 0)
    with pytest.raises(DataError):
        agreement([], [], 10, 0)
