"""A project's folders of documents: indexed, and opened as a library. No language model is opened for either."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from program.errors import SettingsError
from program.kindsettings import GraphSettings
from program.knowledge.bases import BaseSpec
from program.knowledge.embedder import Embedder, shared_embedder
from program.knowledge.index import IndexReport, build_index
from program.knowledge.kinds import folders
from program.knowledge.library import Library
from program.knowledge.rerank import Reranker
from program.knowledge.source import Source
from program.settings import Project, Settings

if TYPE_CHECKING:
    from program.knowledge.fanout import Fan
    from program.knowledge.relations import Extractor

INDEX = "index"
ENGINES = ("local", "ray")

Advance = Callable[[int, int], None]


def index_project(
    project: Project, progress: Advance | None = None, *, engine: str = "local", workers: int = 0
) -> IndexReport:
    """Indexes what changed in the project's document bases, and tells what was done.

    The engine `ray` embeds on so many workers (0: one a processor) of a Ray cluster, `local` in this process.
    Raises `KnowledgeError` when a base is absent, empty or unreadable.
    """
    embedder = shared_embedder(project.settings.models.embed)
    embedder.remember_in(project.private)
    place, bases = project.private / INDEX, folders(project)
    if engine not in ENGINES:
        raise SettingsError(f"There is no engine {engine!r}.", f"Use one of: {', '.join(ENGINES)}.")
    if engine == "local":
        return index_bases(project, bases, place, progress)
    from program.knowledge.fanout import over_ray

    with over_ray(partial(Embedder, embedder.name), workers) as fan:
        return index_bases(project, bases, place, progress, fan)


def index_bases(
    project: Project,
    bases: Sequence[BaseSpec],
    folder: Path,
    progress: Advance | None = None,
    fan: Fan | None = None,
) -> IndexReport:
    """Indexes document bases into `folder` under the project's settings."""
    settings = project.settings
    return build_index(
        bases,
        folder,
        shared_embedder(settings.models.embed),
        progress,
        qdrant_url=settings.qdrant.url,
        server_above=settings.keyword.server_above,
        keep_stop_words=settings.keyword.stop_words == "none",
        stem=settings.keyword.stem,
        fan=fan,
        extractors=_extractors(settings, bases),
    )


def open_bases(
    project: Project,
    bases: Sequence[BaseSpec],
    folder: Path,
    embedder: Embedder | None = None,
    extra: Sequence[Source] = (),
) -> Library:
    """The library of document bases indexed in `folder`, and of `extra`, under the project's settings."""
    settings = project.settings
    return Library.open(
        bases,
        folder,
        embedder or shared_embedder(settings.models.embed),
        extra,
        qdrant_url=settings.qdrant.url,
        server_above=settings.keyword.server_above,
        reranker=Reranker(settings.models.rerank) if settings.models.rerank else None,
    )


def _extractors(settings: Settings, bases: Sequence[BaseSpec]) -> Mapping[str, Extractor]:
    """Who reads relations, by base, where the project asks for them."""
    asked = {
        spec.name: base
        for spec in bases
        if isinstance(base := settings.knowledge.get(spec.name), GraphSettings)
        and base.relations
        and spec.kind == base.kind
    }
    if not asked:
        return {}
    from program.extraction import TripleExtractor

    return {name: TripleExtractor(base, settings.provider) for name, base in asked.items()}
