"""The doors to a program: of a sealed version, of a project's folder, or as it is before any compile.

What they open is imported when they are called: `from ragc import load` costs neither DSPy nor a model.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from ragc.errors import BudgetError, SettingsError, VersionError

if TYPE_CHECKING:
    import dspy

    from ragc.knowledge.library import Library
    from ragc.knowledge.project import Project
    from ragc.loop.rag import AgenticRAG
    from ragc.models.catalog import Models
    from ragc.serve.factory import Factory
    from ragc.serve.follow import Reopened
    from ragc.serve.reference import Manifest

_log = logging.getLogger(__name__)
ANSWERS_DEPEND_ON = ("dspy", "onnxruntime", "numpy")
Advance = Callable[[int, int], None]


class LoadOptions(TypedDict, total=False):
    """Options of `load`."""

    point: str | None  # an operating point: `quality`, `balanced` (the default) or `economy`
    artifacts: str | Path | None  # the folder of versions; default: `RAGC_ARTIFACTS`, then `./artifacts`
    project: str | Path | None  # the project folder, when it is not where it was at compile time
    progress: Advance | None  # called with the number of files indexed so far, and of all


@overload
def load(reference: str | Path, *, follow: Literal[False] = False, **options: Unpack[LoadOptions]) -> AgenticRAG: ...


@overload
def load(
    reference: str | Path, make: Factory, *, follow: Literal[False] = False, artifacts: str | Path | None = None
) -> dspy.Module: ...


@overload
def load(
    reference: str | Path, make: Factory | None = None, *, follow: Literal[True], **options: Unpack[LoadOptions]
) -> Reopened: ...


def load(
    reference: str | Path,
    make: Factory | None = None,
    *,
    follow: bool = False,
    point: str | None = None,
    artifacts: str | Path | None = None,
    project: str | Path | None = None,
    progress: Advance | None = None,
) -> AgenticRAG | Reopened | dspy.Module:
    """Load the compiled program that a reference, or a version's folder, names.

    A project's folder is opened as by `open_latest`. It answers over its project's knowledge as that is now. With
    `follow`, an alias is followed: what is returned answers with whatever version it names by then. A program of one's
    own code is what `make()` returns, its state restored; no version names the function. Raises `VersionError` for an
    unknown reference or point, `IntegrityError` when a byte of the artifact changed or it does not fit this code and
    project, `ModelError` when a model it needs cannot be reached, `BudgetError` when the project caps money and a model
    has no price.
    """
    from ragc.serve import artifact
    from ragc.serve.manifest import open_version, refuse_unreadable

    if follow:
        from ragc.serve.follow import follow_alias
        from ragc.settings import artifacts_root

        root = artifacts_root(artifacts)
        options: dict[str, Any] = {"point": point, "artifacts": root, "project": project, "progress": progress}
        return follow_alias(reference, root, partial(load, reference, make, **options))
    if make is None and _is_project(reference):
        return open_latest(reference, artifacts=artifacts, point=point, progress=progress)
    manifest = open_version(reference, artifacts)
    _warn_of_packages(manifest)
    with refuse_unreadable(manifest.path):
        if make is not None or manifest.kind:
            from ragc.serve.factory import restore_module

            return restore_module(manifest, make)
        opened = _open_noted_project(manifest, project)
        artifact.check_models(manifest, opened)
    program = open_program(opened, progress=progress, version=manifest.label)
    library, models = program.runtime.library, program.runtime.models
    if manifest.section("knowledge").get("corpus_digest") not in (None, library.corpus_digest):
        changed = "%s was compiled over other documents, or another reading of them: measure it again with `ragc eval`."
        _log.warning(changed, manifest.label)
    with refuse_unreadable(manifest.path):
        artifact.restore_program(program, manifest, models.embedded, models.weights, point)
        reopen = partial(load, manifest.path, point=point, project=opened.folder)
        program.runtime = replace(artifact.restore_reviewed(program.runtime, manifest), reopen=reopen)
    return program


def _warn_of_packages(manifest: Manifest) -> None:
    """Warn where a version was sealed under another release, `3.4`, of a package that answers depend on."""
    sealed = {name: str(manifest.section("env").get(name) or "") for name in ANSWERS_DEPEND_ON}
    others = [
        f"{name} {was} (here {now})"
        for name, was in sealed.items()
        if was and was.split(".")[:2] != (now := version(name)).split(".")[:2]
    ]
    if others:
        what = "%s was sealed under %s: measure it again with `ragc eval`."
        _log.warning(what, manifest.label, ", ".join(others))


def open_latest(
    project: str | Path,
    *,
    artifacts: str | Path | None = None,
    point: str | None = None,
    progress: Advance | None = None,
) -> AgenticRAG:
    """Load a project's current version, or its program before any compile.

    Raises as `load`; `VersionError`, too, when a point is given for a project without such a version.
    """
    from ragc.knowledge.project import Project
    from ragc.serve.reference import find_current

    opened = Project.open(project)
    root = opened.artifacts if artifacts is None else Path(artifacts)
    if (current := find_current(root, opened.name)) is not None:
        return load(str(current), artifacts=root, project=opened.folder, point=point, progress=progress)
    if point:
        what = f"{opened.name} has no compiled version that is not worse than its parent, so no point {point}."
        raise VersionError(what, f"Ask without it, name a version, or run: ragc compile {shlex.quote(str(project))}")
    return open_program(opened, progress=progress)


def open_program(project: Project | str | Path, *, progress: Advance | None = None, version: str = "") -> AgenticRAG:
    """Open a project's program as it is before any compile, indexed and ready.

    Raises `SettingsError` or `KnowledgeError` when the project is not in order, `BudgetError` when it caps the money of
    a question and names a model whose price is not known.
    """
    from ragc.knowledge.project import Project
    from ragc.loop.policy import PRESETS
    from ragc.loop.rag import AgenticRAG
    from ragc.loop.reviewed import ReviewedAnswers
    from ragc.loop.state import STATES, Observer, Runtime
    from ragc.models.catalog import open_models
    from ragc.models.language.pace import follow_paces, read_paces
    from ragc.serve.trace import TraceLog, emit_span

    opened = project if isinstance(project, Project) else Project.open(project)
    _check_prices(opened)
    settings = follow_paces(opened.settings, read_paces(opened.private))
    models = open_models(settings.models, settings.provider)
    library = open_library(opened, models, progress)
    observers: list[Observer] = [partial(emit_span, texts=settings.trace.texts)]
    if settings.trace.enabled:
        observers.append(TraceLog(opened.private).write_answer)
    links = tuple(host.lower() for host in settings.answer.links)
    preset, reopen = "" if version else settings.loop.preset, partial(open_program, opened.folder)
    reviewed = ReviewedAnswers(opened.reviewed, models.embedded)
    noted = tuple(observers)
    runtime = Runtime(library, models, settings.budget, noted, version, preset, links, reopen=reopen, reviewed=reviewed)
    program = AgenticRAG(library.describe(), runtime)
    program.policy.turn(**PRESETS[settings.loop.preset])
    if settings.answer.checks:
        program.policy.turn(check=settings.answer.checks)
    program.predictor(STATES).fields["states"] = {"threshold": settings.utility.least_chance}
    return program


def open_library(project: Project, models: Models | None = None, progress: Advance | None = None) -> Library:
    """Open a project's sources, what changed indexed first. Raises `KnowledgeError`.

    A log warning says how many of its files were not read.
    """
    from ragc.knowledge.index.build import INDEX, update_index
    from ragc.knowledge.ingest.folder import list_bases
    from ragc.knowledge.library import Library, open_sources
    from ragc.models.catalog import open_models

    settings = project.settings
    models = models or open_models(settings.models, settings.provider)
    embedder = models.embedder
    embedder.remember_in(project.private)
    models.reader.remember_in(project.private)
    documents, extra = list_bases(project), open_sources(project, embedder)
    with project.named():
        read = update_index(project, progress)
        library = Library.open(documents, project.private / INDEX, embedder, extra, settings)
    if unread := read.tell_unread():
        _log.warning("%s: ragc index %s", unread, project.argument)
    return library


def find_project(target: str, artifacts: str | Path | None = None, project: str | Path | None = None) -> Project:
    """Open the project of a project folder or a version; `project` if it moved."""
    from ragc.knowledge.project import Project
    from ragc.serve.manifest import open_version

    if _is_project(target):
        return Project.open(target)
    return _open_noted_project(open_version(target, artifacts), project)


def _is_project(target: object) -> bool:
    """Return True for the folder of a project."""
    with suppress(OSError, ValueError):
        return isinstance(target, str | Path) and str(target) != "" and (Path(target) / "ragc.toml").is_file()
    return False


def _open_noted_project(manifest: Manifest, given: str | Path | None) -> Project:
    from ragc.knowledge.project import Project
    from ragc.serve.manifest import explain_own_code

    if manifest.kind:
        raise explain_own_code(manifest)
    if given is not None:
        return Project.open(given)
    noted = str(manifest.section("knowledge").get("project", ""))
    folder = Path(os.path.normpath(manifest.path / "../../.." / noted))  # noted relative to the artifacts folder
    if not (folder / "ragc.toml").is_file():
        raise SettingsError(
            f"The project of {manifest.label} is not at {folder}.",
            "Say where it is: --project FOLDER, or load(..., project=FOLDER).",
        )
    return Project.open(folder)


def _check_prices(project: Project) -> None:
    """Raise `BudgetError` where a cap on money cannot hold; warn of a default."""
    from ragc.models.catalog import require_price

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
