"""Who performs what the loop asks for: one after another, in parallel, or streaming.

Accounting, failure and tracing are here, once; the loop knows nothing of them.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Thread
from typing import TYPE_CHECKING, Any

import dspy
from dspy.adapters.types.decision import decision_type

from program import telemetry
from program.answer import Answer
from program.budget import Meter
from program.decisions import Evidence, decode, evidence_of, is_direct
from program.errors import KnowledgeError, ModelError, RagcError
from program.knowledge.source import NO_FILTERS, Filters, Passage
from program.loop import steps
from program.requests import Ask, Find, Reply, Request, StepFailed
from program.signatures import excerpts
from program.trace import Step, Trace, new_trace_id
from program.tracing import log, step_of

if TYPE_CHECKING:
    from program.rag import AgenticRAG

WRITER = "generator.answer"
LAST = ("generator.", "grounder.")  # the steps that may use the time kept for writing
LOCAL = "local/"  # a model of this name runs here, and cannot hang on a network
_DEFAULT_TRACE = dspy.settings.trace  # an optimizer puts a list of its own in its place


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of the path, as soon as it is taken."""

    note: str


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the drafted answer. A draft may yet be withheld: the `Answer` that follows is what counts."""

    text: str


Event = Progress | Token | Answer


class _Run:
    """One question on its way: the loop's generator, its meter, its path and its steps."""

    def __init__(self, question: str, program: AgenticRAG) -> None:
        self.id = new_trace_id()
        self.question = question
        self.program = program
        self.meter = Meter(program.runtime.budget)
        self.path: list[str] = []
        self.steps: list[Step] = []
        self.failed = False
        self.loop = steps(question, program, self.meter.budget.max_rounds, self.meter.tripped, self.path)

    def first(self) -> list[Request]:
        return next(self.loop)

    def next(self, replies: list[Reply] | StepFailed) -> list[Request]:
        """The next requests; `StopIteration` carries the answer."""
        if isinstance(replies, StepFailed):
            self.failed = True
            return self.loop.throw(replies)
        return self.loop.send(replies)

    def seconds_for(self, requests: list[Request]) -> float:
        """How long this step may take. After a failure all that is left goes to the fallback."""
        last = all(isinstance(r, Ask) and r.predictor.startswith(LAST) for r in requests)
        return self.meter.left(writing=last or self.failed)

    def note(self, request: Request, reply: Reply, started: float, usage: Mapping[str, Any]) -> Reply:
        """Counts what the request cost, and keeps it as a step of the trace."""
        milliseconds = (time.perf_counter() - started) * 1000
        if isinstance(request, Find):
            self.meter.searches += 1
            self.steps.append(step_of(request, reply, milliseconds))
            return reply
        predictor = self.program.predictor(request.predictor)
        tokens_in = tokens_out = 0
        if decides(predictor):
            self.meter.decisions += 1
        else:
            totals = list(usage.values())
            tokens_in = sum(int(t.get("prompt_tokens") or t.get("input_tokens") or 0) for t in totals)
            tokens_out = sum(int(t.get("completion_tokens") or t.get("output_tokens") or 0) for t in totals)
            self.meter.calls += 1
            self.meter.tokens_in += tokens_in
            self.meter.tokens_out += tokens_out
            self.meter.usd += self.program.runtime.models.price(tokens_in, tokens_out)
        model = str(client(self.program, predictor).model)
        self.steps.append(step_of(request, reply, milliseconds, (tokens_in, tokens_out), model))
        return reply

    def degraded(self, source: str, error: KnowledgeError) -> None:
        """Notes that a source was left out of a search, so that the answer says what it does without."""
        note = f"degraded: without {source}: {error.what}"
        if note not in self.path:
            self.path.append(note)

    def finish(self, answer: Answer) -> Answer:
        """The answer with its trace and usage, written to the log and told to OpenTelemetry."""
        runtime = self.program.runtime
        trace = Trace(self.id, tuple(self.path), tuple(self.steps))
        answer = replace(answer, trace=trace, usage=self.meter.usage(), version=runtime.version)
        if runtime.log is not None:
            log(answer, self.question, runtime.preset, runtime.log)
        telemetry.emit(answer)
        return answer


def run(question: str, program: AgenticRAG) -> Answer:
    """The answer, each request performed in turn."""
    current = _Run(question, program)
    try:
        requests = current.first()
        while True:
            requests = current.next(_performed(current, requests))
    except StopIteration as stop:
        return current.finish(stop.value)


async def arun(question: str, program: AgenticRAG, tell: Callable[[Event], None] | None = None) -> Answer:
    """The answer, the requests of one step performed in parallel; `tell` hears of progress and tokens."""
    current = _Run(question, program)
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


def _tell_path(current: _Run, told: int, tell: Callable[[Event], None]) -> int:
    for note in current.path[told:]:
        tell(Progress(note))
    return len(current.path)


def _performed(current: _Run, requests: list[Request]) -> list[Reply] | StepFailed:
    try:
        return [perform(current, request) for request in requests]
    except Exception as error:
        return _failure(requests, error)


async def _aperformed(
    current: _Run, requests: list[Request], tell: Callable[[Event], None] | None
) -> list[Reply] | StepFailed:
    try:
        async with asyncio.timeout(current.seconds_for(requests)):
            if len(requests) == 1:
                first = requests[0]
                if tell is not None and isinstance(first, Ask) and first.predictor == WRITER:
                    return [await _streamed(current, first, tell)]
                return [await aperform(current, first)]
            async with asyncio.TaskGroup() as group:  # one that fails takes the others with it
                tasks = [group.create_task(aperform(current, request)) for request in requests]
            return [task.result() for task in tasks]
    except BaseExceptionGroup as group_:
        error = _first_of(group_)
        if isinstance(error, Exception):
            return _failure(requests, error)
        raise error from None
    except Exception as error:
        return _failure(requests, error)


