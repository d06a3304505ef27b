"""One request to a model through LiteLLM, and what came of it: a reply, or a failure one can act on.

DSPy's `AsyncLiteLLMEngine` does not do here: it drops `Retry-After`, loses a paid reply whose count of tokens is below
zero, and ends a stream at a field that it does not know.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from dspy.lm15 import Message, ProviderError, Response, ServerError, TextPart, TokenLogprob, Usage
from pydantic import ValidationError

from ragc.models.language import provider

LONGEST_STREAM = 8_000  # characters, as of the longest answer; the rest counts as cut off
EXTRA_TOKENS = 10_000  # in, beyond the prompt's bytes: what a provider may add to it
MOST_TOKENS_OUT = 1_000_000
BUSY = 429
MALFORMED = 0  # the status of a reply whose log-probabilities LiteLLM cannot read
BUSY_SECONDS = 1.0  # to leave a busy provider alone that does not say how long
_REFUSALS = (BUSY, 502, 503, 529)
_FINAL = (400, 401, 403, 404, 405, 413, 415, 422)  # asking again gets the same
_UNASKED = ("AuthenticationError", "BadRequestError", "NotFoundError", "PermissionDeniedError")


@dataclass(frozen=True, slots=True)
class Call:
    """One request in LiteLLM's (OpenAI's) words."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    api_base: str = ""


class CallFailed(ProviderError):
    """A request without a usable reply. The text holds no word of the provider's, which may quote a key.

    `usage` is what may be charged, None where the provider did not get the request. `cut` is true when the reply's
    tokens were used up before its first word.
    """

    def __init__(self, what: str, *, usage: Usage | None = None, cut: bool = False, **facts: Any) -> None:
        super().__init__(what, **facts)
        self.usage = usage
        self.cut = cut


class CallInterrupted(CallFailed, ServerError):
    """A failure that a repetition may mend: DSPy's language model repeats it after `retry_after` seconds."""


async def send_call(call: Call, seconds: float, streams: bool) -> AsyncIterator[str | Response]:
    """Yield the pieces of a reply as they come, one where it does not stream, then the whole reply.

    `seconds` bounds the time to the first piece and between two. Raises `CallFailed`, perhaps amid the pieces.
    """
    text, tokens, source, finish = "", list[TokenLogprob](), None, None
    counts: Mapping[str, Any] = {}
    litellm = provider.prepare_litellm(call.model)
    try:
        async with asyncio.timeout(seconds):
            source = await litellm.acompletion(**_arguments(call, streams))
        chunks = aiter(source) if streams else _alone(source)
        while len(text) <= LONGEST_STREAM or not streams:
            async with asyncio.timeout(seconds):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            body = chunk.model_dump()
            counts = body.get("usage") or counts
            for choice in body.get("choices") or ():
                finish = choice.get("finish_reason") or finish
                tokens += _read_logprobs(choice)
                if piece := _read_text(choice.get("delta") or choice.get("message") or {}):
                    text += piece
                    yield piece
    except Exception as error:
        raise failure_of(call, error, text) from None
    finally:
        if streams and source is not None:
            with suppress(Exception):
                await source.aclose()
    cut = finish == "length" or (streams and len(text) > LONGEST_STREAM)
    usage = _read_usage(call, counts, text)
    if not text and cut:
        raise CallFailed(f"{call.model} used its reply's tokens up before the first word", usage=usage, cut=True)
    message, why = Message.assistant([TextPart(text)]), "length" if cut else "stop"
    whole = sum(len(one.token) for one in tokens) >= len(text.strip())  # else some tokens have none
    logprobs = tuple(tokens) if tokens and whole else None
    yield Response(None, call.model, message, finish_reason=why, usage=usage, logprobs=logprobs)


def estimate_usage(call: Call, text: str = "") -> Usage:
    """Return our own count of a request's tokens."""
    return Usage(provider.count_messages(call.model, call.messages), provider.count_text(call.model, text))


def late_failure(call: Call) -> CallFailed:
    """Return the failure of a request that the question could not wait for."""
    return CallFailed(f"{call.model} did not answer within the question's time")


