"""The way to language models: limits, repeats, prices, keys."""

import asyncio
import gc
import json
import time
from dataclasses import replace

import pytest

from program.models.language.gateway import CircuitBreaker, EndpointTerms, Gateway
from program.models.language.spending import ModelSpending
from program.models.language.transport import Call, CallFailed, Reply, key_variable
from tests.program.models.responder import responding
from tests.support.provider import Script, serve

MODEL = "openai/stand-in"


MESSAGES = [{"role": "system", "content": "Decide."}, {"role": "user", "content": "Hello."}]
REPLY = {
    "id": "1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [{"type": "text", "text": "Good day."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 3},
}


@pytest.fixture(scope="module")
def gateway():
    return Gateway()


def call(provider, text="Hello.", model=MODEL):
    return Call(model, [{"role": "user", "content": text}], {"temperature": 0.0}, provider.url)


def opened(gateway, provider, model=MODEL, **terms):
    """The provider's endpoint under these terms, and books for it."""
    return gateway.endpoint(model, provider.url, EndpointTerms(**terms)), ModelSpending()


async def collect(stream):
    return [piece async for piece in stream]


def test_a_reply_comes_with_the_servers_own_count_of_tokens(gateway):
    with serve(Script(replies=(("Hello", "Good day."),))) as provider:
        lane, spent = opened(gateway, provider)
        reply = gateway.run(lane.ask(call(provider), spent))
        assert reply.text == "Good day."
        assert (spent.calls, spent.tokens_in, spent.tokens_out) == (1, provider.tokens_in, provider.tokens_out)


def test_a_refused_request_is_repeated_after_the_time_asked_for_and_only_the_last_is_charged(gateway):
    with serve(Script({"rate_limited": 0.6}, retry_after=0.3, seed=1)) as provider:
        lane, spent = gateway.endpoint(MODEL, provider.url, EndpointTerms(retries=6)), ModelSpending()
        began = time.monotonic()
        gateway.run(lane.ask(call(provider), spent))
        refused = provider.calls - 1
        assert refused >= 1
        assert time.monotonic() - began >= 0.3 * refused
        assert spent.calls == provider.calls and spent.tokens_in == provider.tokens_in > 0


def test_what_a_repetition_would_not_mend_is_asked_once(gateway):
    with serve() as provider:
        lane = gateway.endpoint(MODEL, provider.url + "/elsewhere", EndpointTerms())
        with pytest.raises(CallFailed, match="404"):
            gateway.run(lane.ask(replace(call(provider), api_base=provider.url + "/elsewhere"), ModelSpending()))


def test_waiting_for_a_place_is_no_failure_of_the_provider(gateway):
    with serve(Script(token_delay=0.2, replies=(("", "word " * 12),))) as provider:
        terms = EndpointTerms(concurrency=1, call_seconds=0.8, retries=0, breaker_after=1)
        lane = gateway.endpoint(MODEL, provider.url, terms)
        gateway.run(lane.ask(call(provider, "Warm."), ModelSpending()))

        async def behind_a_stream():
            stream, waiting = gateway.stream(lane, call(provider, "Long."), ModelSpending()), ModelSpending()
            hasty = ModelSpending(deadline=time.monotonic() + 0.5)
            await anext(stream)
            patient = asyncio.create_task(gateway.arun(lane.ask(call(provider), waiting)))
            with pytest.raises(CallFailed, match="within the question's time") as failure:
                await gateway.arun(lane.ask(call(provider), hasty))
            assert [piece async for piece in stream] and await patient
            return failure.value, waiting, hasty

        failure, waiting, hasty = asyncio.run(behind_a_stream())
        assert (failure.reached, hasty.calls, waiting.calls, provider.calls) == (False, 0, 1, 3)
        assert lane.breaker.allows_request()


def test_cancelling_the_wait_calls_the_request_off(gateway):
    with serve(Script(delay=30)) as provider:
        lane, spent = opened(gateway, provider)

        async def leave():
            task = asyncio.create_task(gateway.arun(lane.ask(call(provider), spent)))
            while not provider.calls:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while provider.in_flight:
                await asyncio.sleep(0.01)

        asyncio.run(asyncio.wait_for(leave(), 20))
        assert provider.in_flight == 0


