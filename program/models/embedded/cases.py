"""What a decision is about: the text that is judged, what it is judged against, and how rare their words are."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from program.models.text import split_pieces

WORDS_KEPT = 20_000  # of the texts read last
IMAGINED = 20.0  # texts, beside those counted
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class EvidenceText(NamedTuple):
    """One titled text of the evidence, and the knowledge base it came from, if any."""

    title: str
    text: str
    base: str = ""

    @property
    def embedded(self) -> str:
        """The text as it is embedded: behind its title."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True)
class Case:
    """One set of inputs: the text that is judged, what it is judged against, and all texts."""

    asked: str
    evidence: tuple[EvidenceText, ...] = ()
    texts: tuple[str, ...] = ()

    @cached_property
    def quoted(self) -> tuple[int, int] | None:
        """The places of the evidence text and of its piece that is the second text, when it can be quoted from it."""
        for n, one in enumerate(self.evidence if len(self.texts) > 1 else ()):
            for at, piece in enumerate(split_pieces(one.text)):
                if piece.text == self.texts[1]:
                    return n, at
        return None

    @cached_property
    def read(self) -> tuple[EvidenceText, ...]:
        """The evidence, and last the quoted piece under its text's title, if there is one."""
        if self.quoted is None:
            return self.evidence
        return (*self.evidence, EvidenceText(self.evidence[self.quoted[0]].title, self.texts[1]))


def read_case(inputs: Mapping[str, Any], input_fields: str = "") -> Case:
    """Return inputs by name as a case.

    The first text field, in the order in which `input_fields` describes them, is the one judged; excerpts
    (objects with a `text`, alone or in lists) are the evidence, or the other texts when there is none.
    """

    def place(name: str) -> tuple[int, str]:
        at = input_fields.find(f"`{name}`")
        return at if at >= 0 else len(input_fields), name

    values = [inputs[name] for name in sorted(inputs, key=place)]
    texts = tuple(value for value in values if isinstance(value, str))
    evidence = [found for value in values if not isinstance(value, str) for found in _list_excerpts(value)]
    others = [EvidenceText("", text) for text in texts[1:] if text.strip()]
    return Case(texts[0] if texts else "", tuple(evidence or others), texts)


def _list_excerpts(value: Any) -> list[EvidenceText]:
    if isinstance(value, Mapping):
        if not isinstance(value.get("text"), str):
            return []
        return [EvidenceText(str(value.get("title") or ""), value["text"], str(value.get("base") or ""))]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [found for item in value for found in _list_excerpts(item)]
    return [EvidenceText("", value)] if isinstance(value, str) else []


def list_words(text: str) -> list[str]:
    """Return the words of a text without their case."""
    return [word.casefold() for word in _TOKEN.findall(text)]


@lru_cache(maxsize=WORDS_KEPT)
def word_set(text: str) -> frozenset[str]:
    """Return the different words of a text."""
    return frozenset(list_words(text))


class WordRarity:
    """How rare a word is, from 0 (in every text) to 1 (in none), by its share of the texts counted.

    The weight is the inverse document frequency log((N + 1 + P) / (n + P p + 0.5)) over its largest value, with P
    imagined texts of which a word of that length is in the share p.
    """

    def __init__(self, texts: Iterable[Collection[str]]) -> None:
        bags = [set(words) for words in texts]
        self._counts, self._total = Counter(word for bag in bags for word in bag), len(bags) + 1 + IMAGINED
        self._known: dict[str, float] = {}

    def __call__(self, word: str) -> float:
        if word not in self._known:
            share = 0.2 if len(word) <= 3 and not word.isdigit() else 0.1 if len(word) <= 4 else 0.02
            rare = math.log(self._total / (self._counts[word] + share * IMAGINED + 0.5)) / math.log(self._total / 0.5)
            self._known[word] = min(max(rare, 0.0), 1.0)
        return self._known[word]

    def share_of(self, some: frozenset[str], words: frozenset[str]) -> float:
        """Return how much of some words is among others, each by its rarity; 0 of none.

        The sums are exact, so that no order of words changes them.
        """
        whole = math.fsum(map(self, some))
        return math.fsum(map(self, some & words)) / whole if whole else 0.0
