"""One question on its way: how far its loop is, what it took, and what is kept of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from program import telemetry
from program.answer import Answer
from program.budget import Meter
from program.deciding import client, decides
from program.errors import KnowledgeError
from program.loop import steps
from program.models.spending import Spending, deadline_after, spending
from program.requests import Ask, Find, Reply, Request, StepFailed
from program.trace import Step, Trace, new_trace_id
from program.tracing import log, step_of

if TYPE_CHECKING:
    from program.rag import AgenticRAG

LAST = ("generator.", "grounder.")  # the steps that may use the time kept for writing
CALLED_OFF = 1.0  # seconds at most until a request that was called off is in the books
NO_USAGE: Mapping[str, Any] = {}


class Run:
    """The loop's generator of a question, its meter, its path and its steps."""

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

    @contextmanager
    def spending(self, request: Request) -> Iterator[Spending]:
        """What language models cost inside the block: counted also when it fails.

        They may be asked until shortly before the step ends, so that an embedded model can still step in.
        """
        with spending(deadline_after(self.seconds_for([request]))) as spent:
            try:
                yield spent
            finally:
                self.meter.add(spent)
                self.path += spent.notes

    @asynccontextmanager
    async def aspending(self, request: Request) -> AsyncIterator[Spending]:
        """As `spending`; a request that the block leaves under way was called off, and is counted first."""
        with self.spending(request) as spent:
            try:
                yield spent
            finally:
                if spent.under_way:
                    await asyncio.wait({asyncio.wrap_future(spent.settled())}, timeout=CALLED_OFF)

    def note(
        self,
        request: Request,
        reply: Reply,
        started: float,
        spent: Spending | None = None,
        usage: Mapping[str, Any] = NO_USAGE,
    ) -> Reply:
        """Keeps the request as a step of the trace; counts a text that no language model was asked for."""
        milliseconds = (time.perf_counter() - started) * 1000
        if isinstance(request, Find):
            self.meter.searches += 1
            self.steps.append(step_of(request, reply, milliseconds))
            return reply
        spent = spent or Spending()
        predictor = self.program.predictor(request.predictor)
        model = client(self.program, predictor, request.inputs)
        tokens_in, tokens_out = spent.tokens_in, spent.tokens_out
        if decides(predictor):
            self.meter.decisions += 1
        elif not hasattr(model, "lane"):
            totals = list(usage.values())
            tokens_in = sum(int(t.get("prompt_tokens") or t.get("input_tokens") or 0) for t in totals)
            tokens_out = sum(int(t.get("completion_tokens") or t.get("output_tokens") or 0) for t in totals)
            self.meter.calls += 1
            self.meter.tokens_in += tokens_in
            self.meter.tokens_out += tokens_out
        self.steps.append(step_of(request, reply, milliseconds, (tokens_in, tokens_out), str(model.model)))
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
