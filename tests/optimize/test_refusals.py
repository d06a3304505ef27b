"""What a model refuses for good: asked no more once it is known that the prompt is to blame."""

from collections import Counter

import pytest

from optimize.compiler.calls import ATTEMPTS
from optimize.compiler.record import Record
from optimize.compiler.replay import Replay
from program.loop.policy import apply_setting, read_setting
from program.serve.opening import open_program

QUESTION = "How much water does the Merle hold?"


@pytest.fixture
def alone(paid_shop):
    """The project without a stand-in for its model."""
    settings = paid_shop / "ragc.toml"
    settings.write_text(f"{settings.read_text()}\n[provider]\nfallback = false\nretries = 0\n")
    return paid_shop


def drafting(text):
    """True for a prompt by which an answer to the question is written."""
    return "cite each statement" in text and QUESTION in text


def turned(replay, n):
    """The replay's answer under the nth setting; another question is answered after it."""
    apply_setting(replay.program, {**read_setting(replay.program), "policy.recency": n / 20})
    answer = replay(QUESTION)
    replay(f"How much water does the Merle {n} hold?")
    return answer


def test_a_prompt_that_a_model_refuses_while_it_answers_others_is_put_no_more_under_any_setting(alone, model):
    model.refuses = drafting
    record = Record()
    replay = Replay(open_program(alone), record)
    answers = [turned(replay, n) for n in range(20)]
    assert {a.text for a in answers} == {answers[0].text}
    assert max(Counter(model.calls).values()) <= 2 * ATTEMPTS
    before = len(model.calls)
    assert Replay(open_program(alone), record)(QUESTION).text == answers[0].text
    assert len(model.calls) == before


def test_a_run_that_a_refusal_ended_is_remembered_in_memory_and_not_in_the_file(alone, model, tmp_path):
    model.refuses = drafting
    record = Record(tmp_path / "record.sqlite")
    replay = Replay(open_program(alone), record, keeps=True)
    for n in range(4):
        turned(replay, n)
    (number,) = replay.known([QUESTION])
    assert "failed" in " ".join(replay.answer(number).trace.path)
    record.close()
    model.refuses = lambda text: False
    again = Replay(open_program(alone), Record(tmp_path / "record.sqlite"), keeps=True)
    assert "failed" not in " ".join(again(QUESTION).trace.path)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_fails_for_want_of_a_key_or_an_address_is_put_again(alone, model, status):
    model.refuses, model.refusal = drafting, status
    replay = Replay(open_program(alone), Record())
    for n in range(4):
        turned(replay, n)
    model.refuses = lambda text: False
    assert "failed" not in " ".join(turned(replay, 5).trace.path)


def test_what_was_refused_when_nothing_was_answered_is_put_again_once_the_model_is_back(alone, model):
    model.refuses = lambda text: True
    replay = Replay(open_program(alone), Record())
    assert "failed" in " ".join(replay(QUESTION).trace.path)
    model.refuses = lambda text: False
    assert "failed" not in " ".join(replay(QUESTION).trace.path)
