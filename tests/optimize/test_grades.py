"""Correct, partial, wrong: the three words mean the same everywhere, and every mean has its interval."""

from functools import partial

import pytest

from ragc import open_program
from ragc.answer import Answer, Citation, Outcome, Usage
from ragc.errors import DataError
from ragc.knowledge.project import Project
from ragc.optimize.evaluation.evaluate import evaluate, tabulate_metrics
from ragc.optimize.evaluation.grades import PROPORTIONS, grade_answer, judge_answer, score_support, score_utility
from ragc.optimize.evaluation.stats import ANY
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.settings import UtilitySettings

WEIGHTS = UtilitySettings(padding=0.1)
REFUND = LabelledQuestion(
    id="q", question="How long?", topic="refunds", outcome="answered", route="simple", sources=("billing",),
    evidence=("billing/a.md#x", "billing/a.md#y"), facts=("30 days", ("GBP 5", "five pounds")), not_facts=("14 days",),
)  # fmt: skip
VAGUE = LabelledQuestion(id="v", question="How much?", outcome="clarify")
UNKNOWN = LabelledQuestion(id="u", question="In green?", outcome="abstain")


@pytest.mark.parametrize(
    ("question", "outcome", "text", "word", "worth"),
    [
        (REFUND, "answered", "Within 30 days, for a fee of £5.", "correct", 1.0),
        (REFUND, "answered", "Within 30 days; five pounds is kept.", "correct", 1.0),
        (REFUND, "answered", "Within 30 days.", "partial", 0.5),
        (REFUND, "answered", "Within 30 days, once 14 days, for GBP 5.", "wrong", -1.0),
        (REFUND, "answered", "Ask the help desk.", "wrong", -1.0),
        (REFUND, "abstain", "I do not know.", "partial", -0.3),
        (REFUND, "clarify", "Which plan?", "partial", -0.3),
        (VAGUE, "clarify", "Which plan?", "correct", 1.0),
        (VAGUE, "answered", "GBP 5.", "wrong", -1.0),
        (VAGUE, "abstain", "I do not know.", "partial", -0.3),
        (UNKNOWN, "abstain", "I do not know.", "correct", 1.0),
        (UNKNOWN, "failed", "The search failed: no reply in time.", "partial", -0.3),
        (UNKNOWN, "answered", "Yes.", "wrong", -1.0),
    ],
)
def test_an_answer_is_correct_partial_or_wrong_and_worth_its_facts_less_its_calls(question, outcome, text, word, worth):
    verdict = judge_answer(question, outcome, text)
    assert getattr(verdict, word)
    assert verdict.correct + verdict.partial + verdict.wrong == 1
    assert score_utility(verdict, outcome, 2, WEIGHTS) == pytest.approx(worth - 0.02)


def test_a_grade_tells_each_part_its_labels_allow():
    answer = Answer(
        text="Within 30 days. [1] It costs GBP 5. [2]", outcome=Outcome.ANSWERED,
        citations=(Citation(1, "billing", "billing/a.md#x", "T"), Citation(2, "billing", "billing/a.md#z", "T")),
        route="simple", sources=("billing", "policy"), retrieved=("billing/a.md#x", "billing/a.md#z"),
        found=("billing/a.md#x", "billing/a.md#y", "billing/a.md#z"),
        usage=Usage(calls=1),
    )  # fmt: skip
    texts = {"billing/a.md#x": "Ask within 30 days.", "billing/a.md#z": "It costs GBP 6."}
    support = partial(score_support, text_of=texts.__getitem__)
    metrics = grade_answer(REFUND, answer, WEIGHTS, support).metrics
    assert {name: value for name, value in metrics.items() if value} == {
        **{"outcome_accuracy": 1.0, "route_accuracy": 1.0, "source_f1": pytest.approx(2 / 3), "model_calls": 1.0},
        **{"retrieval_recall": 1.0, "context_recall": 0.5, "context_precision": 0.5},  # the judge lost one
        **{"fact_recall": 1.0, "answer_precision": 1.0, "sentences": 2.0},
        "supported": 0.5,  # GBP 5 is not what the second passage says
    }
    assert metrics["routing_accuracy"] == 0.0  # a base too many
    same = {"billing/b.md#x": "billing/a.md#x", "billing/a.md#x": "billing/a.md#x"}
    elsewhere = REFUND.model_copy(update={"evidence": tuple(i.replace("a.md#x", "b.md#x") for i in REFUND.evidence)})
    assert elsewhere.evidence != REFUND.evidence
    assert grade_answer(elsewhere, answer, WEIGHTS, support, copies=same).metrics == metrics
    whole = grade_answer(REFUND.model_copy(update={"evidence": ("billing/a.md",)}), answer, WEIGHTS).metrics
    assert [whole[name] for name in ("retrieval_recall", "context_recall", "context_precision")] == [1.0, 1.0, 1.0]
    unlabelled = grade_answer(VAGUE, Answer(text="Which?", outcome=Outcome.CLARIFY), WEIGHTS).metrics
    without = ("routing_accuracy", "retrieval_recall", "answer_precision", "sentences")
    assert [unlabelled[name] for name in without] == [None] * 4


