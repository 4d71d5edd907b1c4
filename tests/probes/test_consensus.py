import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipprobe.errors import DataError
from tipprobe.probes.consensus import probe_consensus


def test_paper_shaped_example():
    # Three probes: candidate 0 always with the majority, 1 on two of three, 2 on one.
    keys = [["a", "x", "1"], ["a", "x", "2"], ["b", "y", "1"]]
    c = probe_consensus(keys)
    assert c.hits.tolist() == [3, 2, 1]
    assert c.pcr.tolist() == [1.0, 2 / 3, 1 / 3]
    assert c.majority == (frozenset("a"), frozenset("x"), frozenset("1"))


def test_ties_are_all_majority_and_failures_do_not_vote():
    c = probe_consensus([["a"], ["b"], ["b"], ["a"], ["c"], [None], [None], [None]])
    assert c.majority == (frozenset("ab"),)
    assert c.hits.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


def test_probe_on_which_all_fail_stays_in_the_denominator():
    c = probe_consensus([["a", None], ["b", None], ["a", None]])
    assert (c.n_probes, c.n_voted) == (2, 1)
    assert c.pcr.tolist() == [0.5, 0.0, 0.5]
    assert c.pcr_voted.tolist() == [1.0, 0.0, 1.0]
    assert c.majority[1] == frozenset()


def test_no_votes_and_no_probes():
    c = probe_consensus([[None], [None]])
    assert c.hits.tolist() == [0, 0] and c.pcr.tolist() == [0.0, 0.0] and math.isnan(c.pcr_voted[0])
    c = probe_consensus([[], []])
    assert c.n_probes == 0 and c.pcr.tolist() == [0.0, 0.0]


def test_malformed_tables_are_refused():
    with pytest.raises(DataError, match="at least one candidate"):
        probe_consensus([])
    with pytest.raises(DataError, match="each probe"):
        probe_consensus([["a"], ["a", "b"]])


key = st.sampled_from(["a", "b", "c", None])


@given(st.data(), st.integers(1, 8), st.integers(0, 6))
def test_permuting_candidates_permutes_scores(data, g, p):
    keys = data.draw(st.lists(st.lists(key, min_size=p, max_size=p), min_size=g, max_size=g))
    order = data.draw(st.permutations(range(g)))
    whole, moved = probe_consensus(keys), probe_consensus([keys[i] for i in order])
    assert moved.hits.tolist() == whole.hits[order].tolist()
    assert moved.majority == whole.majority
    assert (np.diff(np.sort(whole.hits)) >= 0).all() and whole.hits.max(initial=0) <= whole.n_voted
