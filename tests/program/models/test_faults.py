"""ragc under a provider's faults: the benchmark's quick form, over HTTP; and replies that are no answers."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from program import Outcome, open_program
from program.loop.policy import PRESETS
from program.models.language.decision_format import read_decisions
from program.models.language.parsing import UnreadableReply, read_texts
from tests.support.goods import program_at, write_project
from tests.support.provider import FAULTS, Script, serve
from tests.support.replies import obliging

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from faults import measure_mix, measure_outage

QUESTION = "What does the kettle cost?"
DECIDED = {
    "noul": {"supported": {"type": "noul", "instructions": "The passages state the claim."}},
    "choice": {"route": {"type": "choice", "criteria": {"direct": "", "simple": "", "complex": ""}}},
}
WRITTEN = {"list": {"sub_queries": True}, "pair": {"missing": False, "next_query": False}, "text": {"answer": False}}
STREAMED = ("dropped", "cut_body", "tool_call", "no_choices", "huge", "cut_off", "wrong_type")


@pytest.fixture(scope="module")
def provider():
    with serve(brain=obliging) as running:
        yield running


def failing(figures):
    """What does not hold; that a fault befell one of three questions is left to chance."""
    return [f for f in figures if not f["holds"] and "befell" not in f["figure"]]


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_fails_every_question_ends_in_time_and_the_books_agree(provider, tmp_path, fault):
    assert failing(measure_mix(provider, tmp_path, fault, {fault: 0.3}, 3)) == []


@pytest.mark.parametrize("fault", STREAMED)
def test_whatever_befalls_a_streamed_text_the_question_ends_in_time_and_the_books_agree(provider, tmp_path, fault):
    assert failing(measure_mix(provider, tmp_path, fault, {fault: 0.3}, 3, streamed=True)) == []


def test_all_faults_at_once_lose_no_question_and_no_token(provider, tmp_path):
    assert failing(measure_mix(provider, tmp_path, "all", dict.fromkeys(FAULTS, 0.5 / len(FAULTS)), 6)) == []


def test_a_server_that_comes_back_is_asked_again(provider, tmp_path):
    assert failing(measure_outage(provider, tmp_path, 2, 0.8)) == []


def reading(line):
    """What a reply is read as, or None when it is refused."""
    try:
        if line["kind"] in WRITTEN:
            return read_texts(line["reply"], WRITTEN[line["kind"]])
        (answer,) = read_decisions(line["reply"], DECIDED[line["kind"]]).values()
    except UnreadableReply:
        return None
    shares = answer.get("probabilities")
    return max(shares, key=shares.get) if shares else answer["noul"] >= 0.5


def test_malformed_replies_are_mended_or_refused_but_never_believed():
    lines = [json.loads(line) for line in (Path(__file__).parent / "torture.jsonl").read_text().splitlines()]
    read = [(line["expect"], reading(line)) for line in lines]
    assert [pair for pair in read if pair[1] is not None and pair[0] != pair[1]] == []
    mendable = [expected == found for expected, found in read if expected is not None]
    assert sum(mendable) / len(mendable) >= 0.95


@pytest.mark.parametrize("preset", ["plain", "full"])
def test_a_refusal_or_a_page_is_no_answer(tmp_path, preset):
    for reply in ("I'm sorry, but I can't help with that request.", '{"error": "overloaded"}', "<html>Bad</html>"):
        with serve(Script(), lambda body, reply=reply: reply if "Answer the q" in str(body) else obliging(body)) as at:
            rag = open_program(write_project(tmp_path / "x", at.url, provider="fallback = false"))
            rag.policy.turn(**PRESETS[preset])
            answer = rag(QUESTION)
        assert reply not in answer.text and "> quote ." in str(answer.trace)
        assert "took the safe default" in str(answer.trace.path)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_was_cut_off_keeps_its_whole_sentences(tmp_path, streamed):
    def brain(body):
        return "It costs GBP 10 [1]. It is descaled every 6 weeks with citric acid [1]."

    async def last(rag):
        return [event async for event in rag.stream(QUESTION)][-1]

    with serve(Script({"cut_off": 1.0}), brain) as at:
        models = 'decide = "local/reader"\nwrite = "openai/stand-in"'
        rag = program_at(at.url, tmp_path, models=models, provider="fallback = false").plain()
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
