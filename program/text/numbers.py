"""The numbers and codes of a statement, and which of them no source states and no sum gives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import add, mul, sub, truediv

from ragc.text.days import MONTHS
from ragc.text.facts import in_digits, normalise_text
from ragc.text.pieces import NUMBER

_PARTS = re.compile(r"[-/:,.]")
_DECIMAL = re.compile(r"\d+\.\d+")
_MONTHS = {name.lower(): str(n) for n, name in enumerate(MONTHS, 1)}
_LIST_NUMBER = re.compile(rf"^{NUMBER.pattern}", re.MULTILINE)
_OPERATIONS = {"+": add, **dict.fromkeys("-−–", sub), **dict.fromkeys("*x×·", mul), **dict.fromkeys("/÷", truediv)}
_RANKS = {sign: 1 + (operation in (mul, truediv)) for sign, operation in _OPERATIONS.items()}
_PART = re.compile(
    r"""
      \*\* | \[\d+\] | \([^()\d]*\)                      # of no sum: marks, and names in brackets
    | (?P<number> (?<![^\W_]) (?:[A-Z]{3})? (?P<digits> \d[\d,]*(?:\.\d+)? ) \s*%? )
    | (?P<sign> [+−–*×·/÷()] | (?<![^\W\d_]) [x-] (?![^\W\d_]) )
    | (?P<equals> [=≈] )
    | (?P<end> [.;!?](?=\s) | \n )
    """,
    re.VERBOSE,
)
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
    """Return the results of the sums that are right, and whose terms are known.

    A term may have words, a mark or a name in brackets beside it; two numbers without a sign between end a sum.
    """
    found, parts, terms, is_result = set[str](), list[str | float](), set[str](), False
    for match in _PART.finditer(f"{statement}\n"):
        begins = match["number"] or match[0] == "("
        digits = (match["digits"] or "").replace(",", "")
        value = float(digits or 0) / (100 if "%" in match[0] else 1)
        if is_result and digits and terms - found <= known and _comes_to(parts, value):
            found.add(_plain(float(digits)))
        if match["end"] or (begins and (is_result or (parts and parts[-1] not in {"(", *_RANKS}))):
            parts, terms = [], set()
        if match["number"] or match["sign"]:
            parts.append(value if digits else match[0])
            terms |= {_plain(float(digits))} if digits else set()
        is_result = bool(match["equals"]) if match.lastgroup else is_result
    return found


def _comes_to(parts: Sequence[str | float], result: float) -> bool:
    """Tell whether the parts of a sum, in a bracket with its result or not, come to the result but for rounding."""
    left = [*parts[max(0, parts.count("(") - parts.count(")")) :]][::-1]
    try:
        total = _evaluate(left)
    except (ValueError, IndexError, ZeroDivisionError, RecursionError):
        return False
    return not left and abs(total - result) <= ROUNDED * max(abs(total), ROUNDED)


def _evaluate(parts: list[str | float], rank: int = 0) -> float:
    """Take a sum, or what in it binds closer than a rank, from the end of the parts, and return what it comes to."""
    value = _evaluate(parts) if (first := parts.pop()) == "(" else float(first)
    if first == "(" and parts.pop() != ")":
        raise ValueError("a bracket is not closed")
    while parts and _RANKS.get(str(parts[-1]), 0) > rank:
        sign = str(parts.pop())
        value = _OPERATIONS[sign](value, _evaluate(parts, _RANKS[sign]))
    return value


def _plain(value: float) -> str:
    return f"{value:.10f}".rstrip("0").rstrip(".")
