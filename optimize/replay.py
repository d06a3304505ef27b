"""A program's runs answered from a record: thresholds and knobs are applied to evidence found once.

A decision is recorded as its probabilities, a search as its pool of scored candidates, a text as itself. Another
threshold, fusion weight or round cap is then arithmetic; only a branch that was never taken is performed, once.
Questions run abreast, so that what several of them lack is performed together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
import orjson

from optimize.calls import Asked, Calls, Packing
from optimize.code import source_digest
from optimize.paths import Paths, Values, Watched
from optimize.record import Entry, Record
from optimize.spending import Spending
from program.answer import Answer, Usage
from program.deciding import decides, prompt_inputs, tiers
from program.decisions import decode, jsonable
from program.knobs import Knob
from program.knowledge.source import Passage
from program.loop import Ask, Find, Reply, Request, StepFailed, Steps, steps
from program.models.cascade import settled
from program.models.catalog import LOCAL
from program.rag import AgenticRAG


@dataclass(slots=True)
class _Run:
    """One question on its way: the loop, what it waits for, and what it has cost."""

    question: str
    watched: Watched
    loop: Steps
    path: list[str]
    waiting: list[Request] = field(default_factory=list)
    answer: Answer | None = None
    calls: int = 0
    decisions: int = 0
    searches: int = 0
    asked: int = 0
    agreed: int = 0
    failed: bool = False
    entries: list[Entry] = field(default_factory=list)


class Replay:
    """Answers questions as `program` would, from the record where it can.

    Reads the program's thresholds and knobs anew for each question, so a search may turn them between
    questions; its instructions and demonstrations may be exchanged for others of its candidates, which stay as they
    are. Raises `BudgetStop` when a call that is needed would pass a cap.
    """

    def __init__(self, program: AgenticRAG, record: Record, spending: Spending | None = None) -> None:
        self.program = program
        self.record = record
        library = program.runtime.library
        self._packing = Packing(library)
        self._calls = Calls(program, record, spending or Spending(), self._packing)
        self._predictors = dict(program.named_predictors())
        self._prints: dict[tuple[str, str, int, int], tuple[str, Any, Any]] = {}
        self._decides = {name: decides(predictor) for name, predictor in self._predictors.items()}
        self._deciders = {n: tiers(program, p, {}) for n, p in self._predictors.items() if self._decides[n]}
        self._failed: dict[Hashable, StepFailed] = {}
        self._paths = Paths()
        self._knobs = {n: p for n, p in program.named_parameters() if isinstance(p, Knob)}
        self._thresholds = [(n, o) for n in self._deciders for o in self._predictors[n].signature.output_fields]
        self._contents = {name: library.content_digest(name) for name in program.sources}

    def __call__(self, question: str) -> Answer:
        """The answer, with what it cost when it was performed."""
        return self.answers([question])[0]

    def answers(self, questions: Sequence[str]) -> list[Answer]:
        """The answers, in order."""
        values = Values(self.program, self._knobs, self._thresholds)
        known = {question: self._paths.known(question, values) for question in questions}
        runs = {question: self._started(question, values) for question, answer in known.items() if answer is None}
        while waiting := [run for run in runs.values() if run.answer is None]:
            self._obtain([request for run in waiting for request in run.waiting])
            for run in waiting:
                self._advance(run)
        known |= {question: run.answer for question, run in runs.items()}
        return [answer for question in questions if (answer := known[question]) is not None]

    def reply(self, request: Request) -> Reply:
        """The reply to one request. Raises `StepFailed` when it cannot be had."""
        (found,) = self.replies([request])
        if found is None:
            raise next(iter(self._failed.values()))
        return found

    def replies(self, requests: Sequence[Request]) -> list[Reply | None]:
        """The replies, in order, None for one that cannot be had; what the record lacks is performed together."""
        self._obtain(requests)
        found = [(request, self._entries(request)[-1]) for request in requests]
        return [None if entry is None else self._decoded(request, entry) for request, entry in found]

    def _started(self, question: str, values: Values) -> _Run:
        path: list[str] = []
        watched = Watched(self.program, values)
        loop = steps(question, watched.seen(), self.program.runtime.budget.max_rounds, path=path)
        run = _Run(question, watched, loop, path)
        run.waiting = next(run.loop)
        self._advance(run)
        return run

    def _advance(self, run: _Run) -> None:
        """As far as the record goes; a request that failed is told to the loop, as a driver would."""
        while run.answer is None:
            found = [self._entries(request) for request in run.waiting]
            lacking = any(None in entries for entries in found)
            keys = [self._key(asked) for request in run.waiting for asked in self._asked(request)] if lacking else []
            if lacking and not any(key in self._failed for key in keys):
                return
            try:
                if lacking:
                    run.failed = True
                    run.waiting = run.loop.throw(next(self._failed[key] for key in keys if key in self._failed))
                    continue
                entries = [[entry for entry in each if entry is not None] for each in found]
                self._count(run, entries)
                replies = [self._watched(run, r, each[-1]) for r, each in zip(run.waiting, entries, strict=True)]
                run.waiting = run.loop.send(replies)
            except StopIteration as stop:
                run.answer = self._finished(run, stop.value)
                if not run.failed:  # what failed may be had another time
                    self._paths.add(run.question, run.watched.reads, run.answer)

    def _count(self, run: _Run, found: Sequence[Sequence[Entry]]) -> None:
        for request, entries in zip(run.waiting, found, strict=True):
            if isinstance(request, Find):
                run.searches += 1
            elif self._decides[request.predictor]:
                run.decisions += 1
            else:
                run.calls += 1
            if len(entries) > 1:  # a cascade passed it on
                first, second = ([d.value for d in self._watched(run, request, entry).values()] for entry in entries)
                run.calls += 1
                run.asked += 1
                run.agreed += first == second
            run.entries += entries

    @staticmethod
    def _finished(run: _Run, answer: Answer) -> Answer:
        spent = run.entries
        usage = Usage(
            run.calls, run.decisions, run.searches,
            sum(e.tokens_in for e in spent), sum(e.tokens_out for e in spent),
            sum(e.usd for e in spent), sum(e.seconds for e in spent), run.asked, run.agreed,
        )  # fmt: skip
        return replace(answer, usage=usage, trace=replace(answer.trace, path=tuple(run.path)))

    def _obtain(self, requests: Sequence[Request]) -> None:
        """Puts what these requests come to into memory: read from the file, else performed; or notes how it failed."""
        self._failed = {}
        while wanted := {
            key: asked
            for request in requests
            for asked in self._asked(request)
            if (key := self._key(asked)) not in self.record.kept and key not in self._failed
        }:  # once, and once more for what a cascade passes on
            self._fetch(wanted)

    def _fetch(self, wanted: Mapping[Hashable, Asked]) -> None:
        digests = {key: self._digest(asked) for key, asked in wanted.items()}
        held = self.record.read(d for d in digests.values() if d is not None)
        lacking = []
        for key, (request, _) in wanted.items():
            entry = held.get(digests[key] or b"")
            if entry is None:
                lacking.append(key)
            elif isinstance(request, Find):
                self.record.kept[key] = replace(entry, value=self._packing.unpacked(entry.value))
            else:
                self.record.kept[key] = entry
        performed = self._calls.perform([(wanted[key], digests[key]) for key in lacking])
        for key, found in zip(lacking, performed, strict=True):
            if isinstance(found, Entry):
                self.record.kept[key] = found
            else:
                self._failed[key] = found

    def _asked(self, request: Request) -> list[Asked]:
        """Who must be asked for the reply, as far as is known: the second of a cascade only where the first doubts."""
        if isinstance(request, Find):
            return [(request, None)]
        name = request.predictor
        first, *second = self._deciders.get(name) or tiers(self.program, self._predictors[name], request.inputs)
        found = self.record.kept.get(self._key((request, first))) if second else None
        if found is None or settled(found.value, self.program.doubt.of(name)):
            return [(request, first)]
        return [(request, first), (request, second[0])]

    def _entries(self, request: Request) -> list[Entry | None]:
        return [self.record.kept.get(self._key(asked)) for asked in self._asked(request)]

    def _print(self, name: str, model: Any) -> str:
        predictor = self._predictors[name]
        key = (name, str(model.model), id(predictor.signature), id(predictor.demos))
        if key not in self._prints:
            print_ = fingerprint(self.program, predictor, model)
            self._prints[key] = (print_, predictor.signature, predictor.demos)  # kept, so that no other takes their ids
        return self._prints[key][0]

    def _key(self, asked: Asked) -> Hashable:
        request, model = asked
        if isinstance(request, Find):
            return ("find", request.query, request.sources, request.depth, request.not_before)
        return (self._print(request.predictor, model), *(_content(value) for value in request.inputs.values()))

    def _digest(self, asked: Asked) -> bytes | None:
        """Names the request in the record's file, or None when what it brings may change unseen."""
        request, model = asked
        content: list[Any]
        if isinstance(request, Find):
            places = [self._contents.get(name, "") for name in request.sources]
            if not all(places):
                return None
            content = ["find", request.query, request.sources, places, request.depth, source_digest()]
            if request.not_before is not None:
                content.append(request.not_before)
        else:
            inputs = {name: jsonable(value) for name, value in prompt_inputs(request.inputs).items()}
            content = [self._print(request.predictor, model), inputs]
        return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()

    def _watched(self, run: _Run, request: Request, entry: Entry) -> Reply:
        """The reply as the loop sees it: what brought it, and which decisions the loop looks at, is noted."""
        if isinstance(request, Ask):
            run.watched.asked(request.predictor)
        if isinstance(request, Find) or not self._decides[request.predictor]:
            return entry.value
        if len(self._deciders[request.predictor]) > 1:
            run.watched.knob(f"doubt.{request.predictor.rpartition('.')[2]}")
        return run.watched.decided(request.predictor, entry.value)

    def _decoded(self, request: Request, entry: Entry) -> Reply:
        if isinstance(request, Ask) and self._decides[request.predictor]:
            return decode(entry.value, self._predictors[request.predictor].fields)
        return entry.value


