"""Choosing: what beats the front, what a bound may prune, and which gains survive the folds."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.compiler.bench import Table
from optimize.compiler.front import Candidate, frontier
from optimize.compiler.scores import Scores
from optimize.compiler.scoring import Arm, Scoring
from optimize.compiler.survival import survives
from optimize.labelled.dataset import LabelledQuestion
from program.settings import UtilitySettings

OWN = 0.01
candidates = st.lists(
    st.tuples(st.floats(-1, 1), st.floats(0, 3)).map(lambda pair: Candidate({}, pair[0], pair[1])), min_size=1
)


@given(candidates, st.floats(0, 2))
def test_whatever_a_call_costs_the_best_setting_is_on_the_frontier(every, price):
    best = max(c.at(price, OWN) for c in every)
    assert max(c.at(price, OWN) for c in frontier(every, OWN)) >= best - 1e-9


@given(candidates)
def test_on_the_frontier_more_calls_mean_more_utility(every):
    found = frontier(every, OWN)
    assert all(a.calls < b.calls and a.at(0, OWN) < b.at(0, OWN) for a, b in pairwise(found))


QUESTIONS = [
    LabelledQuestion(id="a", question="A?", outcome="answered", route="simple", facts=("x",)),
    LabelledQuestion(id="b", question="B?", outcome="abstain", route="simple"),
    LabelledQuestion(id="c", question="C?", facts=("x",)),
]
less = st.integers(1, 16).map(lambda n: n / 4)
weights_ = st.builds(
    lambda best, wrong, missed, call: UtilitySettings(
        correct=best, wrong=best - wrong, missed=best - missed, call=call
    ),
    st.integers(0, 8).map(lambda n: n / 4),
    less,
    less,
    st.floats(0, 1),
)
answers = st.tuples(
    st.sampled_from(["correct", "partial", "wrong", "refused"]), st.sampled_from([0.0, 1.0]), st.integers(0, 4)
)


def worth_of(question, word, calls, weights):
    """What utility an answer of that word can have; a refusal alone, or an unlabelled answer, comes without a call."""
    refused = word == "refused" or (word == "correct" and question.outcome == "abstain")
    calls = calls if refused else max(calls, int(question.outcome == "answered"))
    worth = {"correct": weights.correct, "wrong": weights.wrong, "refused": weights.missed}
    return worth.get(word, weights.correct / 2) - weights.call * calls, float(calls)


@given(st.lists(answers, min_size=3, max_size=3), st.integers(0, 3), st.floats(0, 3), weights_)
def test_what_is_known_of_a_part_bounds_what_the_whole_can_come_to(rows, known, price, weights):
    scoring = Scoring([Arm(None, QUESTIONS)], weights)
    found = [worth_of(q, word, calls, weights) for (word, _, calls), q in zip(rows, QUESTIONS, strict=True)]
    worth, spent = np.array(found).T
    routed = np.array([r if q.route else np.nan for (_, r, _), q in zip(rows, QUESTIONS, strict=True)])
    whole = Scores(worth, routed, spent, np.zeros(3))
    part = Scores(*(np.where(np.arange(3) < known, column, np.nan) for column in whole.columns))
    reached = whole.worth + (weights.call - price) * whole.calls
    assert scoring.most(part, price) >= reached - 1e-9


def scored(values, calls=1.0):
    values = np.array(values)
    return Scores(values, np.full(len(values), np.nan), np.full(len(values), calls), np.zeros(len(values)))


def test_a_setting_is_judged_on_a_topic_by_what_the_other_topics_say_of_it():
    asked = [LabelledQuestion(id=f"q{n}", question=f"Q{n}?", topic=f"t{n}", outcome="answered") for n in range(4)]
    bench = SimpleNamespace(questions=asked, held=list(range(4)))
    lucky, steady = scored([1.0, 0.0, 0.0, 0.0]), scored([0.2, 0.2, 0.2, 0.2])
    table = Table([{"a": 1}, {"a": 2}], [lucky, steady], OWN)
    before = scored([0.0] * 4)
    assert table.best(OWN) == 0  # all questions together
    gains = table.out_of_fold(bench, OWN, before)
    assert gains[0] == 0.2  # what the lucky one is worth there has no say
    assert list(gains[1:]) == [0.0] * 3


def test_settings_are_compared_on_the_questions_that_all_of_them_were_scored_on():
    settings = [{"s": 0.0}, {"s": 1.0}, {"s": 2.0}]
    table = Table(settings, [scored([1.0, np.nan, np.nan]), scored([1.0, 0.8, 0.8]), scored([np.nan] * 3)], OWN)
    assert table.settings == [{"s": 1.0}]
    assert [one.setting for one in table.candidates] == [{"s": 1.0}]


def test_where_a_call_is_dear_a_setting_of_fewer_calls_is_the_best_and_gains_by_them():
    asked = [LabelledQuestion(id=f"q{n}", question=f"Q{n}?", topic=f"t{n}", outcome="answered") for n in range(4)]
    bench = SimpleNamespace(questions=asked, held=list(range(4)))
    table = Table([{"a": 1}, {"a": 2}], [scored([0.5] * 4, 3.0), scored([0.4] * 4, 1.0)], OWN)
    assert (table.best(0.0), table.best(0.15)) == (0, 1)
    gains = table.out_of_fold(bench, 0.15, scored([0.5] * 4, 3.0))
    assert gains == pytest.approx([2 * (0.15 - OWN) - 0.1] * 4)


def test_a_gain_on_one_topic_alone_does_not_survive_and_one_on_most_does():
    topics = [f"t{n // 4}" for n in range(24)]
    alone = [1.0 if topic == "t0" else -0.1 for topic in topics]
    most = [0.4 if n % 4 else -0.1 for n in range(24)]
    assert not survives(alone, topics)
    assert survives(most, topics)


def test_no_gain_survives_when_there_is_none():
    assert not survives([0.0] * 8, [f"t{n}" for n in range(8)])
    assert not survives([], [])


def test_one_topic_alone_proves_nothing_however_large_its_gain():
    assert not survives([1.0] * 9, ["t0"] * 9)
    assert not survives([1.0, np.nan], ["t0", "t1"])
