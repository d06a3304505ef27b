"""The parameters of a program are found by walking it."""

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.knobs import Knob
from program.knowledge.source import SourceCard
from program.modules import Classifier, Judge
from program.parameters import apply, read, space


class Small(dspy.Module):
    def __init__(self):
        super().__init__()
        self.classifier = Classifier([SourceCard("product", "documents", "kettles")])
        self.judge = Judge()
        self.fresh = Knob(3, 1, 9, meaning="a knob written today")


def test_a_knob_is_found_the_day_it_is_written():
    assert "fresh" in [d.name for d in space(Small())]


def test_every_decision_has_its_threshold_or_weights():
    names = [d.name for d in space(Small())]
    assert "judge.relevance:relevant" in names
    assert "classifier.route:base_product" in names
    assert "classifier.route:route=complex" in names
    assert not any("missing" in name for name in names)


@given(st.data())
def test_what_is_applied_is_what_is_read(data):
    program = Small()
    setting = {
        d.name: data.draw(st.integers(int(d.low), int(d.high)) if d.integral else st.floats(d.low, d.high))
        for d in space(program)
    }
    apply(program, setting)
    found = read(program)
    assert {name: pytest.approx(value) for name, value in setting.items()} == found


def test_applying_what_is_read_changes_nothing():
    program = Small()
    before = read(program)
    apply(program, before)
    assert read(program) == before


def test_a_name_the_program_does_not_have_is_passed_over():
    program = Small()
    apply(program, {"gone.knob": 3.0, "fresh": 5})
    assert read(program)["fresh"] == 5
