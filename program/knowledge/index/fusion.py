"""BM25, and dense, keyword and graph parts as one ranking. Fast enough to try many weights."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from ragc.passage import Passage
from ragc.text.words import split_words

Floats = NDArray[np.float32]

WEIGHT = 0.5  # the default share of the dense part; 1 is dense only, 0 is keyword only
GRAPH = 0.6  # the default share of the graph part; 0 leaves it out
STRATEGIES: Mapping[str, tuple[float, float]] = {
    **{"auto": (WEIGHT, GRAPH), "vector": (1.0, 0.0), "keyword": (0.0, 0.0)},
    **{"hybrid": (WEIGHT, 0.0), "graph": (WEIGHT, 0.9)},
}
"""By name: the share of the dense part in the text score, and the graph's share beside the text's."""
TEXT_METHODS = ("dense", "keyword", "both")
DECIMALS = 6  # of a cosine: the last bits of a product depend on how many rows are multiplied at once


def fuse(passages: Sequence[Passage], weight: float, k: int, graph: float = 0.0) -> list[Passage]:
    """Return the best `k` passages, best first, with `score` in [0, 1] and `method`.

    Copies of a text count as one passage. Ties are broken by id. `weight` in [0, 1] is the share of the dense part.

    The score is weight * dense + (1 - weight) * keyword, each min-max normalised over the passages given; a part that a
    passage lacks counts as the lowest (Bruch et al. 2022, arXiv 2210.11934).

    `graph` in [0, 1] is the share of the graph part, taken as it is, in a second convex sum with the above; the sum
    is scaled to the highest score without it, so that other sources' passages compare as before.

    A passage with neither dense nor keyword part keeps its source's own score, clipped to [0, 1]. `method` becomes
    `dense`, `keyword` or `both` by the parts above; `graph`, `sql` and `web` stay.
    """
    ranked = rank_positions(passages, weight, len(passages), graph)
    return [found.rescored(score, _method_of(found)) for found, score in fold_copies(passages, ranked, k)]


def fold_copies(
    passages: Sequence[Passage], ranked: Sequence[tuple[int, float]], k: int
) -> list[tuple[Passage, float]]:
    """Return the first `k` passages of a ranking, one a text, with their scores.

    It is the best of each text, and names the others as its `copies`.
    """
    if len({passage.text for passage in passages}) == len(passages):
        return [(passages[at], score) for at, score in ranked[: max(k, 0)]]
    texts: dict[Hashable, list[tuple[Passage, float]]] = {}
    for at, score in ranked:
        texts.setdefault(copy_key(passages[at]), []).append((passages[at], score))
    best = list(texts.values())[: max(k, 0)]
    return [(replace(found, copies=tuple(p.id for p, _ in others)), score) for (found, score), *others in best]


def copy_key(passage: Passage) -> Hashable:
    """Return what copies of a text have in common.

    No copy is the same text under another heading of a document, of another date or authority, or superseded.
    """
    headings = passage.title.partition(" > ")[2]
    return passage.text, headings, passage.as_of, passage.authority, bool(passage.superseded_by)


def name_copies(passages: Iterable[Passage]) -> dict[str, str]:
    """Return by passage id the id of the first passage with that text."""
    first: dict[Hashable, str] = {}
    return {passage.id: first.setdefault(copy_key(passage), passage.id) for passage in passages}


def rank_positions(passages: Sequence[Passage], weight: float, k: int, graph: float = 0.0) -> list[tuple[int, float]]:
    """Return positions in `passages` in the order of `fuse`, with scores."""
    if k <= 0 or not passages:
        return []
    parts = [p.scores for p in passages]
    dense, keyword = [s.get("dense") for s in parts], [s.get("keyword") for s in parts]
    scores = list(map(add, _normalise(dense, weight), _normalise(keyword, 1.0 - weight)))
    if graph > 0:
        scores = _blend_graph(scores, parts, graph)
    for at, passage in enumerate(passages):
        if dense[at] is None and keyword[at] is None:
            scores[at] = max(passage.score, 0.0)
    order = sorted(range(len(scores)), key=lambda at: (-scores[at], passages[at].id))
    return [(at, min(scores[at], 1.0)) for at in order[:k]]


def best_rows(scores: NDArray[np.floating], rows: NDArray[np.intp], k: int) -> list[int]:
    """Return the `k` best of these rows, the lower row first among equals."""
    if k <= 0 or not len(rows):
        return []
    if k < len(rows):
        own = scores[rows]
        rows = rows[own >= np.partition(own, len(rows) - k)[len(rows) - k]]
    return [int(row) for row in rows[np.argsort(-scores[rows], kind="stable")[:k]]]


def _blend_graph(scores: list[float], parts: Sequence[Mapping[str, float]], graph: float) -> list[float]:
    """Give the graph part its share, the highest score staying as high as it was."""
    before = max(scores)
    pairs = zip(scores, parts, strict=True)
    blended = [(1.0 - graph) * score + graph * part.get("graph", 0.0) for score, part in pairs]
    after = max(blended)
    scale = before / after if after > 0 and before > 0 else 1.0
    return [score * scale for score in blended]


def _normalise(part: list[float | None], weight: float) -> list[float]:
    """Return the values min-max normalised, times `weight`; a missing one is lowest."""
    values: list[float] = [v for v in part if v is not None]
    if not values:
        return [0.0] * len(part)
    low, high = min(values), max(values)
    if len(values) < len(part):
        values = [low if v is None else v for v in part]
    if high > low:
        scale = weight / (high - low)
        return [(v - low) * scale for v in values]
    # All alike: the best of the pool as much as the worst, unless nothing matched at all.
    return [weight if high > 0 else 0.0] * len(part)


def _method_of(passage: Passage) -> str:
    keyword = passage.scores.get("keyword")
    if passage.method not in TEXT_METHODS:
        return passage.method
    if "dense" not in passage.scores:
        return passage.method if keyword is None else "keyword"
    return "both" if keyword is not None and keyword > 0 else "dense"


class Keywords:
    """The scores of `rank_bm25.BM25Okapi`, multiplied out once into `impacts` (texts by `terms`). Thread-safe."""

    def __init__(
        self, impacts: csc_array, terms: Iterable[str], keep_stop_words: bool = False, stem: bool = True
    ) -> None:
        self.impacts = impacts
        self.terms = {term: at for at, term in enumerate(terms)}
        self.keep_stop_words = keep_stop_words
        self.stem = stem

    @classmethod
    def from_texts(cls, texts: Iterable[str], keep_stop_words: bool = False, stem: bool = True) -> Keywords:
        """Index these texts, numbered as in the sequence."""
        impacts, terms = _weigh_terms([split_words(text, keep_stop_words, stem) for text in texts])
        return cls(impacts.tocsc(), terms, keep_stop_words, stem)

    def split_text(self, text: str) -> list[str]:
        """Return a text's terms, a query's as the texts' were."""
        return split_words(text, self.keep_stop_words, self.stem)

    def scores(self, query: str) -> NDArray[np.float64]:
        """Return every text's score, shape (texts,).

        A term counts as often as the query holds it.
        """
        matrix: Any = self.impacts
        total = np.zeros(matrix.shape[0], np.float64)
        for column in (self.terms[term] for term in self.split_text(query) if term in self.terms):
            part = slice(matrix.indptr[column], matrix.indptr[column + 1])  # four times as fast as scipy's own slices
            total[matrix.indices[part]] += matrix.data[part]
        return total


def _weigh_terms(documents: Sequence[Sequence[str]]) -> tuple[Any, Sequence[str]]:
    """Return each term's score in each text (CSR, texts by terms), and the terms."""
    from rank_bm25 import BM25Okapi

    if not any(documents):  # BM25Okapi divides by the number of words
        return csr_array((len(documents), 0)), ()
    bm25 = BM25Okapi(documents)
    number = {term: at for at, term in enumerate(bm25.idf)}
    starts = np.cumsum([0, *map(len, bm25.doc_freqs)])
    terms = np.fromiter((number[term] for row in bm25.doc_freqs for term in row), np.int32, starts[-1])
    f = np.fromiter((times for row in bm25.doc_freqs for times in row.values()), np.int64, starts[-1])
    longer = 1 - bm25.b + bm25.b * np.array(bm25.doc_len) / bm25.avgdl
    weights = f * (bm25.k1 + 1) / (f + np.repeat(bm25.k1 * longer, np.diff(starts)))
    weights *= np.array(list(bm25.idf.values()))[terms]
    return csr_array((weights, terms, starts), shape=(len(documents), len(number))), [*number]
