"""One request to a language model through LiteLLM, and what came of it: a reply, or a failure one can act on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from dspy.lm15 import ProviderError

LONGEST_STREAM = 8_000  # characters, as of the longest answer; the rest counts as cut off
EXTRA_TOKENS = 10_000  # in, beyond the prompt's bytes: what a provider may add to it
MOST_TOKENS_OUT = 1_000_000
DECISION_PREFIXES = ("systemone/", "decisions/")
KEY_PREFIX = "RAGC_API_KEY_"
NO_KEY = "none"  # for servers that want none
HTTP_SECONDS = 3600.0  # LiteLLM's own limit, one for all: it keeps a connection pool for each limit it is given
_REFUSALS = (429, 502, 503, 529)
_FINAL = (400, 401, 403, 404, 405, 413, 415, 422)  # asking again gets the same


@dataclass(frozen=True, slots=True)
class Call:
    """One request in LiteLLM's (OpenAI's) words."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    api_base: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, with the provider's count of tokens or, where that cannot be, ours."""

    text: str  # of a decision model its answers, as JSON
    tokens_in: int
    tokens_out: int
    whole: bool = True  # false when the model was cut off
    cached: int = 0  # tokens in that were read from the provider's cache
    kept: int = 0  # tokens in that were written to the provider's cache


@dataclass(eq=False, repr=False)
class CallFailed(ProviderError):
    """A request without a usable reply. The text holds no word of the provider's, which may quote a key."""

    what: str
    _: KW_ONLY
    again: bool  # true when a repetition may help, after `wait` seconds
    reached: bool  # true when the provider got the request and may charge its tokens
    busy: bool = False  # true when the provider only asked for patience
    wait: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    kept: int = 0
    status: int = 0  # the provider's HTTP status, if any
    cut: bool = False  # true when the reply's tokens were used up before its first word

    def __post_init__(self) -> None:
        super().__init__(self.what, status=self.status)


async def request_reply(call: Call, seconds: float) -> AsyncIterator[Reply]:
    """Yield the whole reply, within so many seconds. Raises `CallFailed`."""
    litellm = prepare_litellm(call.model)
    try:
        async with asyncio.timeout(seconds):
            raw = await litellm.acompletion(**_arguments(call))
    except Exception as error:
        raise failure_of(call, error) from None
    body = raw.model_dump()
    choice = next(iter(body.get("choices") or ()), None) or {}
    yield _finished(call, _reply_text(choice), body.get("usage"), choice.get("finish_reason") == "length")


async def stream_reply(call: Call, seconds: float) -> AsyncIterator[str | Reply]:
    """Yield the pieces of the reply as they come, the whole `Reply` last.

    `seconds` bounds the time to the first piece and between two. Raises `CallFailed`, perhaps amid the pieces.
    """
    text = ""
    usage: dict[str, Any] = {}
    finish = source = None
    litellm = prepare_litellm(call.model)
    try:
        async with asyncio.timeout(seconds):
            wanted = {"stream": True, "stream_options": {"include_usage": True}}
            source = await litellm.acompletion(**_arguments(call), **wanted)
        iterator = aiter(source)
        while len(text) <= LONGEST_STREAM:
            async with asyncio.timeout(seconds):
                chunk = await anext(iterator, None)
            if chunk is None:
                break
            body = chunk.model_dump()
            usage = body.get("usage") or usage
            for choice in body.get("choices") or ():
                finish = choice.get("finish_reason") or finish
                if piece := _encodable((choice.get("delta") or {}).get("content")):
                    text += piece
                    yield piece
    except Exception as error:
        raise failure_of(call, error, text) from None
    finally:
        if source is not None:
            with suppress(Exception):
                await source.aclose()
    yield _finished(call, text, usage, finish == "length" or len(text) > LONGEST_STREAM)


def late_failure(call: Call) -> CallFailed:
    """Return the failure of a request that the question could not wait for."""
    return CallFailed(f"{call.model} did not answer within the question's time", again=False, reached=False)


