"""A program as sealed files and back, checked against the code, the models and the project that are to run it.

Code is never taken from an artifact.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import dspy
import orjson
from dspy.adapters.types.decision import decision_type
from safetensors.numpy import load_file, save

from ragc.errors import IntegrityError, ModelError, VersionError
from ragc.knowledge.project import Project
from ragc.loop import reviewed
from ragc.loop.policy import LEVEL, Knob, Risk, apply_setting, find_dimensions
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import Runtime
from ragc.models.catalog import missing_keys
from ragc.models.embedded.decider import LocalDecider
from ragc.models.language.layout import Layout
from ragc.serve.reference import Manifest

STATE = "program.json"
HEADS = "heads.safetensors"
DEFAULT_POINT = "balanced"
ROLES = ("decide", "write", "query", "judge")
VERSION_DIGEST = "version_digest"  # what a loaded program holds its version's digest as
COMPILE_ANEW = "Compile it again, by `ragc compile`, with this code and these settings."
_log = logging.getLogger(__name__)


def export_files(program: AgenticRAG) -> dict[str, bytes]:
    """Return the files that hold what was learned: state and fitted heads."""
    asked = program.requests.kept(dict(program.named_predictors()))
    return export_state(program, program.runtime.models.embedded.export_heads(asked))


def export_state(program: dspy.Module, heads: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files that hold a program's state, and heads if there are any."""
    if frozen := [n for n, m in program.named_sub_modules() if getattr(m, "_compiled", False)]:
        what = f"{', '.join(frozen)} is marked as compiled, and DSPy would leave its state out."
        raise IntegrityError(what, "Set _compiled to False on it before saving.")
    state: dict[str, Any] = program.dump_state()
    state = {"self": state} if isinstance(program, dspy.Predict) else state
    for part in state.values():
        if isinstance(part, dict) and "signature" in part:  # what is not learned stays out: model, trace
            part.pop("metadata", None)
            part.update(lm=None, traces=[], train=[])
    files = {STATE: orjson.dumps(state, option=orjson.OPT_INDENT_2)}  # in order: a demonstration is shown as it lies
    if heads:
        files[HEADS] = save(dict(heads))
    return files


def restore_program(
    program: dspy.Module,
    manifest: Manifest,
    embedded: LocalDecider | None,
    weights: Mapping[str, str],
    point: str | None = None,
) -> None:
    """Load sealed state and heads into a program, set to an operating point.

    Raises `IntegrityError` when they are another program's, `VersionError` for an unknown point.
    """
    state = orjson.loads((manifest.path / STATE).read_bytes())
    for name, predictor in program.named_predictors():  # by which some parameters are there at all
        predictor.fields = dict(state.get(name, {}).get("fields", {}))
    check_fit(manifest, program, state, weights)
    program.load_state(state["self"] if isinstance(program, dspy.Predict) else state)
    heads = manifest.path / HEADS
    if embedded is not None and heads.is_file():
        embedded.import_heads(load_file(heads))
    points: Mapping[str, Mapping[str, float]] = manifest.section("points")
    if (named := point or DEFAULT_POINT) not in points:
        what, mend = f"{manifest.label} has no operating point {named!r}.", f"Use one of: {', '.join(sorted(points))}."
        raise VersionError(what, mend, points=sorted(points))
    apply_setting(program, points[named])
    setattr(program, VERSION_DIGEST, manifest.digest)
    if promised := manifest.section("risk").get(named):
        program.risk = Risk(**promised)
        program.policy.turn(refuse_below=program.risk.threshold)


def restore_reviewed(runtime: Runtime, manifest: Manifest) -> Runtime:
    """Return what a program runs on, with its version's reviewed answers."""
    sealed, told = manifest.path / reviewed.FILE, manifest.section("reviewed")
    if runtime.reviewed is None or not sealed.is_file():
        return runtime
    return replace(runtime, reviewed=runtime.reviewed.sealed_with(sealed.read_bytes(), float(told["same"])))


def describe_structure(program: dspy.Module) -> list[dict[str, Any]]:
    """Return predictors with fields, layouts, and knobs with ranges, in order."""
    structure: list[dict[str, Any]] = []
    for name, parameter in program.named_parameters():
        if isinstance(parameter, Knob):
            structure.append({"knob": name, "low": parameter.low, "high": parameter.high})
            continue
        if isinstance(parameter, Layout):
            structure.append({"layout": name})
            continue
        ways = {"in": parameter.signature.input_fields, "out": parameter.signature.output_fields}
        fields = [[n, way, _type_name(f)] for way, found in ways.items() for n, f in found.items()]
        structure.append({"predictor": name, "fields": fields})
    return structure


