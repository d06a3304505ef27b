"""What a knowledge source is, and the passages that it returns."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Protocol, TypeVar, runtime_checkable

AUTHORITY = {"informal": 1, "reviewed": 2, "official": 3}
"""How much a document's word counts; a document that does not say is `reviewed`."""
TITLE_STEP = " > "
"""What parts a passage's title from the headings under it."""
_Scores = Mapping[str, float]
Call = TypeVar("Call", bound=Callable[..., Any])
Readers = Collection[str]
"""The groups of whoever asks; one text is one group."""
ReaderSets = tuple[tuple[str, ...], ...]
"""Who may read something: whoever is in a group of each set. Without a set all may, and nobody is in an empty one."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A part of a knowledge file that is not read, or is probably not meant."""

    what: str
    """What is wrong: one clause, without the file's name."""
    mend: str = ""
    """How to mend it: one sentence."""
    line: int = 0
    """The line in the file, from 1; 0 for the file as a whole."""
    lost: bool = True
    """Whether something that was written is not used; False for a doubt."""
    path: str = ""
    """`<base>/<file>`."""
    unread: bool = False
    """Whether the file as a whole was not read."""

    def __str__(self) -> str:
        where = f"{self.path} line {self.line}" if self.line else self.path
        return f"{where}: {self.what}. {self.mend}".strip()


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What was read of the files of knowledge bases."""

    files: int = 0
    """The files that there are."""
    flaws: tuple[Flaw, ...] = ()
    """What of them was not read, or is probably not meant."""

    def __add__(self, other: ReadReport) -> ReadReport:
        return ReadReport(self.files + other.files, self.flaws + other.flaws)

    def tell_unread(self) -> str:
        """Return `1 of 2 files was not read`, or an empty string when all were."""
        unread = sum(flaw.unread for flaw in self.flaws)
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{unread} of {files} {'was' if unread == 1 else 'were'} not read" if unread else ""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of evidence, cited by its id."""

    id: str
    """`<base>/<file>#<heading slug>` for documents, `<base>/<table>#<row>` for tables."""
    source: str
    """The name of its knowledge base."""
    title: str
    """Title and headings above the text, outermost first, parted by ` > `."""
    text: str
    """The text itself."""
    score: float = 0.0
    """What orders the passages of one result, higher is better."""
    method: str = "dense"
    """How it was found: dense, keyword, both, graph, sql (of rows), web or http."""
    as_of: date | None = None
    """The day on which the document was true."""
    authority: int = AUTHORITY["reviewed"]
    """A value of AUTHORITY."""
    superseded_by: str = ""
    """The path of the document that replaced this one, or empty."""
    link: str = ""
    """The place in the file, `<base>/<file>:<first line>-<last line>`, or a web address."""
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Parts of the score: `dense` in [-1, 1], `keyword` >= 0, `graph` in [0, 1]."""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Other short fields of the document's front matter or the record."""
    reason: str = ""
    """The way through the graph, or the SELECT, by which it was reached; or empty."""
    copies: tuple[str, ...] = ()
    """The ids of the other passages with this text, which this one stands for in a result."""
    readers: ReaderSets = ()
    """Who may read it."""
    name: str = ""
    """The cells that tell a row of a table from its others, where its first alone does not: `Monday, Otter`."""

    @property
    def subject(self) -> str:
        """Its title, and behind it the name of its row."""
        return f"{self.title}{TITLE_STEP}{self.name}" if self.name else self.title

    @property
    def whole(self) -> str:
        """Its title and its text."""
        return f"{self.title}\n\n{self.text}"

    def rescored(
        self, score: float, method: str | None = None, scores: _Scores | None = None, reason: str | None = None
    ) -> Passage:
        """Return the passage under another score; None keeps a field as it is."""
        # Spelt out: `dataclasses.replace` takes twice as long, and a search makes hundreds.
        scores, reason = self.scores if scores is None else scores, self.reason if reason is None else reason
        dated = self.as_of, self.authority, self.superseded_by, self.link
        said = self.id, self.source, self.title, self.text
        rest = self.attributes, reason, self.copies, self.readers
        return Passage(*said, score, method or self.method, *dated, scores, *rest, self.name)


