"""One request to a decision model through LiteLLM, and its probabilities.

LiteLLM turns the same request into TypeSafe's and a local server's `/v1/systemone` and OpenAI's `/v1/decisions`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import Any

from program.models.language.transport import (
    Call,
    CallFailed,
    Reply,
    connection_arguments,
    failure_of,
    litellm_name,
    load_litellm,
    prepare_litellm,
    read_usage,
)

MOST_AMISS = 0.02
"""How far from 1 the probabilities of one question may sum up: they are rounded."""


def decision_call(model: str, api_base: str, state: Mapping[str, Any], questions: Mapping[str, Any]) -> Call:
    """Return the request; its message is what its tokens are estimated by."""
    told = json.dumps([state, questions], ensure_ascii=False, default=str)
    return Call(model, [{"role": "user", "content": told}], {"state": state, "questions": questions}, api_base)


async def request_decision(call: Call, seconds: float) -> AsyncIterator[Reply]:
    """Yield the answers as JSON, within so many seconds. Raises `CallFailed`, also for what is no probability."""
    asked = {name: call.settings[name] for name in ("state", "questions")}
    litellm = prepare_litellm(call.model)
    try:
        async with asyncio.timeout(seconds):
            raw = await litellm.asystemone(**connection_arguments(call), **asked)
    except Exception as error:
        raise failure_of(call, error) from None
    used = raw.usage
    counts = {"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens} if used else {}
    counts |= {"cache_read_input_tokens": used.cached_tokens} if used else {}
    answers, questions = raw.model_dump()["answers"], asked["questions"]
    tokens_in, tokens_out, cached, kept = read_usage(call, counts, "")
    try:
        told = {name: _read_answer(question, answers[name]) for name, question in questions.items()}
    except (KeyError, TypeError, ValueError):
        what = f"{call.model} sent an unreadable reply"
        raise CallFailed(what, again=True, reached=True, tokens_in=tokens_in, tokens_out=tokens_out) from None
    yield Reply(json.dumps(told), tokens_in, tokens_out, cached=cached, kept=kept)


def _read_answer(question: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer in DSPy's form. Raises what an answer in another form brings up."""
    if question["type"] == "noul":
        return {"noul": _read_probability(answer["noul"])}
    options = question["criteria"] if question["type"] == "choice" else map(str, range(len(question["criteria"])))
    shares = {option: _read_probability(answer["probabilities"][option]) for option in options}
    total = sum(shares.values())
    if len(answer["probabilities"]) > len(shares) or abs(total - 1.0) > MOST_AMISS:
        raise ValueError("no distribution over the options")
    return {
        "probabilities": {option: share / total for option, share in shares.items()},
        "confidence": _read_probability(answer["confidence"]),
    }


def _read_probability(value: Any) -> float:
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
        raise ValueError("no probability")
    return float(value)


@lru_cache(maxsize=1)
def decision_providers() -> tuple[str, ...]:
    """Return LiteLLM's names of those that serve decision models."""
    load_litellm()
    from litellm.decisions.call import supported_decisions_providers

    return tuple(supported_decisions_providers())


def decision_keys(model: str) -> list[str]:
    """Return the environment variables of which a decision model wants one, none where one is set or none wanted."""
    load_litellm()
    from litellm.types.utils import LlmProviders
    from litellm.utils import ProviderConfigManager

    provider, _, name = litellm_name(model).partition("/")
    config = ProviderConfigManager.get_provider_decisions_config(name, LlmProviders(provider))
    wanted = config is not None and config.api_key_required and not config.resolve_api_key(None)
    return list(config.api_key_env) if wanted and config is not None else []
