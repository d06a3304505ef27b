"""What searches found, kept for other processes: the same to the bit, and only of what is still searched."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from word_embedder import WordEmbedder

from program.knowledge.bases import BaseSpec
from program.knowledge.documents import Documents
from program.knowledge.index.poolfile import PoolFile
from program.knowledge.index.store import build_index
from program.knowledge.library import Library
from program.knowledge.tables import TableSource
from program.passage import Filters, SourceCard

QUESTION = "how many days until a yearly plan is refunded"
ORDERS = "How many orders are there?"


@pytest.fixture
def opened(bases: list[BaseSpec], tmp_path: Path):
    """Opens the library anew, as another process would, with a folder of CSV files beside the documents."""
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/orders.csv").write_text("id,city\n1,Ghent\n2,Leith\n")

    def open_(kept: bool = True) -> Library:
        build_index(bases, tmp_path / "index", WordEmbedder())
        card = SourceCard("rows", "tables", "orders")
        tables = TableSource("rows", card, tmp_path / "rows", WordEmbedder())
        library = Library.open(bases, tmp_path / "index", WordEmbedder(), [tables])
        if kept:
            library.remember_in(tmp_path / "kept")
        return library

    return open_


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that were really searched."""
    found: list[str] = []
    for kind in (Documents, TableSource):
        method = kind.candidates

        def candidates(self, *arguments, method=method, **named):
            found.append(self.name)
            return method(self, *arguments, **named)

        monkeypatch.setattr(kind, "candidates", candidates)
    return found


@pytest.mark.parametrize("question", [QUESTION, ORDERS])
def test_another_process_finds_the_same_to_the_bit_without_a_search(opened, searched, question) -> None:
    fresh = opened(kept=False).candidates(question)
    first = opened().candidates(question)
    searched.clear()
    again = opened().candidates(question)
    assert searched == []
    assert [asdict(p) for p in again] == [asdict(p) for p in first] == [asdict(p) for p in fresh]
    assert len(again) > 1


def test_every_way_of_searching_is_kept_by_itself(opened, searched) -> None:
    library = opened()
    ways = [{}, {"depth": 3}, {"filters": Filters(min_authority=3)}, {"graph": False}]
    found = [library.candidates(QUESTION, ["billing"], **way) for way in ways]
    searched.clear()
    again = opened()
    assert [again.candidates(QUESTION, ["billing"], **way) for way in ways] == found
    assert searched == []
    again.candidates(QUESTION.upper(), ["billing"])
    assert searched == ["billing"]


def test_what_changed_is_searched_anew(opened, searched, knowledge: Path, tmp_path: Path) -> None:
    opened().candidates(QUESTION)
    (knowledge / "billing/new.md").write_text("# New\nA yearly plan is refunded until day 99.")
    (tmp_path / "rows/orders.csv").write_text("id,city\n1,Ghent\n")
    searched.clear()
    found = opened().candidates(QUESTION)
    assert set(searched) == {"product", "billing", "web", "rows"}
    assert any("day 99" in p.text for p in found)


def test_a_damaged_file_or_one_that_cannot_be_made_costs_only_the_search(opened, searched, tmp_path: Path) -> None:
    fresh = opened(kept=False).candidates(QUESTION)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/searched.sqlite").write_bytes(b"no database " * 100)
    assert opened().candidates(QUESTION) == fresh
    other = opened(kept=False)
    other.remember_in(tmp_path / "rows/orders.csv")
    assert other.candidates(QUESTION) == fresh


def test_a_full_file_makes_room(opened, tmp_path: Path) -> None:
    library = opened(kept=False)
    file = PoolFile(tmp_path / "small.sqlite", most=100_000)
    found = library.candidates(QUESTION)
    for n in range(200):
        file.put((n,), found, library.index)
    assert file.get((199,), library.index) == tuple(found)
    assert file.get((0,), library.index) is None
    assert (tmp_path / "small.sqlite").stat().st_size < 1_000_000


SEARCH = """
import json, sys
from program.knowledge.documents import Documents
from program.opening import open_library
from program.settings import Project
library = open_library(Project.open(sys.argv[1]))
searched = []
whole = Documents.candidates
Documents.candidates = lambda self, *a, **k: searched.append(self.name) or whole(self, *a, **k)
found = library.candidates("How much water does the kettle hold?")
print(json.dumps({"searched": searched, "found": [[p.id, p.score, p.text] for p in found]}))
"""


def test_two_processes_on_a_project_search_once_until_it_is_indexed_anew(own_shop: Path) -> None:
    def search() -> dict:
        done = subprocess.run([sys.executable, "-c", SEARCH, str(own_shop)], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    first, second = search(), search()
    assert first["searched"] == ["product", "billing"]
    assert second == {**first, "searched": []}
    path = own_shop / "knowledge/product/kettles.md"
    path.write_text(path.read_text().replace("1.7 litres", "2.3 litres"))
    third = search()
    assert third["searched"] == ["product", "billing"]
    assert "2.3 litres" in str(third["found"])
