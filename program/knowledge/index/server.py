"""An index on a Qdrant server: filled when it is made, asked by those who read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from program.errors import KnowledgeError
from program.knowledge.index import generation
from program.knowledge.index.generation import MEND, Index
from program.knowledge.index.keywords import QdrantKeywords, sparse_rows
from program.knowledge.index.vectors import QdrantVectors, connect, open_qdrant
from program.models.embedded.encoder import Embedder
from program.passage import keyword_text


def fill(place: Path, embedder: Embedder, url: str, above: int) -> bool:
    """See that the server at `url` holds the generation in `place`; True when it did already.

    Past `above` passages their words go there, too.
    """
    index = generation.read(place, embedder.digest)
    words = len(index.passages) > above
    with open_qdrant(url) as client:
        store = QdrantVectors(client, place.name, url)
        held = store.holds(len(index.passages), words)
        if not held:
            sparse = sparse_rows(index.keywords, map(keyword_text, index.passages)) if words else None
            store.write(index.matrix, index.selection, [p.id for p in index.passages], sparse)
    return held


def served(index: Index, name: str, url: str, above: int) -> Index:
    """The index with its vectors, and past `above` passages its words, asked of the server at `url`.

    Raises KnowledgeError when the server does not hold the generation of that name.
    """
    store = QdrantVectors(connect(url), name, url)
    words = len(index.passages) > above
    if not store.holds(len(index.passages), words):
        raise KnowledgeError("The Qdrant server does not hold this index.", MEND)
    return replace(index, vectors=store, lexical=QdrantKeywords(store, index.keywords) if words else index.lexical)


def drop(name: str, url: str) -> None:
    """Remove a generation from the server."""
    with open_qdrant(url) as client:
        QdrantVectors(client, name, url).delete()
