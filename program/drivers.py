"""Who performs what the loop asks for: one after another, in parallel, or streaming.

Accounting, failure and tracing are here, once; the loop knows nothing of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import dspy
from dspy.adapters.types.decision import decision_type

from program.answer import Answer
from program.budget import Meter
from program.decisions import Evidence, decode, evidence_of, is_direct
from program.errors import KnowledgeError, RagcError
from program.knowledge.source import Passage
from program.loop import Ask, Find, Reply, Request, StepFailed, steps
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
        self.path: list[str] = []
        self.steps: list[Step] = []
        self.loop = steps(question, program, self.meter.budget.max_rounds, self.meter.tripped, self.path)

    def first(self) -> list[Request]:
        return next(self.loop)

    def next(self, replies: list[Reply] | StepFailed) -> list[Request]:
        """The next requests; `StopIteration` carries the answer."""
        return self.loop.throw(replies) if isinstance(replies, StepFailed) else self.loop.send(replies)

    def note(self, request: Request, reply: Reply, started: float, usage: Mapping[str, Any]) -> Reply:
        """Counts what the request cost, and keeps it as a step of the trace."""
        tokens = 0
        if isinstance(request, Find):
            self.meter.searches += 1
        elif decides(self.program.predictor(request.predictor)):
            self.meter.decisions += 1
        else:
            self.meter.calls += 1
            totals = list(usage.values())
            tokens_in = sum(int(t.get("prompt_tokens") or t.get("input_tokens") or 0) for t in totals)
            tokens_out = sum(int(t.get("completion_tokens") or t.get("output_tokens") or 0) for t in totals)
            self.meter.tokens_in += tokens_in
            self.meter.tokens_out += tokens_out
            self.meter.usd += self.program.runtime.models.price(tokens_in, tokens_out)
            tokens = tokens_in + tokens_out
        self.steps.append(_step(request, reply, started, tokens))
        return reply

    def degraded(self, source: str, error: KnowledgeError) -> None:
        """Notes that a source was left out of a search, so that the answer says what it does without."""
        note = f"degraded: without {source}: {error.what}"
        if note not in self.path:
            self.path.append(note)

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
        return list(await asyncio.gather(*(aperform(current, request) for request in requests)))
    except Exception as error:
        return _failure(requests, error)


def perform(current: _Run, request: Request) -> Reply:
    """The reply to one request."""
    started = time.perf_counter()
    program = current.program
    if isinstance(request, Find):
        pool = program.runtime.library.candidates(
            request.query, request.sources, request.depth, failed=current.degraded
        )
        return current.note(request, pool, started, {})
    predictor = program.predictor(request.predictor)
    inputs = prompt_inputs(request.inputs)
    if _untraced(program, predictor):
        evidence = decide_directly(program, request.predictor, inputs)
        return current.note(request, decode(evidence, predictor.fields), started, {})
    with dspy.track_usage() as tracker:
        reply = predictor(lm=client(program, predictor), **inputs)
    return current.note(request, reply, started, tracker.get_total_tokens())


async def aperform(current: _Run, request: Request) -> Reply:
    """The reply to one request, awaited."""
    started = time.perf_counter()
    program = current.program
    if isinstance(request, Find):
        pool = await program.runtime.library.acandidates(
            request.query, request.sources, request.depth, failed=current.degraded
        )
        return current.note(request, pool, started, {})
    predictor = program.predictor(request.predictor)
    inputs = prompt_inputs(request.inputs)
    if _untraced(program, predictor):
        evidence = await asyncio.to_thread(decide_directly, program, request.predictor, inputs)
        return current.note(request, decode(evidence, predictor.fields), started, {})
    with dspy.track_usage() as tracker:
        reply = await predictor.acall(lm=client(program, predictor), **inputs)
    return current.note(request, reply, started, tracker.get_total_tokens())


async def _streamed(current: _Run, request: Ask) -> AsyncIterator[str | list[Reply] | StepFailed]:
    """The writer's tokens, then its reply as a list of one (or the failure)."""
    started = time.perf_counter()
    predictor = current.program.predictor(request.predictor)
    output = next(iter(predictor.signature.output_fields))
    # One streaming wrapper a request: a shared one drops tokens when requests overlap.
    listener = dspy.streaming.StreamListener(signature_field_name=output, predict=predictor, allow_reuse=True)
    streaming = dspy.streamify(predictor, stream_listeners=[listener], async_streaming=True)
    try:
        with dspy.track_usage() as tracker:
            pieces = streaming(lm=client(current.program, predictor), **prompt_inputs(request.inputs))
            async for piece in pieces:
                if isinstance(piece, dspy.streaming.StreamResponse):
                    yield piece.chunk
                elif isinstance(piece, dspy.Prediction):
                    yield [current.note(request, piece, started, tracker.get_total_tokens())]
    except Exception as error:
        yield _failure([request], error)


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
