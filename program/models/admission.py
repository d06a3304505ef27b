"""What every request of a lane passes: caps and limits before it is sent, the books after it, whatever came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from program.models import transport
from program.models.spending import Spending
from program.models.tokens import count_messages
from program.models.transport import Call, CallFailed, Reply
from program.models.turns import Turn

if TYPE_CHECKING:
    from program.models.lane import Lane


WAITERS = 8
MOST_TOKENS = 4096  # of a reply, when money is capped and the request says nothing of its length
_LENGTHS = ("max_tokens", "max_completion_tokens")


@dataclass(slots=True)
class Paid:
    """What one request came to: US dollars, and whether it counts as sent."""

    usd: float = 0.0
    sent: bool = False


def bounded(call: Call, spent: Spending) -> Call:
    """The request, its reply no longer than what is reserved for it where the spender's money is capped."""
    if spent.cap is None or not spent.cap.money or any(call.settings.get(name) for name in _LENGTHS):
        return call
    return replace(call, settings={**call.settings, _LENGTHS[0]: MOST_TOKENS})


def prompt_tokens(parts: Iterable[object], tasks: int = 1) -> int:
    """What a prompt is taken to have before it is counted: a token for every two bytes, with room for its form."""
    return (4000 * tasks + sum(len(str(part).encode("utf-8", "replace")) for part in parts)) // 2


@asynccontextmanager
async def allowed(lane: Lane, call: Call, spent: Spending) -> AsyncIterator[Paid]:
    """One request within the spender's hard cap, to be filled in with what it cost. Raises `BudgetStop` before it.

    As long as it waits and flies its most is reserved: a token for every two bytes, or more if the prompt has more, and
    the longest reply.
    """
    paid = Paid()
    if (cap := spent.cap) is None:
        yield paid
        return
    longest = next((int(call.settings[name]) for name in _LENGTHS if call.settings.get(name)), MOST_TOKENS)
    most = lane.price(max(prompt_tokens(call.messages), count_messages(call.model, call.messages)), longest)
    waiting = asyncio.get_running_loop().run_in_executor(_waiters(), cap.before_call, most)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        waiting.add_done_callback(lambda done: None if done.exception() else cap.after_call(most, 0.0, False))
        raise
    try:
        yield paid
    finally:
        cap.after_call(most, paid.usd, paid.sent)


@lru_cache(maxsize=1)
def _waiters() -> ThreadPoolExecutor:
    """Threads that wait for calls on their way, which may cost less than they might: not those LiteLLM works in."""
    return ThreadPoolExecutor(WAITERS, "ragc-caps")


class Admission:
    """Lets a request through when the breaker allows; its turn then waits for a place in flight.

    As many requests again as may be in flight are let through to be made ready, where the session that sends them
    sees to their turns; else the place is taken here.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._turn = Turn(lane.slots)

    async def __aenter__(self) -> Turn:
        lane = self._lane
        await lane.gate.acquire()
        try:
            if not lane.on_wire:
                await self._turn.begin()
            if not lane.breaker.allows():
                raise CallFailed(f"{lane.model} is left alone for a while", again=False, reached=False)
        except BaseException:
            self._leave()
            raise
        return self._turn

    async def __aexit__(self, *_: object) -> None:
        if self._turn.began is not None:
            self._lane.on_wire = self._turn.on_wire
        self._leave()

    def _leave(self) -> None:
        self._turn.end()
        self._lane.gate.release()


class Booking:
    """Books a request that was sent, tells the breaker, and turns a cancellation into a paid prompt."""

    def __init__(self, lane: Lane, call: Call, spent: Spending, turn: Turn, paid: Paid) -> None:
        self._lane, self._call, self._spent, self._turn, self._paid = lane, call, spent, turn, paid
        self._reply: Reply | None = None

    def __enter__(self) -> Callable[[Reply], None]:
        self._spent.sent()
        return self._take

    def _take(self, reply: Reply) -> None:
        self._reply = reply

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self._book(error)
        finally:
            self._spent.landed()

    def _book(self, error: BaseException | None) -> None:
        breaker = self._lane.breaker
        if self._reply is not None:
            breaker.succeeded()
            reply = self._reply
            self._pay(reply.tokens_in, reply.tokens_out, reply.cached, reply.kept)
            return
        if not self._turn.sent and not isinstance(error, CallFailed):  # called off before anyone could charge for it
            breaker.abandoned()
            return
        if isinstance(error, CallFailed):
            if error.cut:
                breaker.succeeded()
            elif error.again and not error.busy:
                breaker.failed()
            else:
                breaker.abandoned()
            if error.reached and self._turn.sent:
                self._pay(error.tokens_in, error.tokens_out)
            return
        breaker.abandoned()
        lost = transport.called_off(self._call)
        self._pay(lost.tokens_in, 0)

    def _pay(self, tokens_in: int, tokens_out: int, cached: int = 0, kept: int = 0) -> None:
        self._paid.usd, self._paid.sent = self._lane.price(tokens_in, tokens_out, cached, kept), True
        self._spent.pay(tokens_in, tokens_out, self._paid.usd)
