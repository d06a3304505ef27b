"""What the tests of `optimize` share: the command line, a compile, and a language model that answers by the prompt."""

import hashlib
import io
import json
import sys
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from ragc import load
from ragc.knowledge.project import Project
from ragc.models.language.gateway import shared_gateway
from ragc.optimize.cli.main import app, main
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.registry.versions import publish_version
from ragc.serve.reference import resolve
from tests.program.models.responder import responding
from tests.support.provider import Served, completion
from tests.support.replies import obliging


class Model:
    """Answers each prompt by its content alone; `calls` has the digest of each, `fails` says by its number which to refuse."""

    def __init__(self, url):
        self.url, self.calls, self.fails = f"{url}/v1", [], lambda n: False

    def respond(self, body):
        self.calls.append(hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest())
        if self.fails(len(self.calls)):
            return 400, {}, "application/json", b'{"error": {"message": "no", "type": "bad"}}'
        return 200, {}, "application/json", json.dumps(completion(body, Served("", 100, 10), reply(body))).encode()


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


@contextmanager
def listening():
    """The model, serving as long as the block lasts; what this process remembers of one before it is forgotten."""
    shared_gateway.cache_clear()
    with responding() as server:
        model = Model(server.url)
        server.respond = model.respond
        yield model


@pytest.fixture
def model():
    with listening() as served:
        yield served


@pytest.fixture
def paid_shop(own_shop, model, monkeypatch):
    """A project all of whose decisions and texts come from the model on loopback, as from a paid one."""
    return paid(own_shop, model.url, monkeypatch)


PAID = '[models]\ndecide = "openai/gpt-4o-mini"\nwrite = "openai/gpt-4o-mini"\n\n'


def paid(folder, url, patch, models=PAID):
    """The project, these models of it at the address as long as the patch holds."""
    import dspy

    patch.setenv("OPENAI_API_KEY", "none")
    patch.setenv("OPENAI_API_BASE", url)
    patch.setenv("OPENAI_BASE_URL", url)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    settings = folder / "ragc.toml"
    settings.write_text(settings.read_text().replace("[knowledge.product]", f"{models}[knowledge.product]", 1))
    return folder


def compile_(folder, **options):
    """Compile the project; return what came of it."""
    return compile_project(Project.open(folder), **options)


def manifest_of(folder, reference):
    return resolve(reference, folder / "artifacts")


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


WORTH = {"correct": 1.0, "partial": 0.5, "wrong": -1.0}


def score_rows(words, topic=lambda n: n // 10, answer="Text.", tags=(), **metrics):
    """A line of `scores.jsonl` for each of "correct", "partial", "wrong", by default ten to a topic."""
    return [
        {
            "id": f"q{n:03}", "topic": f"t{topic(n)}", "tags": list(tags), "question": f"Question {n}?", "path": [],
            "answer": f"{answer} {n}", "outcome": "answered", **{one: int(one == word) for one in WORTH},
            "utility": WORTH[word],
            "metrics": {"model_calls": 1.0, "seconds": 0.5 * (1 + n % 3), **metrics},
        }
        for n, word in enumerate(words)
    ]  # fmt: skip


def publish_rows(root, rows=(), state=b"{}", name="helpdesk", **fields):
    """Publish a version that holds a program's state and scored rows; return its reference."""
    scores = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return publish_version(name, fields, {"program.json": state, "scores.jsonl": scores}, root)


def invoke(*arguments):
    """Run a command line; return what came of it, its error among that."""
    return CliRunner().invoke(app, [*map(str, arguments)])


def invoke_json(*arguments):
    """Run a command line; return the JSON that it printed, or raise its error."""
    done = invoke(*arguments, "--json")
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def rag(compiled):
    """The compiled shop."""
    return load("shop@v2", artifacts=compiled / "artifacts")
