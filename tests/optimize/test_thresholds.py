"""Thresholds and weights fitted to labels."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optimize.compiler.scoring import fit_threshold, fit_weights

labelled = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40)


@given(labelled)
def test_no_cut_gets_more_labels_right_than_the_chosen_one(pairs):
    probabilities, labels = map(np.array, zip(*pairs, strict=True))
    cut = fit_threshold(probabilities, labels)
    assert 0.02 <= cut <= 0.98
    if labels.any() and not labels.all():
        best = max(np.mean((probabilities >= c) == labels) for c in np.linspace(0.02, 0.98, 97))
        assert np.mean((probabilities >= cut) == labels) >= best - 1e-9


def test_labels_of_one_kind_leave_the_threshold_at_a_half():
    assert fit_threshold([0.1, 0.9], [True, True]) == 0.5


tables = st.lists(
    st.tuples(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), st.sampled_from("abc")), min_size=1, max_size=30
)


@given(tables)
def test_fitted_weights_are_never_worse_than_none(pairs):
    found = [dict(zip("abc", numbers, strict=True)) for numbers, _ in pairs]
    labels = [label for _, label in pairs]
    weights = {"a": 1.0, **fit_weights(found, labels)}

    def right(w):
        return sum(max(t, key=lambda o: t[o] * w[o]) == label for t, label in zip(found, labels, strict=True))

    assert right(weights) >= right({"a": 1.0, "b": 1.0, "c": 1.0})
    assert all(0.25 <= w <= 4.0001 for w in weights.values())


def test_a_neglected_option_is_lifted():
    weights = fit_weights([{"a": 0.6, "b": 0.4}] * 9 + [{"a": 0.9, "b": 0.1}], ["b"] * 9 + ["a"])
    assert weights["b"] > 1.5
