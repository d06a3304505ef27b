from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.index.build import build_index
from program.knowledge.ingest.folder import BaseSpec
from program.knowledge.library import Library
from program.passage import NO_FILTERS, Filters, Passage, SourceCard

QUESTION = "how many days until a yearly plan is refunded"


class Orders:
    """A source made elsewhere, whose one row changes between two looks."""

    name = "orders"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def describe(self) -> SourceCard:
        return SourceCard("orders", "tables", "orders")

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        self.asked.append(query)
        return [
            Passage(
                id="orders#1",
                source="orders",
                title="t",
                text=f"look {len(self.asked)}",
                score=0.9,
                method="sql",
            )
        ]

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return self.candidates(query, k, filters)[:k]

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return self.search(query, k, filters)


@pytest.fixture
def folder(bases: list[BaseSpec], tmp_path: Path) -> Path:
    build_index(bases, tmp_path / "index", WordEmbedder())
    return tmp_path / "index"


@pytest.fixture
def library(bases: list[BaseSpec], folder: Path, embedder: WordEmbedder) -> Library:
    return Library.open(bases, folder, embedder, [Orders()])


def ids(passages: Sequence[Passage]) -> list[str]:
    return [p.id for p in passages]


def test_cards_are_those_of_the_project_in_its_order(library: Library) -> None:
    assert [(c.name, c.kind) for c in library.describe()] == [
        ("product", "documents"), ("billing", "documents"), ("web", "web"), ("orders", "tables"),
    ]  # fmt: skip
    assert library.describe()[1].not_ == ("plans: product",)


def test_a_search_pools_its_sources_with_one_embedding_of_the_query(library: Library, embedder: WordEmbedder) -> None:
    found = library.search(QUESTION, ["product", "billing", "web"], k=4, weight=0.5)
    assert found[0].source == "billing" and len(found) == 4
    assert embedder.computed == [QUESTION]


def test_a_search_without_sources_looks_into_all(library: Library) -> None:
    assert {p.source for p in library.search(QUESTION, k=20)} == {"product", "billing", "web", "orders"}
    assert library.search(QUESTION, [], k=20) == []


def test_weight_one_orders_by_cosine_and_weight_zero_by_bm25(library: Library) -> None:
    pool = library.candidates(QUESTION, ["product", "billing"])
    for weight, part in ((1.0, "dense"), (0.0, "keyword")):
        found = library.search(QUESTION, ["product", "billing"], 20, weight, graph=0)
        expected = sorted((-p.scores[part], p.id) for p in pool)
        assert ids(found) == [id for _, id in expected]


def test_filters_reach_every_document_source(library: Library) -> None:
    found = library.search(QUESTION, ["product", "billing", "web"], 20, filters=Filters(min_authority=3))
    assert found and all(p.authority == 3 for p in found)


def test_the_async_twins_find_the_same(library: Library) -> None:
    bases = ["product", "billing"]

    async def both() -> tuple[list[Passage], list[Passage]]:
        return await library.asearch(QUESTION, bases, 4, 0.3), await library.acandidates(QUESTION, bases, 9)

    assert asyncio.run(both()) == (
        library.search(QUESTION, bases, 4, 0.3),
        library.candidates(QUESTION, bases, 9),
    )


def test_a_glimpse_is_the_best_of_all_document_sources(library: Library) -> None:
    found = library.glimpse(QUESTION, 3)
    assert ids(found) == ids(library.search(QUESTION, ["product", "billing", "web"], 3))
    assert library.glimpse(QUESTION, 0) == []


def test_document_candidates_are_kept_and_those_of_other_sources_are_not(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = library.candidates(QUESTION)
    monkeypatch.setattr(WordEmbedder, "encode", None)  # a second look must not need it
    second = library.candidates(QUESTION)
    assert [p for p in first if p.source != "orders"] == [p for p in second if p.source != "orders"]
    assert [p.text for p in first + second if p.source == "orders"] == ["look 1", "look 2"]


def test_what_is_kept_depends_on_depth_and_filters(library: Library) -> None:
    everything = library.candidates(QUESTION, ["product"])
    assert len(library.candidates(QUESTION, ["product"], 1)) < len(everything)
    official = library.candidates(QUESTION, ["product"], filters=Filters(min_authority=3))
    assert ids(official) == [p.id for p in everything if p.authority == 3] != ids(everything)
    assert library.candidates(QUESTION, ["product"]) == everything


def test_passages_are_found_by_id_and_a_wrong_id_is_told_its_neighbour(library: Library) -> None:
    assert len(library.passages()) == 10
    for passage in library.passages():
        assert library.passage(passage.id) == passage
    with pytest.raises(KnowledgeError, match=r"Did you mean 'billing/refunds.md#invoices'"):
        library.passage("billing/refunds.md#invoice")


def test_an_unknown_source_is_an_error_that_names_the_known(library: Library) -> None:
    with pytest.raises(KnowledgeError, match=r"no source 'legal'.*product, billing, web, orders"):
        library.search(QUESTION, ["legal"])


def test_a_base_added_since_indexing_is_an_error_that_says_what_to_run(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder, knowledge: Path
) -> None:
    with pytest.raises(KnowledgeError, match=r"no knowledge base 'more'.*ragc index"):
        Library.open([*bases, BaseSpec("more", path=knowledge)], folder, embedder)


def test_two_sources_of_one_name_are_an_error(bases: list[BaseSpec], folder: Path, embedder: WordEmbedder) -> None:
    with pytest.raises(KnowledgeError, match=r"Two sources have the name 'orders'"):
        Library.open(bases, folder, embedder, [Orders(), Orders()])


def test_a_project_of_other_sources_only_needs_no_index(tmp_path: Path, embedder: WordEmbedder) -> None:
    library = Library.open([], tmp_path / "none", embedder, [Orders()])
    assert ids(library.search("orders of May", k=3)) == ["orders#1"]
    assert library.passages() == library.glimpse("x", 3) == []
    assert library.corpus_digest.startswith("sha256:")


def test_digests_are_those_of_the_index(library: Library, bases: list[BaseSpec], folder: Path) -> None:
    report = build_index(bases, folder, WordEmbedder())
    assert (library.index_digest, library.corpus_digest) == (report.index_digest, report.corpus_digest)


class Down(Orders):
    """A source that fails."""

    name = "down"

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        raise KnowledgeError("The search provider of down answered with status 500.", "Look whether it works.")


def test_a_source_that_fails_is_left_out_and_told_while_the_others_answer(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder
) -> None:
    library = Library.open(bases, folder, embedder, [Down()])
    told: list[tuple[str, str]] = []
    found = library.candidates(QUESTION, failed=lambda name, error: told.append((name, error.what)))
    assert {p.source for p in found} == {"product", "billing", "web"}
    assert told == [("down", "The search provider of down answered with status 500.")]
    assert ids(library.search(QUESTION, k=3)) == ids(library.search(QUESTION, ["product", "billing", "web"], 3))


def test_when_every_source_fails_the_search_does(bases: list[BaseSpec], folder: Path, embedder: WordEmbedder) -> None:
    library = Library.open(bases, folder, embedder, [Down()])
    with pytest.raises(KnowledgeError, match="status 500"):
        library.search(QUESTION, ["down"])
    with pytest.raises(KnowledgeError, match="no source 'legal'"):
        library.search(QUESTION, ["product", "legal"])
