"""From a model's name to a client: `local/...` for the embedded ones, any other name through LiteLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from program.errors import ModelError
from program.knowledge.embedder import Embedder, shared_embedder
from program.settings import ModelSettings

if TYPE_CHECKING:
    import dspy

LOCAL_DECIDER = "local/minilm"
LOCAL_WRITER = "local/extract"


@dataclass(frozen=True, slots=True)
class Models:
    """Who answers: `decide` the decision signatures, `write` the generative ones, `embedder` gives vectors."""

    decide: Any
    write: dspy.LM
    embedder: Embedder
    names: ModelSettings

    @property
    def english_only(self) -> bool:
        """True when an embedded model, which reads English only, takes part."""
        return self.names.decide == LOCAL_DECIDER or self.names.write == LOCAL_WRITER

    def price(self, tokens_in: int, tokens_out: int) -> float:
        """US dollars for a text of the writing model; 0 for a local model or one without a known price."""
        if self.names.write.startswith("local/"):
            return 0.0
        from litellm import cost_per_token

        try:
            paid = cost_per_token(self.names.write, prompt_tokens=tokens_in, completion_tokens=tokens_out)
        except Exception:  # what LiteLLM raises for a model that it does not list
            return 0.0
        return float(sum(paid))


def open_models(names: ModelSettings) -> Models:
    """The clients of those names. Raises `ModelError` for an unknown local name."""
    embedder = shared_embedder(names.embed)
    return Models(_decider(names.decide, embedder), _writer(names.write, embedder), embedder, names)


def _decider(name: str, embedder: Embedder) -> Any:
    if name == LOCAL_DECIDER:
        from program.models.decider import LocalDecider

        return LocalDecider(embedder)
    return _language_model(name, "decide", LOCAL_DECIDER)


def _writer(name: str, embedder: Embedder) -> Any:
    if name == LOCAL_WRITER:
        from program.models.writer import local_writer

        return local_writer(embedder)
    return _language_model(name, "write", LOCAL_WRITER)


def _language_model(name: str, role: str, local: str) -> Any:
    import dspy

    if not name or name.startswith("local/"):
        raise ModelError(
            f"There is no local model {name!r} for {role}.", f'Use "{local}" or any LiteLLM name in [models] {role}.'
        )
    return dspy.LM(name)
