"""From which probability a quotation is said: what a compile fits, and how far from where it began."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from ragc.loop.policy import LEAST, MOST
from ragc.optimize.compiler.scoring import Scores
from ragc.optimize.compiler.thresholds import fit_caution

NAME, START = "generator.states:states", 0.35


class Answers:
    """A scoring of questions whose answers are so sure, and gain so much over a refusal."""

    def __init__(self, sure, gain):
        self.sure, self.gain = np.array(sure, float), np.array(gain, float)

    def score_ahead(self, wanted):
        self.wanted = wanted

    def __call__(self, setting):
        says = self.sure >= setting[NAME]
        none = np.zeros(len(self.sure))
        return Scores(np.where(says, self.gain, 0.0), none, none, none, np.where(says, self.sure, 0.0))


def fitted(sure, gain):
    return fit_caution(Answers(sure, gain), NAME, {NAME: START, "policy.k": 5})[NAME]


questions = st.lists(
    st.tuples(st.floats(0.03, 0.97), st.sampled_from([-2.0, -0.7, 0.0, 0.8, 1.3])), min_size=1, max_size=60
)


@given(questions)
def test_it_is_a_probability_and_stays_near_its_prior_unless_many_questions_say_otherwise(some):
    sure, gain = zip(*some, strict=True)
    found = fitted(sure, gain)
    assert LEAST <= found <= MOST
    assert abs(logit(found) - logit(START)) <= 0.15 * len(some) + 1e-6


@given(st.integers(5, 400), st.sampled_from([1.3, -0.7]))
def test_it_falls_where_answers_gain_and_rises_where_they_lose_the_more_the_more_questions_say_so(count, gain):
    few, many = [fitted(expit(np.linspace(-2, 2, n)), [gain] * n) for n in (count, 3 * count)]
    assert few < START and many < max(few, LEAST + 1e-9) if gain > 0 else few > START and many > min(few, MOST - 1e-9)


def test_nothing_moves_where_no_answer_matters():
    assert fitted([0.3, 0.6], [0.0, 0.0]) == START
    assert fitted([0.01, 0.001], [1.0, 1.0]) == START, "an answer that is not said at any threshold has no say"
