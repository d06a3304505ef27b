"""Whose sentence it is: the thing that a question names, and what its pieces are of.

1. The subject of a piece is the title of its passage, the name of its row, and the row's key.
2. A word of the question that a piece has nowhere speaks against it: by 1 where a rival has it in its subject, by .5
   where a rival has it in its text. So does a code, X300, that no piece has, and a word of the header of another cell
   of the row. The weight of 1 is a knob: what a logistic regression, and one in which the pieces of a question compete,
   gave on four held-out files of questions (.55).
3. A piece is of another thing that has another word in the place of one that a rival has, `the Oslo office` for `the
   Bergen office`, in its text or in a step of its title; that has other names than those of the question, of which a
   rival has one; that has other weekdays than a rival; that stands under another question; or that has every word of a
   negated question and says that it is so.
4. So is a cell beside a row that is asked for, or in such a row beside a column that is named in full (of 2,315 such
   cells none was right, and of 397 one). A cell whose row and column are named gains. So does what stands under the
   very question, and the list under a heading that is named with nothing but what stands above it.
5. What a sentence of another thing loses speaks for none of the pieces, unless a rival has each word of the question
   that it has. So does what several lose that have different words, about as probable, in place of one that stands
   nowhere: `a dog` and `a pitch` for `a cat`.
6. Two pieces are of one subject unless the question names that of one with a word which the other has nowhere.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from ragc.loop.decide import shift_odds, to_odds
from ragc.loop.policy import Tuning
from ragc.loop.rows import (
    GLOSS,
    NO_MATCH,
    TEXTS_KEPT,
    Row,
    RowMatch,
    fill_row,
    find_name,
    find_values,
    find_widest,
    list_headers,
    name_rows,
)
from ragc.passage import TITLE_STEP
from ragc.text.days import (
    MONTH_STEMS,
    find_asked_stems,
    list_days,
    list_weekdays,
    spell_dates,
)
from ragc.text.pieces import ASKS, Piece, split_cells
from ragc.text.ranges import find_span
from ragc.text.words import WORD, find_stems, is_negated, split_words

IN_TEXT = 0.5  # of a word that a rival has in its text, against 1 of one in its subject, or in a header of its row
REPLACED = 7.0  # of a word in whose place the piece has another
OTHER = 3.0  # from which on a piece is of another thing
NAMED = -1.5  # of a cell whose row and column are asked for
BESIDE = 5.0  # of a cell of another row than one that is asked for
ANSWERS, ALIKE = -5.0, 0.6  # of what stands under the question that is asked, by the share of its words
_LETTER, _DIGITS = re.compile(r"[^\W\d_]"), re.compile(r"\d+")
_WITHIN = re.compile(r"(?<=[^\W.?!] )\w+(?:-\w+)*")  # a word that does not begin a sentence


@dataclass(frozen=True, slots=True)
class Subject:
    """What a piece is of, and what it says, as text."""

    name: str
    text: str
    header: str = ""
    """What the column of a cell is called."""
    key: str = ""
    """What the row of a cell is called."""
    question: str = ""
    """The question that it stands under, as its lead or as its heading."""
    row: Row = ()
    """Of a cell."""
    listed: bool = False
    """Whether it is an item of a list that can be told whole."""

    @property
    def words(self) -> frozenset[str]:
        return _find_words(self)

    @property
    def row_words(self) -> frozenset[str]:
        """The words of the cells of its row."""
        return find_values(self.row)

    @property
    def steps(self) -> Sequence[str]:
        """The steps of its title."""
        return self.name.partition("\n")[0].split(TITLE_STEP)

    def asks_row(self, question: str) -> bool:
        """Tell whether a question seeks rows by the column of a cell.

        It has a word of the header of their names, and one of the cell's.
        """
        headers = [find_stems(header) for header in (self.row[0][0] if self.row else "", self.header)]
        return all(words and not words.isdisjoint(find_stems(question)) for words in headers)


@lru_cache(maxsize=TEXTS_KEPT)
def _find_words(subject: Subject) -> frozenset[str]:
    return find_stems(subject.name) | find_stems(subject.text)


@lru_cache(maxsize=TEXTS_KEPT)
def find_subject(of: str, piece: Piece) -> Subject:
    """Return that of a piece of a passage which is `of` something."""
    key, *cells = split_cells(piece.text) if piece.row else [""]
    question = piece.question or of.rpartition(TITLE_STEP)[2]
    row = tuple((a, c) if b else ("", a) for a, b, c in (cell.partition(": ") for cell in piece.cells))
    # A key before its value is a row, and so is each item of a list of labels and texts.
    if not row and ((piece.row and not cells) or (piece.items and all(": " in item for item in piece.items))):
        key, _, said = piece.text.partition(": ")
        row = (piece.lead or question, key), ("", said)
    header = "".join(cells[-1:]).partition(": ")
    name, text = map(spell_dates, (f"{of}\n{key}", f"{piece.lead or ''}\n{piece.text}"))
    if not row and (span := find_span(piece.text))[1]:
        row, key = (span,), span[1]
    listed = bool(piece.items) and not row
    return Subject(name, text, header[0] if header[1] else "", key.partition(": ")[2] or key, question, row, listed)


@lru_cache(maxsize=TEXTS_KEPT // 8)
def count_strange(question: str, subjects: tuple[Subject, ...], whole: str = "") -> tuple[float, ...]:
    """Return how much speaks against each piece, counted in words of a rival.

    A part of a question that names no row is asked of the one that the `whole` names.
    """
    asked = find_asked_stems(question)
    named = asked & frozenset(_list_codes(question)).union(*(find_stems(one.name) for one in subjects))
    written = (asked & frozenset[str]().union(*(find_stems(one.text) for one in subjects))) - named
    proper = _list_names(question.partition("\n")[0]) & (named | written)
    headers, keys = defaultdict[tuple[str, ...], set[str]](set), defaultdict[tuple[str, ...], set[frozenset[str]]](set)
    names = defaultdict[object, set[str]](set)
    widest = find_widest(tuple(dict.fromkeys(one.row for one in subjects)))
    tables = {one: widest[list_headers(one.row)] for one in subjects}
    for one in subjects:
        names[tables[one], find_stems(one.key)].add(one.key)
        headers[tables[one]] |= _ask_header(one, asked)
        keys[tables[one]] |= {key for key in [find_name(one.key)] if key and key <= asked}
    places = [place for place in _list_places(question) if _is_named_by(place, subjects)]
    every = {(at, step) for one in subjects for at, step in enumerate(one.steps)}
    steps = [(at, step) for at, step in every if (words := find_stems(step)) and words <= asked]
    denied = (named | written) if is_negated(question) else frozenset[str]()
    week = list_weekdays(question)
    said = [list_weekdays(f"{one.name}\n{one.text}") if week else week for one in subjects]
    week &= frozenset[str]().union(*said)
    rows = name_rows(question, (one.row for one in subjects))
    if whole and not any(match.named for match in rows.values()):
        rows = name_rows(whole, (one.row for one in subjects))
    return tuple(
        len(named - one.words - held)
        + IN_TEXT * len(written - one.words - held)
        + OTHER
        * (bool(proper) and proper.isdisjoint(one.words | one.row_words | held) and bool(_list_names(one.text) - asked))
        + REPLACED
        * (
            any(_replaces(one, place, asked) for place in places)
            or (bool(week and days) and not week & days)
            or (bool(denied) and denied <= one.words and not is_negated(f"{one.name}\n{one.text}"))
            or any(_stands_beside(one, step, at, asked) for at, step in steps)
            or _asks_else(question, one.question)
        )
        + (
            _weigh_cell(one, fill_row(one.row, columns), asked, headers[columns], keys[columns], match)
            if one.key or one.header
            else 0.0
        )
        + ANSWERS * (are_alike(question, one.question) or _asks_list(question, one))
        + BESIDE * any(is_named_else(question, *named) for named in ((one.header, columns), (one.key, alike)))
        for one, days in zip(subjects, said, strict=True)
        for match, columns in [(rows.get(one.row, NO_MATCH), tables[one])]
        for alike in [names[columns, find_stems(one.key)]]
        for held in [match.numbers | match.days]
    )


def _weigh_cell(
    one: Subject, row: Row, asked: frozenset[str], headers: Set[str], keys: Set[frozenset[str]], match: RowMatch
) -> float:
    """Return what speaks against a cell of a `row` with its empty cells.

    The asked words of the headers of its row are given, and the keys of its table that are asked for.
    """
    named, days = match.named, match.days
    key, header = find_name(one.key), _ask_header(one, asked)
    if named and one.header and (naming := _find_naming(one, asked, days)):
        return NAMED if naming == one.header else BESIDE
    of_row = key in keys or bool(named)
    is_asked = of_row and header >= headers - find_stems(one.key) and (bool(header) or len(row) < 3)
    beside = named is False or (named is None and bool(keys and key and key not in keys))
    others = [(h, value) for h, value in row[1:] if h and (not value or value not in one.key)] if of_row else []
    columns = (asked & _list_header_days(*cell) or find_name(cell[0]) for cell in others)
    beside |= any(header < column <= asked and not column <= find_stems(one.name) | header for column in columns)
    against = max(BESIDE * beside, REPLACED * _is_narrower(one, asked))
    return bool(one.header) * len(headers - one.words - header) + NAMED * is_asked + against


def _ask_header(one: Subject, asked: frozenset[str]) -> frozenset[str]:
    """Return the words of a cell's header that are asked for, those of the days and months that it names among them."""
    return asked & (find_stems(one.header) | _list_header_days(one.header, dict(one.row).get(one.header, "")))


