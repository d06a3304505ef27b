"""The embedded decider first, a language model only in doubt."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc import open_program
from ragc.loop.decisions import client_of, is_decision
from ragc.loop.policy import find_dimensions
from ragc.models.catalog import is_settled, least_certainty
from ragc.optimize.evaluation.evaluate import evaluate
from ragc.optimize.labelled.dataset import read_labelled
from tests.conftest import add_toml
from tests.support.provider import Script, serve
from tests.support.replies import obliging

QUESTION = "How much water does the Merle kettle hold?"
DOUBTS = ("route", "relevance", "sufficiency", "contradiction", "support", "responsive")


@pytest.fixture
def cascade(own_shop):
    with serve(Script(), obliging) as provider:
        models = '[models]\ndecide = ["local/reader", "openai/x"]\nwrite = ["local/reader", "openai/x"]\n'
        add_toml(own_shop, f'{models}[provider.model."openai/x"]\napi_base = "{provider.url}"')
        yield open_program(own_shop), provider, own_shop


def doubt(program, value):
    for name in DOUBTS:
        getattr(program.doubt, name).set(value)


def with_one_writer(program):
    program.runtime = replace(program.runtime, models=replace(program.runtime.models, rewrite=None))


def test_a_model_for_queries_writes_what_is_searched_or_asked_back_and_never_an_answer(own_shop):
    add_toml(own_shop, '[models]\nwrite = "openai/x"\nquery = "local/reader"\n')
    program = open_program(own_shop)
    models, writes = program.runtime.models, dict(program.named_predictors())
    found = {name: client_of(models, one, {}) for name, one in writes.items() if not is_decision(one)}
    by = {name: client.model for name, client in found.items() if client is not None}
    queries = {name for name, model in by.items() if model == "local/reader"}
    assert queries == {
        "conversation.standalone",
        "decomposer.split",
        "decomposer.follow",
        "judge.missing",
        "generator.clarify",
    }
    assert {"generator.answer", "generator.direct", "retriever.sql"} <= by.keys() - queries


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_doubt_of_nought_never_asks_and_of_one_always_does(p, doubt):
    evidence = {"relevant": p, "route": {"a": p, "b": 1 - p}}
    assert is_settled(evidence, 0.0) and not is_settled(evidence, 1.0)
    assert 0 <= least_certainty(evidence) <= 1
    if is_settled(evidence, doubt):
        assert is_settled(evidence, doubt / 2)


def test_the_doubts_are_parameters_of_a_cascade_alone_and_the_dearer_writes_what_was_not_upheld(cascade, shop):
    program, _, _ = cascade
    assert {f"doubt.{name}" for name in DOUBTS} <= {d.name for d in find_dimensions(program)}
    assert not [d for d in find_dimensions(open_program(shop)) if d.name.startswith("doubt.")]
    writers = [program.runtime.models.writer({"strict": strict}).model for strict in (False, True)]
    assert writers == ["local/reader", "openai/x"]


def test_the_language_model_is_asked_as_often_as_doubt_says(cascade):
    program, provider, _ = cascade
    doubt(program, 0.0)
    never = program(QUESTION)
    assert (provider.calls, never.usage.second_calls) == (0, 0)
    program.doubt.sufficiency.set(1.0)
    some = program("How much water does the Tern kettle hold?")
    assert 0 < some.usage.second_calls < some.usage.decisions
    doubt(program, 1.0)
    always = program("How much water does the Wren kettle hold?")
    quoted = sum(step.name == "generator.states" for step in always.trace.steps)  # what to quote is decided here
    assert always.usage.second_calls == always.usage.decisions - quoted > 0


def test_the_calls_avoided_are_those_that_always_asking_would_have_made_and_an_evaluation_tells_them(cascade):
    program, provider, folder = cascade
    doubt(program, 0.0)
    upheld = program(QUESTION).usage
    with_one_writer(program)
    decided = program(QUESTION).usage.second_avoided  # a quotation is no text that is written
    assert (upheld.second_calls, upheld.second_avoided) == (0, decided)
    doubt(program, 1.0)
    usage = program(QUESTION).usage
    assert usage.second_calls == (always := provider.calls) > 0 and usage.second_avoided == 0
    doubt(program, 0.0)
    usage = program("How much water does the Wren kettle hold?").usage
    assert (usage.second_calls, usage.second_avoided) == (0, always)
    for value, saved in ((1.0, 0), (0.0, 1)):
        doubt(program, value)
        found = evaluate(program, read_labelled(folder / "labelled.jsonl")[:2])
        assert found.metrics()["calls_saved"].value == saved
