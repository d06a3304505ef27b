"""Correct, partial, wrong: the three words mean the same everywhere."""

import pytest

from optimize.evaluation.metrics import grade, judge, utility
from optimize.labelled.dataset import LabelledQuestion
from program.answer import Answer, Citation, Outcome, Usage
from program.settings import UtilitySettings

WEIGHTS = UtilitySettings()
REFUND = LabelledQuestion(
    id="q", question="How long?", topic="refunds", outcome="answered", route="simple", sources=("billing",),
    evidence=("billing/a.md#x", "billing/a.md#y"), facts=("30 days", ("GBP 5", "five pounds")), not_facts=("14 days",),
)  # fmt: skip
VAGUE = LabelledQuestion(id="v", question="How much?", outcome="clarify")
UNKNOWN = LabelledQuestion(id="u", question="In green?", outcome="abstain")


@pytest.mark.parametrize(
    ("question", "outcome", "text", "word"),
    [
        (REFUND, "answered", "Within 30 days, for a fee of £5.", "correct"),
        (REFUND, "answered", "Within 30 days; five pounds is kept.", "correct"),
        (REFUND, "answered", "Within 30 days.", "partial"),
        (REFUND, "answered", "Within 30 days, once 14 days, for GBP 5.", "wrong"),
        (REFUND, "answered", "Ask the help desk.", "wrong"),
        (REFUND, "abstain", "I do not know.", "partial"),
        (REFUND, "clarify", "Which plan?", "partial"),
        (VAGUE, "clarify", "Which plan?", "correct"),
        (VAGUE, "answered", "GBP 5.", "wrong"),
        (VAGUE, "abstain", "I do not know.", "partial"),
        (UNKNOWN, "abstain", "I do not know.", "correct"),
        (UNKNOWN, "answered", "Yes.", "wrong"),
    ],
)
def test_an_answer_is_correct_partial_or_wrong(question, outcome, text, word):
    verdict = judge(question, outcome, text)
    assert {"correct": verdict.correct, "partial": verdict.partial, "wrong": verdict.wrong}[word]
    assert verdict.correct + verdict.partial + verdict.wrong == 1


def test_utility_pays_facts_charges_calls_and_punishes_what_is_wrong():
    assert utility(judge(REFUND, "answered", "30 days, GBP 5"), "answered", 0, WEIGHTS) == 1.0
    assert utility(judge(REFUND, "answered", "30 days"), "answered", 0, WEIGHTS) == 0.5
    assert utility(judge(REFUND, "abstain", "?"), "abstain", 0, WEIGHTS) == -0.3
    assert utility(judge(VAGUE, "answered", "GBP 5"), "answered", 2, WEIGHTS) == pytest.approx(-1.02)


def test_a_grade_tells_each_part_its_labels_allow():
    answer = Answer(
        "Within 30 days. [1] It costs GBP 5. [2]", Outcome.ANSWERED,
        (Citation(1, "billing", "billing/a.md#x", "T"), Citation(2, "billing", "billing/a.md#z", "T")),
        route="simple", sources=("billing", "policy"), retrieved=("billing/a.md#x", "billing/a.md#z"),
        found=("billing/a.md#x", "billing/a.md#y", "billing/a.md#z"),
        usage=Usage(calls=1),
    )  # fmt: skip
    texts = {"billing/a.md#x": "Ask within 30 days.", "billing/a.md#z": "It costs GBP 6."}
    metrics = grade(REFUND, answer, WEIGHTS, texts.__getitem__).metrics
    assert metrics["outcome_accuracy"] == 1.0
    assert metrics["route_accuracy"] == 1.0
    assert metrics["routing_accuracy"] == 0.0  # a base too many
    assert metrics["source_f1"] == pytest.approx(2 / 3)
    assert metrics["retrieval_recall"] == 1.0
    assert metrics["context_recall"] == 0.5  # the judge lost one
    assert metrics["context_precision"] == 0.5
    assert metrics["fact_recall"] == 1.0
    assert metrics["supported"] == 0.5  # GBP 5 is not what the second passage says
    assert metrics["model_calls"] == 1.0


@pytest.mark.parametrize(("label", "first", "right"), [("web", "web", 1.0), ("web", "vector", 0.0), ("web", "", None)])
def test_the_strategy_put_first_is_held_against_the_label_where_there_are_both(label, first, right):
    question = REFUND.model_copy(update={"strategy": label})
    answer = Answer("30 days", Outcome.ANSWERED, strategy=first)
    assert grade(question, answer, WEIGHTS).metrics["strategy_accuracy"] == right
    assert grade(REFUND, answer, WEIGHTS).metrics["strategy_accuracy"] is None


def cites(text, passage="billing/a.md#x"):
    return Answer(text, Outcome.ANSWERED, (Citation(1, "billing", passage, "T"),), usage=Usage(calls=1))


def test_an_answer_none_of_whose_claims_its_citations_hold_costs_what_a_wrong_one_does():
    texts = {"billing/a.md#x": "Ask within 30 days, for GBP 5."}
    worth = [
        grade(REFUND, cites(text), WEIGHTS, lambda id_: texts.get(id_, "")).utility
        for text in ("Within 30 days, for GBP 5. [1]", "Within 30 days, says Ann, for GBP 5. [1]")
    ]
    assert worth == [pytest.approx(0.99), pytest.approx(-1.01)]


@pytest.mark.parametrize(("retrieved", "worth"), [(("billing/a.md#x",), -1.01), ((), 0.99)])
def test_an_answer_from_passages_that_cites_none_is_unsupported_and_one_from_none_is_not(retrieved, worth):
    answer = Answer("30 days, GBP 5.", Outcome.ANSWERED, retrieved=retrieved, usage=Usage(calls=1))
    assert grade(REFUND, answer, WEIGHTS, lambda id_: "Ask.").utility == pytest.approx(worth)


def test_what_was_computed_for_an_answer_has_no_text_to_be_held_against():
    found = grade(REFUND, cites("30 days and GBP 5, as the table adds up. [1]", "sql:1"), WEIGHTS, lambda id_: "")
    assert found.metrics["supported"] is None
    assert found.utility == pytest.approx(0.99)


def test_money_is_charged_at_the_rate_the_project_says():
    answer = Answer("30 days, GBP 5.", Outcome.ANSWERED, usage=Usage(calls=2, usd=0.004))
    assert grade(REFUND, answer, UtilitySettings(usd=50)).utility == pytest.approx(1 - 0.02 - 0.2)


def test_a_label_that_is_not_there_is_not_counted():
    metrics = grade(VAGUE, Answer("Which?", Outcome.CLARIFY), WEIGHTS).metrics
    assert metrics["routing_accuracy"] is None
    assert metrics["retrieval_recall"] is None
    assert metrics["supported"] is None