@lru_cache(maxsize=TEXTS_KEPT)
def _list_header_days(header: str, value: str) -> frozenset[str]:
    """Return the words of the weekdays and months of a header, or of what it has in parentheses; none above a day."""
    glosses = () if list_days(value) else (GLOSS.sub("", header), *(gloss[1:-1] for gloss in GLOSS.findall(header)))
    return frozenset(day for day in frozenset[str]().union(*map(list_days, glosses)) if day.isalpha())


def _is_narrower(one: Subject, asked: frozenset[str]) -> bool:
    """Tell whether its header says more than another of the row does, and nothing more that is asked for."""
    header = find_stems(one.header)
    others = (find_stems(other) for other, _ in one.row)
    return any(other and other < header and asked.isdisjoint(header - other) for other in others)


def _find_naming(one: Subject, asked: frozenset[str], days: frozenset[str]) -> str:
    """Return the header of the cell by which the name of its row is asked for, and nothing else; empty where none is.

    `days` are the words by which a day of the row is named.
    """
    names = [header for at, (header, value) in enumerate(one.row) if at == 0 or value in one.name]
    rest = asked - find_stems("\n".join([one.name, *map(" ".join, one.row)])) - days
    if rest or find_stems("\n".join(names)).isdisjoint(asked):
        return ""
    values = ((header, value) for header, value in one.row if header not in names)
    said = ((h, list_days(value) & days or find_stems(value)) for h, value in values)
    return next((header for header, words in said if words and words <= asked), "")


