"""Presets: knob values of the one program, by name."""

import typing

import pytest

from program import open_program
from program.errors import SettingsError
from program.loop.policy import PRESETS, Policy
from program.project import Project
from program.serve.trace import TraceLog
from program.settings import LoopSettings


def test_every_preset_is_values_of_knobs_within_their_ranges():
    for values in PRESETS.values():
        Policy().turn(**values)


def test_the_settings_offer_exactly_the_presets():
    offered = typing.get_args(LoopSettings.model_fields["preset"].annotation)
    assert set(offered) == set(PRESETS)
    assert LoopSettings().preset == "full"


def test_no_two_presets_are_the_same_program():
    tunings = []
    for values in PRESETS.values():
        policy = Policy()
        policy.turn(**values)
        tunings.append(policy.tuning())
    assert len(set(tunings)) == len(PRESETS)


def test_a_project_names_the_preset_its_uncompiled_program_starts_as(own_shop):
    with (own_shop / "ragc.toml").open("a") as file:
        file.write('\n[loop]\npreset = "plain"\n')
    program = open_program(own_shop)
    answer = program("How much water does the Merle kettle hold?")
    assert (answer.usage.decisions, answer.usage.searches) == (0, 1)
    (entry,) = TraceLog(own_shop / ".ragc").traces.entries()
    assert entry["preset"] == "plain"


def test_a_misspelt_preset_is_an_error_with_its_line(own_shop):
    with (own_shop / "ragc.toml").open("a") as file:
        file.write('\n[loop]\npreset = "plan-b"\n')
    with pytest.raises(SettingsError, match=r"loop\.preset"):
        Project.open(own_shop)


def test_a_classifier_that_is_a_language_model_thinks_while_the_question_is_searched(own_shop, monkeypatch):
    assert open_program(own_shop).tuning().glimpse == 1
    monkeypatch.setenv("RAGC_MODELS__DECIDE", "openai/any")
    assert open_program(own_shop).tuning().glimpse == 0
