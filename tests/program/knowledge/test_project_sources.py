"""Every kind of knowledge base from its table in ragc.toml to an answer, and a project whose files changed."""

import logging
import os
import sqlite3
import sys

import pytest
from web_server import Reply, web_server

from ragc import open_program
from ragc.errors import KnowledgeError, SettingsError
from ragc.knowledge.index.build import index_project
from ragc.knowledge.project import Project
from ragc.optimize.report.doctor import examine_setup
from ragc.serve.opening import open_library
from tests.conftest import add_toml

KETTLES = "knowledge/product/kettles.md"
PACKAGE = """
from dataclasses import replace
from ragc.passage import NO_FILTERS, Passage, Source

class Notes(Source):
    def __init__(self, card, options, embedder):
        self.card, self.text = card, options["text"]
    def describe(self):
        return self.card
    def candidates(self, query, depth, filters=NO_FILTERS):
        return [Passage(f"{self.name}/1", self.name, "A note", self.text, 0.9, "note")][:depth]

def misnamed(card, options, embedder):
    return Notes(replace(card, name="other"), options, embedder)
"""


@pytest.fixture
def server():
    with web_server() as served:
        yield served


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `ragc-notes`, installed: its module and its dist-info are on the path."""
    site = tmp_path / "site"
    info = site / "ragc_notes-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "ragc_notes.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ragc-notes\nVersion: 1.0\n")
    points = "[ragc.sources]\nnotes = ragc_notes:Notes\nmisnamed = ragc_notes:misnamed\nabsent = ragc_notes:Absent\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "ragc_notes", raising=False)


def stock(server):
    return (
        f'[knowledge.stock]\nkind = "http"\nabout = "what is in stock"\nurl = "{server.url}/stock?q={{query}}"\n'
        'text = "/t"\nallow_private = true\n'
    )


def texts(folder):
    return " ".join(passage.text for passage in open_library(Project.open(folder)).passages())


def change_volume(folder):
    path = folder / KETTLES
    path.write_text(path.read_text().replace("1.7 litres", "2.3 litres"))  # of the same length


def test_a_kind_of_an_installed_package_is_a_source(own_shop, package):
    project = add_toml(
        own_shop, '[knowledge.notes]\nkind = "notes"\nabout = "notes"\n[knowledge.notes.options]\ntext = "Call Ann."\n'
    )
    library = open_library(project)
    assert [p.text for p in library.search("whom to call", ["notes"])] == ["Call Ann."]
    assert library.describe()[-1].describe() == "notes."


def test_no_code_runs_for_a_kind_that_no_package_brings(own_shop):
    (own_shop / "ragc_notes.py").write_text("raise SystemExit('it ran')")
    for kind in ("notes", "ragc_notes:Notes"):
        with pytest.raises(SettingsError, match="there is no kind"):
            add_toml(own_shop, f'[knowledge.notes{len(kind)}]\nkind = "{kind}"\n')


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("notes", r"'notes' of the package ragc-notes cannot be opened: KeyError"),
        ("absent", r"ragc-notes cannot be opened: AttributeError"),
        ("misnamed", r"is not a source of that name"),
    ],
)
def test_a_package_that_fails_is_named(own_shop, package, kind, complaint):
    options = '[knowledge.notes.options]\ntext = "x"\n' if kind == "misnamed" else ""
    with pytest.raises(KnowledgeError, match=complaint):
        open_library(add_toml(own_shop, f'[knowledge.notes]\nkind = "{kind}"\n{options}'))


def test_an_http_source_answers_beside_the_documents_and_an_answer_says_when_it_failed(own_shop, server):
    server.replies["/stock"] = Reply([{"t": "There are 41 Merle kettles in stock."}])
    project = add_toml(own_shop, stock(server))
    found = open_library(project).search("how many Merle kettles are in stock", k=8)
    assert {"stock", "product"} <= {p.source for p in found}
    server.replies["/stock"] = Reply("down", status=500)
    answer = open_program(project)("How much water does the Merle kettle hold?")
    assert "1.7 litres" in answer.text and answer.degraded[0] in answer.trace.path
    assert answer.degraded == ("not searched: stock (The JSON API of stock answered with status 500)",)


def test_without_a_provider_or_its_key_there_is_no_web_to_route_to(own_shop, monkeypatch):
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    project = add_toml(own_shop, '[knowledge.web]\nkind = "web"\n[knowledge.news]\nkind = "web"\nprovider = "brave"\n')
    assert [card.name for card in open_library(project).describe()] == ["product", "billing"]
    told = {f.what: f.mend for f in examine_setup(own_shop) if "web search" in f.what}
    assert told == {
        "knowledge base web: web search by nobody": "Set `provider` or `path`; until then nobody asks it.",
        "knowledge base news: web search by brave": "Set BRAVE_API_KEY in the environment.",
    }


def test_a_project_is_indexed_again_when_it_changed_and_only_then(own_shop):
    assert "1.7 litres" in open_program(own_shop)("How much water does the Merle kettle hold?").text
    before = {path: path.stat().st_mtime_ns for path in (own_shop / ".ragc/index").rglob("*")}
    open_library(Project.open(own_shop))
    assert {path: path.stat().st_mtime_ns for path in (own_shop / ".ragc/index").rglob("*")} == before
    change_volume(own_shop)
    assert "2.3 litres" in open_program(own_shop)("How much water does the Merle kettle hold?").text
    for path in (own_shop / "knowledge/product").iterdir():
        path.unlink()
    with pytest.raises(KnowledgeError, match="holds no text"):
        open_program(own_shop)


def test_a_file_that_changes_while_it_is_indexed_is_indexed_at_the_next_opening(own_shop):
    index_project(Project.open(own_shop), lambda done, of: change_volume(own_shop))
    assert "2.3 litres" in texts(own_shop)


def test_an_index_that_cannot_be_written_is_used_and_the_log_says_so(own_shop, monkeypatch, caplog):
    open_library(Project.open(own_shop))
    (own_shop / KETTLES).write_text("# Kettles\nAll new.")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # whoever runs the tests may write anywhere
    with caplog.at_level(logging.WARNING, logger="ragc"):
        assert "1.7 litres" in texts(own_shop)
    assert "may have changed since it was indexed" in caplog.text


def test_a_database_is_read_again_when_it_changes_and_its_rows_answer_without_a_key(own_shop):
    def write(script):
        with sqlite3.connect(own_shop / "desk.db") as connection:
            connection.executescript(script)

    write("CREATE TABLE boats (name TEXT, keeper TEXT); INSERT INTO boats VALUES ('Otter', 'Paul Nowak');")
    add_toml(own_shop, '[knowledge.desk]\nkind = "tables"\nurl = "sqlite:///desk.db"\nabout = "boats and keepers"')
    rag = open_program(own_shop)
    assert (
        "Otter, keeper: Paul Nowak [1]." in rag("Who is the keeper of the boat Otter?").text and rag.view().tables == {}
    )
    write("UPDATE boats SET keeper = 'Inga Holm';")
    assert "Inga Holm" in open_program(own_shop)("Who is the keeper of the boat Otter?").text
    (own_shop / "desk.db").unlink()
    with pytest.raises(KnowledgeError, match="There is no database file"):
        open_program(own_shop)