def cancelled_failure(call: Call) -> CallFailed:
    """Return the failure of a request called off under way, its prompt charged."""
    tokens = count_messages(call.model, call.messages)
    return CallFailed(f"{call.model} was called off", again=False, reached=True, tokens_in=tokens)


def failure_of(call: Call, error: Exception, text: str = "") -> CallFailed:
    """Return what an error of LiteLLM's means; `text` is what had come until then."""
    causes = _list_causes(error)
    response = next((r for c in causes if (r := getattr(c, "response", None)) is not None and r.headers), None)
    stated = int(response.status_code) if response is not None and response.status_code >= 400 else 0
    status = stated or getattr(error, "status_code", None)
    if stated or status in _REFUSALS:  # LiteLLM itself says 500 or 408 where there was no status at all
        headers = getattr(response, "headers", {}) if stated else getattr(error, "litellm_response_headers", None) or {}
        return CallFailed(
            f"{call.model} answered {status}",
            again=stated not in _FINAL,
            reached=True,
            busy=status == 429,
            wait=_retry_seconds(headers.get("retry-after")),
            status=stated,
        )
    if any(isinstance(cause, ConnectionRefusedError) or "ConnectError" in type(cause).__name__ for cause in causes):
        return CallFailed(f"{call.model} cannot be reached", again=True, reached=False)
    name = type(error).__name__
    if name in {"AuthenticationError", "BadRequestError", "NotFoundError", "PermissionDeniedError"}:
        return CallFailed(f"{call.model} cannot be asked ({name})", again=False, reached=False)
    late = isinstance(error, TimeoutError) or any("Timeout" in type(cause).__name__ for cause in causes)
    return CallFailed(
        f"{call.model} did not answer in time" if late else f"{call.model} sent an unreadable reply",
        again=True,
        reached=True,
        tokens_in=count_messages(call.model, call.messages),
        tokens_out=count_text(call.model, text),
    )


def _finished(call: Call, text: str, usage: Mapping[str, Any] | None, cut: bool) -> Reply:
    tokens_in, tokens_out, cached, kept = read_usage(call, usage or {}, text)
    if text:
        return Reply(text, tokens_in, tokens_out, not cut, cached, kept)
    what = "used its reply's tokens up before the first word" if cut else "sent an empty reply"
    raise CallFailed(
        f"{call.model} {what}", again=not cut, reached=True, tokens_in=tokens_in, tokens_out=tokens_out, cut=cut
    )


def _reply_text(choice: Mapping[str, Any]) -> str:
    """Return the text of a choice, or the arguments of its tool calls."""
    message = choice.get("message") or {}
    calls = message.get("tool_calls") or ()
    return _encodable(message.get("content")) or "".join(
        _encodable((call.get("function") or {}).get("arguments")) for call in calls
    )


def _encodable(text: Any) -> str:
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def _list_causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _retry_seconds(header: str | None) -> float:
    """Return a `Retry-After` header in seconds; an HTTP date counts from now."""
    if not header:
        return 0.0
    with suppress(ValueError):
        return max(0.0, float(header))
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    return 0.0


def count_messages(model: str, messages: Sequence[Mapping[str, Any]]) -> int:
    """Return LiteLLM's count of a prompt's tokens, whoever provides the model."""
    return int(load_litellm().token_counter(model=model.rpartition("/")[2], messages=list(messages)))


def count_text(model: str, text: str) -> int:
    """Return LiteLLM's count of a text's tokens."""
    return int(load_litellm().token_counter(model=model.rpartition("/")[2], text=_encodable(text))) if text else 0