def failure_of(call: Call, error: Exception, text: str = "") -> CallFailed:
    """Return what an error of LiteLLM's means; `text` is what had come until then."""
    causes = _list_causes(error)
    response = next((r for c in causes if (r := getattr(c, "response", None)) is not None and r.headers), None)
    stated = int(response.status_code) if response is not None and response.status_code >= 400 else 0
    status = stated or getattr(error, "status_code", None)
    if stated or status in _REFUSALS:  # LiteLLM itself says 500 or 408 where there was no status at all
        headers = getattr(response, "headers", {}) if stated else getattr(error, "litellm_response_headers", None) or {}
        wait = _retry_seconds(headers.get("retry-after"), BUSY_SECONDS if status == BUSY else 0.0)
        kind = CallFailed if stated in _FINAL else CallInterrupted
        return kind(f"{call.model} answered {status}", usage=Usage(0, 0), status=status, retry_after=wait)
    names = [type(cause).__name__ for cause in causes]
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes) or any("ConnectError" in n for n in names):
        return CallInterrupted(f"{call.model} cannot be reached")
    if names[0] in _UNASKED:
        return CallFailed(f"{call.model} cannot be asked ({names[0]})")
    if any(isinstance(cause, ValidationError) and provider.LOGPROBS in str(cause).casefold() for cause in causes):
        what, usage = f"{call.model} sent log-probabilities that are no numbers", estimate_usage(call, text)
        return CallInterrupted(what, usage=usage, status=MALFORMED)
    late = isinstance(error, TimeoutError) or any("Timeout" in name for name in names)
    what = f"{call.model} did not answer in time" if late else f"{call.model} sent an unreadable reply"
    return CallInterrupted(what, usage=estimate_usage(call, text))


async def _alone(reply: Any) -> AsyncIterator[Any]:
    yield reply


def _arguments(call: Call, streams: bool) -> dict[str, Any]:
    """Return LiteLLM's arguments for a request."""
    given = provider.connection_arguments(call.model, call.api_base)
    given = {**call.settings, **given, "messages": list(call.messages)}
    if provider.needs_cache_marks(call.model):  # the instructions are the same for every question
        given["cache_control_injection_points"] = [{"location": "message", "role": "system"}]
    return {**given, "stream": True, "stream_options": {"include_usage": True}} if streams else given


def _read_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message or of a piece of one, or the arguments of its tool calls."""
    calls = message.get("tool_calls") or ()
    return provider.to_text(message.get("content")) or "".join(
        provider.to_text((call.get("function") or {}).get("arguments")) for call in calls
    )


def _read_logprobs(choice: Mapping[str, Any]) -> Iterator[TokenLogprob]:
    """Yield the tokens of a reply, or of a piece of one, whose log-probability the provider gives."""
    given = choice.get("logprobs")
    content = given.get("content") if isinstance(given, Mapping) else None
    for one in content if isinstance(content, list) else ():
        value = one.get("logprob") if isinstance(one, Mapping) else None
        if isinstance(value, int | float) and math.isfinite(value):
            yield TokenLogprob(provider.to_text(one.get("token")), min(0.0, float(value)))


def _list_causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _retry_seconds(header: str | None, otherwise: float) -> float:
    """Return a `Retry-After` header in seconds; an HTTP date counts from now."""
    with suppress(ValueError, TypeError):
        return max(0.0, float(header or ""))
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(header or "") - datetime.now(UTC)).total_seconds())
    return otherwise


def _read_usage(call: Call, counts: Mapping[str, Any], text: str) -> Usage:
    """Return the provider's count of tokens or, where that cannot be, ours."""
    longest = EXTRA_TOKENS + sum(len(str(message).encode("utf-8", "replace")) for message in call.messages)
    tokens_in = _possible_count(counts.get("prompt_tokens"), longest)
    tokens_out = _possible_count(counts.get("completion_tokens"), MOST_TOKENS_OUT)
    if tokens_in is None or tokens_out is None or not tokens_in + tokens_out:
        return estimate_usage(call, text)
    details = counts.get("prompt_tokens_details") or {}

    def count(name: str, other: str) -> int:
        return _possible_count(details.get(name), tokens_in) or _possible_count(counts.get(other), tokens_in) or 0

    cached = count("cached_tokens", "cache_read_input_tokens")
    kept = min(count("cache_creation_tokens", "cache_creation_input_tokens"), tokens_in - cached)
    return Usage(tokens_in, tokens_out, cache_read_tokens=cached, cache_write_tokens=kept)


def _possible_count(stated: Any, most: int) -> int | None:
    count = 0 if stated is None else stated
    return count if isinstance(count, int) and 0 <= count <= most else None
