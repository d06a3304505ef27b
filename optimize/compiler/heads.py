"""The heads that embedded deciders fit to their demonstrations: kept in the project, and ready before a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from optimize.compiler.code import source_digest
from program.loop.decisions import clients_of, is_decision
from program.loop.rag import AgenticRAG

if TYPE_CHECKING:
    from optimize.compiler.abreast import Share


def embedded_deciders(program: AgenticRAG) -> list[Any]:
    """The models of its predictors that are fitted to demonstrations, each once."""
    models = [model for _, predictor in program.named_predictors() for model in clients_of(program, predictor, {})]
    return list({id(model): model for model in models if hasattr(model, "remember_in")}.values())


def keep_heads(program: AgenticRAG, folder: Path) -> None:
    """Has what is fitted kept in `folder`, where every process that runs the same code finds it."""
    for decider in embedded_deciders(program):
        decider.remember_in(folder, source_digest())


def fit_heads(program: AgenticRAG, share: Share) -> None:
    """Has every embedded decider with demonstrations ready to answer; `share` says who fits what."""
    names = [
        name
        for name, predictor in program.named_predictors()
        if is_decision(predictor) and predictor.demos and hasattr(clients_of(program, predictor, {})[0], "remember_in")
    ]

    def fit(place: int) -> None:
        name = names[place]
        predictor = program.predictor(name)
        inputs = {
            field: TypeAdapter(info.annotation).validate_python(predictor.demos[0][field])
            for field, info in predictor.signature.input_fields.items()
        }
        program.requests.ask(name, predictor, clients_of(program, predictor, {})[0], inputs)

    share(fit, len(names), lambda done, of: None)
