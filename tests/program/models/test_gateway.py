"""The way to language models: limits, repeats, prices, keys."""

import asyncio
import gc
import json
import os
import threading
import time

import anyio
import dspy
import pytest
from dspy.lm15 import Message, Request
from dspy.utils.exceptions import LMError

from ragc.models.language.gateway import AsyncProviderEngine, EndpointTerms, ProviderLM, shared_gateway
from ragc.models.language.provider import key_variable
from ragc.models.language.spending import track_spending
from ragc.models.language.transport import CallFailed
from ragc.optimize.compiler.spending import Caps, Spending
from tests.program.models.responder import responding
from tests.support.fakes import answer_in_child
from tests.support.provider import Script, serve

MODEL = "openai/stand-in"
HELLO = Request(model=MODEL, messages=(Message.user("Hello."),))
MESSAGES = [{"role": "system", "content": "Decide."}, {"role": "user", "content": "Hello."}]
REPLY = {
    "id": "1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "Good day."}], "usage": {"input_tokens": 10, "output_tokens": 3},
}  # fmt: skip


def endpoint(model=MODEL, url="http://127.0.0.1:9/v1", **terms):
    return shared_gateway().endpoint(model, url, EndpointTerms(**terms))


def opened(provider, model=MODEL, **terms):
    """The provider's model under these terms, as DSPy asks it."""
    return ProviderLM(endpoint(model, provider.url, **terms))


def events_of(lm):
    return AsyncProviderEngine(lm.endpoint).stream(HELLO)


async def collect(events):
    return [event async for event in events]


def test_a_refused_request_is_repeated_after_the_time_asked_for_and_only_the_last_is_charged():
    with serve(Script({"rate_limited": 0.6}, retry_after=0.7, seed=1)) as provider, track_spending() as spent:
        began = time.monotonic()
        opened(provider, retries=6)("Hello.")
        refused = provider.calls - 1
    assert refused >= 1 and time.monotonic() - began >= 0.7 * refused
    assert spent.calls == provider.calls and spent.tokens_in == provider.tokens_in > 0


def test_what_would_be_repeated_past_the_questions_time_fails_at_once():
    with serve(Script({"rate_limited": 1.0}, retry_after=60.0)) as provider:
        lm, began = opened(provider), time.monotonic()
        with track_spending(began + 30), pytest.raises(LMError, match="429"):
            lm("Hello.")
    assert provider.calls == 1 and time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("script", "place", "why"),
    [(Script(), "/elsewhere", "404"), (Script({"thought": 1.0}), "", "before the first word")],
)
def test_what_a_repetition_would_not_mend_is_asked_once_and_opens_no_circuit(script, place, why):
    with serve(script) as provider, track_spending() as spent:
        lm = ProviderLM(endpoint(MODEL, provider.url + place))
        with pytest.raises(LMError, match=why):
            lm("Hello.")
    assert spent.calls == 1 and lm.endpoint.breaker.failures == 0


def test_waiting_for_a_place_is_no_failure_of_the_provider():
    with serve(Script(token_delay=0.2, replies=(("", "word " * 12),))) as provider:
        lm = opened(provider, concurrency=1, call_seconds=0.8, retries=0, breaker_after=1)
        lm("Warm.")

        async def behind_a_stream():
            stream = events_of(lm)
            await anext(stream), await anext(stream)
            with track_spending() as waiting:
                patient = asyncio.create_task(lm.acall("Hello."))
                await asyncio.sleep(0)
            with track_spending(time.monotonic() + 0.5) as hasty, pytest.raises(LMError, match="question's time"):
                await lm.acall("Hello.")
            assert await collect(stream) and await patient
            return waiting, hasty

        waiting, hasty = asyncio.run(behind_a_stream())
        assert (hasty.calls, waiting.calls, provider.calls) == (0, 1, 3)
        assert lm.endpoint.breaker.allows_request()


def test_cancelling_the_wait_calls_the_request_off_and_costs_nothing_before_its_place():
    with serve(Script(delay=30)) as provider:
        lm = opened(provider, concurrency=1)

        async def leave():
            first = asyncio.create_task(lm.acall("First."))
            while not provider.in_flight:
                await asyncio.sleep(0.01)
            with track_spending() as waiting:
                second = asyncio.create_task(lm.acall("Second."))
                await asyncio.sleep(0.1)
            for task in (second, first):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            while provider.in_flight:
                await asyncio.sleep(0.01)
            await waiting.settle(20)
            return waiting

        assert (asyncio.run(asyncio.wait_for(leave(), 20)).calls, provider.calls) == (0, 1)


@pytest.mark.parametrize("faults", [{}, {"wild_usage": 1.0}])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_reply_comes_with_the_servers_count_of_tokens_and_one_that_cannot_be_is_not_booked(streamed, faults):
    with serve(Script(faults, replies=(("", "One two three."),))) as provider, track_spending() as spent:
        lm = opened(provider, "openai/gpt-4o")
        if streamed:
            first, *pieces, last = asyncio.run(collect(events_of(lm)))
            assert first.type == "start" and [piece.delta.text for piece in pieces] == ["One ", "two ", "three."]
            assert (last.usage.input_tokens, last.usage.output_tokens) == (spent.tokens_in, spent.tokens_out)
        else:
            assert lm("Hello.") == ["One two three."]
    assert (spent.calls, spent.tokens_in, spent.tokens_out) == (1, provider.tokens_in, provider.tokens_out)
    assert spent.tokens_out and 0 < spent.usd < 0.01


def test_a_stream_cut_in_the_middle_is_not_begun_again():
    with serve(Script({"dropped": 1.0}, replies=(("", "One two three four."),))) as provider:

        async def begin():
            send, heard = anyio.create_memory_object_stream(100)
            with dspy.context(send_stream=send), pytest.raises(LMError):
                await opened(provider).acall("Hello.")
            return heard.receive_nowait()

        assert asyncio.run(begin()).choices[0].delta.content == "One "
        assert provider.calls == 1


