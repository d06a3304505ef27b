"""From a decision's inputs to numbers: blocks of features that a head may weigh."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from program.models.embedded.encoder import Embedder
from program.models.rules.arithmetic import solve_arithmetic
from program.models.rules.evidence_features import (
    FEATURE_NAMES,
    NEAR_FEATURES,
    evidence_features,
    near_features,
    read_words,
)
from program.models.rules.splitting import split_question
from program.models.rules.words import content_stems, expected_kinds, find_names

Vector = NDArray[np.float32]
BLOCKS = ("meaning", "grams", "shape", "bearing", "near", "bases", "options")
UNIT_LENGTH = frozenset({"meaning", "grams"})  # of length 1 already; the others are standardised
GRAM_BUCKETS = 1024
GRAMS_KEPT = 256  # of the last texts: a question is read anew for each passage that may help
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n+")
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_COUNTED: tuple[re.Pattern[str], ...] = tuple(
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


@dataclass(frozen=True, slots=True)
class EvidenceText:
    """One titled text of the evidence, and the knowledge base it came from, if any."""

    title: str
    text: str
    base: str = ""

    @property
    def embedded(self) -> str:
        """The text as it is embedded: behind its title."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs: the text that is judged, what it is judged against, and all texts."""

    asked: str
    evidence: tuple[EvidenceText, ...] = ()
    texts: tuple[str, ...] = ()


def read_case(inputs: Mapping[str, Any], input_fields: str = "") -> Case:
    """Return inputs by name as a case.

    The first text field, in the order in which `input_fields` describes them, is the one judged; excerpts
    (objects with a `text`, alone or in lists) are the evidence, or the other texts when there is none.
    """

    def place(name: str) -> tuple[int, str]:
        at = input_fields.find(f"`{name}`")
        return at if at >= 0 else len(input_fields), name

    values = [inputs[name] for name in sorted(inputs, key=place)]
    texts = tuple(value for value in values if isinstance(value, str))
    evidence = [found for value in values if not isinstance(value, str) for found in _list_excerpts(value)]
    others = [EvidenceText("", text) for text in texts[1:] if text.strip()]
    return Case(texts[0] if texts else "", tuple(evidence or others), texts)


def _list_excerpts(value: Any) -> list[EvidenceText]:
    if isinstance(value, Mapping):
        if not isinstance(value.get("text"), str):
            return []
        return [EvidenceText(str(value.get("title") or ""), value["text"], str(value.get("base") or ""))]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [found for item in value for found in _list_excerpts(item)]
    return [EvidenceText("", value)] if isinstance(value, str) else []


