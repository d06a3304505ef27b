"""A program on disk and back: sealed files out, a verified program in. Code is never taken from an artifact."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any, Literal, overload

import orjson

from program.errors import IntegrityError, SettingsError, VersionError
from program.knowledge.index.build import Advance
from program.loop.policy import apply_setting
from program.loop.rag import AgenticRAG
from program.serve.fitting import check_fit, check_knowledge, check_models
from program.serve.follow import Followed
from program.serve.manifest import Manifest, readable, verify
from program.serve.opening import open_program
from program.serve.reference import artifacts_root, names, resolve
from program.settings import Project

STATE = "program.json"
HEADS = "heads.safetensors"
FRONTIER = "frontier.json"
DEFAULT_POINT = "balanced"


@overload
def load(
    reference: str | Path,
    *,
    artifacts: str | Path | None = None,
    project: str | Path | None = None,
    point: str | None = None,
    calls_per_question: float | None = None,
    min_utility: float | None = None,
    usd_per_question: float | None = None,
    progress: Advance | None = None,
    follow: Literal[False] = False,
) -> AgenticRAG: ...


@overload
def load(
    reference: str | Path,
    *,
    artifacts: str | Path | None = None,
    project: str | Path | None = None,
    point: str | None = None,
    calls_per_question: float | None = None,
    min_utility: float | None = None,
    usd_per_question: float | None = None,
    progress: Advance | None = None,
    follow: Literal[True],
) -> Followed: ...


def load(
    reference: str | Path,
    *,
    artifacts: str | Path | None = None,
    project: str | Path | None = None,
    point: str | None = None,
    calls_per_question: float | None = None,
    min_utility: float | None = None,
    usd_per_question: float | None = None,
    progress: Advance | None = None,
    follow: bool = False,
) -> AgenticRAG | Followed:
    """The compiled program that a reference, or the path of a version's folder, names, over its project's knowledge.

    `artifacts` is where versions are kept (default: the environment's `RAGC_ARTIFACTS`, then `./artifacts`),
    `project` the project folder when it is not where it was at compile time, `point` an operating point. Instead of a
    point, `calls_per_question` takes the best setting of at most so many model calls, `usd_per_question` of at most so
    many US dollars, `min_utility` the one of fewest calls with at least that utility, as measured when it was compiled.
    With `follow`, an alias is followed: what is returned answers with whatever version it names by then.
    Raises `VersionError` for an unknown reference or point, or a wish that is none or nothing fulfils,
    `IntegrityError` when a byte of the artifact changed or it does not fit this code and project, `ModelError` when a
    model it needs cannot be reached, `BudgetError` when the project caps money and a model has no price.
    """
    _check_wish("calls_per_question", calls_per_question, "of 0 or more, such as 1.5", least=0)
    _check_wish("usd_per_question", usd_per_question, "of 0 or more, such as 0.002", least=0)
    _check_wish("min_utility", min_utility, "from -1 to 1, such as 0.85")
    if follow:
        root = artifacts_root(artifacts)
        return Followed(
            reference,
            root,
            lambda: load(
                reference,
                artifacts=root,
                project=project,
                point=point,
                calls_per_question=calls_per_question,
                min_utility=min_utility,
                usd_per_question=usd_per_question,
                progress=progress,
            ),
        )
    version = resolve(reference, artifacts)
    manifest = verify(version.path, version.digest)
    with readable(manifest.folder):
        opened = _project(manifest, project)
        check_models(manifest, opened)
    program = open_program(opened, progress=progress, version=f"{manifest.name}@{manifest.version}")
    with readable(manifest.folder):
        check_knowledge(manifest, program)
        check_fit(manifest, program, orjson.loads((manifest.folder / STATE).read_bytes()))
        _restore(program, manifest)
        if calls_per_question is None and min_utility is None and usd_per_question is None:
            apply_setting(program, _named(manifest, point or DEFAULT_POINT))
        elif point is None:
            apply_setting(program, _wanted(manifest, calls_per_question, min_utility, usd_per_question))
        else:
            raise VersionError("Both a point and a wish were given.", "Give one of them.")
    return program


def open_latest(
    project: str | Path,
    *,
    point: str | None = None,
    calls_per_question: float | None = None,
    min_utility: float | None = None,
    usd_per_question: float | None = None,
    progress: Advance | None = None,
) -> AgenticRAG:
    """The latest version of a project, as `load` gives it, when it has one; else its program before any compile.

    Raises as `load`; `VersionError`, too, when a point or a wish is given for a project without a version.
    """
    opened = Project.open(project)
    if opened.name in names(opened.artifacts):
        latest = f"{opened.name}@latest"
        return load(
            latest,
            artifacts=opened.artifacts,
            project=opened.folder,
            point=point,
            calls_per_question=calls_per_question,
            min_utility=min_utility,
            usd_per_question=usd_per_question,
            progress=progress,
        )
    wished = {
        "point": point,
        "calls_per_question": calls_per_question,
        "min_utility": min_utility,
        "usd_per_question": usd_per_question,
    }
    for name, value in wished.items():
        if value is not None:
            raise VersionError(
                f"{opened.name} was never compiled, so it has no {name.replace('_', ' ')} {value} to choose.",
                f"Ask without it, or run: ragc compile {shlex.quote(str(project))}",
            )
    return open_program(opened, progress=progress)


def project_of(target: str, artifacts: str | Path | None = None, project: str | Path | None = None) -> Project:
    """The project behind a target: a project folder, or the one a version was compiled from; `project` if it moved."""
    if (Path(target) / "ragc.toml").is_file():
        return Project.open(target)
    version = resolve(target, artifacts)
    return _project(verify(version.path, version.digest), project)


def files_of(program: AgenticRAG) -> dict[str, bytes]:
    """The files that hold what was learned: state as JSON, and as safetensors the heads that were fitted so far."""
    files = {STATE: orjson.dumps(_state(program), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)}
    if heads := _fitted_heads(program):
        files[HEADS] = heads
    return files


def _fitted_heads(program: AgenticRAG) -> bytes:
    """The heads that were fitted for the program so far, as safetensors; empty when there are none."""
    export = getattr(program.runtime.models.decide, "export_heads", None)
    heads: Mapping[str, Any] = export(program.requests.kept(dict(program.named_predictors()))) if export else {}
    if not heads:
        return b""
    from safetensors.numpy import save

    content: bytes = save(heads)
    return content


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


def _named(manifest: Manifest, point: str) -> Mapping[str, float]:
    """The setting of an operating point."""
    points: Mapping[str, Mapping[str, float]] = manifest.section("points")
    if point not in points:
        raise VersionError(
            f"{manifest.name}@{manifest.version} has no operating point {point!r}.",
            f"Use one of: {', '.join(sorted(points))}.",
        )
    return points[point]


def _check_wish(name: str, value: object, what: str, least: float = -math.inf) -> None:
    """Raises `VersionError`, naming the argument, for a wish that is given and no number it could be."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= least:  # NaN is not
        raise VersionError(f"{name} cannot be {repr(value)[:80]}.", f"Give a number {what}.")


def _wanted(manifest: Manifest, calls: float | None, utility: float | None, usd: float | None) -> Mapping[str, float]:
    """The setting of the frontier within the wishes: of most utility, or of fewest calls when utility was asked for."""
    path = manifest.folder / FRONTIER
    stored = orjson.loads(path.read_bytes()) if path.is_file() else []
    fit = [
        p
        for p in stored
        if (calls is None or p["calls"] <= calls)
        and (utility is None or p["utility"] >= utility)
        and (usd is None or p.get("usd", math.inf) <= usd)  # versions of before did not note it
    ]
    if not fit:
        reached = "; ".join(f"utility {p['utility']:.2f} at {p['calls']:.2f} calls" for p in stored)
        raise VersionError(
            f"No setting of {manifest.name}@{manifest.version} fulfils that.",
            f"Its frontier: {reached}." if reached else "It holds no frontier: compile it again.",
        )
    chosen = max(fit, key=lambda p: p["utility"]) if utility is None else min(fit, key=lambda p: p["calls"])
    found: Mapping[str, float] = chosen["setting"]
    return found


def _restore(program: AgenticRAG, manifest: Manifest) -> None:
    program.load_state(orjson.loads((manifest.folder / STATE).read_bytes()))
    heads = manifest.folder / HEADS
    adopt = getattr(program.runtime.models.decide, "import_heads", None)
    if heads.is_file() and adopt is not None:
        from safetensors.numpy import load_file

        adopt(load_file(heads))


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
            "Say where it is: --project FOLDER, or load(..., project=FOLDER).",
        ) from error
