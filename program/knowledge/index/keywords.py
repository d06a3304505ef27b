"""Keyword search: BM25 by a slice and a sum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from ragc.text.words import split_words


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
