"""Which rows of a table a question names.

1. Rows are of one table by the header of their first cells; a row lacks the headers of its empty cells.
2. A question names a row by the words of a cell, by several that no other row has, by a day of them, and by a number in
   the range of its first cell, else of another.
3. A row is beside those that it names by more. Where it names a day or a number that no row has, all are beside.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ragc.text.days import find_asked_stems, is_day_first, list_days, misses_day, name_day, parse_day
from ragc.text.facts import list_worded_numbers
from ragc.text.ranges import find_measures, find_ranges, list_measured, spell_range
from ragc.text.words import find_stems

GLOSS = re.compile(r"\([^()]*\)")
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


def name_rows(question: str, rows: Iterable[Row]) -> RowMatches:
    """Return what the question has of each row.

    It names a row by the words of a cell, and by a number in the range of its first cell; where it names none so, by a
    number in the range of another cell, of a column of ranges. One is not named where another of the table is named by
    more, and has each word of the question that it has.
    """
    return _match_rows(question, tuple(dict.fromkeys(filter(None, rows))))


@lru_cache(maxsize=TEXTS_KEPT // 8)
def _match_rows(question: str, every_row: tuple[Row, ...]) -> RowMatches:
    tables, asked, found = defaultdict[tuple[str, ...], list[Row]](list), find_stems(question), dict[Row, RowMatch]()
    widest = find_widest(every_row)
    for row in every_row:
        tables[widest[list_headers(row)]].append(row)
    for headers, rows in tables.items():
        firsts, *others = zip(*(fill_row(row, headers) for row in rows), strict=True)
        # A range in a sentence may be what is asked for.
        outside = bool(others) and _lies_outside(question, firsts)
        days = dict(zip(rows, _list_named_days([firsts, *others], find_asked_stems(question)), strict=True))
        holders = Counter(word for row in rows for word in find_values(row))
        single = frozenset(word for word in asked if holders[word] == 1)
        named = {row: _list_said(row, single, asked) | days[row] for row in rows}
        held = dict(zip(rows, _list_held(question, firsts), strict=True))
        if not any((*held.values(), *named.values())):
            ranges = [[*_list_held(question, cells)] for cells in others if all(find_ranges(_list_values(cells)))]
            held = {row: frozenset[str]().union(*(column[at] for column in ranges)) for at, row in enumerate(rows)}
        every = {row: named[row] | find_stems("\n".join(held[row])) for row in rows}
        for row, said in every.items():
            words = asked & find_values(row)
            beside = outside or (any(held.values()) and not said)
            beside |= any(said < more and words <= find_values(other) | more for other, more in every.items())
            found[row] = RowMatch(False if beside else bool(said) or None, held[row], days[row])
    return found


@lru_cache(maxsize=TEXTS_KEPT)
def find_widest(rows: tuple[Row, ...]) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return for the headers of each row those of the widest row of its table.

    A row lacks the headers of empty cells. A table is told by the header of its first column.
    """
    every = sorted({*map(list_headers, rows)})  # of several as wide the same one in every process
    return {own: max((one for one in every if one[:1] == own[:1] and {*own} <= {*one}), key=len) for own in every}


def fill_row(row: Row, headers: tuple[str, ...]) -> Row:
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
        own, whole = find_stems(value), find_name(value) <= asked
        found = (asked if whole else single) & own
        said |= found if whole or 1 < len(found) > len(own) / 2 else frozenset()
    return said


@lru_cache(maxsize=TEXTS_KEPT)
def find_name(value: str) -> frozenset[str]:
    """Return the words of a cell without those between its parentheses.

    They explain it: `Child (4 to 15 years)`.
    """
    return find_stems(GLOSS.sub("", value)) or find_stems(value)


def _list_named_days(columns: Sequence[Sequence[tuple[str, str]]], asked: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield the words of days of each row's cells that are asked for, a weekday or a month among them."""
    firsts = [is_day_first(_list_values(column)) for column in columns]
    for row in zip(*columns, strict=True):
        days = (asked & list_days(value, first) for (_, value), first in zip(row, firsts, strict=True))
        yield frozenset[str]().union(*(found for found in days if any(map(str.isalpha, found))))


def name_keys(question: str, rows: RowMatches, row: Row, texts: Collection[str]) -> str:
    """Return a question with the key of a row, where it names that.

    The range stands in place of a number in it, for a reader compares words. The first cell stands behind another that
    is named, where none but the named rows have that in the texts, `High Moor (P-07)`, and before a part that names
    none.
    """
    asked = question.casefold()
    if not rows.get(row, NO_MATCH).named:
        return question
    for cell in (cell for header, value in row for cell in (value, header)):
        question = name_day(question, cell)
    key, spelt = row[0][1], question
    if find_name(key) <= find_stems(question):
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
def find_values(row: Row) -> frozenset[str]:
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
