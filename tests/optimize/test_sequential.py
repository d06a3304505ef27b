"""The confidence sequence and the e-process: users as the unit, silence until there is enough, free looks."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from optimize.abtest.sequential import MIN_EACH, Moments, compare_means, log_e_multinomial, log_e_rates

SETTINGS = {"alpha": 0.05, "horizon": 5000, "binary": True}


def cumulative(member, y):
    powers = [(member * y**i).cumsum(1) for i in range(4)]
    return Moments({(i, j): powers[i] for i in range(4) for j in range(4 - i)}, powers[1], powers[0] - powers[1])


def test_with_several_outcomes_a_user_the_variance_is_what_redrawing_users_gives():
    rng = np.random.default_rng(1)
    drawn = [list(rng.normal(rng.normal(), 0.3, rng.integers(1, 9))) for _ in range(400)]
    y, n = np.array([sum(u) for u in drawn]), np.array([len(u) for u in drawn])
    again = rng.integers(0, 400, (4000, 400))
    assert Moments.from_outcomes(drawn).variance() == pytest.approx((y[again].sum(1) / n[again].sum(1)).var(), rel=0.1)


@pytest.mark.parametrize(("failures", "speaks"), [(MIN_EACH - 1, False), (MIN_EACH, True)])
def test_nothing_is_said_before_ten_successes_and_ten_failures_in_each_arm(failures, speaks):
    small = Moments.from_outcomes([[0.0]] * failures + [[1.0]] * 90)
    large = Moments.from_outcomes([[0.0]] * 400 + [[1.0]] * 400)
    assert math.isfinite(compare_means(large, small, **SETTINGS)[1]) == speaks
    assert math.isfinite(compare_means(small, large, **SETTINGS)[1]) == speaks


def test_an_outcome_that_is_no_yes_or_no_needs_a_hundred_users_and_a_tail_that_is_not_too_long():
    rng = np.random.default_rng(2)
    other = {**SETTINGS, "binary": False}
    normal = Moments.from_outcomes([[v] for v in rng.normal(size=1000)])
    few = Moments.from_outcomes([[v] for v in rng.normal(size=99)])
    long = Moments.from_outcomes([[v] for v in rng.lognormal(0, 2, 1000)])
    assert math.isfinite(compare_means(normal, normal, **other)[1])
    assert math.isinf(compare_means(normal, few, **other)[1])
    assert math.isinf(compare_means(normal, long, **other)[1])


def test_zero_leaves_the_interval_where_a_normal_mixture_bets_one_over_alpha_against_it():
    a = Moments.from_outcomes([[0.0]] * 250 + [[1.0]] * 250)
    b = Moments.from_outcomes([[0.0]] * 350 + [[1.0]] * 150)
    spread = math.sqrt(a.variance() + b.variance())
    reach = float(compare_means(a, b, **SETTINGS)[1])
    rho2 = (-2 * math.log(0.05) + math.log(1 - 2 * math.log(0.05))) / 5000
    prior = stats.norm(0, spread * math.sqrt(1000 * rho2))

    def bet(effect):
        return prior.pdf(effect) * stats.norm(effect, spread).pdf(reach) / stats.norm(0, spread).pdf(reach)

    assert quad(bet, -1, 1, points=[0, reach])[0] == pytest.approx(1 / 0.05, rel=1e-3)


def test_looking_after_every_user_rejects_no_true_null_too_often_and_finds_a_true_difference():
    rng = np.random.default_rng(3)
    member = (rng.random((200, 6000)) < 0.5) * 1.0
    chance = rng.random((200, 6000))

    def found(rate):
        y = (chance < rate) * 1.0
        mean, reach = compare_means(cumulative(1 - member, y), cumulative(member, y), **SETTINGS)
        return (np.abs(mean) > reach).any(1).mean()

    assert found(0.7) <= 0.05
    assert found(0.7 + 0.06 * member) >= 0.9


def test_every_further_unit_is_a_fair_bet():
    weights = np.array([0.2, 0.3, 0.5])
    counts = np.array([7, 1, 12])
    after = [math.exp(log_e_multinomial(counts + np.eye(3, dtype=int)[arm], weights)) for arm in range(3)]
    assert np.dot(weights, after) == pytest.approx(math.exp(log_e_multinomial(counts, weights)))


def test_rare_failures_on_one_arm_alone_are_evidence_and_failures_by_weight_are_none():
    assert float(log_e_rates([10, 60], [8990, 940], [90, 10])) > math.log(1000)
    assert float(log_e_rates([90, 10], [8910, 990], [90, 10])) < 0


def test_a_right_split_looked_at_after_every_unit_is_hardly_ever_called_wrong():
    rng = np.random.default_rng(0)
    second = (rng.random((500, 4000)) < 0.1).cumsum(1)
    first = np.arange(1, 4001) - second
    called = (log_e_multinomial(np.stack([first, second], -1), [90, 10]) >= math.log(20)).any(1)
    assert called.mean() <= 0.05
