"""A program on disk and back: sealed files out, a verified program in. Code is never taken from an artifact."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from dspy.adapters.types.decision import decision_type

from program.budget import Budget
from program.errors import IntegrityError, SettingsError, VersionError
from program.knobs import Knob
from program.knowledge.embedder import Embedder
from program.knowledge.generation import CURRENT
from program.knowledge.library import BaseSpec, IndexReport, Library, build_index
from program.knowledge.rerank import Reranker
from program.knowledge.source import Source
from program.knowledge.tables import Tables
from program.manifest import Manifest, verify
from program.models.catalog import Models, open_models
from program.parameters import apply
from program.rag import AgenticRAG, Runtime
from program.reference import artifacts_root, names, resolve
from program.settings import Project
from program.trace import TraceLog

STATE = "program.json"
HEADS = "heads.safetensors"
DEFAULT_POINT = "balanced"
INDEX = "index"
TABLES = "tables"

Advance = Callable[[int, int], None]


def index_project(project: Project, progress: Advance | None = None) -> IndexReport:
    """Indexes what changed in the project's document bases, and tells what was done.

    Raises `KnowledgeError` when a base is absent, empty or unreadable.
    """
    open_models(project.settings.models).embedder.remember_in(project.private)
    bases = [spec for spec in _bases(project) if spec.kind != TABLES]
    return index_bases(project, bases, project.private / INDEX, progress)


def index_bases(
    project: Project, bases: Sequence[BaseSpec], folder: Path, progress: Advance | None = None
) -> IndexReport:
    """Indexes document bases into `folder` under the project's settings."""
    settings = project.settings
    return build_index(
        bases,
        folder,
        open_models(settings.models).embedder,
        progress,
        qdrant_url=settings.qdrant.url,
        keep_stop_words=settings.keyword.stop_words == "none",
        stem=settings.keyword.stem,
    )


def open_library(project: Project, models: Models | None = None, progress: Advance | None = None) -> Library:
    """The project's sources, from its last index; a project that was never indexed is indexed first.

    Raises `KnowledgeError` when a base is absent, empty or unreadable.
    """
    settings = project.settings
    embedder = (models or open_models(settings.models)).embedder
    embedder.remember_in(project.private)
    specs = _bases(project)
    documents = [spec for spec in specs if spec.kind != TABLES]
    tables = [Tables(s.name, s.card(), s.path, embedder) for s in specs if s.kind == TABLES]
    if documents and not (project.private / INDEX / CURRENT).is_file():
        index_project(project, progress)
    return open_bases(project, documents, project.private / INDEX, embedder, tables)


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
        embedder or open_models(settings.models).embedder,
        extra,
        qdrant_url=settings.qdrant.url,
        reranker=Reranker(settings.models.rerank) if settings.models.rerank else None,
    )


def _bases(project: Project) -> list[BaseSpec]:
    return [
        BaseSpec(name, base.kind, project.place(base), base.about, base.asks, base.not_)
        for name, base in project.settings.knowledge.items()
    ]


def open_program(project: Project | str | Path, *, progress: Advance | None = None, version: str = "") -> AgenticRAG:
    """The project's program as it is before any compile, indexed and ready.

    Raises `SettingsError` or `KnowledgeError` when the project is not in order.
    """
    opened = project if isinstance(project, Project) else Project.open(project)
    models = open_models(opened.settings.models)
    library = open_library(opened, models, progress)
    caps = opened.settings.budget
    log = TraceLog(opened.private / "traces.jsonl") if opened.settings.trace.enabled else None
    budget = Budget(caps.max_rounds, caps.max_seconds, caps.max_tokens, caps.max_usd)
    return AgenticRAG(library.describe(), Runtime(library, models, budget, log, version))


def load(
    reference: str,
    *,
    artifacts: str | Path | None = None,
    project: str | Path | None = None,
    point: str | None = None,
    progress: Advance | None = None,
) -> AgenticRAG:
    """The compiled program that a reference names, over its project's knowledge.

    `artifacts` is where versions are kept (default: the environment's `RAGC_ARTIFACTS`, then `./artifacts`),
    `project` the project folder when it is not where it was at compile time, `point` an operating point.
    Raises `VersionError` for an unknown reference or point, `IntegrityError` when a byte of the artifact
    changed or it does not fit this code and project.
    """
    version = resolve(reference, artifacts)
    manifest = verify(version.path, version.digest)
    program = open_program(
        _project(manifest, project), progress=progress, version=f"{manifest.name}@{manifest.version}"
    )
    _fit(manifest, program)
    _restore(program, manifest, point or DEFAULT_POINT)
    return program


def open_latest(project: str | Path, *, point: str | None = None, progress: Advance | None = None) -> AgenticRAG:
    """The latest version of a project when it has one, else its program before any compile."""
    opened = Project.open(project)
    if opened.name in names(opened.artifacts):
        latest = f"{opened.name}@latest"
        return load(latest, artifacts=opened.artifacts, project=opened.folder, point=point, progress=progress)
    return open_program(opened, progress=progress)


