"""Sums with percentages, by the way they are asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from program.models.rules.numbers import NUMBER as _N
from program.models.rules.numbers import number

_PER = r"(?:percent|percentage|%)"
_LESS, _MORE = "(?:decrease|reduce|discount|lower|cut)", "(?:increase|raise)"
_LESSENED, _RAISED = "(?:decreased|reduced|discounted|lowered|cut)", "(?:increased|raised|up)"
_TAX = "(?: (?:vat|tax|gst|hst|tip|interest|service))?"


@dataclass(frozen=True, slots=True)
class _Form:
    """`said` names the two numbers in the order of the question, {0} and {1}, and the result, {r}."""

    pattern: str
    result: Callable[[float, float], float]
    said: str


_SAID_LESS = "{0} less {1}% is {r} ({0} × (1 - {1} / 100))."
_SAID_MORE = "{0} plus {1}% is {r} ({0} × (1 + {1} / 100))."
_FORMS = (
    _Form(rf"{_N}% of {_N}", lambda p, x: p * x / 100, "{0}% of {1} is {r} ({1} × {0} / 100)."),
    _Form(
        rf"{_N}% off(?: of)? (?:a |an )?(?:\w+ )?(?:of )?{_N}",
        lambda p, x: x * (1 - p / 100),
        "{1} less {0}% is {r} ({1} × (1 - {0} / 100)).",
    ),
    _Form(
        rf"{_N} (?:with|after|less|minus) (?:a |an )?{_N}%(?: discount| off| reduction)?"
        rf"|{_LESS} {_N} by {_N}%|{_N} {_LESSENED} by {_N}%",
        lambda x, p: x * (1 - p / 100),
        _SAID_LESS,
    ),
    _Form(
        rf"{_N} (?:plus|\+|and|including) {_N}%{_TAX}|{_MORE} {_N} by {_N}%|{_N} {_RAISED} by {_N}%",
        lambda x, p: x * (1 + p / 100),
        _SAID_MORE,
    ),
    _Form(
        rf"add {_N}%(?: \w+)? to {_N}",
        lambda p, x: x * (1 + p / 100),
        "{1} plus {0}% is {r} ({1} × (1 + {0} / 100)).",
    ),
    _Form(
        rf"(?:what )?{_PER} of {_N} is {_N}",
        lambda y, x: 100 * x / y,
        "{1} is {r}% of {0} (100 × {1} / {0}).",
    ),
    _Form(
        rf"(?:what )?{_PER} is {_N} (?:out )?of {_N}|{_N} (?:as|is) (?:a|what) {_PER} of {_N}",
        lambda x, y: 100 * x / y,
        "{0} is {r}% of {1} (100 × {0} / {1}).",
    ),
    _Form(
        rf"(?:the )?{_PER} (?:change|increase|decrease|rise|fall|difference) "
        rf"(?:from|between) {_N} (?:to|and) {_N}",
        lambda x, y: 100 * (y - x) / x,
        "From {0} to {1} is a change of {r}% (100 × ({1} - {0}) / {0}).",
    ),
)


def percent(text: str) -> str:
    """A sentence with the result and the sum, or an empty string when the text is no such question."""
    for form in _FORMS:
        if found := re.fullmatch(form.pattern, text, re.IGNORECASE):
            given = [float(value) for value in found.groups() if value is not None]
            try:
                result = form.result(*given)
            except ZeroDivisionError:
                return ""
            return form.said.format(*map(number, given), r=number(result))
    return ""