def _content(value: Any) -> Hashable:
    """What identifies an input in this process: a passage by its id and text, a list by its members."""
    if isinstance(value, Passage):
        return (value.id, value.text)
    if isinstance(value, list | tuple):
        return tuple(_content(item) for item in value)
    return value  # type: ignore[no-any-return]


def fingerprint(program: AgenticRAG, predictor: dspy.Predict, model: Any) -> str:
    """Identifies what answers a predictor: instructions, fields, demonstrations, wording, and the model.

    A model of this project's own is identified by the code, too; another by DSPy's version, which writes the prompt.
    """
    local = model.model.startswith(LOCAL)
    described = {
        name: [str(f.annotation), (f.json_schema_extra or {}).get("desc"), (f.json_schema_extra or {}).get("prefix")]
        for name, f in predictor.signature.fields.items()
    }
    worded = {name: [c.get("instructions"), c.get("criteria")] for name, c in predictor.fields.items()}
    wording = {name: words for name, words in worded.items() if any(words)}  # a threshold alone says nothing
    reader = [source_digest(), program.runtime.models.embedder.digest] if local else [dspy.__version__]
    settings = {k: v for k, v in (model.kwargs or {}).items() if "key" not in k}
    content = [
        predictor.signature.instructions, described, wording, [dict(demo) for demo in predictor.demos],
        predictor.config, model.model, settings, reader,
    ]  # fmt: skip
    packed = orjson.dumps(content, default=lambda item: item.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(packed, digest_size=16).hexdigest()
