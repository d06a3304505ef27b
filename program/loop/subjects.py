"""Whose sentence it is: the thing that a question names, and what its pieces are of.

1. The subject of a piece is the title of its passage, the name of its row, and the row's key.
2. A word of the question that a piece has nowhere, while a rival has it in its subject, speaks against the piece, and
   so does a code (X300) that no piece has; a word that a rival has in its text alone speaks half as much, and one of
   the header of another cell of the row as much as one of its subject. How much is a knob: what a logistic regression,
   and one in which the pieces of a question compete, gave on four held-out files of questions (.55). Where a piece has
   another word in the place of one that a rival has, `the Oslo office` for `the Bergen office`, in its text or in a
   step of its title, or other weekdays than one that a rival has, it is of another thing; so is a cell beside a row,
   or in a row that is asked for beside a column, that is named in full (of 2,315 such cells none was right, and of 397
   one), or by function words alone, what says of all that is asked for the opposite of a negated question, and what has
   none of the names that are asked for, written with a capital, of which a rival has one. A cell
   whose row and column are named is what was asked for, and so is what stands under the very question, and the list
   under a heading that is named with nothing but what stands above it.
   What a sentence of another thing loses is lost, unless a rival has each word of the question that it has: the head of
   the Oslo office is no reason to tell when the Bergen office is open. So is what several have that are about as
   probable, with different words in place of one that stands nowhere: `a dog`, `a pitch` for `a cat`.
3. A question names a row by the words of its cells, by a number in the range of its first or else of another, and by
   a day of them; a row is beside those that it names by more. Where it asks for the name of rows and nothing else, the
   cell that it names tells it.
4. Two pieces are of one subject unless the question names that of one with a word which the other has nowhere.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ragc.loop.decide import shift_odds, to_odds
from ragc.loop.policy import Tuning
from ragc.passage import TITLE_STEP
from ragc.text.days import (
    MONTHS,
    find_asked_stems,
    is_day_first,
    list_days,
    list_weekdays,
    misses_day,
    name_day,
    parse_day,
    spell_dates,
)
from ragc.text.facts import list_worded_numbers
from ragc.text.pieces import ASKS, Piece, split_cells
from ragc.text.ranges import find_measures, find_ranges, find_span, list_measured, spell_range
from ragc.text.words import WORD, find_stems, is_negated, split_words

IN_TEXT = 0.5  # of a word that a rival has in its text, against 1 of one in its subject, or in a header of its row
REPLACED = 7.0  # of a word in whose place the piece has another
OTHER = 3.0  # from which on a piece is of another thing
NAMED = -1.5  # of a cell whose row and column are asked for
BESIDE = 5.0  # of a cell of another row than one that is asked for
ANSWERS, ALIKE = -5.0, 0.6  # of what stands under the question that is asked, by the share of its words
_GLOSS = re.compile(r"\([^()]*\)")
_LETTER, _DIGITS = re.compile(r"[^\W\d_]"), re.compile(r"\d+")
_WITHIN = re.compile(r"(?<=[^\W.?!] )\w+(?:-\w+)*")  # a word that does not begin a sentence
TEXTS_KEPT = 8192
Row = tuple[tuple[str, str], ...]
"""The headers and the values of a row; of a sentence the word before its range, and that."""


class RowMatch(NamedTuple):
    """What a question has of a row."""

    named: bool | None = None
    """Whether it names the row; None where it names no row of the table."""
    numbers: frozenset[str] = frozenset()
    """Its numbers in the range of the row."""
    days: frozenset[str] = frozenset()
    """Its words of the days of the row."""


NO_MATCH = RowMatch()
RowMatches = Mapping[Row, RowMatch]


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
        return _find_values(self.row)

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
    proper = _list_names(question) & (named | written)
    headers, keys = defaultdict[tuple[str, ...], set[str]](set), defaultdict[tuple[str, ...], set[frozenset[str]]](set)
    names = defaultdict[object, set[str]](set)
    widest = _find_widest(tuple({one.row for one in subjects}))
    tables = {one: widest[list_headers(one.row)] for one in subjects}
    for one in subjects:
        names[tables[one], find_stems(one.key)].add(one.key)
        headers[tables[one]] |= _ask_header(one, asked)
        keys[tables[one]] |= {key for key in [_find_name(one.key)] if key and key <= asked}
    places = [place for place in _list_places(question) if _is_named_by(place, subjects)]
    every = {(at, step) for one in subjects for at, step in enumerate(one.steps)}
    steps = [(at, step) for at, step in every if (words := find_stems(step)) and words <= asked]
    known, negated = (
        asked.intersection(*[frozenset[str]().union(*(one.words for one in subjects))]),
        is_negated(question),
    )
    week = list_weekdays(question)
    said = [list_weekdays(f"{one.name}\n{one.text}") if week else week for one in subjects]
    week &= frozenset[str]().union(*said)
    rows = name_rows(question, subjects)
    if whole and not any(match.named for match in rows.values()):
        rows = name_rows(whole, subjects)
    return tuple(
        len(named - one.words - held)
        + IN_TEXT * len(written - one.words - held)
        + OTHER * (bool(proper) and proper.isdisjoint(one.words | one.row_words | held))
        + REPLACED
        * (
            any(_replaces(one, place, asked) for place in places)
            or (bool(week and days) and not week & days)
            or (negated and known <= one.words and not is_negated(f"{one.name}\n{one.text}"))
            or any(_stands_beside(one, step, at, asked) for at, step in steps)
            or _asks_else(question, one.question)
        )
        + (
            _weigh_cell(one, _fill_row(one.row, columns), asked, headers[columns], keys[columns], match)
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
    key, header = _find_name(one.key), _ask_header(one, asked)
    if named and one.header and (naming := _find_naming(one, asked, days)):
        return NAMED if naming == one.header else BESIDE
    of_row = key in keys or bool(named)
    is_asked = of_row and header >= headers - find_stems(one.key) and (bool(header) or len(row) < 3)
    beside = named is False or (named is None and bool(keys and key and key not in keys))
    others = [(h, value) for h, value in row[1:] if h and (not value or value not in one.key)] if of_row else []
    columns = (asked & _list_header_days(*cell) or _find_name(cell[0]) for cell in others)
    beside |= any(header < column <= asked and not column <= find_stems(one.name) | header for column in columns)
    against = max(BESIDE * beside, REPLACED * _is_narrower(one, asked))
    return bool(one.header) * len(headers - one.words - header) + NAMED * is_asked + against


def _ask_header(one: Subject, asked: frozenset[str]) -> frozenset[str]:
    """Return the words of a cell's header that are asked for, those of the days and months that it names among them."""
    return asked & (find_stems(one.header) | _list_header_days(one.header, dict(one.row).get(one.header, "")))


