"""Bounds the question sets: dates on date columns, figures on number columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date

from program.models.rules.tables_dates import spans
from program.models.rules.tables_query import Filter, Op
from program.models.rules.tables_reading import Reading
from program.models.rules.tables_words import DIMENSIONS, NUMBERS, SECONDS, alike, stem
from program.models.table_schema import Column, Table

OPEN_ENDED = frozenset({"from", "to", "until", "till", "through", "expires", "valid", "effective"})


def dates(reading: Reading, columns: Sequence[Column]) -> Iterator[Filter]:
    """Bounds on the date column whose name is nearest the date in the question, else on the first one.

    A pair such as valid_from and valid_to is asked to hold on that date instead.
    """
    dated = [c for c in columns if c.kind == "date" and c.high]
    dated = [c for c in dated if c.table == columns[0].table] or dated
    years = [c for c in columns if c.year and c.table == columns[0].table]
    if years and not any(c.table == columns[0].table for c in dated):
        yield from _years(reading, years[0])
        return
    if not dated:
        return
    # Time stands still at the newest entry, so that the same question keeps its answer.
    past = [c for c in dated if OPEN_ENDED.isdisjoint(c.words)] or dated
    today = max(date.fromisoformat(str(c.high)[:10]) for c in past)
    start = next((c for c in dated if "from" in c.words), None)
    end = next((c for c in dated if {"to", "until"} & set(c.words)), None)
    for span in spans(reading.text, today):
        at = reading.index(span.start)
        stop = reading.index(span.end)
        if not any(reading.is_free(i, i + 1) for i in range(at, stop)):
            continue
        reading.use(at, stop, strong=True)
        if start and end:
            day = span.first or span.stop
            if day:
                yield Filter(start, "<=", (day.isoformat(),), at)
            continue
        column = _nearest(reading, dated, at)
        if span.first:
            yield Filter(column, ">=", (span.first.isoformat(),), at)
        if span.stop:
            yield Filter(column, "<", (span.stop.isoformat(),), at)


def _years(reading: Reading, column: Column) -> Iterator[Filter]:
    """Bounds on a column of years, from the dates that begin or end a year."""
    for span in spans(reading.text, date(int(column.high), 12, 31)):
        at, stop = reading.index(span.start), reading.index(span.end)
        whole = all(day is None or (day.month, day.day) == (1, 1) for day in (span.first, span.stop))
        if not whole or not reading.is_free(at, stop):
            continue
        reading.use(at, stop, strong=True)
        if span.first:
            yield Filter(column, ">=", (float(span.first.year),), at)
        if span.stop:
            yield Filter(column, "<", (float(span.stop.year),), at)


def _nearest(reading: Reading, dated: Sequence[Column], at: int) -> Column:
    def distance(column: Column) -> int:
        places = [abs(i - at) for i, w in enumerate(reading.words) if any(alike(w.stem, s) for s in column.stems)]
        return min(places, default=len(reading.words))

    return min(dated, key=distance)


_FIGURE = r"\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,9})?|\d{1,15}(?:\.\d{1,9})?"
_NUMBER = (
    rf"(?P<sign>[£$€])?\s?(?P<n>{_FIGURE}|{'|'.join(NUMBERS)})(?P<k>k|m)?"
    r"(?P<plus>\+| or (?:more|less|fewer|over|under|longer)| and (?:over|above))?\b(?!-)"
)
_COMPARED = re.compile(
    r"\b(?:(?P<most>at most|no more than|not more than|no longer than|up to)"
    r"|(?P<least>at least|no less than|no fewer than|not less than)"
    r"|(?P<less>(?:less|fewer|shorter|smaller|lower|cheaper|lighter|younger|quicker|faster) than|under|below)"
    r"|(?P<more>more than|\w+er than|over|above|exceed(?:s|ed|ing)?|upwards of)"
    r"|(?P<even>exactly|of|with|has|have|had)?)"
    rf"\s*{_NUMBER}(?:\s(?P<unit>[^\W\d]+))?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    rf"\bbetween [£$€]?(?P<low>{_FIGURE}) and [£$€]?(?P<high>{_FIGURE})(?:\s(?P<unit>[^\W\d]+))?", re.IGNORECASE
)


def numbers(reading: Reading, table: Table, columns: Sequence[Column]) -> Iterator[Filter | tuple[str, float]]:
    """Comparisons with a number; a pair (sign, number) when it counts the table's rows (`over 5 orders`)."""
    for match in _BETWEEN.finditer(reading.text):
        at, stop = reading.index(match.start()), reading.index(match.end())
        low, high = (float(match[g].replace(",", "")) for g in ("low", "high"))
        column = _measured(reading, columns, at, match["unit"] or "", "£" in match.group(), "")
        if column and reading.is_free(reading.index(match.start("low")), stop):
            reading.use(at, stop, strong=True)
            yield Filter(column, ">=", (_converted(low, match["unit"] or "", column),), at)
            yield Filter(column, "<=", (_converted(high, match["unit"] or "", column),), at)
    for match in _COMPARED.finditer(reading.text):
        at, stop, n = (reading.index(i) for i in (match.start(), match.end(), match.start("n")))
        plus = (match["plus"] or "").strip().lower()
        op = _operator(match, plus)
        if op is None or not reading.is_free(n, n + 1):
            continue
        unit = match["unit"] or ""
        number = NUMBERS[match["n"].lower()] if match["n"].lower() in NUMBERS else float(match["n"].replace(",", ""))
        number *= {"k": 1e3, "m": 1e6}.get((match["k"] or "").lower(), 1)
        if unit and any(alike(stem(unit.lower()), s) for s in table.stems) and op != "=":
            reading.use(at, stop, strong=True)
            yield op, number
            continue
        column = _measured(reading, columns, n, unit, bool(match["sign"]), match.group().split()[0].lower())
        if column is None or (op == "=" and (match["n"].lower() in ("a", "an") or not unit)):
            continue
        reading.use(at, stop if unit and _unit_of(unit, column) else n + 1, strong=True)
        yield Filter(column, op, (_converted(number, unit, column),), at)


