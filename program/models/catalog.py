"""From a model's name to a client: `local/...` for the embedded ones, any other name through LiteLLM."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from program.errors import BudgetError, ModelError
from program.models.encoder import Embedder, shared_embedder
from program.settings import ModelSettings, Names, ProviderSettings

if TYPE_CHECKING:
    import dspy

    from program.models.lane import Lane

LOCAL = "local/"
LOCAL_DECIDER = "local/minilm"
LOCAL_WRITER = "local/extract"
FALLBACK = "fallback"
JUDGED = frozenset({"relevant", "sufficient", "contradict", "supported", "responsive"})
_RUNS_HERE = ("vllm", "petals", "custom", "custom_openai", "oobabooga")
"""LiteLLM's names that run a model, or code, in this process: `ragc.toml` may not ask for that."""


@dataclass(frozen=True, slots=True)
class Models:
    """Who answers: `decide` the decision signatures, `write` the generative ones, `embedder` gives vectors.

    `judge`, when named, decides in place of `decide` what passages and drafts are worth. `rewrite` writes in place
    of `write` when a first draft was not upheld. `propose` writes instructions at compile time.
    """

    decide: Any
    write: dspy.LM
    embedder: Embedder
    names: ModelSettings
    judge: Any = None
    rewrite: dspy.LM | None = None
    propose: dspy.LM | None = None

    @property
    def english_only(self) -> bool:
        """True when an embedded model, which reads English only, takes part."""
        return LOCAL_DECIDER in listed(self.names.decide) or LOCAL_WRITER in listed(self.names.write)

    @property
    def doubts(self) -> bool:
        """True when some decisions are passed on to a second client."""
        return any(hasattr(client, "second") for client in (self.decide, self.judge))

    def decider(self, signature: Any) -> Any:
        """The client that decides a signature."""
        return self.judge if self.judge is not None and JUDGED & set(signature.output_fields) else self.decide

    def writer(self, inputs: Mapping[str, Any]) -> dspy.LM:
        """The language model that writes from these inputs."""
        return self.rewrite if self.rewrite is not None and inputs.get("strict") else self.write


def open_models(names: ModelSettings, provider: ProviderSettings | None = None) -> Models:
    """The clients of those names. Raises `ModelError` for an unknown local name or a model that may not be named."""
    opener = _Opener(shared_embedder(names.embed), provider or ProviderSettings())
    writers = [opener.writer(name, "write") for name in _few(names.write, "write")]
    return Models(
        decide=opener.decider(names.decide, "decide"),
        write=writers[0],
        embedder=opener.embedder,
        names=names,
        judge=opener.decider(names.judge, "judge") if names.judge else None,
        rewrite=writers[1] if len(writers) > 1 else None,
        propose=opener.writer(names.propose, "propose") if names.propose else None,
    )


class _Opener:
    """Opens clients that share one embedder, one embedded decider, and the project's terms."""

    def __init__(self, embedder: Embedder, provider: ProviderSettings) -> None:
        self.embedder = embedder
        self._provider = provider
        self._local: Any = None

    def decider(self, names: Names, role: str) -> Any:
        clients = [self._decider(name, role) for name in _few(names, role)]
        if len(clients) == 1:
            return clients[0]
        from program.models.cascade import Cascade

        return Cascade(*clients)

    def _decider(self, name: str, role: str) -> Any:
        if name == LOCAL_DECIDER:
            return self._local_decider()
        from program.models.asked import LanguageDecider

        lane = self._lane(name, role, LOCAL_DECIDER)
        return LanguageDecider(
            lane, self._instead(name, LOCAL_DECIDER, self._decider), is_structured(name, self._provider)
        )

    def _instead(self, name: str, local: str, client: Callable[[str, str], Any]) -> Any:
        """Who answers when a language model does not: the one named as fallback, and behind it the embedded one."""
        named = self._provider.fallback
        if named is True or named in (name, LOCAL_DECIDER, LOCAL_WRITER):
            named = local
        return client(named, FALLBACK) if named else None

    def _local_decider(self) -> Any:
        from program.models.decider import LocalDecider

        self._local = self._local or LocalDecider(self.embedder)
        return self._local

    def writer(self, name: str, role: str) -> Any:
        from program.models.writer import local_writer

        if name == LOCAL_WRITER and role != "propose":
            return local_writer(self.embedder)
        lane = self._lane(name, role, "" if role == "propose" else LOCAL_WRITER)
        from program.models.adapter import FencedAdapter
        from program.models.engine import ProviderLM

        fallback = self._instead(name, LOCAL_WRITER, self.writer) if role != "propose" else None
        return ProviderLM(lane, FencedAdapter(fallback, is_structured(name, self._provider)))

    def _lane(self, name: str, role: str, local: str) -> Lane:
        return open_lane(name, self._provider, role, local)


