"""A second language model, asked when the first does not answer; the embedded ones behind it. All over HTTP."""

import asyncio
import json
import re

import pytest

from ragc import Outcome, open_program
from ragc.answer import Progress
from ragc.errors import BudgetError, ModelError
from ragc.models.catalog import client_of, is_decision, require_price
from ragc.settings import ModelSettings, ProviderSettings
from tests.conftest import add_toml
from tests.support.goods import program_at
from tests.support.provider import Script, serve
from tests.support.replies import obliging

QUESTION = "How many watts does the lamp draw?"
SECOND = "openai/second"


@pytest.fixture(scope="module")
def second():
    with serve(Script(), obliging) as provider:
        yield provider


@pytest.fixture
def dead():
    with serve() as provider:
        provider.stop()
        yield provider.url


def opened(first, second, folder, models="", fallback=f'"{SECOND}"', terms="retries = 0\nbreaker_after = 1"):
    """The small project's program, its first model at one address, its fallback at the other, at known prices."""
    second.follow(Script())
    own = f'{terms}\nfallback = {fallback}\n[provider.model."{SECOND}"]\napi_base = "{second.url}"\nusd_in = 3\nusd_out = 5'
    return program_at(first, folder, provider=own, models=models)


@pytest.mark.parametrize("how", ["asked", "awaited", "streamed"])
def test_the_second_model_answers_for_a_dead_one_and_its_calls_and_price_are_the_books(dead, second, tmp_path, how):
    rag = opened(dead, second, tmp_path)

    async def streamed():
        return [event async for event in rag.stream(QUESTION)]

    events = asyncio.run(streamed()) if how == "streamed" else []
    answer = events[-1] if events else rag(QUESTION) if how == "asked" else asyncio.run(rag.aask(QUESTION))
    assert not events or any(isinstance(event, Progress) and SECOND in event.note for event in events)
    assert answer.outcome is Outcome.ANSWERED and answer.citations
    usage = answer.usage
    assert (usage.calls, usage.tokens_in, usage.tokens_out) == (second.calls, second.tokens_in, second.tokens_out)
    assert usage.tokens_in and usage.usd == pytest.approx((3 * usage.tokens_in + 5 * usage.tokens_out) / 1e6)
    asked = [step for step in answer.trace.steps if step.model]
    assert {step.model for step in asked} == {SECOND} and any(step.tokens_in for step in asked)
    told = f"openai/stand-in cannot be reached (it is left alone for a while): {SECOND} was asked"
    assert told in answer.trace.path


def test_when_both_are_dead_the_embedded_models_answer(dead, tmp_path):
    with serve() as gone:
        rag = opened(dead, gone, tmp_path)
    answer = rag(QUESTION)
    assert f"{SECOND} cannot be reached: local/reader decided" in answer.trace.path
    told = answer.degraded
    assert set(told) <= set(answer.trace.path) and len(set(told)) == len(told)
    for who, did in (("openai/stand-in", f"{SECOND} was asked"), (SECOND, "reader decided"), (SECOND, "reader wrote")):
        assert any(note.startswith(who) and note.endswith(did) for note in told)
    assert {step.model for step in answer.trace.steps if step.model} <= {"local/reader"}
    assert answer.outcome and not answer.usage.usd


def test_a_model_for_queries_writes_what_is_searched_or_asked_back_and_never_an_answer(own_shop):
    add_toml(own_shop, '[models]\nwrite = "openai/x"\nquery = "local/reader"\n')
    program = open_program(own_shop)
    models, writes = program.runtime.models, dict(program.named_predictors())
    found = {name: client_of(models, one) for name, one in writes.items() if not is_decision(one)}
    by = {name: client.model for name, client in found.items() if client is not None}
    queries = {name for name, model in by.items() if model == "local/reader"}
    assert queries == {
        "conversation.standalone",
        "decomposer.split",
        "decomposer.follow",
        "judge.missing",
    }
    assert {"generator.answer", "retriever.sql"} <= by.keys() - queries


@pytest.mark.parametrize("fallback", ["true", '"local/reader"', '"openai/stand-in"'])
def test_an_embedded_fallback_or_the_model_itself_means_the_embedded_models(dead, second, tmp_path, fallback):
    rag = opened(dead, second, tmp_path, fallback=fallback)
    assert rag.runtime.models.decide.fallback.model == "local/reader"
    assert rag.runtime.models.write.adapter.fallback.model.startswith("local/reader")


@pytest.mark.parametrize("fallback", ["false", '""'])
def test_without_a_fallback_plain_rag_is_what_is_left(dead, second, tmp_path, fallback):
    models = 'decide = "openai/stand-in"\nwrite = "local/reader"'
    answer = opened(dead, second, tmp_path, models, fallback)(QUESTION)
    assert answer.stopped_by == "fallback" and not second.calls


def test_a_fallback_that_no_model_may_be_is_refused_and_a_cap_on_money_needs_its_price_too(second, tmp_path):
    for name in ("local/nothing", "vllm/x"):
        with pytest.raises(ModelError, match=re.escape(name)):
            opened(second.url, second, tmp_path, fallback=json.dumps(name))
    terms = ProviderSettings(fallback=SECOND, model={"openai/stand-in": {"usd_in": 0.0}})
    with pytest.raises(BudgetError, match=SECOND):
        require_price(ModelSettings(write="openai/stand-in"), terms, "a cap", "do without")
    alone = terms.model_copy(update={"fallback": ""})
    require_price(ModelSettings(write="openai/stand-in"), alone, "a cap", "do without")
