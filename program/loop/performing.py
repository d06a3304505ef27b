"""The performing of requests: a search, a decision or a text, or decisions together; awaited, or word by word."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from threading import Thread
from typing import Any

import dspy

from program.errors import ModelError
from program.loop.consulting import adecide_directly, decide_directly
from program.loop.deciding import client, prompt_inputs, runs_here, untraced
from program.loop.requests import Ask, Find, Reply, Request
from program.loop.running import Run
from program.loop.state import known_addresses
from program.models.language.adapter import PlainListener, use_adapter
from program.models.language.fence import LinkFilter
from program.passage import NO_FILTERS, Filters


def perform(current: Run, requests: Sequence[Request]) -> list[Reply]:
    """The replies to one request, or to decisions that go to one client: put to it together where it takes several."""
    started = time.perf_counter()
    program, first = current.program, requests[0]
    if isinstance(first, Find):
        library, arguments = program.runtime.library, search_arguments(first)
        limit = None if library.searches_here(first.sources) else current.seconds_for(requests)
        with current.noting_failure(requests):
            pool = within(limit, partial(library.candidates, *arguments, failed=current.degraded))
        return [current.note(first, pool, started)]
    predictor = program.predictor(first.predictor)
    model = client(program, predictor, prompt_inputs(first.inputs))
    seconds = None if runs_here(model) else current.seconds_for(requests)
    if current.knows(first) or untraced(program, predictor):
        new = [ask for ask in requests if isinstance(ask, Ask) and not current.knows(ask)]
        with current.spending(new) as spent:
            if new:
                current.learn(new, within(seconds, lambda: decide_directly(program, new)), spent)
            return current.note_decided(requests, started, spent)
    inputs = prompt_inputs(first.inputs)
    with current.spending(requests) as spent:
        with use_adapter(model), dspy.track_usage() as tracker:
            reply = within(seconds, lambda: predictor(lm=model, **inputs))
        return [current.note(first, reply, started, spent, tracker.get_total_tokens())]


async def aperform(current: Run, requests: Sequence[Request]) -> list[Reply]:
    """The same, awaited."""
    started = time.perf_counter()
    program, first = current.program, requests[0]
    if isinstance(first, Find):
        with current.noting_failure(requests):
            pool = await program.runtime.library.acandidates(*search_arguments(first), failed=current.degraded)
        return [current.note(first, pool, started)]
    predictor = program.predictor(first.predictor)
    if current.knows(first) or untraced(program, predictor):
        new = [ask for ask in requests if isinstance(ask, Ask) and not current.knows(ask)]
        async with current.aspending(new) as spent:
            if new:
                current.learn(new, await adecide_directly(program, new), spent)
            return current.note_decided(requests, started, spent)
    inputs = prompt_inputs(first.inputs)
    async with current.aspending(requests) as spent:
        model = client(program, predictor, inputs)
        with use_adapter(model), dspy.track_usage() as tracker:
            reply = await predictor.acall(lm=model, **inputs)
        return [current.note(first, reply, started, spent, tracker.get_total_tokens())]


async def streamed(current: Run, request: Ask, tell: Callable[[str], None]) -> Reply:
    """The writer's reply; its words are told as they come. Raises what the writer raises."""
    started = time.perf_counter()
    predictor = current.program.predictor(request.predictor)
    output = next(iter(predictor.signature.output_fields))
    inputs = prompt_inputs(request.inputs)
    model = client(current.program, predictor, inputs)
    # One streaming wrapper a request: a shared one drops tokens when requests overlap.
    kind = PlainListener if hasattr(model, "adapter") else dspy.streaming.StreamListener
    listener = kind(signature_field_name=output, predict=predictor, allow_reuse=True)
    filtered = LinkFilter(known_addresses(request.inputs["passages"], current.program.links))
    reply: Reply = None
    async with current.aspending([request]) as spent:
        with use_adapter(model), dspy.track_usage() as tracker:
            streaming = dspy.streamify(
                predictor, stream_listeners=[listener], async_streaming=True, is_async_program=True
            )
            async with aclosing(streaming(lm=model, **inputs)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, dspy.streaming.StreamResponse):
                        _tell(tell, filtered.feed(piece.chunk))
                    elif isinstance(piece, dspy.Prediction):
                        reply = piece
        _tell(tell, filtered.rest())
        if reply is None:
            raise ModelError(
                "The writing model's stream ended without an answer.", "Ask again, or try without streaming."
            )
        return current.note(request, reply, started, spent, tracker.get_total_tokens())


def _tell(tell: Callable[[str], None], text: str) -> None:
    if text:
        tell(text)


def within(seconds: float | None, work: Callable[[], Any]) -> Any:
    """What blocking work returns or raises, or `TimeoutError`. The thread of work that hangs is left to itself.

    Without a limit the work is done in this thread.
    """
    if seconds is None:
        return work()
    if seconds <= 0:
        raise TimeoutError
    done: Future[Any] = Future()
    context = contextvars.copy_context()

    def body() -> None:
        try:
            done.set_result(context.run(work))
        except BaseException as error:
            done.set_exception(error)

    Thread(target=body, daemon=True).start()
    return done.result(seconds)


def search_arguments(find: Find) -> tuple[Any, ...]:
    """The arguments of the library's search."""
    filters = Filters(not_before=find.not_before) if find.not_before else NO_FILTERS
    return find.query, find.sources, find.depth, filters
