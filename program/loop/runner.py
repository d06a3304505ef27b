"""Who performs what the loop asks for, for whoever asks, awaits or streams: on time and metered.

A step's requests are independent, and awaited in parallel; what blocks is done in a thread. Whoever asks without
awaiting waits for a loop that all such callers share, and a step that this process does by itself, by embedded models
and arrays, is done at once in the caller's thread. A step has its deadline, and a request that fails, or comes too
late, is thrown into the loop as `StepFailed`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from inspect import iscoroutinefunction
from itertools import groupby
from typing import Any

import dspy
from dspy.utils.callback import with_callbacks
from dspy.utils.lazy_import import require

from ragc.answer import Answer, Event, Token, Withdrawn
from ragc.errors import ModelError
from ragc.loop.answers import known_addresses
from ragc.loop.meter import Meter, PreparedRequest, Send
from ragc.loop.reply import AnswerFilter
from ragc.loop.state import DRAFT, Ask, Find, Reply, View, search_arguments
from ragc.models.language.adapter import PlainListener
from ragc.models.language.fence import LinkFilter
from ragc.models.requests import decode
from ragc.text.history import Asked
from ragc.text.pieces import MarkNumbering
from ragc.threads import LoopThread

anyio = require("anyio")  # on which DSPy streams: its callbacks can send from these threads only
CALLED_OFF = 1.0  # seconds at most until a request that was called off is in the books
WITHDRAWN = "The text so far is withdrawn."
"""The status message by which `dspy.streamify` withdraws a draft."""
_send: ContextVar[Send | None] = ContextVar("ragc_send", default=None)
_NO_LISTENER = dspy.streaming.StreamListener("", predict=object())  # of no predictor: DSPy then streams none


class Search(dspy.Retrieve):
    """The library's search, as DSPy's callbacks know it."""


SEARCH = Search()


@lru_cache(maxsize=1)
def shared_loop() -> LoopThread:
    """Return the loop for those who ask without awaiting."""
    return LoopThread("ragc-questions")


def run(asked: Asked, view: View) -> Answer:
    """Return the answer; a thread of `dspy.streamify` streams it."""
    if dspy.settings.send_stream is not None and _is_worker_thread():
        answer: Answer = anyio.from_thread.run(arun, asked, view)
        return answer
    meter = Meter(asked, view)
    outcome: list[Reply] | Exception | None = None
    with _unstreamed():
        while (calls := meter.advance(outcome)) is not None:
            try:
                if all(call.here for call in calls):
                    outcome = [reply for group in _group(calls) for reply in _perform_here(meter, group)]
                else:
                    outcome = shared_loop().run(_perform(meter, calls))
            except Exception as error:
                outcome = error
    return meter.finish_answer()


async def arun(asked: Asked, view: View) -> Answer:
    """Return the answer, awaited; streams hear of it."""
    send, send_stream = _send.get(), dspy.settings.send_stream
    if send is None and send_stream is not None and (name := _find_streamed(view)):
        return await _send_tokens(send_stream, name, asked, view)
    meter = Meter(asked, view, send)
    outcome: list[Reply] | Exception | None = None
    with _unstreamed():
        while (calls := meter.advance(outcome)) is not None:
            try:
                outcome = await _perform(meter, calls)
            except Exception as error:
                outcome = error
    return meter.finish_answer()


async def stream(ask: Callable[[], Coroutine[Any, Any, Answer]]) -> AsyncGenerator[Event, None]:
    """Yield progress and tokens of the answer that is asked for, then the answer.

    A draft that is written anew, or that the answer does not say, is withdrawn. Abandoned, it stops the work.
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    context = contextvars.copy_context()
    context.run(_send.set, events.put_nowait)
    task = asyncio.create_task(ask(), context=context)
    task.add_done_callback(lambda _: events.put_nowait(None))
    drafted = ""
    try:
        while (event := await events.get()) is not None:
            if isinstance(event, Token):
                drafted += event.text
            elif isinstance(event, Withdrawn):
                if not drafted:
                    continue
                drafted = ""
            yield event
        answer = await task
        if drafted.split() != answer.shown.split():
            if drafted:
                yield Withdrawn()
            yield Token(answer.shown)
        yield answer
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _send_tokens(send_stream: Any, name: str, asked: Asked, view: View) -> Answer:
    """Return the answer; its tokens go to the stream of `dspy.streamify`."""
    async with aclosing(stream(partial(arun, asked, view))) as events:
        async for event in events:
            if isinstance(event, Token):
                await send_stream.send(dspy.streaming.StreamResponse(name, "answer", event.text, is_last_chunk=False))
            elif isinstance(event, Withdrawn):
                await send_stream.send(dspy.streaming.StatusMessage(WITHDRAWN))
            elif isinstance(event, Answer):
                return event
    raise AssertionError("a stream ends with its answer")


def _find_streamed(view: View) -> str:
    """Return the name under which tokens are streamed; "" where listeners hear other predictors only."""
    listeners = dspy.settings.stream_listeners or []
    named = [one.predict_name or DRAFT for one in listeners if one.predict is view.predictors[DRAFT]]
    return named[0] if named else "" if listeners else DRAFT


def _unstreamed() -> AbstractContextManager[Any]:
    """Have DSPy stream no predictor by itself, though its callbacks may still send to a stream."""
    listening = dspy.settings.send_stream is not None
    return dspy.context(stream_listeners=[_NO_LISTENER]) if listening else nullcontext()


