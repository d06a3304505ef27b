"""From a decision's inputs to numbers: blocks of features that a head may weigh."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from program.models.encoder import Embedder
from program.models.reading import GRAM_BUCKETS, Rarity, Vector, gram_vector, grams, shape
from program.models.rules.evidence_features import (
    FEATURE_NAMES,
    NEAR_FEATURES,
    evidence_features,
    near_features,
    read_words,
)

BLOCKS = ("meaning", "grams", "shape", "bearing", "near", "bases", "options")
UNIT_LENGTH = frozenset({"meaning", "grams"})  # of length 1 already; the others are standardised
# Heads of another version do not fit.
VERSION = repr((BLOCKS, FEATURE_NAMES, NEAR_FEATURES, GRAM_BUCKETS, len(shape("")))).encode()
TEXTS_KEPT = 256
CARD = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Text:
    """One titled text of the evidence, and the knowledge base it came from, if any."""

    title: str
    text: str
    base: str = ""

    @property
    def embedded(self) -> str:
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs: the text that is judged, and what it is judged against (may be nothing)."""

    asked: str
    evidence: tuple[Text, ...] = ()
    texts: tuple[str, ...] = ()


def case(inputs: Mapping[str, Any], input_fields: str = "") -> Case:
    """Inputs by name as a case.

    The first text field, in the order in which `input_fields` describes them, is the one judged; excerpts
    (objects with a `text`, alone or in lists) are the evidence, or the other texts when there is none.
    """
    texts: list[str] = []
    evidence: list[Text] = []
    for name in sorted(inputs, key=lambda n: (_place(n, input_fields), n)):
        value = inputs[name]
        if isinstance(value, str):
            texts.append(value)
        else:
            evidence += _excerpts(value)
    if not evidence:
        evidence = [Text("", text) for text in texts[1:] if text.strip()]
    return Case(texts[0] if texts else "", tuple(evidence), tuple(texts))


def _place(name: str, described: str) -> int:
    at = described.find(f"`{name}`")
    return at if at >= 0 else len(described)


def _excerpts(value: Any) -> list[Text]:
    if isinstance(value, Mapping):
        if not isinstance(value.get("text"), str):
            return []
        return [Text(str(value.get("title") or ""), value["text"], str(value.get("base") or ""))]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [found for item in value for found in _excerpts(item)]
    return [Text("", value)] if isinstance(value, str) else []


@dataclass(frozen=True)
class Space:
    """What a set of demonstrations fixes for every case read in its light: rarities, and the bases seen."""

    words: Rarity
    grams: Rarity
    bases: tuple[int, ...] = ()
    judged_against: bool = False
    _order: Mapping[int, int] = field(default_factory=dict)
    _read: dict[str, Vector] = field(default_factory=dict)

    @classmethod
    def of(cls, cases: Sequence[Case]) -> Space:
        titled = {(t.title, t.text): None for c in cases for t in c.evidence}
        asked = dict.fromkeys(c.asked for c in cases)
        texts = [read_words(title, text).words for title, text in titled]
        return cls._ordered(
            Rarity.of(texts or [read_words("", text).words for text in asked]),
            Rarity.of(grams(text) for text in asked),
            tuple(sorted({_code(t.base) for c in cases for t in c.evidence if t.base})),
            any(c.evidence for c in cases),
        )

    @classmethod
    def _ordered(cls, words: Rarity, grams: Rarity, bases: tuple[int, ...], judged_against: bool) -> Space:
        return cls(words, grams, bases, judged_against, {base: n for n, base in enumerate(bases)})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything it is, by name."""
        words, word_counts = self.words.arrays()
        grams, gram_counts = self.grams.arrays()
        return {
            "words": words,
            "word_counts": word_counts,
            "grams": grams,
            "gram_counts": gram_counts,
            "bases": np.array(self.bases, np.uint32),
            "judged_against": np.array([self.judged_against], np.uint8),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Space:
        """The space that `arrays` came from. Raises KeyError or ValueError when they do not fit together."""
        return cls._ordered(
            Rarity.from_arrays(arrays["words"], arrays["word_counts"]),
            Rarity.from_arrays(arrays["grams"], arrays["gram_counts"]),
            tuple(int(base) for base in arrays["bases"]),
            bool(arrays["judged_against"][0]),
        )

    def blocks(self, cases: Sequence[Case], embedder: Embedder) -> list[dict[str, Vector]]:
        """For each case its blocks, all but `options`; texts new to the embedder are embedded in one go."""
        wanted = [t for c in cases for t in (*(c.texts or ("",)), *(e.embedded for e in c.evidence))]
        vectors = dict(zip(wanted, embedder.encode(wanted), strict=True))
        return [self._blocks(c, vectors) for c in cases]

    def _blocks(self, case: Case, vectors: Mapping[str, Vector]) -> dict[str, Vector]:
        query, texts = vectors[case.asked], case.texts or ("",)
        blocks = {
            "meaning": np.mean([vectors[text] for text in texts], axis=0),
            "grams": self._grams(case.asked),
            "shape": np.array(shape(case.asked), np.float32),
        }
        rows = np.stack([vectors[t.embedded] for t in case.evidence]) if case.evidence else query[None, :][:0]
        readings = [read_words(t.title, t.text) for t in case.evidence]
        blocks["bearing"] = evidence_features(read_words("", case.asked), readings, query, rows, self.words)
        blocks["near"] = near_features(blocks["bearing"])
        blocks["bases"] = self._bases(case, rows @ query)
        return blocks

    def _grams(self, text: str) -> Vector:
        """The text's gram vector; a question is read anew for each passage that may help."""
        if text not in self._read:
            if len(self._read) >= TEXTS_KEPT:
                self._read.clear()
            self._read[text] = gram_vector(text, self.grams)
        return self._read[text]

    def _bases(self, case: Case, sims: Vector) -> Vector:
        """For each base demonstrated: its best similarity, its lead over all, its share of the first five."""
        best = np.zeros(len(self.bases), np.float32)
        share = np.zeros(len(self.bases), np.float32)
        for rank, i in enumerate(np.argsort(-sims, kind="stable").tolist()):
            place = self._order.get(_code(case.evidence[i].base))
            if place is not None:
                best[place] = max(best[place], sims[i])
                share[place] += 1 if rank < 5 else 0
        lead = best - (float(sims.max()) if len(sims) else 0.0)
        return np.concatenate([best, lead, share / 5])


def _code(base: str) -> int:
    return crc32(base.encode())


def card(label: str, description: Any) -> str:
    """An option as one text to embed: its label in words, and what is said of it."""
    said = description if isinstance(description, str) else str(description) if description else ""
    name = CARD.sub(" ", label.replace("_", " ")).strip()
    return f"{name}: {said}" if said else name
