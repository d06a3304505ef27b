"""Units converted and dates counted, for questions that ask for nothing else."""

from __future__ import annotations

import re
from calendar import month_name, monthrange
from datetime import date, timedelta

NUMBER = r"(-?\d+(?:\.\d+)?)"
_UNIT = r"([a-z°µ][a-z°/ ]{0,24}?)"
_FORMS: tuple[tuple[str, bool], ...] = (
    (rf"(?i)(?:convert )?{NUMBER} ?{_UNIT} (?:in|into|to|as) {_UNIT}", False),
    (
        rf"(?i)(?:how many )*{_UNIT} (?:is |are |are there |there are )?(?:in|is|are) (?:an? )?{NUMBER}? ?{_UNIT}",
        True,
    ),
)
"""Patterns of a conversion, and whether they name the target first."""
_SIZES = {
    "length": "mm millimetre millimeter .001,"
    " cm centimetre centimeter .01, m metre meter 1, km kilometre kilometer 1e3,"
    " in inch inches .0254, ft foot feet .3048, yd yard .9144, mi mile 1609.344",
    "mass": "mg milligram .000001, g gram .001, kg kilo kilogram 1, tonne 1e3, oz ounce .028349523125,"
    " lb pound .45359237, stone 6.35029318",
    "time": "s sec second 1, min minute 60, h hr hour 3600, day 86400, week 604800, fortnight 1209600, month 2629800,"
    " year 31557600",
    "volume": "ml millilitre milliliter .001, cl centilitre .01, l litre liter 1, cup .2365882365, pint .473176473,"
    " gallon 3.785411784",
    "speed": "m/s 1, km/h kph .2777777777777778, mph .44704, knot .5144444444444445",
    "data": "byte 1, kilobyte 1e3, megabyte 1e6, gigabyte 1e9, terabyte 1e12",
}
"""Names of units and their size, by what they measure; volumes are American."""
_UNITS = {
    name: (measure, float(size))
    for measure, listed in _SIZES.items()
    for *names, size in (unit.split() for unit in listed.split(","))
    for name in names
}
_SCALES = {
    name: scale
    for scale, names in {
        (1.0, 0.0): "c °c celsius degc",
        (5 / 9, -160 / 9): "f °f fahrenheit degf",
        (1.0, -273.15): "k kelvin",
    }.items()
    for name in names.split()
}
"""Temperature scales: factor and offset that give degrees Celsius."""
_DATE = (
    r"((?:\d{1,2}(?:st|nd|rd|th)? )?[a-z]+ \d{1,2}(?:st|nd|rd|th)?,? \d{4}"
    r"|\d{1,2}(?:st|nd|rd|th)? (?:of )?[a-z]+,? \d{4}|\d{4}-\d{2}-\d{2})"
)
_ASKED_DATE = re.compile(r"(?i)^(?:(?:what|which) )?(?:date|day|the date|weekday|day of the week)\b\s*")
_VERB = re.compile(r"(?i)^(?:is|was|will be|comes|falls|it is)\s+")
_MOVED = re.compile(rf"(?i){NUMBER} (?:calendar )?(day|week|month|year)s? (after|from|before) {_DATE}")
_BETWEEN = re.compile(
    r"(?i)(?:how many days )?(?:are there |is it |days |the days )?(?:between|from) "
    rf"{_DATE} (?:and|to|until|till) {_DATE}"
)
_WEEKDAY_ASKED = re.compile(r"(?i)\b(?:what|which) (?:day|weekday)|^(?:week)?day\b|day of the week")
_WEEKDAY = re.compile(
    r"(?i)(?:(?:what|which) (?:day|weekday)(?: of the week)? (?:is|was|will be) )?"
    rf"(?:of the week )?(?:is |was )?{_DATE}"
)


def format_number(value: float) -> str:
    """Write a number with at most six decimals and commas between thousands."""
    rounded = round(value, 6)
    if rounded == int(rounded):
        return f"{int(rounded):,}"
    whole, _, part = f"{rounded:,.6f}".partition(".")
    return f"{whole}.{part.rstrip('0')}"


def convert_units(text: str) -> str:
    """Return `3.5 hours is 210 minutes.` for a question that is nothing but a conversion, else ""."""
    for pattern, target_first in _FORMS:
        if found := re.fullmatch(pattern, text.strip()):
            target, amount, unit = found.groups() if target_first else (found[3], found[1], found[2])
            return _convert_amount(float(amount or 1), unit.strip(), target.strip())
    return ""


def _convert_amount(amount: float, unit: str, target: str) -> str:
    source, into = _find_unit(unit), _find_unit(target)
    if source and into and source[0] == into[0]:
        value = amount * source[1] / into[1]
    elif unit.lower() in _SCALES and target.lower() in _SCALES:
        (factor, offset), (other, shift) = _SCALES[unit.lower()], _SCALES[target.lower()]
        value = (amount * factor + offset - shift) / other
    else:
        return ""
    return f"{format_number(amount)} {unit} is {format_number(round(value, 4))} {target}."


def _find_unit(name: str) -> tuple[str, float] | None:
    low = name.lower()
    return _UNITS.get(low) or _UNITS.get(low.removesuffix("s"))


def count_dates(text: str) -> str:
    """Return a date moved by a span, the days between two dates, or a date's weekday, as a sentence.

    Any other text gives an empty string.
    """
    asked = _VERB.sub("", _ASKED_DATE.sub("", text.strip()))
    if found := _MOVED.fullmatch(asked):
        return _move_date(int(float(found[1])), found[2].lower(), found[3].lower(), found[4])
    if found := _BETWEEN.fullmatch(asked):
        first, last = _parse_day(found[1]), _parse_day(found[2])
        if first is None or last is None:
            return ""
        return f"From {_format_day(first)} to {_format_day(last)} is {(last - first).days:,} days."
    if _WEEKDAY_ASKED.search(text) and (found := _WEEKDAY.fullmatch(asked)):
        day = _parse_day(found[1])
        return f"{_format_day(day)} is a {day:%A}." if day else ""
    return ""


def _move_date(count: int, span: str, way: str, start: str) -> str:
    day = _parse_day(start)
    if day is None:
        return ""
    steps = -count if way == "before" else count
    try:
        if span in ("day", "week"):
            result = day + timedelta(days=steps * (7 if span == "week" else 1))
        else:
            result = _add_months(day, steps * (12 if span == "year" else 1))
    except (ValueError, OverflowError):
        return ""
    plural = "" if count == 1 else "s"
    return f"{count:,} {span}{plural} {way} {_format_day(day)} is {_format_day(result)}, a {result:%A}."


def _add_months(day: date, months: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _parse_day(text: str) -> date | None:
    try:
        if text[4:5] == "-":
            return date.fromisoformat(text)
        named = next(word for word in re.findall(r"[a-z]{3,}", text.lower()))
        month = next(n for n, name in enumerate(month_name) if n and name.lower().startswith(named))
        day, year = (int(number) for number in re.findall(r"\d+", text))
        return date(year, month, day)
    except (ValueError, StopIteration):
        return None


def _format_day(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
