"""One request to a language model through LiteLLM, and what came of it: a reply, or a failure one can act on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dspy.lm15 import ProviderError

from program.models.provider import arguments, introduce, library
from program.models.tokens import count_messages, count_text, reported

LONGEST_STREAM = 16_000
_REFUSALS = (429, 502, 503, 529)
_NOT_ANSWERED = (400, 401, 403, 404, 405, 413, 415, 422)  # asking again gets the same


@dataclass(frozen=True, slots=True)
class Call:
    """What is sent: the messages and the settings of one request, in LiteLLM's (OpenAI's) words."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    api_base: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `whole` is false when the model was cut off; tokens are the provider's own count, or ours.

    Of the tokens in, `cached` were read from the provider's cache and `kept` written to it.
    """

    text: str
    tokens_in: int
    tokens_out: int
    whole: bool = True
    cached: int = 0
    kept: int = 0


class CallFailed(ProviderError):
    """A request that brought no usable reply.

    `again` says whether a repetition may help, `busy` that the provider only asked for patience (`wait` seconds),
    `reached` that the provider got the request, `tokens_in` and `tokens_out` what it may charge for it, `status`
    its HTTP status where it told one, `cut` that its reply's tokens were used up before the first word. The text
    holds no word of the provider's, which may quote a key.
    """

    def __init__(
        self,
        what: str,
        *,
        again: bool,
        reached: bool,
        busy: bool = False,
        wait: float = 0.0,
        tokens_in: int = 0,
        tokens_out: int = 0,
        status: int = 0,
        cut: bool = False,
    ) -> None:
        super().__init__(what)
        self.what, self.again, self.reached, self.busy, self.wait = what, again, reached, busy, wait
        self.tokens_in, self.tokens_out = tokens_in, tokens_out
        self.status, self.cut = status, cut


async def ask(call: Call, seconds: float) -> Reply:
    """Return the reply, within so many seconds. Raises `CallFailed`."""
    try:
        async with asyncio.timeout(seconds):
            introduce(call.model)
            raw = await library().acompletion(**arguments(call))
    except Exception as error:
        raise failure_of(call, error) from None
    body = raw.model_dump()
    text, whole = _text(body)
    tokens_in, tokens_out, cached, kept = reported(call.model, call.messages, body.get("usage"), text)
    if not text:
        raise _empty(call, _is_cut(body), tokens_in, tokens_out)
    return Reply(text, tokens_in, tokens_out, whole, cached, kept)


async def ask_streaming(call: Call, seconds: float) -> AsyncIterator[str | Reply]:
    """The pieces of the reply as they come, the whole `Reply` last. Raises `CallFailed`, perhaps amid the pieces.

    `seconds` bounds the time to the first piece and between two. A text of more than `LONGEST_STREAM` characters is
    left there, as one that was cut off.
    """
    pieces: list[str] = []
    length = 0
    usage: dict[str, Any] = {}
    finish = source = None
    try:
        async with asyncio.timeout(seconds):
            introduce(call.model)
            wanted = {"stream": True, "stream_options": {"include_usage": True}}
            source = await library().acompletion(**arguments(call), **wanted)
        iterator = aiter(source)
        while True:
            async with asyncio.timeout(seconds):
                chunk = await anext(iterator, None)
            if chunk is None:
                break
            body = chunk.model_dump()
            usage = body.get("usage") or usage
            for choice in body.get("choices") or ():
                finish = choice.get("finish_reason") or finish
                if piece := _sound((choice.get("delta") or {}).get("content")):
                    pieces.append(piece)
                    length += len(piece)
                    yield piece
            if length > LONGEST_STREAM:
                finish = "length"
                break
    except Exception as error:
        raise failure_of(call, error, "".join(pieces)) from None
    finally:
        if source is not None:
            with suppress(Exception):
                await source.aclose()
    text = "".join(pieces)
    tokens_in, tokens_out, cached, kept = reported(call.model, call.messages, usage, text)
    if not text:
        raise _empty(call, finish == "length", tokens_in, tokens_out)
    yield Reply(text, tokens_in, tokens_out, finish != "length", cached, kept)


def late(call: Call) -> CallFailed:
    """The failure of a request that the question could not wait for."""
    return CallFailed(f"{call.model} did not answer within the question's time", again=False, reached=False)


def called_off(call: Call) -> CallFailed:
    """The failure of a request that was called off while under way: it is counted as charged for its prompt."""
    return CallFailed(
        f"{call.model} was called off", again=False, reached=True, tokens_in=count_messages(call.model, call.messages)
    )


def _text(body: Mapping[str, Any]) -> tuple[str, bool]:
    """The text of the first choice (or the arguments of its tool call), and whether it is whole."""
    for choice in body.get("choices") or ():
        message = choice.get("message") or {}
        text = _sound(message.get("content"))
        if not text:
            calls = message.get("tool_calls") or ()
            text = "".join(_sound((call.get("function") or {}).get("arguments")) for call in calls)
        return text, choice.get("finish_reason") != "length"
    return "", False


def _is_cut(body: Mapping[str, Any]) -> bool:
    return any(choice.get("finish_reason") == "length" for choice in body.get("choices") or ())


def _empty(call: Call, cut: bool, tokens_in: int, tokens_out: int) -> CallFailed:
    """The failure of a reply without a word; one that used up its tokens would end so again."""
    what = "used its reply's tokens up before the first word" if cut else "sent an empty reply"
    return CallFailed(
        f"{call.model} {what}", again=not cut, reached=True, tokens_in=tokens_in, tokens_out=tokens_out, cut=cut
    )


def _sound(text: Any) -> str:
    """Text that can be written as UTF-8: half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def failure_of(call: Call, error: Exception, text: str = "") -> CallFailed:
    """What an error of LiteLLM's means; `text` is what had come until then."""
    causes = _causes(error)
    response = next((r for c in causes if (r := getattr(c, "response", None)) is not None and r.headers), None)
    if response is not None and response.status_code >= 400:
        given = int(response.status_code)
        return CallFailed(
            f"{call.model} answered {given}",
            again=given not in _NOT_ANSWERED,
            reached=True,
            busy=given == 429,
            wait=_seconds(response.headers.get("retry-after")),
            status=given,
        )
    status: Any = getattr(error, "status_code", None)
    if status in _REFUSALS:  # LiteLLM itself says 500 or 408 where there was no status at all
        headers = getattr(error, "litellm_response_headers", None) or {}
        return CallFailed(
            f"{call.model} answered {status}",
            again=True,
            reached=True,
            busy=status == 429,
            wait=_seconds(headers.get("retry-after")),
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


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _seconds(header: str | None) -> float:
    """A `Retry-After` in seconds; an HTTP date counts from now."""
    if not header:
        return 0.0
    try:
        return max(0.0, float(header))
    except ValueError:
        from datetime import UTC, datetime
        from email.utils import parsedate_to_datetime

        try:
            return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError):
            return 0.0
