"""A program as sealed files and back, checked against the code, the models and the project that are to run it.

Code is never taken from an artifact.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from dspy.adapters.types.decision import decision_type

from program.errors import IntegrityError, ModelError, VersionError
from program.loop.policy import LEVEL, Knob, find_dimensions
from program.loop.rag import AgenticRAG
from program.models.catalog import listed, missing_keys
from program.project import Project
from program.serve.manifest import Manifest

STATE = "program.json"
HEADS = "heads.safetensors"
FRONTIER = "frontier.json"
ROLES = ("decide", "write", "judge")
COMPILE_ANEW = "Compile it again with this code and these settings: ragc compile PROJECT"
_log = logging.getLogger(__name__)


def export_files(program: AgenticRAG) -> dict[str, bytes]:
    """Return the files that hold what was learned: the state, and the heads fitted so far."""
    if frozen := [n for n, m in program.named_sub_modules() if getattr(m, "_compiled", False)]:
        what = f"{', '.join(frozen)} is marked as compiled, and DSPy would leave its state out."
        raise IntegrityError(what, "Set _compiled to False on it before saving.")
    state: dict[str, Any] = program.dump_state()
    for part in state.values():
        if isinstance(part, dict) and "signature" in part:  # what is not learned stays out: model, trace
            part.pop("metadata", None)
            part.update(lm=None, traces=[], train=[])
    files = {STATE: orjson.dumps(state, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)}
    export = getattr(program.runtime.models.decide, "export_heads", None)
    if export and (heads := export(program.requests.kept(dict(program.named_predictors())))):
        from safetensors.numpy import save

        files[HEADS] = save(heads)
    return files


def restore_state(program: AgenticRAG, manifest: Manifest) -> None:
    """Load the sealed state and heads into a program. Raises `IntegrityError` when they are another program's."""
    state = orjson.loads((manifest.folder / STATE).read_bytes())
    check_fit(manifest, program, state)
    program.load_state(state)
    heads = manifest.folder / HEADS
    adopt = getattr(program.runtime.models.decide, "import_heads", None)
    if heads.is_file() and adopt is not None:
        from safetensors.numpy import load_file

        adopt(load_file(heads))


def setting_of_point(manifest: Manifest, point: str) -> Mapping[str, float]:
    """Return the values of an operating point. Raises `VersionError` when there is no such point."""
    points: Mapping[str, Mapping[str, float]] = manifest.section("points")
    if point not in points:
        mend = f"Use one of: {', '.join(sorted(points))}."
        raise VersionError(f"{manifest.label} has no operating point {point!r}.", mend, points=sorted(points))
    return points[point]


def setting_for_wish(
    manifest: Manifest, *, calls: float | None, utility: float | None, usd: float | None
) -> Mapping[str, float]:
    """Return the setting of the frontier that fulfils a wish.

    Within `calls` and `usd` a question it is the one of most utility, with at least `utility` the one of fewest
    calls. Raises `VersionError` when none fulfils it.
    """
    path = manifest.folder / FRONTIER
    frontier = orjson.loads(path.read_bytes()) if path.is_file() else []
    fit = [
        point
        for point in frontier
        if (calls is None or point["calls"] <= calls)
        and (utility is None or point["utility"] >= utility)
        and (usd is None or point["usd"] <= usd)
    ]
    if not fit:
        reached = "; ".join(f"utility {p['utility']:.2f} at {p['calls']:.2f} calls" for p in frontier)
        mend = f"Its frontier: {reached}." if reached else "It holds no frontier: compile it again."
        raise VersionError(f"No setting of {manifest.label} fulfils that.", mend)
    chosen = max(fit, key=lambda p: p["utility"]) if utility is None else min(fit, key=lambda p: p["calls"])
    setting: Mapping[str, float] = chosen["setting"]
    return setting


def describe_structure(program: AgenticRAG) -> list[dict[str, Any]]:
    """Return the predictors with their fields (name, direction, type), and the knobs with their ranges, in order."""
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


def require_keys(project: Project, role: str, whose: str) -> None:
    """Raise `ModelError` when the environment lacks a key for the project's model of a role."""
    named = getattr(project.settings.models, role)
    if missing := [key for name in listed(named) for key in missing_keys(name, project.settings.provider)]:
        raise ModelError(
            f"{whose} cannot reach its model for {role}, {named}: no {', '.join(missing)}.",
            f"Set {', '.join(missing)} in the environment, or name another model in [models] {role}.",
        )


