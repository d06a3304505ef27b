"""What can be tuned: knobs, presets, and every parameter found by walking the program."""

import math
import typing

import dspy
import pytest
from dspy.adapters.types.decision import Score
from hypothesis import given
from hypothesis import strategies as st

from ragc import open_program, signatures
from ragc.errors import IntegrityError, SettingsError
from ragc.knowledge.project import Project
from ragc.loop.policy import PRESETS, Knob, Policy, apply_setting, find_dimensions, read_setting
from ragc.loop.rag import Predictors
from ragc.passage import SourceCard
from ragc.settings import LoopSettings


class Grade(dspy.Signature):
    """How good is the text?"""

    text: str = dspy.InputField()
    quality: Score["poor", "fair", "good"] = dspy.OutputField(desc="how good it is")  # noqa: F821


class Small(dspy.Module):
    def __init__(self):
        super().__init__()
        self.classifier = Predictors(route=signatures.route_signature([SourceCard("product", "documents", "kettles")]))
        self.judge = Predictors(sufficiency=signatures.Sufficiency, missing=signatures.Missing)
        self.grade = dspy.Predict(Grade)
        self.fresh = Knob(3, 1, 9, meaning="a knob written today")


@given(st.one_of(st.floats(max_value=-0.001), st.floats(min_value=1.001), st.just(math.nan), st.text(), st.booleans()))
def test_a_value_outside_a_knobs_range_is_refused(value):
    with pytest.raises(ValueError):
        Knob(0.5, 0.0, 1.0, meaning="m").set(value)
    with pytest.raises(ValueError):
        Knob(5, 1, 4, meaning="m")
    with pytest.raises(IntegrityError):
        Knob(2, 1, 4, meaning="m").load_state({"value": 9})


def test_the_settings_offer_exactly_the_presets_and_no_two_are_the_same_program(own_shop):
    offered = typing.get_args(LoopSettings.model_fields["preset"].annotation)
    assert set(offered) == set(PRESETS) and LoopSettings().preset == "full"
    policies = {name: Policy() for name in PRESETS}
    for name, policy in policies.items():
        policy.turn(**PRESETS[name])
    assert len({policy.tuning() for policy in policies.values()}) == len(PRESETS)
    settings = (own_shop / "ragc.toml").read_text()
    (own_shop / "ragc.toml").write_text(f'{settings}\n[loop]\npreset = "plain"\n')
    answer = open_program(own_shop)("How much water does the Merle kettle hold?")
    assert {step.name for step in answer.trace.steps} == {"search", "generator.states"}
    (own_shop / "ragc.toml").write_text(f'{settings}\n[loop]\npreset = "plan-b"\n')
    with pytest.raises(SettingsError, match=r"loop\.preset"):
        Project.open(own_shop)


def test_every_knob_and_decision_is_found_the_day_it_is_written_and_no_text():
    found = {d.name: d for d in find_dimensions(Small())}
    assert {"fresh", "judge.sufficiency:sufficient", "classifier.route:base_product"} <= found.keys()
    assert "classifier.route:route=complex" in found and not any("missing" in name for name in found)
    cuts = [d for name, d in found.items() if name.startswith("grade:quality")]
    assert [d.name for d in cuts] == ["grade:quality>1", "grade:quality>2"]
    assert 0 < cuts[0].low < 0.5 < cuts[0].high < cuts[1].low < 1.5 < cuts[1].high < 2


@given(st.data())
def test_what_is_applied_is_what_is_read_and_a_name_the_program_does_not_have_is_passed_over(data):
    program = Small()
    before = read_setting(program)
    apply_setting(program, before)
    assert read_setting(program) == before
    setting = {
        d.name: data.draw(st.integers(int(d.low), int(d.high)) if d.integral else st.floats(d.low, d.high))
        for d in find_dimensions(program)
    }
    apply_setting(program, {**setting, "gone.knob": 3.0})
    assert {name: pytest.approx(value) for name, value in setting.items()} == read_setting(program)