def is_structured(name: str, provider: ProviderSettings) -> bool:
    """Tell whether a model can be held to a JSON schema: by the project's word, else by LiteLLM's."""
    of_model = provider.model.get(name)
    if of_model is not None and of_model.structured is not None:
        return of_model.structured
    from program.models.provider import library

    return bool(library().supports_response_schema(model=name))


def price(model: Any, tokens_in: int, tokens_out: int) -> float:
    """US dollars for so many tokens of a model: by its lane, else by LiteLLM's list; 0 when here or unknown."""
    if (lane := getattr(model, "lane", None)) is not None:
        return float(lane.price(tokens_in, tokens_out))
    if str(model.model).startswith(LOCAL):
        return 0.0
    from program.models.provider import listed_price

    return listed_price(model.model, tokens_in, tokens_out) or 0.0


def open_lane(name: str, provider: ProviderSettings, role: str = "write", local: str = "") -> Lane:
    """The process's lane to a language model under a project's terms. Raises `ModelError` for a name it cannot be."""
    place = "[provider]" if role == FALLBACK else "[models]"
    if not name or name.startswith(LOCAL):
        known = f'"{local}" or any' if local else "any"
        raise ModelError(
            f"There is no local model {name!r} for {role}.", f"Use {known} LiteLLM name in {place} {role}."
        )
    if name.partition("/")[0] in _RUNS_HERE:
        raise ModelError(
            f"{name!r} would run in this process.", "Serve it over HTTP, and name it hosted_vllm/... or openai/..."
        )
    from program.models.gateway import shared_gateway
    from program.models.lane import Terms

    of_model = provider.model.get(name)
    own = {} if of_model is None else {k: v for k, v in of_model.model_dump().items() if v is not None}
    terms = {**provider.model_dump(exclude={"model", "fallback"}), **own}
    api_base = str(terms.pop("api_base", ""))
    terms.pop("structured", None)
    return shared_gateway().lane(name, api_base, Terms(**terms))


def require_price(names: ModelSettings, provider: ProviderSettings, cap: str, otherwise: str) -> None:
    """Raises `BudgetError` for a cap on money when neither the project nor LiteLLM has a price for one of its models.

    `cap` is the setting or option that could not stop it, `otherwise` what else may be done than to set a price.
    """
    roles = (names.decide, names.write, names.judge, names.propose)
    asked = [name for role in roles for name in listed(role) if name and not name.startswith(LOCAL)]
    if asked and isinstance(provider.fallback, str) and not provider.fallback.startswith(LOCAL):
        asked.append(provider.fallback)
    for name in asked:
        if not open_lane(name, provider).priced:
            raise BudgetError(
                f"What {name} costs is not known, so that {cap} could not stop it.",
                f'Set usd_in and usd_out (0 if it is free) under [provider.model."{name}"] in ragc.toml, '
                f"or {otherwise}.",
            )


def missing_keys(name: str, provider: ProviderSettings) -> list[str]:
    """The API keys that a language model needs and the environment has not; none for an embedded one.

    None either for a server that the project names itself: it may want none, and gets none but its own. Addresses
    have defaults, and cloud credentials other ways in, so that only API keys count.
    """
    of_model = provider.model.get(name)
    if not name or name.startswith(LOCAL) or (of_model is not None and of_model.api_base):
        return []
    from program.models.provider import library

    wanted: list[str] = library().validate_environment(name).get("missing_keys", [])
    return [key for key in wanted if key.endswith("_API_KEY") and key not in os.environ]


def listed(names: Names) -> tuple[str, ...]:
    """The model names of a setting, which may be one name or a cascade of several."""
    return (names,) if isinstance(names, str) else tuple(names)


def _few(names: Names, role: str) -> tuple[str, ...]:
    found = listed(names)
    if not 1 <= len(found) <= 2:
        raise ModelError(f"[models] {role} lists {len(found)} models.", "Name one, or two: the cheaper one first.")
    return found
