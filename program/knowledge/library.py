"""All of a project's sources under one roof: described, searched together, looked up by id."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path

from program.errors import KnowledgeError
from program.knowledge.bases import KINDS, BaseSpec, check_bases
from program.knowledge.documents import DEPTH, Documents, pool
from program.knowledge.index.fusion import GRAPH, RRF_K, WEIGHT, Method, fuse
from program.knowledge.index.generation import Index
from program.knowledge.index.poolfile import PoolFile
from program.knowledge.index.rerank import Reranker
from program.knowledge.index.store import SERVER_ABOVE, IndexReport, build_index, open_index
from program.knowledge.index.vectors import ArrayVectors
from program.models.embedded.encoder import Embedder
from program.passage import NO_FILTERS, Filters, Passage, Source, SourceCard, unique

__all__ = ["BaseSpec", "IndexReport", "Library", "build_index"]

Failed = Callable[[str, KnowledgeError], None]
"""Told the name of a source that was left out, and why."""

KEPT = 1024  # candidate lists kept; one of 120 passages is about 50 kB


class Library:
    """Every source of a project by name. Safe from many threads and asyncio tasks.

    It holds the index it was opened with; after `ragc index`, open another to see what changed.
    """

    def __init__(
        self,
        cards: Sequence[SourceCard],
        index: Index | None,
        embedder: Embedder,
        extra: Sequence[Source] = (),
        reranker: Reranker | None = None,
    ) -> None:
        self.reranker = reranker
        self.index = index
        self.embedder = embedder
        documents = [Documents(card, index, embedder) for card in cards] if index else []
        self._indexed = {d.name for d in documents}
        self.sources: dict[str, Source] = {}
        for source in (*documents, *extra):
            if source.name in self.sources:
                twice = f"Two sources have the name {source.name!r}."
                raise KnowledgeError(twice, "Rename one of them in ragc.toml.")
            self.sources[source.name] = source
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], tuple[Passage, ...]] = OrderedDict()
        self._file: PoolFile | None = None

    def remember_in(self, folder: Path) -> None:
        """Keeps what searches find in a file there, too, so that another process need not search again."""
        self._file = PoolFile(folder / "searched.sqlite")

    @classmethod
    def open(
        cls,
        bases: Sequence[BaseSpec],
        folder: str | Path,
        embedder: Embedder,
        extra: Sequence[Source] = (),
        *,
        qdrant_url: str = "",
        server_above: int = SERVER_ABOVE,
        reranker: Reranker | None = None,
    ) -> Library:
        """The library of a project indexed in `folder`; `extra` are sources made elsewhere.

        A `reranker` reads the best of each document base together with the question.

        Raises KnowledgeError when a base is of an unknown kind or not in the index, or the index is absent,
        damaged, or made with another embedder. Without bases no index is needed.
        """
        check_bases(bases)
        index = open_index(folder, embedder, qdrant_url=qdrant_url, server_above=server_above) if bases else None
        return cls([b.card() for b in bases], index, embedder, extra, reranker)

    @property
    def corpus_digest(self) -> str:
        """Identifies the passages of all document bases."""
        return self.index.corpus_digest if self.index else _NOTHING

    @property
    def index_digest(self) -> str:
        """Identifies the passages together with how they were indexed."""
        return self.index.index_digest if self.index else _NOTHING

    def content_digest(self, name: str) -> str:
        """Identifies what a search of that source can bring; empty when it may change unseen."""
        return self.index_digest if name in self._indexed else str(getattr(self.sources.get(name), "digest", ""))

    def searches_here(self, sources: Sequence[str]) -> bool:
        """True when these sources are arrays in this process, so that no search of them waits for anything."""
        arrays = self.index is not None and isinstance(self.index.vectors, ArrayVectors)
        return arrays and self._indexed.issuperset(sources)

    def describe(self) -> list[SourceCard]:
        """The card of every source, in the project's order."""
        return [source.describe() for source in self.sources.values()]

    def passages(self) -> list[Passage]:
        """Every passage of the document bases, unscored, in order of base and file."""
        return list(self.index.passages) if self.index else []

    def passage(self, id: str) -> Passage:
        """The passage of that id. Raises KnowledgeError when there is none."""
        row = self.index.rows.get(id) if self.index else None
        if self.index is None or row is None:
            near = get_close_matches(id, self.index.rows, 1) if self.index else []
            hint = f"Did you mean {near[0]!r}?" if near else "List the ids with: ragc search PROJECT QUESTION"
            raise KnowledgeError(f"No passage has the id {id!r}.", hint)
        return self.index.passages[row]

    def candidates(
        self,
        query: str,
        sources: Sequence[str] | None = None,
        depth: int = DEPTH,
        filters: Filters = NO_FILTERS,
        graph: bool = True,
        *,
        failed: Failed | None = None,
    ) -> list[Passage]:
        """The pooled candidates of the named sources (None: of all), each with its part scores, no id twice.

        The query is embedded once, and the graph walked once (or not at all), however many sources are searched. A
        source that fails is left out, and `failed` told of it; when every one fails, the first one's KnowledgeError
        is raised.
        """
        names = list(sources if sources is not None else self.sources)
        for name in names:
            if name not in self.sources:
                raise KnowledgeError(f"There is no source {name!r}.", f"Use one of: {', '.join(self.sources)}.")
        found: list[Passage] = []
        errors: list[tuple[str, KnowledgeError]] = []
        for name in names:
            try:
                found.extend(self._candidates(query, name, depth, filters, graph))
            except KnowledgeError as error:
                errors.append((name, error))
        if errors and len(errors) == len(names):
            raise errors[0][1]
        for name, problem in errors:
            if failed is not None:
                failed(name, problem)
        return unique(found)

    async def acandidates(
        self,
        query: str,
        sources: Sequence[str] | None = None,
        depth: int = DEPTH,
        filters: Filters = NO_FILTERS,
        *,
        failed: Failed | None = None,
    ) -> list[Passage]:
        """`candidates` without holding up the event loop."""
        return await asyncio.to_thread(self.candidates, query, sources, depth, filters, failed=failed)

    def search(
        self,
        query: str,
        sources: Sequence[str] | None = None,
        k: int = 8,
        weight: float = WEIGHT,
        *,
        method: Method = "convex",
        rrf_k: int = RRF_K,
        graph: float = GRAPH,
        depth: int = DEPTH,
        filters: Filters = NO_FILTERS,
        failed: Failed | None = None,
    ) -> list[Passage]:
        """The best `k` passages of the named sources under one fusion, best first."""
        pooled = self.candidates(query, sources, max(k, depth), filters, graph > 0, failed=failed)
        return fuse(pooled, weight, k, method, rrf_k, graph)

    async def asearch(
        self,
        query: str,
        sources: Sequence[str] | None = None,
        k: int = 8,
        weight: float = WEIGHT,
        *,
        method: Method = "convex",
        rrf_k: int = RRF_K,
        graph: float = GRAPH,
        depth: int = DEPTH,
        filters: Filters = NO_FILTERS,
    ) -> list[Passage]:
        """`search` without holding up the event loop."""
        return await asyncio.to_thread(
            self.search,
            query,
            sources,
            k,
            weight,
            method=method,
            rrf_k=rrf_k,
            graph=graph,
            depth=depth,
            filters=filters,
        )

    def glimpse(self, query: str, k: int) -> list[Passage]:
        """The best `k` over all document sources by the default fusion: a first look before any routing."""
        found = pool(self.index, self.embedder, query, max(k, DEPTH), graph=False) if self.index and k > 0 else []
        for name, source in self.sources.items():
            if name not in self._indexed and source.describe().kind in KINDS:
                found.extend(self._candidates(query, name, max(k, DEPTH), NO_FILTERS, graph=False))
        return fuse(found, WEIGHT, k)

    def _candidates(self, query: str, name: str, depth: int, filters: Filters, graph: bool) -> Sequence[Passage]:
        source = self.sources[name]
        digest = self._fixed(name)
        if not digest:  # it may change under us
            return source.candidates(query, depth, filters)
        key = (query, name, depth, filters, graph, digest, self.embedder.digest, self._reranked_by(name))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = self._file.get(key, self.index) if self._file else None
        if found is None:
            found = self._found(source, query, depth, filters, graph)
            if self._file:
                self._file.put(key, found, self.index)
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    def _found(self, source: Source, query: str, depth: int, filters: Filters, graph: bool) -> tuple[Passage, ...]:
        if not isinstance(source, Documents):
            return tuple(source.candidates(query, depth, filters))
        found = tuple(source.candidates(query, depth, filters, graph=graph))
        return tuple(self.reranker.rerank(query, found)) if self.reranker is not None else found

    def _fixed(self, name: str) -> str:
        """Identifies all that a source holds for as long as this library is open; empty when that may change."""
        return self.index_digest if name in self._indexed else str(getattr(self.sources[name], "loaded", ""))

    def _reranked_by(self, name: str) -> str:
        return self.reranker.name if self.reranker is not None and name in self._indexed else ""


_NOTHING = f"sha256:{hashlib.sha256().hexdigest()}"
