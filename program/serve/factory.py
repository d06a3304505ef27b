"""Anybody's DSPy program: made by a function that the caller names, its learned state restored from a version.

The function is never named by an artifact, so that no sealed folder has code imported. Predictors that decide are
answered by the embedded decider, or by a model that is asked for probabilities.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from copy import copy
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Self

import dspy
import orjson
from dspy.utils.exceptions import AdapterParseError

from ragc.errors import DataError, ModelError, SettingsError
from ragc.loop.policy import is_declared
from ragc.models.catalog import only_decisions
from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import shared_embedder
from ragc.models.embedded.reader import READER, shared_reader
from ragc.models.requests import RequestCache, to_jsonable
from ragc.serve.artifact import DEFAULT_POINT, describe_structure, export_state, restore_program
from ragc.serve.manifest import explain_own_code
from ragc.serve.reference import Manifest, digest_of

MODULE = "module"  # kind of program in a manifest; one without a kind is a project's
Factory = Callable[[], dspy.Module]
LONGEST_WAIT = 30.0  # seconds for which a first request to a model holds others back
Labels = Mapping[str, Enum]
"""The members of an Enum by the labels that stand for them."""
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
    return require_names(made)


def require_names(program: dspy.Module) -> dspy.Module:
    """Return the program.

    Raises `SettingsError` when DSPy has one name for two of its parts, and so one state.
    """
    for path, module in program.named_sub_modules():
        for attribute, parts in vars(module).items():
            keys: dict[str, Any] = {}
            for key in parts if isinstance(parts, dict) else ():
                if (other := keys.setdefault(str(key), key)) is not key and isinstance(parts[key], dspy.Module):
                    twice = " and ".join(f"{path}.{attribute}[{one!r}]".removeprefix("self.") for one in (other, key))
                    what = f"{twice} are one name to DSPy, which would save one state for both."
                    raise SettingsError(what, "Give them keys that differ as text.")
    return program


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
    """Have another program of these predictors know what this one knows of models."""
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


class Abilities:
    """Whether models, by their names, were seen to give probabilities. Safe from many threads; copies share it.

    The first request to a model holds others back: what it asks for in vain, nobody else asks for.
    """

    def __init__(self) -> None:
        self._gives: dict[str, bool] = {}
        self._first: dict[str, Future[None]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Abilities:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Abilities, ()

    def find_first(self, model: Any) -> list[Future[None]]:
        """Return what ends with the first request to a model, for whoever waits."""
        if model.model in self._gives:
            return []
        first = self._first.setdefault(model.model, new := Future[None]())
        return [] if first is new else [first]

    def may_give(self, model: Any) -> bool:
        """Tell whether a model gives probabilities as far as it is known."""
        return self._gives.get(model.model, True)

    @contextmanager
    def noting(self, model: Any) -> Iterator[None]:
        """Note whether a model gives probabilities; a reply without them goes unheard."""
        try:
            yield
            self._gives[model.model] = True
        except (AdapterParseError, ValueError):
            if not isinstance(model, dspy.BaseLM):
                raise
            self._gives.setdefault(model.model, False)
        finally:
            if (first := self._first.pop(model.model, None)) is not None:
                first.set_result(None)


class DecidedPredict(dspy.Predict):
    """A predictor some of whose outputs are read from probabilities.

    What is declared as an Enum is decided as a Literal of its labels and returned as a member. A language model that
    never gave the probabilities which compiled fields ask for is asked in the plain form, after the first time at once.
    """

    labels: Mapping[str, Labels]  # of each output that is declared as an Enum
    abilities: Abilities
    stands_for: Self | None = None  # the predictor that DSPy's trace names

    def forward(self, **kwargs: Any) -> Any:
        """Return the prediction."""
        if not asks_for_more(self):
            return super().forward(**kwargs)
        model = kwargs.get("lm") or self.lm or dspy.settings.lm
        wait(self.abilities.find_first(model), LONGEST_WAIT)
        if self.abilities.may_give(model):
            with self.abilities.noting(model):
                return super().forward(**kwargs)
        return type(self).forward(self._without_fields(), **kwargs)

    async def aforward(self, **kwargs: Any) -> Any:
        """Return the prediction, awaited."""
        if not asks_for_more(self):
            return await super().aforward(**kwargs)
        model = kwargs.get("lm") or self.lm or dspy.settings.lm
        if first := self.abilities.find_first(model):
            await asyncio.wait(map(asyncio.wrap_future, first), timeout=LONGEST_WAIT)
        if self.abilities.may_give(model):
            with self.abilities.noting(model):
                return await super().aforward(**kwargs)
        return await type(self).aforward(self._without_fields(), **kwargs)

    def _without_fields(self) -> Self:
        """Return a twin that asks for what its signature declares."""
        twin, outputs = copy(self), self.signature.output_fields
        twin.stands_for = self
        twin.fields = {name: found for name, found in self.fields.items() if is_declared(outputs[name])}
        return twin

    def _should_stream(self) -> bool:
        return False  # probabilities are no words that could come one by one

    def _forward_postprocess(self, completions: Any, signature: Any, **kwargs: Any) -> Any:
        decided = [
            {name: self.labels[name][str(value)] if name in self.labels else value for name, value in one.items()}
            for one in completions
        ]
        return super(DecidedPredict, self.stands_for or self)._forward_postprocess(decided, signature, **kwargs)


dspy.DecidedPredict = DecidedPredict  # instrumentation looks for every subclass of Predict by its name in dspy


def asks_for_more(predictor: dspy.Predict) -> bool:
    """Tell whether a predictor's fields ask for more probabilities than its types do."""
    return any(not is_declared(predictor.signature.output_fields[name]) for name in predictor.fields)


def adopt_predictor(predictor: dspy.Predict) -> None:
    """Make a predictor one that decides, its Enums as Literals, wherever it stands."""
    kind = type(predictor)
    if not issubclass(kind, DecidedPredict):
        decided: Any = type(kind.__name__, (DecidedPredict, kind), {})
        predictor.__class__ = DecidedPredict if kind is dspy.Predict else decided
        predictor.abilities, predictor.labels = Abilities(), {}
    if found := find_enums(predictor.signature):
        predictor.labels = found
        predictor.signature = decide_enums(predictor.signature)


def find_enums(signature: Any) -> dict[str, Labels]:
    """Return the outputs that are declared as an Enum, with its members by label."""
    kinds = {name: field.annotation for name, field in signature.output_fields.items()}
    return {
        name: {str(to_jsonable(member)): member for member in kind}
        for name, kind in kinds.items()
        if isinstance(kind, type) and issubclass(kind, Enum)
    }


def decide_enums(signature: Any) -> Any:
    """Return a signature with a Literal of labels in the place of each Enum output."""
    for name, labels in find_enums(signature).items():
        signature = signature.with_updated_fields(name, type_=Literal[tuple(labels)])
    return signature


def own_class(program: dspy.Module) -> type[dspy.Module]:
    """Return the class that a program was made of."""
    return next(kind for kind in type(program).__mro__ if not issubclass(kind, DecidedPredict))
