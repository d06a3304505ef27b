"""The parameters of a program are found by walking it."""

import json

import dspy
import pytest
from dspy.adapters.types.decision import Score
from hypothesis import given
from hypothesis import strategies as st

from program.loop.decisions import RequestCache, decode
from program.loop.policy import Knob, apply_setting, find_dimensions, read_setting
from program.loop.rag import Classifier, Judge
from program.passage import SourceCard


class Grade(dspy.Signature):
    """How good is the text?"""

    text: str = dspy.InputField()
    quality: Score["poor", "fair", "good"] = dspy.OutputField(desc="how good it is")  # noqa: F821


class Small(dspy.Module):
    def __init__(self):
        super().__init__()
        self.classifier = Classifier([SourceCard("product", "documents", "kettles")])
        self.judge = Judge(False)
        self.grade = dspy.Predict(Grade)
        self.fresh = Knob(3, 1, 9, meaning="a knob written today")


def test_a_knob_is_found_the_day_it_is_written():
    assert "fresh" in [d.name for d in find_dimensions(Small())]


def test_every_decision_has_its_threshold_or_weights():
    names = [d.name for d in find_dimensions(Small())]
    assert "judge.relevance:relevant" in names
    assert "classifier.route:base_product" in names
    assert "classifier.route:route=complex" in names
    assert not any("missing" in name for name in names)


@given(st.data())
def test_what_is_applied_is_what_is_read(data):
    program = Small()
    setting = {
        d.name: data.draw(st.integers(int(d.low), int(d.high)) if d.integral else st.floats(d.low, d.high))
        for d in find_dimensions(program)
    }
    apply_setting(program, setting)
    found = read_setting(program)
    assert {name: pytest.approx(value) for name, value in setting.items()} == found


def test_a_score_has_a_cut_for_each_level_but_the_lowest_and_they_stay_in_order():
    cuts = [d for d in find_dimensions(Small()) if d.name.startswith("grade:quality")]
    assert [d.name for d in cuts] == ["grade:quality>1", "grade:quality>2"]
    assert 0 < cuts[0].low < 0.5 < cuts[0].high < cuts[1].low < 1.5 < cuts[1].high < 2


@given(
    st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
    st.floats(0.02, 0.98),
    st.floats(1.02, 1.98),
)
def test_a_score_is_decoded_as_dspy_decodes_it(shares, first, second):
    program = Small()
    apply_setting(program, {"grade:quality>1": first, "grade:quality>2": second})
    found = [share / sum(shares) for share in shares]
    client = Client({"quality": {"probabilities": dict(enumerate(found)), "confidence": 0.5}})
    theirs = program.grade(lm=client, text="t").quality
    worded = Client({"quality": {"probabilities": {str(n): p for n, p in enumerate(found)}, "confidence": 0.5}})
    evidence, same = (RequestCache().ask("grade", program.grade, one, {"text": "t"}) for one in (client, worded))
    assert json.loads(json.dumps(evidence)) == evidence == same
    ours = decode(evidence, program.grade.fields)["quality"]
    assert (ours.value, ours.level) == (pytest.approx(theirs.value), theirs.level)


class Client:
    """A decision client that says what it is told to."""

    supports_decision_requests = True

    def __init__(self, answers):
        self.model, self.callbacks, self.cache, self.kwargs = "staged/decider", [], False, {}
        self.answers = answers

    def __call__(self, state, questions):
        return self.answers


def test_applying_what_is_read_changes_nothing():
    program = Small()
    before = read_setting(program)
    apply_setting(program, before)
    assert read_setting(program) == before


def test_a_name_the_program_does_not_have_is_passed_over():
    program = Small()
    apply_setting(program, {"gone.knob": 3.0, "fresh": 5})
    assert read_setting(program)["fresh"] == 5
