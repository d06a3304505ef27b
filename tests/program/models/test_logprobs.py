"""The log-probabilities of a reply's tokens: asked for where they are given, and never at a question's cost."""

import asyncio
import math

import dspy
import pytest
from dspy.lm15 import Message, ProviderError, Request, materialize_response

from ragc import Outcome
from ragc.loop.trust import log_odds
from ragc.models.language.gateway import AsyncProviderEngine, Endpoint, EndpointTerms, ProviderEngine
from ragc.models.language.provider import knows_logprobs
from tests.support.faults import EMBEDDED
from tests.support.goods import program_at
from tests.support.provider import Script, serve
from tests.support.replies import obliging

QUESTION = "What does the kettle cost?"
GOOD = "The kettle costs GBP 10 [1]."
LOW = lambda word: -0.5 if "10" in word else -0.1  # noqa: E731
ASKED = Request(model="openai/m", messages=(Message.user("Hello."),), config=dspy.lm15.Config(logprobs=0))


def reply_of(url, streamed, request=ASKED):
    endpoint = Endpoint("openai/m", url, EndpointTerms())
    if not streamed:
        return ProviderEngine(endpoint).complete(request)

    async def collect():
        return [event async for event in AsyncProviderEngine(endpoint).stream(request)]

    return materialize_response(asyncio.run(collect()), request)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_reply_carries_the_log_probability_of_each_token_in_dspys_words_where_it_was_asked_for(streamed):
    with serve(Script(replies=(("", GOOD),), sureness=LOW)) as provider:
        reply = reply_of(provider.url, streamed)
        assert [token.logprob for token in reply.logprobs] == [-0.1, -0.1, -0.1, -0.1, -0.5, -0.1]
        assert "".join(token.token for token in reply.logprobs) == reply.message.text == GOOD
        bare = Request(model="openai/m", messages=ASKED.messages)
        assert reply_of(provider.url, streamed, bare).logprobs is None and provider.weighed == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("given", [None, "much", {}, math.nan, -math.inf, 1e-9, True])
def test_whatever_a_server_gives_as_a_log_probability_the_reply_is_read(given, streamed):
    with serve(Script(replies=(("", GOOD),), sureness=lambda word: given)) as provider:
        reply = reply_of(provider.url, streamed)
        assert reply.message.text == GOOD
        assert all(math.isfinite(token.logprob) and token.logprob <= 0 for token in reply.logprobs or ())


def test_they_are_asked_for_where_the_provider_gives_them_and_nobody_is_asked_whether_it_does(monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked"))
    gives = {"openai/gpt-4o-mini", "openai/any-name-of-mine", "hosted_vllm/any", "gemini/gemini-2.5-flash"}
    lacks = {"openai/o3", "anthropic/claude-sonnet-4-5", "ollama_chat/any", "nobody/knows", "mistral/any"}
    assert {name for name in gives | lacks if knows_logprobs(name)} == gives


def drafted(provider, folder, stream, models=EMBEDDED):
    """Three answers, the draft streamed or not."""
    rag = program_at(provider.url, folder, models=models, provider="breaker_after = 2")

    async def ask():
        return [event async for event in rag.stream(QUESTION)][-1]

    return [asyncio.run(ask()) if stream else rag(QUESTION) for _ in range(3)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 422, 500, 501])
def test_a_server_that_refuses_to_give_them_answers_every_question_and_is_asked_for_them_once(status, stream, tmp_path):
    with serve(Script(replies=(("", GOOD),), refuses={"logprobs": status})) as provider:
        answers = drafted(provider, tmp_path, stream)
        assert {(answer.text, answer.outcome) for answer in answers} == {(GOOD, Outcome.ANSWERED)}
        assert (provider.weighed, provider.calls) == (1, 4)
        provider.follow(Script(replies=(("", GOOD),)))
        assert drafted(provider, tmp_path, stream)[0].text == GOOD


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_takes_no_heed_of_them_is_asked_no_more_often_for_it(stream, tmp_path):
    with serve(Script(replies=(("", GOOD),))) as provider:
        assert {answer.text for answer in drafted(provider, tmp_path, stream)} == {GOOD}
        assert provider.calls == 3


