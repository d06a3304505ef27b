"""Days: what `today` and `last year` in a question mean, and the days and months that a cell names.

The words are those of dateparser's table for English. The table is read by itself, as the package takes a third of a
second to import and few questions need it.
"""

from __future__ import annotations

import re
import runpy
from calendar import day_name, month_name
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ragc.text.ranges import has_time
from ragc.text.words import WORD, find_stems, fold_text

SHORTEST = 3  # letters of the name of a weekday or month; of two are `we` and `th`
_TABLE = Path("data", "date_translation_data", "en.py")
_DAY, _YEAR = "day", "year"
MONTHS = (*month_name,)[1:]
"""The names of the months."""
_DAYS = (*day_name,)
_WEEK, MONTH_STEMS = find_stems(" ".join(_DAYS)), find_stems(" ".join(MONTHS))
_PARTS_OF_WEEK: Mapping[str, range] = {"weekday": range(5), "weekend": range(5, 7)}
_ISO_DAY = re.compile(r"(?a)\b\d{4}-\d\d-\d\d\b")
_NUMBERS = re.compile(r"(?a)(\d{1,2})([./])(\d{1,2})\2((?:\d\d)?\d\d)")  # 5/12/2026; 5.12.2026 begins with the day
LAST_MONTH = 12
_MAY, _MAY_ALONE = re.compile(r"(?<=\w )(?-i:May)\b"), find_stems("may")  # the month, not `may I`
_ORDINAL = re.compile(r"(?a)^(\d{1,2})(?:st|nd|rd|th)$")
_LISTED = re.compile(r"\band\b|\bor\b|[&,/+;]")  # between two days that are no range


class DatedQuestion(NamedTuple):
    """A question, and what its words mean on the day of asking."""

    text: str
    """With the weekday in place of the words that name a day: `Are you open on Monday?`."""
    undated: str
    """Without the words that name a day: `Are you open?`."""
    explained: str
    """With the day behind them: `Are you open tomorrow (Monday 30 November 2026)?`."""
    dates: str
    """The days that are named so: `30 November`."""
    years: tuple[int, ...]
    """The years that are named so."""


@lru_cache(maxsize=1024)
def date_question(question: str, today: date) -> DatedQuestion:
    """Return a question with the days and years that it names by `today`."""
    found = {match[0]: _parse(match[0], today) for match in _phrases().finditer(question)}
    days = {words: day for words, (day, period) in found.items() if day and period == _DAY}

    def spell(write: Callable[[str, date], str]) -> str:
        return _phrases().sub(lambda m: write(m[0], days[m[0]]) if m[0] in days else m[0], question)

    dates = " ".join(f"{day.day} {day:%B}" for day in days.values())
    years = tuple(day.year for day, period in found.values() if day and period == _YEAR)
    text = spell(lambda words, day: f"on {day:%A}")
    explained = spell(lambda words, day: f"{words} ({day:%A} {spell_day(day)})")
    undated = re.sub(r"\s+(?=[\s?!.,]|$)", "", spell(lambda words, day: "")) if days else question
    return DatedQuestion(text, undated, explained, dates, years)


def spell_day(day: date) -> str:
    """Return a day as it is written in a sentence: 1 December 2026."""
    return f"{day.day} {day:%B %Y}"


def spell_dates(text: str) -> str:
    """Return a text with its dates behind it as they are asked for: 1 December 2026."""
    days = map(parse_day, _ISO_DAY.findall(text))
    return "\n".join([text, *(spell_day(day) for day in days if day)])


def parse_day(text: str) -> date | None:
    """Return the date that a text starts with, as in 2026-03-01T08:00, or None."""
    try:
        return date.fromisoformat(text.strip()[:10])
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def list_days(cell: str, day_first: bool | None = None) -> frozenset[str]:
    """Return the stems of the words that name the days of a cell, or its months.

    There are none where it says more than days. Those of `2026-12-05` are of `Saturday 5 December 2026`, those of
    `Tuesday to Friday` its four days. `day_first` tells what `5/12/2026` is, as of `is_day_first`.
    """
    if found := _read_date(cell, day_first):
        day, month, year = found
        words = f"{date(year, month, day):%A} {year}" if year else ""
        return find_stems(f"{day} {month_name[month]} {words}")
    before, *parts = _name_words().split(fold_text(cell))
    names, gaps = parts[::2], parts[1::2]
    if not names or WORD.search(before) or WORD.search(gaps[-1]) or any(len(WORD.findall(gap)) > 1 for gap in gaps):
        return frozenset()
    return _list_names(cell, _DAYS) | _list_names(cell, MONTHS)