def check_models(manifest: Manifest, project: Project) -> None:
    """Raise when the project's models cannot run a version; warn when they are others.

    `IntegrityError` is for another embedding model, `ModelError` for a key that is missing in the environment. A
    decider, judge or writer other than at compile time is allowed, but thresholds were fitted to the first.
    """
    then, now = manifest.section("models"), project.settings.models.model_dump()
    if "embed" in then and then["embed"] != now["embed"]:
        there, here = then["embed"], now["embed"]
        raise IntegrityError(
            f"{manifest.label} was compiled with the embedding model {there}, the project names {here}.",
            f'Set [models] embed = "{there}" in ragc.toml and run: ragc index PROJECT. {COMPILE_ANEW}',
        )
    for role in ROLES:
        require_keys(project, role, manifest.label)
        if role in then and listed(then[role]) != listed(now[role]):  # a cascade is sealed as a list, opened as a tuple
            before, after = (" > ".join(listed(names)) or "nothing" for names in (then[role], now[role]))
            _log.warning("%s was compiled with %s = %s and runs with %s.", manifest.label, role, before, after)


def check_knowledge(manifest: Manifest, program: AgenticRAG) -> None:
    """Warn when the documents are not those that a version was compiled, and so scored, over."""
    then, now = manifest.section("knowledge").get("corpus_digest"), program.runtime.library.corpus_digest
    if then not in (None, now):
        _log.warning(
            "%s was compiled over other documents than there are now (%.14s then, %.14s now): measure it with "
            "`ragc eval`, or compile it again.",
            manifest.label,
            then,
            now,
        )


def check_fit(manifest: Manifest, program: AgenticRAG, state: Mapping[str, Any]) -> None:
    """Raise `IntegrityError`, listing every difference, when a version is of another program.

    Predictors and their fields must be the same in name, order and type, and so must the embedding model's
    digest; knobs must be the same, and their saved values, with those of every operating point, within range.
    """
    found = [_show_item(item) for item in manifest.section("program").get("structure", [])]
    here = [_show_item(item) for item in describe_structure(program)]
    differences = [f"missing here: {item}" for item in found if item not in here]
    differences += [f"missing in the artifact: {item}" for item in here if item not in found]
    if not differences and found != here:
        differences = ["the order of the predictors differs"]
    held, wanted = set(state), {name for name, _ in program.named_parameters()}
    differences += [f"its state has no {name}" for name in sorted(wanted - held)]
    differences += [f"its state has a surplus {name}" for name in sorted(held - wanted)]
    differences += _find_out_of_range(manifest, program, state)
    embed = manifest.section("models").get("embedder")
    if embed != program.runtime.models.embedder.digest:
        differences.append(f"embedding model {embed} there, {program.runtime.models.embedder.digest} here")
    if differences:
        what = f"{manifest.label} does not fit this program: {'; '.join(differences)}."
        raise IntegrityError(what, COMPILE_ANEW, differences=differences)


def _find_out_of_range(manifest: Manifest, program: AgenticRAG, state: Mapping[str, Any]) -> Iterator[str]:
    """Yield values that the program's knobs and decisions cannot take, and settings it does not have."""
    settings = {"": {name: part["value"] for name, part in state.items() if "value" in part}}
    settings |= {f" at {point}": dict(values) for point, values in manifest.section("points").items()}
    ranges = {d.name: _loadable_range(d.name, d.low, d.high) for d in find_dimensions(program)}
    for where, setting in settings.items():
        for name, value in setting.items():
            if name not in ranges:
                yield f"unknown setting{where}: {name}"
                continue
            low, high = ranges[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                yield f"{name} is {value!r}{where}, outside [{low:g}, {high:g}]"


def _loadable_range(name: str, low: float, high: float) -> tuple[float, float]:
    """Return a knob's own range; (0, 1) for a threshold; anything above 0 for the weight of a label.

    The ranges of a decision say where a search looks, not what is valid.
    """
    _, decision, output = name.partition(":")
    if not decision or LEVEL in output:  # cuts keep their order only within their own ranges
        return low, high
    return (math.ulp(0.0), math.inf) if "=" in output else (0.0, 1.0)


def _type_name(field: Any) -> str:
    kind = decision_type(field)
    return str(getattr(kind or field.annotation, "__name__", kind or field.annotation))


def _show_item(item: Mapping[str, Any]) -> str:
    if "knob" in item:
        return f"knob {item['knob']}"
    fields = ", ".join(f"{name}: {kind} ({way})" for name, way, kind in item["fields"])
    return f"{item['predictor']}({fields})"
