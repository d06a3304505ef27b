"""The program as its users meet it: asked, awaited, streamed, copied, evaluated by DSPy."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import dspy
import pytest

from ragc import Outcome, open_program
from ragc.errors import QuestionError
from ragc.loop import steps
from ragc.loop.steps import find_unread_language, is_greeting
from ragc.models.embedded.writer import GREETINGS
from ragc.text.facts import states
from tests.conftest import write_shop

ROOT = Path(__file__).parents[3]
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


def test_no_step_took_longer_than_its_answer(rag):
    for ask in ask_each_way(rag, QUESTION):
        answer = ask()
        answer = answer if hasattr(answer, "trace") else answer.answer  # of a stream the last event
        assert max(step.milliseconds for step in answer.trace.steps) <= 1000 * answer.usage.seconds


def ask_each_way(rag, question):
    """Yield what asks a question: at once, awaited and streamed."""

    async def streamed():
        return [event async for event in rag.stream(question)][-1]

    yield from (lambda: rag(question), lambda: asyncio.run(rag.aask(question)), lambda: asyncio.run(streamed()))


@pytest.mark.parametrize("question", [None, "", "   \n", 7, b"How much?", ["How much?"], "x" * 100_000])
def test_what_cannot_be_asked_is_refused_however_it_is_asked(rag, question):
    for ask in ask_each_way(rag, question):
        with pytest.raises(QuestionError, match=r"Ask something in a sentence|Put long material"):
            ask()


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Wie viel Wasser passt in den großen Kessel hinein?", "de"),
        ("Combien de litres contient la grande bouilloire Merle ?", "fr"),
        ("¿Cuánta agua cabe en el hervidor grande de Merle?", "es"),
        ("Posso annullare in qualsiasi momento?", "it"),
        ("Hoeveel kost het per maand voor ons?", "nl"),
        ("返金はいつですか", "ja"),
    ],
)
def test_a_question_in_another_language_has_an_answer_that_says_so(rag, question, language):
    for ask in ask_each_way(rag, question):
        answer = ask()
        assert answer.text.startswith("I read English only") and f"language {language}" in answer.trace.path
        assert (answer.outcome, answer.citations, answer.usage.searches) == (Outcome.ABSTAIN, (), 0)


NOUNS = """chain oil|derailleur|espresso|cappuccino|latte macchiato|sala de espera|premium|wheelchair|tolls|kennel|menu
    du jour|pizza margherita|schnitzel|kindergarten|croissant|paella|tapas|sauna|visa|metro|tram|invoice|deposit|locker|
    deworming|insulin|denture|molar|saddle|crank|axle|helmet|pannier|baguette|gelato|fjord|patio|siesta|lavazza crema|
    zeitgeist|vaccine|dormitory|ferry|refund|tierarzt|hola|hub|spoke""".replace("\n    ", " ").split("|")
SHORT = "{}|{} price|{} cost|{} refund|price {}|{}?|{} opening hours|{} fee per day|cheap {}|{} damage|rent {}|my {}"
LONG = "{0} {1} combined ticket price child|cheapest {0} repair same day service|{0} rental {1} refund damage policy"


TERSE = ["how much cost pro plan per month pls", "SSO?", "12 * 12", "refnd plz, parcel brokn", "?", "Hoeveel kost het?"]


@pytest.mark.parametrize("noun", NOUNS)
def test_a_question_of_few_words_or_of_the_documents_words_is_read_whatever_its_language(lexicon, noun):
    noun = noun.strip()
    short = [pattern.format(noun) for pattern in SHORT.split("|")]
    long = [pattern.format(noun, other.strip()) for pattern in LONG.split("|") for other in NOUNS]
    asked = [q for q in short if len(q.split()) < 5] + long + TERSE
    assert {question: found for question in asked if (found := find_unread_language(lexicon.view(), question))} == {}


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory):
    """A program over documents that hold every word of the questions."""
    folder = write_shop(tmp_path_factory.mktemp("lexicon"))
    words = "combined ticket price child cheapest repair same day service rental refund damage policy"
    (folder / "knowledge/product/words.md").write_text(f"# Words\nWe have {', '.join(NOUNS)} and {words}.\n")
    return open_program(folder)


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        *((one, "Hello!") for one in ("hello", "Hi there!", "good morning", "Hey", "good afternoon", "hello there")),
        *((one, "You are welcome!") for one in ("thanks", "Thank you so much!", "thanks, that was all")),
        *((one, "Goodbye!") for one in ("bye", "goodbye", "see you later", "Bye for now!")),
    ],
)
def test_a_greeting_is_greeted_and_nothing_is_searched(rag, message, reply):
    answer = rag(message)
    assert (answer.outcome, answer.route, answer.citations) == (Outcome.ANSWERED, "direct", ())
    assert answer.text.startswith(reply) and answer.text in GREETINGS and answer.usage.searches == 0


@pytest.mark.parametrize(
    "question",
    [
        *("hello, how much water does the Merle hold?", "hi, are you open today?", "thanks, and what does Wren draw?"),
        *("good morning, when do you open?", "is anybody at the desk after 10 pm?", "help", "goodbye kettle", "Merle"),
    ],
)
def test_a_question_is_no_greeting_though_it_begins_with_one(rag, question):
    assert not is_greeting(rag.view(), question)


def test_no_labelled_question_is_taken_for_a_greeting_or_for_another_language(rag):
    asked = [json.loads(line) for line in (ROOT / "data/tallowgate/labelled.jsonl").read_text().splitlines()]
    asked = [one for one in asked if one["split"] != "test"]
    greeted = [one for one in asked if is_greeting(rag.view(), one["question"])]
    assert {one["route"] for one in greeted} == {"direct"} and {len(one["facts"]) for one in greeted} == {1}
    assert all(states(rag(one["question"]).text, one["facts"][0]) for one in greeted)
    assert [one["question"] for one in asked if find_unread_language(rag.view(), one["question"])] == []


def test_what_is_no_sum_and_no_greeting_is_looked_up_though_it_seems_to_need_no_look_up(rag, monkeypatch):
    read = steps.read_plan
    monkeypatch.setattr(steps, "read_plan", lambda *told: replace(read(*told), route="direct"))
    answer, total = rag(QUESTION), rag("What is 12 times 12?")
    assert answer.outcome is Outcome.ANSWERED and "1.7 litres" in answer.text and answer.citations
    assert (total.text, total.citations) == ("144", ()) and "unretrieved" in total.trace.path


def test_dspy_sees_the_trace_of_its_predictors(rag):
    with dspy.context(trace=[]):
        rag(QUESTION)
        called = {id(predictor) for predictor, _, _ in dspy.settings.trace}
    assert {id(rag.generator.states), id(rag.classifier.route)} <= called


def test_only_an_embedded_decider_vouches_for_a_draft_not_a_language_model_that_runs_here(shop):
    rag = open_program(shop)
    assert rag.view().vouches
    rag.grounder.responsive.lm = dspy.LM("local/instant", cache=False)
    assert not rag.view().vouches
