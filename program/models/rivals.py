"""Which of two passages that state rival things is to be believed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from program.knowledge.source import AUTHORITY
from program.models.units import Unit
from program.models.words import quantities
from program.signatures import Excerpt

ALIKE = 0.7  # cosine from which two pieces with differing numbers are taken to state the same thing
_NOW = re.compile(
    r"\b(?:now|nowadays|currently|current|latest|newest|today|these days"
    r"|this (?:week|month|year|winter|summer|season)|at the moment|right "
    r"now|still|as things stand|at present)\b",
    re.IGNORECASE,
)
_PAST = re.compile(r"\b(?:in|before|until|during|under the|of|from) (?:\w+ )?((?:19|20)\d\d)\b", re.IGNORECASE)


def contradict(one: Unit, other: Unit) -> bool:
    """Other numbers for two pieces alike: they come from different passages and share a unit, not its value."""
    if one.n == other.n:
        return False
    a, b = quantities(one.text), quantities(other.text)
    shared = {unit for unit, _ in a if unit} & {unit for unit, _ in b if unit}
    return any({v for u, v in a if u == unit}.isdisjoint(v for u, v in b if u == unit) for unit in shared)


def trusted(question: str, passages: Sequence[Excerpt]) -> dict[int, tuple[int, ...]]:
    """What orders rival passages, by number: authority, then date; date first when it asks of now or then."""
    past = _PAST.search(question)
    now = bool(_NOW.search(question))

    def rank(passage: Excerpt) -> tuple[int, ...]:
        day = (passage.as_of or date.min).toordinal()
        authority = AUTHORITY.get(passage.authority, AUTHORITY["reviewed"])
        if past and passage.as_of:
            return (-abs(passage.as_of.year - int(past[1])), authority, day)
        return (day, authority) if now else (authority, day)

    return {passage.n: rank(passage) for passage in passages}
