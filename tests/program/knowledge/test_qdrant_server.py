from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from qdrant_client import QdrantClient
from qdrant_server import KEY, qdrant_server
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.index.build import build_index
from program.knowledge.index.keywords import QdrantKeywords
from program.knowledge.index.vectors import QdrantVectors
from program.knowledge.ingest.folder import BaseSpec
from program.knowledge.library import Library
from program.passage import Filters, keyword_text

QUESTION = "how many days until a yearly plan is refunded"
K1, B = 1.5, 0.75


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, QdrantClient]]:
    monkeypatch.setenv("QDRANT_API_KEY", KEY)
    with qdrant_server() as served:
        yield served


@pytest.mark.parametrize("filters", [Filters(), Filters(min_authority=3)])
def test_a_search_on_the_server_finds_what_a_search_in_the_folder_finds(
    bases: list[BaseSpec], tmp_path: Path, server: tuple[str, QdrantClient], filters: Filters
) -> None:
    url, folder = server[0], tmp_path / "index"
    build_index(bases, folder, WordEmbedder())
    build_index(bases, folder, WordEmbedder(), qdrant_url=url)
    near = Library.open(bases, folder, WordEmbedder())
    far = Library.open(bases, folder, WordEmbedder(), qdrant_url=url)
    assert far.index is not None and isinstance(far.index.vectors, QdrantVectors)
    for depth in (2, 60):
        here = near.search(QUESTION, k=5, depth=depth, filters=filters)
        there = far.search(QUESTION, k=5, depth=depth, filters=filters)
        assert [p.id for p in there] == [p.id for p in here]
        assert [p.score for p in there] == pytest.approx([p.score for p in here], abs=1e-4)


@pytest.mark.parametrize("filters", [Filters(), Filters(min_authority=3)])
def test_past_the_bound_words_are_searched_on_the_server_under_the_same_filters(
    bases: list[BaseSpec], tmp_path: Path, server: tuple[str, QdrantClient], filters: Filters
) -> None:
    url, folder = server[0], tmp_path / "index"
    build_index(bases, folder, WordEmbedder(), qdrant_url=url, server_above=0)
    near = Library.open(bases, folder, WordEmbedder())
    far = Library.open(bases, folder, WordEmbedder(), qdrant_url=url, server_above=0)
    assert far.index is not None and isinstance(far.index.lexical, QdrantKeywords)
    here = near.search(QUESTION, k=5, weight=0.0, graph=0.0, filters=filters)
    there = far.search(QUESTION, k=5, weight=0.0, graph=0.0, filters=filters)
    # Of so few passages many words are in half, which BM25 takes for no match and Qdrant's IDF does not.
    assert {p.id for p in there if p.score > 0} >= {p.id for p in here if p.score > 0} > set()
    assert there[0].id == here[0].id and all(filters.admits(p) for p in there)
    assert far.search("zyzzyva", k=5, weight=0.0, graph=0.0)[0].scores["keyword"] == 0


def test_the_servers_word_scores_are_bm25_under_its_idf(
    bases: list[BaseSpec], tmp_path: Path, server: tuple[str, QdrantClient]
) -> None:
    url, folder = server[0], tmp_path / "index"
    build_index(bases, folder, WordEmbedder(), qdrant_url=url, server_above=0)
    index = Library.open(bases, folder, WordEmbedder(), qdrant_url=url, server_above=0).index
    assert index is not None
    rows = range(len(index.passages))
    texts = [index.keywords.split(keyword_text(p)) for p in index.passages]
    mean = sum(map(len, texts)) / len(texts)
    expected = [0.0] * len(texts)
    for term in index.keywords.split(QUESTION):
        holding = sum(term in text for text in texts)
        idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        for row, text in enumerate(texts):
            f = text.count(term)
            expected[row] += idf * f * (K1 + 1) / (f + K1 * (1 - B + B * len(text) / mean)) if f else 0.0
    assert index.lexical.scores(QUESTION, rows) == pytest.approx(expected, abs=1e-4)