def test_a_reply_that_is_cut_leaves_no_connection_open(caplog):
    with serve(Script(faults={"dropped": 1.0})) as provider:
        lm = opened(provider, retries=0, breaker_after=1000)
        for n in range(30):
            with pytest.raises(LMError):
                lm(f"Hello {n}.")
        gc.collect()
    assert "Unclosed" not in caplog.text


def test_the_projects_own_price_counts_before_the_listed_one_and_nobody_is_asked_for_what_the_list_lacks(monkeypatch):
    assert endpoint("openai/gpt-4o", usd_in=1.0, usd_out=2.0).price(1_000_000, 500_000) == 2.0
    assert endpoint("openai/gpt-4o").price(1_000, 1_000) > 0
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked"))
    for name in ("anthropic/claude-new-9", "fireworks_ai/foo", "ollama_chat/zz", "openai/nobody", "zz"):
        assert not endpoint(name).priced and endpoint(name).price(1_000, 1_000) == 0.0
        assert endpoint(name, usd_in=0.0).priced


def test_a_call_costs_what_its_own_tokens_cost_be_they_cached_or_many():
    with serve(Script(cached=0.5)) as provider, track_spending() as spent:
        opened(provider, "openai/gpt-4o")("word " * 200)
    cached = spent.tokens_in // 2
    assert spent.usd == pytest.approx(((spent.tokens_in - cached / 2) * 2.5 + spent.tokens_out * 10) / 1e6)
    gemini, claude = endpoint("gemini/gemini-2.5-pro"), endpoint("anthropic/claude-sonnet-4-5")
    assert gemini.price(1_000, 1_000) == pytest.approx((1.25 + 10) / 1e3)
    assert gemini.price(300_000, 1_000) == pytest.approx(0.75 + 0.015)
    assert claude.price(1_000, 0, 500, 200) == pytest.approx((300 * 3 + 500 * 0.3 + 200 * 3.75) / 1e6)


def test_a_server_named_in_a_file_gets_only_the_key_meant_for_it(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-belongs-to-openai")
    for key, sent in (("meant-for-loopback", "meant-for-loopback"), (None, "none")):
        with serve() as provider:
            if key:
                monkeypatch.setenv(key_variable(provider.url), key)
            opened(provider)("Hello.")
            assert provider.authorizations == {f"Bearer {sent}"}
    assert key_variable("http://a-b.example:80/v1") != key_variable("http://a.b.example:80/v1")


def test_the_instructions_are_marked_for_claude_alone_and_the_question_is_not():
    bodies = []

    def respond(body):
        bodies.append(body)
        return 200, {}, "application/json", json.dumps(REPLY).encode()

    with responding(respond) as server, track_spending() as spent:
        assert opened(server, "anthropic/claude-sonnet-4-5")(messages=MESSAGES) == ["Good day."]
    assert (spent.tokens_in, spent.tokens_out) == (10, 3)
    assert bodies[-1]["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(bodies[-1]["messages"])
    with serve(Script(), lambda body: bodies.append(body) or "Good day.") as provider:
        opened(provider)(messages=MESSAGES)
    assert bodies[-1]["messages"] == MESSAGES


def test_never_more_requests_are_in_flight_than_allowed():
    async def crowd(lm):
        await asyncio.gather(*(lm.acall(f"Hello {n}.") for n in range(12)))

    with serve(Script(delay=0.05)) as provider:
        asyncio.run(crowd(opened(provider, concurrency=3)))
        assert (provider.most_in_flight, provider.calls) == (3, 12)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_forked_process_is_answered_as_its_parent_whatever_was_under_way():
    with serve(Script(replies=(("Wait", "Late."), ("", "Good day.")), delay=0.2)) as provider:
        lm = opened(provider, concurrency=2)

        def ask():
            with track_spending(cap=Spending(Caps(calls=9))):
                return [lm("Hello."), asyncio.run(lm.acall("Hello.")), asyncio.run(collect(events_of(lm)))[-1].type]

        told = ask()
        assert told == [["Good day."], ["Good day."], "end"]
        threads = [threading.Thread(target=lm, args=("Wait.",)) for _ in range(4)]  # two hold the places
        for thread in threads:
            thread.start()
        while provider.in_flight < 2:
            time.sleep(0.01)
        assert answer_in_child(ask, 60) == told
        assert answer_in_child(lambda: answer_in_child(ask, 60), 60) == told
        for thread in threads:
            thread.join()
        assert ask() == told


def test_a_server_that_is_silent_until_the_questions_time_is_over_is_left_alone():
    with serve(Script({"stalled": 1.0})) as provider:
        lm = opened(provider, breaker_after=2, call_seconds=30)
        for late in (True, True, False):
            with track_spending(time.monotonic() + 1.0), pytest.raises(LMError) as found:
                lm("Hello.")
            assert ("left alone" in str(found.value)) != late
    assert provider.calls == 2


def test_a_server_that_speaks_slowly_or_had_no_time_is_not_left_alone():
    with serve(Script(token_delay=0.3, replies=(("", "word " * 9),))) as provider:
        lm = opened(provider, breaker_after=1)

        async def hear():
            return await collect(events_of(lm))

        with track_spending(time.monotonic() + 1.2), pytest.raises(CallFailed, match="question's time"):
            asyncio.run(hear())
        provider.follow(Script(delay=5))
        with track_spending(time.monotonic() + 0.2), pytest.raises(LMError, match="question's time"):
            lm("Hello.")
        assert provider.calls == 1 and lm.endpoint.breaker.failures == 0
