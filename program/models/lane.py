"""One model on one server: its limits, its repeats, its circuit breaker, its books."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from program.models import transport
from program.models.admission import Paid, allowed, bounded
from program.models.provider import is_priced, listed_price
from program.models.spending import Spending
from program.models.transport import Call, CallFailed, Reply

WARM_UP = 20.0  # seconds more for a lane's first request, in which LiteLLM loads the provider's part
FIRST_WAIT, LONGEST_WAIT = 0.25, 20.0  # seconds between tries, before jitter
_BACKOFF = wait_exponential_jitter(initial=FIRST_WAIT, max=LONGEST_WAIT, jitter=FIRST_WAIT)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a model may be asked. Seconds, requests in flight, US$ a million tokens."""

    call_seconds: float = 30.0
    retries: int = 3
    concurrency: int = 16
    breaker_after: int = 8
    breaker_seconds: float = 5.0
    usd_in: float | None = None
    usd_out: float | None = None


@dataclass(slots=True)
class Breaker:
    """Opens after `after` failures in a row; after `seconds` one request is let through to try, and closes it.

    See M. Nygard, Release It!, "Circuit Breaker".
    """

    after: int
    seconds: float
    failures: int = 0
    opened: float | None = None
    trying: bool = False

    def allows(self) -> bool:
        """True when a request may be sent now; when open, for one request every `seconds`."""
        if self.opened is None:
            return True
        if self.trying or time.monotonic() - self.opened < self.seconds:
            return False
        self.trying = True
        return True

    def succeeded(self) -> None:
        self.failures, self.opened, self.trying = 0, None, False

    def failed(self) -> None:
        self.failures += 1
        if self.trying or (self.opened is None and self.failures >= self.after):
            self.opened, self.trying = time.monotonic(), False

    def abandoned(self) -> None:
        """The request that was let through was called off: another may try."""
        self.trying = False


@dataclass(slots=True)
class Lane:
    """One model on one server under one set of terms: its limits and what is known of it. Used on the loop only."""

    model: str
    api_base: str
    terms: Terms
    slots: asyncio.Semaphore
    breaker: Breaker
    warm: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Lane:
        return self  # copies of a model share its limits

    @property
    def priced(self) -> bool:
        """True when what a call costs is known: by the project, or by LiteLLM."""
        return self.terms.usd_in is not None or self.terms.usd_out is not None or is_priced(self.model)

    def price(self, tokens_in: int, tokens_out: int, cached: int = 0, kept: int = 0) -> float:
        """US dollars of a call: at the project's own price, else LiteLLM's, which knows what its provider's cache saves
        or costs; 0 when neither is known."""
        terms = self.terms
        if terms.usd_in is not None or terms.usd_out is not None:
            return ((terms.usd_in or 0.0) * tokens_in + (terms.usd_out or 0.0) * tokens_out) / 1_000_000
        return listed_price(self.model, tokens_in, tokens_out, cached, kept) or 0.0

    async def ask(self, call: Call, spent: Spending) -> Reply:
        """Return the reply, waited for no longer than the question can. Raises `CallFailed`."""
        if spent.seconds_left <= 0:
            raise transport.late(call)
        try:
            async with asyncio.timeout(spent.patience):
                return await self._repeatedly(bounded(call, spent), spent)
        except TimeoutError:
            raise transport.late(call) from None

    async def _repeatedly(self, call: Call, spent: Spending) -> Reply:
        async for attempt in self._attempts(spent):
            with attempt:
                async with self._admitted(call, spent) as paid:
                    paid.reply = reply = await transport.ask(call, self._seconds(spent))
                return reply
        raise AssertionError("tenacity raises the last failure")

    async def stream(self, call: Call, spent: Spending) -> AsyncIterator[str | Reply]:
        """The pieces of the reply, the whole `Reply` last; repeated only while no piece has come."""
        call, begun = bounded(call, spent), False
        async for attempt in self._attempts(spent):
            with attempt:
                try:
                    async with self._admitted(call, spent) as paid:
                        async for piece in transport.ask_streaming(call, self._seconds(spent)):
                            begun = True
                            if isinstance(piece, Reply):
                                paid.reply = piece
                            else:
                                yield piece
                except CallFailed as failure:
                    failure.again = failure.again and not begun
                    raise
                assert paid.reply is not None
                yield paid.reply  # once it is in the books
                return

    def _attempts(self, spent: Spending) -> AsyncRetrying:
        return AsyncRetrying(
            stop=stop_after_attempt(self.terms.retries + 1),
            wait=_wait,
            retry=retry_if_exception(lambda e: isinstance(e, CallFailed) and e.again and spent.seconds_left > e.wait),
            reraise=True,
        )

    @asynccontextmanager
    async def _admitted(self, call: Call, spent: Spending) -> AsyncIterator[Paid]:
        """Let one request through the cap, the places in flight and the breaker; book it, whatever becomes of it."""
        async with allowed(call, spent, self.price) as paid, self.slots:
            if not self.breaker.allows():
                raise CallFailed(f"{self.model} is left alone for a while", again=False, reached=False)
            spent.sent()
            try:
                yield paid
            except BaseException as error:
                failure = error if isinstance(error, CallFailed) else transport.called_off(call)
                self._tell_breaker(error)
                if failure.reached:
                    self._pay(spent, paid, failure.tokens_in, failure.tokens_out)
                raise
            else:
                self.breaker.succeeded()
                assert paid.reply is not None
                reply = paid.reply
                self._pay(spent, paid, reply.tokens_in, reply.tokens_out, reply.cached, reply.kept)
            finally:
                spent.landed()

    def _tell_breaker(self, error: BaseException) -> None:
        if isinstance(error, CallFailed) and error.cut:
            self.breaker.succeeded()
        elif isinstance(error, CallFailed) and error.again and not error.busy:
            self.breaker.failed()
        else:
            self.breaker.abandoned()

    def _pay(
        self, spent: Spending, paid: Paid, tokens_in: int, tokens_out: int, cached: int = 0, kept: int = 0
    ) -> None:
        paid.usd, paid.sent = self.price(tokens_in, tokens_out, cached, kept), True
        spent.pay(tokens_in, tokens_out, paid.usd)

    def _seconds(self, spent: Spending) -> float:
        """How long one request may take."""
        seconds = self.terms.call_seconds + (0.0 if self.warm else WARM_UP)
        self.warm = True
        return min(seconds, max(0.0, spent.seconds_left))


def _wait(state: RetryCallState) -> float:
    """Exponential with jitter, and never less than the provider asked for."""
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.wait if isinstance(failure, CallFailed) else 0.0
    return max(asked, _BACKOFF(state))
