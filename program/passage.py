"""The one protocol that every place evidence comes from obeys, and the types that flow out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Protocol, runtime_checkable

AUTHORITY = {"informal": 1, "reviewed": 2, "official": 3}
"""How much a document's word counts; a document that does not say is `reviewed`."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something in a file of a knowledge base that is not read, or probably not meant: what, and how to mend it."""

    what: str
    """One clause, without the file's name."""
    mend: str = ""
    """One sentence."""
    line: int = 0
    """Where in the file, from 1; 0 for the file as a whole."""
    lost: bool = True
    """Whether something that was written is not used; False for a doubt."""
    path: str = ""
    """`<base>/<file>`."""

    def __str__(self) -> str:
        where = f"{self.path} line {self.line}" if self.line else self.path
        return f"{where}: {self.what}. {self.mend}".strip()


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of evidence, citable by `id`.

    `id` is `<base>/<file>#<heading slug>` for documents. `score` orders the passages of one result;
    `scores` keeps the parts it was made of (`dense`: cosine in [-1, 1], `keyword`: BM25 >= 0, `graph` and
    `rerank` in [0, 1]), so that a fusion weight can be changed later without searching again.
    `superseded_by` names the document that replaced this one, or is empty. `attributes` are what the
    document says of itself besides (other front matter, other fields of a record); `reason` is the way
    through the graph by which it was reached, or empty.
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
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    reason: str = ""

    def rescored(
        self,
        score: float,
        method: str | None = None,
        scores: Mapping[str, float] | None = None,
        reason: str | None = None,
    ) -> Passage:
        """The same passage under another score (and method, parts and reason, when given)."""
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
            self.attributes,
            self.reason if reason is None else reason,
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
    """Which passages may be returned: dates are inclusive, `min_authority` is on the scale of AUTHORITY.

    `attributes` are pairs of a key and the value it must have, compared without case.
    """

    not_before: date | None = None
    not_after: date | None = None
    min_authority: int = 0
    attributes: tuple[tuple[str, str], ...] = ()

    def admits(self, passage: Passage) -> bool:
        """True when the passage passes every filter; an undated passage fails a date filter."""
        if passage.authority < self.min_authority or not self.has_attributes(passage.attributes):
            return False
        if self.not_before is None and self.not_after is None:
            return True
        if passage.as_of is None:
            return False
        return (self.not_before is None or passage.as_of >= self.not_before) and (
            self.not_after is None or passage.as_of <= self.not_after
        )

    def has_attributes(self, attributes: Mapping[str, str]) -> bool:
        """True when every wanted attribute is there with the wanted value."""
        return all(
            key in attributes and attributes[key].casefold() == value.casefold() for key, value in self.attributes
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


def keyword_text(passage: Passage) -> str:
    """What keyword search reads of a passage: the same, and its attributes' values."""
    further = [value for value in passage.attributes.values() if value not in passage.text]
    return "\n".join((embedding_text(passage), *further))
