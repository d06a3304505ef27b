"""From a project's settings to its sources: folders to be indexed, and those that are asked where they are."""

from __future__ import annotations

from importlib.metadata import entry_points

from program.errors import KnowledgeError
from program.knowledge.bases import BaseSpec
from program.models.encoder import Embedder
from program.passage import Source, SourceCard
from program.project import Project
from program.settings import (
    SOURCES,
    DocumentsSettings,
    HttpSettings,
    KnowledgeSettings,
    PackageSettings,
    TablesSettings,
    WebSettings,
)


def folders(project: Project) -> list[BaseSpec]:
    """The bases that are folders of files: documents, and saved pages."""
    return [
        BaseSpec(
            name=name,
            kind=base.kind,
            path=project.place(base),
            about=base.about,
            asks=base.asks,
            not_=base.not_,
            chunk_tokens=base.chunk_tokens,
            max_megabytes=base.max_megabytes,
        )
        for name, base in project.settings.knowledge.items()
        if isinstance(base, DocumentsSettings) or (isinstance(base, WebSettings) and base.path)
    ]


def others(project: Project, embedder: Embedder) -> list[Source]:
    """Every other source, opened. A web base without a provider, or without its key, is none.

    Raises KnowledgeError for one that cannot be opened.
    """
    found = [_opened(project, name, base, embedder) for name, base in project.settings.knowledge.items()]
    return [source for source in found if source is not None]


def _opened(project: Project, name: str, base: KnowledgeSettings, embedder: Embedder) -> Source | None:
    card = SourceCard(name, base.kind, base.about, base.asks, base.not_)
    if isinstance(base, TablesSettings):
        from program.knowledge.tables import Tables

        return Tables(name, card, project.place(base), embedder)
    if isinstance(base, HttpSettings):
        from program.knowledge.api import JsonApi

        return JsonApi(card, base, embedder)
    if isinstance(base, WebSettings):
        from program.knowledge.guard import Guard
        from program.knowledge.web import WebSearch, provider_of

        provider = provider_of(name, base)
        if provider is None:
            return None
        # Whoever writes a page chooses what is fetched next, so pages must be public whatever the provider may be.
        pages = Guard(f"A page found by {name}", base.seconds, base.max_megabytes) if base.fetch else None
        return WebSearch(card, provider, embedder, pages, base.results)
    return _from_package(card, base, embedder) if isinstance(base, PackageSettings) else None


def _from_package(card: SourceCard, base: PackageSettings, embedder: Embedder) -> Source:
    """The source of an installed package: its entry point is called as (card, options, embedder)."""
    where = f"[knowledge.{card.name}] in ragc.toml"
    (point, *_) = entry_points(group=SOURCES, name=base.kind)
    package = point.dist.name if point.dist else point.value
    try:
        source = point.load()(card, base.options, embedder)
    except Exception as error:
        raise KnowledgeError(
            f"The source {card.name!r} of the package {package} cannot be opened: {type(error).__name__}: {error}.",
            f"Correct `options` under {where}, or ask whoever makes {package}.",
        ) from error
    if not isinstance(source, Source) or source.name != card.name:
        raise KnowledgeError(
            f"What the package {package} made for {card.name!r} is not a source of that name.",
            "Its maker can run it through program.knowledge.testing.SourceConformance.",
        )
    return source
