"""Who performs what the loop asks for: one after another, in parallel, or streaming; on time and metered.

A step has its deadline, and a request that fails, or comes too late, is thrown into the loop as `StepFailed`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from contextvars import ContextVar
from functools import partial
from itertools import groupby
from typing import Any

import dspy
from dspy.utils.exceptions import LMError
from dspy.utils.lazy_import import require

from program.answer import Answer
from program.errors import ModelError
from program.knowledge.library import begin_in_thread
from program.loop.decisions import (
    RunnableProgram,
    Search,
    ask_watched,
    await_client,
    list_tiers,
)
from program.loop.grounding import known_addresses
from program.loop.metering import CALLED_OFF, Driver, Event, PreparedRequest, Tell, Token, Withdrawn, is_draft
from program.loop.state import Ask, Find, Reply, Request, search_arguments
from program.models.catalog import is_settled
from program.models.language.adapter import PlainListener, use_adapter
from program.models.language.fence import LinkFilter
from program.models.requests import Evidence
from program.passage import Passage
from program.text.pieces import MarkNumbering

anyio = require("anyio")  # on which DSPy streams: its callbacks can send from these threads only
_tell: ContextVar[Tell | None] = ContextVar("ragc_tell", default=None)
_UNHEARD = dspy.streaming.StreamListener("", predict=object())  # of no predictor: DSPy streams what some listener hears
WRITERS = ("generator.answer", "generator.direct")  # the predictors that write what `dspy.streamify` streams
WITHDRAWN = "The text so far is withdrawn."
"""What `dspy.streamify` is told, as a status message, of a draft that does not count."""


def run(question: str, program: RunnableProgram) -> Answer:
    """Return the answer, performed in turn; streamed in a thread of `dspy.streamify`."""
    if dspy.settings.send_stream is not None and _is_worker_thread():
        answer: Answer = anyio.from_thread.run(arun, question, program)
        return answer
    with _unstreamed():
        return _complete(_run(Driver(question, program)))


async def arun(question: str, program: RunnableProgram) -> Answer:
    """Return the answer, a step's requests performed in parallel; streams hear of it."""
    tell, send_stream = _tell.get(), dspy.settings.send_stream
    if tell is None and send_stream is not None and (name := _find_streamed(program)):
        return await _send_tokens(send_stream, name, question, program)
    with _unstreamed():
        return await _run(Driver(question, program, tell, parallel=True))