@lru_cache(maxsize=4096)
def list_dates(text: str) -> frozenset[date]:
    """Return the days that a sentence names with their year: `31 October 2026`."""
    found = map(_read_date, _find_written(_dates(), text))
    return frozenset(date(year, month, day) for day, month, year in filter(None, found))


def drop_dates(text: str) -> str:
    """Return a text without its days with a year."""
    return _dates().sub("", fold_text(text))


def order_periods(periods: Sequence[Sequence[date]], day: date) -> list[int]:
    """Return the places of the periods that a day is in, then of later ones.

    There are none where it is in none. A period of two days goes from one to the other. Of one day it ended with it
    where another begins on the next (`until 31 October`, `from 1 November`), else it goes from it to the next.
    """
    begin = {days[0] for days in periods}
    ends = {at for at, days in enumerate(periods) if len(days) == 1 and days[0] + timedelta(1) in begin}
    since = [at for at in range(len(periods)) if at not in ends]
    begun = [at for at in since if periods[at][0] <= day <= max(periods[at][1:], default=date.max)]
    last = max((periods[at][0] for at in begun), default=date.min)
    current = [at for at in ends if day <= periods[at][0]] or [at for at in begun if periods[at][0] == last]
    later = sorted((at for at in since if periods[at][0] > day), key=lambda at: periods[at][0])
    return [*current, *later] if current else []


@lru_cache(maxsize=4096)
def list_weekdays(text: str) -> frozenset[str]:
    """Return the stems of the weekdays of a text, with those of `Tuesday to Friday`."""
    return _list_names(text, _DAYS)


def find_asked_stems(question: str) -> frozenset[str]:
    """Return a question's stems, `may` only where it is the month, `5` beside `5th`, and the days of `weekend`."""
    stems = find_stems(question) - (frozenset() if _MAY.search(question) else _MAY_ALONE)
    parts = list_weekdays(question) if stems & {*_PARTS_OF_WEEK} else frozenset[str]()
    return stems | parts | {day[1] for day in map(_ORDINAL.match, stems) if day}


def names_month(question: str) -> bool:
    """Tell whether a question names a month."""
    return not find_asked_stems(question).isdisjoint(MONTH_STEMS)


@lru_cache(maxsize=1024)
def is_day_first(cells: tuple[str, ...]) -> bool | None:
    """Tell whether the dates of a column, `5/12/2026`, begin with the day.

    It is the part that is above 12, else the one that differs more; None: neither says so.
    """
    found = [(int(date[1]), int(date[3])) for date in map(_NUMBERS.fullmatch, map(str.strip, cells)) if date]
    firsts, seconds = ({*part} for part in zip(*found, strict=True)) if found else ({0}, {0})
    signs = max(firsts) > LAST_MONTH, max(seconds) > LAST_MONTH
    if signs == (False, False):
        signs = len(firsts) > len(seconds), len(seconds) > len(firsts)
    return signs[0] if signs[0] != signs[1] else None


def _list_names(text: str, calendar: Sequence[str]) -> frozenset[str]:
    """Return the stems of the days of the week, or the months, that a text names, and of those between."""
    found, gap = list[int](), ""
    for n, part in enumerate(_name_words().split(fold_text(text))):
        name = _names()[part] if n % 2 else ""
        if calendar is _DAYS and name in _PARTS_OF_WEEK:
            found += _PARTS_OF_WEEK[name]
        if name not in calendar:
            gap = gap + part if name else part
            continue
        number, last = calendar.index(name), found[-1] if found else 0
        ranges = found and len(WORD.findall(gap)) < 2 and not _LISTED.search(gap)
        found += [last + k for k in range(1, (number - last) % len(calendar) + 1)] if ranges else [number]
    return find_stems(" ".join(calendar[n % len(calendar)] for n in found))


def misses_day(question: str, cells: Sequence[str]) -> bool:
    """Tell whether a question names a day that cells of such days have not."""
    days, asked = [list_days(cell) for cell in cells], find_asked_stems(question)
    known = frozenset[str]().union(*days)
    if not all(days):
        return False
    dates = [*map(list_days, _find_written(_days_of_months(), question))]
    missed = bool(dates) and all(map(_read_date, cells)) and not any(one <= day for one in dates for day in days)
    return missed or (not asked.isdisjoint(_WEEK) and known <= _WEEK - asked)


def completes_time(one: str, other: str) -> bool:
    """Tell whether one text names days alone, and the other times: when something takes place needs both."""
    days = [bool(list_weekdays(text) or list_days(text)) for text in (one, other)]
    return days[0] != days[1] and days == [not has_time(text) for text in (one, other)]


