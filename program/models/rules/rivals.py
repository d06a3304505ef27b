"""Pieces of passages that state rival things, and which of two passages is to be believed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from itertools import combinations

from program.models.embedded.encoder import Embedder
from program.models.rules.units import Unit
from program.models.rules.words import quantities
from program.passage import AUTHORITY
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


class Rivals:
    """Which of some pieces contradict each other: other numbers, said of the same thing.

    A pair is looked at once, and only pieces that state other numbers are embedded.
    """

    def __init__(self, found: Sequence[Unit], embedder: Embedder) -> None:
        self._found = found
        self._embedder = embedder
        self._known: dict[tuple[int, int], bool] = {}

    def among(self, places: Sequence[int]) -> dict[int, list[int]]:
        """For each of the pieces at those places, those of them that contradict it."""
        pairs = list(combinations(sorted(places), 2))
        new = [pair for pair in pairs if pair not in self._known]
        self._known.update(dict.fromkeys(new, False))
        other = [(j, k) for j, k in new if contradict(self._found[j], self._found[k])]
        if other:
            stating = sorted({j for pair in other for j in pair})
            vectors = dict(zip(stating, self._embedder.encode([headed(self._found[j]) for j in stating]), strict=True))
            self._known.update({(j, k): float(vectors[j] @ vectors[k]) >= ALIKE for j, k in other})
        against: dict[int, list[int]] = {j: [] for j in places}
        for j, k in pairs:
            if self._known[j, k]:
                against[j].append(k)
                against[k].append(j)
        return against


def headed(unit: Unit) -> str:
    """The text of a unit as it is embedded: behind the last heading above it."""
    return f"{unit.context.rpartition(' > ')[2]}: {unit.text}"


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
