"""Predictors that decide, in anybody's program: by the embedded decider, or by a model asked for probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from enum import Enum
from typing import Any, Literal, Self

import dspy
from dspy.utils.exceptions import AdapterParseError

from ragc.loop.policy import is_declared
from ragc.models.requests import to_jsonable

Labels = Mapping[str, Enum]
"""The members of an Enum by the labels that stand for them."""


class DecidedPredict(dspy.Predict):
    """A predictor some of whose outputs are read from probabilities.

    What is declared as an Enum is decided as a Literal of its labels and returned as a member. A language model that
    never gave the probabilities which compiled fields ask for is asked in the plain form, after the first time at once.
    """

    labels: Mapping[str, Labels]  # of each output that is declared as an Enum
    gives: dict[str, bool]  # whether a model, by its name, was seen to give probabilities
    stands_for: Self | None = None  # the predictor that DSPy's trace names

    def forward(self, **kwargs: Any) -> Any:
        """Return the prediction."""
        model = kwargs.get("lm") or self.lm or dspy.settings.lm
        if self._may_give(model):
            with self._noting(model):
                return super().forward(**kwargs)
        return type(self).forward(self._without_fields(), **kwargs)

    async def aforward(self, **kwargs: Any) -> Any:
        """Return the prediction, awaited."""
        model = kwargs.get("lm") or self.lm or dspy.settings.lm
        if self._may_give(model):
            with self._noting(model):
                return await super().aforward(**kwargs)
        return await type(self).aforward(self._without_fields(), **kwargs)

    def _may_give(self, model: Any) -> bool:
        return not asks_for_more(self) or self.gives.get(str(model.model), True)

    @contextmanager
    def _noting(self, model: Any) -> Iterator[None]:
        """Note whether a model gives probabilities; a reply without them goes unheard where there is a plain form."""
        try:
            yield
        except (AdapterParseError, ValueError):
            if not (asks_for_more(self) and isinstance(model, dspy.BaseLM)):
                raise
            self.gives.setdefault(model.model, False)
        else:
            if asks_for_more(self):
                self.gives[str(model.model)] = True

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
        predictor.gives, predictor.labels = {}, {}
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
