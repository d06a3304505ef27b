"""From a decision's inputs to numbers: blocks of features that a head may weigh, none of one language's words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ragc.errors import QuestionError
from ragc.models.embedded.encoder import Embedder
from ragc.models.embedded.reader import Reader, Reading
from ragc.text.history import Turn, answers_back, join_questions, read_history
from ragc.text.pieces import split_pieces, split_sentences

Vector = NDArray[np.float32]
BLOCKS: tuple[str, ...] = ("meaning", "grams", "shape", "reading", "statement", "bases", "options")
UNIT_LENGTH = frozenset({"meaning", "grams"})  # of length 1 already; the others are standardised
SHAPE, READING, STATEMENT, CHAIN = 13, 24, 13, 7  # numbers in each, the last among those of reading
GRAM_BUCKETS = 1024
TEXTS_KEPT, SHAPES_KEPT = 1024, 20_000  # of the last texts
MOST_CHAINED = 8  # texts: pairs grow with the square
SUREST = 20.0  # logits past it are taken as it
VERSION = repr((BLOCKS, SHAPE, READING, STATEMENT, GRAM_BUCKETS)).encode()
"""What heads depend on: those of another version do not fit."""
_COUNTED = tuple(map(re.compile, (r"\d", r"[,;]", r"\?", r"[+*/=<>^%]", r"[\"“”()]")))
WORDS_KEPT = 20_000  # of the texts read last
IMAGINED = 20.0  # texts, beside those counted
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class EvidenceText(NamedTuple):
    """One titled text of the evidence, and the knowledge base it came from, if any."""

    title: str
    text: str
    base: str = ""

    @property
    def embedded(self) -> str:
        """The text as it is embedded: behind its title."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True)
class Case:
    """One set of inputs: the text that is judged, what it is judged against, and all texts."""

    asked: str
    evidence: tuple[EvidenceText, ...] = ()
    texts: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()  # of the conversation before the text that is judged

    @cached_property
    def quoted(self) -> tuple[int, int] | None:
        """The places of the evidence text and of its piece that is the second text, when it can be quoted from it."""
        for n, one in enumerate(self.evidence if len(self.texts) > 1 else ()):
            for at, piece in enumerate(split_pieces(one.text)):
                if piece.text == self.texts[1]:
                    return n, at
        return None

    @cached_property
    def cells(self) -> tuple[EvidenceText, ...]:
        """Each cell of the table that the quoted piece is a cell of, as a text."""
        if self.quoted is None:
            return ()
        n, at = self.quoted
        title, text, _ = self.evidence[n]
        pieces = split_pieces(text)
        return tuple(EvidenceText(title, piece.text) for piece in pieces if piece.row) if pieces[at].row else ()


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
    turns: tuple[Turn, ...] = ()
    with suppress(QuestionError):  # anybody's program may call something else its history
        turns = read_history(inputs.get("history"))
    return Case(texts[0] if texts else "", tuple(evidence or others), texts, turns)


def compare_turns(case: Case, embedder: Embedder) -> Vector:
    """Return how a text stands to the conversation before it, in seven numbers.

    They are its similarity to the last question before it, to what the assistant said last, and to itself behind that
    question; the share of its words in either; whether it only chooses what the assistant offered; and its length.
    """
    said = {turn.role: turn.content for turn in case.turns}
    before, back = said.get("user", ""), said.get("assistant", "") if case.turns[-1].role == "assistant" else ""
    own, *others = embedder.encode([case.asked, before, back, join_questions(case.turns, case.asked)])
    words = word_set(case.asked)
    shares = (len(words & word_set(text)) / max(len(words), 1) for text in (before, back))
    near = (float(own @ other) * bool(text) for other, text in zip(others, (before, back, before), strict=True))
    row = [*near, *shares, float(answers_back(case.turns, case.asked)), math.log1p(len(words))]
    return np.array(row, np.float32)


def _list_excerpts(value: Any) -> list[EvidenceText]:
    if isinstance(value, Mapping):
        if not isinstance(value.get("text"), str):
            return []
        return [EvidenceText(str(value.get("title") or ""), value["text"], str(value.get("base") or ""))]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [found for item in value for found in _list_excerpts(item)]
    return [EvidenceText("", value)] if isinstance(value, str) else []


def list_words(text: str) -> list[str]:
    """Return the words of a text without their case."""
    return [word.casefold() for word in _TOKEN.findall(text)]


@lru_cache(maxsize=WORDS_KEPT)
def word_set(text: str) -> frozenset[str]:
    """Return the different words of a text."""
    return frozenset(list_words(text))


