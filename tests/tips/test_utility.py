"""What a tip is worth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipprobe.errors import DataError
from tipprobe.problems.schema import Problem
from tipprobe.series.stages import get_stage
from tipprobe.tips.base_rates import BaseRate
from tipprobe.tips.roles import assign_roles, role_table, with_role
from tipprobe.tips.utility import NO_TIP, group_of, rescore, reward_fields, tip_reward

FREE = {"threshold": 2000, "penalty": 1e-5}
N_TESTS = 12
passed = st.integers(0, N_TESTS)
#: Base rates that problems of the reinforcement have.
between = st.integers(1, N_TESTS - 1).map(lambda k: k / N_TESTS)


def advantages(p_base, shares):
    return group_of(p_base, shares, [10] * len(shares), **FREE)[1]


@pytest.mark.parametrize(
    ("p_base", "p_curr", "delta", "jumped"),
    [
        (0.25, 0.75, 0.5, False),
        (0.75, 0.25, -0.5, False),
        (0.25, 1.0, 1.0, True),  # not 0.75
        (0.99, 1.0, 1.0, True),
        (1.0, 1.0, 0.0, False),  # nothing left to gain
        (1.0, 0.5, -0.5, False),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_the_gain_has_two_pieces(p_base, p_curr, delta, jumped):
    reward = tip_reward(p_base, p_curr, 10, **FREE)
    assert (reward.delta, reward.jumped, reward.length_penalty, reward.value) == (delta, jumped, 0, delta)


def test_tokens_beyond_the_threshold_cost():
    at, beyond = (tip_reward(0.5, 0.75, n, threshold=8, penalty=0.01) for n in (8, 11))
    assert at.value == 0.25
    assert beyond.length_penalty == pytest.approx(0.03)
    assert beyond.value == pytest.approx(0.22)


def test_shares_are_shares():
    with pytest.raises(DataError, match="shares"):
        tip_reward(0.5, 1.2, 1, **FREE)


@given(st.lists(passed, min_size=2, max_size=8), between, between)
def test_the_base_rate_acts_through_the_jump_alone(counts, one, other):
    shares = [count / N_TESTS for count in counts]
    # Written without subtracting P_base: a tip that solves the problem is worth P_base more than its share.
    for p_base in (one, other):
        worth = np.array([share + p_base * (share == 1) for share in shares])
        spread = worth.std(ddof=1)
        expected = (worth - worth.mean()) / (spread + 1e-6) if worth.max() > worth.min() else 0 * worth
        assert advantages(p_base, shares) == pytest.approx(expected, abs=1e-6)
    if 1 not in shares:
        assert advantages(one, shares) == pytest.approx(advantages(other, shares), abs=1e-6)


def test_with_a_jump_the_base_rate_does_matter():
    low, high = advantages(0.1, [1.0, 0.6, 0.2]), advantages(0.9, [1.0, 0.6, 0.2])
    assert abs(low - high).max() > 0.1


@given(passed, between, st.integers(2, 9))
def test_equal_tips_give_exactly_nothing(count, p_base, size):
    assert advantages(p_base, [count / N_TESTS] * size).tolist() == [0.0] * size


#: Tokens on both sides of the threshold.
lengths = st.integers(1, 5000)


@given(
    st.lists(st.tuples(passed, lengths), min_size=1, max_size=7),
    between,
    st.lists(lengths, min_size=1, max_size=3),
)
def test_no_tip_is_never_better_than_a_tip(tips, p_base, silent):
    shares = [NO_TIP] * len(silent) + [count / N_TESTS for count, _ in tips]
    rewards, found = group_of(p_base, shares, [*silent, *(n for _, n in tips)], **FREE)
    assert set(found[: len(silent)]) == {found.min()}
    assert {reward.p_curr for reward in rewards[: len(silent)]} == {0.0}
    # Tips are worth what they are worth whoever else is silent.
    alone, _ = group_of(p_base, shares[len(silent) :], [n for _, n in tips], **FREE)
    assert rewards[len(silent) :] == alone


def test_silence_is_not_reinforced_where_all_tips_fail_and_are_long():
    found = group_of(0.5, [0.0] * 7 + [NO_TIP], [2500] * 7 + [1], **FREE)[1]
    assert found.tolist() == [0.0] * 8
    nothing = group_of(0.5, [NO_TIP] * 3, [1, 2500, 4096], **FREE)[1]
    assert nothing.tolist() == [0.0] * 3


def records(p_base, shares, tokens, step=1, problem="p", **costs):
    rewards, advs = group_of(p_base, shares, tokens, **costs)
    return [
        {"step": step, "problem_id": problem, "tip": None if share is NO_TIP else "t", "n_tokens": n}
        | {"advantage": float(a)}
        | reward_fields(reward)
        for share, n, reward, a in zip(shares, tokens, rewards, advs, strict=True)
    ]


def test_saved_tips_are_scored_again_as_if_sampled_so():
    shares, tokens = [0.5, 1.0, 0.25, NO_TIP], [5, 30, 12, 1]
    one, other = {"threshold": 2000, "penalty": 1e-5}, {"threshold": 10, "penalty": 0.02}
    saved = records(0.5, shares, tokens, **one) + records(0.5, shares, tokens, step=2, **one)
    again = records(0.5, shares, tokens, **other) + records(0.5, shares, tokens, step=2, **other)
    assert rescore(saved, **other) == again
    assert rescore(saved, **one) == saved
    assert again != saved


def rate(name, passed_tests):
    return BaseRate(name, 8, 0, {"wrong_output": 8}, passed_tests, 4, "wrong_output")


ALL = {"threshold": 1.0, "contaminated": ()}


def test_every_problem_has_one_role():
    problems = [Problem(f"p{i}", "") for i in range(20)]
    rates = {f"p{i}": rate(f"p{i}", i % 5) for i in range(19)}
    roles = assign_roles(problems, rates, {"p1", "p2", "p3"}, 6, seed=0, **ALL)
    names = {key: role.name for key, role in roles.items()}
    assert names["p19"] == "none" and roles["p19"].p_base is None
    assert [key for key, name in names.items() if name == "sft"] == ["p1", "p2", "p3"]
    assert len(with_role(problems, roles, "validation")) == 6
    for problem in with_role(problems, roles, "rl"):
        assert 0 < roles[problem.id].p_base < 1
    assert {role.p_base for role in roles.values() if role.reason.startswith("solved")} == {1.0}
    assert assign_roles(problems, rates, {"p1", "p2", "p3"}, 6, seed=0, **ALL) == roles
    assert assign_roles(problems, rates, {"p1", "p2", "p3"}, 6, seed=1, **ALL) != roles
    assert role_table(roles)["problem_id"].tolist() == [problem.id for problem in problems]


def test_validation_leaves_half_of_a_small_set():
    problems = [Problem(f"p{i}", "") for i in range(8)]
    roles = assign_roles(problems, {p.id: rate(p.id, 2) for p in problems}, (), 96, seed=0, **ALL)
    assert len(with_role(problems, roles, "validation")) == len(with_role(problems, roles, "rl")) == 4


def test_a_problem_like_an_evaluation_problem_serves_nothing():
    problems = [Problem(f"p{i}", "") for i in range(8)]
    rates = {p.id: rate(p.id, 2) for p in problems[:7]}
    like = {"p1", "p2", "p3", "p7"}
    roles = assign_roles(problems, rates, {"p0", "p1"}, 96, seed=0, threshold=1.0, contaminated=like)
    assert {key for key, role in roles.items() if role.reason == "like an evaluation problem"} == like
    assert {roles[key].name for key in like} == {"none"} and roles["p7"].p_base is None
    assert roles["p1"].p_base == 0.5 and roles["p0"].name == "sft"
    assert len(with_role(problems, roles, "validation")) == len(with_role(problems, roles, "rl")) - 1 == 1


@pytest.mark.parametrize("stage", ["03", "04"])
def test_training_stages_wait_for_the_contamination_check(stage):
    assert "01_data_mining/contamination.csv" in get_stage(stage).inputs


def test_reinforcement_takes_hard_problems_only():
    problems = [Problem(f"p{i}", "") for i in range(9)]
    rates = {p.id: BaseRate(p.id, 8, i, {}, 2, 4, "wrong_output") for i, p in enumerate(problems)}
    roles = assign_roles(problems, rates, {"p0", "p8"}, 0, seed=0, threshold=0.5, contaminated=())
    assert [problem.id for problem in with_role(problems, roles, "rl")] == ["p1", "p2", "p3"]
    assert {roles[f"p{i}"].reason.partition(" (")[0] for i in range(4, 8)} == {
        "solved too often without a tip"
    }
