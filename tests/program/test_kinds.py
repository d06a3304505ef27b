"""Every kind of knowledge base from its table in ragc.toml to an answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "knowledge"))  # the servers that the tests of sources use

from web_server import Reply, WebServer, web_server

from optimize.report.doctor import examine
from program.errors import KnowledgeError, SettingsError
from program.project import Project
from program.serve.opening import open_library, open_program

Add = Callable[[str], Project]

PACKAGE = """
from program.knowledge.source import NO_FILTERS, Passage

class Notes:
    def __init__(self, card, options, embedder):
        self.card, self.text = card, options["text"]
        self.name = card.name
    def describe(self):
        return self.card
    def candidates(self, query, depth, filters=NO_FILTERS):
        return [Passage(f"{self.name}/1", self.name, "A note", self.text, 0.9, "note")][:depth]
    def search(self, query, k, filters=NO_FILTERS):
        return self.candidates(query, k, filters)
    async def asearch(self, query, k, filters=NO_FILTERS):
        return self.search(query, k, filters)

def misnamed(card, options, embedder):
    notes = Notes(card, options, embedder)
    notes.name = "other"
    return notes
"""


@pytest.fixture
def add(own_shop: Path) -> Add:
    """Adds to the project's ragc.toml and opens it."""

    def added(toml: str) -> Project:
        path = own_shop / "ragc.toml"
        path.write_text(path.read_text() + toml)
        return Project.open(own_shop)

    return added


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as served:
        yield served


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package `ragc-notes`, installed: its module and its dist-info are on the path."""
    site = tmp_path / "site"
    info = site / "ragc_notes-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "ragc_notes.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ragc-notes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ragc.sources]\nnotes = ragc_notes:Notes\nmisnamed = ragc_notes:misnamed\nabsent = ragc_notes:Absent\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "ragc_notes", raising=False)


def test_a_kind_of_an_installed_package_is_a_source(add: Add, package: None) -> None:
    project = add('[knowledge.notes]\nkind = "notes"\nabout = "notes"\n[knowledge.notes.options]\ntext = "Call Ann."\n')
    library = open_library(project)
    assert [p.text for p in library.search("whom to call", ["notes"])] == ["Call Ann."]
    assert library.describe()[-1].describe() == "notes."


def test_no_code_runs_for_a_kind_that_no_package_brings(add: Add, own_shop: Path) -> None:
    (own_shop / "ragc_notes.py").write_text("raise SystemExit('it ran')")
    for kind in ("notes", "ragc_notes:Notes"):
        with pytest.raises(SettingsError, match="there is no kind"):
            add(f'[knowledge.notes{len(kind)}]\nkind = "{kind}"\n')


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("notes", r"'notes' of the package ragc-notes cannot be opened: KeyError"),
        ("absent", r"ragc-notes cannot be opened: AttributeError"),
        ("misnamed", r"is not a source of that name"),
    ],
)
def test_a_package_that_fails_is_named(add: Add, package: None, kind: str, complaint: str) -> None:
    options = '[knowledge.notes.options]\ntext = "x"\n' if kind == "misnamed" else ""
    with pytest.raises(KnowledgeError, match=complaint):
        open_library(add(f'[knowledge.notes]\nkind = "{kind}"\n{options}'))


def test_an_http_source_answers_beside_the_documents(add: Add, server: WebServer) -> None:
    server.replies["/stock"] = Reply([{"t": "There are 41 Merle kettles in stock."}])
    project = add(
        f'[knowledge.stock]\nkind = "http"\nabout = "stock"\nurl = "{server.url}/stock?q={{query}}"\n'
        'text = "/t"\nallow_private = true\n'
    )
    found = open_library(project).search("how many Merle kettles are in stock", k=8)
    assert {"stock", "product"} <= {p.source for p in found}


def test_an_answer_says_which_source_it_had_to_do_without(add: Add, server: WebServer) -> None:
    server.replies["/stock"] = Reply("down", status=500)
    project = add(
        f'[knowledge.stock]\nkind = "http"\nabout = "what is in stock"\nurl = "{server.url}/stock?q={{query}}"\n'
        'text = "/t"\nallow_private = true\n'
    )
    answer = open_program(project)("How much water does the Merle kettle hold?")
    assert "1.7 litres" in answer.text
    assert answer.trace is not None
    assert [note for note in answer.trace.path if note.startswith("degraded")] == [
        "degraded: without stock: The JSON API of stock answered with status 500."
    ]


def test_without_a_provider_or_its_key_there_is_no_web_to_route_to(
    add: Add, own_shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    project = add('[knowledge.web]\nkind = "web"\n[knowledge.news]\nkind = "web"\nprovider = "brave"\n')
    assert [card.name for card in open_library(project).describe()] == ["product", "billing"]
    told = {f.what: f.mend for f in examine(own_shop) if "web search" in f.what}
    assert told == {
        "knowledge base web: web search by nobody": "Set `provider` or `path`; until then nobody asks it.",
        "knowledge base news: web search by brave": "Set BRAVE_API_KEY in the environment.",
    }


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ('kind = "http"\nurl = "https://x.org"\ntetx = "/a"', r"unknown key 'knowledge\.new\.tetx'\. Did you mean 'text'"),
        ('kind = "web"\nprovidr = "brave"', r"line 15: unknown key 'knowledge\.new\.providr'\. Did you mean 'provider'"),
        ('path = "x"\nurl = "https://x.org"', r"unknown key 'knowledge\.new\.url'"),
        ('kind = "documents"', r"line 13: the key 'knowledge\.new\.path' is missing"),
        ('kind = "http"\nurl = "https://x.org"', r"the key 'knowledge\.new\.text' is missing"),
        ('kind = "documnets"\npath = "x"', r"no kind 'documnets'; did you mean 'documents'"),
        ('kind = 7', r"knowledge\.new\.kind is not valid"),
        ('kind = "web"\nprovider = "brave"\npath = "x"', r"knowledge\.new is not valid: give a path .*, not both\."),
        ('kind = "web"\nprovider = "searxng"', "needs the url"),
        ('kind = "http"\ntext = "a"\nurl = "https://x.org"', r"knowledge\.new\.text is not valid"),
        ('kind = "http"\ntext = "/a"\nurl = "https://{query}.org/"', r"knowledge\.new\.url is not valid"),
        ('kind = "http"\ntext = "/a"\nurl = "file:///etc/passwd"', r"knowledge\.new\.url is not valid"),
        ('path = "x"\nchunk_tokens = 1', r"knowledge\.new\.chunk_tokens is not valid"),
    ],
)  # fmt: skip
def test_a_mistake_in_any_kind_is_told_with_its_key(add: Add, toml: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        add(f"[knowledge.new]\n{toml}\n")


def test_the_size_of_passages_and_files_is_set_by_base(add: Add, own_shop: Path) -> None:
    folder = own_shop / "knowledge" / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("# Notes\n\n" + "\n\n".join(["A lock is shut at night."] * 40))
    (folder / "b.txt").write_text("x " * 30_000)
    project = add('[knowledge.notes]\npath = "knowledge/notes"\nchunk_tokens = 50\nmax_megabytes = 0.05\n')
    ids = [p.id for p in open_library(project).passages() if p.source == "notes"]
    assert len(ids) > 4 and all(i.startswith("notes/a.md#notes") for i in ids)


def test_the_environment_may_turn_a_base_of_any_kind(own_shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"kind": "http", "url": "https://x.org/{query}", "text": "/t"}
    monkeypatch.setenv("RAGC_KNOWLEDGE", json.dumps({"stock": base}))
    assert Project.open(own_shop).settings.knowledge["stock"].kind == "http"
