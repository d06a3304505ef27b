"""Dates in a question as ranges of days: `since August`, `in Q3 2026`, `between 1 and 14 May`, `last month`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date, timedelta

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH = (
    "(?:" + "|".join(f"{m[:3]}(?:{m[3:]})?" if m != "september" else "sept?(?:ember)?" for m in _MONTHS) + r")\b\.?"
)
_YEAR = r"(?:19|20)\d\d"
_NTH = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "last": 4}
_NTHS = "|".join(_NTH)
_POINT = re.compile(
    rf"(?P<iso>\b{_YEAR}-\d\d-\d\d\b)|(?P<isomonth>\b{_YEAR}-\d\d\b)"
    rf"|\b(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m1>{_MONTH})(?:,? (?P<y1>{_YEAR})\b)?"
    rf"|\b(?P<m2>{_MONTH}) (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<y2>{_YEAR})\b)?"
    rf"|\b(?P<m3>{_MONTH})(?:,? (?:of )?(?P<y3>{_YEAR})\b)?"
    rf"|\b(?:q(?P<q1>[1-4])|(?:the )?(?P<q2>{_NTHS}) quarter)\b(?:,? (?:of )?(?P<y4>{_YEAR})\b)?"
    rf"|\b(?:h(?P<h1>[12])|(?:the )?(?P<h2>first|second|1st|2nd) half)\b(?:,? (?:of )?(?P<y5>{_YEAR})\b)"
    rf"|\b(?P<rel>this|last|previous|past|current) (?:(?P<n>\d{{1,3}}) )?(?P<unit>day|week|month|quarter|year)s?\b"
    rf"|\b(?P<y6>{_YEAR})\b(?!-)",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"\b(since|after|following|later than|before|prior to|earlier than|until|till|up to|by|through|from|between"
    r"|starting)"
    r"(?: the)?(?: (?:start|beginning|end|month|year|day) of)?\s*$",
    re.IGNORECASE,
)
_ONWARDS = re.compile(r"^\s*(?:onwards?|on\b|or later|to date|and later)", re.IGNORECASE)
_JOIN = re.compile(r"^\s*(?:and|to|until|till|through|-|–|or)\s*(?:the )?$", re.IGNORECASE)
_COMES_FIRST = re.compile(
    r"\b(?:in|since|until|till|before|after|during|of|last|from|by|early|late|through)\s+$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Span:
    """Days from `first` to before `stop` (either may be open), and where the words for it stand."""

    first: date | None
    stop: date | None
    start: int
    end: int
    day: bool = False


def spans(text: str, today: date) -> list[Span]:
    """The date ranges a text names, in order. What has no year is in the last such time up to `today`."""
    found: list[Span] = []
    for point in _points(text, today):
        if found:
            gap = text[found[-1].end : point.start]
            if _JOIN.match(gap) and found[-1].first and point.stop and found[-1].first < point.stop:
                found[-1] = replace(found[-1], stop=point.stop, end=point.end, day=True)
                continue
        found.append(point)
    return [_bounded(text, span) for span in found]


def _bounded(text: str, span: Span) -> Span:
    lead = _BEFORE.search(text[: span.start])
    word = lead.group(1).lower() if lead else ""
    start = lead.start() if lead else span.start
    onwards = _ONWARDS.match(text[span.end :])
    if onwards and word in ("", "from", "starting"):
        return replace(span, stop=None, start=start, end=span.end + onwards.end())
    if word in ("since", "starting") or (word == "from" and span.day and _is_one_day(span)):
        return replace(span, stop=None, start=start)
    if word in ("after", "following", "later than"):
        return replace(span, first=span.stop, stop=None, start=start)
    if word in ("before", "prior to", "earlier than"):
        return replace(span, stop=span.first, first=None, start=start)
    if word in ("until", "till", "up to", "by", "through"):
        return replace(span, first=None, start=start)
    return replace(span, start=start)


def _is_one_day(span: Span) -> bool:
    return span.first is not None and span.stop == span.first + timedelta(days=1)


def _points(text: str, today: date) -> list[Span]:
    """Each time named, alone; the first of `March and May 2025` is in the year of the second."""
    found: list[Span] = []
    for match in reversed(list(_POINT.finditer(text))):
        part = match.groupdict()
        month = part["m1"] or part["m2"] or part["m3"]
        if month and not _is_month(text, match, month):
            continue
        joined = bool(found) and bool(_JOIN.match(text[match.end() : found[-1].start]))
        latest = found[-1].first if joined and not part["rel"] else None
        try:
            first, stop = _range(part, latest or today)
        except (ValueError, OverflowError):
            continue
        found.append(Span(first, stop, match.start(), match.end(), bool(part["iso"] or part["d1"] or part["d2"])))
    return found[::-1]


def _is_month(text: str, match: re.Match[str], month: str) -> bool:
    """`may` and `march` are months when written so, dated, or after a word such as `in`."""
    if month.lower().rstrip(".") not in ("may", "march", "mar", "sep", "dec", "jan"):
        return True
    dated = match.end() - match.start() > len(month)
    return dated or bool(_COMES_FIRST.search(text[: match.start()])) or (month[0].isupper() and match.start() > 0)


def _range(part: dict[str, str | None], today: date) -> tuple[date, date]:
    year_text = next((part[f"y{i}"] for i in range(1, 7) if part[f"y{i}"]), None)
    year = int(year_text) if year_text else today.year
    if part["iso"]:
        day = date.fromisoformat(part["iso"])
        return day, day + timedelta(days=1)
    if part["isomonth"]:
        return _months(int(part["isomonth"][:4]), int(part["isomonth"][5:]), 1)
    if part["rel"]:
        return _relative(part, today)
    if part["q1"] or part["q2"]:
        first = 3 * (int(part["q1"]) if part["q1"] else _NTH[str(part["q2"]).lower()]) - 2
        return _months(year if year_text or date(year, first, 1) <= today else year - 1, first, 3)
    if part["h1"] or part["h2"]:
        return _months(year, 6 * (int(part["h1"]) if part["h1"] else _NTH[str(part["h2"]).lower()]) - 5, 6)
    month_text = part["m1"] or part["m2"] or part["m3"]
    if not month_text:
        return _months(year, 1, 12)
    month = next(i for i, m in enumerate(_MONTHS, 1) if m.startswith(month_text[:3].lower()))
    number = part["d1"] or part["d2"]
    day = date(year, month, int(number) if number else 1)
    if not year_text and day > today:
        day = day.replace(year=year - 1)
    return (day, day + timedelta(days=1)) if number else _months(day.year, month, 1)


def _relative(part: dict[str, str | None], today: date) -> tuple[date, date]:
    unit, this = str(part["unit"]).lower(), str(part["rel"]).lower() in ("this", "current")
    tomorrow = today + timedelta(days=1)
    if part["n"] or unit in ("day", "week"):
        days = int(part["n"] or 1) * {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}[unit]
        return tomorrow - timedelta(days=days), tomorrow
    length = {"month": 1, "quarter": 3, "year": 12}[unit]
    first = (today.month - 1) // length * length + 1
    return _months(today.year, first, length) if this else _months(today.year, first - length, length)


def _months(year: int, month: int, length: int) -> tuple[date, date]:
    """The range of `length` months from that month on; a month of 0 or less is in the year before."""
    at = year * 12 + month - 1
    if not (1 <= month <= 12 or month <= 0):
        raise ValueError(month)
    stop = at + length
    return date(at // 12, at % 12 + 1, 1), date(stop // 12, stop % 12 + 1, 1)
