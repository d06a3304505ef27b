"""Ranges of numbers in the cells of a column, and which of them hold a number that a question names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ragc.text.words import fold_text, split_words

_NUMBER = re.compile(r"(?a)\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?")
_TIME = re.compile(  # 13:00, 1.30 pm, and the 6 of `6 to 8 pm`
    r"(?a)(?<![\d.:])(\d{1,2})(?:[:.](\d\d))?(?:\s*([ap])\.?m\b|(?=\s*(?:-|[a-z]+)\s*\d{1,2}(?:[:.]\d\d)?\s*[ap]\.?m\b))"
    r"|(?<![\d.:])(\d{1,2}):(\d\d)(?![\d:])"
)
_NO_RANGE = re.compile(r"(?a)\d[:/]\d|\d[.-]\d+[.-]\d")  # days, and times with seconds
_HOURS, _MINUTE = frozenset({":"}), 1 / 60
_MEASURE = re.compile(r"[^\W\d_]+|[%€£$]")
_UNIT = re.compile(r"\s*([mck]?)([glm])(?![^\W_])")  # grams, litres and metres, and their parts
_SPAN = re.compile(
    r"(?:\b([^\W\d_]+) )?(?<![\w.,:/-])(?<!\d )"
    r"(\d+\s?[^\W\d_]*\s?(?:[-–—]|\bto\b)\s?\d+(?!\d|[\w.,:/-]\d)(?: ?[^\W\d_]+)?)"
)
"""Two numbers of a sentence with a dash or `to` between, and the word before and behind them: `grade 4 to 6`."""
_PREFIXES = {"m": 0.001, "c": 0.01, "": 1.0, "k": 1000.0}


class Range(NamedTuple):
    """The numbers from one to another; `open` without these."""

    low: float
    high: float
    open: bool = False

    def holds(self, number: float) -> bool:
        """Tell whether a number lies in it."""
        return self.low < number < self.high if self.open else self.low <= number <= self.high


@lru_cache(maxsize=4096)
def find_ranges(cells: tuple[str, ...]) -> tuple[Range | None, ...]:
    """Return the range that each cell of a column names.

    A cell of two numbers goes from one to the other. Where there is such a cell, one number that is not above the first
    range ends the numbers below it, and one that is not under the last range begins those above it: `up to 8 m`,
    `9 to 12 m`, `over 12 m`.
    """
    numbers = [_read_numbers(cell) for cell in cells]
    pairs = [Range(found[0], found[1]) for found in numbers if len(found) == 2 and found[0] < found[1]]
    if not pairs:
        return (None,) * len(cells)
    first, last = min(pair.low for pair in pairs), max(pair.high for pair in pairs)
    return tuple(_read_range(found, first, last) for found in numbers)


def _read_range(numbers: Sequence[float], first: float, last: float) -> Range | None:
    match numbers:
        case [low, high] if low < high:
            return Range(low, high)
        case [one] if one <= first:
            return Range(-math.inf, one, one == first)
        case [one] if one >= last:
            return Range(one, math.inf, one == last)
    return None


@lru_cache(maxsize=1024)
def list_measured(text: str) -> tuple[tuple[str, float, frozenset[str]], ...]:
    """Return each number of a text, and what it may be measured in."""
    folded = fold_text(text)
    found = [(word, hour, _HOURS) for word, hour in _list_times(folded)]
    folded = _TIME.sub(" ", folded)
    for match in () if _NO_RANGE.search(folded) else _NUMBER.finditer(folded):
        before, rest = _MEASURE.findall(folded[: match.start()])[-1:], folded[match.end() :]
        after = _MEASURE.match(rest.lstrip())
        words = find_measures(" ".join([*before, *([after[0]] if after else [])]))
        found.append((match[0], round(float(match[0].replace(",", "")) * (_find_scale(rest) or 1), 6), words))
    return tuple(found)


def has_time(text: str) -> bool:
    """Tell whether a text names a time of day."""
    return _TIME.search(fold_text(text)) is not None


def find_span(sentence: str) -> tuple[str, str]:
    """Return the word before the one range of a sentence, and the range; nothing of none or several."""
    (before, span), *more = _SPAN.findall(sentence) or [("", "")]
    return ("", "") if more else (before, span)


@lru_cache(maxsize=4096)
def find_measures(text: str) -> frozenset[str]:
    """Return the stems and the signs in which a number may be measured."""
    folded = fold_text(text)
    signs = frozenset(one for one in folded if one in "%€£$")
    words = (unit[2] if (unit := _UNIT.fullmatch(word)) else word for word in split_words(text))
    return frozenset(words) | signs | (_HOURS if has_time(folded) else frozenset())


def spell_range(text: str, number: str, cell: str) -> str:
    """Return a text with a cell in place of a measured number in its range."""

    def replace(match: re.Match[str]) -> str:
        return cell if find_measures(match[1]) <= find_measures(cell) else f"{cell}{match[1]}"

    return re.sub(rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)(\s*(?:{_MEASURE.pattern})|)", replace, text)


def _read_numbers(cell: str) -> list[float]:
    """Return the times of a cell, else its numbers, the least first; of days none."""
    folded = fold_text(cell)
    if times := _list_times(folded):
        return [hour for _, hour in times]
    scale, numbers = 0.0, list[float]()
    for match in reversed([] if _NO_RANGE.search(folded) else [*_NUMBER.finditer(folded)]):
        scale = _find_scale(folded[match.end() :]) or scale or 1.0  # the 2 of `2 to 20 kg`
        numbers.append(round(float(match[0].replace(",", "")) * scale, 6))
    return sorted(numbers)


def _find_scale(after: str) -> float:
    """Return how many grams, litres or metres the unit is that a text begins with; 0 where it begins with none."""
    return _PREFIXES[unit[1]] if (unit := _UNIT.match(after)) else 0.0


def _list_times(folded: str) -> list[tuple[str, float]]:
    """Return each time of day of a text, and its hour: 13.5 of `1.30 pm`; of a second one that of a minute before."""
    found: list[tuple[str, float]] = []
    for time in reversed([*_TIME.finditer(folded)]):
        hour = int(time[1] or time[4]) + int(time[2] or time[5] or 0) / 60
        if time[3]:
            hour = hour % 12 + 12 * (time[3] == "p")
        elif time[1] and found and hour + 12 < found[-1][1]:  # of the half of the day that is named behind it
            hour += 12
        found.append((time[0], hour))
    return [(word, hour - _MINUTE * (at > 0)) for at, (word, hour) in enumerate(reversed(found))]
