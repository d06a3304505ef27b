"""Texts as a local decision sees them: words with their rarity."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from program.models.rules.words import expected, kinds, names, quantities, stems

Vector = NDArray[np.float32]
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n+")


@dataclass(frozen=True, slots=True)
class Reading:
    """What is kept of one titled text. `body` leaves the title out, `words` has both; all are stems.

    `kinds` are the kinds of value it holds, `asks` those it asks for.
    """

    title: frozenset[str]
    body: frozenset[str]
    words: frozenset[str]
    names: frozenset[str]
    sentences: tuple[frozenset[str], ...]
    kinds: frozenset[str]
    numbers: frozenset[str]
    asks: frozenset[str]
    plain_title: str
    plain_body: str


@lru_cache(maxsize=20_000)
def read(title: str, text: str) -> Reading:
    """The reading of a text under its title, either of which may be empty."""
    pieces = [piece for piece in _SENTENCE_END.split(text) if piece.strip()]
    head, body = frozenset(stems(title)), frozenset(stems(text))
    named = {part for name in names(text) for part in stems(name)}
    return Reading(
        title=head,
        body=body,
        words=head | body,
        names=frozenset(named) | head,
        sentences=tuple(frozenset(stems(piece)) for piece in pieces),
        kinds=kinds(text),
        numbers=frozenset(number for _, number in quantities(text)),
        asks=frozenset(expected(text)),
        plain_title=title.partition("(")[0].strip().lower(),
        plain_body=text.lower(),
    )


class Rarity:
    """How rare a word is, from 0 (in every text) to 1 (in none), by its share of the texts counted.

    The weight is the inverse document frequency log((N + 1 + P) / (n + P p + 0.5)) over its largest value,
    with P imagined texts of which a word of that length is in the share p, so that it is of use for few
    texts or none. Counts are kept by CRC-32 of the word, so that the table is two plain arrays.
    """

    IMAGINED = 20.0

    def __init__(self, counts: dict[int, int], total: int) -> None:
        self.counts = counts
        self.total = total
        self._top = math.log((total + 1 + self.IMAGINED) / 0.5)
        self._known: dict[str, float] = {}

    @classmethod
    def of(cls, texts: Iterable[Iterable[str]]) -> Rarity:
        counts: Counter[int] = Counter()
        total = 0
        for words in texts:
            counts.update({crc32(word.encode()) for word in words})
            total += 1
        return cls(dict(counts), total)

    def __call__(self, word: str) -> float:
        known = self._known.get(word)
        if known is None:
            seen = self.counts.get(crc32(word.encode()), 0)
            prior = 0.2 if len(word) <= 3 and not word.isdigit() else 0.1 if len(word) <= 4 else 0.02
            weight = math.log((self.total + 1 + self.IMAGINED) / (seen + prior * self.IMAGINED + 0.5))
            known = self._known[word] = min(max(weight / self._top, 0.0), 1.0)
        return known

    def of_all(self, words: Iterable[str]) -> float:
        """The rarities of several words, summed in a fixed order."""
        return math.fsum(self(word) for word in words)

    def arrays(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """(hashes ascending, counts with the number of texts appended), for `from_arrays`."""
        keys = np.array(sorted(self.counts), np.uint32)
        return keys, np.array([*(self.counts[int(key)] for key in keys), self.total], np.uint32)

    @classmethod
    def from_arrays(cls, keys: NDArray[np.uint32], counts: NDArray[np.uint32]) -> Rarity:
        return cls(dict(zip(keys.tolist(), counts[:-1].tolist(), strict=True)), int(counts[-1]))