def test_a_server_that_was_filled_without_words_is_filled_again(
    bases: list[BaseSpec], tmp_path: Path, server: tuple[str, QdrantClient]
) -> None:
    url, folder = server[0], tmp_path / "index"
    build_index(bases, folder, WordEmbedder(), qdrant_url=url)
    with pytest.raises(KnowledgeError, match=r"does not hold this index.*ragc index"):
        Library.open(bases, folder, WordEmbedder(), qdrant_url=url, server_above=0)
    assert not build_index(bases, folder, WordEmbedder(), qdrant_url=url, server_above=0).unchanged
    Library.open(bases, folder, WordEmbedder(), qdrant_url=url, server_above=0)


def test_a_server_that_is_lost_between_two_questions_is_named_and_the_index_stays(
    bases: list[BaseSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", KEY)
    folder = tmp_path / "index"
    with qdrant_server() as (url, _):
        build_index(bases, folder, WordEmbedder(), qdrant_url=url, server_above=0)
        library = Library.open(bases, folder, WordEmbedder(), qdrant_url=url, server_above=0)
        assert library.search(QUESTION)
    with pytest.raises(KnowledgeError, match=r"Qdrant in .* did not do as asked"):
        library.search("another question about a plan")
    assert Library.open(bases, folder, WordEmbedder()).search(QUESTION)


def test_indexing_fills_the_server_once_and_drops_what_no_reader_needs(
    bases: list[BaseSpec], knowledge: Path, tmp_path: Path, server: tuple[str, QdrantClient]
) -> None:
    (url, store), folder = server, tmp_path / "index"
    assert not build_index(bases, folder, WordEmbedder(), qdrant_url=url).unchanged
    assert build_index(bases, folder, WordEmbedder(), qdrant_url=url).unchanged
    assert not list(folder.glob("gen-*/qdrant"))
    for n in range(3):
        (knowledge / f"product/new{n}.md").write_text(f"# New {n}\n\nText {n}.\n")
        build_index(bases, folder, WordEmbedder(), qdrant_url=url)
    names = {c.name for c in store.get_collections().collections}
    assert names == {p.name for p in folder.glob("gen-*")} and len(names) == 2


def test_a_server_that_lost_the_index_is_named_and_filled_again(
    bases: list[BaseSpec], tmp_path: Path, server: tuple[str, QdrantClient]
) -> None:
    (url, store), folder = server, tmp_path / "index"
    build_index(bases, folder, WordEmbedder(), qdrant_url=url)
    for collection in store.get_collections().collections:
        store.delete_collection(collection.name)
    with pytest.raises(KnowledgeError, match=r"does not hold this index.*ragc index"):
        Library.open(bases, folder, WordEmbedder(), qdrant_url=url)
    report = build_index(bases, folder, WordEmbedder(), qdrant_url=url)
    assert not report.unchanged and report.embedded == 0
    Library.open(bases, folder, WordEmbedder(), qdrant_url=url)


def test_a_refused_key_is_an_error_and_leaves_the_last_index(
    bases: list[BaseSpec],
    knowledge: Path,
    tmp_path: Path,
    server: tuple[str, QdrantClient],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, folder = server[0], tmp_path / "index"
    first = build_index(bases, folder, WordEmbedder(), qdrant_url=url)
    (knowledge / "product/new.md").write_text("# New\n\nText.\n")
    monkeypatch.setenv("QDRANT_API_KEY", "wrong")
    with pytest.raises(KnowledgeError, match="QDRANT_API_KEY"):
        build_index(bases, folder, WordEmbedder(), qdrant_url=url)
    monkeypatch.setenv("QDRANT_API_KEY", KEY)
    assert Library.open(bases, folder, WordEmbedder(), qdrant_url=url).index_digest == first.index_digest
