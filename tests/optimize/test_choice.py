"""Choosing: thresholds fitted to labels, which gains survive the folds, operating points that are really different."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optimize.compiler.choice import Candidate, find_best, find_frontier, fit_doubt, price_points
from optimize.compiler.scoring import fit_threshold, fit_weights, gain_out_of_fold, survives
from optimize.labelled.dataset import read_labelled
from program import load
from program.knowledge.project import Project
from tests.optimize.conftest import manifest_of

OWN = 0.01
candidates = st.lists(
    st.tuples(st.integers(-20, 20), st.integers(0, 30)).map(lambda pair: Candidate({}, pair[0] / 20, pair[1] / 10)),
    min_size=1,
)


def at(one, price):
    """Utility were a call to cost that price."""
    return one.utility + (OWN - price) * one.calls


@given(candidates, st.floats(0.01, 2))
def test_whatever_a_call_costs_the_best_setting_is_on_the_frontier(every, price):
    front = find_frontier(every)
    assert max(at(one, price) for one in front) >= max(at(one, price) for one in every) - 1e-9
    assert all(a.calls < b.calls and a.utility < b.utility for a, b in pairwise(front))


@given(candidates)
def test_economy_takes_fewer_calls_where_some_price_makes_that_best(every):
    prices = price_points(every, OWN)
    balanced, economy = (find_best(every, prices[name], OWN) for name in ("balanced", "economy"))
    assert prices["quality"] <= prices["balanced"] < prices["economy"]
    assert economy.calls <= balanced.calls
    if any(one.calls < balanced.calls and at(one, 15.0) > at(balanced, 15.0) for one in every):
        assert economy.calls < balanced.calls


def test_a_setting_is_judged_on_a_topic_by_what_the_other_topics_say_of_it():
    topics = [f"t{n}" for n in range(4)]
    before, lucky, steady = np.zeros(4), np.array([1.0, 0.0, 0.0, 0.0]), np.full(4, 0.2)
    gains = gain_out_of_fold(np.array([before, lucky, steady]), topics, range(4), among=slice(1, None))
    assert gains.tolist() == [0.2, 0.0, 0.0, 0.0]  # what the lucky one is worth on its topic has no say there


def test_a_gain_on_one_topic_alone_does_not_survive_and_one_on_most_does():
    topics = [f"t{n // 4}" for n in range(24)]
    alone = np.array([1.0 if topic == "t0" else -0.1 for topic in topics])
    most = np.array([0.4 if n % 4 else -0.1 for n in range(24)])
    assert not survives(alone, topics)
    assert survives(alone + 0.1, topics, errors=0.0), "where there is nothing to protect"
    assert survives(most, topics)
    assert not survives(np.zeros(24), topics) and not survives(np.ones(24), ["t0"] * 24)


def calls_of(rag, compiled):
    return [rag(question.question).usage.calls for question in read_labelled(Project.open(compiled).labelled)]


def test_the_economy_point_asks_no_more_calls_and_what_is_loaded_is_the_balanced_one(compiled):
    assert set(manifest_of(compiled, "shop@v2").section("points")) == {"quality", "balanced", "economy"}
    root = compiled / "artifacts"
    balanced, economy = (calls_of(load("shop@v2", artifacts=root, point=p), compiled) for p in ("balanced", "economy"))
    assert sum(economy) <= sum(balanced)
    assert calls_of(load("shop@v2", artifacts=root), compiled) == balanced


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


def test_answers_are_said_to_be_uncertain_under_the_confidence_where_most_were_wrong():
    low, high = [(n / 10, True) for n in range(4)], [(0.5 + n / 10, False) for n in range(5)]
    assert fit_doubt([*low, *high]) == 0.5
    assert fit_doubt(high * 2) == 0.0 and fit_doubt(low * 2) == 1.0
    assert fit_doubt(low) == 0.0  # too few to tell
