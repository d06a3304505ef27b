"""All of a project's sources under one roof: opened, described, searched together, looked up by id."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ragc.errors import KnowledgeError
from ragc.knowledge.documents import DEPTH, Documents, HybridSearch
from ragc.knowledge.index.build import open_index
from ragc.knowledge.index.fusion import GRAPH, WEIGHT, fuse
from ragc.knowledge.index.store import Index
from ragc.knowledge.project import Project
from ragc.knowledge.web import JsonApi, WebSearch, has_provider
from ragc.models.embedded.encoder import Embedder
from ragc.models.language.spending import current_spending
from ragc.passage import (
    NO_FILTERS,
    Filters,
    Passage,
    Readers,
    ReaderSets,
    Source,
    SourceCard,
    decode_passage,
    drop_repeats,
    may_read,
    to_groups,
)
from ragc.settings import (
    SOURCES,
    FileSettings,
    HttpSettings,
    KnowledgeSettings,
    PackageSettings,
    Settings,
    TablesSettings,
    WebSettings,
    default_settings,
)
from ragc.storage import keep_last
from ragc.text.words import split_words
from ragc.threads import begin_in_thread

if TYPE_CHECKING:
    from ragc.knowledge.tables import Database

ReportFailure = Callable[[str, KnowledgeError], None]  # called with the name of a source that was left out, and why
MAX_PARTS = 16  # parts of a library in memory, each of what some groups may read
MAX_POOLS = 1024  # candidate lists in memory; one of 120 passages is about 50 kB
_log = logging.getLogger(__name__)
_NOTHING = f"sha256:{hashlib.sha256().hexdigest()}"


class Library:
    """A project's sources by name, over the index it was opened with. Safe from many threads and tasks."""

    def __init__(
        self,
        cards: Sequence[SourceCard],
        index: Index | None,
        embedder: Embedder,
        extra: Sequence[Source] = (),
        tables: Mapping[str, TablesSettings] | None = None,
        readers: Mapping[str, ReaderSets] | None = None,
    ) -> None:
        self.index, self.embedder, self._tables = index, embedder, tables or {}
        self._readers = readers or {}  # of sources that are not indexed, where not all may search them
        self._needed = frozenset(self._readers.values()) | (index.readers if index else frozenset())
        self._databases = open_databases(self._tables, self._needed | {()})
        self._parts: OrderedDict[frozenset[ReaderSets], Library] = OrderedDict()
        self._cutting = Lock()
        search = HybridSearch(index, embedder) if index else None
        self._documents = {card.name: Documents(card, search) for card in cards} if search else {}
        self.sources: dict[str, Source] = {}
        for source in (*self._documents.values(), *extra):
            if source.name in self.sources:
                twice = f"Two sources have the name {source.name!r}."
                raise KnowledgeError(twice, "Rename one of them in ragc.toml.")
            self.sources[source.name] = source
        self._find_pool = lru_cache(MAX_POOLS)(lambda name, *asked: tuple(self._documents[name].candidates(*asked)))

    @classmethod
    def open(
        cls,
        bases: Mapping[str, FileSettings],
        folder: str | Path,
        embedder: Embedder,
        extra: Sequence[Source] = (),
        settings: Settings | None = None,
    ) -> Library:
        """Return the library of bases indexed in `folder`, under a project's settings.

        `extra` are sources made elsewhere. Without bases no index is needed. Raises `KnowledgeError` when a base is not
        in the index, or the index is absent, damaged, or made with another embedder.
        """
        settings = settings or default_settings()
        index = open_index(folder, embedder, settings) if bases else None
        cards = [SourceCard(name, **base.hints) for name, base in bases.items()]
        readers = {name: base.reader_sets for name, base in settings.knowledge.items() if base.readers}
        tables = {name: base for name, base in bases.items() if isinstance(base, TablesSettings)}
        return cls(cards, index, embedder, extra, tables, readers)

    def readable_by(self, readers: Readers = ()) -> Library:
        """Return the library that these groups may read; itself where that is all.

        What is kept from them takes no part in it: it holds no card, passage, word or link of it. The first to ask of
        what a project holds for such readers waits until it is made.
        """
        if not self._needed:
            return self
        groups = to_groups(readers)
        admitted = frozenset(one for one in self._needed if may_read(one, groups)) | {()}
        if admitted >= self._needed:
            return self
        if (part := self._parts.get(admitted)) is None:
            with self._cutting:
                part = self._parts.get(admitted) or self._take_part(admitted)
        keep_last(self._parts, {admitted: part}, MAX_PARTS)
        return part

    def _take_part(self, admitted: frozenset[ReaderSets]) -> Library:
        index = self.index.take_readable(admitted) if self.index else None
        held = {passage.source for passage in index.passages} if index else set()
        cards = [source.describe() for name, source in self.sources.items() if name in held]
        extra = [one for name, one in self.sources.items() if name not in self._documents]
        extra = [one for one in extra if self._readers.get(one.name, ()) in admitted]
        readers = {one.name: self._readers[one.name] for one in extra if one.name in self._readers}
        tables = {name: base for name, base in self._tables.items() if name in held}
        return Library(cards, index, self.embedder, extra, tables, readers)

    @property
    def corpus_digest(self) -> str:
        """A digest of the passages of all document bases."""
        return self.index.corpus_digest if self.index else _NOTHING

    @property
    def index_digest(self) -> str:
        """A digest of the passages together with how they were indexed."""
        return self.index.index_digest if self.index else _NOTHING

    def content_digest(self, name: str) -> str:
        """Return a digest of a source's content; empty when it may change unseen."""
        if name in self._databases:
            rows = self._databases[name].digest
            return f"{self.index_digest} {rows}" if rows else ""
        return self.index_digest if name in self._documents else str(getattr(self.sources.get(name), "digest", ""))

    def searches_here(self, sources: Sequence[str]) -> bool:
        """Tell whether these sources are arrays in this process, which nothing waits for."""
        arrays = self.index is not None and self.index.server is None
        return arrays and self._documents.keys() - self._databases.keys() >= {*sources}

    def describe(self) -> list[SourceCard]:
        """Return the card of every source, in the project's order."""
        return [source.describe() for source in self.sources.values()]

    def describe_tables(self, name: str) -> str:
        """Return for SQL writers a source's tables."""
        try:
            return self._databases[name].schema.describe() if name in self._databases else ""
        except KnowledgeError as error:
            _log.warning("No SQL is written for %s: %s", name, error)
            return ""

    def passages(self) -> list[Passage]:
        """Return every passage of the document bases, in order of base and file."""
        return list(self.index.passages) if self.index else []

    def find_passage(self, id_: str) -> Passage | None:
        """Return the passage of the document bases that has an id."""
        row = self.index.rows.get(id_) if self.index else None
        return None if self.index is None or row is None else self.index.passages[row]

    def find_known_words(self, text: str) -> dict[str, bool]:
        """Return the content words of a text, and whether each stands in the documents."""
        keywords = self.index.keywords if self.index else None
        words = split_words(text, stem=keywords.stem if keywords else True)
        return {word: keywords is not None and word in keywords.terms for word in words}

    def candidates(
        self,
        query: str,
        sources: Sequence[str] | None = None,
        depth: int = DEPTH,
        filters: Filters = NO_FILTERS,
        graph: bool = True,
        *,
        failed: ReportFailure | None = None,
    ) -> list[Passage]:
        """Return the pooled candidates of the named sources (None: of all), no id twice.

        The query is embedded once, and the graph walked once (or not at all), however many sources are searched. A
        source that fails, or that is late where a question has a deadline, is left out, and `failed` is called with it.
        When every one fails, the first one's `KnowledgeError` is raised.
        """
        names = list(sources if sources is not None else self.sources)
        for name in (name for name in names if name not in self.sources):
            raise KnowledgeError(f"There is no source {name!r}.", f"Use one of: {', '.join(self.sources)}.")

        def search(name: str) -> Sequence[Passage]:
            if filters.sql:
                return self._databases[name].select_passages(filters.sql) if name in self._databases else []
            if name in self._documents:  # their content cannot change
                return self._find_pool(name, query, depth, filters, graph)
            return self.sources[name].candidates(query, depth, filters)

        found: list[Passage] = []
        errors: dict[str, KnowledgeError] = {}
        spent = current_spending()
        timed = spent.deadline < float("inf") and len(names) > 1
        away = [name for name in names if timed and not self.searches_here([name])]
        begun = {name: begin_in_thread(partial(search, name)) for name in away}
        for name in names:
            try:
                found.extend(begun[name].result(spent.seconds_left) if name in begun else search(name))
            except TimeoutError:
                mend = "Look whether it works, or raise max_seconds under [budget] in ragc.toml."
                errors[name] = KnowledgeError(f"{name} did not answer in time.", mend)
            except KnowledgeError as error:
                errors[name] = error
        if failed is not None:
            for name, problem in errors.items():
                failed(name, problem)
        if errors and errors.keys() >= {*names}:
            raise errors[names[0]]
        return drop_repeats(found)

    def search(
        self,
        query: str,
        sources: Sequence[str] | None = None,
        k: int = 8,
        weight: float = WEIGHT,
        *,
        graph: float = GRAPH,
        depth: int = DEPTH,
        filters: Filters = NO_FILTERS,
        failed: ReportFailure | None = None,
    ) -> list[Passage]:
        """Return the best `k` passages of the named sources under one fusion, best first."""
        pooled = self.candidates(query, sources, max(k, depth), filters, graph > 0, failed=failed)
        return fuse(pooled, weight, k, graph)

    def pack_pool(self, pool: Sequence[Passage]) -> list[Any]:
        """Return of an indexed passage its id, scores and way, of another all."""
        rows = self.index.rows if self.index else {}
        packed: list[Any] = []
        for one in pool:
            scores = {name: float(score) for name, score in one.scores.items()}
            row = [one.id, float(one.score), one.method, scores, one.reason]
            packed.append(row if one.id in rows else one.rescored(float(one.score), one.method, scores))
        return packed

    def unpack_pool(self, packed: Sequence[Any]) -> list[Passage]:
        """Return the pool that was packed and written as JSON."""
        rows, known = (self.index.rows, self.index.passages) if self.index else ({}, ())
        return [
            known[rows[one[0]]].rescored(*one[1:]) if isinstance(one, list) else decode_passage(one) for one in packed
        ]


