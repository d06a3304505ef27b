"""Where every request to a language model passes.

One event loop in a thread of its own serves all threads and loops of the process, so that a model's limits hold
for the whole process and its connections are shared.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Coroutine
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, TypeVar

from program.models.lane import Breaker, Lane, Terms
from program.models.spending import Spending
from program.models.transport import Call, CallFailed, Reply, late

T = TypeVar("T")


class Gateway:
    """The process's way to language models: a loop in its own thread, and a lane for each model."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lanes: dict[tuple[str, str, Terms], Lane] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._loop.run_forever, name="ragc-models", daemon=True).start()

    def lane(self, model: str, api_base: str, terms: Terms) -> Lane:
        """The lane of a model; the same names and terms share one."""
        key = (model, api_base, terms)
        with self._lock:
            if key not in self._lanes:
                breaker = Breaker(terms.breaker_after, terms.breaker_seconds)
                self._lanes[key] = Lane(model, api_base, terms, asyncio.Semaphore(terms.concurrency), breaker)
            return self._lanes[key]

    def ask(self, lane: Lane, call: Call, spent: Spending) -> Reply:
        """The reply, waited for by this thread. Raises `CallFailed`."""
        return self._submit(lane.ask(call, spent)).result()

    async def aask(self, lane: Lane, call: Call, spent: Spending) -> Reply:
        """The reply, awaited; cancelling the wait calls the request off."""
        return await asyncio.wrap_future(self._submit(lane.ask(call, spent)))

    async def stream(self, lane: Lane, call: Call, spent: Spending) -> AsyncIterator[str | Reply]:
        """The pieces as they come, the whole reply last. Raises `CallFailed`; leaving early calls the request off."""
        pieces: asyncio.Queue[Any] = asyncio.Queue()
        here = asyncio.get_running_loop()

        async def forward() -> None:
            try:
                async for piece in lane.stream(call, spent):
                    here.call_soon_threadsafe(pieces.put_nowait, piece)
            except CallFailed as failure:
                here.call_soon_threadsafe(pieces.put_nowait, failure)

        sent = self._submit(forward())
        try:
            while True:
                async with asyncio.timeout(spent.patience):
                    piece = await pieces.get()
                if isinstance(piece, CallFailed):
                    raise piece
                yield piece
                if isinstance(piece, Reply):
                    return
        except TimeoutError:
            raise late(call) from None
        finally:
            sent.cancel()

    def _submit(self, work: Coroutine[Any, Any, T] | Awaitable[T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def shared_gateway() -> Gateway:
    """The gateway of this process."""
    return Gateway()
