"""Where every request to a language model passes: limits, repeats, circuit breaker, books, and DSPy's engine.

One event loop in a thread of its own serves all threads and loops of the process, so that a model's limits hold
for the whole process and its connections are shared.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import dspy
from dspy import lm15
from dspy.clients.lm15_boundary import request_kwargs

from program.models.language.decision_wire import request_decision
from program.models.language.spending import ModelSpending, Paid, current_spending, limit_reply, reserve_cost
from program.models.language.transport import (
    Call,
    CallFailed,
    Reply,
    cancelled_failure,
    is_decision_model,
    is_priced,
    late_failure,
    listed_price,
    request_reply,
    stream_reply,
)

T = TypeVar("T")
Pieces = Callable[[Call, float], AsyncIterator[str | Reply]]
"""A request that yields its reply in pieces, the whole last, within so many seconds."""
WARM_UP = 20.0  # seconds more for an endpoint's first request, in which LiteLLM loads the provider's part
FIRST_WAIT, LONGEST_WAIT = 0.25, 20.0  # seconds between tries, before jitter


@dataclass(frozen=True, slots=True)
class EndpointTerms:
    """How a model may be asked: seconds, requests in flight, US$ a million tokens."""

    call_seconds: float = 30.0
    retries: int = 3
    concurrency: int = 16
    breaker_after: int = 8
    breaker_seconds: float = 5.0
    usd_in: float | None = None
    usd_out: float | None = None


@dataclass(slots=True)
class CircuitBreaker:
    """Opens after `after` failures in a row; then one request is let through every `seconds`, until one succeeds."""

    after: int
    seconds: float
    failures: int = 0
    next_try: float = 0.0

    def allows_request(self) -> bool:
        """Tell whether a request may be sent now; while open, one every `seconds`."""
        now = time.monotonic()
        if self.failures < self.after:
            return True
        allowed = now >= self.next_try
        self.next_try = now + self.seconds if allowed else self.next_try
        return allowed

    def note_result(self, failed: bool | None) -> None:
        """Count a failure, close after a success; None is a request called off."""
        if failed is None:
            self.next_try = 0.0  # another may try in its place
        elif failed:
            self.failures, self.next_try = self.failures + 1, time.monotonic() + self.seconds
        else:
            self.failures = 0


@dataclass(slots=True)
class Endpoint:
    """One model on one server under one set of terms. Its coroutines run on the gateway's loop only."""

    model: str
    api_base: str
    terms: EndpointTerms
    slots: asyncio.Semaphore
    breaker: CircuitBreaker
    warm: bool = False
    takes_examples: bool = True
    """False once a decision model has refused demonstrations."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Endpoint:
        return self  # copies of a model share its limits

    @property
    def priced(self) -> bool:
        """True when the project or LiteLLM knows what a call costs."""
        return self.terms.usd_in is not None or self.terms.usd_out is not None or is_priced(self.model)

    def price(self, tokens_in: int, tokens_out: int, cached: int = 0, kept: int = 0) -> float:
        """Return a call's US dollars by the project's price, else LiteLLM's, else 0."""
        usd_in, usd_out = self.terms.usd_in, self.terms.usd_out
        if usd_in is not None or usd_out is not None:
            return ((usd_in or 0.0) * tokens_in + (usd_out or 0.0) * tokens_out) / 1_000_000
        return listed_price(self.model, tokens_in, tokens_out, cached, kept) or 0.0

    async def ask(self, call: Call, spent: ModelSpending) -> Reply:
        """Return the reply, within the question's time. Raises `CallFailed`."""
        if spent.seconds_left <= 0:
            raise late_failure(call)
        request = request_decision if is_decision_model(call.model) else request_reply
        try:
            async with asyncio.timeout(spent.patience), aclosing(self.stream(call, spent, request)) as replies:
                reply = await anext(replies)
        except TimeoutError:
            raise late_failure(call) from None
        assert isinstance(reply, Reply)
        return reply

    async def stream(
        self, call: Call, spent: ModelSpending, request: Pieces = stream_reply
    ) -> AsyncGenerator[str | Reply]:
        """Yield the pieces, then the `Reply`; repeat only while no piece has come."""
        call, begun, tries = limit_reply(call, spent), False, 0
        while True:
            tries += 1
            try:
                async with self._admit(call, spent) as paid:
                    async for piece in request(call, self._request_seconds(spent)):
                        begun = True
                        if isinstance(piece, Reply):
                            paid.reply = piece
                        else:
                            yield piece
                assert paid.reply is not None
                yield paid.reply  # once it is in the books
                return
            except CallFailed as failure:
                failure.again = failure.again and not begun
                await self._wait_or_raise(failure, tries, spent)

    async def _wait_or_raise(self, failure: CallFailed, tries: int, spent: ModelSpending) -> None:
        """Wait before the next try: exponentially with jitter, never less than the provider asked for."""
        if not failure.again or tries > self.terms.retries or spent.seconds_left <= failure.wait:
            raise failure
        backoff = min(FIRST_WAIT * 2 ** (tries - 1) + random.uniform(0, FIRST_WAIT), LONGEST_WAIT)
        await asyncio.sleep(max(failure.wait, backoff))

    @asynccontextmanager
    async def _admit(self, call: Call, spent: ModelSpending) -> AsyncIterator[Paid]:
        """Let one request through the cap, the places in flight and the breaker; book it, whatever becomes of it."""
        async with reserve_cost(call, spent, self.price) as paid, self.slots:
            if not self.breaker.allows_request():
                raise CallFailed(f"{self.model} is left alone for a while", again=False, reached=False)
            with spent.count_under_way():
                try:
                    yield paid
                except BaseException as error:
                    failure = error if isinstance(error, CallFailed) else cancelled_failure(call)
                    failed = False if failure.cut else True if failure.again and not failure.busy else None
                    self.breaker.note_result(failed)
                    if failure.reached:
                        self._book(spent, paid, failure)
                    raise
                assert paid.reply is not None
                self.breaker.note_result(False)
                self._book(spent, paid, paid.reply)

    def _book(self, spent: ModelSpending, paid: Paid, used: Reply | CallFailed) -> None:
        paid.usd, paid.sent = self.price(used.tokens_in, used.tokens_out, used.cached, used.kept), True
        spent.book_request(used.tokens_in, used.tokens_out, paid.usd)

    def _request_seconds(self, spent: ModelSpending) -> float:
        seconds = self.terms.call_seconds + (0.0 if self.warm else WARM_UP)
        self.warm = True
        return min(seconds, max(0.0, spent.seconds_left))


