"""What sources that are asked at question time share: their items scored like the passages of an index."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from program.knowledge.index.keywords import Keywords
from program.models.embedded.encoder import Embedder
from program.passage import NO_FILTERS, Filters, Passage, SourceCard, embedding_text, unique


class LiveSource(ABC):
    """A source behind a network: `found` asks it, the rest follows. Safe from many threads."""

    def __init__(self, card: SourceCard, embedder: Embedder) -> None:
        self.card = card
        self.embedder = embedder

    @property
    def name(self) -> str:
        return self.card.name

    def describe(self) -> SourceCard:
        return self.card

    @abstractmethod
    def found(self, query: str) -> Sequence[Passage]:
        """The passages that the far end has for a query, unscored. Raises KnowledgeError when it cannot say."""

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """What was found and passes the filters, nearest first, with the part scores of document passages."""
        if depth <= 0 or not query.strip():
            return []
        return scored([p for p in self.found(query) if filters.admits(p)], query, self.embedder)[:depth]

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """The nearest `k` of the candidates."""
        return self.candidates(query, k, filters)

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """`search` without holding up the event loop."""
        return await asyncio.to_thread(self.search, query, k, filters)


def scored(passages: Sequence[Passage], query: str, embedder: Embedder) -> list[Passage]:
    """The passages by cosine, which is their score; `scores` holds `dense` and, among these passages, `keyword`."""
    kept = unique(passages)
    if not kept:
        return []
    texts = [embedding_text(p) for p in kept]
    cosines = np.round(embedder.encode(texts) @ embedder.encode([query])[0], 6)
    keyword = np.maximum(Keywords.build(texts).scores(query), 0.0)
    order = sorted(range(len(kept)), key=lambda at: (-cosines[at], kept[at].id))
    return [
        kept[at].rescored(float(cosines[at]), scores={"dense": float(cosines[at]), "keyword": float(keyword[at])})
        for at in order
    ]


def passage_id(name: str, *parts: str) -> str:
    """`<base>/<digest>` of what tells an item from others: the same item has the same id every time."""
    return f"{name}/{hashlib.sha256(chr(0).join(parts).encode('utf-8', 'replace')).hexdigest()[:16]}"
