"""Who answers a predictor, and what that client can do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import dspy
from dspy.adapters.types.decision import Choice, Score, decision_type

from ragc.models.catalog import Models, is_local
from ragc.models.requests import Evidence, order_levels


@dataclass(frozen=True, slots=True)
class Traits:
    """What a client can do. Anybody's may be given to a program: what it does not say of itself, it cannot do."""

    decides: bool  # whether it takes decisions as structure, not as a prompt
    awaits: bool  # whether it can be awaited; another is waited for by a thread
    embedded: bool  # whether it runs in this process, and so cannot hang on a network
    metered: bool  # whether its requests are booked as they are made
    plain: bool  # whether it replies by an adapter of its own, and one text as plain text


def traits_of(client: Any) -> Traits:
    """Return what a client can do."""
    awaits = hasattr(client, "awaits")
    return Traits(
        getattr(client, "supports_decision_requests", False) is True,
        awaits or _can_be_awaited(client),
        is_local(client) and not awaits,
        hasattr(client, "endpoint"),
        hasattr(client, "adapter"),
    )


def _can_be_awaited(client: Any) -> bool:
    """Tell whether a language model was made to be awaited: its class, or its engine, may have no such way."""
    engine = client._async_engine_spec if isinstance(client, dspy.LM) and not isinstance(client.engine, str) else ""
    kind = type(client)
    return isinstance(client, dspy.BaseLM) and kind.aforward is not dspy.BaseLM.aforward and engine is not None


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


@lru_cache(maxsize=64)  # about three programs' signatures: those of a program that is gone are kept here
def only_decisions(signature: type[dspy.Signature]) -> bool:
    """Tell whether every output of a signature is a decision."""
    return all(decision_type(field) is not None for field in signature.output_fields.values())


def read_prediction(prediction: dspy.Prediction) -> Evidence:
    """Return the evidence in the decisions that DSPy read in a reply."""
    return {
        name: order_levels(value.probabilities)
        if isinstance(value, Score)
        else dict(value.probabilities)
        if isinstance(value, Choice)
        else value.probability
        for name, value in prediction.items()
    }
