"""The one protocol that every place evidence comes from obeys, and the types that flow out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Protocol, runtime_checkable

AUTHORITY = {"informal": 1, "reviewed": 2, "official": 3}
"""How much a document's word counts; a document that does not say is `reviewed`."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of evidence, citable by `id`.

    `id` is `<base>/<file>#<heading slug>` for documents. `score` orders the passages of one result;
    `scores` keeps the parts it was made of (`dense`: cosine in [-1, 1], `keyword`: BM25 >= 0), so that a
    fusion weight can be changed later without searching again. `superseded_by` names the document that
    replaced this one, or is empty.
    """

    id: str
    source: str
    title: str
    text: str
    score: float = 0.0
    method: str = "dense"
    as_of: date | None = None
    authority: int = AUTHORITY["reviewed"]
    superseded_by: str = ""
    link: str = ""
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)

    def rescored(self, score: float, method: str | None = None, scores: Mapping[str, float] | None = None) -> Passage:
        """The same passage under another score (and method, and parts, when given)."""
        # Spelt out: `dataclasses.replace` takes twice as long, and a search makes hundreds.
        return Passage(
            self.id,
            self.source,
            self.title,
            self.text,
            score,
            method or self.method,
            self.as_of,
            self.authority,
            self.superseded_by,
            self.link,
            self.scores if scores is None else scores,
        )


@dataclass(frozen=True, slots=True)
class SourceCard:
    """What a router is told of a source: its name, what it holds, typical questions, boundary cases."""

    name: str
    kind: str
    about: str
    asks: tuple[str, ...] = ()
    not_: tuple[str, ...] = ()

    def describe(self) -> str:
        """One paragraph, for a model's prompt and for the embedding of an option."""
        parts = [self.about.rstrip(".") + "." if self.about else f"The {self.name} knowledge base."]
        if self.asks:
            parts.append("Typical questions: " + " ".join(self.asks))
        if self.not_:
            parts.append("Not here: " + "; ".join(self.not_) + ".")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which passages may be returned: dates are inclusive, `min_authority` is on the scale of AUTHORITY."""

    not_before: date | None = None
    not_after: date | None = None
    min_authority: int = 0

    def admits(self, passage: Passage) -> bool:
        """True when the passage passes every filter; an undated passage fails a date filter."""
        if passage.authority < self.min_authority:
            return False
        if self.not_before is None and self.not_after is None:
            return True
        if passage.as_of is None:
            return False
        return (self.not_before is None or passage.as_of >= self.not_before) and (
            self.not_after is None or passage.as_of <= self.not_after
        )


NO_FILTERS = Filters()


@runtime_checkable
class Source(Protocol):
    """A place evidence comes from.

    `candidates` returns the widest pool worth fusing (each passage with its part scores); `search`
    returns the best `k` of it, best first. Both are deterministic for the same content, raise
    `KnowledgeError` when the source cannot be read, and return an empty list when nothing matches.
    """

    @property
    def name(self) -> str: ...

    def describe(self) -> SourceCard: ...

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]: ...

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]: ...

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]: ...


def unique(passages: Sequence[Passage]) -> list[Passage]:
    """The passages without repeats of an id, the first of each kept, order kept."""
    return list({p.id: p for p in reversed(passages)}.values())[::-1]


def embedding_text(passage: Passage) -> str:
    """What is embedded of a passage, wherever it is: an index and a decider then share one vector."""
    return f"{passage.title}\n{passage.text}"
