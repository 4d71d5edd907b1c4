"""pass@k against counting by hand and by brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipprobe.errors import DataError
from tipprobe.evaluation.passk import pass_at_k, pass_at_k_per_problem

COUNTS = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


def test_four_samples_by_hand():
    assert pass_at_k(4, 1, 1) == 0.25
    assert pass_at_k(4, 1, 2) == 0.5
    assert pass_at_k(4, 2, 2) == 5 / 6
    assert pass_at_k(4, 2, 3) == 1.0
    assert pass_at_k(4, 0, 4) == 0.0


@given(COUNTS)
def test_equals_brute_force(counts):
    n, c = counts
    labels = [True] * c + [False] * (n - c)
    for k in range(1, n + 1):
        draws = [any(draw) for draw in combinations(labels, k)]
        assert pass_at_k(n, c, k) == pytest.approx(sum(draws) / len(draws), abs=1e-15)


@given(COUNTS)
def test_grows_with_k_and_starts_at_the_share_of_correct_samples(counts):
    n, c = counts
    values = [pass_at_k(n, c, k) for k in range(1, n + 1)]
    assert values[0] == c / n
    assert values == sorted(values)
    assert values[-1] == (1.0 if c else 0.0)


def test_is_exact_where_floats_are_not():
    assert pass_at_k(100_000, 1, 99_999) == 99_999 / 100_000


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1)])
def test_impossible_requests_raise(n, c, k):
    with pytest.raises(DataError):
        pass_at_k(n, c, k)


def test_per_problem():
    rows = [[True, False], [False, False, False], [True]]
    np.testing.assert_allclose(pass_at_k_per_problem(rows, 1), [0.5, 0, 1])
    with pytest.raises(DataError, match="draw at least 2"):
        pass_at_k_per_problem(rows, 2)
