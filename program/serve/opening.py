"""The doors to a program: of a sealed version, of a project's latest one, or as it is before any compile.

What they open is imported when they are called: `from program import load` costs neither DSPy nor a model.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

from program.errors import BudgetError, SettingsError, VersionError

if TYPE_CHECKING:
    from program.knowledge.library import Library
    from program.loop.rag import AgenticRAG
    from program.models.catalog import Models
    from program.project import Project
    from program.serve.follow import Followed
    from program.serve.manifest import Manifest

DEFAULT_POINT = "balanced"
_log = logging.getLogger(__name__)


class Wishes(TypedDict, total=False):
    """Which setting of a version to take: a point, or the best of its frontier, as measured at compile time."""

    point: str | None
    """An operating point: `quality`, `balanced` (the default) or `economy`."""
    calls_per_question: float | None
    """The most model calls a question; in place of a point."""
    min_utility: float | None
    """The least utility; in place of a point."""
    usd_per_question: float | None
    """The most US dollars a question; in place of a point."""


class LoadOptions(Wishes, total=False):
    """What else `load` may be told."""

    artifacts: str | Path | None
    """The folder of versions; default: the environment's `RAGC_ARTIFACTS`, then `./artifacts`."""
    project: str | Path | None
    """The project folder, when it is not where it was at compile time."""
    progress: Callable[[int, int], None] | None
    """Called with what is indexed so far, and of how much."""


@overload
def load(reference: str | Path, *, follow: Literal[False] = False, **options: Unpack[LoadOptions]) -> AgenticRAG: ...


@overload
def load(reference: str | Path, *, follow: Literal[True], **options: Unpack[LoadOptions]) -> Followed: ...


def load(reference: str | Path, *, follow: bool = False, **options: Unpack[LoadOptions]) -> AgenticRAG | Followed:
    """Load the compiled program that a reference, or a version's folder, names.

    It answers over its project's knowledge as that is now. With `follow`, an alias is followed: what is returned
    answers with whatever version it names by then. Raises `VersionError` for an unknown reference or point, or a wish
    that is none or nothing fulfils, `IntegrityError` when a byte of the artifact changed or it does not fit this code
    and project, `ModelError` when a model it needs cannot be reached, `BudgetError` when the project caps money and a
    model has no price.
    """
    _check_wish("calls_per_question", options.get("calls_per_question"), "of 0 or more, such as 1.5", least=0)
    _check_wish("usd_per_question", options.get("usd_per_question"), "of 0 or more, such as 0.002", least=0)
    _check_wish("min_utility", options.get("min_utility"), "from -1 to 1, such as 0.85")
    if not follow:
        return _load_version(reference, **options)
    from program.serve.follow import Followed
    from program.settings import artifacts_root

    root = artifacts_root(options.get("artifacts"))
    options["artifacts"] = root
    return Followed(reference, root, lambda: _load_version(reference, **options))


