"""A key is nowhere but in the request it is for, though the provider quotes it: not printed, logged, traced or written."""

import io
import logging
import sys
import traceback

import pytest

from ragc.errors import RagcError
from ragc.models.language.provider import key_variable
from ragc.optimize.cli.main import main
from tests.conftest import add_toml
from tests.support.provider import Script, serve
from tests.support.replies import obliging

SECRET = "sk-never-to-be-seen-0123456789"
QUOTED = "Incorrect API key"
QUESTION = "How much water does the Merle hold?"
HALF, ALL = {"unauthorized": 0.5}, {"unauthorized": 1.0}


@pytest.fixture
def told(caplog, capfd):
    """Everything that was printed and logged so far, at any level."""
    kept = []
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "markdown_it")  # else a line for each token

    def read():
        kept.extend([*capfd.readouterr(), caplog.text])
        return "".join(kept)

    return read


@pytest.fixture
def ragc(monkeypatch, capfd):
    """The command line in this process, with --debug: its exit code; a traceback goes to stderr as Python prints it."""

    def run(*arguments, lines=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        monkeypatch.setattr(sys, "argv", ["ragc", *map(str, arguments), "--debug"])
        try:
            main()
        except SystemExit as ended:
            return ended.code
        except RagcError as error:
            traceback.print_exception(error)
            return error.exit_code

    return run


def test_no_key_is_in_anything_that_any_command_leaves_behind(own_shop, monkeypatch, told, ragc, spans):
    with serve(Script(), obliging) as provider:
        for variable in ("OPENAI_API_KEY", key_variable(provider.url)):
            monkeypatch.setenv(variable, SECRET)
        models = '[models]\ndecide = "openai/x"\nwrite = "openai/x"\n[provider]\nretries = 0\n'
        models += f'fallback = false\n[provider.model."openai/x"]\napi_base = "{provider.url}"\n'
        add_toml(own_shop, models)
        provider.follow(Script(HALF, seed=1))
        assert ragc("compile", own_shop) in (0, 2)
        provider.follow(Script())
        assert ragc("compile", own_shop) == 0
        root = ("--artifacts", own_shop / "artifacts")
        for faults in (HALF, ALL):
            provider.follow(Script(faults, seed=2))
            assert ragc("doctor", own_shop) in (0, 1, 2)
            assert ragc("ask", own_shop, QUESTION, "--trace") in (0, 5)  # 5: no model was left to ask
            assert ragc("ask", own_shop, QUESTION, "--stream") in (0, 5)
            assert ragc("ask", own_shop, "--json", lines=f"{QUESTION}\nWhat is a refund?\n") in (0, 5)
            assert ragc("eval", own_shop, "--json") == 0
            assert ragc("compare", "shop@v1", "shop@latest", *root) in (0, 1, 3)
            assert provider.authorizations == {f"Bearer {SECRET}"} and provider.faults["unauthorized"]
        (last, *_) = (own_shop / ".ragc").rglob("traces*.jsonl")
        trace_id = last.read_text().rpartition('"trace_id":"')[2].partition('"')[0]
        assert ragc("trace", own_shop, trace_id) == 0
        assert ragc("trace", own_shop) == ragc("trace", own_shop, "--review", "--json") == 0
        assert ragc("show", "shop@latest", *root) == 0
    shown = told() + "".join(f"{s.name} {s.attributes} {s.events} {s.status.description}" for s in spans())
    assert "answered 401" in shown and SECRET not in shown and QUOTED not in shown
    files = [path for path in own_shop.rglob("*") if path.is_file()]
    assert {"manifest.json", "report.html", last.name} <= {path.name for path in files}
    for path in files:
        assert not [said for said in (SECRET, QUOTED) if said.encode() in path.read_bytes()], path