class WordRarity:
    """How rare a word is, from 0 (in every text) to 1 (in none), by its share of the texts counted.

    The weight is the inverse document frequency log((N + 1 + P) / (n + P p + 0.5)) over its largest value, with P
    imagined texts of which a word of that length is in the share p.
    """

    def __init__(self, texts: Iterable[Collection[str]]) -> None:
        bags = [set(words) for words in texts]
        self._counts, self._total = Counter(word for bag in bags for word in bag), len(bags) + 1 + IMAGINED
        self._known: dict[str, float] = {}
        self.weigh = lru_cache(maxsize=TEXTS_KEPT)(self._weigh)
        """Returns the sum of some words' rarities."""

    def __call__(self, word: str) -> float:
        if word not in self._known:
            share = 0.2 if len(word) <= 3 and not word.isdigit() else 0.1 if len(word) <= 4 else 0.02
            rare = math.log(self._total / (self._counts[word] + share * IMAGINED + 0.5)) / math.log(self._total / 0.5)
            self._known[word] = min(max(rare, 0.0), 1.0)
        return self._known[word]

    def share_of(self, some: frozenset[str], words: frozenset[str]) -> float:
        """Return how much of some words is among others, each by its rarity; 0 of none.

        The sums are exact, so that no order of words changes them.
        """
        whole = self.weigh(some)
        return self.weigh(some & words) / whole if whole else 0.0

    def _weigh(self, words: frozenset[str]) -> float:
        return math.fsum(map(self, words))


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

    @cached_property
    def hash_grams(self) -> Callable[[str], Vector]:
        """`gram_vector` with these rarities; the last texts' vectors are dropped with the space that they belong to."""
        return lru_cache(maxsize=TEXTS_KEPT)(partial(gram_vector, rarity=self.grams))

    def compute_blocks(self, cases: Sequence[Case], embedder: Embedder, reader: Reader) -> list[dict[str, Vector]]:
        """Return each case's blocks, all but `options`.

        Among them are the `similarities` to the evidence and the `answers` that are read in it. What is new is embedded
        in one go, and read in one go.
        """
        # Of a piece that may be quoted nothing is embedded: what its text is about says as much.
        wanted = [
            text
            for c in cases
            for text in (c.asked, *(() if c.quoted else c.texts), *(one.embedded for one in c.evidence))
        ]
        vectors = dict(zip(wanted, embedder.encode(wanted), strict=True))
        texts = [(c.asked, one[:2]) for c in cases for one in (*c.evidence, *c.cells)]
        readings = iter(reader.read_pairs(texts))
        return [self._blocks_of(c, vectors, [next(readings) for _ in (*c.evidence, *c.cells)]) for c in cases]

    def _blocks_of(self, case: Case, vectors: Mapping[str, Vector], read: Sequence[Reading]) -> dict[str, Vector]:
        count = len(case.evidence)
        sims = np.array([vectors[one.embedded] @ vectors[case.asked] for one in case.evidence], np.float32)
        texts = (case.asked,) if case.quoted else case.texts or ("",)
        blocks: dict[str, Any] = {
            "meaning": np.mean([vectors[text] for text in texts], axis=0),
            "grams": self.hash_grams(case.asked),
            "shape": question_shape(case.asked),
            "reading": self._judge_evidence(case, read[:count], sims) if count else [0.0] * READING,
            "statement": self._judge_statement(case, *case.quoted, read, sims) if case.quoted else [0.0] * STATEMENT,
            "bases": self._compare_bases(case, sims),
            "similarities": sims,
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
        """Return how well the quoted piece answers, in thirteen numbers.

        They are the score of the best answer in it; its lead over the best of the text's others; one over its rank in
        the text; whether the text answers; its similarity to the question; the share of the question's words in the
        piece, and in title and piece; whether it is a cell. In a table the reader takes rows and columns for one
        another, so a cell is read behind its key by itself, as a text among the table's cells, and scored by its value.
        The last numbers are the score of the best answer in the whole text, whether that answers, the cell's own score
        and lead, and the score of the best answer before its value; they are 0 of other pieces.
        """
        title, text, _ = case.evidence[n]
        pieces, asked, cells = split_pieces(text), word_set(case.asked), tuple(read[len(case.evidence) :])
        piece, scores, answers = pieces[at], score_pieces(read[n], text), read[n].answers
        if cells:
            at = sum(bool(other.row) for other in pieces[:at])
            scores, answers = score_cells(cells, text), cells[at].answers
        own = _clip(scores[at])
        lead = _clip(scores[at] - max((*scores[:at], *scores[at + 1 :]), default=-SUREST))
        beside = (0.0,) * 6
        if cells:
            key = cells[at].best_within(0, piece.value)[0]
            beside = 1.0, _clip(read[n].margin), _clip(read[n].answers), own, lead, _clip(key)
        return [
            own,
            lead,
            1 / (1 + sum(one > scores[at] for one in scores)),
            _clip(answers),
            float(sims[n]),
            self.words.share_of(asked, word_set(piece.text)),
            self.words.share_of(asked, word_set(f"{title}\n{piece.text}")),
            *beside,
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
def score_cells(readings: tuple[Reading, ...], text: str) -> tuple[float, ...]:
    """Return the score of the best answer in each cell's value of a text's tables."""
    cells = [piece for piece in split_pieces(text) if piece.row]
    return tuple(one.best_within(cell.value, None)[0] for one, cell in zip(readings, cells, strict=True))


@lru_cache(maxsize=TEXTS_KEPT)
def _word_pairs(text: str) -> frozenset[tuple[str, str]]:
    return frozenset(pairwise(list_words(text)))


def list_grams(text: str) -> list[str]:
    """Return the words of a text, and the pairs of neighbours."""
    words = list_words(text)
    return words + [f"{a} {b}" for a, b in pairwise(words)]


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