def _load_version(
    reference: str | Path,
    *,
    artifacts: str | Path | None = None,
    project: str | Path | None = None,
    point: str | None = None,
    calls_per_question: float | None = None,
    min_utility: float | None = None,
    usd_per_question: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AgenticRAG:
    from program.loop.policy import apply_setting
    from program.serve import artifact
    from program.serve.manifest import refuse_unreadable, verify_folder
    from program.serve.reference import resolve

    version = resolve(reference, artifacts)
    manifest = verify_folder(version.path, version.digest)
    with refuse_unreadable(manifest.folder):
        opened = _open_noted_project(manifest, project)
        artifact.check_models(manifest, opened)
    program = open_program(opened, progress=progress, version=manifest.label)
    with refuse_unreadable(manifest.folder):
        artifact.check_knowledge(manifest, program)
        artifact.restore_state(program, manifest)
        if calls_per_question is None and min_utility is None and usd_per_question is None:
            setting = artifact.setting_of_point(manifest, point or DEFAULT_POINT)
        elif point is None:
            setting = artifact.setting_for_wish(
                manifest, calls=calls_per_question, utility=min_utility, usd=usd_per_question
            )
        else:
            raise VersionError("Both a point and a wish were given.", "Give one of them.")
        apply_setting(program, setting)
    return program


def open_latest(
    project: str | Path, *, progress: Callable[[int, int], None] | None = None, **wishes: Unpack[Wishes]
) -> AgenticRAG:
    """Load the latest version of a project, or its program before any compile when it has none.

    Raises as `load`; `VersionError`, too, when a point or a wish is given for a project without a version.
    """
    from program.project import Project
    from program.serve.reference import find_names

    opened = Project.open(project)
    if opened.name in find_names(opened.artifacts):
        latest = f"{opened.name}@latest"
        return load(latest, artifacts=opened.artifacts, project=opened.folder, progress=progress, **wishes)
    for name, value in wishes.items():
        if value is not None:
            what = f"{opened.name} was never compiled, so it has no {name.replace('_', ' ')} {value} to choose."
            raise VersionError(what, f"Ask without it, or run: ragc compile {shlex.quote(str(project))}")
    return open_program(opened, progress=progress)


def open_program(
    project: Project | str | Path, *, progress: Callable[[int, int], None] | None = None, version: str = ""
) -> AgenticRAG:
    """Open a project's program as it is before any compile, indexed and ready.

    Raises `SettingsError` or `KnowledgeError` when the project is not in order, `BudgetError` when it caps the money of
    a question and names a model whose price is not known.
    """
    from program.loop.policy import PRESETS
    from program.loop.rag import AgenticRAG
    from program.loop.state import Budget, Observer, Runtime
    from program.models.catalog import LOCAL, open_models
    from program.project import Project
    from program.serve.trace import TraceLog, emit_spans

    opened = project if isinstance(project, Project) else Project.open(project)
    _check_prices(opened)
    settings, caps = opened.settings, opened.settings.budget
    models = open_models(settings.models, settings.provider)
    library = open_library(opened, models, progress)
    observers: tuple[Observer, ...] = (emit_spans,)
    if settings.trace.enabled:
        observers = (TraceLog(opened.private, settings.trace.review_below).write_answer, emit_spans)
    budget = Budget(caps.max_rounds, caps.max_seconds, caps.max_tokens, caps.max_usd)
    links = tuple(host.lower() for host in settings.answer.links)
    runtime = Runtime(library, models, budget, observers, version, "" if version else settings.loop.preset, links)
    program = AgenticRAG(library.describe(), runtime)
    program.policy.turn(**PRESETS[settings.loop.preset])
    if not str(models.decide.model).startswith(LOCAL):  # it thinks longer than a search takes: do both at once
        program.policy.turn(glimpse=0)
    return program


def open_library(
    project: Project, models: Models | None = None, progress: Callable[[int, int], None] | None = None
) -> Library:
    """Open the project's sources; what was never indexed, or changed since it was, is indexed first.

    Raises `KnowledgeError` when a base is absent, empty or unreadable.
    """
    from program.knowledge.index.build import INDEX, update_index
    from program.knowledge.ingest.folder import list_bases
    from program.knowledge.library import open_bases, open_sources
    from program.models.catalog import open_models

    settings = project.settings
    embedder = (models or open_models(settings.models, settings.provider)).embedder
    embedder.remember_in(project.private)
    documents, extra = list_bases(project), open_sources(project, embedder)
    update_index(project, progress)
    library = open_bases(project, documents, project.private / INDEX, embedder, extra)
    library.remember_in(project.private)
    return library


def find_project(target: str, artifacts: str | Path | None = None, project: str | Path | None = None) -> Project:
    """Open the project of a target: a project folder, or a version; `project` says where it moved."""
    from program.project import Project
    from program.serve.manifest import verify_folder
    from program.serve.reference import resolve

    if (Path(target) / "ragc.toml").is_file():
        return Project.open(target)
    version = resolve(target, artifacts)
    return _open_noted_project(verify_folder(version.path, version.digest), project)


def _open_noted_project(manifest: Manifest, given: str | Path | None) -> Project:
    """Open the project given, or the one noted at compile time, relative to the artifacts folder."""
    from program.project import Project
    from program.settings import artifacts_root

    if given is not None:
        return Project.open(given)
    noted = str(manifest.section("knowledge").get("project", ""))
    root = manifest.folder.parents[2] if len(manifest.folder.parents) > 2 else artifacts_root()
    folder = Path(os.path.normpath(root / noted))
    try:
        return Project.open(folder)
    except SettingsError as error:
        raise SettingsError(
            f"The project of {manifest.label} is not at {folder}.",
            "Say where it is: --project FOLDER, or load(..., project=FOLDER).",
        ) from error


def _check_wish(name: str, value: object, what: str, least: float = -math.inf) -> None:
    """Raise `VersionError`, naming the argument, for a wish that is given and no number it could be."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= least:  # NaN is not
        raise VersionError(f"{name} cannot be {repr(value)[:80]}.", f"Give a number {what}.")


def _check_prices(project: Project) -> None:
    """Raise `BudgetError` where the project's own cap on money cannot hold; warn where the default cannot."""
    from program.models.catalog import require_price

    settings = project.settings
    asked = settings.models.model_copy(update={"propose": ""})
    own = "max_usd" in settings.budget.model_fields_set
    try:
        otherwise = "take max_usd out: max_tokens holds" if own else "rely on max_tokens"
        require_price(asked, settings.provider, "[budget] max_usd", otherwise)
    except BudgetError as error:
        if own:
            raise
        _log.warning("%s", error)
