"""From a name to a client, `local/...` for the embedded models, others by LiteLLM; and who answers a predictor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import dspy
from dspy.adapters.types.decision import Choice, Score, decision_type

from ragc.errors import BudgetError, ModelError
from ragc.models.deciders import LanguageDecider
from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import Embedder, shared_embedder
from ragc.models.embedded.reader import READER, Reader, shared_reader
from ragc.models.embedded.writer import local_writer
from ragc.models.language import provider as providers
from ragc.models.language.adapter import FencedAdapter
from ragc.models.language.gateway import Endpoint, EndpointTerms, ProviderLM, shared_gateway
from ragc.models.language.provider import listed_price
from ragc.models.requests import Evidence, order_levels
from ragc.settings import ModelSettings, ProviderSettings

_LOCAL = "local/"
FALLBACK = "fallback"
QUOTED = "states"
QUERIED = frozenset({"sub_queries", "query", "standalone", "next_query"})
JUDGED = frozenset({"sufficient", "supported", "responsive"})
_RUNS_HERE = ("vllm", "petals", "custom", "custom_openai", "oobabooga")
"""LiteLLM's names that run a model, or code, in this process: `ragc.toml` may not ask for that."""


@dataclass(frozen=True, slots=True)
class Models:
    """The clients of a program, by role."""

    decide: Any  # the client that decides
    write: dspy.LM  # the language model that writes texts
    embedder: Embedder
    reader: Reader
    embedded: LocalDecider  # the embedded client that decides, whoever else does; it always says what to quote
    names: ModelSettings  # the names under `[models]`
    judge: Any = None  # the client that decides what passages and drafts are worth; None: `decide` does
    query: dspy.LM | None = None  # writes what is searched; None: the embedded writer does
    propose: dspy.LM | None = None  # writes instructions at compile time
    embedded_writer: dspy.LM | None = None  # the embedded writer, which joins, splits and names what is missing

    @property
    def weights(self) -> dict[str, str]:
        """The digests of the embedded models' weights, by the models' roles."""
        return {"embedder": self.embedder.digest, "reader": self.reader.digest}

    def decider(self, signature: Any) -> Any:
        """Return the client that decides a signature."""
        if QUOTED in signature.output_fields:
            return self.embedded
        return self.judge if self.judge is not None and JUDGED & set(signature.output_fields) else self.decide

    def with_client(self, role: Literal["decide", "write", "judge"], client: Any) -> Models:
        """Return the models with another one for a role, alone."""
        names = self.names.model_copy(update={role: str(client.model)})
        changed: dict[str, Any] = {role: client, "names": names}
        return replace(self, **changed)

    def writer(self, signature: Any) -> dspy.LM:
        """Return the language model that writes a signature's outputs."""
        return (
            self.query or self.embedded_writer or self.write if QUERIED & set(signature.output_fields) else self.write
        )


def open_models(names: ModelSettings, provider: ProviderSettings | None = None) -> Models:
    """Return the clients of those names.

    Raises `ModelError` for an unknown local name or a model that may not be named.
    """
    opener = _ClientOpener(shared_embedder(names.embed), shared_reader(names.reader), provider or ProviderSettings())
    return Models(
        decide=opener.open_decider(names.decide, "decide"),
        write=opener.open_writer(names.write, "write"),
        embedded=opener.embedded,
        embedder=opener.embedder,
        reader=opener.reader,
        names=names,
        judge=opener.open_decider(names.judge, "judge") if names.judge else None,
        query=opener.open_writer(names.query, "query") if names.query else None,
        propose=opener.open_writer(names.propose, "propose") if names.propose else None,
        embedded_writer=opener.open_writer(READER, "write"),
    )


