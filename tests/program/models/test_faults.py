"""ragc under a provider's faults: the benchmark's quick form. Everything goes through LiteLLM and HTTP."""

import sys
from pathlib import Path

import pytest

from program import Outcome, open_program
from program.loop.grounding import FOUND_NOTHING
from program.loop.policy import PRESETS
from tests.support.provider import FAULTS, Script, serve
from tests.support.replies import obliging

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from faults import dead, torture, under
from goods import write_project
from load import crowd


@pytest.fixture(scope="module")
def provider():
    with serve(brain=obliging) as running:
        yield running


def holds(figures):
    return [f for f in figures if not f["holds"]] == []


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_fails_every_question_ends_in_time_and_the_books_agree(provider, tmp_path, fault):
    assert holds(under(provider, tmp_path, fault, {fault: 0.3}, 3))


@pytest.mark.parametrize("fault", ["dropped", "cut_body", "tool_call", "no_choices", "huge", "cut_off", "wrong_type"])
def test_whatever_befalls_a_streamed_text_the_question_ends_in_time_and_the_books_agree(provider, tmp_path, fault):
    assert holds(under(provider, tmp_path, fault, {fault: 0.3}, 3, streamed=True))


def test_all_faults_at_once_lose_no_question_and_no_token(provider, tmp_path):
    assert holds(under(provider, tmp_path, "all", dict.fromkeys(FAULTS, 0.5 / len(FAULTS)), 6))


def test_a_dead_server_opens_the_circuit_and_its_return_closes_it(provider, tmp_path):
    assert holds(dead(provider, tmp_path, 8, 0.8))


def test_never_more_requests_are_in_flight_than_allowed(provider, tmp_path):
    figures = crowd(provider, tmp_path, 6, 0.02, allowed=3)
    assert all(f["holds"] for f in figures if "throughput" not in f["figure"])


def test_malformed_replies_are_mended_or_refused_but_never_believed():
    assert holds(torture())


@pytest.mark.parametrize("preset", ["plain", "full"])
def test_a_refusal_or_a_page_is_no_answer(tmp_path, preset):
    for reply in ("I'm sorry, but I can't help with that request.", '{"error": "overloaded"}', "<html>Bad</html>"):
        with serve(Script(), lambda body, reply=reply: reply if "Answer the q" in str(body) else obliging(body)) as at:
            rag = open_program(write_project(tmp_path / "x", at.url, provider="fallback = false"))
            rag.policy.turn(**PRESETS[preset])
            answer = rag("What does the kettle cost?")
        assert answer.outcome is Outcome.ABSTAIN and answer.text.startswith(FOUND_NOTHING)
        assert "took the safe default" in str(answer.trace.path)
