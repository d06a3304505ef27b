"""What makes a question vague: found texts answer it in several ways, and it names none of what tells them apart.

1. Rivals of one kind are the cells of a column, the cells of a row, the best pieces of a text, and texts whose titles
   differ in one step or that answer best.
2. Each rival has a name in the page's words (key cell, header, title's step) and the reader's score of an answer in it.
3. A kind is measured: how near its scores are to each other and to the best of all, and how much of the question's
   words name one of its rivals, or what they have in common.
4. A head weighs the measures; of all kinds at most one is what the question leaves open.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ragc.models.embedded.features import EvidenceText, Vector, WordRarity
from ragc.models.embedded.reader import FLOOR, Reader, Reading
from ragc.passage import TITLE_STEP
from ragc.text.pieces import quote_shortly, split_cells, split_pieces
from ragc.text.words import find_stems

FORMS = 4
COLUMN, ROW, PIECES, TITLES = range(FORMS)
MEASURES = 27  # of a kind, the last of which is 1
RIVALS = FORMS * MEASURES  # numbers of a kind: the measures at the place of its form, else 0
MOST_RIVALS = 4  # pieces or texts in a kind by score, and options in a question back
LOWEST = FLOOR / 2  # of a score
QUESTIONS_KEPT = 1024  # of those asked last: one is asked again with other demonstrations

Words = frozenset[str]


class Rival(NamedTuple):
    """One of several answers: its name, the reader's score of it, and what the page says there."""

    name: str
    score: float
    value: str


class Kind(NamedTuple):
    """Rivals of one kind, the best first; what they have in common, and the places of the texts they stand in."""

    form: int
    about: str
    rivals: Sequence[Rival]
    places: Sequence[int]

    @property
    def options(self) -> list[str]:
        """The names of the best rivals, as a question back lists them; of a piece a short quotation."""
        names = (quote_shortly(one.name) if self.form == PIECES else one.name for one in self.rivals)
        return list(dict.fromkeys(names))[:MOST_RIVALS]


def read_rivals(
    question: str, texts: Sequence[EvidenceText], sims: Vector, reader: Reader
) -> tuple[list[Kind], Vector]:
    """Return the kinds of rivals in some texts, and their measures.

    `sims` are the texts' similarities to the question.
    """
    return _read_known(question, tuple(texts), tuple(sims.tolist()), reader)


@lru_cache(maxsize=QUESTIONS_KEPT)
def _read_known(
    question: str, texts: tuple[EvidenceText, ...], sims: tuple[float, ...], reader: Reader
) -> tuple[list[Kind], Vector]:
    read = reader.read(question, [text[:2] for text in texts])
    kinds = list_kinds(texts, read)
    return kinds, measure_kinds(question, texts, read, np.array(sims, np.float32), kinds)


def list_kinds(texts: Sequence[EvidenceText], read: Sequence[Reading]) -> list[Kind]:
    """Return every kind of at least two rivals among some texts, as they were read."""
    within = (kind for n, text in enumerate(texts) for kind in _list_within(n, text, read[n]))
    return [kind for kind in (*within, *_list_titles(texts, read)) if len({rival.name for rival in kind.rivals}) > 1]


def _list_within(place: int, text: EvidenceText, reading: Reading) -> Iterator[Kind]:
    tables, pieces = defaultdict[tuple[int, str, str], list[Rival]](list), list[Rival]()
    for piece in split_pieces(text.text):
        cells = split_cells(piece.text) if piece.row else []
        if len(cells) != 2:
            pieces.append(Rival(piece.text, _score_answer(reading, piece.start, piece.end), piece.text))
            continue
        (header, _, key), (name, _, value) = (cell.partition(": ") for cell in cells)
        score = _score_answer(reading, piece.end - len(value), piece.end)
        tables[COLUMN, header, name].append(Rival(key or header, score, value))
        tables[ROW, cells[0], key].append(Rival(name, score, value))
    for (form, _, about), rivals in tables.items():
        yield Kind(form, about, _best_first(rivals), (place,))
    best = _best_first(pieces)
    for most in range(2, min(len(best), MOST_RIVALS) + 1):
        yield Kind(PIECES, text.title, best[:most], (place,))


