"""What LiteLLM knows of a model and its provider: names, keys, prices, tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

KEY_PREFIX = "RAGC_API_KEY_"
LOGPROBS = "logprobs"  # by which a request asks for the log-probabilities of the reply's tokens
NO_KEY = "none"  # for servers that want none
HTTP_SECONDS = 3600.0  # LiteLLM's own limit, one for all: it keeps a connection pool for each limit it is given


@lru_cache(maxsize=1)
def load_litellm() -> Any:
    """Return LiteLLM, without price list from the network, banners or telemetry.

    OpenAI's protocol goes by LiteLLM's own HTTP handler: by OpenAI's client a call takes twice the processor time.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER", "True")
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.drop_params = True
    return litellm


@lru_cache(maxsize=256)
def prepare_litellm(model: str) -> Any:
    """Return LiteLLM with an unlisted model entered, so that it is searched for once."""
    provider, _, name = model.partition("/")
    litellm = load_litellm()
    listed = is_priced(model) or not {model, name}.isdisjoint(litellm.model_cost)
    if name and not listed:
        litellm.register_model({model: {"litellm_provider": provider, "mode": "chat"}}, persist_across_reloads=False)
    return litellm


def list_missing_keys(model: str) -> list[str]:
    """Return the API keys that a model's provider wants and the environment lacks.

    Only API keys count: addresses have defaults, and cloud credentials other ways in. Of several that would do, all
    are named.
    """
    wanted: list[str] = load_litellm().validate_environment(model).get("missing_keys", [])
    return [key for key in wanted if key.endswith("_API_KEY") and key not in os.environ]


def key_variable(api_base: str) -> str:
    """Return the environment variable with the key for a server named in `ragc.toml`.

    It is bound to the host, so that no file can have another provider's key sent to a server of its choice:
    `http://gpu-1.example.org:8000/v1` reads `RAGC_API_KEY_GPU__1_EXAMPLE_ORG_8000`.
    """
    place = urlsplit(api_base).netloc.rpartition("@")[2]
    return KEY_PREFIX + place.replace("-", "__").replace(".", "_").replace(":", "_").upper()


def connection_arguments(model: str, api_base: str) -> dict[str, Any]:
    """Return LiteLLM's arguments for a model, key and address included, no retries."""
    given: dict[str, Any] = {"model": model, "timeout": HTTP_SECONDS}
    given |= {"num_retries": 0, "max_retries": 0, "cache": {"no-cache": True, "no-store": True}}
    if api_base:
        given |= {"api_base": api_base, "api_key": os.environ.get(key_variable(api_base), NO_KEY)}
    return given


@lru_cache(maxsize=256)
def needs_cache_marks(model: str) -> bool:
    """Tell whether the provider keeps a prompt's beginning only if it is marked."""
    return "claude" in model and bool(load_litellm().utils.supports_prompt_caching(model))


@lru_cache(maxsize=256)
def knows_logprobs(model: str) -> bool:
    """Tell whether the provider may be asked for log-probabilities of tokens."""
    return LOGPROBS in (load_litellm().get_supported_openai_params(model) or ())


@lru_cache(maxsize=256)
def is_priced(model: str) -> bool:
    """Tell whether LiteLLM's list has a price for the model, be it 0.

    LiteLLM is not asked for one that its list lacks: it would say 0, or ask a server on this machine.
    """
    listed = load_litellm().model_cost
    provider, _, name = model.partition("/")
    entries = [listed.get(model)]
    if str((listed.get(name) or {}).get("litellm_provider", "")).startswith(provider):
        entries.append(listed[name])
    return any(entry and {"input_cost_per_token", "output_cost_per_token"} & set(entry) for entry in entries)


def listed_price(model: str, tokens_in: int, tokens_out: int, cached: int = 0, kept: int = 0) -> float | None:
    """Return a call's US dollars by LiteLLM's list, tiers included; None if unlisted."""
    if is_priced(model):
        with suppress(Exception):
            used = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
            of_cache = {"cache_read_input_tokens": cached, "cache_creation_input_tokens": kept}
            return float(sum(load_litellm().cost_per_token(model, **used, **of_cache)))
    return None


def count_messages(model: str, messages: Sequence[Mapping[str, Any]]) -> int:
    """Return LiteLLM's count of a prompt's tokens, whoever provides the model."""
    return int(load_litellm().token_counter(model=model.rpartition("/")[2], messages=list(messages)))


def count_text(model: str, text: str) -> int:
    """Return LiteLLM's count of a text's tokens."""
    return int(load_litellm().token_counter(model=model.rpartition("/")[2], text=to_text(text))) if text else 0


def to_text(text: Any) -> str:
    """Return a text that can be sent and saved, empty for what is none."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""
