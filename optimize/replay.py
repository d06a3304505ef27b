"""A program's runs answered from a record: thresholds and knobs are applied to evidence found once.

A decision is recorded as its probabilities, a search as its pool of scored candidates, a text as itself. Another
threshold, fusion weight or round cap is then arithmetic; only a branch that was never taken is performed, once.
Questions run abreast, so that what several of them lack is performed together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
import orjson

from optimize.calls import LOCAL, Calls, Packing
from optimize.code import source_digest
from optimize.record import Entry, Record
from optimize.spending import Spending
from program.answer import Answer, Usage
from program.decisions import decode, jsonable
from program.drivers import client, decides, prompt_inputs
from program.knowledge.source import Passage
from program.loop import Ask, Find, Reply, Request, StepFailed, Steps, steps
from program.rag import AgenticRAG


@dataclass(slots=True)
class _Run:
    """One question on its way: the loop, what it waits for, and what it has cost."""

    loop: Steps
    path: list[str]
    waiting: list[Request] = field(default_factory=list)
    answer: Answer | None = None
    calls: int = 0
    decisions: int = 0
    searches: int = 0
    entries: list[Entry] = field(default_factory=list)


class Replay:
    """Answers questions as `program` would, from the record where it can.

    Reads the program's thresholds and knobs anew for each question, so a search may turn them between
    questions; its instructions and demonstrations must stay as they are. Raises `BudgetStop` when a call that
    is needed would pass a cap.
    """

    def __init__(self, program: AgenticRAG, record: Record, spending: Spending | None = None) -> None:
        self.program = program
        self.record = record
        library = program.runtime.library
        self._packing = Packing(library)
        self._calls = Calls(program, record, spending or Spending(), self._packing)
        self._predictors = dict(program.named_predictors())
        self._prints = {name: fingerprint(program, predictor) for name, predictor in self._predictors.items()}
        self._decides = {name: decides(predictor) for name, predictor in self._predictors.items()}
        self._failed: dict[Hashable, StepFailed] = {}
        self._contents = {name: library.content_digest(name) for name in program.sources}

    def __call__(self, question: str) -> Answer:
        """The answer, with what it cost when it was performed."""
        return self.answers([question])[0]

    def answers(self, questions: Sequence[str]) -> list[Answer]:
        """The answers, in order."""
        runs = [self._started(question) for question in questions]
        while waiting := [run for run in runs if run.answer is None]:
            self._obtain([request for run in waiting for request in run.waiting])
            for run in waiting:
                self._advance(run)
        return [run.answer for run in runs if run.answer is not None]

    def reply(self, request: Request) -> Reply:
        """The reply to one request. Raises `StepFailed` when it cannot be had."""
        (found,) = self.replies([request])
        if found is None:
            raise next(iter(self._failed.values()))
        return found

    def replies(self, requests: Sequence[Request]) -> list[Reply | None]:
        """The replies, in order, None for one that cannot be had; what the record lacks is performed together."""
        self._obtain(requests)
        found = [(request, self.record.kept.get(self._key(request))) for request in requests]
        return [None if entry is None else self._decoded(request, entry) for request, entry in found]

    def _started(self, question: str) -> _Run:
        path: list[str] = []
        run = _Run(steps(question, self.program, self.program.runtime.budget.max_rounds, path=path), path)
        run.waiting = next(run.loop)
        self._advance(run)
        return run

    def _advance(self, run: _Run) -> None:
        """As far as the record goes; a request that failed is told to the loop, as a driver would."""
        kept = self.record.kept
        while run.answer is None:
            keys = [self._key(request) for request in run.waiting]
            found = [kept.get(key) for key in keys]
            if None in found and not any(key in self._failed for key in keys):
                return
            try:
                if None in found:
                    run.waiting = run.loop.throw(next(self._failed[key] for key in keys if key in self._failed))
                    continue
                entries = [entry for entry in found if entry is not None]
                self._count(run, entries)
                replies = [self._decoded(r, e) for r, e in zip(run.waiting, entries, strict=True)]
                run.waiting = run.loop.send(replies)
            except StopIteration as stop:
                run.answer = self._finished(run, stop.value)

    def _count(self, run: _Run, entries: Sequence[Entry]) -> None:
        for request in run.waiting:
            if isinstance(request, Find):
                run.searches += 1
            elif self._decides[request.predictor]:
                run.decisions += 1
            else:
                run.calls += 1
        run.entries += entries

    @staticmethod
    def _finished(run: _Run, answer: Answer) -> Answer:
        spent = run.entries
        usage = Usage(
            run.calls, run.decisions, run.searches,
            sum(e.tokens_in for e in spent), sum(e.tokens_out for e in spent),
            sum(e.usd for e in spent), sum(e.seconds for e in spent),
        )  # fmt: skip
        return replace(answer, usage=usage, trace=replace(answer.trace, path=tuple(run.path)))

    def _obtain(self, requests: Sequence[Request]) -> None:
        """Puts what these requests come to into memory: read from the file, else performed; or notes how it failed."""
        wanted = {key: request for request in requests if (key := self._key(request)) not in self.record.kept}
        digests = {key: self._digest(request) for key, request in wanted.items()}
        held = self.record.read(d for d in digests.values() if d is not None)
        lacking = []
        for key, request in wanted.items():
            entry = held.get(digests[key] or b"")
            if entry is None:
                lacking.append(key)
            elif isinstance(request, Find):
                self.record.kept[key] = replace(entry, value=self._packing.unpacked(entry.value))
            else:
                self.record.kept[key] = entry
        self._failed = {}
        performed = self._calls.perform([(wanted[key], digests[key]) for key in lacking])
        for key, found in zip(lacking, performed, strict=True):
            if isinstance(found, Entry):
                self.record.kept[key] = found
            else:
                self._failed[key] = found

    def _key(self, request: Request) -> Hashable:
        if isinstance(request, Find):
            return ("find", request.query, request.sources, request.depth, request.not_before)
        return (self._prints[request.predictor], *(_content(value) for value in request.inputs.values()))

    def _digest(self, request: Request) -> bytes | None:
        """Names the request in the record's file, or None when what it brings may change unseen."""
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
            content = [self._prints[request.predictor], inputs]
        return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()

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


def fingerprint(program: AgenticRAG, predictor: dspy.Predict) -> str:
    """Identifies what answers a predictor: instructions, fields, demonstrations, wording, and the model.

    A model of this project's own is identified by the code, too; another by DSPy's version, which writes the prompt.
    """
    model = client(program, predictor)
    local = model.model.startswith(LOCAL)
    described = {
        name: [str(f.annotation), (f.json_schema_extra or {}).get("desc"), (f.json_schema_extra or {}).get("prefix")]
        for name, f in predictor.signature.fields.items()
    }
    wording = {name: [c.get("instructions"), c.get("criteria")] for name, c in predictor.fields.items()}
    reader = [source_digest(), program.runtime.models.embedder.digest] if local else [dspy.__version__]
    settings = {k: v for k, v in (model.kwargs or {}).items() if "key" not in k}
    content = [
        predictor.signature.instructions, described, wording, [dict(demo) for demo in predictor.demos],
        predictor.config, model.model, settings, reader,
    ]  # fmt: skip
    packed = orjson.dumps(content, default=lambda item: item.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(packed, digest_size=16).hexdigest()