@lru_cache(maxsize=TEXTS_KEPT)
def _list_header_days(header: str, value: str) -> frozenset[str]:
    """Return the words of the weekdays and months of a header, or of what it has in parentheses; none above a day."""
    glosses = () if list_days(value) else (_GLOSS.sub("", header), *(gloss[1:-1] for gloss in _GLOSS.findall(header)))
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


def name_rows(question: str, subjects: Iterable[Subject]) -> RowMatches:
    """Return what the question has of each row.

    It names a row by the words of a cell, and by a number in the range of its first cell; where it names none so, by a
    number in the range of another cell, of a column of ranges. One is not named where another of the table is named by
    more, and has each word of the question that it has.
    """
    return _match_rows(question, tuple(dict.fromkeys(one.row for one in subjects if one.row)))


@lru_cache(maxsize=TEXTS_KEPT // 8)
def _match_rows(question: str, every_row: tuple[Row, ...]) -> RowMatches:
    tables, asked, found = defaultdict[tuple[str, ...], list[Row]](list), find_stems(question), dict[Row, RowMatch]()
    widest = _find_widest(every_row)
    for row in every_row:
        tables[widest[list_headers(row)]].append(row)
    for headers, rows in tables.items():
        firsts, *others = zip(*(_fill_row(row, headers) for row in rows), strict=True)
        # A range in a sentence may be what is asked for.
        outside = bool(others) and _lies_outside(question, firsts)
        days = dict(zip(rows, _list_named_days([firsts, *others], find_asked_stems(question)), strict=True))
        shared = Counter(word for row in rows for word in _find_values(row))
        named = {
            row: _list_said(row, frozenset(word for word in asked if shared[word] == 1), asked) | days[row]
            for row in rows
        }
        held = dict(zip(rows, _list_held(question, firsts), strict=True))
        if not any((*held.values(), *named.values())):
            ranges = [[*_list_held(question, cells)] for cells in others if all(find_ranges(_list_values(cells)))]
            held = {row: frozenset[str]().union(*(column[at] for column in ranges)) for at, row in enumerate(rows)}
        every = {row: named[row] | find_stems("\n".join(held[row])) for row in rows}
        for row, said in every.items():
            words = asked & _find_values(row)
            beside = outside or (any(held.values()) and not said)
            beside |= any(said < more and words <= _find_values(other) | more for other, more in every.items())
            found[row] = RowMatch(False if beside else bool(said) or None, held[row], days[row])
    return found


@lru_cache(maxsize=TEXTS_KEPT)
def _find_widest(rows: tuple[Row, ...]) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return for the headers of each row those of the widest row of its table: it lacks the headers of empty cells.

    A table is told by the header of its first column.
    """
    every = frozenset(map(list_headers, rows))
    return {own: max((one for one in every if one[:1] == own[:1] and {*own} <= {*one}), key=len) for own in every}


def _fill_row(row: Row, headers: tuple[str, ...]) -> Row:
    """Return a row with an empty cell under each header that it lacks."""
    return row if list_headers(row) == headers else tuple((header, dict(row).get(header, "")) for header in headers)


def list_headers(row: Row) -> tuple[str, ...]:
    """Return the headers of a row, which tell its table."""
    return tuple(header for header, _ in row)


def _list_said(row: Row, single: frozenset[str], asked: frozenset[str]) -> frozenset[str]:
    """Return the words of those cells of a row that are asked for with all words of their name.

    So are several words, more than half of a cell's, that are `single`: of no other row.
    """
    said = frozenset[str]()
    for value in (value for _, value in row if any(map(str.isalpha, value))):
        own, whole = find_stems(value), _find_name(value) <= asked
        found = (asked if whole else single) & own
        said |= found if whole or 1 < len(found) > len(own) / 2 else frozenset()
    return said


@lru_cache(maxsize=TEXTS_KEPT)
def _find_name(value: str) -> frozenset[str]:
    """Return the words of a cell without those between its parentheses, which explain it: `Child (4 to 15 years)`."""
    return find_stems(_GLOSS.sub("", value)) or find_stems(value)


def _list_named_days(columns: Sequence[Sequence[tuple[str, str]]], asked: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield the words of days of each row's cells that are asked for, a weekday or a month among them."""
    firsts = [is_day_first(_list_values(column)) for column in columns]
    for row in zip(*columns, strict=True):
        days = (asked & list_days(value, first) for (_, value), first in zip(row, firsts, strict=True))
        yield frozenset[str]().union(*(found for found in days if any(map(str.isalpha, found))))


def name_keys(question: str, rows: RowMatches, subject: Subject, texts: Collection[str]) -> str:
    """Return a question with the key of a piece's row, where it names that.

    The range stands in place of a number in it, for a reader compares words. The first cell stands behind another that
    is named, where none but the named rows have that in the texts, `High Moor (P-07)`, and before a part that names
    none.
    """
    row, asked = subject.row, question.casefold()
    if not rows.get(row, NO_MATCH).named:
        return question
    for cell in (cell for header, value in row for cell in (value, header)):
        question = name_day(question, cell)
    key, spelt = row[0][1], question
    if _find_name(key) <= find_stems(question):
        return question
    for number in rows[row].numbers:
        spelt = spell_range(spelt, number, key)
    if spelt != question:
        return spelt
    places = [(question.casefold().find(cell[1].casefold()), *cell) for cell in row[1:]]
    # Months, `March to July`, name many rows.
    told = (one for one in places if any(map(str.isdigit, one[2])) or one[2].casefold() in asked)
    named = (one for one in told if one[0] >= 0 and (one[2][:1].isalpha() or parse_day(one[2])))
    at, header, value = min(named, default=(0, "", ""))
    if not value:
        return f"{key}: {question}"
    of_named = sum((header, value) in other for other, match in rows.items() if match.named)
    alone = sum(text.count(f"{header}: {value}") for text in texts) <= of_named
    return f"{question[: at + len(value)]} ({key}){question[at + len(value) :]}" if alone else question


@lru_cache(maxsize=TEXTS_KEPT)
def _find_values(row: Row) -> frozenset[str]:
    return find_stems("\n".join(value for _, value in row)).union(*(list_days(value) for _, value in row))


@lru_cache(maxsize=TEXTS_KEPT)
def _list_numbers(question: str) -> tuple[tuple[str, float, frozenset[str]], ...]:
    """Return each number of a question, in digits or in words, and what it may be measured in."""
    worded = (f"{a} {number:g} {b}" for number, a, b in list_worded_numbers(question))
    return tuple(measured for text in (question, *worded) for measured in list_measured(text))


def _lies_outside(question: str, cells: Sequence[tuple[str, str]]) -> bool:
    """Tell whether a question names a day of the week, or a number measured as a column of ranges, that no cell has."""
    if misses_day(question, _list_values(cells)):
        return True
    ranges = [one for one in find_ranges(_list_values(cells)) if one]
    measures = find_measures("\n".join(map(" ".join, cells)))
    measured = [number for _, number, beside in _list_numbers(question) if beside & measures]
    return bool(ranges and measured) and not any(one.holds(number) for one in ranges for number in measured)


def _list_values(cells: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(value for _, value in cells)


def _list_held(question: str, cells: Sequence[tuple[str, str]]) -> Iterator[frozenset[str]]:
    """Yield for each cell of a column, of its header and value, the question's numbers in the range that it names."""
    for (header, value), of_cell in zip(cells, find_ranges(_list_values(cells)), strict=True):
        measures = find_measures(f"{header} {value}") if of_cell else frozenset()
        numbers = _list_numbers(question) if of_cell else ()
        yield frozenset(
            word for word, number, beside in numbers if of_cell and of_cell.holds(number) and beside & measures
        )


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
    differ = [pair for pair in zip(words, own, strict=False) if pair[0] != pair[1]]
    if len(words) != len(own) or len(differ) != 1 or differ[0][0] in one.words or differ[0][1] in asked:
        return False
    return len(words) > 1 or (numbered and len({*map(_form_of, differ[0])}) == 1)


@lru_cache(maxsize=TEXTS_KEPT)
def _list_names(question: str) -> frozenset[str]:
    """Return the stems of the words within a sentence that begin with a capital alone, but for those of days."""
    within = _WITHIN.findall(question.partition("\n")[0])
    names = " ".join(word for word in within if word[0].isupper() and not word[1:2].isupper())
    return find_stems(names) - list_weekdays(names) - find_stems(" ".join(MONTHS))


def _asks_else(question: str, other: str) -> bool:
    """Tell whether another question has another word in one place of this one: `Can I bring my dog?`, not `my cat?`."""
    words, own = (split_words(text, keep_stop_words=True) for text in (question, other))
    differ = [pair for pair in zip(words, own, strict=False) if pair[0] != pair[1]]
    alike = other[-1:] in ASKS and len(words) == len(own) and len(differ) == 1
    return alike and all(find_stems(text) >= {word} for text, word in zip((question, other), differ[0], strict=True))


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
    """Return how probably each piece is right, once the pieces beside it are seen, and by look-up the odds of none.

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
        for others in _list_others(question, {at: subjects[at] for at in places}):
            best = sorted(max(map(to_odds, (found[at] for at in of))) for of in others)[-2:]
            if len(best) > 1 and best[0] >= math.exp(-tuning.near) * best[1]:
                lost |= (strange := frozenset[int]().union(*others))
                for at in strange:
                    found[at] = shift_odds(found[at], -weight * REPLACED)
        none[number] = sum(to_odds(chances[at]) - to_odds(found[at]) for at in lost)
    return found, none


def _list_others(question: str, subjects: Mapping[int, Subject]) -> Iterator[Collection[frozenset[int]]]:
    """Yield for each word of a question that no piece has the pieces of each word that stands in its place.

    That is in a sentence, or at the head of a step of a title, or of the name of a row.
    """
    asked, every = find_asked_stems(question), frozenset[str]().union(*(one.words for one in subjects.values()))
    for before, word, after in _list_places(question):
        others = defaultdict[str, set[int]](set)
        is_there = _is_named_by((before, word, after), subjects.values()) if word.isdigit() else word in every
        for at, one in () if is_there else subjects.items():
            names = (*one.steps, one.key, one.header, *(f"{one.key} {header}" for header, _ in one.row[:1]))
            heads = {place for name in names for place in _list_places(name)}
            heads = {(a, b, c) for a, b, c in heads if not a or b.isdigit()}
            for a, other, c in {*heads, *(() if one.row or word.isdigit() else _list_places(one.text))}:
                alike = (a or before, c) == (before, after) and other.isdigit() == word.isdigit()
                if alike and other.isalnum() and other not in asked:
                    others[other].add(at)
        yield [frozenset(of) for of in others.values()]


def names_other(question: str, one: Subject, other: Subject) -> bool:
    """Tell whether the question names the subject of `other` alone.

    That is by a word that `one` has nowhere; a word with a digit counts in the text of `other`, too.
    """
    own = find_stems(other.name) | {word for word in find_stems(other.text) if any(map(str.isdigit, word))}
    return not (find_stems(question) & own) <= one.words
