"""LiteLLM as ragc uses it: how it is set up, what a call is given, which key goes where, what a model costs."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from program.models.transport import Call

KEY_PREFIX = "RAGC_API_KEY_"
NO_KEY = "none"  # for servers that want none
HTTP_SECONDS = 3600.0
"""LiteLLM's own time limit, the same for every call: it keeps a connection pool for each limit it is given."""


@lru_cache(maxsize=1)
def library() -> Any:
    """LiteLLM, told to keep to itself: no price list from the network, no banners, no telemetry.

    OpenAI's protocol it is to speak by its own HTTP handler, as it speaks the other providers': by way of OpenAI's
    client a call takes twice the processor time. Settings of the environment that are there already are left alone.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER", "True")
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.drop_params = True
    return litellm


@lru_cache(maxsize=256)
def is_priced(model: str) -> bool:
    """True when LiteLLM's list has a price for the model, be it 0. It is not asked for one that it lacks: it would say
    0, or ask a server on this machine."""
    listed = library().model_cost
    provider, _, name = model.partition("/")
    entries = [listed.get(model)]
    if str((listed.get(name) or {}).get("litellm_provider", "")).startswith(provider):
        entries.append(listed[name])
    return any(entry and {"input_cost_per_token", "output_cost_per_token"} & set(entry) for entry in entries)


def listed_price(model: str, tokens_in: int, tokens_out: int, cached: int = 0, kept: int = 0) -> float | None:
    """US dollars for one call by LiteLLM's list, its tiers for long prompts among them; None when it has no price.

    Of the tokens in, `cached` were read from the provider's cache, and `kept` written to it.
    """
    if is_priced(model):
        with suppress(Exception):
            paid = library().cost_per_token(
                model,
                prompt_tokens=tokens_in,
                completion_tokens=tokens_out,
                cache_read_input_tokens=cached,
                cache_creation_input_tokens=kept,
            )
            return float(sum(paid))
    return None


@lru_cache(maxsize=256)
def introduce(model: str) -> None:
    """Enters a model that LiteLLM's list lacks, without a price: it would search its list several times a call."""
    provider, _, name = model.partition("/")
    if not is_priced(model) and name and {model, name}.isdisjoint(library().model_cost):
        library().register_model({model: {"litellm_provider": provider, "mode": "chat"}}, persist_across_reloads=False)


@lru_cache(maxsize=256)
def caches_by_marks(model: str) -> bool:
    """True for a model whose provider keeps the beginning of a prompt if it is marked; most keep it unasked."""
    return "claude" in model and bool(library().utils.supports_prompt_caching(model))


def key_variable(api_base: str) -> str:
    """The environment variable whose value is the key for a server named in `ragc.toml`.

    Bound to the host, so that no file can have another provider's key sent to a server of its choice:
    `http://gpu-1.example.org:8000/v1` reads `RAGC_API_KEY_GPU__1_EXAMPLE_ORG_8000`.
    """
    place = urlsplit(api_base).netloc.rpartition("@")[2]
    return KEY_PREFIX + place.replace("-", "__").replace(".", "_").replace(":", "_").upper()


def arguments(call: Call) -> dict[str, Any]:
    """LiteLLM's arguments for a call, key and address included; the caller keeps the time."""
    given: dict[str, Any] = {
        **call.settings,
        "model": call.model,
        "messages": list(call.messages),
        "timeout": HTTP_SECONDS,
        "num_retries": 0,
        "max_retries": 0,
        "cache": {"no-cache": True, "no-store": True},
    }
    if caches_by_marks(call.model):  # what a step is told is the same for every question
        given["cache_control_injection_points"] = [{"location": "message", "role": "system"}]
    if call.api_base:
        given["api_base"] = call.api_base
        given["api_key"] = os.environ.get(key_variable(call.api_base), NO_KEY)
    return given