def is_named_else(question: str, name: str, names: Iterable[str]) -> bool:
    """Tell whether the question names another that only function words tell from a name: `off-peak`, not `peak`."""
    stems = find_stems(name)
    alike = [other for other in names if other != name and stems and find_stems(other) == stems]
    if not alike:
        return False
    asked = {*split_words(question, keep_stop_words=True)}
    words = (split_words(one, keep_stop_words=True) for one in (name, *alike))
    own, *others = (len(said) if asked.issuperset(said) else 0 for said in words)
    return max(others) > own


@lru_cache(maxsize=TEXTS_KEPT)
def are_alike(question: str, other: str) -> bool:
    """Tell whether two questions say the same, in mostly the same words."""
    a, b = ({*split_words(text, keep_stop_words=True)} for text in (question, other))
    same = find_stems(question) == find_stems(other) and is_negated(question) == is_negated(other)
    return same and len(a & b) >= max(ALIKE * len(a | b), 1)


def _asks_list(question: str, one: Subject) -> bool:
    """Tell whether a question asks for the list of an item: it names the heading, and else only what stands above."""
    heading = find_stems(one.question) if one.listed else frozenset[str]()
    return bool(heading) and heading <= find_stems(question) <= find_stems(one.name)


@lru_cache(maxsize=TEXTS_KEPT)
def _list_places(text: str) -> frozenset[tuple[str, str, str]]:
    """Return each word of a text between its neighbours, of which one says something; none behind a number."""
    words, said = ["", *split_words(text, keep_stop_words=True), ""], find_stems(text)
    places = ((a, b, "" if b[:1].isdigit() else c) for a, b, c in zip(words, words[1:], words[2:], strict=False))
    return frozenset((a, b, c) for a, b, c in places if b in said and (a in said or c in said))