def read_usage(call: Call, usage: Mapping[str, Any], text: str) -> tuple[int, int, int, int]:
    """Return tokens in, out, from and to the provider's cache."""
    longest = EXTRA_TOKENS + sum(len(str(message).encode("utf-8", "replace")) for message in call.messages)
    tokens_in = _possible_count(usage.get("prompt_tokens"), longest)
    tokens_out = _possible_count(usage.get("completion_tokens"), MOST_TOKENS_OUT)
    if tokens_in is None or tokens_out is None or not tokens_in + tokens_out:
        return count_messages(call.model, call.messages), count_text(call.model, text), 0, 0
    details = usage.get("prompt_tokens_details") or {}

    def count(name: str, other: str) -> int:
        return _possible_count(details.get(name), tokens_in) or _possible_count(usage.get(other), tokens_in) or 0

    cached = count("cached_tokens", "cache_read_input_tokens")
    kept = count("cache_creation_tokens", "cache_creation_input_tokens")
    return tokens_in, tokens_out, cached, min(kept, tokens_in - cached)


def _possible_count(said: Any, most: int) -> int | None:
    found = 0 if said is None else said
    return found if isinstance(found, int) and 0 <= found <= most else None


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


def is_decision_model(model: str) -> bool:
    """Tell whether a model's name asks for typed decisions."""
    return model.startswith(DECISION_PREFIXES)


def litellm_name(model: str) -> str:
    """Return a model's name as LiteLLM knows it: without what asks for decisions."""
    return model.partition("/")[2] if is_decision_model(model) else model


@lru_cache(maxsize=256)
def is_priced(model: str) -> bool:
    """Tell whether LiteLLM's list has a price for the model, be it 0.

    LiteLLM is not asked for one that its list lacks: it would say 0, or ask a server on this machine.
    """
    listed, model = load_litellm().model_cost, litellm_name(model)
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
            return float(sum(load_litellm().cost_per_token(litellm_name(model), **used, **of_cache)))
    return None


@lru_cache(maxsize=256)
def prepare_litellm(model: str) -> Any:
    """Return LiteLLM, loaded, with an unlisted model entered.

    LiteLLM would search for it at every call.
    """
    provider, _, name = model.partition("/")
    litellm = load_litellm()
    listed = is_decision_model(model) or is_priced(model) or not {model, name}.isdisjoint(litellm.model_cost)
    if name and not listed:
        litellm.register_model({model: {"litellm_provider": provider, "mode": "chat"}}, persist_across_reloads=False)
    return litellm


@lru_cache(maxsize=256)
def _needs_cache_marks(model: str) -> bool:
    """Tell whether the provider keeps the beginning of a prompt only if it is marked; most keep it unasked."""
    return "claude" in model and bool(load_litellm().utils.supports_prompt_caching(model))


def key_variable(api_base: str) -> str:
    """Return the environment variable with the key for a server named in `ragc.toml`.

    It is bound to the host, so that no file can have another provider's key sent to a server of its choice:
    `http://gpu-1.example.org:8000/v1` reads `RAGC_API_KEY_GPU__1_EXAMPLE_ORG_8000`.
    """
    place = urlsplit(api_base).netloc.rpartition("@")[2]
    return KEY_PREFIX + place.replace("-", "__").replace(".", "_").replace(":", "_").upper()


def _arguments(call: Call) -> dict[str, Any]:
    """Return LiteLLM's arguments for a text."""
    given = {**call.settings, **connection_arguments(call), "messages": list(call.messages)}
    if _needs_cache_marks(call.model):  # the instructions are the same for every question
        given["cache_control_injection_points"] = [{"location": "message", "role": "system"}]
    return given


def connection_arguments(call: Call) -> dict[str, Any]:
    """Return LiteLLM's arguments for reaching a model, key and address included."""
    given: dict[str, Any] = {"model": litellm_name(call.model), "timeout": HTTP_SECONDS}
    given |= {"num_retries": 0, "max_retries": 0, "cache": {"no-cache": True, "no-store": True}}
    if call.api_base:
        given["api_base"] = call.api_base
        given["api_key"] = os.environ.get(key_variable(call.api_base), NO_KEY)
    return given