class Gateway:
    """The process's way to language models: an event loop in its own thread, and an endpoint for each model."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._endpoints: dict[tuple[str, str, EndpointTerms], Endpoint] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._loop.run_forever, name="ragc-models", daemon=True).start()

    def endpoint(self, model: str, api_base: str, terms: EndpointTerms) -> Endpoint:
        """Return the endpoint of a model; the same names and terms share one."""
        key = (model, api_base, terms)
        with self._lock:
            if key not in self._endpoints:
                breaker = CircuitBreaker(terms.breaker_after, terms.breaker_seconds)
                self._endpoints[key] = Endpoint(*key, asyncio.Semaphore(terms.concurrency), breaker)
            return self._endpoints[key]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what work on the gateway's loop comes to, waited for by this thread."""
        return self._submit(work).result()

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the same, awaited; cancelling the wait calls the work off."""
        return await asyncio.wrap_future(self._submit(work))

    async def stream(self, endpoint: Endpoint, call: Call, spent: ModelSpending) -> AsyncIterator[str | Reply]:
        """Yield the pieces, then the whole reply; leaving early calls the request off."""
        pieces: asyncio.Queue[Any] = asyncio.Queue()
        here = asyncio.get_running_loop()

        async def forward_pieces() -> None:
            try:
                async for piece in endpoint.stream(call, spent):
                    here.call_soon_threadsafe(pieces.put_nowait, piece)
            except CallFailed as failure:
                here.call_soon_threadsafe(pieces.put_nowait, failure)

        sent = self._submit(forward_pieces())
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
            raise late_failure(call) from None
        finally:
            sent.cancel()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


@lru_cache(maxsize=1)
def shared_gateway() -> Gateway:
    """Return the gateway of this process."""
    return Gateway()


class ProviderLM(dspy.LM):
    """A language model asked through the gateway; `adapter` is what `dspy.Predict` is to speak to it with."""

    def __init__(self, endpoint: Endpoint, adapter: Any = None) -> None:
        engine, awaited = ProviderEngine(endpoint), AsyncProviderEngine(endpoint)
        super().__init__(endpoint.model, engine=engine, async_engine=awaited, cache=False, num_retries=0)
        self.endpoint = endpoint
        self.adapter = adapter


class ProviderEngine:
    """DSPy's engine of a language model; safe from many threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.gateway = shared_gateway()

    def call(self, request: lm15.Request) -> Call:
        """Return the request in LiteLLM's words."""
        settings = request_kwargs(request, "chat")
        return Call(self.endpoint.model, settings.pop("messages"), settings, self.endpoint.api_base)

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the reply. Raises `CallFailed`."""
        return to_response(request, self.gateway.run(self.endpoint.ask(self.call(request), current_spending())))

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Yield the reply as events, all at once: pieces are for an event loop."""
        yield from lm15.response_to_events(self.complete(request))


class AsyncProviderEngine(ProviderEngine):
    """The same engine, awaited and streaming."""

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the reply. Raises `CallFailed`."""
        return to_response(request, await self.gateway.arun(self.endpoint.ask(self.call(request), current_spending())))

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:  # type: ignore[override]
        """Yield events as the words come. Raises `CallFailed`."""
        yield lm15.StreamStartEvent(id=None, model=request.model)
        async for piece in self.gateway.stream(self.endpoint, self.call(request), current_spending()):
            if isinstance(piece, Reply):
                yield lm15.StreamEndEvent(**_end_reply(piece))
            else:
                yield lm15.StreamDeltaEvent(lm15.TextDelta(text=piece, part_index=0))


def to_response(request: lm15.Request, reply: Reply) -> lm15.Response:
    """Return a reply in DSPy's words, and note whether it was cut off."""
    message = lm15.Message.assistant([lm15.TextPart(reply.text)])
    return lm15.Response(id=None, model=request.model, message=message, **_end_reply(reply))


def _end_reply(reply: Reply) -> dict[str, Any]:
    """Note whether a reply was cut off, and return how it ended in DSPy's words."""
    current_spending().cut = not reply.whole
    total = reply.tokens_in + reply.tokens_out
    usage = lm15.Usage(input_tokens=reply.tokens_in, output_tokens=reply.tokens_out, total_tokens=total)
    return {"finish_reason": "stop" if reply.whole else "length", "usage": usage}
