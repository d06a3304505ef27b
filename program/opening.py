"""A project opened: its knowledge indexed, its sources, and its program as it is before any compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from program.budget import Budget
from program.errors import SettingsError
from program.extraction import TripleExtractor
from program.kindsettings import GraphSettings
from program.knowledge.bases import BaseSpec
from program.knowledge.embedder import Embedder
from program.knowledge.generation import CURRENT
from program.knowledge.kinds import folders, others
from program.knowledge.library import IndexReport, Library, build_index
from program.knowledge.rerank import Reranker
from program.knowledge.source import Source
from program.models.catalog import LOCAL, Models, open_models
from program.presets import PRESETS
from program.rag import AgenticRAG, Runtime
from program.settings import Project
from program.trace import TraceLog

if TYPE_CHECKING:
    from program.knowledge.fanout import Fan

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
    embedder = open_models(project.settings.models, project.settings.provider).embedder
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
        open_models(settings.models, settings.provider).embedder,
        progress,
        qdrant_url=settings.qdrant.url,
        server_above=settings.keyword.server_above,
        keep_stop_words=settings.keyword.stop_words == "none",
        stem=settings.keyword.stem,
        fan=fan,
        extractors={
            spec.name: TripleExtractor(base, settings.provider)
            for spec in bases
            if isinstance(base := settings.knowledge.get(spec.name), GraphSettings)
            and base.relations
            and spec.kind == base.kind
        },
    )


def open_library(project: Project, models: Models | None = None, progress: Advance | None = None) -> Library:
    """The project's sources, from its last index; a project that was never indexed is indexed first.

    Raises `KnowledgeError` when a base is absent, empty or unreadable.
    """
    settings = project.settings
    embedder = (models or open_models(settings.models, settings.provider)).embedder
    embedder.remember_in(project.private)
    documents, extra = folders(project), others(project, embedder)
    if documents and not (project.private / INDEX / CURRENT).is_file():
        index_project(project, progress)
    return open_bases(project, documents, project.private / INDEX, embedder, extra)


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
        embedder or open_models(settings.models, settings.provider).embedder,
        extra,
        qdrant_url=settings.qdrant.url,
        server_above=settings.keyword.server_above,
        reranker=Reranker(settings.models.rerank) if settings.models.rerank else None,
    )


def open_program(project: Project | str | Path, *, progress: Advance | None = None, version: str = "") -> AgenticRAG:
    """The project's program as it is before any compile, indexed and ready.

    Raises `SettingsError` or `KnowledgeError` when the project is not in order.
    """
    opened = project if isinstance(project, Project) else Project.open(project)
    models = open_models(opened.settings.models, opened.settings.provider)
    library = open_library(opened, models, progress)
    caps = opened.settings.budget
    traced, preset = opened.settings.trace, opened.settings.loop.preset
    log = TraceLog(opened.private, traced.review_below) if traced.enabled else None
    budget = Budget(caps.max_rounds, caps.max_seconds, caps.max_tokens, caps.max_usd)
    program = AgenticRAG(library.describe(), Runtime(library, models, budget, log, version, "" if version else preset))
    program.policy.turn(**PRESETS[preset])
    if not str(models.decide.model).startswith(LOCAL):  # it thinks longer than a search takes: do both at once
        program.policy.turn(glimpse=0)
    return program