def _list_titles(texts: Sequence[EvidenceText], read: Sequence[Reading]) -> Iterator[Kind]:
    ranked = sorted(range(len(texts)), key=lambda n: -read[n].margin)
    paths = [tuple(text.title.split(TITLE_STEP)) for text in texts]
    groups = defaultdict[tuple[object, ...], list[int]](list)
    for n in ranked:
        for at in range(len(paths[n])):
            groups[at, *paths[n][:at], None, *paths[n][at + 1 :]].append(n)
    unlike = list({paths[n]: n for n in reversed(ranked)}.values())[::-1]
    tops = [unlike[:most] for most in range(2, min(len(unlike), MOST_RIVALS) + 1)]
    for places in dict.fromkeys(map(tuple, (*groups.values(), *tops))):
        first = paths[places[0]]
        if other := next((paths[n] for n in places if paths[n] != first), None):
            at = max(n for n in range(max(len(first), len(other))) if first[n : n + 1] != other[n : n + 1])
            rivals = dict[str, Rival]()
            for n in places:
                name, value = paths[n][min(at, len(paths[n]) - 1)], texts[n].text[slice(*read[n].span)]
                rivals.setdefault(name, Rival(name, max(read[n].margin, LOWEST), value))
            shared = [step for step in first if all(step in paths[n] for n in places)]
            yield Kind(TITLES, " ".join(shared), list(rivals.values()), places)


def _score_answer(reading: Reading, start: int, end: int) -> float:
    """Return a bound of the score of an answer between two characters: its best first and its best last token."""
    low = int(np.searchsorted(reading.offsets[:, 0], start))
    high = int(np.searchsorted(reading.offsets[:, 1], end, side="right"))
    return max(float(reading.logits[:, low:high].max(1).sum()), LOWEST) if high > low else LOWEST


def _best_first(rivals: Sequence[Rival]) -> list[Rival]:
    return sorted(rivals, key=lambda rival: -rival.score)


def measure_kinds(
    question: str,
    texts: Sequence[EvidenceText],
    read: Sequence[Reading],
    sims: Vector,
    kinds: Sequence[Kind],
) -> Vector:
    """Return shape (kinds, RIVALS).

    In order: the best score, and its lead over the best of all kinds, the second and the mean; the scores' entropy; the
    logarithm of their number; the share of words that the question has of the best-named rival and of the best; the
    share of rivals with a word named, whether there are any, and whether the best is one; the share of the question's
    words that name any, then how much of what they have in common is asked, and is of the question; the share of unlike
    values; how surely one of their texts answers, and one of all; the question's words; how surely all of their texts
    answer; their greatest and least similarity, and the lead of the first; the share of the question's words in their
    texts, and in none; the logarithms of the numbers of texts and of kinds. Words weigh as they are rare.
    """
    asked, bags = find_stems(question), [find_stems(f"{text.title} {text.text}") for text in texts]
    rarity, known = WordRarity(bags), frozenset[str]().union(*bags)
    answers = [min(max(one.answers, LOWEST), -LOWEST) for one in read]
    best = max((kind.rivals[0].score for kind in kinds), default=0.0)
    rows = np.zeros((len(kinds), FORMS, MEASURES), np.float32)
    for n, (form, about, rivals, places) in enumerate(kinds):
        scores = np.array([rival.score for rival in rivals])
        shares = np.exp(scores - scores[0]) / np.exp(scores - scores[0]).sum()
        names = [find_stems(rival.name) for rival in rivals]
        common = frozenset.intersection(*names)
        telling = [name - common for name in names]
        named, hit = [rarity.share_of(own, asked) for own in telling], [bool(own & asked) for own in telling]
        common |= find_stems(about)
        near, sure = sims[list(places)], [answers[at] for at in places]
        rows[n, form] = [
            *(scores[0], scores[0] - best, scores[1] - scores[0], scores.mean() - scores[0]),
            *(-(shares * np.log(shares + 1e-9)).sum() / math.log(len(scores)), math.log(len(scores))),
            *(max(named), named[0], sum(hit) / len(hit), any(hit), hit[0]),
            rarity.share_of(asked, frozenset[str]().union(*telling)),
            *(rarity.share_of(common, asked), rarity.share_of(asked, common)),
            len({rival.value.casefold() for rival in rivals}) / len(rivals),
            *(max(sure), max(answers), len(asked), min(sure)),
            *(near.max(), near.min(), near.max() - sims.max()),
            rarity.share_of(asked, frozenset[str]().union(*(bags[at] for at in places))),
            *(1 - rarity.share_of(asked, known), math.log(len(texts)), math.log(len(kinds)), 1.0),
        ]
    return rows.reshape(len(kinds), RIVALS)
