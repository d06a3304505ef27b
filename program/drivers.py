"""Who performs what the loop asks for: one after another, in parallel, or streaming.

Accounting, failure and tracing are here, once; the loop knows nothing of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import dspy
from dspy.adapters.types.decision import decision_type

from program.answer import Answer
from program.budget import Meter
from program.decisions import Evidence, decode, evidence_of, is_direct
from program.errors import RagcError
from program.knowledge.source import Passage
from program.loop import Ask, Find, Reply, Request, StepFailed, steps
from program.models.adapter import PlainListener, speaking
from program.models.cascade import consult
from program.models.spending import Spending, deadline_after, spending
from program.models.spending import current as current_spending
from program.signatures import excerpts
from program.trace import Step, Trace, new_trace_id

if TYPE_CHECKING:
    from program.rag import AgenticRAG

WRITER = "generator.answer"
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
        self.question = question
        self.program = program
        self.meter = Meter(program.runtime.budget)
        self.deadline = deadline_after(program.runtime.budget.max_seconds)
        self.path: list[str] = []
        self.steps: list[Step] = []
        self.loop = steps(question, program, self.meter.budget.max_rounds, self.meter.tripped, self.path)

    def first(self) -> list[Request]:
        return next(self.loop)

    def next(self, replies: list[Reply] | StepFailed) -> list[Request]:
        """The next requests; `StopIteration` carries the answer."""
        return self.loop.throw(replies) if isinstance(replies, StepFailed) else self.loop.send(replies)

    @contextmanager
    def spending(self) -> Iterator[Spending]:
        """What language models cost inside the block: counted also when it fails."""
        with spending(self.deadline) as spent:
            try:
                yield spent
            finally:
                self.meter.add(spent)
                self.path += spent.notes

    def note(self, request: Request, reply: Reply, started: float, spent: Spending, usage: Mapping[str, Any]) -> Reply:
        """Keeps the request as a step of the trace; counts a text that no language model was asked for."""
        tokens = spent.tokens_in + spent.tokens_out
        if isinstance(request, Find):
            self.meter.searches += 1
        elif decides(self.program.predictor(request.predictor)):
            self.meter.decisions += 1
        elif not spent.calls and not spent.notes:
            self.meter.calls += 1
            totals = list(usage.values())
            tokens_in = sum(int(t.get("prompt_tokens") or t.get("input_tokens") or 0) for t in totals)
            tokens_out = sum(int(t.get("completion_tokens") or t.get("output_tokens") or 0) for t in totals)
            self.meter.tokens_in += tokens_in
            self.meter.tokens_out += tokens_out
            tokens = tokens_in + tokens_out
        self.steps.append(_step(request, reply, started, tokens))
        return reply

    def finish(self, answer: Answer) -> Answer:
        """The answer with its trace and usage, written to the log."""
        runtime = self.program.runtime
        trace = Trace(new_trace_id(), tuple(self.path), tuple(self.steps))
        answer = replace(answer, trace=trace, usage=self.meter.usage(), version=runtime.version)
        if runtime.log is not None:
            steps_ = [
                {"name": s.name, "inputs": s.inputs, "output": s.output, "ms": round(s.milliseconds, 2)}
                for s in self.steps
            ]
            entry = {**answer.as_dict(), "question": self.question, "at": time.time(), "steps": steps_}
            runtime.log.append(entry)
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


async def arun(question: str, program: AgenticRAG) -> Answer:
    """The answer, the requests of one step performed in parallel."""
    current = _Run(question, program)
    try:
        requests = current.first()
        while True:
            requests = current.next(await _aperformed(current, requests))
    except StopIteration as stop:
        return current.finish(stop.value)


async def stream(question: str, program: AgenticRAG) -> AsyncIterator[Event]:
    """Progress and tokens as they come, the answer last."""
    current = _Run(question, program)
    told = 0
    try:
        requests = current.first()
        while True:
            for note in current.path[told:]:
                yield Progress(note)
            told = len(current.path)
            if len(requests) == 1 and isinstance(requests[0], Ask) and requests[0].predictor == WRITER:
                replies: list[Reply] | StepFailed = []
                async for piece in _streamed(current, requests[0]):
                    if isinstance(piece, str):
                        yield Token(piece)
                    else:
                        replies = piece
                requests = current.next(replies)
            else:
                requests = current.next(await _aperformed(current, requests))
    except StopIteration as stop:
        for note in current.path[told:]:
            yield Progress(note)
        yield current.finish(stop.value)


def _performed(current: _Run, requests: list[Request]) -> list[Reply] | StepFailed:
    try:
        return [perform(current, request) for request in requests]
    except Exception as error:
        return _failure(requests, error)


async def _aperformed(current: _Run, requests: list[Request]) -> list[Reply] | StepFailed:
    try:
        work = (aperform(current, request) for request in requests)
        # All are waited for, so that what they cost is known when the question ends.
        replies = await asyncio.gather(*work, return_exceptions=True)
    except Exception as error:
        return _failure(requests, error)
    failed = next((reply for reply in replies if isinstance(reply, BaseException)), None)
    if failed is None:
        return list(replies)
    if isinstance(failed, Exception):
        return _failure(requests, failed)
    raise failed


def perform(current: _Run, request: Request) -> Reply:
    """The reply to one request."""
    started = time.perf_counter()
    program = current.program
    if isinstance(request, Find):
        pool = program.runtime.library.candidates(request.query, request.sources, request.depth)
        return current.note(request, pool, started, Spending(), {})
    predictor = program.predictor(request.predictor)
    inputs = prompt_inputs(request.inputs)
    with current.spending() as spent:
        if _untraced(program, predictor):
            evidence = decide_directly(program, request.predictor, inputs)
            return current.note(request, decode(evidence, predictor.fields), started, spent, {})
        lm = client(program, predictor, inputs)
        with speaking(lm), dspy.track_usage() as tracker:
            reply = predictor(lm=lm, **inputs)
        return current.note(request, reply, started, spent, tracker.get_total_tokens())


async def aperform(current: _Run, request: Request) -> Reply:
    """The reply to one request, awaited."""
    started = time.perf_counter()
    program = current.program
    if isinstance(request, Find):
        pool = await program.runtime.library.acandidates(request.query, request.sources, request.depth)
        return current.note(request, pool, started, Spending(), {})
    predictor = program.predictor(request.predictor)
    inputs = prompt_inputs(request.inputs)
    with current.spending() as spent:
        if _untraced(program, predictor):
            evidence = await adecide_directly(program, request.predictor, inputs)
            return current.note(request, decode(evidence, predictor.fields), started, spent, {})
        lm = client(program, predictor, inputs)
        with speaking(lm), dspy.track_usage() as tracker:
            reply = await predictor.acall(lm=lm, **inputs)
        return current.note(request, reply, started, spent, tracker.get_total_tokens())


async def _streamed(current: _Run, request: Ask) -> AsyncIterator[str | list[Reply] | StepFailed]:
    """The writer's tokens, then its reply as a list of one (or the failure)."""
    started = time.perf_counter()
    predictor = current.program.predictor(request.predictor)
    output = next(iter(predictor.signature.output_fields))
    inputs = prompt_inputs(request.inputs)
    lm = client(current.program, predictor, inputs)
    # One streaming wrapper a request: a shared one drops tokens when requests overlap.
    awaited = hasattr(lm, "adapter")
    if awaited:
        listener = PlainListener(output, predictor, inputs)
    else:
        listener = dspy.streaming.StreamListener(signature_field_name=output, predict=predictor, allow_reuse=True)
    try:
        with current.spending() as spent, speaking(lm), dspy.track_usage() as tracker:
            streaming = dspy.streamify(
                predictor, stream_listeners=[listener], async_streaming=True, is_async_program=awaited
            )
            async for piece in streaming(lm=lm, **inputs):
                if isinstance(piece, dspy.streaming.StreamResponse):
                    yield piece.chunk
                elif isinstance(piece, dspy.Prediction):
                    yield [current.note(request, piece, started, spent, tracker.get_total_tokens())]
    except Exception as error:
        yield _failure([request], error)


