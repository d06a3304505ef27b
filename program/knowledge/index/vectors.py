"""Dense search by an array in memory, and the rows that a search may return."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ragc.errors import KnowledgeError
from ragc.passage import NO_FILTERS, Filters, Passage

Floats = NDArray[np.float32]

MAX_SELECTIONS = 16  # answers to filters that are kept, an array of rows each
DECIMALS = 6  # the last bits of a product depend on how many rows are multiplied at once


class Selection:
    """The rows of an index by base, a slice as its passages stand together, and those that filters admit."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._slices: dict[str | None, slice] = {None: slice(0, len(passages))}
        for row, passage in enumerate(passages):
            start = self._slices.get(passage.source, slice(row, row)).start
            self._slices[passage.source] = slice(start, row + 1)
        self.admitted_rows = lru_cache(MAX_SELECTIONS)(self._find_admitted)

    def base_rows(self, base: str | None) -> slice:
        """Return the rows of a base (None: of all), or raise `KnowledgeError`."""
        if base not in self._slices:
            raise KnowledgeError(f"The index has no knowledge base {base!r}.", "Run: ragc index PROJECT")
        return self._slices[base]

    def _find_admitted(self, base: str | None, filters: Filters = NO_FILTERS) -> NDArray[np.intp]:
        """Return the rows of a base that the filters admit, ascending."""
        part = self.base_rows(base)
        rows = np.arange(part.start, part.stop)
        if filters == NO_FILTERS:
            return rows
        return rows[[filters.admits(passage) for passage in self._passages[part]]]


def best_rows(scores: NDArray[np.floating], rows: NDArray[np.intp], k: int) -> list[int]:
    """Return the `k` best of these rows, the lower row first among equals."""
    if k <= 0 or not len(rows):
        return []
    if k < len(rows):
        own = scores[rows]
        rows = rows[own >= np.partition(own, len(rows) - k)[len(rows) - k]]
    return [int(row) for row in rows[np.argsort(-scores[rows], kind="stable")[:k]]]


class ArrayVectors:
    """Exact search over an array of unit rows. Safe from many threads."""

    def __init__(self, matrix: Floats, selection: Selection) -> None:
        self.matrix = matrix
        self.selection = selection

    def search(self, vector: Floats, k: int, base: str | None = None, filters: Filters = NO_FILTERS) -> list[int]:
        """Return the `k` nearest rows of a base (None: of all), nearest first."""
        part = self.selection.base_rows(base)
        cosines = np.round(self.matrix[part] @ vector, DECIMALS)
        rows = self.selection.admitted_rows(base, filters) - part.start
        return [part.start + row for row in best_rows(cosines, rows, k)]

    def similarities(self, vector: Floats, rows: Sequence[int]) -> list[float]:
        """Return the cosine of each of these rows, in their order."""
        cosines: list[float] = np.round(self.matrix[np.asarray(rows, np.intp)] @ vector, DECIMALS).tolist()
        return cosines
