"""What is asked of a model that can be held to a schema; and what was cut off is no answer."""

import asyncio

import pytest

from program import Outcome, open_program
from program.settings import FILE
from tests.support.provider import Script, serve
from tests.support.replies import obliging

MODEL = "openai/stand-in"


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
