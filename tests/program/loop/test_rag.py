"""The program as its users meet it: asked, awaited, streamed, copied, evaluated by DSPy."""

import asyncio

import dspy
import pytest

from program import Outcome, open_program
from program.errors import QuestionError
from program.models.text import find_foreign_language

QUESTION = "How much water does the Merle kettle hold?"


@pytest.fixture(scope="module")
def rag(shop):
    return open_program(shop)


def test_a_question_is_answered_from_the_documents_with_a_citation_and_plain_rag_judges_nothing(rag):
    answer = rag(QUESTION)
    assert answer.outcome is Outcome.ANSWERED
    assert "1.7 litres" in answer.text
    assert "product/kettles.md#capacity" in [c.id for c in answer.citations]
    assert answer.usage.calls == 0 and answer.trace.steps
    plain = rag.plain()(QUESTION)
    assert {step.name for step in plain.trace.steps} == {"search", "generator.states"} and plain.usage.searches == 1


GERMAN = "Wie viel Wasser passt in den großen Kessel hinein?"


@pytest.mark.parametrize("question", [None, "", "   \n", 7, b"How much?", ["How much?"], "x" * 100_000, GERMAN])
def test_what_cannot_be_asked_is_refused_however_it_is_asked(rag, question):
    async def streamed():
        return [event async for event in rag.stream(question)]

    for ask in (lambda: rag(question), lambda: asyncio.run(rag.aask(question)), lambda: asyncio.run(streamed())):
        with pytest.raises(QuestionError, match=r"Ask something in a sentence|Put long material|Ask in English"):
            ask()


def test_dspy_sees_the_trace_of_its_predictors(rag):
    with dspy.context(trace=[]):
        rag(QUESTION)
        called = {id(predictor) for predictor, _, _ in dspy.settings.trace}
    assert {id(rag.generator.states), id(rag.classifier.route)} <= called


def test_only_an_embedded_decider_vouches_for_a_draft_not_a_language_model_that_runs_here(shop):
    rag = open_program(shop)
    assert rag.vouches
    rag.grounder.responsive.lm = dspy.LM("local/instant", cache=False)
    assert not rag.vouches


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Wie bekomme ich mein Geld zurück nach 15 Tagen?", "de"),
        ("Combien coûte l'abonnement Pro par mois ?", "fr"),
        ("¿Cuándo abren?", "es"),
        ("Posso annullare in qualsiasi momento?", "it"),
        ("Hoeveel kost het?", "nl"),
        ("返金はいつですか", "ja"),
        *dict.fromkeys(["how much cost pro plan per month pls", "SSO?", "12 * 12", "refnd plz, parcel brokn", "?"], "").items(),
    ],
)  # fmt: skip
def test_another_language_is_named_and_terse_or_misspelt_english_passes(question, language):
    assert find_foreign_language(question) == language
