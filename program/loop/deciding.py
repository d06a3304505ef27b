"""Which model answers a predictor, and its inputs as they are put."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import dspy
from dspy.adapters.types.decision import decision_type

from program.loop.decisions import is_direct
from program.models.catalog import LOCAL
from program.passage import Passage
from program.signatures import excerpts

if TYPE_CHECKING:
    from program.loop.rag import AgenticRAG

_DEFAULT_TRACE = dspy.settings.trace  # an optimizer puts a list of its own in its place


def client(program: AgenticRAG, predictor: dspy.Predict, inputs: Mapping[str, Any] | None = None) -> Any:
    """The model that answers a predictor: its own when it has one, else the program's for that kind of output."""
    models = program.runtime.models
    if predictor.lm:
        return predictor.lm
    return models.decider(predictor.signature) if decides(predictor) else models.writer(inputs or {})


def tiers(program: AgenticRAG, predictor: dspy.Predict, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The models that may have to be asked about these inputs: one, or both of a cascade."""
    model = client(program, predictor, inputs)
    return (model.first, model.second) if hasattr(model, "second") else (model,)


def answering(program: AgenticRAG, predictor: dspy.Predict) -> list[Any]:
    """Every model that may have to be asked, whatever the inputs: that for a second draft, too. Each once."""
    models = [model for strict in (False, True) for model in tiers(program, predictor, {"strict": strict})]
    return list({id(model): model for model in models}.values())


def runs_here(model: Any) -> bool:
    """True for an embedded model, which cannot hang on a network."""
    return str(model.model).startswith(LOCAL) and not hasattr(model, "awaits")


def decides(predictor: dspy.Predict) -> bool:
    """True when every output of the predictor is a decision."""
    return _decides(predictor.signature)


def untraced(program: AgenticRAG, predictor: dspy.Predict) -> bool:
    """True when a decision may go straight to its client: no optimizer collects DSPy's trace."""
    return unwatched() and decides(predictor) and is_direct(client(program, predictor))


def unwatched() -> bool:
    """True when no optimizer collects DSPy's trace."""
    return dspy.settings.trace is _DEFAULT_TRACE


def prompt_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as a signature takes them: passages as numbered excerpts."""
    return {name: _prompt_value(value) for name, value in inputs.items()}


@lru_cache(maxsize=256)
def _decides(signature: type[dspy.Signature]) -> bool:
    return all(decision_type(field) is not None for field in signature.output_fields.values())


def _prompt_value(value: Any) -> Any:
    if isinstance(value, Passage):
        return excerpts([value])[0]
    if isinstance(value, list | tuple):
        return excerpts(value) if value and isinstance(value[0], Passage) else list(value)
    return value
