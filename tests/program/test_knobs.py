"""Knobs: declared once, saved with the program, found by walking it."""

import math
from dataclasses import asdict

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.errors import IntegrityError
from program.loop.policy import PLAIN, Knob, Policy


@given(st.floats(0, 1))
def test_a_value_within_the_range_survives_a_round_trip_through_the_state(value):
    knob, other = Knob(0.5, 0.0, 1.0, meaning="m"), Knob(0.5, 0.0, 1.0, meaning="m")
    knob.set(value)
    other.load_state(knob.dump_state())
    assert other.value == knob.value


@given(st.one_of(st.floats(max_value=-0.001), st.floats(min_value=1.001), st.just(math.nan), st.text(), st.booleans()))
def test_a_value_outside_the_range_is_refused(value):
    with pytest.raises(ValueError):
        Knob(0.5, 0.0, 1.0, meaning="m").set(value)


def test_a_saved_value_out_of_range_is_an_integrity_error():
    with pytest.raises(IntegrityError):
        Knob(2, 1, 4, meaning="m").load_state({"value": 9})


def test_a_default_outside_the_range_is_refused():
    with pytest.raises(ValueError):
        Knob(5, 1, 4, meaning="m")


def test_what_the_loop_reads_of_each_knob_is_its_value_now():
    policy = Policy()
    assert {name: knob.value for name, knob in policy.named_parameters()} == asdict(policy.tuning())
    policy.turn(k=9, judge=0)
    assert (policy.tuning().k, policy.tuning().judge) == (9, 0)


def test_resetting_a_copy_keeps_a_tuned_value():
    policy = Policy()
    policy.turn(k=9)
    assert policy.reset_copy().tuning().k == 9


def test_doing_nothing_is_within_every_range():
    for name, parameter in Policy().named_parameters():
        assert parameter.low <= parameter.default <= parameter.high, name


def test_the_plain_setting_names_only_knobs():
    policy = Policy()
    policy.turn(**PLAIN)
    assert isinstance(policy, dspy.Module)
    assert policy.tuning().judge == 0