def _is_worker_thread() -> bool:
    try:
        anyio.from_thread.check_cancelled()
    except RuntimeError:
        return False
    return True


def _group(calls: Sequence[PreparedRequest]) -> Iterator[list[PreparedRequest]]:
    """Yield the calls in order, decisions that one embedded client takes on one predictor together."""
    for predictor, group in groupby(calls, key=lambda call: call.predictor if call.direct and call.here else None):
        together = list(group)
        yield from [[call] for call in together] if predictor is None else [together]


async def _perform(meter: Meter, calls: Sequence[PreparedRequest]) -> list[Reply]:
    """Return the replies of a step, performed at once."""
    try:
        async with asyncio.timeout(meter.seconds_for(calls)), asyncio.TaskGroup() as tasks:
            under_way = [tasks.create_task(_perform_group(meter, group)) for group in _group(calls)]
    except BaseExceptionGroup as errors:
        raise _first_of(errors) from None
    return [reply for task in under_way for reply in task.result()]


async def _perform_group(meter: Meter, calls: Sequence[PreparedRequest]) -> list[Reply]:
    """Return the replies to one request, or to decisions taken in one batch."""
    call = calls[0]
    with meter.spending(calls) as spent:
        try:
            if call.traits.awaits:
                return [meter.note_reply(call, await _ask(meter, call), spent)]
            replies = await anyio.to_thread.run_sync(_work, meter, calls, abandon_on_cancel=True)
            return [meter.note_reply(*pair, spent) for pair in zip(calls, replies, strict=True)]
        finally:  # the books of what was called off are waited for; what hangs is left alone
            await spent.settle(CALLED_OFF)


def _perform_here(meter: Meter, calls: Sequence[PreparedRequest]) -> list[Reply]:
    """Return the same replies, of what this process does by itself."""
    with meter.spending(calls) as spent:
        return [meter.note_reply(*pair, spent) for pair in zip(calls, _work(meter, calls), strict=True)]


def _work(meter: Meter, calls: Sequence[PreparedRequest]) -> list[Reply]:
    """Return what is worked out in the thread that calls this."""
    call, view = calls[0], meter.view
    if isinstance(find := call.request, Find):
        inputs = {"query": find.query, "sources": find.sources, "depth": find.depth}
        candidates = partial(view.runtime.library.candidates, *search_arguments(find), failed=meter.note_missed)
        return [_watch(SEARCH, candidates, inputs)]
    if not call.direct:
        return [call.predictor(**call.inputs)]

    @cache
    def decide() -> list[Any]:
        inputs = [one.inputs for one in calls]
        return view.requests.ask(find.predictor, call.predictor, call.client, inputs)

    def read(at: int) -> Any:  # a callback sees the first of a batch last as long as the batch
        return dspy.Prediction(**decode(decide()[at], call.predictor.fields))

    return [_watch(one.predictor, partial(read, at), one.inputs) for at, one in enumerate(calls)]


async def _ask(meter: Meter, call: PreparedRequest) -> Reply:
    """Return what a client replies that can be awaited."""
    assert isinstance(call.request, Ask)
    name = call.request.predictor
    if call.direct:

        async def decide() -> Any:
            evidence = await meter.view.requests.aask(name, call.predictor, call.client, call.inputs)
            return dspy.Prediction(**decode(evidence, call.predictor.fields))

        return await _watch(call.predictor, decide, call.inputs)
    if meter.send is not None and name == DRAFT:
        return await _stream_draft(meter, call, call.request, meter.send)
    return await call.predictor.acall(**call.inputs)


def _watch(instance: Any, work: Callable[[], Any], inputs: Mapping[str, Any]) -> Any:
    """Return what work returns, or awaits; DSPy's callbacks, if there are any, are called as for a module of DSPy's."""
    if not (dspy.settings.callbacks or instance.callbacks):
        return work()

    def call(self: Any, **_: Any) -> Any:
        return work()

    async def acall(self: Any, **_: Any) -> Any:
        return await work()

    return with_callbacks(acall if iscoroutinefunction(work) else call)(instance, **inputs)


async def _stream_draft(meter: Meter, call: PreparedRequest, ask: Ask, send: Send) -> Reply:
    """Return the writer's reply, whose words replace an earlier draft's as they come."""
    send(Withdrawn())
    passages = ask.inputs["passages"]
    output = next(iter(call.predictor.signature.output_fields))
    # One streaming wrapper a request: a shared one drops tokens when requests overlap.
    kind = PlainListener if call.traits.plain else dspy.streaming.StreamListener
    listener = kind(signature_field_name=output, predict=call.predictor, allow_reuse=True)
    links = known_addresses(passages, meter.view.runtime.links)
    filtered = LinkFilter(links, [passage.text for passage in passages])
    numbered, answers = MarkNumbering(len(passages)), AnswerFilter()
    reply: Reply = None
    streaming = dspy.streamify(call.predictor, stream_listeners=[listener], async_streaming=True, is_async_program=True)
    async with aclosing(streaming(**call.inputs)) as pieces:
        async for piece in pieces:
            if isinstance(piece, dspy.streaming.StreamResponse):
                if text := numbered.feed(filtered.feed(answers.feed(piece.chunk))):
                    send(Token(text))
            elif isinstance(piece, dspy.Prediction):
                reply = piece
    if text := numbered.feed(filtered.feed(answers.rest()) + filtered.rest()) + numbered.rest():
        send(Token(text))
    if reply is None:
        raise ModelError("The writing model's stream ended without an answer.", "Ask again, or try without streaming.")
    return reply


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