def decide_directly(program: AgenticRAG, name: str, inputs: Mapping[str, Any]) -> Evidence:
    """The probabilities of a decision predictor for these inputs."""
    predictor = program.predictor(name)
    model = client(program, predictor)
    if not is_direct(model):
        return evidence_of(predictor(lm=model, **inputs))
    if not hasattr(model, "second"):
        return program.requests.ask(name, predictor, model, inputs)
    work, found = consult(program.doubt.of(name)), []
    tier = next(work)
    try:
        while True:
            found.append(program.requests.ask(name, predictor, (model.first, model.second)[tier], inputs))
            tier = work.send(found[-1])
    except StopIteration as stop:
        return _counted(predictor, found, stop.value)


async def adecide_directly(program: AgenticRAG, name: str, inputs: Mapping[str, Any]) -> Evidence:
    """As `decide_directly`: a language model is awaited, an embedded one works in another thread."""
    predictor = program.predictor(name)
    model = client(program, predictor)
    if not hasattr(model, "awaits"):
        return await asyncio.to_thread(decide_directly, program, name, inputs)
    if not hasattr(model, "second"):
        return await program.requests.aask(name, predictor, model, inputs)
    work, found = consult(program.doubt.of(name)), []
    tier = next(work)
    try:
        while True:
            found.append(await program.requests.aask(name, predictor, (model.first, model.second)[tier], inputs))
            tier = work.send(found[-1])
    except StopIteration as stop:
        return _counted(predictor, found, stop.value)


