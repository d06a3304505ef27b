"""Evidence that is a fair bet when nothing is wrong, and grows when something is."""

import math

import numpy as np
import pytest
from scipy import stats

from program.eprocess import log_e_multinomial, log_e_rates


@pytest.mark.parametrize("weight", [0.5, 0.1, 0.01])
def test_the_evidence_is_worth_one_on_average_under_the_right_weights(weight):
    n = 30
    second = np.arange(n + 1)
    evidence = np.exp(log_e_multinomial(np.stack([n - second, second], -1), [1 - weight, weight]))
    assert (stats.binom.pmf(second, n, weight) * evidence).sum() == pytest.approx(1)


def test_every_further_unit_is_a_fair_bet():
    weights = np.array([0.2, 0.3, 0.5])
    counts = np.array([7, 1, 12])
    after = [math.exp(log_e_multinomial(counts + np.eye(3, dtype=int)[arm], weights)) for arm in range(3)]
    assert np.dot(weights, after) == pytest.approx(math.exp(log_e_multinomial(counts, weights)))


def test_it_is_the_ratio_of_a_beta_binomial_to_a_binomial():
    expected = stats.betabinom.logpmf(12, 40, 25, 75) - stats.binom.logpmf(12, 40, 0.25)
    assert float(log_e_multinomial([12, 28], [1, 3])) == pytest.approx(expected)


def test_no_unit_is_no_evidence():
    assert float(log_e_multinomial([0, 0], [90, 10])) == pytest.approx(0)
    assert float(log_e_rates([0, 0], [0, 0], [90, 10])) == pytest.approx(0)


def test_rare_failures_on_one_arm_alone_are_evidence_and_failures_by_weight_are_none():
    assert float(log_e_rates([10, 60], [8990, 940], [90, 10])) > math.log(1000)
    assert float(log_e_rates([90, 10], [8910, 990], [90, 10])) < 0


def test_a_right_split_looked_at_after_every_unit_is_hardly_ever_called_wrong():
    rng = np.random.default_rng(0)
    second = (rng.random((500, 4000)) < 0.1).cumsum(1)
    first = np.arange(1, 4001) - second
    called = (log_e_multinomial(np.stack([first, second], -1), [90, 10]) >= math.log(20)).any(1)
    assert called.mean() <= 0.05
