"""What an evaluation says of a program's answers: every mean with its interval."""

import math

import pytest

from optimize.evaluation.evaluate import evaluate
from optimize.labelled.dataset import read_labelled
from program import open_program
from program.project import Project
from program.settings import UtilitySettings


@pytest.fixture(scope="module")
def rag(shop):
    return open_program(shop)


def test_no_interval_of_utility_goes_past_what_the_best_answer_is_worth(rag, shop):
    questions = read_labelled(Project.open(shop).labelled)
    for weights in (UtilitySettings(call=0), UtilitySettings(correct=3, call=0)):
        found = evaluate(rag, questions, weights)
        assert found.best == weights.best == weights.correct
        assert {grade.utility for grade in found.grades} != {weights.correct}, "else there is no spread"
        low, high = found.metrics()["utility"]["ci"]
        assert high == weights.correct and low < found.measure("utility").value


def test_of_one_question_the_utility_is_only_known_to_be_no_better_than_the_best(rag, shop):
    found = evaluate(rag, read_labelled(Project.open(shop).labelled)[:1]).measure("utility")
    assert (found.low, found.high) == (-math.inf, 1.0)
