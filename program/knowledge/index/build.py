"""A project's folders of documents: indexed, and opened as a library."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from program.errors import SettingsError
from program.knowledge.bases import BaseSpec
from program.knowledge.index.generation import CURRENT
from program.knowledge.index.rerank import Reranker
from program.knowledge.index.store import IndexReport, build_index
from program.knowledge.ingest.footprint import footprint
from program.knowledge.kinds import folders
from program.knowledge.library import Library
from program.models.encoder import Embedder, shared_embedder
from program.passage import Source
from program.project import Project
from program.storage import write_whole

if TYPE_CHECKING:
    from program.knowledge.index.fanout import Fan

INDEX = "index"
SEEN = "seen"
"""What the files looked like when they were indexed."""
ENGINES = ("local", "ray")

Advance = Callable[[int, int], None]
_LOG = logging.getLogger(__name__)


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
    seen = _seen(project, bases)  # before anything is read: what changes meanwhile is indexed the next time
    if engine == "local":
        report = index_bases(project, bases, place, progress)
    else:
        from program.knowledge.index.fanout import over_ray

        with over_ray(partial(Embedder, embedder.name), workers) as fan:
            report = index_bases(project, bases, place, progress, fan)
    write_whole(place / SEEN, seen.encode())
    return report


def bring_up_to_date(project: Project, progress: Advance | None = None) -> None:
    """Indexes a project that was never indexed, or whose files or their settings changed since they were.

    Where the index cannot be written, a log warning says that answers are of the old one. Raises as `index_project`.
    """
    place, bases = project.private / INDEX, folders(project)
    if not bases:
        return
    try:
        seen = (place / SEEN).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        seen = ""
    indexed = (place / CURRENT).is_file()
    if indexed and seen == _seen(project, bases):
        return
    if indexed and not os.access(place, os.W_OK):
        _LOG.warning("%s may have changed since it was indexed, and %s cannot be written.", project.folder, place)
        return
    index_project(project, progress)


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


def _seen(project: Project, bases: Sequence[BaseSpec]) -> str:
    """What tells whether the project has to be indexed again."""
    keyword = project.settings.keyword
    return footprint(bases, repr((keyword.stem, keyword.stop_words)))
