"""How current the evidence must be for a question, and how much of it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from program.passage import Passage

_TIMELY = re.compile(
    r"\b(?:latest|newest|most recent(?:ly)?|recent(?:ly)?|current(?:ly)?|nowadays|today|tonight|right now|at the moment"
    r"|at present|up[- ]to[- ]date|so far|this (?:week|month|quarter|season|autumn|fall|winter|spring|summer|year)"
    r"|last (?:week|month)|as of now|now)\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"\b(20\d\d)\b")
OLD = timedelta(days=365)
"""An age, counted from the newest evidence found, past which a page no longer answers for the present."""


@dataclass(frozen=True, slots=True)
class Need:
    """Whether a question asks for the present state, and the year it names, if one."""

    timely: bool = False
    year: int | None = None


def need(question: str) -> Need:
    """The need that the question's own words state; English."""
    years = _YEAR.findall(question)
    return Need(bool(_TIMELY.search(question)), int(years[-1]) if years else None)


def is_stale(passage: Passage, wanted: Need, newest: date | None) -> bool:
    """True when a passage was superseded, is older than the year asked about, or too old for a timely question.

    `newest` is the date of the newest passage found: the knowledge's own present. An undated passage is not stale.
    """
    if wanted.year is not None:
        return passage.as_of is not None and passage.as_of.year < wanted.year
    if passage.superseded_by:
        return True
    if not wanted.timely or passage.as_of is None or newest is None:
        return False
    return newest - passage.as_of >= OLD


def newest_of(passages: Sequence[Passage]) -> date | None:
    """The latest date among the passages, or None when none is dated."""
    return max((p.as_of for p in passages if p.as_of is not None), default=None)


def freshness(passages: Sequence[Passage], wanted: Need, newest: date | None) -> float:
    """The share of the passages that are current enough, in [0, 1]; 1 for none."""
    stale = sum(is_stale(p, wanted, newest) for p in passages)
    return 1.0 - stale / len(passages) if passages else 1.0


def youth(passages: Sequence[Passage]) -> list[float]:
    """For each passage 0 (oldest or undated) to 1 (newest), by days."""
    days = [p.as_of.toordinal() for p in passages if p.as_of is not None]
    if not days:
        return [0.0] * len(passages)
    low, span = min(days), max(max(days) - min(days), 1)
    alone = max(days) == min(days)
    return [0.0 if p.as_of is None else 1.0 if alone else (p.as_of.toordinal() - low) / span for p in passages]
