import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tipprobe.errors import ParameterError
from tipprobe.probes.rng import keyed_rng
from tipprobe.training.objectives import (
    effective_ceiling,
    entropy_ceiling_gradient_weight,
    entropy_ceiling_loss,
    group_advantages,
    nsr_advantages,
    policy_denominator,
    rank_mask,
)


def test_advantages_by_hand():
    # s = 0, .5, .5, 1: mean .5, unbiased variance (.25 + .25) / 3
    a = group_advantages(np.array([0, 2, 2, 4]), 4)
    sigma = (0.5 / 3) ** 0.5
    assert a == pytest.approx([-0.5 / (sigma + 1e-6), 0, 0, 0.5 / (sigma + 1e-6)], rel=1e-12)
    assert a.dtype == np.float64


@given(st.integers(0, 30), st.integers(1, 30), st.integers(2, 32))
def test_constant_groups_have_exactly_zero_advantage(k, n, g):
    assert not group_advantages(np.full(g, min(k, n)), n).any()


def test_no_probes_no_signal():
    assert not group_advantages(np.array([0, 0, 0]), 0).any()


def test_only_integer_counts_are_accepted():
    with pytest.raises(ParameterError, match="integer"):
        group_advantages(np.array([0.5, 1.0]), 1)


def test_unvoted_probes_do_not_change_advantages():
    hits = np.array([0, 1, 3])
    assert group_advantages(hits, 3) == pytest.approx(group_advantages(hits, 12), rel=1e-4)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.floats(0, 1), st.integers(0, 99))
def test_rank_mask_removes_the_highest(hits, ratio, seed):
    a = group_advantages(np.array(hits), 5)
    keep = rank_mask(a, ratio, keyed_rng(seed))
    assert (~keep).sum() == int(np.ceil(ratio * len(hits) - 1e-9))
    if keep.any() and not keep.all():
        assert a[keep].max() <= a[~keep].min()


def test_rank_mask_counts_are_not_fooled_by_floating_point():
    assert (~rank_mask(np.arange(10.0), 0.7, keyed_rng(0))).sum() == 7
    assert (~rank_mask(np.arange(7.0), 0.5, keyed_rng(0))).sum() == 4


def test_ties_are_broken_at_random_but_reproducibly():
    masks = {tuple(rank_mask(np.zeros(4), 0.5, keyed_rng(0, step, "p"))) for step in range(60)}
    assert len(masks) == 6  # every way to choose two of four comes up
    one, other = (rank_mask(np.zeros(8), 0.5, keyed_rng(3, 1, "p")) for _ in range(2))
    assert (one == other).all()


def test_permuting_rows_without_ties_permutes_the_mask():
    a = np.array([0.3, -1.2, 2.0, 0.1, -0.4, 0.9])
    order = np.array([4, 2, 0, 5, 1, 3])
    keep, moved = rank_mask(a, 0.5, keyed_rng(1)), rank_mask(a[order], 0.5, keyed_rng(2))
    assert (keep[order] == moved).all()
    assert set(a[keep]) == {-1.2, -0.4, 0.1}


def test_kept_rows_can_have_positive_advantage():
    # five of six above the mean: masking the top three leaves two positives, as stated in the choices
    a = group_advantages(np.array([4, 4, 4, 4, 4, 0]), 4)
    keep = rank_mask(a, 0.5, keyed_rng(0))
    assert (a[keep] > 0).sum() == 2


def test_nsr_keeps_only_scores_below_one_half():
    a, keep = nsr_advantages(np.array([0.0, 0.25, 0.5, 0.75, 1.0]))
    assert keep.tolist() == [True, True, False, False, False]
    assert a.tolist() == [-1.0, -0.5, 0.0, 0.0, 0.0]


def test_denominators():
    tokens, keep = np.array([5, 7, 9]), np.array([True, False, True])
    assert policy_denominator(tokens, keep, "retained") == 14
    assert policy_denominator(tokens, keep, "all") == 21


def test_ceiling_gradient_equals_autograd_for_any_split():
    torch.manual_seed(0)
    logits = torch.randn(12, 7, dtype=torch.float64, requires_grad=True)

    def entropies(rows):
        logp = rows.log_softmax(-1)
        return -(logp.exp() * logp).sum(-1)

    h = entropies(logits).mean()
    (expected,) = torch.autograd.grad(0.5 * torch.relu(h - 0.4) ** 2, logits)
    assert entropy_ceiling_loss(h.item(), 0.4, 0.5) == pytest.approx((0.5 * (h - 0.4) ** 2).item())
    weight = entropy_ceiling_gradient_weight(h.item(), 0.4, 0.5)
    for split in (1, 2, 3, 12):
        logits.grad = None
        for part in logits.chunk(split):
            (weight * entropies(part).sum() / 12).backward()
        torch.testing.assert_close(logits.grad, expected, rtol=1e-12, atol=1e-15)


def test_below_the_ceiling_nothing_is_penalised():
    assert entropy_ceiling_gradient_weight(0.3, 0.4, 0.5) == 0.0
    assert entropy_ceiling_loss(0.4, 0.4, 0.5) == 0.0


def test_relative_ceiling():
    assert effective_ceiling(0.5, "absolute", 0.126) == 0.5
    assert effective_ceiling(1.5, "relative", 0.2) == pytest.approx(0.3)
