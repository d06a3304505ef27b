"""Numbers as people write them: money, thousands, decimal commas, and marks for a missing one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MISSING = frozenset({"", "-", "--", "–", "—", "n/a", "n.a.", "na", "nan", "null", "none", "?"})
"""What stands for a missing value, in lower case."""
MOST_DIGITS = 18  # a longer run of digits is an identifier
LONGEST = 40  # characters of an amount, its unit with it
_DIGIT, _INTEGER = re.compile(r"(?a)\d"), re.compile(r"(?a)-?(?:0|[1-9]\d{0,17})")
_CODES = """AED AUD BGN BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF IDR ILS INR ISK JPY KRW MXN MYR NOK NZD PHP PLN RON
    RUB SAR SEK SGD THB TRY TWD UAH USD VND ZAR"""
_SIGNS = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP"}  # ¥, kr and the like are of several countries
_UNIT = rf"[A-Z]{{0,3}}[$€£¥₹₩₽₺₴₪฿₫]|(?i:{'|'.join(_CODES.split())})|kr\.?|zł|Kč|Ft|Fr\.|%"
_AMOUNT = re.compile(
    rf"(?a)(?P<open>\(?)(?P<sign>[-+−]?) ?(?P<before>(?:{_UNIT})? ?)(?P<inner>[-+−]?)"
    r"(?P<digits>\d[\d.,'’ ]*\d|\d|[.,]\d+)\.?(?P<power>[eE][-+]?\d{1,3})?(?:[.,][-–—]{1,2})?"
    rf"(?P<after> ?(?:{_UNIT})?)(?P<close>\)?)"
)
_GROUPED = re.compile(
    r"(?a)[1-9]\d{0,2}(?P<group>[.,'’ ])\d{3}(?P<more>(?P=group)\d{3})*(?:(?!(?P=group))(?P<mark>[.,])\d+)?"
)
_PLAIN = re.compile(r"(?a)(?:0|[1-9]\d*)?(?:(?P<mark>[.,])\d+)?")


class Amount(NamedTuple):
    """A number in a cell, and how it is written there."""

    value: int | float
    unit: str  # a currency's code or sign, or %
    mark: str  # the decimal mark that it shows: a point, a comma, or neither
    doubtful: bool  # whether its one mark may part thousands or decimals, as in 1,200


def read_amount(text: str, mark: str = ".") -> Amount | None:
    """Return the number in a cell; `mark` is the decimal mark of a doubtful one.

    None for any other text, and for identifiers: a leading zero, or more than 18 digits.
    """
    if _INTEGER.fullmatch(text):
        return Amount(int(text), "", "", False)
    match = _AMOUNT.fullmatch(" ".join(text.split())) if len(text) <= LONGEST and _DIGIT.search(text) else None
    if (
        match is None
        or (match["before"].strip() and match["after"].strip())
        or len(match["open"] + match["close"]) == 1
    ):
        return None
    digits = match["digits"]
    grouped, plain = _GROUPED.fullmatch(digits), _PLAIN.fullmatch(digits)
    if not (grouped or plain) or sum(map(str.isdigit, digits)) > MOST_DIGITS or int((match["power"] or "e0")[1:]) > 99:
        return None
    doubtful = grouped is not None and plain is not None
    shape = plain if grouped is None or (doubtful and plain and plain["mark"] == mark) else grouped
    decimal = (shape and shape["mark"]) or ""
    shown = decimal or ({".": ",", ",": "."}.get(grouped["group"], "") if grouped and grouped["more"] else "")
    whole, _, rest = digits.rpartition(decimal) if decimal else (digits, "", "")
    negative = "-" if match["open"] or {match["sign"], match["inner"]} & {"-", "−"} else ""
    written = f"{negative}{re.sub(r'[^0-9]', '', whole) or 0}"
    broken = decimal or match["power"]
    value = float(f"{written}.{rest or 0}{match['power'] or ''}") if broken else int(written)
    unit = (match["before"] + match["after"]).strip()
    return Amount(value, _SIGNS.get(unit, unit.upper()), "" if doubtful else shown, doubtful)


def find_decimal_mark(amounts: Iterable[Amount | None]) -> str:
    """Return the decimal mark of amounts; empty where none shows it, or they differ."""
    shown = {one.mark for one in amounts if one and one.mark}
    return shown.pop() if len(shown) == 1 else ""
