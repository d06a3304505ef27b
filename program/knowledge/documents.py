"""A folder of documents as a source: dense, keyword and graph search over its part of the project's index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np

from ragc.knowledge.index.fusion import (
    STRATEGIES,
    TEXT_METHODS,
    WEIGHT,
    Floats,
    best_rows,
    fuse,
    name_copies,
    rank_positions,
)
from ragc.knowledge.index.graph_search import GraphScores, score_passages
from ragc.knowledge.index.store import Index
from ragc.models.embedded.encoder import Embedder
from ragc.passage import NO_FILTERS, Filters, Passage, Source, SourceCard

DEPTH = 60  # how many passages each of dense and keyword search brings to the pool; the graph brings half as many
MOST_COPIES = 10  # times the depth that is searched where an index holds texts several times
MOST_KEPT = 32  # questions whose scores are kept: the bases of a project are searched one after the other for each
KEPT_BYTES, PASSAGE_BYTES = 1 << 26, 20  # of those scores, by words and by the graph: in all, and for one passage


def count_kept(passages: int) -> int:
    """Return of how many questions the scores of so many passages are kept."""
    return max(1, min(MOST_KEPT, KEPT_BYTES // (PASSAGE_BYTES * max(passages, 1))))


class HybridSearch:
    """The search over an index that a project's bases share. Safe from many threads."""

    def __init__(self, index: Index, embedder: Embedder) -> None:
        self.index = index
        self.embedder = embedder
        self._titles = [p.title for p in index.passages]
        self._first = list(name_copies(index.passages).values())
        self._repeats = len(self._first) - len(set(self._first))
        kept = count_kept(len(index.passages))
        self._walk_graph = lru_cache(kept)(self._score_graph)
        # The BM25 of every passage; in a project of a few it can fall below zero, which is no match either.
        self._score_words = lru_cache(kept)(lambda query: np.maximum(index.keywords.scores(query), 0.0))

    def find_candidates(self, query: str, depth: int, base: str, filters: Filters, graph: bool) -> list[Passage]:
        """Return the nearest of a base, the best by BM25 and by the graph, nearest first.

        There are `depth` of the first two each, and half as many by the graph. `scores` holds `dense`, the cosine,
        `keyword`, BM25 with the document frequencies of the whole project, and `graph` from a walk over the whole
        project, so that scores of different bases compare. Without `graph` its part is left out, and what only it
        reaches. A blank query finds nothing.
        """
        if depth <= 0 or not query.strip():
            return []
        vector = self.embedder.encode([query])[0]
        by_text = self._find_by_text(query, vector, depth, base, filters)
        linked: list[int] = []
        walk = self._walk_graph(query) if graph else None
        if walk:
            admitted = self.index.admitted_rows(base, filters)
            linked = best_rows(walk.scores, admitted[walk.scores[admitted] > 0], (depth + 1) // 2)
        pool = self._score_rows(query, vector, dict.fromkeys((*by_text, *linked)))
        order = sorted(pool, key=lambda row: (-pool[row]["dense"], self.index.passages[row].id))
        return [self._make_candidate(row, pool[row], walk, row in by_text) for row in order]

    def _find_by_text(
        self, query: str, vector: Floats, depth: int, base: str | None = None, filters: Filters = NO_FILTERS
    ) -> dict[int, None]:
        """Return the rows of `depth` texts that dense search finds, then those that only keyword search does."""
        deep = min(depth + self._repeats, MOST_COPIES * depth)
        nearest = self.index.search(vector, deep, base, filters)
        scores, admitted = self._score_words(query), self.index.admitted_rows(base, filters)
        matching = best_rows(scores, admitted[scores[admitted] > 0], deep)
        return dict.fromkeys((*self._cut_texts(nearest, depth), *self._cut_texts(matching, depth)))

    def _cut_texts(self, rows: Sequence[int], depth: int) -> Sequence[int]:
        """Return the first rows, as many as hold `depth` texts, with all copies among them."""
        seen: set[str] = set()
        for n, row in enumerate(rows):
            seen.add(self._first[row])
            if len(seen) > depth:
                return rows[:n]
        return rows

    def _score_rows(self, query: str, vector: Floats, rows: Collection[int]) -> dict[int, dict[str, float]]:
        """Return the dense and the keyword part of each row."""
        found = list(rows)
        cosines, words = self.index.similarities(vector, found), self._score_words(query)[found].tolist()
        parts = zip(found, cosines, words, strict=True)
        return {row: {"dense": cosine, "keyword": bm25} for row, cosine, bm25 in parts}

    def _make_candidate(self, row: int, parts: dict[str, float], walk: GraphScores | None, by_text: bool) -> Passage:
        passage = self.index.passages[row]
        method = passage.method
        if method in TEXT_METHODS:
            method = "graph" if not by_text else "both" if parts["keyword"] > 0 else "dense"
        if walk is None:
            return passage.rescored(parts["dense"], method, parts)
        parts["graph"] = float(walk.scores[row])
        return passage.rescored(parts["dense"], method, parts, walk.explain_way(row, self._titles))

    def _score_graph(self, query: str) -> GraphScores:
        """Return the graph's scores, from the default fusion of what text search finds in all bases."""
        index, vector = self.index, self.embedder.encode([query])[0]
        pool = self._score_rows(query, vector, self._find_by_text(query, vector, DEPTH))
        rows = list(pool)
        passages = [index.passages[row].rescored(0.0, None, parts) for row, parts in pool.items()]
        text = np.zeros(len(index.passages), np.float32)
        for at, score in rank_positions(passages, WEIGHT, len(passages)):
            text[rows[at]] = score
        return score_passages(index.graph, index.keywords, index.matrix, question=query, vector=vector, text=text)


class Documents(Source):
    """One base of documents or saved web pages. Safe from many threads."""

    def __init__(self, card: SourceCard, search: HybridSearch) -> None:
        search.index.base_rows(card.name)  # an unindexed base is named now, not at the first question
        self.card = card
        self.hybrid = search

    def describe(self) -> SourceCard:
        """Return the card given."""
        return self.card

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS, graph: bool = True) -> list[Passage]:
        """Return the pool of `HybridSearch.find_candidates` in this base."""
        return self.hybrid.find_candidates(query, depth, self.name, filters, graph)

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """Return the best `k` by the strategy `auto`, or `graph` for that kind of base."""
        weight, graph = STRATEGIES["graph" if self.card.kind == "graph" else "auto"]
        return fuse(self.candidates(query, max(k, DEPTH) if k > 0 else 0, filters), weight, k, graph)