@pytest.mark.parametrize(
    ("text", "cited", "retrieved", "supported", "worth"),
    [
        ("Within 30 days, for GBP 5. [1]", "billing/a.md#x", (), 1.0, 0.99),
        ("Within 30 days, or 7, for GBP 5. [1]", "billing/a.md#x", (), 0.0, -1.01),  # as a wrong one costs
        ("30 days, GBP 5.", "", ("billing/a.md#x",), 0.0, -1.01),  # from passages, and cites none
        ("30 days, GBP 5.", "", (), None, 0.99),
        ("30 days and GBP 5, as the table adds up. [1]", "sql:1", (), None, 0.99),  # computed: it has no text
    ],
)
def test_an_answer_is_held_against_the_passages_it_cites(text, cited, retrieved, supported, worth):
    texts = {"billing/a.md#x": "Ask within 30 days, for GBP 5."}
    citations = (Citation(1, "billing", cited, "T"),) if cited else ()
    answer = Answer(text=text, outcome=Outcome.ANSWERED, citations=citations, retrieved=retrieved, usage=Usage(calls=1))
    found = grade_answer(
        REFUND, answer, WEIGHTS, lambda one, asked: score_support(one, asked, lambda id_: texts.get(id_, ""))
    )
    assert (found.metrics["supported"], found.utility) == (supported, pytest.approx(worth))


@pytest.mark.parametrize(
    ("question", "text", "precision", "sentences", "worth"),
    [
        (REFUND, "Within 30 days, for GBP 5. [1]", 1.0, 1, 1.0),
        (REFUND, "Within 30 days. [1] It costs five pounds. [2]", 1.0, 2, 1.0),  # an alternative is the fact
        (REFUND, "Good question! Ask within 30 days. It costs GBP 5. That is all.", 0.5, 4, 0.95),
        (REFUND, "30 days, GBP 5. [1] (from 1 May 2026; another source says otherwise [2])", 1.0, 1, 1.0),
        (REFUND, "Within 30 days [1] (from 14 May 2026). It costs five pounds [2].", 1.0, 2, 1.0),
        (REFUND.model_copy(update={"facts": ("2026",)}), "30 days [1] (from 1 May 2026).", 0.0, 1, -1.0),
        (REFUND, "Within 30 days. The shop is open.", 0.5, 2, 0.475),
        (REFUND, "Within 14 days. It costs GBP 5.", 0.5, 2, -1.0),
        (VAGUE, "It costs GBP 5. Always.", None, 2, -1.0),  # no answer was wanted
        (LabelledQuestion(id="h", question="Hello", route="direct"), "Hello. I help.", None, 2, 1.0),
    ],
)
def test_sentences_that_state_no_fact_cost_their_share(question, text, precision, sentences, worth):
    found = grade_answer(question, Answer(text=text, outcome=Outcome.ANSWERED), WEIGHTS)
    assert (found.metrics["answer_precision"], found.metrics["sentences"]) == (precision, sentences)
    assert found.utility == pytest.approx(worth)


def test_five_sentences_of_which_one_is_right_are_worth_half_of_that_one_alone_and_money_is_charged_at_its_rate():
    alone, padded = "Within 30 days, for GBP 5.", "Good day. Within 30 days, for GBP 5. We are open. Ask us. Goodbye."

    def worth(text, weights, **usage):
        answer = Answer(text=text, outcome=Outcome.ANSWERED, usage=Usage(**usage))
        return grade_answer(REFUND, answer, weights).utility

    assert [worth(text, UtilitySettings()) for text in (alone, padded)] == [1.0, pytest.approx(0.5)]
    charged = worth("30 days, GBP 5.", UtilitySettings(usd=50, padding=0.1), calls=2, usd=0.004)
    assert charged == pytest.approx(1 - 0.02 - 0.2)


def test_an_interval_is_cut_where_its_metric_ends_and_nowhere_else(shop):
    rag, questions = open_program(shop), read_labelled(Project.open(shop).labelled)
    done = []
    found = evaluate(rag, questions, UtilitySettings(call=0), lambda n, of: done.append((n, of)))
    assert done == [(n, len(questions)) for n in range(1, len(questions) + 1)]
    low, high = found.metrics()["utility"].ci
    mean = found.measure("utility").value
    assert high - mean == pytest.approx(mean - low, abs=1e-5) and high > low
    for name, figures in found.metrics().items():
        if name != "utility" and "seconds" not in name and figures.ci != ANY:
            assert figures.ci[0] >= (-1 if name == "answer_relevancy" else 0), name
            assert name not in PROPORTIONS or figures.ci[1] <= 1
    alone = evaluate(rag, questions[:1])
    assert all(figures.ci == ANY for figures in alone.metrics().values())
    assert next(cells for _, cells, _ in tabulate_metrics([alone.metrics()]))[0].endswith(" [-]")
    with pytest.raises(DataError, match="no labelled question"):
        evaluate(rag, [])
