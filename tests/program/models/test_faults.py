"""ragc under a provider's faults, over HTTP: every question ends in time, and the books agree with the server's."""

import asyncio

import pytest

from ragc import Outcome, open_program
from ragc.loop.policy import PRESETS
from tests.support.faults import EMBEDDED, ask_through_outage, ask_under_faults
from tests.support.goods import program_at, write_project
from tests.support.provider import FAULTS, Script, serve
from tests.support.replies import obliging

QUESTION = "What does the kettle cost?"
STREAMED = ("dropped", "cut_body", "tool_call", "no_choices", "huge", "cut_off", "wrong_type")


@pytest.fixture(scope="module")
def provider():
    with serve(brain=obliging) as running:
        yield running


@pytest.mark.parametrize(
    ("faults", "streamed"),
    [*(([name], False) for name in FAULTS), *(([name], True) for name in STREAMED), (FAULTS, False)],
)
def test_whatever_fails_every_question_ends_in_time_and_the_books_agree(provider, tmp_path, faults, streamed):
    mix = dict.fromkeys(faults, 0.3 if len(faults) == 1 else 0.5 / len(faults))
    found = ask_under_faults(provider, tmp_path, mix, 3, streamed)
    assert (len(found.answers), found.errors, found.late) == (3, [], 0)
    assert (found.calls_beside, found.tokens_beside) == (0, 0)


def test_a_server_that_comes_back_is_asked_again(provider, tmp_path):
    found = ask_through_outage(provider, tmp_path, 2, 0.8)
    assert found.ended == found.asked and found.served_again == [True]


@pytest.mark.parametrize("preset", ["plain", "full"])
def test_a_refusal_is_no_answer_and_an_errors_object_is_asked_again(tmp_path, preset):
    for reply in ("I'm sorry, but I can't help with that request.", '{"error": "overloaded"}'):
        with serve(Script(), lambda body, reply=reply: reply if "Answer the q" in str(body) else obliging(body)) as at:
            rag = open_program(write_project(tmp_path / "x", at.url, provider="fallback = false"))
            rag.policy.turn(**PRESETS[preset])
            answer = rag(QUESTION)
        assert reply not in answer.text and answer.outcome in (Outcome.ABSTAIN, Outcome.FAILED)
    assert "took the safe default" in str(answer.trace.path)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_was_cut_off_keeps_its_whole_sentences(tmp_path, streamed):
    def brain(body):
        return "It costs GBP 10 [1]. It is descaled every 6 weeks with citric acid [1]."

    async def last(rag):
        return [event async for event in rag.stream(QUESTION)][-1]

    with serve(Script({"cut_off": 1.0}), brain) as at:
        rag = program_at(at.url, tmp_path, models=EMBEDDED, provider="fallback = false").plain()
        answer = asyncio.run(last(rag)) if streamed else rag(QUESTION)
    assert answer.text == "It costs GBP 10 [1]."
    assert "cut off" in str(answer.trace.path)


def test_what_is_to_be_held_to_a_schema_is_sent_one(tmp_path):
    with serve(Script(), obliging) as at:
        folder = write_project(tmp_path, at.url)
        text = (folder / "ragc.toml").read_text()
        (folder / "ragc.toml").write_text(text.replace("api_base", "structured = true\napi_base"))
        assert open_program(folder)(QUESTION).outcome is Outcome.ANSWERED
        assert at.formed == at.calls - 1  # the text is asked for as it is
