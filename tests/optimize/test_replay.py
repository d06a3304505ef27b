"""A replay remembers what it answered: under any thresholds it says what a replay without a memory says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc import open_program
from ragc.errors import RagcError
from ragc.knowledge.index.build import index_project
from ragc.knowledge.project import Project
from ragc.loop.policy import apply_setting, find_dimensions
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.labelled.dataset import read_labelled


@pytest.fixture(scope="module")
def opened(shop):
    """The program, its questions, and a record that both replays share."""
    project = Project.open(shop)
    index_project(project)
    questions = [one.asked for one in read_labelled(project.labelled, project.folder)]
    return open_program(shop), questions, Record()


@settings(max_examples=10)
@given(data=st.data())
def test_what_is_remembered_is_what_is_answered_anew_under_any_thresholds_and_knobs(opened, data):
    program, questions, record = opened
    own = [d for d in find_dimensions(program) if ":" in d.name or d.name in ("policy.k", "policy.judge")]
    remembers, runs = Replay(program.deepcopy(), record), 0
    trace = remembers._trace

    def count(asked):
        nonlocal runs
        runs += len(asked)
        return trace(asked)

    remembers._trace = count
    for _ in range(4):
        setting = {d.name: data.draw(st.sampled_from([d.low, d.high])) for d in own}
        apply_setting(remembers.program, setting)
        forgets = Replay(remembers.program, record)
        told = [(one.text, one.outcome, one.confidence, one.usage.decisions) for one in remembers.answer_all(questions)]
        assert told == [
            (one.text, one.outcome, one.confidence, one.usage.decisions) for one in forgets.answer_all(questions)
        ]
        assert remembers.decide_all(questions) == forgets.decide_all(questions)
        before = runs
        remembers.answer_all(questions)
        assert runs == before, "nothing is run twice"


def test_what_failed_is_asked_again_the_next_time(opened, monkeypatch):
    program, questions, _ = opened
    replay, library = Replay(program.deepcopy(), Record()), type(program.runtime.library)
    with monkeypatch.context() as patch:
        patch.setattr(library, "candidates", lambda *_, **__: (_ for _ in ()).throw(RagcError("Busy.", "Wait.")))
        assert replay(questions[0]).outcome == "failed"
    assert replay(questions[0]).outcome != "failed"