async def stream(ask: Callable[[], Coroutine[Any, Any, Answer]]) -> AsyncGenerator[Event, None]:
    """Yield progress and tokens of the answer that is asked for, then the answer.

    A draft that is written anew, or that the answer does not say, is withdrawn. Abandoned, it stops the work.
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    context = contextvars.copy_context()
    context.run(_tell.set, events.put_nowait)
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
        if drafted.split() != answer.text.split():
            if drafted:
                yield Withdrawn()
            yield Token(answer.text)
        yield answer
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _send_tokens(send_stream: Any, name: str, question: str, program: RunnableProgram) -> Answer:
    """Return the answer; its tokens go to the stream of `dspy.streamify`."""
    async with aclosing(stream(partial(arun, question, program))) as events:
        async for event in events:
            if isinstance(event, Token):
                await send_stream.send(dspy.streaming.StreamResponse(name, "answer", event.text, is_last_chunk=False))
            elif isinstance(event, Withdrawn):
                await send_stream.send(dspy.streaming.StatusMessage(WITHDRAWN))
            elif isinstance(event, Answer):
                return event
    raise AssertionError("a stream ends with its answer")


def _find_streamed(program: RunnableProgram) -> str:
    """Return the name under which tokens are streamed; "" where listeners hear other predictors only."""
    listeners = dspy.settings.stream_listeners or []
    writers = [program.predictor(name) for name in WRITERS]
    heard = [one.predict_name or WRITERS[0] for one in listeners if any(one.predict is writer for writer in writers)]
    return heard[0] if heard else "" if listeners else WRITERS[0]


def _unstreamed() -> AbstractContextManager[Any]:
    """Have DSPy stream no predictor by itself, though its callbacks may still send to a stream."""
    listening = dspy.settings.send_stream is not None
    return dspy.context(stream_listeners=[_UNHEARD]) if listening else nullcontext()


def _is_worker_thread() -> bool:
    try:
        anyio.from_thread.check_cancelled()
    except RuntimeError:
        return False
    return True


async def _run(driver: Driver) -> Answer:
    """Return the answer, its requests performed in turn or in parallel."""
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
        batched = bool(name) and len(together) > 1 and driver.prepare_request(together[0]).batched
        groups += [together] if batched else [[one] for one in together]
    return groups


async def _perform_groups(driver: Driver, groups: Sequence[Sequence[Request]]) -> list[Reply]:
    """Return the replies of a step, performed one after another or at once."""
    if not driver.parallel:
        return [reply for group in groups for reply in await _perform_group(driver, group)]
    seconds = driver.seconds_for([request for group in groups for request in group])
    async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
        under_way = [tasks.create_task(_perform_group(driver, group)) for group in groups]
    return [reply for task in under_way for reply in task.result()]


async def _perform_group(driver: Driver, requests: Sequence[Request]) -> list[Reply]:
    """Return the replies to one request, or to decisions taken in one batch."""
    calls = [driver.prepare_request(request) for request in requests]
    call = calls[0]
    with driver.spending(call) as spent:
        try:
            if isinstance(call.request, Find):
                search = Search(driver.program.runtime.library, driver.note_missed)
                where = search_arguments(call.request)
                found = await _perform(driver, call, partial(search, *where), partial(search.acall, *where))
                return [driver.note_reply(call, found, spent, {})]
            if call.direct:
                said = await _ask_tiers(driver, calls)
                return [driver.note_decision(one, told, spent) for one, told in zip(calls, said, strict=True)]
            reply = None
            layout = driver.program.layout_of(call.request.predictor)
            with use_adapter(call.client, layout), dspy.context(lm=call.client), dspy.track_usage() as tracker:
                try:
                    write = partial(call.predictor, **call.inputs)
                    reply = await _perform(driver, call, write, partial(_await_text, driver, call))
                except LMError as error:
                    driver.replace_judge(call, spent, error)
            return [driver.note_reply(call, reply, spent, tracker.get_total_tokens())]
        finally:
            if driver.parallel:  # the books of what was called off are waited for; what hangs is left alone
                await spent.settle(CALLED_OFF)


async def _ask_tiers(driver: Driver, calls: Sequence[PreparedRequest]) -> list[list[Evidence]]:
    """Return for each request what each client says: the second of a cascade only where the first is in doubt."""
    asks = [call.request for call in calls if isinstance(call.request, Ask)]
    doubt = driver.program.doubt_of(asks[0].predictor)
    said: list[list[Evidence]] = [[] for _ in asks]
    for client in list_tiers(calls[0].client):
        if not all(told and is_settled(told[-1], doubt) for told in said):
            work = partial(ask_watched, driver.program, client, asks)
            awaited = partial(_await_decisions, driver.program, client, asks)
            more = await _perform(driver, calls[0], work, awaited)
            said = [[*told, one] for told, one in zip(said, more, strict=True)]
    return said


async def _perform(
    driver: Driver, call: PreparedRequest, work: Callable[[], Any], awaited: Callable[[], Awaitable[Any]]
) -> Any:
    """Return what a request comes to: in parallel it is awaited; in turn, what may hang has a thread of its own."""
    if driver.parallel:
        return await awaited()
    return _run_within(driver.seconds_for([call.request]), work) if call.may_hang else work()


async def _await_decisions(program: RunnableProgram, client: Any, asks: Sequence[Ask]) -> list[Evidence]:
    """Return a client's evidence; one that cannot be awaited works in another thread."""
    if hasattr(client, "awaits"):
        return [await await_client(program, client, one) for one in asks]
    work = partial(ask_watched, program, client, asks)
    found: list[Evidence] = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    return found


async def _await_text(driver: Driver, call: PreparedRequest) -> Reply:
    """Return a text; the words of the answer's are told as they come."""
    if driver.tell is None or not is_draft(call.request):
        return await call.predictor.acall(**call.inputs)
    assert isinstance(call.request, Ask)
    links = driver.program.runtime.links
    return await _stream_draft(call, call.request.inputs["passages"], links, driver.tell)


def _complete(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Return what a coroutine that awaits nothing returns."""
    try:
        work.send(None)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer
    raise AssertionError("what is performed in turn awaits nothing")


async def _stream_draft(call: PreparedRequest, passages: Sequence[Passage], links: Sequence[str], tell: Tell) -> Reply:
    """Return the writer's reply, whose words replace an earlier draft's as they come."""
    tell(Withdrawn())
    output = next(iter(call.predictor.signature.output_fields))
    # One streaming wrapper a request: a shared one drops tokens when requests overlap.
    kind = PlainListener if hasattr(call.client, "adapter") else dspy.streaming.StreamListener
    listener = kind(signature_field_name=output, predict=call.predictor, allow_reuse=True)
    filtered = LinkFilter(known_addresses(passages, links), [passage.text for passage in passages])
    numbered = MarkNumbering(len(passages))
    reply: Reply = None
    streaming = dspy.streamify(call.predictor, stream_listeners=[listener], async_streaming=True, is_async_program=True)
    async with aclosing(streaming(**call.inputs)) as pieces:
        async for piece in pieces:
            if isinstance(piece, dspy.streaming.StreamResponse):
                if text := numbered.feed(filtered.feed(piece.chunk)):
                    tell(Token(text))
            elif isinstance(piece, dspy.Prediction):
                reply = piece
    if text := numbered.feed(filtered.rest()) + numbered.rest():
        tell(Token(text))
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
