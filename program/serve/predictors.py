"""Predictors that decide, in anybody's program: by the embedded decider, or by a model asked for probabilities."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from copy import copy
from enum import Enum
from typing import Any, Literal, Self

import dspy
from dspy.utils.exceptions import AdapterParseError

from ragc.loop.policy import is_declared
from ragc.models.requests import to_jsonable

LONGEST_WAIT = 30.0  # seconds for which a first request to a model holds others back

Labels = Mapping[str, Enum]
"""The members of an Enum by the labels that stand for them."""


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
