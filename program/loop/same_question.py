"""Whether a question asks for what a reviewed one does: by their words, and by what the reader finds for both."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, NamedTuple, Self

from ragc.passage import Passage
from ragc.text.facts import STOP, find_names, normalise_text
from ragc.text.pieces import Piece
from ragc.text.words import find_stems, fold_text, is_negated

if TYPE_CHECKING:
    from ragc.models.embedded.reader import Reader, Reading

FRAME = 2 / 3  # the share of words from which a question is another one with one place changed
WEIGHTS, BIAS = (0.378, 0.100, -0.157, 0.402, 0.515), 1.343
"""The decision: a logistic regression of the features of `AnswerPlace.compare`. Fitted on questions of public and
invented pages that have one answer, beside the nearest that have another or none."""
CLIP = 12.0  # a logit is no further from 0
TEXTS_KEPT = 8192  # of the questions whose words were read last
_ONE = re.compile(r"\bone\b")  # as good as an article


class AnswerPlace(NamedTuple):
    """Where a passage, with its title, states what was reviewed, and what the reader finds there for that question."""

    passage: tuple[str, str]
    start: int
    end: int
    """The place of its piece in the text."""
    span: tuple[int, int]
    """The place of the best answer."""
    clear: float
    """By how much the piece answers better than the rest of the passage."""

    @classmethod
    def of_piece(cls, passage: Passage, piece: Piece | None, read: Reading) -> AnswerPlace:
        """Return that of a piece, or of a whole passage."""
        start, end = (piece.start, piece.end) if piece else (0, len(passage.text))
        rest = max(read.best_within(0, start)[0], read.best_within(end, None)[0])
        clear = read.best_within(start, end)[0] - rest
        return cls((passage.subject, passage.text), start, end, read.span, clear)

    def compare(self, asked: Reading) -> tuple[float, ...]:
        """Return the features of the reading of a question.

        Whether the passage answers it; how well the piece does; how clear the piece is for the reviewed question; how
        much worse its best answer is for this one than this one's own; what both answers share.
        """
        (start, end), (first, last) = asked.span, self.span
        piece, same = asked.best_within(self.start, self.end)[0], asked.best_within(first, last)[0]
        logits = asked.answers, piece, self.clear, same - asked.margin
        shared = max(0, min(end, last) - max(start, first)) / max(1, max(end, last) - min(start, first))
        return *(min(CLIP, max(-CLIP, logit)) for logit in logits), shared


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """What an answer rests on, as far as it tells one question from another."""

    places: tuple[AnswerPlace, ...]
    """Its passages; none of what was asked back or refused."""
    said: str
    """Its sentences or cells behind their titles; what somebody wrote where there is none."""
    passages: frozenset[str]
    """The words of the passages around them."""

    @classmethod
    def of_pieces(cls, known: str, pieces: Sequence[tuple[Passage, Piece | None]], said: str, reader: Reader) -> Self:
        """Return the source of a reviewed answer: its passages, and the pieces in them."""
        shown = [f"{one.subject}\n{piece.shown} {piece.lead or ''}" if piece else one.subject for one, piece in pieces]
        said = "\n".join([*shown, said])
        read = reader.read(known, [(one.subject, one.text) for one, _ in pieces])
        places = tuple(AnswerPlace.of_piece(*two, one) for two, one in zip(pieces, read, strict=True))
        return cls(places, said, find_stems(" ".join([said, *(one.text for one, _ in pieces)])))

    def decide(self, question: str, known: str, reader: Reader) -> float:
        """Return how probably a question asks for what a reviewed one does."""
        asked, other = find_stems(question), find_stems(known)
        says_less = asked < other and bool((other - asked) & self.passages)
        names = _name_words(known) <= asked and _name_words(question) <= other | find_stems(self.said)
        if says_less or not names or not self.places or changes_one_place(question, known):
            return 0.0
        read = reader.read(question, [place.passage for place in self.places])
        sums = [sum(map(mul, WEIGHTS, place.compare(one))) for place, one in zip(self.places, read, strict=True)]
        return 1 / (1 + math.exp(-BIAS - min(sums)))


def changes_one_place(question: str, known: str) -> bool:
    """Tell whether a question is a reviewed one with one place changed.

    FRAME of their words stand alike before and behind it. A function word that is put in or left out changes nothing.
    """
    one, other = spell_question(question).split(), spell_question(known).split()
    before = _count_alike(one, other)
    behind = _count_alike(one[before:][::-1], other[before:][::-1])
    changed = [" ".join(words[before : len(words) - behind]) for words in (one, other)]
    differs = all(changed) or any(map(find_stems, changed))
    return differs and before + behind >= FRAME * max(len(one), len(other))


def _count_alike(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many words two questions have alike from the first on."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@lru_cache(maxsize=TEXTS_KEPT)
def _name_words(text: str) -> frozenset[str]:
    return frozenset[str]().union(*map(find_stems, find_names(text)))


@lru_cache(maxsize=TEXTS_KEPT)
def agree_on(question: str) -> tuple[frozenset[str], bool]:
    """Return the numbers of a question, and whether it denies something."""
    words = spell_question(_ONE.sub("a", fold_text(question))).split()
    numbers = frozenset(word for word in words if any(map(str.isdigit, word)))
    return numbers, is_negated(question)


def spell_question(question: str) -> str:
    """Return a question in the one spelling of its words and numbers."""
    return normalise_text(question).replace(f" {STOP} ", " ").strip()
