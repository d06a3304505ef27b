"""Days: what a question's `today` and `last year` mean on the day of asking, and the days that a cell names.

The words are those of dateparser's table for English. The table is read by itself, as the package takes a third of a
second to import and few questions need it.
"""

from __future__ import annotations

import re
import runpy
from calendar import day_name, month_name
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ragc.text.words import WORD, find_stems, fold_text

SHORTEST = 3  # letters of the name of a weekday or month; of two are `we` and `th`
_TABLE = Path("data", "date_translation_data", "en.py")
_DAY, _YEAR = "day", "year"
_WEEK = find_stems(" ".join(day_name))
_ISO_DAY = re.compile(r"(?a)\b\d{4}-\d\d-\d\d\b")
_ORDINAL = re.compile(r"(?a)^(\d{1,2})(?:st|nd|rd|th)$")
_LISTED = re.compile(r"\band\b|\bor\b|[&,/+;]")  # between two days that are no range


class DatedQuestion(NamedTuple):
    """A question, and what its words mean on the day of asking."""

    text: str
    """With the weekday in place of the words that name a day: `Are you open on Monday?`."""
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
    return DatedQuestion(text, explained, dates, years)


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
def list_days(cell: str) -> frozenset[str]:
    """Return the stems of the words that name the days of a cell.

    There are none where it says more than days. Those of `2026-12-05` are of `Saturday 5 December 2026`, those of
    `Tuesday to Friday` its four days.
    """
    if found := _read_date(cell):
        day, month, year = found
        words = f"{date(year, month, day):%A} {year}" if year else ""
        return find_stems(f"{day} {month_name[month]} {words}")
    before, *parts = _weekday_words().split(fold_text(cell))
    names, gaps = parts[::2], parts[1::2]
    if not names or WORD.search(before) or WORD.search(gaps[-1]) or any(len(WORD.findall(gap)) > 1 for gap in gaps):
        return frozenset()
    return list_weekdays(cell)


@lru_cache(maxsize=4096)
def list_weekdays(text: str) -> frozenset[str]:
    """Return the stems of the weekdays that a text names, and of those between: `Tuesday to Friday`."""
    days, gap = list[int](), ""
    for n, part in enumerate(_weekday_words().split(fold_text(text))):
        if n % 2 == 0:
            gap = part
            continue
        number, last = _weekdays()[part], days[-1] if days else 0
        ranges = days and len(WORD.findall(gap)) < 2 and not _LISTED.search(gap)
        days += [last + n for n in range(1, (number - last) % 7 + 1)] if ranges else [number]
    return find_stems(" ".join(day_name[n % 7] for n in days))


def misses_weekday(question: str, cells: Sequence[str]) -> bool:
    """Tell whether a question names a weekday that cells of weekdays have not."""
    days, asked = [list_days(cell) for cell in cells], find_stems(question) & _WEEK
    known = frozenset[str]().union(*days)
    return bool(asked) and all(days) and known <= _WEEK - asked


def name_day(question: str, cell: str) -> str:
    """Return a question with a cell in place of the day that both name.

    A reader compares words. In place of a weekday stands a cell of several, or of a date; in place of `December 5th`
    one of that date.
    """
    days, found = list_days(cell), _read_date(cell)
    named = [name for name in day_name if len(days) > 1 and find_stems(name) <= days]
    if found:
        of_month, month = rf"{found[0]}(?:st|nd|rd|th)?", month_name[found[1]]
        date_of = rf"(?:{of_month}(?: of)? {month}|{month} {of_month})(?!\d)(?:,? \d{{4}})?"
        named = [rf"(?<!\d){date_of}", *named]
    return re.sub(rf"\b(?:{'|'.join(named)})\b", lambda _: cell, question, flags=re.IGNORECASE) if named else question


@lru_cache(maxsize=4096)
def _read_date(cell: str) -> tuple[int, int, int] | None:
    """Return the day, month and year of a cell of a date, such as `2026-12-05` or `Sat 5 Dec`; the year may be 0."""
    if day := parse_day(cell):
        return day.day, day.month, day.year
    words = [_ORDINAL.sub(r"\1", word) for word in WORD.findall(fold_text(cell))]
    months = [n for word in words if (n := _months().get(word))]
    numbers = [word for word in words if word.isdigit()]
    others = [word for word in words if word not in numbers and word not in _months() and word not in _weekdays()]
    if len(months) != 1 or others or not numbers or len(numbers[0]) > 2 or len(numbers) > 2:
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
def _weekdays() -> dict[str, int]:
    """Return the number of each weekday from 0 by its names."""
    return {f"{name}{end}": n for name, n in _list_names(day_name) for end in ("", "s")}


@lru_cache(maxsize=1)
def _months() -> dict[str, int]:
    """Return the number of each month from 1 by its names."""
    return {name: n + 1 for name, n in _list_names(month_name[1:])}


def _list_names(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    every = ((form, n) for n, name in enumerate(names) for form in _table()[name.lower()])
    return ((form.lower(), n) for form, n in every if len(form) >= SHORTEST)


@lru_cache(maxsize=1)
def _weekday_words() -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(_weekdays())})\b")


@lru_cache(maxsize=1)
def _phrases() -> re.Pattern[str]:
    """Return what finds the words that name a day or a year by the day of asking."""
    units, table = {_DAY, _YEAR, *(day.lower() for day in day_name)}, _table()
    phrases = [phrase for of, own in table["relative-type"].items() if units & {*of.split()} for phrase in own]
    phrases.sort(key=len, reverse=True)
    rewritten = [form for one in table["simplifications"] for form, to in one.items() if to.split()[0] in phrases]
    return re.compile(rf"\b(?:on )?(?:the )?(?:{'|'.join([*phrases, *rewritten])})\b", re.IGNORECASE)
