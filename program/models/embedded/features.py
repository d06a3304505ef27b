"""From a decision's inputs to numbers: blocks of features that a head may weigh, none of one language's words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from program.models.embedded.cases import Case, EvidenceText, WordRarity, list_words, word_set
from program.models.embedded.encoder import Embedder
from program.models.embedded.reader import Passage, Reader, Reading
from program.sentences import split_pieces, split_sentences

Vector = NDArray[np.float32]
Readings = Mapping[tuple[str, Passage], Reading]
BLOCKS = ("meaning", "grams", "shape", "reading", "statement", "bases", "options")
UNIT_LENGTH = frozenset({"meaning", "grams"})  # of length 1 already; the others are standardised
SHAPE, READING, STATEMENT, CHAIN = 13, 24, 12, 7  # numbers in each, the last in READING
MOST_CHAINED = 8
GRAM_BUCKETS = 1024
GRAMS_KEPT = 256  # of the last texts: a question is read anew for each passage that may help
SHAPES_KEPT = 20_000
SCORES_KEPT = 1024  # of the passages whose pieces were asked about last
SUREST = 20.0  # logits past it are taken as it
VERSION = repr((BLOCKS, SHAPE, READING, STATEMENT, GRAM_BUCKETS)).encode()
"""What heads depend on: those of another version do not fit."""
_COUNTED = tuple(map(re.compile, (r"\d", r"[,;]", r"\?", r"[+*/=<>^%]", r"[\"“”()]")))


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
        shown = dict.fromkeys(t.embedded for c in cases for t in c.evidence)
        asked = dict.fromkeys(c.asked for c in cases)
        return cls(
            WordRarity.from_texts(word_set(text) for text in shown or asked),
            WordRarity.from_texts(list_grams(text) for text in asked),
            tuple(sorted({_code_of(t.base) for c in cases for t in c.evidence if t.base})),
            bool(shown),
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

    def compute_blocks(self, cases: Sequence[Case], embedder: Embedder, reader: Reader) -> list[dict[str, Vector]]:
        """Return each case's blocks, all but `options`.

        Among them are the `similarities` to the evidence and the `answers` that are read in it. What is new is embedded
        in one go, and read in one go.
        """
        wanted = [
            text for c in cases for text in (*(c.texts or ("",)), *(e.embedded for e in (*c.evidence, *c.sentence)))
        ]
        vectors = dict(zip(wanted, embedder.encode(wanted), strict=True))
        pairs = [(c.asked, e.passage) for c in cases for e in (*c.evidence, *c.sentence)]
        readings = dict(zip(pairs, reader.read_pairs(pairs), strict=True))
        return [self._blocks_of(c, vectors, readings) for c in cases]

    def _blocks_of(self, case: Case, vectors: Mapping[str, Vector], readings: Readings) -> dict[str, Vector]:
        query = vectors[case.asked]
        sims = np.array([vectors[t.embedded] @ query for t in case.evidence], np.float32)
        read = [readings[case.asked, t.passage] for t in case.evidence]
        blocks: dict[str, Any] = {
            "shape": question_shape(case.asked),
            "reading": self._read_evidence(case, read, sims) if read else (0.0,) * READING,
            "statement": self._read_statement(case, vectors, readings, sims) if case.quoted else (0.0,) * STATEMENT,
            "bases": self._compare_bases(case, sims),
            "similarities": sims,
            "answers": [one.answers for one in read],
            "meaning": np.mean([vectors[text] for text in case.texts or ("",)], axis=0),
            "grams": gram_vector(case.asked, self.grams),
        }
        return {name: np.asarray(block, np.float32) for name, block in blocks.items()}

    def _read_evidence(self, case: Case, read: Sequence[Reading], sims: Vector) -> list[float]:
        asked, bags = word_set(case.asked), [word_set(t.embedded) for t in case.evidence]
        answers = sorted((one.answers for one in read), reverse=True)
        ranked = sorted(zip(read, case.evidence, strict=True), key=lambda one: -one[0].margin)
        spans = [t.text[slice(*r.span)].casefold() for r, t in ranked[:2] if r.margin > 0]
        pairs = frozenset(pairwise(list_words(case.asked)))
        numbers = frozenset(word for word in asked if any(map(str.isdigit, word)))
        told = frozenset[str]().union(*bags)
        return [
            *(_clip(_at(answers, n)) for n in range(3)),
            float(np.mean([_clip(answer) for answer in answers])),
            *(_clip(_at([one.margin for one, _ in ranked], n)) for n in range(2)),
            float(sims.max()),
            float(sims.mean()),
            max(self.words.share_of(asked, bag) for bag in bags),
            self.words.share_of(asked, told),
            math.log(len(read)),
            float(len(spans) == 2 and spans[0] == spans[1]),
            float(len(spans) == 2 and spans[0] != spans[1]),
            float(np.mean([answer > 0 for answer in answers])),
            max(len(asked & bag) / max(len(asked), 1) for bag in bags),
            max(len(pairs & _word_pairs(t.text)) / max(len(pairs), 1) for t in case.evidence),
            len(numbers & told) / len(numbers) if numbers else 1.0,
            *self._chain_texts(asked, case.evidence[:MOST_CHAINED]),
        ]

    def _chain_texts(self, asked: frozenset[str], texts: Sequence[EvidenceText]) -> list[float]:
        """Return how well one text leads to another by naming its title, what a question of several steps needs.

        The title's words that the question lacks count, by rarity: most found in another text; that times what both
        texts cover of the question, and squared; titles named in full.
        """
        bags, best = [word_set(t.embedded) for t in texts], [0.0] * CHAIN
        for b, to in enumerate(texts):
            bridge = word_set(to.title) - asked
            name = to.title.partition("(")[0].strip().casefold()
            for a, of in enumerate(texts):
                if a != b:
                    link = self.words.share_of(bridge, word_set(of.text))
                    new = self.words.share_of(bridge - word_set(of.title), word_set(of.text))
                    both = self.words.share_of(asked, bags[a] | bags[b])
                    named = float(len(name) > 2 and bool(bridge) and name in of.text.casefold())
                    found = (link, new, both * link, both * new * new, both * new, named, both * named)
                    best = [max(pair) for pair in zip(best, found, strict=True)]
        return best

    def _read_statement(
        self, case: Case, vectors: Mapping[str, Vector], readings: Readings, sims: Vector
    ) -> list[float]:
        assert case.quoted
        (sentence,), (n, at) = case.sentence, case.quoted
        whole, alone = readings[case.asked, case.evidence[n].passage], readings[case.asked, sentence.passage]
        text, asked = case.evidence[n].text, word_set(case.asked)
        scores = score_pieces(whole, text)
        return [
            _clip(scores[at]),
            _clip(scores[at] - whole.margin),
            1 / (1 + sum(score > scores[at] for score in scores)),
            _clip(whole.answers),
            _clip(alone.answers),
            _clip(alone.margin),
            float(vectors[sentence.embedded] @ vectors[case.asked]),
            float(sims[n]),
            self.words.share_of(asked, word_set(sentence.text)),
            self.words.share_of(asked, word_set(sentence.embedded)),
            math.log1p(len(sentence.text)),
            split_pieces(text)[at].start / len(text),
        ]

    def _compare_bases(self, case: Case, sims: Vector) -> Vector:
        """Return for each base demonstrated its best similarity, its lead over all, its share of the first five."""
        best, share = np.zeros((2, len(self.bases)), np.float32)
        for rank, i in enumerate(np.argsort(-sims, kind="stable").tolist()):
            if (code := _code_of(case.evidence[i].base)) in self.bases:
                place = self.bases.index(code)
                best[place] = max(best[place], sims[i])
                share[place] += 1 if rank < 5 else 0
        lead = best - (float(sims.max()) if len(sims) else 0.0)
        return np.concatenate([best, lead, share / 5])


def _code_of(text: str) -> int:
    return crc32(text.encode(errors="replace"))


def _clip(logit: float) -> float:
    return min(max(logit, -SUREST), SUREST)


def _at(values: Sequence[float], n: int) -> float:
    return values[min(n, len(values) - 1)]


@lru_cache(maxsize=SCORES_KEPT)
def score_pieces(reading: Reading, text: str) -> tuple[float, ...]:
    """Return the score of the best answer in each piece of the text that was read."""
    return tuple(reading.best_within(piece.start, piece.end)[0] for piece in split_pieces(text))


@lru_cache(maxsize=SCORES_KEPT)
def _word_pairs(text: str) -> frozenset[tuple[str, str]]:
    return frozenset(pairwise(list_words(text)))


def list_grams(text: str) -> list[str]:
    """Return the words of a text, and the pairs of neighbours."""
    words = list_words(text)
    return words + [f"{a} {b}" for a, b in pairwise(words)]


@lru_cache(maxsize=GRAMS_KEPT)
def gram_vector(text: str, rarity: WordRarity) -> Vector:
    """Return the words and pairs of a text as one vector of length 1.

    Its shape is (GRAM_BUCKETS,), by signed hashing (Weinberger et al. 2009).
    """
    vector = np.zeros(GRAM_BUCKETS, np.float32)
    for gram in list_grams(text):
        code = _code_of(gram)
        vector[(code >> 1) % GRAM_BUCKETS] += (rarity(gram) + 0.1) * (1 if code & 1 else -1)
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


@lru_cache(maxsize=SHAPES_KEPT)
def question_shape(text: str) -> tuple[float, ...]:
    """Return how a text is built, whatever it is about and in whatever language: lengths, and counts of marks."""
    words = text.split()
    capitals = sum(word[:1].isupper() for word in words[1:])
    return (
        math.log1p(len(words)),
        math.log1p(len(text)),
        len(text) / (len(words) + 1),
        float(len(words) < 6),
        float(len(split_sentences(text))),
        float(min(capitals, 5)),
        float(not capitals),
        float(text[:1].isupper()),
        *(math.log1p(len(pattern.findall(text))) for pattern in _COUNTED),
    )
