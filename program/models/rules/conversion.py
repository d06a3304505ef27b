"""Units converted and dates counted, for the questions that ask for nothing else."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Any

from program.models.rules.numbers import NUMBER as _N
from program.models.rules.numbers import number

_UNIT = r"([a-z°µ][a-z°/ ]{0,24}?)"
_FORMS: tuple[tuple[str, bool], ...] = (
    (rf"(?:convert )?{_N} ?{_UNIT} (?:in|into|to|as) {_UNIT}", False),
    (
        rf"(?:how many )?{_UNIT} (?:is |are |are there |there are )?(?:in|is|are) (?:an? )?{_N}? ?{_UNIT}",
        True,
    ),
)
_SPOKEN = {
    "f": "degF",
    "c": "degC",
    "fahrenheit": "degF",
    "celsius": "degC",
    "°f": "degF",
    "°c": "degC",
    "k": "kelvin",
    "stones": "stone",
}
_OF_NO_UNIT = frozenset(
    "about all an and any be by can could did do does for from have how i if is it its my no not of on or our out that "
    "the their there they this to was we were what when where which who why will with would you your".split()
)
_DATE = (
    r"((?:\d{1,2}(?:st|nd|rd|th)? )?[a-z]+ \d{1,2}(?:st|nd|rd|th)?,? \d{4}"
    r"|\d{1,2}(?:st|nd|rd|th)? (?:of )?[a-z]+,? \d{4}|\d{4}-\d{2}-\d{2})"
)
_SPAN = r"(day|week|month|year)s?"


def convert(text: str) -> str:
    """`3.5 hours is 210 minutes.` for a question that is nothing but a conversion, else an empty string."""
    for pattern, target_first in _FORMS:
        found = re.fullmatch(f"(?:how many )?{pattern}" if target_first else pattern, text.strip(), re.IGNORECASE)
        if found:
            target, amount, unit = found.groups() if target_first else (found[3], found[1], found[2])
            spoken = no_unit(unit) or no_unit(target)
            return "" if spoken else _converted(float(amount or 1), unit.strip(), target.strip())
    return ""


def no_unit(text: str) -> bool:
    """True when a word tells that `text` names no unit, so that pint, which takes long to start, need not be asked."""
    words = text.lower().split()
    divides = "/" in text or "per" in words  # by itself even such a word is struck out
    return not divides and not _OF_NO_UNIT.isdisjoint(words)


@lru_cache(maxsize=1)
def _registry() -> Any:
    import pint

    return pint.UnitRegistry(cache_folder=None)


def _converted(amount: float, unit: str, target: str) -> str:
    import pint

    registry = _registry()
    try:
        source = registry.Quantity(amount, _SPOKEN.get(unit.lower(), unit.lower()))
        value = float(source.to(_SPOKEN.get(target.lower(), target.lower())).magnitude)
    except (
        pint.errors.PintError,
        AttributeError,
        ValueError,
        TypeError,
        ArithmeticError,
        AssertionError,
        SyntaxError,
    ):
        return ""
    return f"{number(amount)} {unit} is {number(round(value, 4))} {target}."


def date_sum(text: str) -> str:
    """A day so many days, weeks, months or years from a date, the days between two dates, or a weekday."""
    asked = re.sub(
        r"^(?:(?:what|which) )?(?:date|day|the date|weekday|day of the week)\b\s*",
        "",
        text.strip(),
        flags=re.IGNORECASE,
    )
    asked = re.sub(r"^(?:is|was|will be|comes|falls|it is)\s+", "", asked, flags=re.IGNORECASE)
    if found := re.fullmatch(rf"{_N} (?:calendar )?{_SPAN} (after|from|before) {_DATE}", asked, re.IGNORECASE):
        return _moved(int(float(found[1])), found[2].lower(), found[3].lower(), found[4])
    if found := re.fullmatch(
        rf"(?:how many days )?(?:are there |is it |days |the days )?(?:between"
        rf"|from) {_DATE} (?:and|to|until|till) {_DATE}",
        asked,
        re.IGNORECASE,
    ):
        first, last = _day(found[1]), _day(found[2])
        return f"From {_said(first)} to {_said(last)} is {(last - first).days:,} days." if first and last else ""
    if re.search(r"\b(?:what|which) (?:day|weekday)|^(?:week)?day\b|day of the week", text, re.IGNORECASE) and (
        found := re.fullmatch(
            rf"(?:(?:what|which) (?:day|weekday)(?: of the week)? (?:is|was|will "
            rf"be) )?(?:of the week )?(?:is |was )?{_DATE}",
            asked,
            re.IGNORECASE,
        )
    ):
        day = _day(found[1])
        return f"{_said(day)} is a {day:%A}." if day else ""
    return ""


def _moved(count: int, span: str, way: str, start: str) -> str:
    from dateutil.relativedelta import relativedelta  # type: ignore[import-untyped]

    day = _day(start)
    if day is None:
        return ""
    steps = {
        "day": relativedelta(days=count),
        "week": relativedelta(weeks=count),
        "month": relativedelta(months=count),
    }
    step = steps.get(span, relativedelta(years=count))
    try:
        result = day - step if way == "before" else day + step
    except (ValueError, OverflowError):
        return ""
    plural = "" if count == 1 else "s"
    return f"{count:,} {span}{plural} {way} {_said(day)} is {_said(result)}, a {result:%A}."


def _day(text: str) -> date | None:
    from dateutil import parser  # type: ignore[import-untyped]

    try:
        parsed: date = parser.parse(text.replace(" of ", " ")).date()
    except (ValueError, OverflowError):
        return None
    return parsed


def _said(day: date | None) -> str:
    return f"{day.day} {day:%B %Y}" if day else ""