def open_databases(
    tables: Mapping[str, TablesSettings], admitted: frozenset[ReaderSets] | None = None
) -> dict[str, Database]:
    """Return the databases of bases: of the rows that `admitted` may read, or all."""
    if not tables:
        return {}
    from ragc.knowledge.tables import Database  # it takes long to import, and many projects have none

    return {name: Database(name, base, admitted) for name, base in tables.items()}


def open_sources(project: Project, embedder: Embedder) -> list[Source]:
    """Return the sources that are not indexed. Raises `KnowledgeError`."""
    found = (_open_source(project, name, base, embedder) for name, base in project.settings.knowledge.items())
    return [source for source in found if source is not None]


def _open_source(project: Project, name: str, base: KnowledgeSettings, embedder: Embedder) -> Source | None:
    card = SourceCard(name, **base.hints)
    if isinstance(base, HttpSettings):
        return JsonApi(card, base, embedder)
    if isinstance(base, WebSettings):
        return WebSearch(card, base, embedder) if has_provider(base) else None
    return _open_package(card, base, embedder) if isinstance(base, PackageSettings) else None


def _open_package(card: SourceCard, base: PackageSettings, embedder: Embedder) -> Source:
    """Return the source that a package's entry point makes."""
    (point, *_) = entry_points(group=SOURCES, name=base.kind)
    package = point.dist.name if point.dist else point.value
    try:
        source = point.load()(card, base.options, embedder)
    except Exception as error:
        raise KnowledgeError(
            f"The source {card.name!r} of the package {package} cannot be opened: {type(error).__name__}: {error}.",
            f"Correct `options` under [knowledge.{card.name}] in ragc.toml, or ask whoever makes {package}.",
        ) from error
    if not isinstance(source, Source) or source.name != card.name:
        raise KnowledgeError(
            f"What the package {package} made for {card.name!r} is not a source of that name.",
            "Its maker can run it through ragc.knowledge.testing.SourceConformance.",
        )
    return source
