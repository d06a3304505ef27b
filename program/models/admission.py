"""What every request of a lane passes: the limits before it is sent, the books after it, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from program.models import transport
from program.models.spending import Spending
from program.models.tokens import count_messages
from program.models.transport import Call, CallFailed, Reply
from program.models.turns import Turn

if TYPE_CHECKING:
    from program.models.lane import Lane


class Admission:
    """Lets a request through when the breaker and the token rate allow; its turn then waits for a place in flight.

    As many requests again as may be in flight are let through to be made ready, where the session that sends them
    sees to their turns; else the place is taken here.
    """

    def __init__(self, lane: Lane, call: Call) -> None:
        self._lane, self._call = lane, call
        self._turn = Turn(lane.slots)

    async def __aenter__(self) -> Turn:
        lane = self._lane
        await lane.gate.acquire()
        try:
            if not lane.on_wire:
                await self._turn.begin()
            if lane.rate.per_minute:
                await lane.rate.take(count_messages(self._call.model, self._call.messages))
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

    def __init__(self, lane: Lane, call: Call, spent: Spending, turn: Turn) -> None:
        self._lane, self._call, self._spent, self._turn = lane, call, spent, turn
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
            self._pay(self._reply.tokens_in, self._reply.tokens_out)
            return
        if not self._turn.sent and not isinstance(error, CallFailed):  # called off before anyone could charge for it
            breaker.abandoned()
            return
        if isinstance(error, CallFailed):
            if error.again and not error.busy:
                breaker.failed()
            else:
                breaker.abandoned()
            if error.reached and self._turn.sent:
                self._pay(error.tokens_in, error.tokens_out)
            return
        breaker.abandoned()
        lost = transport.called_off(self._call)
        self._pay(lost.tokens_in, 0)

    def _pay(self, tokens_in: int, tokens_out: int) -> None:
        self._spent.pay(tokens_in, tokens_out, self._lane.price(tokens_in, tokens_out))