class _ClientOpener:
    """Opens clients that share one embedder, one reader, one embedded decider, and the project's terms."""

    def __init__(self, embedder: Embedder, reader: Reader, provider: ProviderSettings) -> None:
        self.embedder, self.reader = embedder, reader
        self.embedded = LocalDecider(embedder, reader)
        self._provider = provider

    def open_decider(self, name: str, role: str) -> Any:
        if name == READER:
            return self.embedded
        endpoint = open_endpoint(name, self._provider, role, READER)
        fallback = self._open_fallback(name, self.open_decider)
        return LanguageDecider(endpoint, fallback, is_structured(name, self._provider))

    def open_writer(self, name: str, role: str) -> Any:
        proposes = role == "propose"
        if name == READER and not proposes:
            return local_writer(self.embedded)
        endpoint = open_endpoint(name, self._provider, role, "" if proposes else READER)
        fallback = None if proposes else self._open_fallback(name, self.open_writer)
        return ProviderLM(endpoint, FencedAdapter(fallback, is_structured(name, self._provider)))

    def _open_fallback(self, name: str, open_client: Callable[[str, str], Any]) -> Any:
        """Return who answers when a language model does not: the one named, and behind it the embedded one."""
        named = self._provider.fallback
        return open_client(READER if named is True or named == name else named, FALLBACK) if named else None


def is_local(named: Any) -> bool:
    """Tell whether a model, or a name of one, runs in this process."""
    return str(getattr(named, "model", named)).startswith(_LOCAL)


def open_endpoint(name: str, provider: ProviderSettings, role: str = "write", local: str = "") -> Endpoint:
    """Return the process's endpoint of a language model under a project's terms.

    Raises `ModelError` for a name that no language model has.
    """
    if not name or is_local(name):
        known, place = f'"{local}" or any' if local else "any", "[provider]" if role == FALLBACK else "[models]"
        how = f"Use {known} LiteLLM name in {place} {role}."
        raise ModelError(f"There is no local model {name!r} for {role}.", how)
    if name.partition("/")[0] in _RUNS_HERE:
        how = "Serve it over HTTP, and name it hosted_vllm/... or openai/..."
        raise ModelError(f"{name!r} would run in this process.", how)
    terms = {**provider.model_dump(exclude={"model", "fallback"}), **_own_terms(name, provider)}
    api_base = str(terms.pop("api_base", ""))
    terms.pop("structured", None)
    return shared_gateway().endpoint(name, api_base, EndpointTerms(**terms))


def _own_terms(name: str, provider: ProviderSettings) -> dict[str, Any]:
    """Return what `[provider.model."NAME"]` sets."""
    of_model = provider.model.get(name)
    return of_model.model_dump(exclude_none=True) if of_model is not None else {}


def is_structured(name: str, provider: ProviderSettings) -> bool:
    """Tell whether a model can be held to a JSON schema, by the project or LiteLLM."""
    own = _own_terms(name, provider).get("structured")
    return bool(providers.load_litellm().supports_response_schema(model=name) if own is None else own)


def price_call(model: Any, tokens_in: int, tokens_out: int) -> float:
    """Return what so many tokens cost in US dollars.

    The price is that of the model's endpoint, else of LiteLLM's list; 0 if embedded or unknown.
    """
    if isinstance(model, ProviderLM | LanguageDecider):
        return model.endpoint.price(tokens_in, tokens_out)
    return 0.0 if is_local(model) else listed_price(model.model, tokens_in, tokens_out) or 0.0


def require_price(names: ModelSettings, provider: ProviderSettings, cap: str, otherwise: str) -> None:
    """Raise `BudgetError` when a cap on money meets a model of unknown price.

    `cap` is the setting or option that could not stop it, `otherwise` what else may be done than to set a price.
    """
    roles = (names.decide, names.write, names.query, names.judge, names.propose)
    fallback = provider.fallback if isinstance(provider.fallback, str) else ""
    named = [name for name in roles if name and not is_local(name)]
    asked = [*named, fallback] if named and fallback and not is_local(fallback) else named
    for name in asked:
        if not open_endpoint(name, provider).priced:
            raise BudgetError(
                f"What {name} costs is not known, so that {cap} could not stop it.",
                f'Set usd_in and usd_out (0 if it is free) under [provider.model."{name}"] in ragc.toml, '
                f"or {otherwise}.",
            )


def missing_keys(name: str, provider: ProviderSettings) -> list[str]:
    """Return the API keys that a model needs and the environment lacks.

    None for an embedded model, nor for a server that the project names itself: it may want none.
    """
    if not name or is_local(name) or _own_terms(name, provider).get("api_base"):
        return []
    return providers.list_missing_keys(name)


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
