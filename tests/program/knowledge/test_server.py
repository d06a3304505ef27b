"""Against the real Qdrant server at QDRANT_URL, when there is one: `docker compose up -d qdrant` starts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.index.build import build_index
from program.knowledge.index.keywords import QdrantKeywords
from program.knowledge.index.vectors import QdrantVectors, connect
from program.knowledge.ingest.folder import BaseSpec
from program.knowledge.library import Library
from program.passage import Filters

URL = os.environ.get("QDRANT_URL", "")
QUESTION = "how many days until a yearly plan is refunded"

pytestmark = [pytest.mark.server, pytest.mark.skipif(not URL, reason="QDRANT_URL is not set")]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for an index; its collections are removed from the server in the end."""
    place = tmp_path / "index"
    yield place
    client = connect(URL)
    for generation in place.glob("gen-*"):
        client.delete_collection(generation.name)
    client.close()


@pytest.mark.parametrize("filters", [Filters(), Filters(min_authority=3)])
def test_the_server_finds_what_the_folder_finds(bases: list[BaseSpec], folder: Path, filters: Filters) -> None:
    build_index(bases, folder, WordEmbedder(), qdrant_url=URL)
    near = Library.open(bases, folder, WordEmbedder())
    far = Library.open(bases, folder, WordEmbedder(), qdrant_url=URL)
    assert far.index is not None and isinstance(far.index.vectors, QdrantVectors)
    here, there = (library.search(QUESTION, k=5, filters=filters) for library in (near, far))
    assert [p.id for p in there] == [p.id for p in here]
    assert [p.score for p in there] == pytest.approx([p.score for p in here], abs=1e-3)


def test_past_the_bound_the_server_searches_words_too(bases: list[BaseSpec], folder: Path) -> None:
    build_index(bases, folder, WordEmbedder(), qdrant_url=URL, server_above=0)
    near = Library.open(bases, folder, WordEmbedder())
    far = Library.open(bases, folder, WordEmbedder(), qdrant_url=URL, server_above=0)
    assert far.index is not None and isinstance(far.index.lexical, QdrantKeywords)
    here, there = (library.search(QUESTION, k=5, weight=0.0, graph=0.0) for library in (near, far))
    assert {p.id for p in there if p.score > 0} >= {p.id for p in here if p.score > 0} > set()


def test_indexing_again_fills_the_server_with_what_changed(
    bases: list[BaseSpec], knowledge: Path, folder: Path
) -> None:
    build_index(bases, folder, WordEmbedder(), qdrant_url=URL)
    assert build_index(bases, folder, WordEmbedder(), qdrant_url=URL).unchanged
    (knowledge / "product/new.md").write_text("# New\n\nA Warden lock in green.\n")
    build_index(bases, folder, WordEmbedder(), qdrant_url=URL)
    found = Library.open(bases, folder, WordEmbedder(), qdrant_url=URL).search("a lock in green", k=1)
    assert [p.id for p in found] == ["product/new.md#new"]


def test_a_collection_that_is_lost_is_named(bases: list[BaseSpec], folder: Path) -> None:
    build_index(bases, folder, WordEmbedder(), qdrant_url=URL)
    library = Library.open(bases, folder, WordEmbedder(), qdrant_url=URL)
    client = connect(URL)
    for generation in folder.glob("gen-*"):
        client.delete_collection(generation.name)
    client.close()
    with pytest.raises(KnowledgeError, match=r"Qdrant in .* did not do as asked"):
        library.search(QUESTION)
    with pytest.raises(KnowledgeError, match=r"does not hold this index.*ragc index"):
        Library.open(bases, folder, WordEmbedder(), qdrant_url=URL)
