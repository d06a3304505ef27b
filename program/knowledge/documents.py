"""A folder of documents as a Source: hybrid and graph search over its part of the project's index."""

from __future__ import annotations

import asyncio

from program.knowledge.index.fusion import PARTS, STRATEGIES, fuse
from program.knowledge.index.generation import Index
from program.knowledge.index.selection import best
from program.knowledge.index.walk import Reach
from program.models.embedded.encoder import Embedder
from program.passage import NO_FILTERS, Filters, Passage, SourceCard

DEPTH = 60
"""How many passages each of dense and keyword search brings to the pool; the graph brings half as many."""


class Documents:
    """One base of documents or saved web pages. Safe from many threads; it never changes once made."""

    def __init__(self, card: SourceCard, index: Index, embedder: Embedder) -> None:
        index.selection.span(card.name)  # an unindexed base is named now, not at the first question
        self.card = card
        self.index = index
        self.embedder = embedder

    @property
    def name(self) -> str:
        return self.card.name

    def describe(self) -> SourceCard:
        return self.card

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS, *, graph: bool = True) -> list[Passage]:
        """The `depth` nearest, the `depth` best by BM25 and half as many by the graph (or none), nearest first."""
        return pool(self.index, self.embedder, query, depth, base=self.name, filters=filters, graph=graph)

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """The best `k` by the default fusion; for a base of kind `graph`, by the graph above all."""
        weight, graph = STRATEGIES["graph" if self.card.kind == "graph" else "auto"]
        return fuse(self.candidates(query, max(k, DEPTH) if k > 0 else 0, filters), weight, k, graph=graph)

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return await asyncio.to_thread(self.search, query, k, filters)


def pool(
    index: Index,
    embedder: Embedder,
    query: str,
    depth: int,
    *,
    base: str | None = None,
    filters: Filters = NO_FILTERS,
    graph: bool = True,
) -> list[Passage]:
    """Candidates from one base, or from all with None: `scores` holds `dense`, `keyword` and `graph` for each.

    `dense` is the cosine, `keyword` BM25 with the document frequencies of the whole project, `graph` from a walk
    over the whole project, so that scores of different bases compare. `score` is the cosine, and orders the list.
    Without `graph` its part is left out, and what only it reaches. A blank query finds nothing.
    """
    if depth <= 0 or not query.strip():
        return []
    vector = embedder.encode([query])[0]
    cosine = dict(index.vectors.search(vector, depth, base, filters))
    matched = [row for row, _ in index.lexical.search(query, depth, base, filters)]
    by_text = {*cosine, *matched}
    reached = index.graph_search.reach(query, vector) if graph else None
    linked = []
    if reached:
        admitted = index.selection.admitted(base, filters)
        linked = best(reached.scores, admitted[reached.scores[admitted] > 0], (depth + 1) // 2)
    rest = [row for row in dict.fromkeys((*matched, *linked)) if row not in cosine]
    cosine.update(zip(rest, index.vectors.similarities(vector, rest), strict=True))
    order = sorted(cosine, key=lambda row: (-cosine[row], index.passages[row].id))
    scores = index.lexical.scores(query, order)
    return [
        _scored(index, row, cosine[row], bm25, reached, row in by_text) for row, bm25 in zip(order, scores, strict=True)
    ]


def _scored(index: Index, row: int, cosine: float, bm25: float, reached: Reach | None, by_text: bool) -> Passage:
    passage = index.passages[row]
    method = passage.method
    if method in PARTS:
        method = "graph" if not by_text else "both" if bm25 > 0 else "dense"
    parts = {"dense": cosine, "keyword": bm25}
    if reached is None:
        return passage.rescored(cosine, method, parts)
    parts["graph"] = float(reached.scores[row])
    return passage.rescored(cosine, method, parts, index.graph_search.way(reached, row))
