"""Choosing: which gains survive the folds, and operating points that are really different settings."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from optimize.cli.main import app
from optimize.compiler.choice import Candidate, find_best, find_frontier, fit_doubt, price_points
from optimize.compiler.scoring import gain_out_of_fold, survives
from optimize.labelled.dataset import read_labelled
from program import load
from program.knowledge.project import Project
from program.serve.manifest import read_manifest
from program.serve.reference import resolve

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


def test_folds_are_made_of_the_questions_held_back_alone():
    topics = ["a", "a", "b", "c"]
    gains = gain_out_of_fold(np.array([np.zeros(4), np.ones(4)]), topics, [2, 3])
    assert np.isnan(gains[:2]).all() and gains[2:].tolist() == [1.0, 1.0]


def test_a_gain_on_one_topic_alone_does_not_survive_and_one_on_most_does():
    topics = [f"t{n // 4}" for n in range(24)]
    alone = np.array([1.0 if topic == "t0" else -0.1 for topic in topics])
    most = np.array([0.4 if n % 4 else -0.1 for n in range(24)])
    assert not survives(alone, topics)
    assert survives(alone + 0.1, topics, errors=0.0), "where there is nothing to protect"
    assert survives(most, topics)


@pytest.mark.parametrize(
    ("gains", "topics"),
    [([0.0] * 8, [f"t{n}" for n in range(8)]), ([], []), ([1.0] * 9, ["t0"] * 9), ([1.0, np.nan], ["t0", "t1"])],
)
def test_no_gain_survives_when_there_is_none_or_one_topic_alone(gains, topics):
    assert not survives(np.array(gains), topics)


def stored(compiled):
    return json.loads((resolve("shop@v2", compiled / "artifacts").path / "frontier.json").read_bytes())


def calls_of(rag, compiled):
    return [rag(question.question).usage.calls for question in read_labelled(Project.open(compiled).labelled)]


def ask(compiled, *options, question="How many watts does the Wren draw?"):
    done = CliRunner().invoke(app, ["ask", str(compiled), question, "--json", *options])
    return done.exception or json.loads(done.stdout)


def test_the_economy_point_asks_no_more_calls_and_what_is_loaded_is_the_balanced_one(compiled):
    points = read_manifest(resolve("shop@v2", compiled / "artifacts").path).section("points")
    assert set(points) == {"quality", "balanced", "economy"}
    root = compiled / "artifacts"
    balanced, economy = (calls_of(load("shop@v2", artifacts=root, point=p), compiled) for p in ("balanced", "economy"))
    assert sum(economy) <= sum(balanced)
    assert calls_of(load("shop@v2", artifacts=root), compiled) == balanced


def test_the_frontier_reaches_down_to_plain_rag(compiled):
    front = stored(compiled)
    assert front[0]["calls"] <= 1.0
    assert front == sorted(front, key=lambda one: one["utility"])


def test_ask_takes_a_point_by_name(compiled):
    question = read_labelled(Project.open(compiled).labelled)[0].question
    for point in ("economy", "balanced"):
        told = load("shop@v2", artifacts=compiled / "artifacts", point=point)(question)
        asked = ask(compiled, "--point", point, question=question)
        assert (asked["text"], asked["usage"]["decisions"]) == (told.text, told.usage.decisions)


def test_answers_are_said_to_be_uncertain_under_the_confidence_where_most_were_wrong():
    low, high = [(n / 10, True) for n in range(4)], [(0.5 + n / 10, False) for n in range(5)]
    assert fit_doubt([*low, *high]) == 0.5
    assert fit_doubt(high * 2) == 0.0 and fit_doubt(low * 2) == 1.0
    assert fit_doubt(low) == 0.0  # too few to tell
