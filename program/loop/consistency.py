"""Passages that may contradict each other, and which of two is to be followed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations

from program.passage import Passage

ALIKE = 0.4
"""Share of common words from which two statements are taken to be about the same thing."""

MOST = 3
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two passages that disagree: the one to follow, and the one that gives way."""

    followed: Passage
    overruled: Passage

    @property
    def between(self) -> str:
        """The two, by id."""
        return f"{self.followed.id} and {self.overruled.id}"

    @property
    def reason(self) -> str:
        """Why the one is followed, in a word of the asker's."""
        if self.followed.authority > self.overruled.authority:
            return "more official"
        return "newer" if _dated(self.followed) > _dated(self.overruled) else "better supported"


def suspects(passages: Sequence[Passage]) -> list[Conflict]:
    """Pairs worth a judge's look, most alike first: statements that share their words and differ in their numbers.

    A heuristic that costs no model call. It sees contradictions in numbers only, and proposes at most three.
    """
    read = [(passage, _statements(passage.text)) for passage in passages]
    found = []
    for (a, said), (b, also) in combinations(read, 2):
        alike = max((_alike(one, other) for one in said for other in also), default=0.0)
        if alike >= ALIKE:
            found.append((alike, conflict_of(a, b)))
    found.sort(key=lambda pair: -pair[0])
    return [conflict for _, conflict in found[:MOST]]


def conflict_of(a: Passage, b: Passage) -> Conflict:
    """The pair with the one to follow first: what is not superseded, then the more official, then the newer."""
    first, second = sorted((a, b), key=lambda p: (not p.superseded_by, p.authority, _dated(p), p.score), reverse=True)
    return Conflict(first, second)


def _dated(passage: Passage) -> date:
    return passage.as_of or date.min


Statement = tuple[frozenset[str], frozenset[str]]


def _statements(text: str) -> list[Statement]:
    """The words and the numbers of each sentence that holds a number."""
    return [
        (frozenset(w.lower() for w in _WORD.findall(sentence)), frozenset(numbers))
        for sentence in _SENTENCE.split(text)
        if (numbers := _NUMBER.findall(sentence))
    ]


def _alike(one: Statement, other: Statement) -> float:
    """The share of words in common when each has a number that the other lacks, else 0."""
    if one[1] <= other[1] or other[1] <= one[1]:
        return 0.0
    return len(one[0] & other[0]) / max(len(one[0] | other[0]), 1)
