"""Who performs what the loop asks for: one after another, in parallel, or streaming; on time and metered.

A step has its deadline, and a request that fails, or comes too late, is thrown into the loop as `StepFailed`.

There is one way through this file for all three. It is written as coroutines: in parallel they await clients and
tasks; in turn (`Driver.parallel` is False) each request is performed where it would be awaited, so that nothing is ever
suspended. `run` therefore needs no event loop: one `send(None)` takes the coroutine from its beginning to its answer.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from contextvars import ContextVar
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import dspy
from dspy.utils.callback import with_callbacks
from dspy.utils.lazy_import import require

from ragc.answer import REVIEWED, Answer
from ragc.errors import ModelError
from ragc.knowledge.library import begin_in_thread
from ragc.loop.answers import known_addresses
from ragc.loop.decisions import ask_client, await_client
from ragc.loop.question_meter import CALLED_OFF, Driver, Event, PreparedRequest, Send, Token, Withdrawn, is_draft
from ragc.loop.reply import AnswerFilter
from ragc.loop.state import DRAFT, Ask, Find, Reply, Request, View, format_share, search_arguments
from ragc.models.language.adapter import PlainListener, use_adapter
from ragc.models.language.fence import LinkFilter
from ragc.models.language.spending import ModelSpending
from ragc.models.requests import Evidence, decode
from ragc.passage import Passage
from ragc.text.history import Asked
from ragc.text.pieces import MarkNumbering

anyio = require("anyio")  # on which DSPy streams: its callbacks can send from these threads only
Result = TypeVar("Result")
_send: ContextVar[Send | None] = ContextVar("ragc_send", default=None)
_NO_LISTENER = dspy.streaming.StreamListener("", predict=object())  # of no predictor: DSPy then streams none
WITHDRAWN = "The text so far is withdrawn."
"""The status message by which `dspy.streamify` withdraws a draft."""


class Search(dspy.Retrieve):
    """The library's search, as DSPy's callbacks know it."""


SEARCH = Search()


def run(asked: Asked, view: View) -> Answer:
    """Return the answer, performed in turn; streamed in a thread of `dspy.streamify`."""
    answer: Answer
    if dspy.settings.send_stream is not None and _is_worker_thread():
        answer = anyio.from_thread.run(arun, asked, view)
        return answer
    with _unstreamed():
        work = _run(Driver(asked, view))
        try:
            work.send(None)
        except StopIteration as stop:
            answer = stop.value
            return answer
    raise AssertionError("what is performed in turn awaits nothing")


async def arun(asked: Asked, view: View) -> Answer:
    """Return the answer, a step's requests performed in parallel; streams hear of it."""
    send, send_stream = _send.get(), dspy.settings.send_stream
    if send is None and send_stream is not None and (name := _find_streamed(view)):
        return await _send_tokens(send_stream, name, asked, view)
    with _unstreamed():
        return await _run(Driver(asked, view, send, parallel=True))


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


async def _run(driver: Driver) -> Answer:
    """Return the answer, its requests performed in turn or in parallel."""
    if (known := driver.view.known) is not None:
        driver.path.append(f"{REVIEWED}{format_share(known.confidence)}")
        return driver.finish_answer(known)
    try:
        requests = driver.send_replies()
        while True:
            try:
                replies = await _perform_groups(driver, _group_requests(driver, requests))
            except Exception as error:
                requests = driver.throw_failure(requests, _first_of(error))
            except BaseExceptionGroup as errors:
                raise _first_of(errors) from None
            else:
                requests = driver.send_replies(replies)
    except StopIteration as stop:
        return driver.finish_answer(stop.value)


def _group_requests(driver: Driver, requests: Sequence[Request]) -> list[list[Request]]:
    """Return the requests in order, decisions that one embedded client takes on one predictor together."""
    groups: list[list[Request]] = []
    for name, group in groupby(requests, key=lambda one: one.predictor if isinstance(one, Ask) else ""):
        together = list(group)
        first = driver.prepare_request(together[0]) if name and len(together) > 1 else None
        batched = first is not None and first.direct and first.traits.embedded
        groups += [together] if batched else [[one] for one in together]
    return groups


async def _perform_groups(driver: Driver, groups: Sequence[Sequence[Request]]) -> list[Reply]:
    """Return the replies of a step, performed one after another or at once."""
    if not driver.parallel:
        return [reply for group in groups for reply in await _perform_group(driver, group)]
    seconds = driver.seconds_for([request for group in groups for request in group])
    if len(groups) == 1:
        async with asyncio.timeout(seconds):
            return await _perform_group(driver, groups[0])
    async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
        under_way = [tasks.create_task(_perform_group(driver, group)) for group in groups]
    return [reply for task in under_way for reply in task.result()]