def _is_named_by(place: tuple[str, str, str], subjects: Iterable[Subject]) -> bool:
    """Tell whether a subject has the word beside one of its neighbours."""
    return any(
        b == place[1] and ((a == place[0] and a) or (c == place[2] and c))
        for one in subjects
        for a, b, c in _list_places(f"{one.name}\n{one.text}")
    )


def _replaces(one: Subject, place: tuple[str, str, str], asked: frozenset[str]) -> bool:
    """Tell whether a piece has another word in a place of the question, and not that of the question."""
    before, word, after = place
    return word not in one.words and any(
        (a, c) == (before, after) and b not in asked and b[:1].isdigit() == word[:1].isdigit()
        for a, b, c in _list_places(one.text)
    )


def _stands_beside(one: Subject, step: str, at: int, asked: frozenset[str]) -> bool:
    """Tell whether a piece is under a step that has another word in one place of it, or says more than its number.

    `Birch room` is not `Elm room`, nor `X200 Pro` `X200`.
    """
    own = split_words(one.steps[at], keep_stop_words=True) if at < len(one.steps) else []
    words = split_words(step, keep_stop_words=True)
    numbered = any(map(str.isdigit, step))
    if numbered and own[: len(words)] == words and asked.isdisjoint(own[len(words) :]):
        return len(own) > len(words)
    differ = _find_change(words, own)
    if differ is None or differ[0] in one.words or differ[1] in asked:
        return False
    return len(words) > 1 or (numbered and len({*map(_form_of, differ)}) == 1)


@lru_cache(maxsize=TEXTS_KEPT)
def _list_names(text: str) -> frozenset[str]:
    """Return the stems of the words within sentences that begin with a capital alone, but for those of days."""
    names = " ".join(word for word in _WITHIN.findall(text) if word[0].isupper() and not word[1:2].isupper())
    return find_stems(names) - list_weekdays(names) - MONTH_STEMS


def _asks_else(question: str, other: str) -> bool:
    """Tell whether another question has another word in one place of this one: `Can I bring my dog?`, not `my cat?`."""
    words = (split_words(text, keep_stop_words=True) for text in (question, other))
    differ = _find_change(*words) if other[-1:] in ASKS else None
    return differ is not None and differ[0] in find_stems(question) and differ[1] in find_stems(other)


def _find_change(words: Sequence[str], own: Sequence[str]) -> tuple[str, str] | None:
    """Return the words of the one place in which two runs of words differ, if there is one alone."""
    differ = [pair for pair in zip(words, own, strict=False) if pair[0] != pair[1]]
    return differ[0] if len(words) == len(own) and len(differ) == 1 else None


def _list_codes(text: str) -> list[str]:
    """Return the words of letters and digits, such as X300."""
    return [word for word in find_stems(text) if word.isalnum() and not (word.isalpha() or word.isdigit())]


