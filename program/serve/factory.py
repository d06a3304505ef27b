"""Anybody's DSPy program: made by a function that the caller names, its learned state restored from a version.

The function is never named by an artifact, so that no sealed folder has code imported.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy
import orjson

from ragc.errors import DataError, ModelError, SettingsError
from ragc.models.catalog import only_decisions
from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import shared_embedder
from ragc.models.embedded.reader import READER, shared_reader
from ragc.models.requests import RequestCache
from ragc.serve.artifact import DEFAULT_POINT, describe_structure, export_state, restore_program
from ragc.serve.manifest import explain_own_code
from ragc.serve.predictors import DecidedPredict, adopt_predictor, asks_for_more, decide_enums, own_class
from ragc.serve.reference import Manifest, digest_of

MODULE = "module"  # kind of program in a manifest; one without a kind is a project's
Factory = Callable[[], dspy.Module]
_log = logging.getLogger(__name__)


def make_program(make: Factory) -> dspy.Module:
    """Return a program that a function makes. Raises `SettingsError` without one."""
    name = getattr(make, "__qualname__", repr(make))
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        what = f"{name} cannot be called without arguments ({error})."
        raise SettingsError(what, "Name a function that takes none and returns a dspy.Module.") from error
    try:
        made = make()
    except Exception as error:
        raise SettingsError(
            f"{name} raised {type(error).__name__}: {error}.", "Mend it: it makes the program."
        ) from error
    if not isinstance(made, dspy.Module):
        what = f"{name} returned {type(made).__name__}, not a dspy.Module."
        raise SettingsError(what, "Name a function that returns the program.")
    return made


def open_decider() -> LocalDecider:
    """Return an embedded decider of its own."""
    return LocalDecider(shared_embedder(), shared_reader())


def find_undecided(program: dspy.Module) -> list[str]:
    """Return the predictors that the embedded decider answers, having no model.

    Raises `ModelError` for one that writes and has no model.
    """
    alone = [(name, one) for name, one in program.named_predictors() if not (one.lm or dspy.settings.lm)]
    if writers := [name for name, one in alone if not only_decisions(decide_enums(one.signature))]:
        what = f"{writers[0]} has an output that is no decision, and no language model to write it."
        mend = "Call dspy.configure(lm=...) where the program is made, or make it a Literal, an Enum, bool or Choice."
        raise ModelError(what, mend)
    for name, one in alone:
        for field, info in one.signature.output_fields.items():
            if (info.json_schema_extra or {}).get("desc") in (None, "", f"${{{field}}}"):
                what, mend = f"The output {field} of {name} has no description.", "Give it one: OutputField(desc=...)."
                raise DataError(what, mend)
    return [name for name, _ in alone]


def take_state(program: dspy.Module, state: bytes, undecided: list[str]) -> None:
    """Give a program a sealed state, as `restore_module` does."""
    found = orjson.loads(state)
    adopt_predictors(program, undecided)
    with _keeping_models(program):
        program.load_state(found["self"] if isinstance(program, dspy.Predict) else found)
    adopt_predictors(program, undecided)


@contextmanager
def _keeping_models(program: dspy.Module) -> Iterator[None]:
    """Leave predictors the models that the program's code gave them: no state holds one."""
    own = {name: predictor.lm for name, predictor in program.named_predictors()}
    yield
    for name, predictor in program.named_predictors():
        predictor.lm = own.get(name)


def find_stateless(program: dspy.Module) -> dict[str, str]:
    """Return the parts of a program that code does not make again, and why."""
    found = {}
    for name, part in program.named_sub_modules():
        replaced = sorted({"forward", "aforward"} & vars(part).keys())
        kind = own_class(part)
        if replaced:  # as KNNFewShot does
            found[name] = f"its {replaced[0]} is not that of its class"
        elif kind.__module__.startswith("dspy.") and "<locals>" in kind.__qualname__:  # as Ensemble does
            found[name] = f"its class {kind.__name__} was made by an optimizer"
    return found