def name_day(question: str, cell: str) -> str:
    """Return a question with a cell in place of the day, or the month, that both name.

    A reader compares words. In place of a weekday stands a cell of several, or of a date; in place of `December 5th`
    one of that date; in place of a month one of several.
    """
    days, found = list_days(cell), _read_date(cell)
    calendar = _DAYS if found else (*_DAYS, *MONTHS)
    named = [name for name in calendar if len(days) > 1 and find_stems(name) <= days]
    named = [_MAY.pattern if name == MONTHS[4] else rf"\b{name}\b" for name in named]
    if found:
        of_month, month = rf"{found[0]}(?:st|nd|rd|th)?", month_name[found[1]]
        date_of = rf"\b(?:{of_month}(?: of)? {month}|{month} {of_month})(?!\d)(?:,? \d{{4}})?\b"
        named = [date_of, *named]
    return re.sub("|".join(named), lambda _: cell, question, flags=re.IGNORECASE) if named else question


@lru_cache(maxsize=4096)
def _read_date(cell: str, day_first: bool | None = None) -> tuple[int, int, int] | None:
    """Return the day, month and year of a cell of a date, such as `2026-12-05` or `Sat 5 Dec`; the year may be 0."""
    if day := parse_day(cell):
        return day.day, day.month, day.year
    if found := _NUMBERS.fullmatch(cell.strip()):
        if day_first is None and found[2] == "/":
            return None
        numbers, months = [found[1], found[4]], [int(found[3])]
        if day_first is False:
            numbers[0], months = found[3], [int(found[1])]
    else:
        words = [_ORDINAL.sub(r"\1", word) for word in WORD.findall(fold_text(cell))]
        numbers, named = [word for word in words if word.isdigit()], [word for word in words if word in _names()]
        months = [MONTHS.index(_names()[word]) + 1 for word in named if _names()[word] in MONTHS]
        if len(months) != 1 or len(words) > len(numbers) + len(named) or len(numbers) not in (1, 2):
            return None
    year = int(numbers[1]) if len(numbers) == 2 else 0
    with suppress(ValueError):
        date(year or 2000, months[0], int(numbers[0]))  # a leap year
        return int(numbers[0]), months[0], year
    return None


def _parse(words: str, today: date) -> tuple[date | None, str]:
    """Return the day of the words, and whether they name a day, a week, a month or a year."""
    from dateparser.date import DateDataParser

    settings = {"RELATIVE_BASE": datetime.combine(today, time())}
    found = DateDataParser(languages=["en"], settings=settings).get_date_data(words)
    return found.date_obj and found.date_obj.date(), found.period


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Any]:
    spec = find_spec("dateparser")
    assert spec and spec.origin
    table: Mapping[str, Any] = runpy.run_path(str(Path(spec.origin).parent / _TABLE))["info"]
    return table


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Return the weekday, part of the week or month of each of their names in lower case."""
    every = ((form.lower(), name) for name in (*_DAYS, *MONTHS) for form in _table()[name.lower()])
    known = {form: name for form, name in every if len(form) >= SHORTEST}
    known |= {name: name for name in _PARTS_OF_WEEK}
    return known | {f"{form}s": name for form, name in known.items() if name not in MONTHS}


@lru_cache(maxsize=1)
def _name_words() -> re.Pattern[str]:
    forms = (f"{form}(?!:)" if form in _PARTS_OF_WEEK else form for form in _names())  # `Weekday: Monday` has a header
    return re.compile(rf"\b({'|'.join(forms)})\b")


def _find_written(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return the days of a text as a cell has them: `5th december` of `the 5th of December`."""
    return [match[0].replace(" of ", " ") for match in pattern.finditer(fold_text(text))]


@lru_cache(maxsize=1)
def _days_of_months() -> re.Pattern[str]:
    months = "|".join(form for form, name in _names().items() if name in MONTHS)
    day = r"\d{1,2}(?:st|nd|rd|th)?"
    return re.compile(rf"\b(?:{day}(?: of)? (?:{months})|(?:{months}) {day})\b", re.ASCII)


@lru_cache(maxsize=1)
def _dates() -> re.Pattern[str]:
    return re.compile(rf"(?:{_days_of_months().pattern}),? \d{{4}}\b|\b\d{{4}}-\d\d-\d\d\b", re.ASCII)


@lru_cache(maxsize=1)
def _phrases() -> re.Pattern[str]:
    """Return what finds the words that name a day or a year by the day of asking."""
    units, table = {_DAY, _YEAR, *(day.lower() for day in _DAYS)}, _table()
    phrases = [phrase for of, own in table["relative-type"].items() if units & {*of.split()} for phrase in own]
    phrases.sort(key=len, reverse=True)
    rewritten = [form for one in table["simplifications"] for form, to in one.items() if to.split()[0] in phrases]
    return re.compile(rf"\b(?:on )?(?:the )?(?:{'|'.join([*phrases, *rewritten])})\b", re.IGNORECASE)
