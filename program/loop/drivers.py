"""Who performs what the loop asks for: one after another, in parallel, or streaming.

A step has its deadline, and a request that fails, or comes too late, is thrown into the loop as `StepFailed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from program.answer import Answer
from program.loop.consulting import grouped
from program.loop.performing import aperform, perform, streamed
from program.loop.requests import Ask, Reply, Request, StepFailed
from program.loop.running import Run
from program.serve.tracing import reason

if TYPE_CHECKING:
    from program.loop.rag import AgenticRAG

WRITER = "generator.answer"


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of the path, as soon as it is taken."""

    note: str


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the drafted answer. A draft may yet be withheld: the `Answer` that follows is what counts."""

    text: str


Event = Progress | Token | Answer


def run(question: str, program: AgenticRAG) -> Answer:
    """The answer, each request performed in turn."""
    current = Run(question, program)
    try:
        requests = current.first()
        while True:
            requests = current.next(_performed(current, requests))
    except StopIteration as stop:
        return current.finish(stop.value)


async def arun(question: str, program: AgenticRAG, tell: Callable[[Event], None] | None = None) -> Answer:
    """The answer, the requests of one step performed in parallel; `tell` hears of progress and tokens."""
    current = Run(question, program)
    told = 0
    try:
        requests = current.first()
        while True:
            if tell is not None:
                told = _tell_path(current, told, tell)
            requests = current.next(await _aperformed(current, requests, tell))
    except StopIteration as stop:
        if tell is not None:
            _tell_path(current, told, tell)
        return current.finish(stop.value)


async def stream(question: str, program: AgenticRAG) -> AsyncIterator[Event]:
    """Progress and tokens as they come, the answer last. Abandoned, it stops the work and leaves no task behind."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(arun(question, program, events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        yield await task
    finally:
        task.cancel()
        await asyncio.wait({task})


def _tell_path(current: Run, told: int, tell: Callable[[Event], None]) -> int:
    for note in current.path[told:]:
        tell(Progress(note))
    return len(current.path)


def _performed(current: Run, requests: list[Request]) -> list[Reply] | StepFailed:
    try:
        groups = grouped(current.program, requests)
        return _in_order(groups, [perform(current, [requests[at] for at in group]) for group in groups])
    except Exception as error:
        return _failure(requests, error)


async def _aperformed(
    current: Run, requests: list[Request], tell: Callable[[Event], None] | None
) -> list[Reply] | StepFailed:
    try:
        async with asyncio.timeout(current.seconds_for(requests)):
            if len(requests) == 1:
                first = requests[0]
                if tell is not None and isinstance(first, Ask) and first.predictor == WRITER:
                    return [await streamed(current, first, lambda text: tell(Token(text)))]
                return await aperform(current, requests)
            groups = grouped(current.program, requests)
            async with asyncio.TaskGroup() as tasks:  # one that fails takes the others with it
                under_way = [tasks.create_task(aperform(current, [requests[at] for at in g])) for g in groups]
            return _in_order(groups, [task.result() for task in under_way])
    except BaseExceptionGroup as group_:
        error = _first_of(group_)
        if isinstance(error, Exception):
            return _failure(requests, error)
        raise error from None
    except Exception as error:
        return _failure(requests, error)


def _in_order(groups: list[list[int]], replies: list[list[Reply]]) -> list[Reply]:
    """The replies of groups, in the order of the requests that were grouped."""
    by_place = {
        at: reply for group, found in zip(groups, replies, strict=True) for at, reply in zip(group, found, strict=True)
    }
    return [by_place[at] for at in sorted(by_place)]


def _failure(requests: list[Request], error: BaseException) -> StepFailed:
    names = ", ".join(r.predictor if isinstance(r, Ask) else "search" for r in requests[:1])
    return StepFailed(f"{names}: {reason(error)}")


def _first_of(errors: BaseExceptionGroup[Any]) -> BaseException:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