def adopt_predictors(program: dspy.Module, undecided: list[str], embedded: LocalDecider | None = None) -> None:
    """Give `undecided` predictors the embedded decider, and others a plain form.

    The plain form is for a language model that does not give the probabilities that compiled fields ask for.
    """
    for name, predictor in program.named_predictors():
        if name in undecided:
            predictor.lm = embedded
        if name in undecided or asks_for_more(predictor):
            adopt_predictor(predictor)


def share_abilities(program: dspy.Module, other: dspy.Module) -> None:
    """Have another program of these predictors know what this one knows of its models."""
    for (_, known), (_, predictor) in zip(program.named_predictors(), other.named_predictors(), strict=True):
        if isinstance(known, DecidedPredict):
            predictor.abilities = known.abilities


def list_models(program: dspy.Module, undecided: Collection[str] = ()) -> dict[str, str]:
    """Return the name of the model that answers each predictor."""
    return {
        name: READER if name in undecided else str(getattr(one.lm or dspy.settings.lm, "model", ""))
        for name, one in program.named_predictors()
    }


def describe_module(program: dspy.Module, undecided: list[str]) -> dict[str, Any]:
    """Return a manifest's tables on a program's structure, code and models."""
    models: dict[str, Any] = {"predictors": list_models(program, undecided)}
    if undecided:
        models |= {"embedder": shared_embedder().digest, "reader": shared_reader().digest}
    made = {"kind": MODULE, "class": own_class(program).__qualname__, "code_digest": digest_program_code(program)}
    return {"program": {**made, "structure": describe_structure(program)}, "models": models}


def export_module(program: dspy.Module, undecided: list[str], embedded: LocalDecider) -> dict[str, bytes]:
    """Return the files that hold what a program learned, its state and heads."""
    program = program.deepcopy()
    requests, predictors = RequestCache(), dict(program.named_predictors())
    for predictor in predictors.values():
        predictor.lm = None  # no state holds a model, and some cannot be saved
    for name in undecided:
        if demos := predictors[name].demos:
            inputs = {field: demos[0][field] for field in predictors[name].signature.input_fields}
            requests.ask(name, predictors[name], embedded, [inputs])
    asked = requests.kept(predictors)
    return export_state(program, embedded.export_heads(asked) if asked else {})


def restore_module(manifest: Manifest, make: Factory | None) -> dspy.Module:
    """Return the program that a function makes, with the state of a version.

    Raises `SettingsError` without the function, `IntegrityError` when its program has another structure.
    """
    if manifest.kind != MODULE:
        raise SettingsError(f"{manifest.label} is a project's program.", "Load it without a function that makes it.")
    if make is None:
        raise explain_own_code(manifest)
    program = make_program(make)
    models: Mapping[str, Any] = manifest.section("models")
    undecided = [name for name, model in models.get("predictors", {}).items() if model == READER]
    embedded = open_decider() if undecided else None
    adopt_predictors(program, undecided, embedded)
    weights = {"embedder": embedded.embedder.digest, "reader": embedded.reader.digest} if embedded else {}
    with _keeping_models(program):
        restore_program(program, manifest, embedded, weights, DEFAULT_POINT)
    adopt_predictors(program, undecided, embedded)  # anew: a state may bring fields
    for name, model in list_models(program, undecided).items():
        if model and (before := models.get("predictors", {}).get(name)) and before != model:
            told = manifest.label, before, name, model
            _log.warning("%s was sealed with %s for %s, and here it is %s: measure it again with `ragc eval`.", *told)
    if manifest.section("program").get("code_digest") != digest_program_code(program):
        _log.warning("The code of %s has changed since: measure it again with `ragc eval`.", manifest.label)
    return program


def digest_program_code(program: dspy.Module) -> str:
    """Return the digest of the code of a program's class, or a DSPy class's name."""
    kind = own_class(program)
    if kind.__module__.startswith("dspy."):
        return kind.__qualname__
    try:
        return digest_of(Path(inspect.getfile(kind)).read_bytes())
    except (OSError, TypeError):  # defined in a notebook or a shell
        return ""
