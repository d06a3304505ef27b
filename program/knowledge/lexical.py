"""Keyword search over an index: exact BM25 in memory, or a Qdrant server's sparse vectors under its IDF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from program.knowledge.bags import Bags
from program.knowledge.keywords import Keywords, saturation
from program.knowledge.selection import Selection, best
from program.knowledge.source import NO_FILTERS, Filters
from program.knowledge.vectors import QdrantVectors

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KeywordStore(Protocol):
    """Texts by row, scored by the words that they share with a question; 0 for none. Safe from many threads."""

    def search(
        self, query: str, k: int, base: str | None = None, filters: Filters = NO_FILTERS
    ) -> list[tuple[int, float]]:
        """The `k` best rows of a base (None: of all) that pass the filters and score above 0, each with its score."""
        ...

    def scores(self, query: str, rows: Sequence[int]) -> list[float]:
        """The score of each of these rows, in their order."""
        ...


class ArrayKeywords:
    """BM25 of every text at once, from the matrix in memory."""

    def __init__(self, keywords: Keywords, selection: Selection) -> None:
        self.keywords = keywords
        self.selection = selection
        self._last: tuple[str, NDArray[np.float64]] = ("", np.zeros(0))

    def search(
        self, query: str, k: int, base: str | None = None, filters: Filters = NO_FILTERS
    ) -> list[tuple[int, float]]:
        scores = self._scores(query)
        rows = self.selection.admitted(base, filters)
        return [(row, float(scores[row])) for row in best(scores, rows[scores[rows] > 0], k)]

    def scores(self, query: str, rows: Sequence[int]) -> list[float]:
        return [float(score) for score in self._scores(query)[np.asarray(rows, np.intp)]]

    def _scores(self, query: str) -> NDArray[np.float64]:
        # One search asks several times about one question: for each base, for the walk, for rows found otherwise.
        last, scores = self._last
        if last != query or not len(scores):
            # In a project of a few passages BM25 can fall below zero; that is no match either.
            scores = np.maximum(self.keywords.scores(query), 0.0)
            self._last = query, scores
        return scores


class QdrantKeywords:
    """The same by a Qdrant collection: stored are BM25's weights of terms in texts, the server multiplies by its IDF,
    ln(1 + (N - n + 0.5) / (n + 0.5)), which differs a little from the one in memory."""

    def __init__(self, store: QdrantVectors, keywords: Keywords) -> None:
        self.store = store
        self.keywords = keywords

    def search(
        self, query: str, k: int, base: str | None = None, filters: Filters = NO_FILTERS
    ) -> list[tuple[int, float]]:
        asked = self._asked(query)
        return self.store.sparse(asked, k, base, filters) if k > 0 and asked else []

    def scores(self, query: str, rows: Sequence[int]) -> list[float]:
        asked = self._asked(query)
        found = dict(self.store.sparse(asked, len(rows), rows=rows)) if asked and len(rows) else {}
        return [found.get(row, 0.0) for row in rows]

    def _asked(self, query: str) -> dict[int, float]:
        terms = self.keywords.terms
        return {terms[t]: float(times) for t, times in Counter(self.keywords.split(query)).items() if t in terms}


def sparse_rows(keywords: Keywords, texts: Sequence[str]) -> Any:
    """BM25's weight of each term in each text without the IDF, CSR, shape (texts, terms)."""
    return saturation(Bags.of(Counter(keywords.split(text)) for text in texts), keywords.terms).tocsr()
