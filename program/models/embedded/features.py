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
from program.models.embedded.reader import Reader, Reading
from program.models.text import split_pieces, split_sentences

Vector = NDArray[np.float32]
BLOCKS: tuple[str, ...] = ("meaning", "grams", "shape", "reading", "statement", "bases", "options")
UNIT_LENGTH = frozenset({"meaning", "grams"})  # of length 1 already; the others are standardised
SHAPE, READING, STATEMENT, CHAIN = 13, 24, 12, 7  # numbers in each, the last among those of reading
GRAM_BUCKETS = 1024
TEXTS_KEPT, SHAPES_KEPT = 1024, 20_000  # of the last texts
MOST_CHAINED = 8  # texts: pairs grow with the square
SUREST = 20.0  # logits past it are taken as it
VERSION = repr((BLOCKS, SHAPE, READING, STATEMENT, GRAM_BUCKETS)).encode()
"""What heads depend on: those of another version do not fit."""
_COUNTED = tuple(map(re.compile, (r"\d", r"[,;]", r"\?", r"[+*/=<>^%]", r"[\"“”()]")))


@dataclass(frozen=True)
class FeatureSpace:
    """What a set of demonstrations fixes for every case read in its light: rarities, and the bases seen."""

    words: WordRarity
    grams: WordRarity
    bases: tuple[str, ...]

    @classmethod
    def from_cases(cls, cases: Sequence[Case]) -> FeatureSpace:
        """Return the space of some demonstrations."""
        asked, shown = dict.fromkeys(c.asked for c in cases), dict.fromkeys(t for c in cases for t in c.evidence)
        words = WordRarity(map(word_set, dict.fromkeys(t.embedded for t in shown) or asked))
        return cls(words, WordRarity(map(list_grams, asked)), tuple(sorted({t.base for t in shown} - {""})))

    def compute_blocks(self, cases: Sequence[Case], embedder: Embedder, reader: Reader) -> list[dict[str, Vector]]:
        """Return each case's blocks, all but `options`.

        Among them are the `similarities` to the evidence and the `answers` that are read in it. What is new is embedded
        in one go, and read in one go.
        """
        wanted = [text for c in cases for text in (c.asked, *c.texts, *(one.embedded for one in c.read))]
        vectors = dict(zip(wanted, embedder.encode(wanted), strict=True))
        readings = iter(reader.read_pairs([(c.asked, one[:2]) for c in cases for one in c.read]))
        return [self._blocks_of(c, vectors, [next(readings) for _ in c.read]) for c in cases]

    def _blocks_of(self, case: Case, vectors: Mapping[str, Vector], read: Sequence[Reading]) -> dict[str, Vector]:
        count = len(case.evidence)
        sims = np.array([vectors[one.embedded] @ vectors[case.asked] for one in case.read], np.float32)
        blocks: dict[str, Any] = {
            "meaning": np.mean([vectors[text] for text in case.texts or ("",)], axis=0),
            "grams": gram_vector(case.asked, self.grams),
            "shape": question_shape(case.asked),
            "reading": self._judge_evidence(case, read[:count], sims[:count]) if count else [0.0] * READING,
            "statement": self._judge_statement(case, *case.quoted, read, sims) if case.quoted else [0.0] * STATEMENT,
            "bases": self._compare_bases(case, sims[:count]),
            "similarities": sims[:count],
            "answers": [_clip(one.answers) for one in read[:count]],
        }
        return {name: np.asarray(block, np.float32) for name, block in blocks.items()}

    def _judge_evidence(self, case: Case, read: Sequence[Reading], sims: Vector) -> list[float]:
        asked, bags = word_set(case.asked), [word_set(t.embedded) for t in case.evidence]
        pairs, told = _word_pairs(case.asked), frozenset[str]().union(*bags)
        numbers = frozenset(word for word in asked if any(map(str.isdigit, word)))
        answers = sorted((_clip(one.answers) for one in read), reverse=True)
        ranked = sorted(zip(read, case.evidence, strict=True), key=lambda one: -one[0].margin)
        spans = [t.text[slice(*one.span)].casefold() for one, t in ranked[:2] if one.margin > 0]
        return [
            *(answers[min(n, len(answers) - 1)] for n in range(3)),
            math.fsum(answers) / len(answers),
            *(_clip(ranked[min(n, len(ranked) - 1)][0].margin) for n in range(2)),
            float(sims.max()),
            float(sims.mean()),
            max(self.words.share_of(asked, bag) for bag in bags),
            self.words.share_of(asked, told),
            math.log(len(read)),
            float(len(spans) == 2 and spans[0] == spans[1]),
            float(len(spans) == 2 and spans[0] != spans[1]),
            sum(answer > 0 for answer in answers) / len(answers),
            max(len(asked & bag) for bag in bags) / max(len(asked), 1),
            max(len(pairs & _word_pairs(t.text)) for t in case.evidence) / max(len(pairs), 1),
            len(numbers & told) / len(numbers) if numbers else 1.0,
            *self._chain_texts(asked, case.evidence[:MOST_CHAINED]),
        ]

    def _chain_texts(self, asked: frozenset[str], texts: Sequence[EvidenceText]) -> list[float]:
        """Return how well one text leads to another by naming its title, as a question of several steps needs.

        Words of a title that the question lacks are looked for in the other text, with and without those of its own
        title; what is found counts by what both texts cover of the question. Last come titles named in full.
        """
        best = [0.0] * CHAIN
        for to in texts:
            bridge, name = word_set(to.title) - asked, to.title.partition("(")[0].strip().casefold()
            for of in texts:
                if of is to or not bridge:
                    continue
                link = self.words.share_of(bridge, word_set(of.text))
                new = self.words.share_of(bridge - word_set(of.title), word_set(of.text))
                both = self.words.share_of(asked, word_set(of.embedded) | word_set(to.embedded))
                named = float(len(name) > 2 and name in of.text.casefold())
                found = (link, new, both * link, both * new, both * new * new, named, both * named)
                best = [max(pair) for pair in zip(best, found, strict=True)]
        return best

    def _judge_statement(self, case: Case, n: int, at: int, read: Sequence[Reading], sims: Vector) -> list[float]:
        """Return how well the quoted piece answers, first the score of the best answer in it."""
        text, whole, sentence, alone = case.evidence[n].text, read[n], case.read[-1], read[-1]
        asked = word_set(case.asked)
        scores = score_pieces(whole, text)
        return [
            _clip(scores[at]),
            _clip(scores[at] - whole.margin),
            1 / (1 + sum(score > scores[at] for score in scores)),
            *map(_clip, (whole.answers, alone.answers, alone.margin)),
            float(sims[-1]),
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
            if case.evidence[i].base in self.bases:
                place = self.bases.index(case.evidence[i].base)
                best[place] = max(best[place], sims[i])
                share[place] += 1 if rank < 5 else 0
        return np.concatenate([best, best - sims.max(initial=0.0), share / 5])


def _clip(logit: float) -> float:
    return min(max(logit, -SUREST), SUREST)


@lru_cache(maxsize=TEXTS_KEPT)
def score_pieces(reading: Reading, text: str) -> tuple[float, ...]:
    """Return the score of the best answer in each piece of the text that was read."""
    return tuple(reading.best_within(piece.start, piece.end)[0] for piece in split_pieces(text))


@lru_cache(maxsize=TEXTS_KEPT)
def _word_pairs(text: str) -> frozenset[tuple[str, str]]:
    return frozenset(pairwise(list_words(text)))


def list_grams(text: str) -> list[str]:
    """Return the words of a text, and the pairs of neighbours."""
    words = list_words(text)
    return words + [f"{a} {b}" for a, b in pairwise(words)]


@lru_cache(maxsize=TEXTS_KEPT)
def gram_vector(text: str, rarity: WordRarity) -> Vector:
    """Return the words and pairs of a text as one vector of length 1.

    Its shape is (GRAM_BUCKETS,), by signed hashing (Weinberger et al. 2009).
    """
    vector = np.zeros(GRAM_BUCKETS, np.float32)
    for gram in list_grams(text):
        code = crc32(gram.encode(errors="replace"))
        vector[(code >> 1) % GRAM_BUCKETS] += (rarity(gram) + 0.1) * (1 if code & 1 else -1)
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


@lru_cache(maxsize=SHAPES_KEPT)
def question_shape(text: str) -> tuple[float, ...]:
    """Return how a text is built, in whatever language.

    These are lengths, sentences, capitals inside, and counts of marks.
    """
    words = text.split()
    capitals = sum(word[:1].isupper() for word in words[1:])
    return (
        *(math.log1p(len(words)), math.log1p(len(text)), len(text) / (len(words) + 1), float(len(words) < 6)),
        *(float(len(split_sentences(text))), min(capitals, 5.0), float(not capitals), float(text[:1].isupper())),
        *(math.log1p(len(pattern.findall(text))) for pattern in _COUNTED),
    )
