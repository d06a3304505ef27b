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
from ragc.models.catalog import JUDGED, Models, is_local
from ragc.models.requests import Decision, Evidence, decode_output, order_levels
from ragc.passage import Passage
from ragc.signatures import Chance, excerpts


def is_undecided(decision: Any) -> bool:
    """Tell whether a model's reply could not be read, so that it is no score."""
    # DSPy's own decisions, which come while an optimizer watches, have no such mark.
    return getattr(decision, "undecided", False) is True


def read_chances(chances: Sequence[Any], count: int, threshold: float) -> list[Decision]:
    """Return a decision for each of `count` numbered things, undecided if left out."""
    read = [Chance.model_validate(chance) for chance in chances]  # a record has them in JSON values
    found = {chance.n: chance.probability for chance in read}
    return [decode_output(found.get(n), {"threshold": threshold}) for n in range(1, count + 1)]


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
    chat: Any  # the chat model behind it, which takes many decisions in one call
    stand_in: Any  # who decides when it cannot be reached


def traits_of(client: Any) -> Traits:
    """Return what a client can do."""
    awaits = hasattr(client, "awaits")
    return Traits(
        getattr(client, "supports_decision_requests", False) is True,
        awaits,
        is_local(client) and not awaits,
        hasattr(client, "endpoint"),
        hasattr(client, "adapter"),
        getattr(client, "chat", None),
        getattr(client, "stand_in", None),
    )


NO_CLIENT = traits_of(None)


def client_of(models: Models, predictor: dspy.Predict, inputs: Mapping[str, Any]) -> Any:
    """Return the model that answers a predictor, None where no chat model judges.

    It is the predictor's own, else that of the program's `models` for such an output.
    """
    if predictor.lm:
        return predictor.lm
    if is_decision(predictor):
        return models.decider(predictor.signature)
    if judges_many(predictor):
        return traits_of(models.decider(predictor.signature)).chat
    return models.writer(inputs, predictor.signature)


def is_decision(predictor: dspy.Predict) -> bool:
    """Tell whether every output of the predictor is a decision."""
    return only_decisions(predictor.signature)


def judges_many(predictor: dspy.Predict) -> bool:
    """Tell whether the predictor's outputs are lists of decisions."""
    return not is_decision(predictor) and not JUDGED.isdisjoint(predictor.signature.output_fields)


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