def project_of(target: str, artifacts: str | Path | None = None) -> Project:
    """The project behind a target: a project folder, or the one a version was compiled from."""
    if (Path(target) / "ragc.toml").is_file():
        return Project.open(target)
    version = resolve(target, artifacts)
    return _project(verify(version.path, version.digest), None)


def files_of(program: AgenticRAG) -> dict[str, bytes]:
    """The files that hold what was learned: state as JSON, and as safetensors the heads that were fitted so far."""
    files = {STATE: orjson.dumps(_state(program), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)}
    export = getattr(program.runtime.models.decide, "export_heads", None)
    heads: Mapping[str, Any] = export(program.requests.kept()) if export else {}
    if heads:
        from safetensors.numpy import save

        files[HEADS] = save(heads)
    return files


def structure_of(program: AgenticRAG) -> list[dict[str, Any]]:
    """The program's predictors with their fields (name, direction, type) and knobs with their ranges, in order."""
    structure: list[dict[str, Any]] = []
    for name, parameter in program.named_parameters():
        if isinstance(parameter, Knob):
            structure.append({"knob": name, "low": parameter.low, "high": parameter.high})
            continue
        signature = parameter.signature
        inputs = [[n, "in", _type_name(f)] for n, f in signature.input_fields.items()]
        outputs = [[n, "out", _type_name(f)] for n, f in signature.output_fields.items()]
        structure.append({"predictor": name, "fields": inputs + outputs})
    return structure


def _type_name(field: Any) -> str:
    kind = decision_type(field)
    return str(getattr(kind or field.annotation, "__name__", kind or field.annotation))


def _state(program: AgenticRAG) -> dict[str, Any]:
    """DSPy's state without what is not learned: no model, no trace."""
    if frozen := [n for n, m in program.named_sub_modules() if getattr(m, "_compiled", False)]:
        raise IntegrityError(
            f"{', '.join(frozen)} is marked as compiled, and DSPy would leave its state out.",
            "Set _compiled to False on it before saving.",
        )
    state: dict[str, Any] = program.dump_state()
    for part in state.values():
        if isinstance(part, dict) and "signature" in part:
            part.pop("metadata", None)
            part.update(lm=None, traces=[], train=[])
    return state


def _restore(program: AgenticRAG, manifest: Manifest, point: str) -> None:
    state = orjson.loads((manifest.folder / STATE).read_bytes())
    program.load_state(state)
    points: Mapping[str, Mapping[str, float]] = manifest.section("points")
    if point not in points:
        raise VersionError(
            f"{manifest.name}@{manifest.version} has no operating point {point!r}.",
            f"Use one of: {', '.join(sorted(points))}.",
        )
    apply(program, points[point])
    heads = manifest.folder / HEADS
    adopt = getattr(program.runtime.models.decide, "import_heads", None)
    if heads.is_file() and adopt is not None:
        from safetensors.numpy import load_file

        adopt(load_file(heads))


def _fit(manifest: Manifest, program: AgenticRAG) -> None:
    """Raises `IntegrityError`, listing the differences, when the artifact is of another program or other models."""
    found = [_shown(item) for item in manifest.section("program").get("structure", [])]
    here = [_shown(item) for item in structure_of(program)]
    differences = [f"missing here: {item}" for item in found if item not in here]
    differences += [f"missing in the artifact: {item}" for item in here if item not in found]
    if not differences and found != here:
        differences = ["the order of the predictors differs"]
    embed = manifest.section("models").get("embedder")
    if embed != program.runtime.models.embedder.digest:
        differences.append(f"embedding model {embed} there, {program.runtime.models.embedder.digest} here")
    if differences:
        raise IntegrityError(
            f"{manifest.name}@{manifest.version} does not fit this program: {'; '.join(differences)}.",
            "Compile it again with this code and these settings: ragc compile PROJECT",
        )


def _shown(item: Mapping[str, Any]) -> str:
    if "knob" in item:
        return f"knob {item['knob']} in [{item['low']}, {item['high']}]"
    fields = ", ".join(f"{name}: {kind} ({way})" for name, way, kind in item["fields"])
    return f"{item['predictor']}({fields})"


def _project(manifest: Manifest, given: str | Path | None) -> Project:
    """The project: the one given, or the one noted at compile time, relative to the artifacts folder."""
    if given is not None:
        return Project.open(given)
    noted = str(manifest.section("knowledge").get("project", ""))
    root = manifest.folder.parents[2] if len(manifest.folder.parents) > 2 else artifacts_root()
    folder = Path(os.path.normpath(root / noted))
    try:
        return Project.open(folder)
    except SettingsError as error:
        raise SettingsError(
            f"The project of {manifest.name}@{manifest.version} is not at {folder}.",
            "Say where it is: load(..., project=FOLDER).",
        ) from error
