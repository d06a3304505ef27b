"""Answers quoted from the passages, piece by piece."""

import asyncio
from dataclasses import replace

import pytest

from program.answer import Outcome
from program.loop.drivers import Token
from program.models.embedded.reader import READER
from tests.program.loop.scripted import Scripted, ScriptedModels, passage

TEXT = "It boils in two minutes. It holds two litres.\n\n| Plan | Price | Seats |\n|---|---|---|\n| Pro | GBP 9 | 4 |\n"
POOL = [passage("product/a.md#1", TEXT, 0.9), passage("product/b.md#1", "The lid is red. It holds two litres.", 0.8)]
PARTS = ["colour of the lid", "time to boil"]
CHANCES = {"It holds two litres.": 0.9, "The lid is red.": 0.7, "Plan: Pro; Price: GBP 9": 0.6}


def quoting(chances=CHANCES, **how) -> Scripted:
    """A program whose embedded writer quotes the pieces that `chances` names."""
    models = ScriptedModels(states=lambda inputs: chances.get(inputs["sentence"], 0.1))
    made = Scripted(models=models, pool=POOL, **{"route": 0, "judge": 0, "ground": 0, **how})
    clients = made.rag.runtime.models
    made.rag.runtime = replace(
        made.rag.runtime, models=replace(clients, write=ScriptedModels(READER, sub_queries=PARTS).lm())
    )
    return made


def test_pieces_past_the_threshold_are_quoted_most_probable_first_with_their_passages_and_none_twice():
    answer = quoting()()
    assert answer.text == "It holds two litres [1]. The lid is red [2]. Plan: Pro; Price: GBP 9 [1]."
    assert [citation.id for citation in answer.citations] == ["product/a.md#1", "product/b.md#1"]
    assert quoting(sentences=1)().text == "It holds two litres [1]."


def test_the_threshold_is_the_predictors_own():
    made = quoting()
    made.rag.generator.states.fields.setdefault("states", {})["threshold"] = 0.8
    assert made().text == "It holds two litres [1]."


@pytest.mark.parametrize(("least", "outcome"), [(0, Outcome.ABSTAIN), (1, Outcome.ANSWERED)])
def test_where_nothing_states_what_is_asked_the_program_abstains_unless_it_must_quote_something(least, outcome):
    answer = quoting({}, quote_at_least=least)()
    assert answer.outcome is outcome
    assert len(answer.text.split("[")) == 2  # the one quotation, or the nearest passage


def test_each_look_up_is_quoted_from_what_it_found_one_after_another():
    chances = {"The lid is red.": 0.9, "It boils in two minutes.": 0.8}
    found = {PARTS[0]: POOL[1:], PARTS[1]: POOL[:1]}
    made = quoting(chances, route=1, decompose=1, sentences=1)
    made.models.replies.update(route="complex")
    made.shelf.pool = lambda find: found.get(find.query, POOL)
    assert made().text == "The lid is red [1]. It boils in two minutes [2]."
    asked = [inputs["question"] for name, inputs in made.models.asked if name == "states"]
    assert set(asked) == set(PARTS)


def test_a_quoted_answer_is_streamed_as_a_whole_before_it_is_returned():
    async def events():
        return [event async for event in quoting().rag.stream("How much does it hold?")]

    *told, answer = asyncio.run(events())
    assert [event.text for event in told if isinstance(event, Token)] == [answer.text]


def test_a_quotation_is_not_checked_against_the_passage_that_it_is_taken_from():
    made = quoting(ground=1)
    assert made().supported == 1.0 and "supported" not in made.asked


def test_a_checked_answer_is_withheld_where_no_piece_is_past_the_threshold_and_is_as_sure_as_its_best():
    assert quoting(ground=1)().confidence == 0.9
    assert quoting({"It holds two litres.": 0.45}, ground=1)().outcome is Outcome.ABSTAIN
    assert quoting(ground=1, answer_above=0.95)().outcome is Outcome.ABSTAIN


def test_once_anything_is_quoted_the_next_best_is_too_as_far_as_the_knob_says():
    chances = {"It holds two litres.": 0.9, "The lid is red.": 0.3}
    assert quoting(chances, ground=1)().text == "It holds two litres [1]."
    assert quoting(chances, ground=1, quote_at_least=2)().text == "It holds two litres [1]. The lid is red [2]."


def test_passages_are_not_judged_one_by_one_for_a_writer_that_quotes():
    made = quoting(judge=1)
    assert made().outcome is Outcome.ANSWERED and "relevant" not in made.asked and "sufficient" in made.asked
