"""Where questions are lost: one stage for each, and sums alone of a test."""

import pytest

from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.losses import REMEDIES, describe_losses, find_loss, list_losses
from tests.optimize.conftest import invoke_json


def grade(outcome="answered", word="wrong", found=1.0, kept=1.0, right_outcome=None):
    words = {one: int(one == word) for one in ("correct", "partial", "wrong")}
    metrics = {"retrieval_recall": found, "context_recall": kept, "outcome_accuracy": right_outcome}
    return Grade("q", "t", (), "Q?", outcome, **words, utility=0.0, answer="", path=(), metrics=metrics)


@pytest.mark.parametrize(
    "graded, stage",
    [
        (grade(word="correct"), ""),
        (grade("clarify", "partial", found=0.0), "asked back"),
        (grade(found=0.5, kept=0.0), "not found"),
        (grade("abstain", "partial", kept=0.5), "cut at k"),
        (grade("abstain", "partial"), "refused"),
        (grade("failed", "partial", found=None, kept=None), "refused"),
        (grade(word="partial"), "half said"),
        (grade(), "other piece first"),
        (grade(found=None, kept=None, right_outcome=0.0), "answered what it should not"),
    ],
)
def test_a_question_is_lost_at_the_first_stage_that_lacks_it(graded, stage):
    assert find_loss(graded) == stage
    assert [one for one, _ in list_losses([graded])] == [stage] * bool(stage)
    assert (stage in describe_losses(list_losses([graded]), 1, "train")) and (not stage or REMEDIES[stage])


def test_eval_lists_what_is_lost_and_of_a_test_the_sums_alone(shop):
    train, test = (invoke_json("eval", shop, "--split", split, "--losses") for split in ("train", "test"))
    assert train["n"] == 4 and sum(train["stages"].values()) == len(train["losses"])
    assert (test["n"], test["losses"]) == (1, [])
