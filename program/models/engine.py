"""DSPy's language model over the gateway: what an optimizer, a predictor or a person may call as any `dspy.LM`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import dspy
from dspy.clients.lm15_boundary import request_kwargs
from dspy.lm15 import (
    Message,
    Request,
    Response,
    StreamDeltaEvent,
    StreamEndEvent,
    StreamStartEvent,
    TextDelta,
    TextPart,
    Usage,
    response_to_events,
)

from program.models.gateway import shared_gateway
from program.models.lane import Lane
from program.models.spending import current
from program.models.transport import Call, Reply


class ProviderLM(dspy.LM):
    """A language model asked through the gateway, which sees to repeats, limits and accounting.

    `adapter` is what `dspy.Predict` is to speak to it with. DSPy's own cache and repeats are off.
    """

    def __init__(self, lane: Lane, adapter: Any = None) -> None:
        engine = ProviderEngine(lane)
        super().__init__(
            lane.model, engine=engine, async_engine=AsyncProviderEngine(engine), cache=False, num_retries=0
        )
        self.lane = lane
        self.adapter = adapter


class ProviderEngine:
    """Sends one DSPy request; safe from many threads."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.gateway = shared_gateway()

    def call(self, request: Request) -> Call:
        """The request in LiteLLM's words."""
        settings = request_kwargs(request, "chat")
        messages = settings.pop("messages")
        return Call(self.lane.model, messages, settings, self.lane.api_base)

    def complete(self, request: Request) -> Response:
        """Raises `CallFailed`."""
        return _response(request, self.gateway.ask(self.lane, self.call(request), current()))

    def stream(self, request: Request) -> Iterator[Any]:
        """The reply as events, all at once: only an event loop is given it piece by piece."""
        yield from response_to_events(self.complete(request))

    def dump_state(self) -> dict[str, Any]:
        """Nothing: who serves a model is the project's affair, not the program's."""
        return {}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> ProviderEngine:
        raise TypeError("A provider's engine is bound when a project is opened.")


class AsyncProviderEngine:
    """The same, awaited, and streaming."""

    def __init__(self, engine: ProviderEngine) -> None:
        self._engine = engine

    async def complete(self, request: Request) -> Response:
        """Raises `CallFailed`."""
        engine = self._engine
        return _response(request, await engine.gateway.aask(engine.lane, engine.call(request), current()))

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """Events as the words come. Raises `CallFailed`."""
        engine = self._engine
        yield StreamStartEvent(id=None, model=request.model)
        async for piece in engine.gateway.stream(engine.lane, engine.call(request), current()):
            if isinstance(piece, Reply):
                current().cut = not piece.whole
                yield StreamEndEvent(finish_reason=_finish(piece), usage=_usage(piece))
            else:
                yield StreamDeltaEvent(TextDelta(text=piece, part_index=0))

    def dump_state(self) -> dict[str, Any]:
        return {}

    @classmethod
    def load_state(cls, state: Mapping[str, Any]) -> AsyncProviderEngine:
        return cls(ProviderEngine.load_state(state))


def _response(request: Request, reply: Reply) -> Response:
    current().cut = not reply.whole
    return Response(
        id=None,
        model=request.model,
        message=Message.assistant([TextPart(reply.text)]),
        finish_reason=_finish(reply),
        usage=_usage(reply),
    )


def _finish(reply: Reply) -> Any:
    return "stop" if reply.whole else "length"


def _usage(reply: Reply) -> Usage:
    total = reply.tokens_in + reply.tokens_out
    return Usage(input_tokens=reply.tokens_in, output_tokens=reply.tokens_out, total_tokens=total)
