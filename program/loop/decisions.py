"""Who answers a predictor, what is asked of a decision client, and the probabilities read by thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Protocol, TypeVar

import dspy
from dspy.adapters.types.decision import Choice, Score, decision_type
from dspy.utils.callback import with_callbacks

from program.knowledge.library import Library, ReportFailure
from program.loop.state import Ask, Program
from program.models.catalog import JUDGED, is_local
from program.models.requests import Decision, Evidence, RequestCache, decode, decode_output, order_levels
from program.passage import Filters, Passage
from program.signatures import Chance, excerpts

Call = TypeVar("Call", bound=Callable[..., Any])
tell_callbacks: Callable[[Call], Call] = with_callbacks
_DEFAULT_TRACE = dspy.settings.trace  # an optimizer puts a list of its own in its place


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


class RunnableProgram(Program, Protocol):
    """A program with the models that answer its predictors, as drivers and a compile need it."""

    requests: RequestCache

    def predictor(self, name: str) -> dspy.Predict: ...
    def doubt_of(self, predictor: str) -> float: ...


def client_of(program: RunnableProgram, predictor: dspy.Predict, inputs: Mapping[str, Any] | None = None) -> Any:
    """Return the model that answers a predictor.

    It is the predictor's own, else the program's for that kind of output.
    """
    models = program.runtime.models
    if predictor.lm:
        return predictor.lm
    if is_decision(predictor):
        return models.decider(predictor.signature)
    if judges_many(predictor):
        return models.decider(predictor.signature).chat
    return models.writer(inputs or {})


def clients_of(program: RunnableProgram, predictor: dspy.Predict, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the models that may be asked: none where no chat model judges."""
    if judges_many(predictor) and not predictor.lm and not program.judges_at_once:
        return ()
    return list_tiers(client_of(program, predictor, inputs))


def list_tiers(client: Any) -> tuple[Any, ...]:
    """Return a client, or both of a cascade."""
    return (client.first, client.second) if hasattr(client, "second") else (client,)


def all_clients_of(program: RunnableProgram, predictor: dspy.Predict) -> list[Any]:
    """Return every model that may be asked, whatever the inputs, each once."""
    clients = [client for strict in (False, True) for client in clients_of(program, predictor, {"strict": strict})]
    return list({id(client): client for client in clients}.values())


def is_embedded(client: Any) -> bool:
    """Tell whether a model runs in this process, and so cannot hang on a network."""
    return is_local(client) and not hasattr(client, "awaits")


def is_direct(client: Any) -> bool:
    """Tell whether a client takes decisions as structure, not as a prompt."""
    return getattr(client, "supports_decision_requests", False) is True


def is_decision(predictor: dspy.Predict) -> bool:
    """Tell whether every output of the predictor is a decision."""
    return _only_decisions(predictor.signature)


def judges_many(predictor: dspy.Predict) -> bool:
    """Tell whether the predictor's outputs are lists of decisions."""
    return not is_decision(predictor) and not JUDGED.isdisjoint(predictor.signature.output_fields)


def is_untraced() -> bool:
    """Tell whether no optimizer collects DSPy's trace."""
    return dspy.settings.trace is _DEFAULT_TRACE


def ask_client(program: RunnableProgram, client: Any, asks: Sequence[Ask]) -> list[Evidence]:
    """Return a client's evidence for decisions, in batches where it takes them."""
    found: list[Evidence] = []
    for name, group in groupby(asks, key=attrgetter("predictor")):
        predictor, inputs = program.predictor(name), [to_prompt_inputs(ask.inputs) for ask in group]
        if is_direct(client):
            found += program.requests.ask(name, predictor, client, inputs)
        else:
            found += [_read_prediction(predictor(lm=client, **one)) for one in inputs]
    return found


def ask_watched(program: RunnableProgram, client: Any, asks: Sequence[Ask]) -> list[Evidence]:
    """Return the same evidence.

    DSPy's callbacks, if there are any, are told of every decision, the first lasting as long as the batch.

    To call each predictor would serialise its demonstrations for each decision: a second a question.
    """
    if not (dspy.settings.callbacks or program.predictor(asks[0].predictor).callbacks):
        return ask_client(program, client, asks)
    found: list[Evidence] = []
    evidence = chain.from_iterable(ask_client(program, client, asks) for _ in range(1))  # asked by the first `next`

    @tell_callbacks
    def decide(self: dspy.Predict, *args: Any, **kwargs: Any) -> dspy.Prediction:
        found.append(next(evidence))
        return dspy.Prediction(**decode(found[-1], self.fields))

    for ask in asks:
        decide(program.predictor(ask.predictor), **to_prompt_inputs(ask.inputs))
    return found


async def await_client(program: RunnableProgram, client: Any, ask: Ask) -> Evidence:
    """Await a client's evidence for one decision; DSPy's callbacks are told of it."""
    predictor, inputs = program.predictor(ask.predictor), to_prompt_inputs(ask.inputs)
    found: Evidence = {}

    @tell_callbacks
    async def decide(self: dspy.Predict, *args: Any, **kwargs: Any) -> dspy.Prediction:
        found.update(await program.requests.aask(ask.predictor, self, client, kwargs))
        return dspy.Prediction(**decode(found, self.fields))

    await decide(predictor, **inputs)
    return found


class Search(dspy.Retrieve):
    """The library's search as one call, which DSPy's callbacks are told of."""

    def __init__(self, library: Library, failed: ReportFailure) -> None:
        super().__init__()
        self._library, self._failed = library, failed

    @tell_callbacks
    def __call__(self, query: str, sources: Sequence[str], depth: int, filters: Filters) -> Sequence[Passage]:
        return self._library.candidates(query, sources, depth, filters, failed=self._failed)

    @tell_callbacks
    async def acall(self, query: str, sources: Sequence[str], depth: int, filters: Filters) -> Sequence[Passage]:
        """Return the same passages, awaited."""
        return await self._library.acandidates(query, sources, depth, filters, failed=self._failed)


def _read_prediction(prediction: dspy.Prediction) -> Evidence:
    return {
        name: order_levels(value.probabilities)
        if isinstance(value, Score)
        else dict(value.probabilities)
        if isinstance(value, Choice)
        else value.probability
        for name, value in prediction.items()
    }


@lru_cache(maxsize=256)
def _only_decisions(signature: type[dspy.Signature]) -> bool:
    return all(decision_type(field) is not None for field in signature.output_fields.values())


def _prompt_value(value: Any) -> Any:
    if isinstance(value, Passage):
        return excerpts([value])[0]
    if isinstance(value, list | tuple):
        return excerpts(value) if value and isinstance(value[0], Passage) else list(value)
    return value
