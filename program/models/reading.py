"""Texts as a local decision sees them: words with their rarity, and the shape of a question."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from program.models.rules.arithmetic import solve_arithmetic
from program.models.rules.splitting import split_question
from program.models.rules.words import content_stems, expected_kinds
from program.models.rules.words import find_names as names

Vector = NDArray[np.float32]
GRAM_BUCKETS = 1024
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n+")
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


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


def grams(text: str) -> list[str]:
    """Lower-case words and pairs of neighbours, stop words among them."""
    words = [word.lower() for word in _TOKEN.findall(text)]
    return words + [f"{a} {b}" for a, b in pairwise(words)]


def gram_vector(text: str, rarity: Rarity) -> Vector:
    """Shape (GRAM_BUCKETS,), length 1: words and pairs by signed hashing (Weinberger et al. 2009)."""
    vector = np.zeros(GRAM_BUCKETS, np.float32)
    for gram in grams(text):
        code = crc32(gram.encode())
        vector[(code >> 1) % GRAM_BUCKETS] += (rarity(gram) + 0.1) * (1 if code & 1 else -1)
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


_COUNTS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:who|whom|whose|what|which|when|where|why|how)\b",
        r"\b(?:and|or|plus|also|then|as well|along with|together)\b",
        r",|;",
        r"\?",
        r"\d",
        r"\b(?:than|versus|vs|compar\w+|difference|differ\w*|both|between|either|instead|respectively|same)\b",
        r"\b(?:more|less|most|least|better|best|cheap\w+|longer|faster|bigger|higher|lower|worse|earlier|later)\b",
        r"\b(?:it|this|that|these|those|they|them|one|there|thing|stuff|something)\b",
        r"\b(?:i|my|me|we|our|us|i'm|i've)\b",
        r"\bof\b|['’]s\b",
        r"\b(?:that|which|who|whose|where)\b",
        r"\b(?:latest|newest|current\w*|now|today|recent\w*|this (?:week|month|year)|yesterday|new)\b",
        r"\b(?:if|unless|when|after|before|while|because|since|but)\b",
        r"\b(?:not|no|never|without|n't|cannot|can't|don't|won't)\b",
        r"[+*/=<>^%]|\b(?:times|divided|plus|minus|squared|percent)\b",
        r"\b(?:list|each|every|all|how many|total|average|count|sum)\b",
        r"\b(?:hi|hello|thanks|please|cheers|sorry)\b",
    )
)
_OPENERS = re.compile(
    r"^\W*(?:(who|what|which|when|where|why|how)|(is|are|do|does|did|can|could|will|would|should|has|have))\b",
    re.IGNORECASE,
)
_ASKED = ("money", "duration", "date", "name", "number", "reason", "clock", "percent")


@lru_cache(maxsize=20_000)
def shape(text: str) -> tuple[float, ...]:
    """How a text is built, whatever it is about: lengths, counts of kinds of words, what is asked for, how many
    look-ups it splits into, and whether it can be computed as it stands."""
    words = _TOKEN.findall(text)
    content, named, asked = content_stems(text), names(text), expected_kinds(text)
    opener, parts = _OPENERS.match(text), len(split_question(text))
    ends = sum(1 for piece in _SENTENCE_END.split(text) if piece.strip())
    return (
        math.log1p(len(words)),
        math.log1p(len(content)),
        math.log1p(len(text)),
        len(content) / (len(words) + 1),
        float(len(words) < 6),
        float(ends),
        min(len(named), 5.0),
        float(not named),
        float(bool(opener and opener.group(1))),
        float(bool(opener and opener.group(2))),
        float(text[:1].isupper()),
        *(math.log1p(len(pattern.findall(text))) for pattern in _COUNTS),
        *(float(kind in asked[:1]) for kind in _ASKED),
        float(not asked),
        float(parts),
        float(parts > 1),
        float(bool(solve_arithmetic(text))),
    )
