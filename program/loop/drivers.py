"""Who performs what the loop asks for: one after another, in parallel, or streaming; on time and metered.

A step has its deadline, and a request that fails, or comes too late, is thrown into the loop as `StepFailed`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from itertools import groupby
from threading import Thread
from typing import Any

import dspy
from dspy.utils.exceptions import LMError

from program.answer import Answer, Outcome
from program.errors import ModelError
from program.loop.decisions import RunnableProgram, ask_client, list_tiers
from program.loop.grounding import known_addresses
from program.loop.metering import Driver, Event, PreparedRequest, Tell, Token, is_draft
from program.loop.state import Ask, Find, Reply, Request, search_arguments
from program.models.catalog import is_settled
from program.models.language.adapter import PlainListener, use_adapter
from program.models.language.fence import LinkFilter
from program.passage import Passage


def run(question: str, program: RunnableProgram) -> Answer:
    """Return the answer, each request performed in turn."""
    driver = Driver(question, program)
    try:
        requests = driver.send_replies()
        while True:
            try:
                groups = _group_requests(driver, requests)
                replies = [reply for group in groups for reply in _perform_group(driver, group)]
            except Exception as error:
                requests = driver.throw_failure(requests, error)
            else:
                requests = driver.send_replies(replies)
    except StopIteration as stop:
        return driver.finish_answer(stop.value)


async def arun(question: str, program: RunnableProgram, tell: Tell | None = None) -> Answer:
    """Return the answer, performing the requests of a step in parallel.

    `tell` hears of progress and tokens.
    """
    driver = Driver(question, program, tell)
    try:
        requests = driver.send_replies()
        while True:
            try:
                async with asyncio.timeout(driver.seconds_for(requests)), asyncio.TaskGroup() as tasks:
                    groups = _group_requests(driver, requests)
                    under_way = [tasks.create_task(_aperform_group(driver, group)) for group in groups]
            except Exception as error:
                requests = driver.throw_failure(requests, _first_of(error))
            except BaseExceptionGroup as errors:
                raise _first_of(errors) from None
            else:
                requests = driver.send_replies([reply for task in under_way for reply in task.result()])
    except StopIteration as stop:
        return driver.finish_answer(stop.value)


async def stream(question: str, program: RunnableProgram) -> AsyncIterator[Event]:
    """Yield progress and tokens as they come, then the answer.

    Abandoned, it stops the work.
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(arun(question, program, events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    told = False
    try:
        while (event := await events.get()) is not None:
            told = told or isinstance(event, Token)
            yield event
        answer = await task
        if not told and answer.outcome is Outcome.ANSWERED:  # it was quoted, not written word by word
            yield Token(answer.text)
        yield answer
    finally:
        task.cancel()
        await asyncio.wait({task})


def _group_requests(driver: Driver, requests: Sequence[Request]) -> list[list[Request]]:
    """Return the requests in order, decisions that one embedded client takes on one predictor together."""
    groups: list[list[Request]] = []
    for name, group in groupby(requests, key=lambda one: one.predictor if isinstance(one, Ask) else ""):
        together = list(group)
        batched = bool(name) and len(together) > 1 and driver.prepare_request(together[0]).batched
        groups += [together] if batched else [[one] for one in together]
    return groups


def _perform_group(driver: Driver, requests: Sequence[Request]) -> list[Reply]:
    """Return the replies to one request, or to decisions taken in one batch."""
    if len(requests) == 1:
        return [_perform_request(driver, requests[0])]
    calls = [driver.prepare_request(request) for request in requests]
    with driver.spending(calls[0]) as spent:
        asks = [request for request in requests if isinstance(request, Ask)]
        found = ask_client(driver.program, calls[0].client, asks)
        return [driver.note_decision(call, [one], spent) for call, one in zip(calls, found, strict=True)]


async def _aperform_group(driver: Driver, requests: Sequence[Request]) -> list[Reply]:
    """Return the replies likewise, awaited."""
    if len(requests) == 1:
        return [await _aperform_request(driver, requests[0])]
    return await asyncio.to_thread(_perform_group, driver, requests)


def _perform_request(driver: Driver, request: Request) -> Reply:
    """Return the reply to one request."""
    call = driver.prepare_request(request)
    program = driver.program
    with driver.spending(call) as spent:
        if isinstance(request, Find):
            candidates = program.runtime.library.candidates
            search = partial(candidates, *search_arguments(request), failed=driver.note_degraded)
            return driver.note_reply(call, _run_within(call.limit, search), spent, {})
        if call.direct:
            said = _run_within(call.limit, partial(_ask_tiers, program, call, request))
            return driver.note_decision(call, said, spent)
        reply = None
        with use_adapter(call.client, program.layout_of(request.predictor)), dspy.track_usage() as tracker:
            try:
                reply = _run_within(call.limit, partial(call.predictor, lm=call.client, **call.inputs))
            except LMError as error:
                driver.replace_judge(call, spent, error)
        return driver.note_reply(call, reply, spent, tracker.get_total_tokens())


async def _aperform_request(driver: Driver, request: Request) -> Reply:
    """Return the reply to one request, awaited; the writer's words are told as they come."""
    call = driver.prepare_request(request)
    program = driver.program
    async with driver.aspending(call) as spent:
        if isinstance(request, Find):
            library = program.runtime.library
            found = await library.acandidates(*search_arguments(request), failed=driver.note_degraded)
            return driver.note_reply(call, found, spent, {})
        if call.direct:
            return driver.note_decision(call, await _aask_tiers(program, call, request), spent)
        reply = None
        with use_adapter(call.client, program.layout_of(request.predictor)), dspy.track_usage() as tracker:
            try:
                if driver.tell is not None and is_draft(request):
                    reply = await _stream_draft(call, request.inputs["passages"], program.links, driver.tell)
                else:
                    reply = await call.predictor.acall(lm=call.client, **call.inputs)
            except LMError as error:
                driver.replace_judge(call, spent, error)
        return driver.note_reply(call, reply, spent, tracker.get_total_tokens())


def _ask_tiers(program: RunnableProgram, call: PreparedRequest, ask: Ask) -> list[Mapping[str, Any]]:
    """Return what each client that was asked says: the second of a cascade only where the first is in doubt."""
    said: list[Mapping[str, Any]] = []
    for client in list_tiers(call.client):
        said += ask_client(program, client, [ask])
        if is_settled(said[-1], program.doubt_of(ask.predictor)):
            break
    return said


async def _aask_tiers(program: RunnableProgram, call: PreparedRequest, ask: Ask) -> list[Mapping[str, Any]]:
    """Ask likewise: a language model is awaited, an embedded one works in another thread."""
    said: list[Mapping[str, Any]] = []
    for client in list_tiers(call.client):
        if hasattr(client, "awaits"):
            said.append(await program.requests.aask(ask.predictor, call.predictor, client, call.inputs))
        else:
            said += await asyncio.to_thread(ask_client, program, client, [ask])
        if is_settled(said[-1], program.doubt_of(ask.predictor)):
            break
    return said


async def _stream_draft(call: PreparedRequest, passages: Sequence[Passage], links: Sequence[str], tell: Tell) -> Reply:
    """Return the writer's reply; its words are told as they come. Raises what the writer raises."""
    output = next(iter(call.predictor.signature.output_fields))
    # One streaming wrapper a request: a shared one drops tokens when requests overlap.
    kind = PlainListener if hasattr(call.client, "adapter") else dspy.streaming.StreamListener
    listener = kind(signature_field_name=output, predict=call.predictor, allow_reuse=True)
    filtered = LinkFilter(known_addresses(passages, links))
    reply: Reply = None
    streaming = dspy.streamify(call.predictor, stream_listeners=[listener], async_streaming=True, is_async_program=True)
    async with aclosing(streaming(lm=call.client, **call.inputs)) as pieces:
        async for piece in pieces:
            if isinstance(piece, dspy.streaming.StreamResponse):
                if text := filtered.feed(piece.chunk):
                    tell(Token(text))
            elif isinstance(piece, dspy.Prediction):
                reply = piece
    if text := filtered.rest():
        tell(Token(text))
    if reply is None:
        raise ModelError("The writing model's stream ended without an answer.", "Ask again, or try without streaming.")
    return reply


def _run_within(seconds: float | None, work: Callable[[], Any]) -> Any:
    """Return what work returns, in this thread without a limit; what hangs is left to its own: `TimeoutError`."""
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


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
