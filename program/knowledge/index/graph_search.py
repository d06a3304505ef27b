"""What the graph says of every passage for a question, found once, whichever bases are then searched."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from program.knowledge.index.fusion import WEIGHT, ranking
from program.knowledge.index.walk import Asked, Reach, reach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from program.knowledge.index.generation import Index

DEPTH = 60
"""Passages that each of dense and keyword search brings for the walk to start from."""

KEPT = 32
"""Questions remembered: the bases of a project are searched one after the other for the same question."""


class GraphSearch:
    """Walks over an index. Safe from many threads."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.titles = [p.title for p in index.passages]
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Reach] = OrderedDict()

    def reach(self, question: str, vector: NDArray[np.float32]) -> Reach:
        """The walk from what text search finds in all bases."""
        with self._lock:
            if question in self._kept:
                self._kept.move_to_end(question)
                return self._kept[question]
        index = self.index
        asked = Asked(question, vector, index.keywords.split(question))
        found = reach(index.graph, index.keywords, index.matrix, asked, self._text(question, vector))
        with self._lock:
            self._kept[question] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    def way(self, reached: Reach, row: int) -> str:
        """How a passage was reached, in titles and names."""
        return reached.way(row, self.titles)

    def _text(self, question: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The default fusion of dense and keyword scores, by passage, 0 beyond the DEPTH best of each."""
        index = self.index
        cosine = dict(index.vectors.search(vector, DEPTH))
        rest = [row for row, _ in index.lexical.search(question, DEPTH) if row not in cosine]
        cosine.update(zip(rest, index.vectors.similarities(vector, rest), strict=True))
        rows = list(cosine)
        pool = [
            index.passages[row].rescored(0.0, None, {"dense": cosine[row], "keyword": bm25})
            for row, bm25 in zip(rows, index.lexical.scores(question, rows), strict=True)
        ]
        text = np.zeros(len(index.passages), np.float32)
        for at, score in ranking(pool, WEIGHT, len(pool)):
            text[rows[at]] = score
        return text