def require_keys(project: Project, role: str, whose: str) -> None:
    """Raise `ModelError` when the environment lacks a key for a role's model."""
    named = getattr(project.settings.models, role)
    if missing := missing_keys(named, project.settings.provider):
        raise ModelError(
            f"{whose} cannot reach its model for {role}, {named}: no {', '.join(missing)}.",
            f"Set {', '.join(missing)} in the environment, or name another model in [models] {role}.",
        )


def check_models(manifest: Manifest, project: Project) -> None:
    """Raise when a project's models cannot run a version; warn of others.

    `IntegrityError` is for another embedding model, `ModelError` for a key that is missing in the environment. A
    decider, judge or writer other than at compile time is allowed, but thresholds were fitted to the first.
    """
    then, now = manifest.section("models"), project.settings.models.model_dump()
    here = now["embed"]
    if (there := then.get("embed", here)) != here:
        raise IntegrityError(
            f"{manifest.label} was compiled with the embedding model {there}, the project names {here}.",
            f'Set [models] embed = "{there}" in ragc.toml and run: ragc index {project.argument}. {COMPILE_ANEW}',
        )
    for role in ROLES:
        require_keys(project, role, manifest.label)
        before, after = (name or "nothing" for name in (then.get(role, now[role]), now[role]))
        if before != after:
            _log.warning("%s was compiled with %s = %s and runs with %s.", manifest.label, role, before, after)


def check_fit(manifest: Manifest, program: dspy.Module, state: Mapping[str, Any], weights: Mapping[str, str]) -> None:
    """Raise `IntegrityError` with every difference from another program.

    Predictors and their fields must be the same in name, order and type, and so must the digests of the embedded
    models; knobs must be the same, and their saved values, with those of every operating point, within range.
    """
    found = [_show_item(item) for item in manifest.section("program").get("structure", [])]
    here = [_show_item(item) for item in describe_structure(program)]
    differences = [f"missing here: {item}" for item in found if item not in here]
    differences += [f"missing in the artifact: {item}" for item in here if item not in found]
    if not differences and found != here:
        differences = ["the order of the predictors differs"]
    saved, wanted = set(state), {name for name, _ in program.named_parameters()}
    differences += [f"its state has no {name}" for name in sorted(wanted - saved)]
    differences += [f"its state has a surplus {name}" for name in sorted(saved - wanted)]
    differences += _find_out_of_range(manifest, program, state)
    there = manifest.section("models")
    other = {role: own for role, own in weights.items() if there.get(role) != own}
    differences += [f"{role} {str(there.get(role))[:15]} there, {own[:15]} here" for role, own in other.items()]
    if differences:
        what = f"{manifest.label} does not fit this program: {'; '.join(differences)}."
        raise IntegrityError(what, COMPILE_ANEW, differences=differences)


def _find_out_of_range(manifest: Manifest, program: dspy.Module, state: Mapping[str, Any]) -> Iterator[str]:
    settings = {"": {name: part["value"] for name, part in state.items() if "value" in part}}
    settings |= {f" at {point}": dict(values) for point, values in manifest.section("points").items()}
    knobs = ((name, knob) for name, knob in program.named_parameters() if isinstance(knob, Knob))
    ranges = {name: (knob.low, knob.high) for name, knob in knobs}
    ranges |= {d.name: _loadable_range(d.name, d.low, d.high) for d in find_dimensions(program)}
    for where, setting in settings.items():
        for name, value in setting.items():
            if name not in ranges:
                yield f"unknown setting{where}: {name}"
                continue
            low, high = ranges[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                yield f"{name} is {value!r}{where}, outside [{low:g}, {high:g}]"


def _loadable_range(name: str, low: float, high: float) -> tuple[float, float]:
    """Return the range of valid values, wider than where a search looks."""
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
    if "layout" in item:
        return f"layout {item['layout']}"
    fields = ", ".join(f"{name}: {kind} ({way})" for name, way, kind in item["fields"])
    return f"{item['predictor']}({fields})"
