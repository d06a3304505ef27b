"""A model's requests in flight, counted where they fly: from the sending to the last byte of the reply.

What LiteLLM does before and after that takes some milliseconds of the processor, in which a place among a few would
stand empty. So the place is taken and given back by the HTTP session that LiteLLM is given to send with. A provider
that LiteLLM reaches by another way (its own library, say) is noticed, and holds its place for the whole call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, ClientSession

LARGEST = 16 * 2**20  # bytes of a reply; one that is longer counts as never ending
STEPS_TO_SEND = 4
"""Rounds of the event loop in which the next request gets on its way, before LiteLLM reads the reply."""

_turn: ContextVar[Turn | None] = ContextVar("ragc_turn", default=None)
_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, ClientSession] = WeakKeyDictionary()


class Turn:
    """One request's place among those that may be in flight; used on one event loop.

    `began` is when it was taken, by `time.monotonic`, or None as long as it waits; `on_wire`
    whether the session saw the request; `sent` whether its head was written to the provider, as far as one can see.
    """

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._held = False
        self._at_begin: Callable[[], None] | None = None
        self.began: float | None = None
        self.on_wire = False
        self._written = False

    @property
    def sent(self) -> bool:
        return self._written if self.on_wire else self.began is not None

    def write(self) -> None:
        """Says that the request's head was written."""
        self._written = True

    async def begin(self) -> None:
        """Takes the place as soon as one is free; once."""
        if self._held:
            return
        await self._slots.acquire()
        self._held, self.began = True, time.monotonic()
        if self._at_begin is not None:
            self._at_begin()

    def end(self) -> None:
        """Gives the place back, if it was taken."""
        if self._held:
            self._held = False
            self._slots.release()

    def limit(self, seconds: float) -> asyncio.Timeout:
        """A time limit for the block: so long from the taking of the place, and as long for the taking."""
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(seconds if self.began is not None else 2 * seconds)
        self._at_begin = lambda: limit.reschedule(loop.time() + seconds)
        return limit

    def arguments(self) -> dict[str, Any]:
        """What LiteLLM is to send this request with, by the task that calls this."""
        _turn.set(self)
        return {"shared_session": _session()}


def _session() -> ClientSession:
    """The running loop's session: connections are kept and shared by all models; their limits are their lanes'."""
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector, TraceConfig

    loop = asyncio.get_running_loop()
    found = _sessions.get(loop)
    if found is None or found.closed:
        written = TraceConfig()
        written.on_request_headers_sent.append(_note_written)
        found = ClientSession(
            connector=TCPConnector(limit=0),
            cookie_jar=DummyCookieJar(),
            middlewares=(_in_turn,),
            trace_configs=[written],
            auto_decompress=False,
            read_bufsize=LARGEST // 2,  # reading pauses at twice that
        )
        _sessions[loop] = found
    return found


async def _note_written(*_: Any) -> None:
    if (turn := _turn.get()) is not None:
        turn.write()


async def close_session() -> None:
    """Closes the running loop's connections."""
    session = _sessions.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()


async def _in_turn(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    turn = _turn.get()
    if turn is None:
        return await send(request)
    turn.on_wire = True
    await turn.begin()
    response = await send(request)
    response.content.on_eof(turn.end)
    if response.content_type == "application/json":  # whole: streams come as other types
        try:
            await response.content.wait_eof()
        except BaseException:
            response.close()
            raise
        for _ in range(STEPS_TO_SEND):
            await asyncio.sleep(0)
    return response