def find_unknown(question: str, subjects: Iterable[Subject]) -> str:
    """Return a code of the question that stands nowhere, else an empty string."""
    if not (codes := _list_codes(question)):
        return ""
    subjects = list(subjects)
    every = frozenset[str]().union(*(one.words for one in subjects))
    forms = {_form_of(code) for one in subjects for code in _list_codes(one.name)}
    unknown = {code for code in codes if code not in every and _form_of(code) in forms}
    return next((word for word in WORD.findall(question) if word.casefold() in unknown), "")


def _form_of(code: str) -> str:
    return _DIGITS.sub("0", _LETTER.sub("a", code))


def discount_strange(
    chances: Sequence[float],
    look_ups: Sequence[tuple[int, str]],
    subjects: Sequence[Subject],
    tuning: Tuning,
    whole: str,
) -> tuple[list[float], dict[int, float]]:
    """Return how probably each piece is right beside the others, and by look-up the odds of none.

    The weight of a `subject`, for each strange word, is taken from the logarithm of the odds. `look_ups` are the number
    and the question of each piece's. What a sentence of another thing loses is the odds that none is right, unless a
    cell is named, or a piece has each word of the question that the sentence has, and less against it.
    """
    found, none, weight = list(chances), defaultdict[int, float](float), tuning.subject
    for number, question in dict.fromkeys(look_ups) if weight else ():
        places = [at for at, one in enumerate(look_ups) if one == (number, question)]
        counts = dict(zip(places, count_strange(question, tuple(subjects[at] for at in places), whole), strict=True))
        asked = find_asked_stems(question)
        for at, count in counts.items():
            found[at] = shift_odds(chances[at], -weight * count) if count else chances[at]
        lost = {
            at
            for at, count in counts.items()
            if count >= OTHER and not subjects[at].header and min(counts.values()) >= 0
            if not any(counts[k] < count and asked & subjects[at].words <= subjects[k].words for k in places)
        }
        for others in _list_others(question, tuple(subjects[at] for at in places)):
            best = sorted(max(to_odds(found[places[n]]) for n in of) for of in others)[-2:]
            if len(best) > 1 and best[0] >= math.exp(-tuning.near) * best[1]:
                lost |= (strange := {places[n] for of in others for n in of})
                for at in strange:
                    found[at] = shift_odds(found[at], -weight * REPLACED)
        none[number] = sum(to_odds(chances[at]) - to_odds(found[at]) for at in lost)
    return found, none


@lru_cache(maxsize=TEXTS_KEPT // 8)
def _list_others(question: str, subjects: tuple[Subject, ...]) -> Sequence[Collection[Set[int]]]:
    """Return for each word of a question that no piece has the places of the pieces of each word in its stead.

    That is in a sentence, or at the head of a step of a title, or of the name of a row.
    """
    asked, every = find_asked_stems(question), frozenset[str]().union(*(one.words for one in subjects))
    found = list[Collection[Set[int]]]()
    for before, word, after in sorted(_list_places(question)):  # what one discounts, the next is weighed without
        others = defaultdict[str, set[int]](set)
        is_there = _is_named_by((before, word, after), subjects) if word.isdigit() else word in every
        for at, one in () if is_there else enumerate(subjects):
            names = (*one.steps, one.key, one.header, *(f"{one.key} {header}" for header, _ in one.row[:1]))
            heads = {(a, b, c) for name in names for a, b, c in _list_places(name) if not a or b.isdigit()}
            for a, other, c in {*heads, *(() if one.row or word.isdigit() else _list_places(one.text))}:
                alike = (a or before, c) == (before, after) and other.isdigit() == word.isdigit()
                if alike and other.isalnum() and other not in asked:
                    others[other].add(at)
        found += [others.values()] if others else []
    return found


def names_other(question: str, one: Subject, other: Subject) -> bool:
    """Tell whether the question names the subject of `other` alone.

    That is by a word that `one` has nowhere; a word with a digit counts in the text of `other`, too.
    """
    own = find_stems(other.name) | {word for word in find_stems(other.text) if any(map(str.isdigit, word))}
    return not (find_stems(question) & own) <= one.words
