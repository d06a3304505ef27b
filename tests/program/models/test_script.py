"""A stand-in's behaviour, read from a file."""

import json
import signal
import subprocess
import sys

import pytest

from program.errors import SettingsError
from program.models.gateway import shared_gateway
from program.models.lane import Terms
from program.models.script import Script
from program.models.spending import Spending
from program.models.transport import Call

SERVER = [sys.executable, "-m", "program.models.testing"]


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


def test_a_stand_in_is_started_from_a_file_answers_through_litellm_and_ends_at_ctrl_c(tmp_path):
    (tmp_path / "script.json").write_text('{"delay": 0.01, "spread": 0.5, "replies": {"price": "GBP 5."}}')
    with subprocess.Popen(
        [*SERVER, tmp_path / "script.json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        url = server.stdout.readline().strip()
        lane = shared_gateway().lane("openai/any", url, Terms())
        call = Call("openai/any", [{"role": "user", "content": "What is the price?"}], {}, url)
        assert shared_gateway().ask(lane, call, Spending()).text == "GBP 5."
        server.send_signal(signal.SIGINT)
        told, complaints = server.communicate(timeout=60)
    assert (server.returncode, told, complaints) == (0, "", "")


def test_a_stand_in_for_a_file_that_is_no_script_says_so(tmp_path):
    (tmp_path / "script.json").write_text('{"faults": {"no-such": 1}}')
    ended = subprocess.run([*SERVER, tmp_path / "script.json"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and ended.stderr.startswith("error: ") and "no-such" in ended.stderr
    assert "Traceback" not in ended.stderr
