"""BM25 by a slice and a sum: impacts are computed once into a sparse matrix of passages by terms."""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from program.knowledge.bags import Bags

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csc_array

K1 = 1.5
B = 0.75
EPSILON = 0.25

# A number with its points and commas is one word (4.50, 3.8), so is a word with its apostrophe.
WORD = re.compile(r"\d+(?:[.,]\d+)+|\w+(?:'\w+)*")
STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her
    here hers him his how i if in into is it its itself just me more most my no nor not of off on once only or
    other our ours out over own please same she should so some such than that the their theirs them then there
    these they this those through to too under until up us very was we were what when where which while who
    whom whose why will with would you your yours""".split()
)


def words(text: str, keep_stop_words: bool = False, stem: bool = True) -> list[str]:
    """A text's words in order, lower case, cut to their stems or whole, with or without function words."""
    found = WORD.findall(unicodedata.normalize("NFC", text).lower().replace("’", "'"))
    return [_stem(w) if stem and not w.isdigit() else w for w in found if keep_stop_words or w not in STOP_WORDS]


class Keywords:
    """Okapi BM25 over a list of texts, with exactly the scores of `rank_bm25.BM25Okapi`.

    Term frequency f in a text of length l weighs idf * f * (k1 + 1) / (f + k1 * (1 - b + b * l / mean l)),
    idf = ln((N - n + 0.5) / (n + 0.5)); an idf below zero becomes epsilon times the mean idf (Trotman et al.
    2014, "Improvements to BM25 and Language Models Examined"). Read-only once made: safe from many threads.
    """

    def __init__(
        self, impacts: csc_array, terms: Mapping[str, int], keep_stop_words: bool = False, stem: bool = True
    ) -> None:
        self.impacts = impacts
        self.terms = terms
        self.keep_stop_words = keep_stop_words
        self.stem = stem

    @classmethod
    def build(cls, texts: Sequence[str], keep_stop_words: bool = False, stem: bool = True) -> Keywords:
        """The index of these texts, passage numbers as in the sequence."""
        return cls.of_words([words(t, keep_stop_words, stem) for t in texts], keep_stop_words, stem)

    @classmethod
    def of_words(cls, documents: Sequence[Sequence[str]], keep_stop_words: bool = False, stem: bool = True) -> Keywords:
        """The index of texts that are already split into terms."""
        return cls.of_bags(Bags.of(Counter(document) for document in documents), keep_stop_words, stem)

    @classmethod
    def of_bags(cls, texts: Bags, keep_stop_words: bool = False, stem: bool = True) -> Keywords:
        """The index of texts whose terms are counted."""
        from scipy.sparse import csc_array

        terms = {term: at for at, term in enumerate(texts.words)}
        matrix = saturation(texts, terms)
        if terms:
            idf = _idf(np.diff(matrix.indptr), len(texts))
            impacts = np.repeat(idf, np.diff(matrix.indptr)) * matrix.data
            matrix = csc_array((impacts, matrix.indices, matrix.indptr), shape=matrix.shape)
        return cls(matrix, terms, keep_stop_words, stem)

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, NDArray[Any]],
        terms: Sequence[str],
        keep_stop_words: bool = False,
        stem: bool = True,
    ) -> Keywords:
        """The index that `arrays` and `listed_terms` were taken from."""
        from scipy.sparse import csc_array

        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        matrix = csc_array(parts, shape=(int(arrays["texts"][0]), len(terms)))
        return cls(matrix, {term: at for at, term in enumerate(terms)}, keep_stop_words, stem)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The matrix as plain arrays (data, indices, indptr and the number of texts)."""
        matrix: Any = self.impacts
        texts = np.array([matrix.shape[0]], np.int64)
        return {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "texts": texts}

    def split(self, query: str) -> list[str]:
        """The terms of a query, split as the texts were."""
        return words(query, self.keep_stop_words, self.stem)

    def scores(self, query: str) -> NDArray[np.float64]:
        """The BM25 score of every text, shape (texts,)."""
        return self.scores_of(self.split(query))

    def scores_of(self, query: Sequence[str]) -> NDArray[np.float64]:
        """The same for a query already split into terms; a term counts as often as it stands there."""
        matrix: Any = self.impacts
        total = np.zeros(matrix.shape[0], np.float64)
        for term, times in Counter(query).items():
            column = self.terms.get(term)
            if column is not None:
                part = slice(matrix.indptr[column], matrix.indptr[column + 1])
                total[matrix.indices[part]] += times * matrix.data[part]
        return total


def saturation(texts: Bags, terms: Mapping[str, int]) -> Any:
    """BM25 without the IDF: f * (k1 + 1) / (f + k1 * (1 - b + b * l / mean l)), CSC, shape (texts, terms)."""
    from scipy.sparse import csr_array

    columns = np.array([terms[word] for word in texts.words], np.int32)[texts.places]
    f, sizes = texts.values.astype(np.float64), np.diff(texts.starts)
    lengths = np.bincount(np.repeat(np.arange(len(texts)), sizes), f, len(texts))
    longer = 1 - B + B * lengths / max(lengths.mean() if len(texts) else 0.0, 1e-9)
    weights = f * (K1 + 1) / (f + np.repeat(K1 * longer, sizes))
    matrix = csr_array((weights, columns, texts.starts), shape=(len(texts), len(terms))).tocsc()
    matrix.sort_indices()
    return matrix


def _idf(texts_with: NDArray[np.int64], texts: int) -> NDArray[np.float64]:
    idf = np.log(texts - texts_with + 0.5) - np.log(texts_with + 0.5)
    floor = EPSILON * math.fsum(idf) / len(idf)
    return np.where(idf < 0, floor, idf)


_stemming = threading.Lock()


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    with _stemming:  # the stemmer keeps its place in the word on itself
        return str(_stemmer().stemWord(word))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")
