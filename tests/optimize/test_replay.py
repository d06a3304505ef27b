"""Replay: the same answers as a live run, from a record, under any setting."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimize.compiler.record import Record
from optimize.compiler.replay import Replay
from program.loop.policy import apply_setting, find_dimensions, read_setting
from program.loop.state import Ask, read_look_ups

QUESTIONS = [
    "How much water does the Merle hold?",
    "How many days do I have to get my money back and how many watts does the Wren draw?",
    "What is 12 times 12?",
    "Does the kettle come in green?",
]


@pytest.fixture(scope="module")
def replay(rag):
    return Replay(rag.deepcopy(), Record())


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_under_any_setting_a_replay_answers_as_a_live_run(rag, replay, data):
    before = read_setting(rag)
    setting = {
        d.name: data.draw(
            st.integers(int(d.low), int(d.high)) if d.integral else st.floats(d.low, d.high), label=d.name
        )
        for d in find_dimensions(rag)
    }
    question = data.draw(st.sampled_from(QUESTIONS))
    try:
        apply_setting(rag, setting)
        apply_setting(replay.program, setting)
        live, again = rag(question), replay(question)
    finally:
        apply_setting(rag, before)
    assert (again.text, again.outcome, again.trace.path) == (live.text, live.outcome, live.trace.path)
    assert again.confidence == pytest.approx(live.confidence)
    assert (again.usage.calls, again.usage.decisions) == (live.usage.calls, live.usage.decisions)


def test_a_plan_is_read_back_from_the_file(rag, tmp_path):
    ask = Ask("decomposer.split", {"question": "Who packs the kettles and how long does it take?"})
    made, read_back = (read_look_ups(Replay(rag.deepcopy(), Record(tmp_path / "record")).reply(ask)) for _ in range(2))
    assert read_back == made and len(made) == 2


def test_another_threshold_alone_performs_nothing(rag):
    record = Record()
    program = Replay(rag.deepcopy(), record)
    program.program.policy.turn(fast_above=1.0, ground=1)  # a draft that is judged, and not written before it is
    program(QUESTIONS[0])
    performed = record.performed
    program.program.grounder.responsive.fields["responsive"] = {"threshold": 0.999}
    answer = program(QUESTIONS[0])
    assert answer.outcome == "abstain"
    assert record.performed == performed
