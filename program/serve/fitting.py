"""Whether a sealed version fits the code, the models and the project that are to run it."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

from dspy.adapters.types.decision import decision_type

from program.errors import IntegrityError, ModelError
from program.loop.knobs import Knob
from program.loop.parameters import LEVEL, space
from program.loop.rag import AgenticRAG
from program.models.catalog import list_names, missing_keys
from program.serve.manifest import Manifest
from program.settings import Project

COMPILE_AGAIN = "Compile it again with this code and these settings: ragc compile PROJECT"
ROLES = ("decide", "write", "judge")
_log = logging.getLogger(__name__)


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


def require_keys(project: Project, role: str, whose: str) -> None:
    """Raises `ModelError` when the environment lacks a key for a model that the project names for a role."""
    named = getattr(project.settings.models, role)
    if missing := [key for name in list_names(named) for key in missing_keys(name, project.settings.provider)]:
        raise ModelError(
            f"{whose} cannot reach its model for {role}, {named}: no {', '.join(missing)}.",
            f"Set {', '.join(missing)} in the environment, or name another model in [models] {role}.",
        )


def check_models(manifest: Manifest, project: Project) -> None:
    """Raises when the models that the project names cannot run the version; warns when they are others.

    `IntegrityError` for another embedding model, `ModelError` for a key that is missing in the environment.
    A decider, judge or writer other than at compile time is allowed, but thresholds were fitted to the first.
    """
    then, now = manifest.section("models"), project.settings.models.model_dump()
    version = f"{manifest.name}@{manifest.version}"
    if "embed" in then and then["embed"] != now["embed"]:
        raise IntegrityError(
            f"{version} was compiled with the embedding model {then['embed']}, the project names {now['embed']}.",
            f'Set [models] embed = "{then["embed"]}" in ragc.toml and run: ragc index PROJECT. {COMPILE_AGAIN}',
        )
    for role in ROLES:
        require_keys(project, role, version)
        if role in then and list_names(then[role]) != list_names(
            now[role]
        ):  # a cascade is sealed as a list, opened as a tuple
            before, here = (" > ".join(list_names(names)) or "nothing" for names in (then[role], now[role]))
            _log.warning("%s was compiled with %s = %s and runs with %s.", version, role, before, here)


def check_knowledge(manifest: Manifest, program: AgenticRAG) -> None:
    """Warns when the documents are not those that the version was compiled over: its scores are of those."""
    then, now = manifest.section("knowledge").get("corpus_digest"), program.runtime.library.corpus_digest
    if then not in (None, now):
        version = f"{manifest.name}@{manifest.version}"
        _log.warning(
            "%s was compiled over other documents than there are now (%.14s then, %.14s now): measure it with "
            "`ragc eval`, or compile it again.",
            version,
            then,
            now,
        )


def check_fit(manifest: Manifest, program: AgenticRAG, state: Mapping[str, Any]) -> None:
    """Raises `IntegrityError`, listing every difference, when the version is of another program.

    Predictors and their fields must be the same in name, order and type, and so must the embedding model's
    digest; knobs must be the same, and their saved values, with those of every operating point, within range.
    """
    found = [_shown(item) for item in manifest.section("program").get("structure", [])]
    here = [_shown(item) for item in structure_of(program)]
    differences = [f"missing here: {item}" for item in found if item not in here]
    differences += [f"missing in the artifact: {item}" for item in here if item not in found]
    if not differences and found != here:
        differences = ["the order of the predictors differs"]
    held, wanted = set(state), {name for name, _ in program.named_parameters()}
    differences += [f"its state has no {name}" for name in sorted(wanted - held)]
    differences += [f"its state has a surplus {name}" for name in sorted(held - wanted)]
    differences += _out_of_range(manifest, program, state)
    embed = manifest.section("models").get("embedder")
    if embed != program.runtime.models.embedder.digest:
        differences.append(f"embedding model {embed} there, {program.runtime.models.embedder.digest} here")
    if differences:
        raise IntegrityError(
            f"{manifest.name}@{manifest.version} does not fit this program: {'; '.join(differences)}.", COMPILE_AGAIN
        )


def _out_of_range(manifest: Manifest, program: AgenticRAG, state: Mapping[str, Any]) -> Iterator[str]:
    """Values that the program's knobs and decisions cannot take, and settings it does not have."""
    settings = {"": {name: part["value"] for name, part in state.items() if "value" in part}}
    settings |= {f" at {point}": dict(values) for point, values in manifest.section("points").items()}
    ranges = {d.name: _range(d.name, d.low, d.high) for d in space(program)}
    for where, setting in settings.items():
        for name, value in setting.items():
            if name not in ranges:
                yield f"unknown setting{where}: {name}"
                continue
            low, high = ranges[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                yield f"{name} is {value!r}{where}, outside [{low:g}, {high:g}]"


def _range(name: str, low: float, high: float) -> tuple[float, float]:
    """What may be loaded: a knob's own range; any probability for a threshold, any weight of a label.

    The ranges of a decision say where a search looks, not what is valid.
    """
    _, decision, output = name.partition(":")
    if not decision or LEVEL in output:  # cuts keep their order only within their own ranges
        return low, high
    return (math.ulp(0.0), math.inf) if "=" in output else (0.0, 1.0)


def _type_name(field: Any) -> str:
    kind = decision_type(field)
    return str(getattr(kind or field.annotation, "__name__", kind or field.annotation))


def _shown(item: Mapping[str, Any]) -> str:
    if "knob" in item:
        return f"knob {item['knob']}"
    fields = ", ".join(f"{name}: {kind} ({way})" for name, way, kind in item["fields"])
    return f"{item['predictor']}({fields})"
