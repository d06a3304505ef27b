"""A language model on loopback: real HTTP in OpenAI's form, scripted replies, every call counted."""

import hashlib
import io
import json
import sys
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from optimize.cli.main import main
from optimize.compiler.compile import make_demonstrations
from optimize.compiler.plan import begin_study, open_compile, plan_search
from optimize.compiler.record import Record
from optimize.compiler.search import Live, Session
from optimize.compiler.study import Caps, Spending
from program import load
from program.knowledge.project import Project
from program.models.language.gateway import shared_gateway
from tests.loopback import serving
from tests.support.replies import obliging


class Model(ThreadingHTTPServer):
    """Answers each prompt by its content alone. Of equal prompts every one is counted; `fails` says by its number which
    to refuse, `refuses` by its text, `refusal` with what status.

    `log` has of each call the digest of its prompt, when it came in and when it was answered (`time.monotonic`).
    """

    daemon_threads = True

    def __init__(self):
        self.calls = []
        self.log = []
        self.fails = lambda n: False
        self.refuses = lambda text: False
        self.refusal = 400
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        content = "".join(str(m["content"]) for m in body["messages"])
        began, digest = time.monotonic(), hashlib.sha256(content.encode()).hexdigest()
        self.server.calls.append(digest)
        refused = self.server.fails(len(self.server.calls)) or self.server.refuses(content)
        message = {"role": "assistant", "content": reply(body)}
        told = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }
        sent = json.dumps({"error": {"message": "no", "type": "bad"}} if refused else told).encode()
        self.send_response(self.server.refusal if refused else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        try:
            self.wfile.write(sent)
        finally:  # whoever asked may have been killed
            self.server.log.append((digest, began, time.monotonic()))

    def log_message(self, *arguments):
        pass


def reply(body):
    """What a willing model replies, its probabilities taken from a digest of the prompt."""
    content = json.dumps(body["messages"])
    text = obliging(body)
    if not text.startswith("{"):
        return text
    found = json.loads(text)
    for name, value in found.items():
        share = int(hashlib.sha256((name + content).encode()).hexdigest()[:6], 16) / 0xFFFFFF
        if isinstance(value, dict) and "probabilities" in value:
            odds = {"direct": 0.1, "simple": round(0.2 + share / 2, 3), "complex": round(0.7 - share / 2, 3)}
            value |= {"choice": max(odds, key=odds.get), "probabilities": odds}
        elif isinstance(value, dict):
            value |= {"verdict": "yes" if share >= 0.5 else "no", "probability": round(share, 3)}
    return json.dumps(found)


@pytest.fixture
def model():
    """The model, serving; what this process remembers of one before it is forgotten."""
    with listening() as server:
        yield server


@contextmanager
def listening():
    """The model, as long as the block lasts, for a fixture of any scope."""
    shared_gateway.cache_clear()
    server = Model()
    with serving(server):
        yield server


@pytest.fixture
def paid_shop(own_shop, model, monkeypatch):
    """A project all of whose decisions and texts come from the model on loopback, as from a paid one."""
    return paid(own_shop, model, monkeypatch)


def paid(folder, model, patch):
    """The project, everything in it decided and written by the model as long as the patch holds."""
    import dspy

    patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it is looked for on the network
    patch.setenv("OPENAI_API_KEY", "none")
    patch.setenv("OPENAI_API_BASE", model.url)
    patch.setenv("OPENAI_BASE_URL", model.url)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    settings = folder / "ragc.toml"
    named = '[models]\ndecide = "openai/gpt-4o-mini"\nwrite = "openai/gpt-4o-mini"\n\n[knowledge.product]'
    settings.write_text(settings.read_text().replace("[knowledge.product]", named, 1))
    return folder


@pytest.fixture
def ragc(monkeypatch, capsys):
    """Runs a command line in this process; returns exit code, stdout and stderr."""

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["ragc", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return run


@pytest.fixture(scope="module")
def rag(compiled):
    """The compiled shop."""
    return load("shop@v2", artifacts=compiled / "artifacts")


def planned(folder):
    """A project whose search is planned: the session, the project opened, its study, plan and demonstrations."""
    project = Project.open(folder)
    session = Session(Record(project.private / "record.sqlite"), Spending(), Caps(), Live(), lambda live: None)
    opened = open_compile(session, project, 0, "", None)
    study = begin_study(session, opened, None, 1)
    demonstrations = make_demonstrations(session, opened)
    return session, opened, study, plan_search(session, opened, study, demonstrations), demonstrations
