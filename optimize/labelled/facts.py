"""Whether a text states a fact: containment of whole words, numbers, units and money in one spelling."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

STOP = "."
"""The token that stands for the end of a sentence, a table cell or a list item: no fact reaches across it."""
_IN_WORDS = "#"
"""Before the digits of a number that was written in words, where that matters."""

_BELOW_TWENTY = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_UNITS = {word: value for value, word in enumerate(_BELOW_TWENTY)}
_TENS = {
    word: 10 * value
    for value, word in enumerate(("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), 2)
}
_SCALES = {"hundred": 100, "thousand": 1000}
_NUMERALS = {**_UNITS, **_TENS, **_SCALES}

_CURRENCY = {"£": "gbp", "€": "eur", "$": "usd", "gbp": "gbp", "eur": "eur", "usd": "usd", "cad": "cad"}
_CURRENCY_NAMES = {"pounds": "gbp", "quid": "gbp", "euros": "eur", "dollars": "usd", **_CURRENCY}
"""After their amount; never the singular, for "a Warden 3 Euro" is no sum of money."""
_ABBREVIATIONS = {
    **dict.fromkeys(("h", "hr", "hrs"), "hour"),
    **dict.fromkeys(("min", "mins"), "minute"),
    **dict.fromkeys(("s", "sec", "secs"), "second"),
    **dict.fromkeys(("d",), "day"),
    **dict.fromkeys(("wk", "wks"), "week"),
    **dict.fromkeys(("yr", "yrs"), "year"),
    **{"mm": "millimetre", "cm": "centimetre", "m": "metre", "km": "kilometre", "kg": "kilogram"},
    **{"v": "volt", "w": "watt"},
}
"""Read as their unit only straight after a number."""
_SPELLINGS = {
    **{"meter": "metre", "kilometer": "kilometre", "centimeter": "centimetre", "millimeter": "millimetre"},
    **{"percent": "%", "&": "and", "minu": "minus", "email": "e-mail"},
}

_BEFORE_COMPATIBILITY = str.maketrans(
    # Composing them would glue a footnote mark or a fraction to the number before it.
    {**dict.fromkeys("⁰¹²³⁴⁵⁶⁷⁸⁹", " "), "½": ".5 ", "¼": ".25 ", "¾": ".75 ", "’": "'", "‘": "'"}
)
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"))

_NEW_PIECE = r"\n(?=\s*(?:\n|[-*•\#|]\s|\d+[.)]\s))"
"""A line end that ends a paragraph, a list item, a heading or a table row."""
_TOKEN = re.compile(
    r"""
      (?P<whole> \d{4}-\d\d-\d\d (?!\d) | \d+/\d+/\d+ | (?<!\d) \d/\d (?![\d/])      # dates, fractions
               | \d+ [^\W\d_]+ \d [^\W_]*                                            # 3fa9c1, 2x4
               | (?!(?:gbp|eur|usd|cad)\d) [^\W\d_]+ \d [^\W_]* (?:\.\d+)* )           # e44, aes256, v2.4
    | (?P<number> (?:(?<![^\s(\[|,;:'"])-)? (?:\d+(?:[.,:]\d+)* | \.\d+) )
      (?: (?:st|nd|rd|th) (?![^\W_]) )?
      (?P<range> -(?=\d) )?
    | (?P<word> e-mail | [^\W\d_]+ (?:'[^\W\d_]+)* )
    | (?P<sign> [£$€%&] )
    | (?P<stop> [.!?;](?=\s|$) | \| | NEW_PIECE )
    """.replace("NEW_PIECE", _NEW_PIECE),
    re.VERBOSE,
)


def states(text: str, fact: str | Sequence[str]) -> bool:
    """True when `text` states `fact`, or one of its alternatives when `fact` is a sequence.

    Equal are: upper and lower case, any white space, "1,000" and 1000, "4.50" and 4.5, "thirty" and 30,
    "14-day" and "14 days", "£45", "GBP 45" and "45 pounds", "15 per cent" and "15%", "10 m" and "10 metres".
    A number is matched whole: "8" is not stated by 18, 8.5, 8:30 or -8. A number in words is a number only beside
    another word: "three rooms" is stated by "3 rooms", but "three" by itself only by that word, not by "Room 3". A
    fact without a word or number is never stated.
    """
    if not isinstance(fact, str):
        return any(states(text, alternative) for alternative in fact)
    if is_bare_numeral(fact):
        return _worded(fact) in _worded(text)
    needle = _needle(fact)
    return bool(needle) and needle in normal(text)


def pieces_of(text: str) -> list[str]:
    """Return the sentences, list items and whole table rows of a text."""
    return re.split(rf"(?<=[.!?;])\s+|{_NEW_PIECE}", text)


def spans_a_boundary(text: str, fact: str) -> bool:
    """True when `text` would state `fact` if table cells and sentences had no end."""
    needle = _needle(fact)
    return bool(needle) and needle in normal(text).replace(f" {STOP} ", " ") and not states(text, fact)


@lru_cache(maxsize=16_384)
def is_bare_numeral(fact: str) -> bool:
    """True for a number written in words with no other word beside it: "three", "twenty-five"."""
    return re.fullmatch(rf" {_IN_WORDS}\d+ ", _worded(fact)) is not None


@lru_cache(maxsize=16_384)
def _worded(text: str) -> str:
    """As `normal`, but that a number in words is told from one in digits."""
    return f" {' '.join(_joined(list(_scan(text)), _IN_WORDS)).strip(f' {STOP}')} "


@lru_cache(maxsize=16_384)
def normal(text: str) -> str:
    """The tokens of `text` in their one spelling, a space around each; " " when there is none."""
    tokens = _joined(list(_scan(text)))
    return f" {' '.join(tokens)} " if tokens else " "


@lru_cache(maxsize=16_384)
def _needle(fact: str) -> str:
    tokens = normal(fact).strip(f" {STOP}")
    return f" {tokens} " if tokens else ""


def _scan(text: str) -> Iterator[tuple[str, str]]:
    """(kind, token) pairs in order; kinds are number, word, sign, whole, stop."""
    text = unicodedata.normalize("NFKC", text.translate(_BEFORE_COMPATIBILITY)).translate(_DASHES).casefold()
    end = 0
    for match in _TOKEN.finditer(text):
        gap, end = text[end : match.start()], match.end()
        kind = match.lastgroup or ""
        if match["number"] is not None:
            yield "number", _number(match["number"])
            if match["range"]:
                yield "word", "to"
        elif kind == "word":
            # A hyphen or a space lets numerals join up, "twenty-five"; a comma does not.
            yield ("joins" if gap == "-" or gap.isspace() else "word"), _word(match["word"])
        else:
            yield kind, STOP if kind == "stop" else match[0]


def _number(written: str) -> str:
    """The one spelling of a number: no thousands commas, no idle zeros; a time stays as it is."""
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", written):
        written = written.replace(",", "")
    if re.fullmatch(r"-?\d*\.\d+", written):
        whole, _, decimals = written.partition(".")
        whole = whole if whole not in ("", "-") else f"{whole}0"
        decimals = decimals.rstrip("0")
        return f"{whole}.{decimals}" if decimals else whole
    return re.sub(r"^0(?=\d:)", "", written)


@lru_cache(maxsize=65_536)
def _word(written: str) -> str:
    """A word without its possessive and, roughly, its plural; both sides of a comparison are cut alike."""
    word = written.removesuffix("'s").replace("'", "")
    if word in _NUMERALS or word in _ABBREVIATIONS or word in _CURRENCY_NAMES:
        return word
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        if word.endswith("ies") and len(word) > 4:
            word = word[:-3] + "y"
        else:
            word = word[:-2] if word.endswith(("ches", "shes", "xes", "sses", "zes")) else word[:-1]
    return _SPELLINGS.get(word, word)


def _joined(scanned: list[tuple[str, str]], in_words: str = "") -> list[str]:
    """Numerals as digits, `in_words` before them, units written out, the currency in front of its amount, one STOP in
    a row."""
    out: list[str] = []
    at = 0
    while at < len(scanned):
        kind, token = scanned[at]
        after_number = bool(out) and out[-1][-1:].isdigit() and scanned[at - 1][0] != "whole"
        numeral = _numeral(scanned, at) if token in _NUMERALS and kind in ("word", "joins") else None
        if numeral:
            value, at = numeral
            _append_number(out, f"{in_words}{value}")
            continue
        at += 1
        if kind == "number":
            _append_number(out, token)
        elif kind == "stop":
            if out and out[-1] != STOP:
                out.append(STOP)
        elif token in _CURRENCY_NAMES and after_number:
            if out[-2:-1] != [_CURRENCY_NAMES[token]]:
                out.insert(len(out) - 1, _CURRENCY_NAMES[token])
        elif token == "cent" and out[-1:] == ["per"]:
            out[-1] = "%"
        elif after_number and out[-2:-1] not in (["gbp"], ["eur"], ["usd"], ["cad"]):
            out.append(_ABBREVIATIONS.get(token, token))
        else:
            out.append(_CURRENCY.get(token) or _SPELLINGS.get(token, token))
    return out


def _append_number(out: list[str], number: str) -> None:
    if out[-1:] == ["minus"]:
        out[-1] = f"-{number}"
    else:
        out.append(number)


def _numeral(scanned: Sequence[tuple[str, str]], at: int) -> tuple[int, int] | None:
    """The value of the number in words from `at`, and where it ends: "two hundred and five" is 205."""

    def word(n: int) -> str:
        """The word at `n` when it may continue a numeral, else nothing."""
        return scanned[n][1] if n < len(scanned) and (n == at or scanned[n][0] == "joins") else ""

    def below_hundred(n: int) -> tuple[int, int] | None:
        if word(n) in _TENS:
            unit = _UNITS.get(word(n + 1), 0)
            return (_TENS[word(n)] + unit, n + 2) if 0 < unit < 10 else (_TENS[word(n)], n + 1)
        return (_UNITS[word(n)], n + 1) if word(n) in _UNITS else None

    def below_thousand(n: int) -> tuple[int, int] | None:
        found = below_hundred(n)
        if not found or word(found[1]) != "hundred":
            return found
        value, end = found[0] * 100, found[1] + 1
        rest = below_hundred(end + 1 if word(end) == "and" else end)
        return (value + rest[0], rest[1]) if rest else (value, end)

    if word(at) in _SCALES:
        # "a hundred" is 100; "several hundred" is no number.
        return (_SCALES[word(at)], at + 1) if at and scanned[at - 1][1] == "a" else None
    found = below_thousand(at)
    if not found or word(found[1]) != "thousand":
        return found
    value, end = found[0] * 1000, found[1] + 1
    rest = below_thousand(end + 1 if word(end) == "and" else end)
    return (value + rest[0], rest[1]) if rest else (value, end)
