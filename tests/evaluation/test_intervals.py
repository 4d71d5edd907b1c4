"""Bootstrap: known cases, coverage, pairing, and the seeds of training as a second level."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tipprobe.errors import DataError
from tipprobe.evaluation.intervals import (
    bootstrap_weights,
    mean_interval,
    paired_interval,
    ratio_interval,
)


def test_weights_count_draws_with_replacement():
    weights = bootstrap_weights(7, 500, np.random.default_rng(0))
    assert weights.shape == (500, 7)
    assert np.all(weights.sum(axis=1) == 7)
    assert np.all(weights == weights.astype(int))
    assert abs(weights.mean() - 1) < 1e-12
    # The number of times one problem is drawn is binomial(7, 1/7): its variance is 6/7.
    assert abs(weights.var() - 6 / 7) < 0.1


def test_constant_values_have_no_width():
    interval = mean_interval(np.full(9, 0.25), 200, 0)
    assert (interval.mean, interval.low, interval.high, interval.n) == (0.25, 0.25, 0.25, 9)


def test_width_is_that_of_the_normal_approximation():
    values = np.random.default_rng(1).random(400)
    interval = mean_interval(values, 10_000, 0)
    half = 1.96 * values.std() / np.sqrt(400)
    assert abs((interval.high - interval.low) / 2 - half) < 0.05 * half
    assert interval.low < interval.mean < interval.high


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    covered = 0
    for trial in range(300):
        values = (rng.random(60) < 0.3).astype(float)
        interval = mean_interval(values, 400, trial)
        covered += interval.low <= 0.3 <= interval.high
    assert 0.90 <= covered / 300 <= 0.99


def test_same_seed_same_interval():
    values = np.random.default_rng(2).random(30)
    assert mean_interval(values, 500, 3) == mean_interval(values, 500, 3)
    assert mean_interval(values, 500, 3) != mean_interval(values, 500, 4)


def test_pairing_takes_out_what_both_share():
    rng = np.random.default_rng(3)
    difficulty = rng.random(100)
    difference = paired_interval(difficulty + 0.05, difficulty, 1000, 0)
    assert difference.mean == pytest.approx(0.05)
    assert difference.high - difference.low < 1e-12
    alone = mean_interval(difficulty, 1000, 0)
    assert alone.high - alone.low > 0.05


def test_seeds_are_a_second_level():
    rng = np.random.default_rng(4)
    problems = rng.random(50)
    runs = np.stack([problems + shift for shift in (-0.2, 0.0, 0.2)])
    pooled = mean_interval(runs, 4000, 0)
    single = mean_interval(problems, 4000, 0)
    assert pooled.seeds == 3
    assert pooled.mean == pytest.approx(single.mean)
    assert pooled.high - pooled.low > single.high - single.low
    # A baseline without seeds is compared with every run.
    assert paired_interval(runs, problems, 500, 0).seeds == 3


def test_mismatched_data_raise():
    with pytest.raises(DataError, match="same problems"):
        paired_interval(np.ones(3), np.ones(4), 10, 0)
    with pytest.raises(DataError, match="pair 3 runs with 2"):
        paired_interval(np.ones((3, 4)), np.ones((2, 4)), 10, 0)
    with pytest.raises(DataError, match="shape"):
        mean_interval(np.ones((0,)), 10, 0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_ratio_is_the_pooled_share(rows):
    failed = np.array([min(a, b) for a, b in rows])
    number = np.array([b for _, b in rows])
    interval = ratio_interval(failed, number, 200, 0)
    if number.sum() == 0:
        assert np.isnan(interval.mean)
        assert interval.n == 0
    else:
        assert interval.mean == failed.sum() / number.sum()
        assert 0 <= interval.low <= interval.high <= 1
        assert interval.n == (number > 0).sum()


def test_scaling_keeps_the_counts():
    interval = mean_interval(np.array([0.0, 1.0]), 100, 0).scaled(100)
    assert interval.mean == 50
    assert interval.to_json()["n"] == 2