def perform(current: _Run, request: Request) -> Reply:
    """The reply to one request."""
    started = time.perf_counter()
    program = current.program
    if isinstance(request, Find):
        pool = program.runtime.library.candidates(*search_arguments(request), failed=current.degraded)
        return current.note(request, pool, started, {})
    predictor = program.predictor(request.predictor)
    inputs = prompt_inputs(request.inputs)
    if _untraced(program, predictor):
        evidence = decide_directly(program, request.predictor, inputs)
        return current.note(request, decode(evidence, predictor.fields), started, {})
    model = client(program, predictor)
    with dspy.track_usage() as tracker:
        if str(model.model).startswith(LOCAL):
            reply = predictor(lm=model, **inputs)
        else:
            reply = within(current.seconds_for([request]), lambda: predictor(lm=model, **inputs))
    return current.note(request, reply, started, tracker.get_total_tokens())


async def aperform(current: _Run, request: Request) -> Reply:
    """The reply to one request, awaited."""
    started = time.perf_counter()
    program = current.program
    if isinstance(request, Find):
        pool = await program.runtime.library.acandidates(*search_arguments(request), failed=current.degraded)
        return current.note(request, pool, started, {})
    predictor = program.predictor(request.predictor)
    inputs = prompt_inputs(request.inputs)
    if _untraced(program, predictor):
        evidence = await asyncio.to_thread(decide_directly, program, request.predictor, inputs)
        return current.note(request, decode(evidence, predictor.fields), started, {})
    with dspy.track_usage() as tracker:
        reply = await predictor.acall(lm=client(program, predictor), **inputs)
    return current.note(request, reply, started, tracker.get_total_tokens())


async def _streamed(current: _Run, request: Ask, tell: Callable[[Event], None]) -> Reply:
    """The writer's reply; its tokens are told as they come. Raises what the writer raises."""
    started = time.perf_counter()
    predictor = current.program.predictor(request.predictor)
    output = next(iter(predictor.signature.output_fields))
    # One streaming wrapper a request: a shared one drops tokens when requests overlap.
    listener = dspy.streaming.StreamListener(signature_field_name=output, predict=predictor, allow_reuse=True)
    streaming = dspy.streamify(predictor, stream_listeners=[listener], async_streaming=True, is_async_program=True)
    reply: Reply = None
    with dspy.track_usage() as tracker:
        pieces = streaming(lm=client(current.program, predictor), **prompt_inputs(request.inputs))
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, dspy.streaming.StreamResponse):
                    tell(Token(piece.chunk))
                elif isinstance(piece, dspy.Prediction):
                    reply = piece
    if reply is None:
        raise ModelError("The writing model's stream ended without an answer.", "Ask again, or try without streaming.")
    return current.note(request, reply, started, tracker.get_total_tokens())


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What blocking work returns or raises, or `TimeoutError`. The thread of work that hangs is left to itself."""
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


def decide_directly(program: AgenticRAG, name: str, inputs: Mapping[str, Any]) -> Evidence:
    """The probabilities of a decision predictor for these inputs."""
    predictor = program.predictor(name)
    model = client(program, predictor)
    if is_direct(model):
        return program.requests.ask(name, predictor, model, inputs)
    return evidence_of(predictor(lm=model, **inputs))


def _untraced(program: AgenticRAG, predictor: dspy.Predict) -> bool:
    """True when a decision may go straight to its client: nobody (no optimizer) collects DSPy's trace."""
    return dspy.settings.trace is _DEFAULT_TRACE and decides(predictor) and is_direct(client(program, predictor))


def client(program: AgenticRAG, predictor: dspy.Predict) -> Any:
    """The model that answers a predictor: its own when it has one, else the program's for that kind of output."""
    models = program.runtime.models
    return predictor.lm or (models.decide if decides(predictor) else models.write)


def decides(predictor: dspy.Predict) -> bool:
    """True when every output of the predictor is a decision."""
    return _decides(predictor.signature)


@lru_cache(maxsize=256)
def _decides(signature: type[dspy.Signature]) -> bool:
    return all(decision_type(field) is not None for field in signature.output_fields.values())


def prompt_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as a signature takes them: passages as numbered excerpts."""
    return {name: _prompt_value(value) for name, value in inputs.items()}


def _prompt_value(value: Any) -> Any:
    if isinstance(value, Passage):
        return excerpts([value])[0]
    if isinstance(value, list | tuple):
        return excerpts(value) if value and isinstance(value[0], Passage) else list(value)
    return value


def search_arguments(find: Find) -> tuple[Any, ...]:
    """The arguments of the library's search."""
    filters = Filters(not_before=find.not_before) if find.not_before else NO_FILTERS
    return find.query, find.sources, find.depth, filters


def _failure(requests: list[Request], error: BaseException) -> StepFailed:
    names = ", ".join(r.predictor if isinstance(r, Ask) else "search" for r in requests[:1])
    if isinstance(error, TimeoutError):
        return StepFailed(f"{names}: no reply in time")
    what = error.what if isinstance(error, RagcError) else f"{type(error).__name__}: {error}"
    return StepFailed(f"{names}: {what[:200]}")


def _first_of(errors: BaseExceptionGroup[Any]) -> BaseException:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
