"""Logistic regression: what it finds is the least there is, however wide or tall the rows are."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from program.models.embedded.regression import fit_logistic


@given(st.integers(4, 30), st.integers(1, 120), st.integers(2, 4), st.sampled_from([0.01, 0.5, 4.0]), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_no_small_step_from_what_was_found_loses_less(
    cases: int, columns: int, classes: int, strength: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=(cases, columns)), np.arange(cases) % classes
    x[:, ::3] = 0.0
    weights, bias = fit_logistic(x, y, strength)
    assert weights.shape == (columns, 1 if classes == 2 else classes)
    for k in range(weights.shape[1]):
        one = y if classes == 2 else y == k
        error = 1 / (1 + np.exp(-(x @ weights[:, k] + bias[k]))) - one
        slope = x.T @ error + weights[:, k] / strength
        assert np.linalg.norm(slope) < 1e-2 * max(1.0, np.linalg.norm(x.T @ (one - 0.5)))


def test_rows_that_are_all_zero_get_no_weight() -> None:
    weights, bias = fit_logistic(np.zeros((6, 40)), np.array([0, 1, 1, 1, 0, 1]), 0.5)
    assert not weights.any()
    assert bias[0] > 0
