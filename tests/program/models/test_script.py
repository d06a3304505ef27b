"""A stand-in's behaviour, read from a file."""

import json

import pytest

from program.errors import SettingsError
from program.models.script import Script


def test_a_script_is_read_from_a_file_and_replies_by_its_first_pattern_that_fits(tmp_path):
    told = {"faults": {"rate_limited": 0.2}, "delay": 0.3, "spread": 0.5, "replies": {"price": "GBP 5.", "": "No."}}
    (tmp_path / "script.json").write_text(json.dumps(told))
    script = Script.read(tmp_path / "script.json")
    assert (script.faults, script.delay, script.spread) == ({"rate_limited": 0.2}, 0.3, 0.5)
    said = [script.reply({"messages": [{"content": text}]}) for text in ("the price?", "the size?")]
    assert said == ["GBP 5.", "No."]


@pytest.mark.parametrize("content", ["{", "[]", '{"delays": 1}', '{"faults": {"no-such": 1}}', '{"replies": 3}'])
def test_a_file_that_is_no_script_is_an_error_in_a_sentence(tmp_path, content):
    (tmp_path / "script.json").write_text(content)
    with pytest.raises(SettingsError):
        Script.read(tmp_path / "script.json")
    with pytest.raises(SettingsError):
        Script.read(tmp_path / "absent.json")