def _operator(match: re.Match[str], plus: str) -> Op | None:
    if plus:
        return "<=" if plus.endswith(("less", "fewer", "under")) else ">="
    if match["most"]:
        return "<="
    if match["least"]:
        return ">="
    if match["less"]:
        return "<"
    if match["more"]:
        return ">"
    return "=" if match["even"] else None


def _unit_of(unit: str, column: Column) -> bool:
    asked = stem(unit.lower())
    named = any(alike(asked, s) for s in column.stems)
    timed = asked in SECONDS and column.dimension == "duration"
    return named or timed or (bool(column.dimension) and asked in DIMENSIONS[column.dimension].asks)


def _measured(reading: Reading, columns: Sequence[Column], at: int, unit: str, money: bool, lead: str) -> Column | None:
    """The number column a figure is about: by its unit, by the words before, by the comparing word."""
    numeric = [c for c in columns if c.number]
    for column in numeric:
        if (unit and _unit_of(unit, column)) or (money and column.dimension == "money"):
            return column
    after = reading.words[at + 1 : at + 4]
    for near in ([w.stem for w in reading.words[max(0, at - 5) : at]], [w.stem for w in after]):
        for column in numeric:
            if any(alike(w, s) for w in near for s in column.stems):
                return column
        for column in numeric:
            if column.dimension and any(w in DIMENSIONS[column.dimension].asks for w in near):
                return column
    root = stem(re.sub(r"er$", "", lead))
    return next((c for c in numeric if c.dimension and root in DIMENSIONS[c.dimension].asks), None)


def _converted(number: float, unit: str, column: Column) -> float:
    """The number in the column's unit of time, when both have one."""
    given = SECONDS.get(stem(unit.lower())) if unit else None
    own = next((SECONDS[stem(w)] for w in column.words if stem(w) in SECONDS), None)
    return number * given / own if given and own else number
