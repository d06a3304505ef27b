"""A project opened: its sources, and its program as it is before any compile."""

from __future__ import annotations

import logging
from pathlib import Path

from program.errors import BudgetError
from program.knowledge.index.build import INDEX, Advance, update_index
from program.knowledge.ingest.folder import list_bases
from program.knowledge.library import Library, open_bases, open_sources
from program.loop.budget import Budget
from program.loop.presets import PRESETS
from program.loop.rag import AgenticRAG, Runtime
from program.models.catalog import LOCAL, Models, open_models, require_price
from program.settings import Project, Settings
from program.trace import TraceLog

_log = logging.getLogger(__name__)


def open_library(project: Project, models: Models | None = None, progress: Advance | None = None) -> Library:
    """The project's sources; what was never indexed, or changed since it was, is indexed first.

    Raises `KnowledgeError` when a base is absent, empty or unreadable.
    """
    settings = project.settings
    embedder = (models or open_models(settings.models, settings.provider)).embedder
    embedder.remember_in(project.private)
    documents, extra = list_bases(project), open_sources(project, embedder)
    update_index(project, progress)
    library = open_bases(project, documents, project.private / INDEX, embedder, extra)
    library.remember_in(project.private)
    return library


def open_program(project: Project | str | Path, *, progress: Advance | None = None, version: str = "") -> AgenticRAG:
    """The project's program as it is before any compile, indexed and ready.

    Raises `SettingsError` or `KnowledgeError` when the project is not in order, `BudgetError` when it caps the money of
    a question and names a model whose price is not known.
    """
    opened = project if isinstance(project, Project) else Project.open(project)
    _check_prices(opened.settings)
    models = open_models(opened.settings.models, opened.settings.provider)
    library = open_library(opened, models, progress)
    caps = opened.settings.budget
    traced, preset = opened.settings.trace, opened.settings.loop.preset
    log = TraceLog(opened.private, traced.review_below) if traced.enabled else None
    budget = Budget(caps.max_rounds, caps.max_seconds, caps.max_tokens, caps.max_usd)
    links = tuple(host.lower() for host in opened.settings.answer.links)
    runtime = Runtime(library, models, budget, log, version, "" if version else preset, links)
    program = AgenticRAG(library.describe(), runtime)
    program.policy.turn(**PRESETS[preset])
    if not str(models.decide.model).startswith(LOCAL):  # it thinks longer than a search takes: do both at once
        program.policy.turn(glimpse=0)
    return program


def _check_prices(settings: Settings) -> None:
    """Raises `BudgetError` where the project's own cap on a question's money cannot hold; warns where the default's."""
    asked = settings.models.model_copy(update={"propose": ""})
    own = "max_usd" in settings.budget.model_fields_set
    try:
        otherwise = "take max_usd out: max_tokens holds" if own else "rely on max_tokens"
        require_price(asked, settings.provider, "[budget] max_usd", otherwise)
    except BudgetError as error:
        if own:
            raise
        _log.warning("%s", error)
