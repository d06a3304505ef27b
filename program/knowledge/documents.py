"""A folder of documents as a source: dense, keyword and graph search over its part of the project's index."""

from __future__ import annotations

import asyncio
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from program.knowledge.index.fusion import STRATEGIES, TEXT_METHODS, WEIGHT, fuse, rank_positions
from program.knowledge.index.graph_search import GraphScores, score_passages
from program.knowledge.index.store import Index
from program.knowledge.index.vectors import best_rows
from program.models.embedded.encoder import Embedder
from program.passage import NO_FILTERS, Filters, Passage, SourceCard

DEPTH = 60  # how many passages each of dense and keyword search brings to the pool; the graph brings half as many
MAX_WALKS = 32  # questions whose walk is kept: the bases of a project are searched one after the other for each


class HybridSearch:
    """The search over an index that a project's bases share. Safe from many threads."""

    def __init__(self, index: Index, embedder: Embedder) -> None:
        self.index = index
        self.embedder = embedder
        self._titles = [p.title for p in index.passages]
        self._walk_graph = lru_cache(MAX_WALKS)(self._score_graph)

    def find_candidates(self, query: str, depth: int, base: str, filters: Filters, graph: bool) -> list[Passage]:
        """Return the nearest of a base, the best by BM25 and by the graph, nearest first.

        There are `depth` of the first two each, and half as many by the graph. `scores` holds `dense`, the cosine,
        `keyword`, BM25 with the document frequencies of the whole project, and `graph` from a walk over the whole
        project, so that scores of different bases compare. Without `graph` its part is left out, and what only it
        reaches. A blank query finds nothing.
        """
        if depth <= 0 or not query.strip():
            return []
        index = self.index
        vector = self.embedder.encode([query])[0]
        cosine = dict(index.vectors.search(vector, depth, base, filters))
        matched = [row for row, _ in index.lexical.search(query, depth, base, filters)]
        by_text = {*cosine, *matched}
        linked: list[int] = []
        walk = self._walk_graph(query) if graph else None
        if walk:
            admitted = index.selection.admitted_rows(base, filters)
            linked = best_rows(walk.scores, admitted[walk.scores[admitted] > 0], (depth + 1) // 2)
        rest = [row for row in dict.fromkeys((*matched, *linked)) if row not in cosine]
        cosine.update(zip(rest, index.vectors.similarities(vector, rest), strict=True))
        order = sorted(cosine, key=lambda row: (-cosine[row], index.passages[row].id))
        words = index.lexical.scores(query, order)
        found = zip(order, words, strict=True)
        return [self._score_row(row, cosine[row], bm25, walk, row in by_text) for row, bm25 in found]

    def _score_row(self, row: int, cosine: float, bm25: float, walk: GraphScores | None, by_text: bool) -> Passage:
        passage = self.index.passages[row]
        method = passage.method
        if method in TEXT_METHODS:
            method = "graph" if not by_text else "both" if bm25 > 0 else "dense"
        parts = {"dense": cosine, "keyword": bm25}
        if walk is None:
            return passage.rescored(cosine, method, parts)
        parts["graph"] = float(walk.scores[row])
        return passage.rescored(cosine, method, parts, walk.explain_way(row, self._titles))

    def _score_graph(self, query: str) -> GraphScores:
        """Return the graph's scores, from what text search finds in all bases."""
        index, vector = self.index, self.embedder.encode([query])[0]
        text = self._score_text(query, vector)
        return score_passages(index.graph, index.keywords, index.matrix, question=query, vector=vector, text=text)

    def _score_text(self, query: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the default fusion by passage, 0 beyond the DEPTH best of each part."""
        index = self.index
        cosine = dict(index.vectors.search(vector, DEPTH))
        rest = [row for row, _ in index.lexical.search(query, DEPTH) if row not in cosine]
        cosine.update(zip(rest, index.vectors.similarities(vector, rest), strict=True))
        rows = list(cosine)
        pool = [
            index.passages[row].rescored(0.0, None, {"dense": cosine[row], "keyword": bm25})
            for row, bm25 in zip(rows, index.lexical.scores(query, rows), strict=True)
        ]
        text = np.zeros(len(index.passages), np.float32)
        for at, score in rank_positions(pool, WEIGHT, len(pool)):
            text[rows[at]] = score
        return text


class Documents:
    """One base of documents or saved web pages. Safe from many threads."""

    def __init__(self, card: SourceCard, search: HybridSearch) -> None:
        search.index.selection.base_rows(card.name)  # an unindexed base is named now, not at the first question
        self.card = card
        self.hybrid = search

    @property
    def name(self) -> str:
        return self.card.name

    def describe(self) -> SourceCard:
        return self.card

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS, *, graph: bool = True) -> list[Passage]:
        """Return the pool of `HybridSearch.find_candidates` in this base."""
        return self.hybrid.find_candidates(query, depth, self.name, filters, graph)

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """Return the best `k` by the strategy `auto`, or `graph` for that kind of base."""
        weight, graph = STRATEGIES["graph" if self.card.kind == "graph" else "auto"]
        return fuse(self.candidates(query, max(k, DEPTH) if k > 0 else 0, filters), weight, k, graph=graph)

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return await asyncio.to_thread(self.search, query, k, filters)
