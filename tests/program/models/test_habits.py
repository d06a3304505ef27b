"""What a model needs is found out once: room to think, no schema; and what was cut off is no answer."""

import asyncio

import pytest

from program import Outcome, open_program
from program.models.gateway import Gateway
from program.models.habits import LONGER, Habits
from program.models.lane import Terms
from program.models.script import Script, obliging
from program.models.spending import Spending
from program.models.testing import serve
from program.models.transport import Call, CallFailed
from program.settings import FILE

MODEL = "openai/stand-in"
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def gateway():
    gateway = Gateway()
    yield gateway
    gateway.close()


def call(provider, n=0, **settings):
    return Call(MODEL, [{"role": "user", "content": f"Hello {n}."}], {"temperature": 0.0, **settings}, provider.url)


def test_a_model_that_thinks_is_given_room_once_and_for_good(gateway):
    with serve(Script({"thought": 1.0})) as provider:
        lane, spent = gateway.lane(MODEL, provider.url, Terms(retries=3)), Spending()
        for n in range(3):
            assert gateway.ask(lane, call(provider, n, max_tokens=700), spent).text == "A plain reply."
        assert 700 * LONGER > 2_000 and spent.calls == provider.calls == 4
        assert lane.breaker.failures == 0


def test_a_reply_whose_tokens_are_used_up_without_a_word_is_not_asked_for_four_times(gateway):
    with serve(Script({"thought": 1.0})) as provider:
        lane, spent = gateway.lane(MODEL, provider.url, Terms(retries=3)), Spending()
        with pytest.raises(CallFailed, match="before the first word"):
            gateway.ask(lane, call(provider, max_tokens=10), spent)
        assert spent.calls == provider.calls == 2


def test_a_server_that_takes_no_schema_is_asked_without_one_from_then_on(gateway):
    with serve(Script(forms="refused")) as provider:
        lane, spent = gateway.lane(MODEL, provider.url, Terms(retries=0)), Spending()
        for n in range(3):
            assert gateway.ask(lane, call(provider, n, response_format=FORM), spent).text == "A plain reply."
        assert provider.formed == 1 and provider.calls == spent.calls == 4


def test_a_bad_request_for_another_reason_does_not_cost_a_model_its_schema():
    habits, put = Habits(), Call(MODEL, [], {"response_format": FORM})
    failure = CallFailed("bad", again=False, reached=True, status=400)
    formless = habits.otherwise(put, put, failure)
    assert formless == Call(MODEL, [], {}) and habits.otherwise(put, formless, failure) is None
    assert habits.put(put) == put
    habits.learn(put, formless)
    assert habits.put(put) == formless


def test_what_is_to_be_held_to_a_schema_is_sent_one(own_shop):
    with serve(Script(), obliging) as provider:
        write(own_shop, provider, "structured = true")
        assert open_program(own_shop)("How much water does the Merle hold?").outcome is Outcome.ANSWERED
        assert provider.formed == provider.calls - 1  # the text is asked for as it is


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_was_cut_off_keeps_its_whole_sentences(own_shop, streamed):
    def brain(body):
        return "It holds 1.7 litres [1]. It is descaled every 6 weeks with citric acid [1]."

    with serve(Script({"cut_off": 1.0}), brain) as provider:
        write(own_shop, provider, "", 'decide = "local/minilm"\n')
        rag = open_program(own_shop).plain()
        answer = asyncio.run(last(rag)) if streamed else rag("How much water does the Merle hold?")
    assert answer.text == "It holds 1.7 litres [1]."
    assert "cut off" in str(answer.trace.path)


async def last(rag):
    return [event async for event in rag.stream("How much water does the Merle hold?")][-1]


def write(folder, provider, terms, decide='decide = "openai/stand-in"\n'):
    models = f'[models]\n{decide}write = "{MODEL}"\n[provider]\nfallback = false\n[provider.model."{MODEL}"]\n'
    text = (folder / FILE).read_text()
    (folder / FILE).write_text(f'{text}\n{models}api_base = "{provider.url}"\n{terms}\n')
