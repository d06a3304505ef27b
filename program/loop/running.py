"""One question on its way: how far its loop is, what it took, and what is kept of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from program.answer import Answer
from program.errors import KnowledgeError
from program.loop.budget import Meter
from program.loop.consulting import Consulted, takes_several
from program.loop.deciding import client, decides
from program.loop.decisions import Evidence, decode
from program.loop.requests import Ask, Find, Reply, Request, StepFailed
from program.loop.steps import steps
from program.models.spending import Spending, deadline_after, spending
from program.serve.trace import emit_spans
from program.serve.tracing import step_of
from program.trace import Step, Trace, new_trace_id

if TYPE_CHECKING:
    from program.loop.rag import AgenticRAG

LAST = ("generator.", "grounder.")  # the steps that may use the time kept for writing
DRAFT = "generator.answer"
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
        self._handed_over: dict[tuple[str, str, str], str] = {}
        self._known: dict[int, tuple[Ask, Evidence, str]] = {}  # by the request's identity; who answered it last
        rounds = self.meter.budget.max_rounds
        self.loop = steps(question, program, rounds, self.meter.tripped, self.path, takes_several(program))

    def first(self) -> list[Request]:
        return next(self.loop)

    def next(self, replies: list[Reply] | StepFailed) -> list[Request]:
        """The next requests; `StopIteration` carries the answer."""
        if isinstance(replies, StepFailed):
            self.failed = True
            return self.loop.throw(replies)
        return self.loop.send(replies)

    def seconds_for(self, requests: Sequence[Request]) -> float:
        """How long this step may take. After a failure all that is left goes to the fallback."""
        last = all(isinstance(r, Ask) and r.predictor.startswith(LAST) for r in requests)
        return self.meter.left(writing=last or self.failed)

    def knows(self, request: Request) -> bool:
        """True when a reply that is as good as a new one was given before the request was made."""
        return isinstance(request, Ask) and request.foreseen is not None and id(request.foreseen) in self._known

    def learn(self, asks: Sequence[Ask], consulted: Consulted, spent: Spending) -> None:
        """Keeps what decisions came to, and what was answered ahead of its being asked."""
        found, ahead = consulted
        for ask, evidence in [*zip(asks, found, strict=True), *ahead]:
            self._known[id(ask)] = ask, evidence, spent.answering(self._model(ask))

    @contextmanager
    def spending(self, requests: Sequence[Request]) -> Iterator[Spending]:
        """What language models cost inside the block: counted also when it fails.

        They may be asked until shortly before the step ends, so that an embedded model can still step in.
        """
        with spending(deadline_after(self.seconds_for(requests))) as spent:
            try:
                with self.noting_failure(requests, spent):
                    yield spent
            finally:
                self.meter.add(spent)
                self.path += spent.notes
                for handed, note in list(spent.handed_over.items()):  # what was called off may yet add to it
                    self._handed_over.setdefault(handed, note)

    @contextmanager
    def noting_failure(self, requests: Sequence[Request], spent: Spending | None = None) -> Iterator[None]:
        """Keeps requests that fail inside the block as steps, too, with what they took until then."""
        started = time.perf_counter()
        try:
            yield
        except BaseException as error:
            milliseconds = (time.perf_counter() - started) * 1000
            for request, tokens in zip(requests, _shares(spent or Spending(), len(requests)), strict=True):
                self.steps.append(step_of(request, error, milliseconds, tokens, self._model(request)))
            raise

    @asynccontextmanager
    async def aspending(self, requests: Sequence[Request]) -> AsyncIterator[Spending]:
        """As `spending`; a request that the block leaves under way was called off, and is counted first."""
        with self.spending(requests) as spent:
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
        if self.program.runtime.models.rewrite is not None and request.predictor == DRAFT:
            dear = bool(request.inputs["strict"])  # written anew: by the second one, which was to write it all along
            self.meter.dear, self.meter.spared = self.meter.dear + dear, self.meter.spared + 1 - 2 * dear
        answering = spent.answering(str(model.model))
        self.steps.append(step_of(request, reply, milliseconds, (tokens_in, tokens_out), answering))
        return reply

    def note_decided(self, requests: Sequence[Request], started: float, spent: Spending) -> list[Reply]:
        """The replies to decisions (and to texts that were foreseen), each kept as a step of its own.

        What one call for several cost is in the steps of those it was made for, in equal shares.
        """
        milliseconds = (time.perf_counter() - started) * 1000
        asks = [request for request in requests if isinstance(request, Ask)]
        shares = _shares(spent, sum(not self.knows(ask) for ask in asks))
        replies: list[Reply] = []
        for ask in asks:
            predictor = self.program.predictor(ask.predictor)
            known = self.knows(ask)
            _, found, model = self._known[id(ask.foreseen if known else ask)]
            reply: Reply = found
            if decides(predictor):
                reply = decode(found, predictor.fields)
                self.meter.decisions += 1
            self.steps.append(step_of(ask, reply, milliseconds, (0, 0) if known else next(shares), model))
            replies.append(reply)
        return replies

    def _model(self, request: Request) -> str:
        if isinstance(request, Find):
            return ""
        return str(client(self.program, self.program.predictor(request.predictor), request.inputs).model)

    def degraded(self, source: str, error: KnowledgeError) -> None:
        """Notes that a source was left out of a search, so that the answer says what it does without."""
        note = f"degraded: without {source}: {error.what}"
        if note not in self.path:
            self.path.append(note)

    def finish(self, answer: Answer) -> Answer:
        """The answer with its trace and usage, written to the log and told to OpenTelemetry."""
        runtime = self.program.runtime
        trace = Trace(self.id, tuple(self.path), tuple(self.steps), tuple(self._handed_over.values()))
        answer = replace(answer, trace=trace, usage=self.meter.usage(), version=runtime.version)
        if runtime.log is not None:
            runtime.log.write_answer(answer, self.question, runtime.preset)
        emit_spans(answer)
        return answer


def _shares(spent: Spending, among: int) -> Iterator[tuple[int, int]]:
    """Tokens in and out for each of so many, as even as can be."""
    for n in range(among):
        yield tuple((total + n) // among for total in (spent.tokens_in, spent.tokens_out))  # type: ignore[misc]
