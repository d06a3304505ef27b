"""Bounds that a question sets on date columns and number columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from program.models.rules.sql_query import Filter, Op
from program.models.rules.table_words import ASKED_BY, NUMBERS, SECONDS, QuestionWords, is_word_of, stem_word
from program.models.table_schema import Column, TableSchema

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = rf"(?:{'|'.join('sept?(?:ember)?' if m == 'september' else f'{m[:3]}(?:{m[3:]})?' for m in _MONTHS)})\b\.?"
_YEAR = r"(?:19|20)\d\d"
_NTH_WORDS = ("1 1st first", "2 2nd second", "3 3rd third", "4 4th fourth last")
_NTH = {word: n for n, words in enumerate(_NTH_WORDS, 1) for word in words.split()}
_NTHS = "|".join(word for word in _NTH if len(word) > 1)
_TH = r"(?:st|nd|rd|th)?"
_POINT = re.compile(
    rf"(?i)(?P<iso>\b{_YEAR}-\d\d-\d\d\b)"
    rf"|\b(?:(?:(?P<d1>\d{{1,2}}){_TH}(?: of)? )?(?P<month>{_MONTH})(?: (?P<d2>\d{{1,2}}){_TH}\b)?"
    rf"|(?:q(?P<q>[1-4])|(?:the )?(?P<nth>{_NTHS}) quarter)\b)(?:,? (?:of )?(?P<year>{_YEAR})\b)?"
    rf"|\b(?:h(?P<h>[12])|(?:the )?(?P<half>first|second|1st|2nd) half),? (?:of )?(?P<of>{_YEAR})\b"
    r"|\b(?P<rel>this|last|previous|past|current) (?:(?P<n>\d{1,3}) )?(?P<unit>day|week|month|quarter|year)s?\b"
    rf"|\b(?P<alone>{_YEAR})\b(?!-)"
)
_BEFORE = re.compile(
    r"(?i)\b(since|after|following|later than|before|prior to|earlier than|until|till|up to|by|through|from|between"
    r"|starting)(?: the)?(?: (?:start|beginning|end|month|year|day) of)?\s*$"
)
_ONWARDS = re.compile(r"(?i)^\s*(?:onwards?|on\b|or later|to date|and later)")
_JOIN = re.compile(r"(?i)^\s*(?:and|to|until|till|through|-|–|or)\s*(?:the )?$")
_COMES_FIRST = re.compile(r"(?i)\b(?:in|since|until|till|before|after|during|of|last|from|by|early|late|through)\s+$")
OPEN_ENDED = frozenset("from to until till through expires valid effective".split())
"""Words in the name of a date column that may lie in the future."""
_FIGURE = r"\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,9})?|\d{1,15}(?:\.\d{1,9})?"
_NUMBER = (
    rf"(?P<sign>[£$€])?\s?(?P<n>{_FIGURE}|{'|'.join(NUMBERS)})(?P<k>k|m)?(?P<plus>\+| or (?:more|less|fewer|over|under"
    r"|longer)| and (?:over|above))?\b(?!-)"
)
_COMPARED = re.compile(
    r"(?i)\b(?:(?P<most>at most|no more than|not more than|no longer than|up to)|(?P<least>at least|no less than"
    r"|no fewer than|not less than)|(?P<less>(?:less|fewer|shorter|smaller|lower|cheaper|lighter|younger|quicker"
    r"|faster) than|under|below)|(?P<more>more than|\w+er than|over|above|exceed(?:s|ed|ing)?|upwards of)"
    rf"|(?P<even>exactly|of|with|has|have|had)?)\s*{_NUMBER}(?:\s(?P<unit>[^\W\d]+))?"
)


@dataclass(frozen=True, slots=True)
class DateSpan:
    """Days from `first` to before `stop` (either may be open), and where the words stand."""

    first: date | None
    stop: date | None
    start: int
    end: int
    day: bool = False


def date_spans(text: str, today: date) -> list[DateSpan]:
    """Return the date ranges a text names, in order.

    What has no year is in the last such time up to `today`.
    """
    found: list[DateSpan] = []
    for point in _named_times(text, today):
        if found:
            gap = text[found[-1].end : point.start]
            if _JOIN.match(gap) and found[-1].first and point.stop and found[-1].first < point.stop:
                found[-1] = replace(found[-1], stop=point.stop, end=point.end, day=True)
                continue
        found.append(point)
    return [_bound_span(text, span) for span in found]


def _bound_span(text: str, span: DateSpan) -> DateSpan:
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


def _is_one_day(span: DateSpan) -> bool:
    return span.first is not None and span.stop == span.first + timedelta(days=1)


def _named_times(text: str, today: date) -> list[DateSpan]:
    """Return each time named; `March and May 2025` are of the same year."""
    found: list[DateSpan] = []
    for match in reversed(list(_POINT.finditer(text))):
        part = match.groupdict()
        if part["month"] and not _is_month(text, match, part["month"]):
            continue
        joined = bool(found) and bool(_JOIN.match(text[match.end() : found[-1].start]))
        latest = found[-1].first if joined and not part["rel"] else None
        try:
            first, stop = _days_of(part, latest or today)
        except (ValueError, OverflowError):
            continue
        day = bool(part["iso"] or part["d1"] or part["d2"])
        found.append(DateSpan(first, stop, match.start(), match.end(), day))
    return found[::-1]


def _is_month(text: str, match: re.Match[str], month: str) -> bool:
    """Tell whether `may` or `march` is a month: dated, capitalised, or after a word such as `in`."""
    if month.lower().rstrip(".") not in ("may", "march", "mar", "sep", "dec", "jan"):
        return True
    dated = match.end() - match.start() > len(month)
    return dated or bool(_COMES_FIRST.search(text[: match.start()])) or (month[0].isupper() and match.start() > 0)


def _days_of(part: Mapping[str, str | None], today: date) -> tuple[date, date]:
    if part["iso"]:
        day = date.fromisoformat(part["iso"])
        return day, day + timedelta(days=1)
    if part["rel"]:
        return _relative_days(part, today)
    given = part["year"] or part["of"] or part["alone"]
    year = int(given) if given else today.year
    if quarter := part["q"] or part["nth"]:
        first = 3 * _NTH[quarter.lower()] - 2
        return _month_range(year if given or date(year, first, 1) <= today else year - 1, first, 3)
    if half := part["h"] or part["half"]:
        return _month_range(year, 6 * _NTH[half.lower()] - 5, 6)
    if not part["month"]:
        return _month_range(year, 1, 12)
    month = next(i for i, m in enumerate(_MONTHS, 1) if m.startswith(part["month"][:3].lower()))
    number = part["d1"] or part["d2"]
    day = date(year, month, int(number or 1))
    if not given and day > today:
        day = day.replace(year=year - 1)
    return (day, day + timedelta(days=1)) if number else _month_range(day.year, month, 1)


def _relative_days(part: Mapping[str, str | None], today: date) -> tuple[date, date]:
    unit, this = str(part["unit"]).lower(), str(part["rel"]).lower() in ("this", "current")
    tomorrow = today + timedelta(days=1)
    if part["n"] or unit in ("day", "week"):
        days = int(part["n"] or 1) * {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}[unit]
        return tomorrow - timedelta(days=days), tomorrow
    length = {"month": 1, "quarter": 3, "year": 12}[unit]
    first = (today.month - 1) // length * length + 1
    return _month_range(today.year, first, length) if this else _month_range(today.year, first - length, length)


def _month_range(year: int, month: int, length: int) -> tuple[date, date]:
    """Return the range of so many months; a month of 0 or less is in the year before."""
    at = year * 12 + month - 1
    stop = at + length
    return date(at // 12, at % 12 + 1, 1), date(stop // 12, stop % 12 + 1, 1)


def date_bounds(question: QuestionWords, columns: Sequence[Column]) -> Iterator[Filter]:
    """Yield bounds on the date column whose name is nearest the date in the question.

    A pair such as valid_from and valid_to is asked to hold on that date instead.
    """
    dated = [c for c in columns if c.kind == "date" and c.high]
    dated = [c for c in dated if c.table == columns[0].table] or dated
    years = [c for c in columns if c.year and c.table == columns[0].table]
    if years and not any(c.table == columns[0].table for c in dated):
        yield from _year_bounds(question, years[0])
        return
    if not dated:
        return
    # Time stands still at the newest entry, so that the same question keeps its answer.
    past = [c for c in dated if OPEN_ENDED.isdisjoint(c.words)] or dated
    today = max(date.fromisoformat(str(c.high)[:10]) for c in past)
    start = next((c for c in dated if "from" in c.words), None)
    end = next((c for c in dated if {"to", "until"} & set(c.words)), None)
    for span in date_spans(question.text, today):
        at, stop = question.word_at(span.start), question.word_at(span.end)
        if not any(question.is_free(i, i + 1) for i in range(at, stop)):
            continue
        question.mark_used(at, stop, strong=True)
        if start and end:
            day = span.first or span.stop
            if day:
                yield Filter(start, "<=", (day.isoformat(),), at)
            continue
        column = _nearest_date(question, dated, at)
        if span.first:
            yield Filter(column, ">=", (span.first.isoformat(),), at)
        if span.stop:
            yield Filter(column, "<", (span.stop.isoformat(),), at)


def _year_bounds(question: QuestionWords, column: Column) -> Iterator[Filter]:
    for span in date_spans(question.text, date(int(column.high), 12, 31)):
        at, stop = question.word_at(span.start), question.word_at(span.end)
        whole = all(day is None or (day.month, day.day) == (1, 1) for day in (span.first, span.stop))
        if not whole or not question.is_free(at, stop):
            continue
        question.mark_used(at, stop, strong=True)
        if span.first:
            yield Filter(column, ">=", (float(span.first.year),), at)
        if span.stop:
            yield Filter(column, "<", (float(span.stop.year),), at)


def _nearest_date(question: QuestionWords, dated: Sequence[Column], at: int) -> Column:
    def distance_of(column: Column) -> int:
        places = [abs(i - at) for i, w in enumerate(question.words) if is_word_of(w.stem, column.telling)]
        return min(places, default=len(question.words))

    return min(dated, key=distance_of)


def number_bounds(question: QuestionWords, table: TableSchema, columns: Sequence[Column]) -> Iterator[Filter]:
    """Yield a filter for each number that the question compares a column with.

    A bound on the number of rows is passed over.
    """
    for match in _COMPARED.finditer(question.text):
        at, stop, n = (question.word_at(i) for i in (match.start(), match.end(), match.start("n")))
        op = _comparison_of(match)
        if op is None or not question.is_free(n, n + 1):
            continue
        unit = match["unit"] or ""
        number = NUMBERS[match["n"].lower()] if match["n"].lower() in NUMBERS else float(match["n"].replace(",", ""))
        number *= {"k": 1e3, "m": 1e6}.get((match["k"] or "").lower(), 1)
        if unit and is_word_of(stem_word(unit.lower()), table.words) and op != "=":
            continue
        column = _column_measured(question, columns, n, unit, bool(match["sign"]), match.group().split()[0].lower())
        if column is None or (op == "=" and (match["n"].lower() in ("a", "an") or not unit)):
            continue
        question.mark_used(at, stop if unit and _unit_of(unit, column) else n + 1, strong=True)
        yield Filter(column, op, (_convert_time(number, unit, column),), at)


def _comparison_of(match: re.Match[str]) -> Op | None:
    if plus := (match["plus"] or "").strip().lower():
        return "<=" if plus.endswith(("less", "fewer", "under")) else ">="
    signs: dict[str, Op] = {"most": "<=", "least": ">=", "less": "<", "more": ">", "even": "="}
    return next((sign for name, sign in signs.items() if match[name]), None)


def _unit_of(unit: str, column: Column) -> bool:
    asked = stem_word(unit.lower())
    named = is_word_of(asked, column.telling)
    timed = asked in SECONDS and column.dimension == "duration"
    return named or timed or (bool(column.dimension) and asked in ASKED_BY[column.dimension])


def _column_measured(
    question: QuestionWords, columns: Sequence[Column], at: int, unit: str, money: bool, lead: str
) -> Column | None:
    """Return the number column a figure is about: by unit, words nearby, or comparing word."""
    numeric = [c for c in columns if c.number]
    for column in numeric:
        if (unit and _unit_of(unit, column)) or (money and column.dimension == "money"):
            return column
    for words in (question.words[max(0, at - 5) : at], question.words[at + 1 : at + 4]):
        near = [w.stem for w in words]
        for column in numeric:
            if any(is_word_of(w, column.telling) for w in near):
                return column
        for column in numeric:
            if column.dimension and any(w in ASKED_BY[column.dimension] for w in near):
                return column
    root = stem_word(re.sub(r"er$", "", lead))
    return next((c for c in numeric if c.dimension and root in ASKED_BY[c.dimension]), None)


def _convert_time(number: float, unit: str, column: Column) -> float:
    """Convert the number to the column's unit of time, when both have one."""
    given = SECONDS.get(stem_word(unit.lower())) if unit else None
    own = next((SECONDS[stem_word(w)] for w in column.words if stem_word(w) in SECONDS), None)
    return number * given / own if given and own else number