def test_a_request_that_waits_for_its_place_and_is_called_off_costs_nothing(gateway):
    with serve(Script(delay=0.6)) as provider:
        lane = gateway.endpoint(MODEL, provider.url, EndpointTerms(concurrency=1))
        gateway.run(lane.ask(call(provider, "First."), ModelSpending()))
        under_way, waiting = ModelSpending(), ModelSpending()

        async def leave():
            first = asyncio.create_task(gateway.arun(lane.ask(call(provider, "Second."), under_way)))
            while not provider.in_flight:
                await asyncio.sleep(0.01)
            second = asyncio.create_task(gateway.arun(lane.ask(call(provider, "Third."), waiting)))
            await asyncio.sleep(0.1)
            second.cancel()
            await first

        asyncio.run(asyncio.wait_for(leave(), 20))
        asyncio.run(waiting.settle(20))
        assert (under_way.calls, waiting.calls, provider.calls) == (1, 0, 2)


def test_a_reply_whose_tokens_are_used_up_without_a_word_is_asked_for_once_and_opens_no_circuit(gateway):
    with serve(Script({"thought": 1.0})) as provider:
        lane, spent = gateway.endpoint(MODEL, provider.url, EndpointTerms(retries=3)), ModelSpending()
        with pytest.raises(CallFailed, match="before the first word"):
            gateway.run(lane.ask(call(provider), spent))
        assert spent.calls == provider.calls == 1 and lane.breaker.failures == 0


@pytest.mark.parametrize("streamed", [False, True])
def test_counts_that_cannot_be_are_not_booked(gateway, streamed):
    with serve(Script({"wild_usage": 1.0})) as provider:
        lane, spent = gateway.endpoint("openai/gpt-4o", provider.url, EndpointTerms()), ModelSpending()
        if streamed:
            asyncio.run(collect(gateway.stream(lane, call(provider), spent)))
        else:
            gateway.run(lane.ask(call(provider), spent))
        assert (spent.tokens_in, spent.tokens_out) == (provider.tokens_in, provider.tokens_out) > (0, 0)
        assert 0 < spent.usd < 0.01


def test_a_stream_comes_in_pieces_and_ends_with_the_whole(gateway):
    with serve(Script(replies=(("", "One two three."),))) as provider:
        lane, spent = opened(gateway, provider)
        *pieces, whole = asyncio.run(collect(gateway.stream(lane, call(provider), spent)))
        assert isinstance(whole, Reply) and "".join(pieces) == whole.text == "One two three."
        assert len(pieces) == 3
        assert (spent.tokens_in, spent.tokens_out) == (provider.tokens_in, provider.tokens_out)


def test_a_stream_cut_in_the_middle_is_not_begun_again(gateway):
    with serve(Script({"dropped": 1.0}, replies=(("", "One two three four."),))) as provider:
        lane = gateway.endpoint(MODEL, provider.url, EndpointTerms())

        async def begin():
            stream = gateway.stream(lane, call(provider), ModelSpending())
            first = await anext(stream)
            with pytest.raises(CallFailed):
                await collect(stream)
            return first

        assert asyncio.run(begin()) == "One "
        assert provider.calls == 1


def test_a_reply_that_is_cut_leaves_no_connection_open(gateway, caplog):
    with serve(Script(faults={"dropped": 1.0})) as provider:
        lane = gateway.endpoint(MODEL, provider.url, EndpointTerms(retries=0, breaker_after=1000))
        for n in range(30):
            with pytest.raises(CallFailed):
                gateway.run(lane.ask(call(provider, f"Hello {n}."), ModelSpending()))
        gc.collect()
    assert "Unclosed" not in caplog.text


def test_the_projects_own_price_counts_before_the_listed_one(gateway):
    own = gateway.endpoint("openai/gpt-4o", "http://127.0.0.1:9/v1", EndpointTerms(usd_in=1.0, usd_out=2.0))
    listed = gateway.endpoint("openai/gpt-4o", "http://127.0.0.1:9/v1", EndpointTerms())
    unknown = gateway.endpoint("openai/nobody-knows-it", "http://127.0.0.1:9/v1", EndpointTerms())
    assert own.price(1_000_000, 500_000) == 2.0
    assert listed.price(1_000, 1_000) > 0
    assert unknown.price(1_000, 1_000) == 0.0


