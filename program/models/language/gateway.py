"""Where every request to a language model passes: the caps, the places in flight, the circuit breaker, the books.

`ProviderLM` is DSPy's language model: it repeats what failed, and each attempt passes here. One event loop in a thread
of its own serves all threads and loops of the process, so that a model's limits hold for the whole process and its
connections are shared.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import dspy
from dspy import lm15
from dspy.clients.lm15_boundary import request_kwargs

from ragc.models.language import transport
from ragc.models.language.provider import LOGPROBS, is_priced, knows_logprobs, listed_price
from ragc.models.language.spending import Paid, current_spending, limit_reply, reserve_cost
from ragc.settings import CallSettings
from ragc.threads import LoopThread

WARM_UP = 20.0  # seconds more for an endpoint's first request, in which LiteLLM loads the provider's part
SILENT_SECONDS = 0.5  # without a word until the question's time was over, from which on the server failed
FIRST_WAIT, LONGEST_WAIT, UNREACHED_WAIT = 0.25, 20.0, 1.0
"""Seconds between tries, before jitter: at first, at most, and at most where the server could not be reached at all."""
NOT_UNDERSTOOD = (400, 422)
"""Statuses where a setting is not understood, be it by a server that took it before: another may stand behind it."""
NOT_TAKEN = (*NOT_UNDERSTOOD, 500, 501)
"""Statuses where a setting of which nothing is known may be what fails."""


class EndpointTerms(CallSettings):
    """How one model may be asked, and what it costs: US$ a million tokens."""

    usd_in: float | None = None
    usd_out: float | None = None


@dataclass(slots=True)
class CircuitBreaker:
    """Opens after `after` failures in a row; then one request is let through every `seconds`, until one succeeds."""

    after: int
    seconds: float
    failures: int = 0
    next_try: float = 0.0
    why: str = ""  # the last failure

    def allows_request(self) -> bool:
        """Tell whether a request may be sent now; while open, one every `seconds`."""
        now = time.monotonic()
        if self.failures < self.after:
            return True
        allowed = now >= self.next_try
        self.next_try = now + self.seconds if allowed else self.next_try
        return allowed

    def note_result(self, failed: bool | None) -> None:
        """Count a failure, or close after a success; None says nothing of the server."""
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
    slots: asyncio.Semaphore = field(init=False)
    breaker: CircuitBreaker = field(init=False)
    warm: bool = False
    logprobs: bool | None = None  # whether the server takes a request for log-probabilities; None: not known yet
    in_vain: bool = False  # whether it failed alike without them, and has not replied since

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin with every place free and the breaker closed."""
        self.slots = asyncio.Semaphore(self.terms.concurrency)
        self.breaker = CircuitBreaker(self.terms.breaker_after, self.terms.breaker_seconds)

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

    def to_call(self, request: lm15.Request) -> transport.Call:
        """Return a request of DSPy's in LiteLLM's words."""
        settings = request_kwargs(request, "chat")
        if self.logprobs is False or not knows_logprobs(self.model):
            settings.pop(LOGPROBS, None)
        return transport.Call(self.model, settings.pop("messages"), settings, self.api_base)

    async def ask(self, call: transport.Call) -> lm15.Response:
        """Return the reply to one attempt in the question's time; raises as `stream`."""
        reply: str | lm15.Response = ""
        async for piece in self.stream(call, streams=False):
            reply = piece
        assert not isinstance(reply, str)
        return reply

    async def stream(self, call: transport.Call, streams: bool = True) -> AsyncGenerator[str | lm15.Response]:
        """Yield the pieces of the reply to one attempt, then all of it, once it is in the books.

        A server that does not take a request for log-probabilities, or sends some that cannot be read, is asked once
        more without, unless words of the reply were told, and from then on.
        Raises `CallInterrupted`, with the seconds to wait, where a repetition may mend it and there is time, else
        `CallFailed`.
        """
        asks, heard, known = LOGPROBS in call.settings, False, self.logprobs
        try:
            async for piece in self._attempt(call, streams):
                heard = True
                yield piece
            self.logprobs, self.in_vain = True if asks else self.logprobs, False
        except transport.CallFailed as failure:
            statuses = () if heard or self.in_vain else NOT_UNDERSTOOD if known else NOT_TAKEN
            if not asks or failure.status not in (*statuses, transport.MALFORMED):
                raise
            self.logprobs = False
            if heard:
                raise
            bare = {name: value for name, value in call.settings.items() if name != LOGPROBS}
            try:
                async for piece in self._attempt(replace(call, settings=bare), streams):
                    yield piece
            except transport.CallFailed as again:
                self.in_vain = again.status == failure.status  # it was something else
                self.logprobs = known if self.in_vain else False
                raise

    async def _attempt(self, call: transport.Call, streams: bool) -> AsyncGenerator[str | lm15.Response]:
        """Yield the pieces of the reply to one request, then all of it."""
        spent = current_spending()
        call = limit_reply(call, spent)
        try:
            async with asyncio.timeout(spent.seconds_left), self._admit(call) as paid:
                async for piece in transport.send_call(call, self._request_seconds(), streams):
                    paid.heard = True
                    if isinstance(piece, str):
                        yield piece
                    else:
                        paid.reply = piece
        except TimeoutError:
            raise transport.late_failure(call) from None
        except transport.CallInterrupted as failure:
            longest = UNREACHED_WAIT if failure.usage is None else LONGEST_WAIT
            backoff = min(FIRST_WAIT * 2 ** min(self.breaker.failures, 9), longest)
            failure.retry_after = max(failure.retry_after or 0.0, backoff + random.uniform(0, FIRST_WAIT))
            if spent.seconds_left <= failure.retry_after:
                raise transport.CallFailed(failure.message, status=failure.status) from None
            raise
        assert paid.reply is not None
        spent.cut = paid.reply.finish_reason == "length"
        yield paid.reply

    @asynccontextmanager
    async def _admit(self, call: transport.Call) -> AsyncIterator[Paid]:
        """Let one request through the cap, the places in flight and the breaker; book it, whatever becomes of it."""
        spent = current_spending()
        async with reserve_cost(call, spent, self.price) as paid, self.slots:
            if spent.seconds_left <= 0:
                raise transport.late_failure(call)
            if not self.breaker.allows_request():
                why = self.breaker.why or f"{self.model} gave no answer"
                raise transport.CallFailed(f"{why} (it is left alone for a while)")
            spent.under_way += 1
            usage, failed, began = None, None, time.monotonic()
            try:
                yield paid
                assert paid.reply is not None
                usage, failed = paid.reply.usage, False
            except transport.CallFailed as failure:
                speaks = isinstance(failure, transport.CallInterrupted) and failure.status != transport.BUSY
                usage, failed = failure.usage, True if speaks else None
                self.breaker.why = failure.message
                raise
            except BaseException:  # called off under way, its prompt charged
                usage = transport.estimate_usage(call)
                silent = not paid.heard and time.monotonic() - began >= SILENT_SECONDS
                failed = True if silent and spent.seconds_left <= 0 else None
                raise
            finally:
                self.breaker.note_result(failed)
                if usage is not None:
                    tokens = usage.input_tokens or 0, usage.output_tokens or 0
                    paid.usd = self.price(*tokens, usage.cache_read_tokens or 0, usage.cache_write_tokens or 0)
                    paid.sent = True
                    spent.book_request(*tokens, paid.usd)
                spent.under_way -= 1

    def _request_seconds(self) -> float:
        seconds = self.terms.call_seconds + (0.0 if self.warm else WARM_UP)
        self.warm = True
        return min(seconds, max(0.0, current_spending().seconds_left))