@dataclass(frozen=True)
class FeatureSpace:
    """What a set of demonstrations fixes for every case read in its light: rarities, and the bases seen."""

    words: WordRarity
    grams: WordRarity
    bases: tuple[int, ...] = ()
    judged_against: bool = False
    """True when some case has evidence."""

    @classmethod
    def from_cases(cls, cases: Sequence[Case]) -> FeatureSpace:
        """Return the space of some demonstrations."""
        titled = {(t.title, t.text): None for c in cases for t in c.evidence}
        asked = dict.fromkeys(c.asked for c in cases)
        texts = [read_words(title, text).words for title, text in titled]
        return cls(
            WordRarity.from_texts(texts or [read_words("", text).words for text in asked]),
            WordRarity.from_texts(list_grams(text) for text in asked),
            tuple(sorted({crc32(t.base.encode()) for c in cases for t in c.evidence if t.base})),
            any(c.evidence for c in cases),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything it is, by name."""
        names = ("words", "word_counts", "grams", "gram_counts", "bases", "judged_against")
        seen = np.array(self.bases, np.uint32), np.array([self.judged_against], np.uint8)
        return dict(zip(names, (*self.words.to_arrays(), *self.grams.to_arrays(), *seen), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> FeatureSpace:
        """Return the space of these arrays.

        Raises KeyError or ValueError when they do not fit together.
        """
        return cls(
            WordRarity.from_arrays(arrays["words"], arrays["word_counts"]),
            WordRarity.from_arrays(arrays["grams"], arrays["gram_counts"]),
            tuple(int(base) for base in arrays["bases"]),
            bool(arrays["judged_against"][0]),
        )

    def compute_blocks(self, cases: Sequence[Case], embedder: Embedder) -> list[dict[str, Vector]]:
        """Return each case's blocks, all but `options`.

        Among them are its `similarities` to the evidence. Texts new to the embedder are embedded in one go.
        """
        wanted = [t for c in cases for t in (*(c.texts or ("",)), *(e.embedded for e in c.evidence))]
        vectors = dict(zip(wanted, embedder.encode(wanted), strict=True))
        return [self._blocks_of(c, vectors) for c in cases]

    def _blocks_of(self, case: Case, vectors: Mapping[str, Vector]) -> dict[str, Vector]:
        query, texts = vectors[case.asked], case.texts or ("",)
        rows = np.stack([vectors[t.embedded] for t in case.evidence]) if case.evidence else query[None, :][:0]
        readings = [read_words(t.title, t.text) for t in case.evidence]
        found = evidence_features(read_words("", case.asked), readings, query, rows, self.words)
        return {
            "meaning": np.mean([vectors[text] for text in texts], axis=0),
            "grams": gram_vector(case.asked, self.grams),
            "shape": np.array(question_shape(case.asked), np.float32),
            "bearing": found,
            "near": near_features(found),
            "bases": self._base_block(case, rows @ query),
            "similarities": np.array([row @ query for row in rows], np.float32),
        }

    def _base_block(self, case: Case, sims: Vector) -> Vector:
        """Return for each base demonstrated its best similarity, its lead over all, its share of the first five."""
        best, share = np.zeros((2, len(self.bases)), np.float32)
        for rank, i in enumerate(np.argsort(-sims, kind="stable").tolist()):
            if (code := crc32(case.evidence[i].base.encode())) in self.bases:
                place = self.bases.index(code)
                best[place] = max(best[place], sims[i])
                share[place] += 1 if rank < 5 else 0
        lead = best - (float(sims.max()) if len(sims) else 0.0)
        return np.concatenate([best, lead, share / 5])


class WordRarity:
    """How rare a word is, from 0 (in every text) to 1 (in none), by its share of the texts counted.

    The weight is the inverse document frequency log((N + 1 + P) / (n + P p + 0.5)) over its largest value, with P
    imagined texts of which a word of that length is in the share p. Counts are kept by CRC-32 of the word.
    """

    IMAGINED = 20.0

    def __init__(self, counts: dict[int, int], total: int) -> None:
        self.counts = counts
        self.total = total
        self._top = math.log((total + 1 + self.IMAGINED) / 0.5)
        self._known: dict[str, float] = {}

    @classmethod
    def from_texts(cls, texts: Iterable[Iterable[str]]) -> WordRarity:
        """Count words in texts."""
        bags = [{crc32(word.encode()) for word in words} for words in texts]
        return cls(Counter(code for bag in bags for code in bag), len(bags))

    def __call__(self, word: str) -> float:
        if word not in self._known:
            seen = self.counts.get(crc32(word.encode()), 0)
            prior = 0.2 if len(word) <= 3 and not word.isdigit() else 0.1 if len(word) <= 4 else 0.02
            weight = math.log((self.total + 1 + self.IMAGINED) / (seen + prior * self.IMAGINED + 0.5))
            self._known[word] = min(max(weight / self._top, 0.0), 1.0)
        return self._known[word]

    def total_of(self, words: Iterable[str]) -> float:
        """Return the rarities of several words, summed in a fixed order."""
        return math.fsum(self(word) for word in words)

    def to_arrays(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return hashes, ascending, and counts, for `from_arrays`.

        The number of texts is appended to the counts.
        """
        keys = np.array(sorted(self.counts), np.uint32)
        return keys, np.array([*(self.counts[int(key)] for key in keys), self.total], np.uint32)

    @classmethod
    def from_arrays(cls, keys: NDArray[np.uint32], counts: NDArray[np.uint32]) -> WordRarity:
        """Return what `to_arrays` gave.

        Raises ValueError when the arrays do not fit together.
        """
        return cls(dict(zip(keys.tolist(), counts[:-1].tolist(), strict=True)), int(counts[-1]))


def list_grams(text: str) -> list[str]:
    """Return lower-case words and pairs of neighbours, stop words among them."""
    words = [word.lower() for word in _TOKEN.findall(text)]
    return words + [f"{a} {b}" for a, b in pairwise(words)]


@lru_cache(maxsize=GRAMS_KEPT)
def gram_vector(text: str, rarity: WordRarity) -> Vector:
    """Return the words and pairs of a text as one vector of length 1.

    Its shape is (GRAM_BUCKETS,), by signed hashing (Weinberger et al. 2009).
    """
    vector = np.zeros(GRAM_BUCKETS, np.float32)
    for gram in list_grams(text):
        code = crc32(gram.encode())
        vector[(code >> 1) % GRAM_BUCKETS] += (rarity(gram) + 0.1) * (1 if code & 1 else -1)
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


@lru_cache(maxsize=20_000)
def question_shape(text: str) -> tuple[float, ...]:
    """Return how a text is built, whatever it is about.

    Lengths, counts of kinds of words, what is asked for, how many look-ups it splits into, whether it can be computed.
    """
    words = _TOKEN.findall(text)
    content, named, asked = content_stems(text), find_names(text), expected_kinds(text)
    opener, parts = _OPENERS.match(text), len(split_question(text))
    ends = sum(1 for piece in _SENTENCE_END.split(text) if piece.strip())
    return (
        *(math.log1p(len(one)) for one in (words, content, text)),
        len(content) / (len(words) + 1),
        float(len(words) < 6),
        float(ends),
        min(len(named), 5.0),
        float(not named),
        *(float(bool(opener and opener[n])) for n in (1, 2)),
        float(text[:1].isupper()),
        *(math.log1p(len(pattern.findall(text))) for pattern in _COUNTED),
        *(float(kind in asked[:1]) for kind in _ASKED),
        float(not asked),
        float(parts),
        float(parts > 1),
        float(bool(solve_arithmetic(text))),
    )


VERSION = repr((BLOCKS, FEATURE_NAMES, NEAR_FEATURES, GRAM_BUCKETS, len(question_shape("")))).encode()
"""What heads depend on: those of another version do not fit."""