@pytest.mark.parametrize("decide", ["local/reader", "openai/stand-in"])
def test_a_streamed_answer_is_as_sure_as_another_and_the_tokens_speak_where_no_embedded_decider_does(decide, tmp_path):
    def reply(body):
        return GOOD if "Answer the question from" in str(body["messages"][0]["content"]) else obliging(body)

    with serve(Script(sureness=LOW), reply) as provider:
        models = f'decide = "{decide}"\nwrite = "openai/stand-in"'
        whole, streamed = (drafted(provider, tmp_path, stream, models)[0] for stream in (False, True))
    (note,) = (note for note in whole.trace.path if note.startswith("tokens"))
    assert note.values["share"] == pytest.approx(math.exp(-1.0))
    assert (streamed.text, streamed.confidence, streamed.trace.path) == (GOOD, whole.confidence, whole.trace.path)
    odds = math.exp(0.2 * log_odds(math.exp(-1.0)))
    assert (whole.confidence == pytest.approx(odds / (1 + odds))) is (decide != "local/reader")


def test_a_prompt_that_is_refused_for_something_else_does_not_stop_the_asking(tmp_path):
    with serve(Script(refuses={"messages": 400})) as provider:
        drafted(provider, tmp_path, False)
        provider.follow(Script(replies=(("", GOOD),), sureness=LOW))
        assert drafted(provider, tmp_path, False)[0].text == GOOD and provider.weighed


@pytest.mark.parametrize("known", [False, True])
def test_a_server_that_fails_alike_without_them_is_not_asked_twice_a_question(known):
    with serve(Script(replies=(("", GOOD),), sureness=LOW)) as provider:
        engine = ProviderEngine(Endpoint("openai/m", provider.url, EndpointTerms(breaker_after=100)))
        if known:
            assert engine.complete(ASKED).logprobs
        provider.follow(Script(refuses={"messages": 400}))
        before = provider.calls
        for _ in range(4):
            with pytest.raises(ProviderError):
                engine.complete(ASKED)
        assert provider.calls - before == 5
        provider.follow(Script(replies=(("", GOOD),), sureness=LOW))
        assert engine.complete(ASKED).logprobs


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("given", [math.nan, -math.inf])
def test_a_reply_has_no_log_probability_where_one_of_its_words_has_none(given, streamed):
    with serve(Script(replies=(("", GOOD),), sureness=lambda word: given if "10" in word else -0.1)) as provider:
        reply = reply_of(provider.url, streamed)
        assert (reply.message.text, reply.logprobs) == (GOOD, None)


CHANGES = {
    "unreadable": Script(replies=(("", GOOD),), sureness=lambda word: {}),
    "unreadable late": Script(replies=(("", GOOD),), sureness=lambda word: {} if "10" in word else -0.1),
    "refused": Script(replies=(("", GOOD),), refuses={"logprobs": 400}),
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_server_that_gives_none_to_read_is_asked_for_them_once_whatever_it_gave_before(
    change, stream, known, tmp_path
):
    with serve(Script(replies=(("", GOOD),), sureness=LOW)) as provider:
        rag = program_at(provider.url, tmp_path, models=EMBEDDED, provider="breaker_after = 2")

        async def ask():
            return [event async for event in rag.stream(QUESTION)][-1]

        if known:
            assert rag(QUESTION).text == GOOD
        provider.follow(CHANGES[change])
        answers = [asyncio.run(ask()) if stream else rag(QUESTION) for _ in range(3)]
        assert [answer.text for answer in answers] == [GOOD] * 3 and provider.weighed == 1
        assert not any("stand-in" in note for answer in answers[1:] for note in answer.trace.path)
