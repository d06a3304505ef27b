"""What language models cost is in the books of the question, whatever becomes of the step that asked them."""

import asyncio

import pytest
from staged import Decider, staged

from program.answer import StoppedBy
from program.loop.metering import Token
from program.loop.state import Budget
from program.models.adapter import FencedAdapter
from program.models.asked import LanguageDecider
from program.models.engine import ProviderLM
from program.models.gateway import shared_gateway
from program.models.lane import Terms
from program.models.spending import Spending, current
from program.models.transport import Call
from tests.support.provider import Script, serve
from tests.support.replies import obliging

MODEL = "openai/stand-in"
WRITTEN = (1, 10, 5)  # calls and tokens of a text of the staged writer


def lane(provider):
    """The provider's lane, past its first request, which LiteLLM takes long for."""
    opened = shared_gateway().lane(MODEL, provider.url, Terms(retries=0))
    script, provider.script = provider.script, Script()
    shared_gateway().ask(opened, Call(MODEL, [{"role": "user", "content": "Hello."}], {}, provider.url), Spending())
    provider.script = script
    provider.calls = provider.tokens_in = provider.tokens_out = 0
    return opened


async def idle(provider):
    while provider.in_flight:
        await asyncio.sleep(0.01)


def limited(work):
    return asyncio.run(asyncio.wait_for(work, 60))


class FailsOnce(Decider):
    """Asks a language model about every passage but one, and fails on that when the others are under way."""

    awaits = True

    def __init__(self, asked, provider):
        super().__init__()
        self.asked, self.provider = asked, provider

    async def acall(self, state, questions):
        if "text 0" not in str(state["inputs"]):
            return await self.asked.acall(state, questions)
        while self.provider.in_flight < 2:
            await asyncio.sleep(0.01)
        raise RuntimeError("no such luck")


def test_requests_called_off_because_another_failed_are_counted():
    with serve(Script(delay=30), obliging) as provider:
        program = staged(budget=Budget(max_seconds=60))
        program.judge.relevance.lm = FailsOnce(LanguageDecider(lane(provider)), provider)

        async def ask():
            answer = await program.aask("What is it?")
            await idle(provider)
            return answer

        answer = limited(ask())
        assert answer.stopped_by is StoppedBy.FALLBACK
        assert provider.calls == 2
        spent = answer.usage
        books = (provider.calls, provider.tokens_in, provider.tokens_out)
        assert (spent.calls, spent.tokens_in, spent.tokens_out) == tuple(map(sum, zip(books, WRITTEN, strict=True)))


@pytest.mark.parametrize("streaming", [False, True])
def test_a_text_that_comes_too_late_is_counted(streaming):
    text = "word " * 400
    with serve(Script(delay=0 if streaming else 30, token_delay=0.05), lambda body: text) as provider:
        program = staged(budget=Budget(max_seconds=3))
        program.generator.answer.lm = ProviderLM(lane(provider), FencedAdapter())

        async def ask():
            events = [event async for event in program.stream("What is it?")] if streaming else []
            answer = events[-1] if streaming else await program.aask("What is it?")
            await idle(provider)
            return events, answer

        events, answer = limited(ask())
        assert any(isinstance(event, Token) for event in events) is streaming
        assert answer.stopped_by is StoppedBy.FALLBACK
        assert answer.usage.calls == provider.calls >= 1
        assert answer.usage.tokens_in == provider.tokens_in > 0


def test_a_decider_that_does_not_answer_in_time_is_counted_and_the_embedded_one_decides():
    with serve(Script(delay=30), obliging) as provider:
        for ask in (lambda p: p("What is it?"), lambda p: limited(p.aask("What is it?"))):
            program = staged(budget=Budget(max_seconds=3))
            program.judge.sufficiency.lm = LanguageDecider(lane(provider), Decider())
            answer = ask(program)
            assert f"{MODEL} did not answer within the question's time: staged/decider decided" in answer.trace.path
            assert answer.text == "What is it? is 42. [1]"
            limited(idle(provider))
            assert answer.usage.calls == provider.calls + 1 >= 2
            assert answer.usage.tokens_in == provider.tokens_in + 10


class Stumbling(Decider):
    """Hands each decision over to another, twice for one reason and once for another, in words of its own."""

    def __init__(self, name):
        super().__init__()
        self.model = name

    def __call__(self, state, questions):
        for why in ("the line is dead", "the line is dead", "it rains: stay in"):
            current().hand_over(why, self.model, Decider(), "took\nover")
        return super().__call__(state, questions)


def test_who_stood_in_for_whom_is_told_once_of_each_whatever_the_words():
    program = staged()
    program.classifier.route.lm = Stumbling("first model")
    program.judge.sufficiency.lm = Stumbling("second model")
    note = "the line is dead: staged/decider took\nover"
    assert program("What is it?").trace.stood_in == (note, note)
