from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from qdrant_client import QdrantClient
from qdrant_server import KEY, qdrant_server
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.bases import BaseSpec
from program.knowledge.index import build_index
from program.knowledge.library import Library
from program.knowledge.source import Filters
from program.knowledge.vectors import QdrantVectors

QUESTION = "how many days until a yearly plan is refunded"


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