def test_a_call_costs_what_its_own_tokens_cost_be_they_cached_or_many(gateway):
    with serve(Script(cached=0.5)) as provider:
        lane, spent = opened(gateway, provider, "openai/gpt-4o")
        gateway.run(lane.ask(call(provider, "word " * 200, "openai/gpt-4o"), spent))
    cached = spent.tokens_in // 2
    assert spent.usd == pytest.approx(((spent.tokens_in - cached / 2) * 2.5 + spent.tokens_out * 10) / 1e6)
    gemini = gateway.endpoint("gemini/gemini-2.5-pro", "", EndpointTerms())
    assert gemini.price(1_000, 1_000) == pytest.approx((1.25 + 10) / 1e3)
    assert gemini.price(300_000, 1_000) == pytest.approx(0.75 + 0.015)
    claude = gateway.endpoint("anthropic/claude-sonnet-4-5", "", EndpointTerms())
    assert claude.price(1_000, 0, 500, 200) == pytest.approx((300 * 3 + 500 * 0.3 + 200 * 3.75) / 1e6)


@pytest.mark.parametrize(
    "name", ["anthropic/claude-new-9", "fireworks_ai/foo", "ollama_chat/zz", "openai/nobody", "zz"]
)
def test_a_model_that_the_list_lacks_has_no_price_and_nobody_is_asked_for_one(gateway, name, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked"))
    lane = gateway.endpoint(name, "", EndpointTerms())
    assert not lane.priced and lane.price(1_000, 1_000) == 0.0
    assert gateway.endpoint(name, "", EndpointTerms(usd_in=0.0)).priced


def test_the_breaker_lets_one_request_try_after_its_time():
    breaker = CircuitBreaker(after=2, seconds=0.05)
    breaker.note_result(failed=True)
    assert breaker.allows_request()
    breaker.note_result(failed=True)
    assert not breaker.allows_request()
    time.sleep(0.06)
    assert breaker.allows_request() and not breaker.allows_request()
    breaker.note_result(failed=False)
    assert breaker.allows_request()


def test_a_server_named_in_a_file_gets_only_the_key_meant_for_it(gateway, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-belongs-to-openai")
    for key, sent in (("meant-for-loopback", "meant-for-loopback"), (None, "none")):
        with serve() as provider:
            if key:
                monkeypatch.setenv(key_variable(provider.url), key)
            gateway.run(opened(gateway, provider)[0].ask(call(provider), ModelSpending()))
            assert provider.authorizations == {f"Bearer {sent}"}
    assert key_variable("http://a-b.example:80/v1") != key_variable("http://a.b.example:80/v1")


def test_the_instructions_are_marked_for_claude_and_the_question_is_not(gateway):
    model, bodies = "anthropic/claude-sonnet-4-5", []

    def respond(body):
        bodies.append(body)
        return 200, {}, "application/json", json.dumps(REPLY).encode()

    with responding(respond) as server:
        lane = gateway.endpoint(model, server.url, EndpointTerms())
        reply = gateway.run(lane.ask(Call(model, MESSAGES, {}, server.url), ModelSpending()))
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("Good day.", 10, 3)
    assert bodies[-1]["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(bodies[-1]["messages"])


def test_nothing_is_marked_for_a_server_that_would_not_know_the_mark(gateway):
    bodies = []
    with serve(Script(), lambda body: bodies.append(body) or "Good day.") as provider:
        gateway.run(opened(gateway, provider)[0].ask(replace(call(provider), messages=MESSAGES), ModelSpending()))
    assert bodies[0]["messages"] == MESSAGES


def test_never_more_requests_are_in_flight_than_allowed(gateway):
    with serve(Script(delay=0.05)) as provider:
        endpoint = gateway.endpoint(MODEL, provider.url, EndpointTerms(concurrency=3))

        async def crowd():
            asked = (gateway.arun(endpoint.ask(call(provider, f"Hello {n}."), ModelSpending())) for n in range(12))
            await asyncio.gather(*asked)

        asyncio.run(crowd())
        assert provider.most_in_flight == 3 and provider.calls == 12