@dataclass(frozen=True, slots=True)
class SourceCard:
    """The description of a source that a router reads."""

    name: str
    """The source's name, as in `ragc.toml`."""
    kind: str
    """documents, graph, tables, web, http, or a kind of an installed package."""
    about: str
    """What the source holds."""
    asks: tuple[str, ...] = ()
    """Typical questions."""
    not_: tuple[str, ...] = ()
    """Questions of other sources that are easily mistaken for its own."""

    def describe(self) -> str:
        """Return one paragraph for a model's prompt."""
        parts = [self.about.rstrip(".") + "." if self.about else f"The {self.name} knowledge base."]
        if self.asks:
            parts.append("Typical questions: " + " ".join(self.asks))
        if self.not_:
            parts.append("Not here: " + "; ".join(self.not_) + ".")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Filters:
    """The passages that a search may return."""

    attributes: tuple[tuple[str, str], ...] = ()
    """Pairs of a key and the value it must have, compared without case."""
    sql: str = ""
    """The SELECT whose rows are wanted; only a source of tables reads it."""

    def admits(self, passage: Passage) -> bool:
        """Tell whether every wanted attribute of the passage has the wanted value."""
        held = passage.attributes
        return all(key in held and held[key].casefold() == value.casefold() for key, value in self.attributes)


NO_FILTERS = Filters()


@runtime_checkable
class Source(Protocol):
    """A place that evidence comes from.

    The same content gives the same result. A source that cannot be read raises `KnowledgeError`; where nothing
    matches the list is empty. Whoever derives from this class writes `describe` and `candidates` and inherits the
    rest. `ragc.knowledge.testing` tests all of it.
    """

    @property
    def name(self) -> str:
        """The name that its card has."""
        return self.describe().name

    def describe(self) -> SourceCard:
        """Return its card."""
        ...

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """Return the widest pool worth fusing, each passage with the parts of its score."""
        ...

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """Return the best `k` of the candidates, best first."""
        return self.candidates(query, k, filters)[: max(k, 0)]


def may_read(needed: ReaderSets, groups: frozenset[str]) -> bool:
    """Tell whether somebody of these groups may read what needs such readers."""
    return not any(groups.isdisjoint(one) for one in needed)


def to_groups(readers: Readers) -> frozenset[str]:
    """Return the groups of whoever asks as a set."""
    return frozenset([readers] if isinstance(readers, str) else readers)


def join_readers(one: ReaderSets, other: ReaderSets) -> ReaderSets:
    """Return who may read what needs both readers."""
    return tuple(dict.fromkeys((*one, *other)))


SEPARATORS = (",", ";", "|")
"""What parts the groups in a text that names readers."""


def split_groups(text: str, *separators: str) -> list[str]:
    """Return the groups named in a text, trimmed.

    A name that holds one of the separators, or of those of any list of readers, stands in double quotes.
    """
    part, separator = ("|".join(map(re.escape, {*signs})) for signs in (separators, (*separators, *SEPARATORS)))
    named = re.findall(rf'\s*("([^"]*)")\s*(?:{part}|$)|((?:(?!{part}).)+)', text, re.DOTALL)
    names = (inner if re.search(separator, inner) else quoted or plain for quoted, inner, plain in named)
    return [name.strip() for name in names if name.strip()]


def hide_readers(call: Call) -> Call:
    """Hide from tools made of a call who asks and when, which no model may say."""
    whole = inspect.signature(call)
    shown = [parameter for name, parameter in whole.parameters.items() if name not in ("readers", "today")]
    vars(call)["__signature__"] = whole.replace(parameters=shown)
    return call


def document_of(passage: Passage) -> str:
    """Return the path of a passage's document, `<base>/<file>`."""
    return passage.id.partition("#")[0]


def drop_repeats(passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages in order, the first of each id."""
    return list({p.id: p for p in reversed(passages)}.values())[::-1]


def decode_passage(values: Mapping[str, Any]) -> Passage:
    """Return the passage that was written as JSON, its date as in 2026-03-01."""
    as_of = values.get("as_of")
    sets = {"copies": tuple(values.get("copies", ())), "readers": decode_readers(values.get("readers", ()))}
    return Passage(**{**values, **sets, "as_of": date.fromisoformat(as_of) if as_of else None})


def decode_readers(values: Sequence[Sequence[str]]) -> ReaderSets:
    """Return sets of groups that were written as JSON."""
    return tuple(map(tuple, values))


def embedding_text(passage: Passage) -> str:
    """Return the text of which a passage's vector is computed, everywhere alike."""
    return f"{passage.title}\n{passage.text}"


def keyword_text(passage: Passage) -> str:
    """Return the text that keyword search reads: title, text, attribute values."""
    further = [value for value in passage.attributes.values() if value not in passage.text]
    return "\n".join((embedding_text(passage), *further))
