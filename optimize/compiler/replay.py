"""A program's runs answered from a record: thresholds and knobs are applied to evidence found once.

A decision is recorded as its probabilities, a search as its pool of scored candidates, a text as itself. Another
threshold, fusion weight or round cap is then arithmetic; only a branch that was never taken is performed, once.
Questions run abreast, so that what several of them lack is performed together.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from optimize.compiler.calls import Calls, Packing
from optimize.compiler.consultation import Consulted, Consulting, Put, consultation, one_by_one
from optimize.compiler.content import Contents
from optimize.compiler.keptruns import KeptRuns
from optimize.compiler.paths import NONE, Parameters, Path, Paths
from optimize.compiler.readings import Readings, Watched
from optimize.compiler.record import Entry, Record
from optimize.compiler.refusals import Refused
from optimize.compiler.spending import KEPT_EVERY, Spending
from program.answer import Answer, Usage
from program.loop.decisions import clients_of, decode, is_decision, is_embedded
from program.loop.rag import AgenticRAG
from program.loop.state import DRAFT, Ask, Find, Reply, Request, StepFailed, Steps
from program.loop.steps import steps


@dataclass(slots=True)
class _Run:
    """One question on its way: the loop, what it waits for, and what it has cost."""

    question: str
    watched: Watched
    loop: Steps
    path: list[str]
    requests: list[Request] = field(default_factory=list)
    consulting: Consulting | None = None
    puts: list[Put] = field(default_factory=list)
    known: dict[int, tuple[Ask, Any]] = field(default_factory=dict)
    answer: Answer | None = None
    calls: int = 0
    decisions: int = 0
    searches: int = 0
    passed_on: int = 0
    agreed: int = 0
    dear: int = 0
    spared: int = 0
    fit: bool = True
    refused: bool = False
    entries: list[Entry] = field(default_factory=list)
    asked: list[tuple[Ask, Reply]] = field(default_factory=list)


class Replay:
    """Answers questions as `program` would, from the record where it can.

    Reads the program's thresholds and knobs anew for each question, so a search may turn them between
    questions; its instructions and demonstrations may be exchanged for others. Without `vouches` the
    confidence of unchecked drafts is not asked for. A replay that `keeps` has its runs in the record, too: the code of
    its program must be this project's. Raises `BudgetStop` when a call that is needed would pass a cap.
    """

    def __init__(
        self,
        program: AgenticRAG,
        record: Record,
        spending: Spending | None = None,
        vouches: bool = True,
        keeps: bool = False,
    ) -> None:
        self.program = program
        self.record = record
        self._packing = Packing(program.runtime.library)
        self._calls = Calls(program, record, spending or Spending(), self._packing)
        self._contents = Contents(program)
        predictors = dict(program.named_predictors())
        deciders = {name: predictor for name, predictor in predictors.items() if is_decision(predictor)}
        self._deciders = frozenset(deciders)
        self._cascaded = {name for name, p in deciders.items() if len(clients_of(program, p, {})) > 1}
        self._foresees, self._vouches = False, vouches and program.vouches
        self._rewrites = program.runtime.models.rewrite is not None
        self._failed: dict[Hashable, StepFailed] = {}
        self._parameters = Parameters(program, deciders)
        self._paths = Paths(self._parameters)
        told = [self._vouches, self._foresees]
        self._kept = KeptRuns(program, record, self._parameters, told) if keeps else None

    def __call__(self, question: str) -> Answer:
        """The answer, with what it cost when it was performed."""
        return self.answers([question])[0]

    def known(self, questions: Sequence[str]) -> list[int]:
        """The number of the run that answers each question under the parameters as they are; NONE: it must be made.

        Of one number the answer is always the same.
        """
        return self._paths.known(questions)

    def answer(self, number: int) -> Answer:
        """What the run of that number came to."""
        return self._paths.answer(number)

    def answers(self, questions: Sequence[str]) -> list[Answer]:
        """The answers, in order."""
        found = self._look_up(questions)
        runs = self._run([question for question, number in found.items() if number == NONE])
        made = {run.question: run.answer for run in runs}
        return [made.get(q) or self._paths.answer(found[q]) for q in questions]

    def asked(self, questions: Sequence[str]) -> list[list[tuple[Ask, Reply]]]:
        """Every question put to a predictor on the way to each answer, with its reply."""
        self._look_up(questions)
        return [run.asked for run in self._run(questions)]

    def reply(self, request: Request) -> Reply:
        """The reply to one request. Raises `StepFailed` when it cannot be had."""
        (found,) = self.replies([request])
        if found is None:
            raise next(iter(self._failed.values()))
        return found

    def replies(self, requests: Sequence[Request]) -> list[Reply | None]:
        """The replies, each request by itself, None for one that cannot be had; what the record lacks is performed
        together."""
        found: list[Reply | None] = [None] * len(requests)
        asking = {n: one_by_one(self.program, request) for n, request in enumerate(requests)}
        puts = {n: next(consulting) for n, consulting in asking.items()}
        while puts:
            self._obtain([put for some in puts.values() for put in some])
            for n, some in list(puts.items()):
                entries = [self.record.kept.get(self._contents.key(put)) for put in some]
                try:
                    puts[n] = asking[n].send([e for e in entries if e is not None]) if None not in entries else []
                except StopIteration as stop:
                    puts[n], found[n] = [], self._decoded(requests[n], stop.value.said[0][-1])
            puts = {n: some for n, some in puts.items() if some}
        return found

    def _look_up(self, questions: Sequence[str]) -> dict[str, int]:
        """As `known`, with what the record holds of runs."""
        found = dict(zip(questions, self._paths.known(questions), strict=True))
        unknown = [question for question, number in found.items() if number == NONE]
        if unknown and self._kept and (kept := self._kept.read(unknown)):
            self._paths.take(kept)
            found = dict(zip(questions, self._paths.known(questions), strict=True))
        return found

    def _run(self, questions: Sequence[str]) -> list[_Run]:
        row = self._parameters.row()
        runs = [self._started(question, row) for question in questions]
        while waiting := [run for run in runs if run.answer is None]:
            self._obtain([put for run in waiting for put in run.puts])
            for run in waiting:
                self._advance(run)
        self.record.flush(every=KEPT_EVERY)
        return runs

    def _started(self, question: str, row: Sequence[float]) -> _Run:
        path: list[str] = []
        watched = Watched(self.program, Readings(self._parameters, row), self._vouches)
        for name in self._parameters.unnoted:
            watched.readings.value(name)
        rounds = self.program.runtime.budget.max_rounds
        loop = steps(question, watched.seen(), rounds, path=path)
        run = _Run(question, watched, loop, path)
        self._failed = {}
        self._consult(run, next(loop))
        self._advance(run)
        return run

    def _consult(self, run: _Run, requests: list[Request]) -> None:
        known = {at: value for at, (_, value) in run.known.items()}
        run.requests, run.consulting, run.puts = requests, consultation(self.program, requests, known), []

    def _advance(self, run: _Run) -> None:
        """As far as the record goes; a request that failed is told to the loop, as a driver would."""
        while run.answer is None and run.consulting is not None:
            keys = [self._contents.key(put) for put in run.puts]
            entries = [entry for key in keys if (entry := self.record.kept.get(key)) is not None]
            failures = [self._failed[key] for key in keys if key in self._failed]
            if len(entries) < len(keys) and not failures:
                return
            try:
                if failures:
                    self._note_failed(run, failures[0])
                    self._consult(run, run.loop.throw(failures[0]))
                else:
                    self._send(run, run.consulting, entries)
            except StopIteration as stop:
                run.answer = self._finished(run, stop.value)
                if run.fit:
                    self._remember(run, run.answer)

    def _note_failed(self, run: _Run, failure: StepFailed) -> None:
        """What failed may be had another time, and the run is not remembered. What was refused for good would be again,
        whenever the same is put to the same model: all that this hangs on is noted."""
        if not isinstance(failure, Refused):
            run.fit = False
            return
        run.refused = True
        asks = [request for request in run.requests if isinstance(request, Ask)]
        for ask in [*asks, *(ask for put in run.puts for ask in put.asks)]:
            run.watched.readings.value(ask.predictor)
            if ask.predictor in self._cascaded:
                run.watched.readings.value(_doubt(ask.predictor))

    def _remember(self, run: _Run, answer: Answer) -> None:
        read = run.watched.readings
        path = Path(run.question, read.low, read.high, read.choices, answer)
        own = not run.refused and not any(entry.stopgap for entry in run.entries)
        if self._paths.add(path) and self._kept and own:
            self._kept.keep(path)

    def _send(self, run: _Run, consulting: Consulting, entries: list[Entry]) -> None:
        """Tells the consultation, and once that is over the loop."""
        try:
            run.puts = consulting.send(entries) if run.puts else next(consulting)
        except StopIteration as stop:
            replies = self._replies(run, stop.value)
            self._consult(run, run.loop.send(replies))

    def _replies(self, run: _Run, consulted: Consulted) -> list[Reply]:
        """The replies as the loop sees them: what brought them, and what it looks at of them, is noted."""
        run.known |= {id(ask): (ask, value) for ask, value in consulted.ahead}
        run.dear, run.spared = run.dear + consulted.dear, run.spared + consulted.spared
        for put, entry in consulted.took:
            run.entries.append(entry)
            if isinstance(put.request, Find):
                run.searches += 1
            else:
                run.calls += not (put.request.predictor in self._deciders and is_embedded(put.model))
                for ask in put.asks:
                    run.watched.readings.value(ask.predictor)
        return [self._reply(run, *pair) for pair in zip(run.requests, consulted.said, strict=True)]

    def _reply(self, run: _Run, request: Request, said: Sequence[Any]) -> Reply:
        if isinstance(request, Find):
            return said[-1]
        reply = said[-1]
        if request.predictor in self._deciders:
            run.decisions += 1
            each = [run.watched.decided(request.predictor, one) for one in said]
            reply = each[-1]
            if request.predictor in self._cascaded:
                run.watched.readings.value(_doubt(request.predictor))
            if len(each) > 1:  # a cascade passed it on
                first, second = ([d.value for d in one.values()] for one in each)
                run.passed_on += 1
                run.agreed += first == second
        elif self._rewrites and request.predictor == DRAFT:  # as a served run counts it
            dear = bool(request.inputs["strict"])
            run.dear, run.spared = run.dear + dear, run.spared + 1 - 2 * dear
        run.asked.append((request, self._decoded(request, said[-1])))
        return reply

    @staticmethod
    def _finished(run: _Run, answer: Answer) -> Answer:
        spent = run.entries
        usage = Usage(
            calls=run.calls,
            decisions=run.decisions,
            searches=run.searches,
            tokens_in=sum(e.tokens_in for e in spent),
            tokens_out=sum(e.tokens_out for e in spent),
            usd=sum(e.usd for e in spent),
            seconds=sum(e.seconds for e in spent),
            asked=run.passed_on,
            agreed=run.agreed,
            dear=run.dear,
            spared=run.spared,
        )
        return replace(answer, usage=usage, trace=replace(answer.trace, path=tuple(run.path)))

    def _obtain(self, puts: Sequence[Put]) -> None:
        """Puts what these come to into memory: read from the file, else performed; or notes how it failed."""
        self._failed = {}
        if wanted := {key: put for put in puts if (key := self._contents.key(put)) not in self.record.kept}:
            self._fetch(wanted)

    def _fetch(self, wanted: Mapping[Hashable, Put]) -> None:
        digests = {key: self._contents.digest(put) for key, put in wanted.items()}
        held = self.record.read(d for d in digests.values() if d is not None)
        lacking = []
        for key, put in wanted.items():
            entry = held.get(digests[key] or b"")
            if entry is None:
                lacking.append(key)
            elif isinstance(put.request, Find):
                self.record.kept[key] = replace(entry, value=self._packing.unpacked(entry.value))
            else:
                self.record.kept[key] = entry
        performed = self._calls.perform([(wanted[key], digests[key]) for key in lacking])
        for key, found in zip(lacking, performed, strict=True):
            if isinstance(found, Entry):
                self.record.kept[key] = found
            else:
                self._failed[key] = found

    def _decoded(self, request: Request, said: Any) -> Reply:
        if isinstance(request, Ask) and request.predictor in self._deciders:
            return decode(said, self.program.predictor(request.predictor).fields)
        return said


def _doubt(predictor: str) -> str:
    """The knob that says when a cascade's first model is in doubt about a predictor."""
    return f"doubt.{predictor.rpartition('.')[2]}"
