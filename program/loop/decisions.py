"""Who answers a predictor, what is asked of a decision client, and the probabilities read by thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

import dspy
from dspy.adapters.types.decision import Choice, Score, decision_type

from ragc.loop.state import Ask, View
from ragc.models.catalog import Models, is_local
from ragc.models.requests import Evidence, order_levels
from ragc.passage import Passage
from ragc.signatures import excerpts


def is_undecided(decision: Any) -> bool:
    """Tell whether a model's reply could not be read, so that it is no score."""
    # DSPy's own decisions, which come while an optimizer watches, have no such mark.
    return getattr(decision, "undecided", False) is True


def to_prompt_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs as a signature takes them: passages as numbered excerpts."""
    return {name: _prompt_value(value) for name, value in inputs.items()}


@dataclass(frozen=True, slots=True)
class Traits:
    """What a client can do. Anybody's may be given to a program: what it does not say of itself, it cannot do."""

    decides: bool  # whether it takes decisions as structure, not as a prompt
    awaits: bool  # whether it can be awaited for them
    embedded: bool  # whether it runs in this process, and so cannot hang on a network
    metered: bool  # whether its requests are booked as they are made
    plain: bool  # whether it replies by an adapter of its own, and one text as plain text


def traits_of(client: Any) -> Traits:
    """Return what a client can do."""
    awaits = hasattr(client, "awaits")
    return Traits(
        getattr(client, "supports_decision_requests", False) is True,
        awaits,
        is_local(client) and not awaits,
        hasattr(client, "endpoint"),
        hasattr(client, "adapter"),
    )


NO_CLIENT = traits_of(None)


def client_of(models: Models, predictor: dspy.Predict) -> Any:
    """Return the model that answers a predictor: its own, or the program's."""
    if predictor.lm:
        return predictor.lm
    if is_decision(predictor):
        return models.decider(predictor.signature)
    return models.writer(predictor.signature)


def is_decision(predictor: dspy.Predict) -> bool:
    """Tell whether every output of the predictor is a decision."""
    return only_decisions(predictor.signature)


def ask_client(view: View, client: Any, asks: Sequence[Ask]) -> list[Evidence]:
    """Return a client's evidence for decisions, in batches where it takes them."""
    found: list[Evidence] = []
    for name, group in groupby(asks, key=attrgetter("predictor")):
        predictor, inputs = view.predictors[name], [to_prompt_inputs(ask.inputs) for ask in group]
        if traits_of(client).decides:
            found += view.requests.ask(name, predictor, client, inputs)
        else:
            found += [_read_prediction(predictor(lm=client, **one)) for one in inputs]
    return found


async def await_client(view: View, client: Any, asks: Sequence[Ask]) -> list[Evidence]:
    """Return the evidence of a client that can be awaited."""
    pairs = [(ask, view.predictors[ask.predictor]) for ask in asks]
    return [
        await view.requests.aask(ask.predictor, predictor, client, to_prompt_inputs(ask.inputs))
        for ask, predictor in pairs
    ]


def _read_prediction(prediction: dspy.Prediction) -> Evidence:
    return {
        name: order_levels(value.probabilities)
        if isinstance(value, Score)
        else dict(value.probabilities)
        if isinstance(value, Choice)
        else value.probability
        for name, value in prediction.items()
    }


@lru_cache(maxsize=64)  # about three programs' signatures: those of a program that is gone are kept here
def only_decisions(signature: type[dspy.Signature]) -> bool:
    """Tell whether every output of a signature is a decision."""
    return all(decision_type(field) is not None for field in signature.output_fields.values())


def _prompt_value(value: Any) -> Any:
    if isinstance(value, Passage):
        return excerpts([value])[0]
    if isinstance(value, list | tuple):
        return excerpts(value) if value and isinstance(value[0], Passage) else list(value)
    return value