async def _perform_group(driver: Driver, requests: Sequence[Request]) -> list[Reply]:
    """Return the replies to one request, or to decisions taken in one batch."""
    calls = [driver.prepare_request(request) for request in requests]
    with driver.spending(call := calls[0]) as spent:
        try:
            if isinstance(call.request, Find):
                return [await _search(driver, call, call.request, spent)]
            if call.direct:
                return await _decide(driver, calls, spent)
            return [await _write(driver, call, call.request, spent)]
        finally:
            if driver.parallel:  # the books of what was called off are waited for; what hangs is left alone
                await spent.settle(CALLED_OFF)


async def _search(driver: Driver, call: PreparedRequest, find: Find, spent: ModelSpending) -> Reply:
    """Return what the library finds."""
    candidates = driver.view.runtime.library.candidates
    work = partial(candidates, *search_arguments(find), failed=driver.note_missed)
    inputs = {"query": find.query, "sources": find.sources, "depth": find.depth}
    return driver.note_reply(call, await _watch(SEARCH, partial(_perform, driver, call, work), inputs), spent)


async def _decide(driver: Driver, calls: Sequence[PreparedRequest], spent: ModelSpending) -> list[Reply]:
    """Return decisions on one predictor; a callback sees the first of a batch last as long as the batch."""
    replies: list[Evidence] = []

    async def decide(at: int) -> Any:
        nonlocal replies
        replies = replies or await _ask_client(driver, calls)
        reply = decode(replies[at], calls[at].predictor.fields)
        return dspy.Prediction(**driver.note_reply(calls[at], reply, spent))

    return [await _watch(call.predictor, partial(decide, at), call.inputs) for at, call in enumerate(calls)]


async def _ask_client(driver: Driver, calls: Sequence[PreparedRequest]) -> list[Evidence]:
    """Return what the client of these requests says of each."""
    view, first = driver.view, calls[0]
    asks = [call.request for call in calls if isinstance(call.request, Ask)]
    awaited = partial(await_client, view, first.client, asks) if first.traits.awaits else None
    replies: list[Evidence] = await _perform(driver, first, partial(ask_client, view, first.client, asks), awaited)
    return replies


async def _write(driver: Driver, call: PreparedRequest, ask: Ask, spent: ModelSpending) -> Reply:
    """Return what a predictor replies by way of DSPy."""
    awaited = partial(call.predictor.acall, **call.inputs)
    if driver.send is not None and is_draft(ask):
        awaited = partial(_stream_draft, call, ask.inputs["passages"], driver.view.runtime.links, driver.send)
    layout = driver.view.layout_of(ask.predictor)
    with use_adapter(call.client, layout), dspy.context(lm=call.client), dspy.track_usage() as tracker:
        reply = await _perform(driver, call, partial(call.predictor, **call.inputs), awaited)
    return driver.note_reply(call, reply, spent, tracker.get_total_tokens())


async def _perform(
    driver: Driver,
    call: PreparedRequest,
    work: Callable[[], Any],
    awaited: Callable[[], Awaitable[Any]] | None = None,
) -> Any:
    """Return what `work` returns: in turn, what may hang has a thread of its own.

    In parallel it is `awaited`, or else done in another thread.
    """
    if driver.parallel:
        return await (awaited() if awaited else anyio.to_thread.run_sync(work, abandon_on_cancel=True))
    return _run_within(driver.seconds_for([call.request]), work) if call.may_hang else work()


async def _watch(instance: Any, work: Callable[[], Awaitable[Result]], inputs: Mapping[str, Any]) -> Result:
    """Return what work returns; DSPy's callbacks, if there are any, are called as for a module of DSPy's."""
    if not (dspy.settings.callbacks or instance.callbacks):
        return await work()

    @with_callbacks  # type: ignore[untyped-decorator]
    async def call(self: Any, **kwargs: Any) -> Result:
        return await work()

    watched: Result = await call(instance, **inputs)
    return watched


async def _stream_draft(call: PreparedRequest, passages: Sequence[Passage], links: Sequence[str], send: Send) -> Reply:
    """Return the writer's reply, whose words replace an earlier draft's as they come."""
    send(Withdrawn())
    output = next(iter(call.predictor.signature.output_fields))
    # One streaming wrapper a request: a shared one drops tokens when requests overlap.
    kind = PlainListener if call.traits.plain else dspy.streaming.StreamListener
    listener = kind(signature_field_name=output, predict=call.predictor, allow_reuse=True)
    filtered = LinkFilter(known_addresses(passages, links), [passage.text for passage in passages])
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


def _run_within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return what work returns in that time; what hangs is left to its own: `TimeoutError`."""
    if seconds <= 0:
        raise TimeoutError
    return begin_in_thread(work).result(seconds)


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
