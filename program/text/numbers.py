"""The numbers and codes of a statement, and which of them no source states and no sum gives."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from operator import add, mul, sub, truediv

from ragc.text.facts import in_digits, normalise_text
from ragc.text.pieces import NUMBER

_PARTS = re.compile(r"[-/:,.]")
_DECIMAL = re.compile(r"\d+\.\d+")
_MONTHS = {f"{date(2000, n, 1):%B}".lower(): str(n) for n in range(1, 13)}
_LIST_NUMBER = re.compile(rf"^{NUMBER.pattern}", re.MULTILINE)
_OPERATIONS = {
    "+": add,
    "-": sub,
    "−": sub,
    "–": sub,
    "*": mul,
    "x": mul,
    "×": mul,
    "·": mul,
    "/": truediv,
    "÷": truediv,
}
_AMOUNT = r"(?:[A-Z]{3}\s*|[£€$]\s*)?(\d[\d,]*(?:\.\d+)?)\s*(?:%|(?!x(?![^\W\d_]))[^\W\d_]{1,12})?"
_SIGN = f"[{re.escape(''.join(_OPERATIONS))}]"
_SUM = re.compile(rf"{_AMOUNT}((?:\s*{_SIGN}\s*{_AMOUNT})+)\s*=\s*{_AMOUNT}")
_TERM = re.compile(rf"({_SIGN})\s*{_AMOUNT}")
ROUNDED = 0.01  # the share by which what was worked out may differ from its sum


def list_unstated(statement: str, sources: Iterable[str]) -> set[str]:
    """Return the numbers and codes that no source states and no sum gives.

    Worked out is what stands behind the equals sign of a sum whose terms the sources state: `12 + 5 = 17`. Numbers in
    words, and those before the items of a list, are not counted. A date is stated by its day, month and year.
    """
    known, parts = (frozenset[str]().union(*found) for found in zip(*map(_read_numbers, ["", *sources]), strict=True))
    bare = _LIST_NUMBER.sub("", statement)
    unstated = {one for one in in_digits(bare) if one not in known and not _is_stated_by_parts(one, parts)}
    return unstated - _work_out(bare, known) if unstated else unstated


@lru_cache(maxsize=4096)
def _read_numbers(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what a text states as a number, and the parts of which it may state a date or a time."""
    words = normalise_text(text).split()
    tokens = [token.lstrip("-") for token in words if any(map(str.isdigit, token))]
    whole = frozenset(tokens).union(*(_split_parts(one) for one in tokens if not _DECIMAL.fullmatch(one)))
    months = {_MONTHS[word] for word in words if word in _MONTHS}
    return whole, whole.union(months, *map(_split_parts, tokens))


def _is_stated_by_parts(token: str, parts: frozenset[str]) -> bool:
    """Tell whether all parts of a date or a time are stated; a decimal number has none."""
    own = () if _DECIMAL.fullmatch(token) else _split_parts(token)
    return len(own) > 1 and parts.issuperset(own)


def _split_parts(token: str) -> frozenset[str]:
    """Return the parts of a date, a time or a version: 2026, 11 and 3 of 2026-11-03."""
    return frozenset(part.lstrip("0") or "0" for part in _PARTS.split(token) if part)


def _work_out(statement: str, known: frozenset[str]) -> set[str]:
    """Return the results of the sums that are right, and whose terms are known."""
    found = set[str]()
    for match in _SUM.finditer(statement):
        first, result = _value(match[1]), _value(match[match.lastindex or 1])
        terms = [(sign, _value(term)) for sign, term in _TERM.findall(match[2])]
        stated = {_plain(value) for value in (first, *(value for _, value in terms))} <= known | found
        total = _evaluate(first, terms)
        if stated and total is not None and abs(total - result) <= ROUNDED * max(abs(total), ROUNDED):
            found.add(_plain(result))
    return found


def _evaluate(first: float, terms: list[tuple[str, float]]) -> float | None:
    """Return what a sum comes to, products before sums; None where it divides by zero."""
    sums = [first]
    for sign, value in terms:
        operation = _OPERATIONS[sign]
        if operation in (mul, truediv):
            if operation is truediv and not value:
                return None
            sums[-1] = operation(sums[-1], value)
        else:
            sums.append(operation(0, value))
    return sum(sums)


def _value(written: str) -> float:
    return float(written.replace(",", ""))


def _plain(value: float) -> str:
    return f"{value:.10f}".rstrip("0").rstrip(".")
