"""A project opened: its sources, and its program as it is before any compile."""

from __future__ import annotations

from pathlib import Path

from program.budget import Budget
from program.indexing import INDEX, Advance, bring_up_to_date, open_bases
from program.knowledge.kinds import folders, others
from program.knowledge.library import Library
from program.models.catalog import LOCAL, Models, open_models
from program.presets import PRESETS
from program.rag import AgenticRAG, Runtime
from program.settings import Project
from program.trace import TraceLog


def open_library(project: Project, models: Models | None = None, progress: Advance | None = None) -> Library:
    """The project's sources; what was never indexed, or changed since it was, is indexed first.

    Raises `KnowledgeError` when a base is absent, empty or unreadable.
    """
    settings = project.settings
    embedder = (models or open_models(settings.models, settings.provider)).embedder
    embedder.remember_in(project.private)
    documents, extra = folders(project), others(project, embedder)
    bring_up_to_date(project, progress)
    library = open_bases(project, documents, project.private / INDEX, embedder, extra)
    library.remember_in(project.private)
    return library


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
    links = tuple(host.lower() for host in opened.settings.answer.links)
    runtime = Runtime(library, models, budget, log, version, "" if version else preset, links)
    program = AgenticRAG(library.describe(), runtime)
    program.policy.turn(**PRESETS[preset])
    if not str(models.decide.model).startswith(LOCAL):  # it thinks longer than a search takes: do both at once
        program.policy.turn(glimpse=0)
    return program