def _counted(predictor: dspy.Predict, found: list[Evidence], counts: Evidence) -> Evidence:
    """The evidence that counts, noted as passed on when a second client was asked."""
    if len(found) > 1:
        first, second = ([d.value for d in decode(each, predictor.fields).values()] for each in found)
        current_spending().count(first == second)
    return counts


def _untraced(program: AgenticRAG, predictor: dspy.Predict) -> bool:
    """True when a decision may go straight to its client: nobody (no optimizer) collects DSPy's trace."""
    return dspy.settings.trace is _DEFAULT_TRACE and decides(predictor) and is_direct(client(program, predictor))


def client(program: AgenticRAG, predictor: dspy.Predict, inputs: Mapping[str, Any] | None = None) -> Any:
    """The model that answers a predictor: its own when it has one, else the program's for that kind of output."""
    models = program.runtime.models
    if predictor.lm:
        return predictor.lm
    return models.decider(predictor.signature) if decides(predictor) else models.writer(inputs or {})


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


def _failure(requests: list[Request], error: Exception) -> StepFailed:
    names = ", ".join(r.predictor if isinstance(r, Ask) else "search" for r in requests[:1])
    what = error.what if isinstance(error, RagcError) else f"{type(error).__name__}: {error}"
    return StepFailed(f"{names}: {what[:200]}")


def _step(request: Request, reply: Reply, started: float, tokens: int) -> Step:
    milliseconds = (time.perf_counter() - started) * 1000
    if isinstance(request, Find):
        text, output = request.query, f"{len(reply)} candidates"
        return Step("search", _digest(text), output, milliseconds, tokens)
    return Step(request.predictor, _digest(repr(_shown(request.inputs))), _output(reply), milliseconds, tokens)


def _shown(inputs: Mapping[str, Any]) -> list[Any]:
    return [
        [p.id for p in v] if isinstance(v, list) else v.id if isinstance(v, Passage) else v for v in inputs.values()
    ]


def _output(reply: Any) -> str:
    parts = []
    for name, value in reply.items():
        probability = getattr(value, "probability", None)
        shown = f"{probability:.3f}" if probability is not None else str(getattr(value, "value", value))[:200]
        parts.append(f"{name}={shown}")
    return " ".join(parts)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
