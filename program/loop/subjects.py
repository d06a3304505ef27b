"""Whose sentence it is: the thing that a question names, and what its pieces are of.

1. The subject of a piece is the title of its passage, the name of its row, and the row's key.
2. A word of the question that a piece has nowhere, while a rival has it in its subject, speaks against the piece, and
   so does a code (X300) that no piece has; a word that a rival has in its text alone speaks half as much. How much is
   a knob: what a logistic regression gave on four held-out files of questions (.55).
3. Two pieces are of one subject unless the question names that of one with a word which the other has nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ragc.loop.decide import shift_odds
from ragc.passage import TITLE_STEP, Passage
from ragc.text.pieces import Piece, split_cells
from ragc.text.words import split_words

IN_TEXT = 0.5  # of a word that a rival has in its text, against 1 of one in its subject
TEXTS_KEPT = 8192


@dataclass(frozen=True, slots=True)
class Subject:
    """What a piece is of, and what it says, as text."""

    name: str
    text: str

    @classmethod
    def of_piece(cls, passage: Passage, piece: Piece) -> Subject:
        """Return that of a piece of a passage."""
        key = split_cells(piece.text)[0] if piece.row else ""
        return cls(f"{passage.subject}\n{key}", f"{piece.lead or ''}\n{piece.text}")

    @property
    def words(self) -> frozenset[str]:
        return _word_set(self.name) | _word_set(self.text)


@lru_cache(maxsize=TEXTS_KEPT)
def _word_set(text: str) -> frozenset[str]:
    return frozenset(split_words(text))


@lru_cache(maxsize=TEXTS_KEPT // 8)
def count_strange(question: str, subjects: tuple[Subject, ...]) -> tuple[float, ...]:
    """Return for each piece how many words of the question are a rival's alone."""
    asked = _word_set(question)
    codes = {word for word in asked if not (word.isalpha() or word.isdigit()) and word.isalnum()}
    named = asked & frozenset(codes).union(*(_word_set(one.name) for one in subjects))
    written = (asked & frozenset[str]().union(*(_word_set(one.text) for one in subjects))) - named
    return tuple(len(named - one.words) + IN_TEXT * len(written - one.words) for one in subjects)


def discount_strange(
    chances: Sequence[float], look_ups: Sequence[tuple[int, str]], subjects: Sequence[Subject], weight: float
) -> list[float]:
    """Return how probably each piece is right, once the pieces beside it are seen.

    `weight` for each strange word is taken from the logarithm of the odds. `look_ups` are the number and the question
    of each piece's.
    """
    found = list(chances)
    for number, question in dict.fromkeys(look_ups) if weight else ():
        places = [at for at, one in enumerate(look_ups) if one == (number, question)]
        counts = count_strange(question, tuple(subjects[at] for at in places))
        for at, count in zip(places, counts, strict=True):
            found[at] = shift_odds(chances[at], -weight * count) if count else chances[at]
    return found


def names_other(question: str, one: Subject, other: Subject) -> bool:
    """Tell whether the question names the subject of `other` alone.

    That is by a word that `one` has nowhere; a word with a digit counts in the text of `other`, too.
    """
    own = _word_set(other.name) | {word for word in _word_set(other.text) if any(map(str.isdigit, word))}
    return not (_word_set(question) & own) <= one.words


def find_steps(passages: Iterable[Passage]) -> dict[str, str]:
    """Return by id the step of each title that tells passages apart.

    It is empty unless the titles differ in one step alone.
    """
    titles = {passage.id: passage.title.split(TITLE_STEP) for passage in passages}
    if len({tuple(steps) for steps in titles.values()}) < 2 or len({*map(len, titles.values())}) != 1:
        return {}
    differ = [at for at, steps in enumerate(zip(*titles.values(), strict=True)) if len({*steps}) > 1]
    return {id_: steps[differ[0]] for id_, steps in titles.items()} if len(differ) == 1 else {}