class Gateway(LoopThread):
    """The process's way to language models: an event loop in its own thread, and an endpoint for each model."""

    def __init__(self) -> None:
        self._endpoints: dict[tuple[str, str, EndpointTerms], Endpoint] = {}
        super().__init__("ragc-models")

    def begin(self) -> None:
        """Begin the loop, and every endpoint with nothing in flight."""
        for endpoint in self._endpoints.values():
            endpoint.begin()
        super().begin()

    def endpoint(self, model: str, api_base: str, terms: EndpointTerms) -> Endpoint:
        """Return the endpoint of a model; the same names and terms share one."""
        return self._endpoints.setdefault((model, api_base, terms), Endpoint(model, api_base, terms))


@lru_cache(maxsize=1)
def shared_gateway() -> Gateway:
    """Return the gateway of this process."""
    return Gateway()


class ProviderLM(dspy.LM):
    """A language model asked through the gateway; `adapter` is what `dspy.Predict` is to speak to it with."""

    def __init__(self, endpoint: Endpoint, adapter: Any = None) -> None:
        engine, awaited = ProviderEngine(endpoint), AsyncProviderEngine(endpoint)
        retries = endpoint.terms.retries
        super().__init__(endpoint.model, engine=engine, async_engine=awaited, cache=False, num_retries=retries)
        self.endpoint = endpoint
        self.adapter = adapter


class ProviderEngine:
    """DSPy's engine of a language model: one attempt at a request; safe from many threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the reply. Raises `CallFailed`."""
        return shared_gateway().run(self.endpoint.ask(self.endpoint.to_call(request)))

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """Yield the reply as events, all at once: pieces are for an event loop."""
        yield from lm15.response_to_events(self.complete(request))


class AsyncProviderEngine(ProviderEngine):
    """The same engine, awaited and streaming."""

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """Return the reply. Raises `CallFailed`."""
        return await shared_gateway().arun(self.endpoint.ask(self.endpoint.to_call(request)))

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:  # type: ignore[override]
        """Yield events as words come; leaving early calls it off. Raises `CallFailed`."""
        pieces: asyncio.Queue[Any] = asyncio.Queue()
        here, call = asyncio.get_running_loop(), self.endpoint.to_call(request)

        async def forward_pieces() -> None:
            try:
                async for piece in self.endpoint.stream(call):
                    here.call_soon_threadsafe(pieces.put_nowait, piece)
            except BaseException as error:  # a stop at a cap is no Exception
                here.call_soon_threadsafe(pieces.put_nowait, error)

        yield lm15.StreamStartEvent(id=None, model=request.model)
        sent = shared_gateway().submit(forward_pieces())
        try:
            while isinstance(piece := await pieces.get(), str):
                yield lm15.StreamDeltaEvent(lm15.TextDelta(text=piece, part_index=0))
        finally:
            sent.cancel()
        if isinstance(piece, BaseException):
            raise piece
        if piece.logprobs:
            yield lm15.StreamDeltaEvent(lm15.TextDelta(text="", part_index=0, logprobs=piece.logprobs))
        yield lm15.StreamEndEvent(finish_reason=piece.finish_reason, usage=piece.usage)
