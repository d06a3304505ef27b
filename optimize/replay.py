"""A program's runs answered from a record: thresholds and knobs are applied to evidence found once.

A decision is recorded as its probabilities, a search as its pool of scored candidates, a text as itself. Another
threshold, fusion weight or round cap is then arithmetic; only a branch that was never taken is performed, once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import dspy
import orjson
from dspy.adapters.types.decision import decision_type

from program.answer import Answer, Usage
from program.deciding import client, decide_directly, decides, prompt_inputs
from program.decisions import decode
from program.knowledge.source import Passage
from program.loop import Find, Reply, Request, steps
from program.models.adapter import speaking
from program.models.cascade import consult
from program.performing import search_arguments
from program.rag import AgenticRAG

Key = tuple[Any, ...]


@dataclass(slots=True)
class Record:
    """Evidence by content: what was asked of which predictor under which demonstrations, and what came back."""

    evidence: dict[Key, Any] = field(default_factory=dict)
    performed: int = 0
    replayed: int = 0


class Replay:
    """Answers questions as `program` would, from the record where it can.

    Reads the program's thresholds and knobs anew for each question, so a search may turn them between
    questions; its instructions and demonstrations must stay as they are.
    """

    def __init__(self, program: AgenticRAG, record: Record) -> None:
        self.program = program
        self._record = record
        self._library = program.runtime.library
        self._asked = 0  # decisions passed on to a cascade's second model
        self._fingerprints = {name: _fingerprint(predictor) for name, predictor in program.named_predictors()}

    def __call__(self, question: str) -> Answer:
        """The answer, with the number of calls it would have cost."""
        calls = decisions = searches = 0
        path: list[str] = []
        loop = steps(question, self.program, self.program.runtime.budget.max_rounds, path=path)
        try:
            requests = next(loop)
            while True:
                for request in requests:
                    if isinstance(request, Find):
                        searches += 1
                    elif self._decides(request.predictor):
                        decisions += 1
                    else:
                        calls += 1
                asked = self._asked
                replies = [self.reply(request) for request in requests]
                calls += self._asked - asked
                requests = loop.send(replies)
        except StopIteration as stop:
            answer: Answer = stop.value
        trace = replace(answer.trace, path=tuple(path))
        return replace(answer, usage=Usage(calls, decisions, searches), trace=trace)

    def reply(self, request: Request) -> Reply:
        """The reply to one request: from the record, or performed and recorded."""
        if isinstance(request, Find):
            return self._found(request)
        predictor = self.program.predictor(request.predictor)
        model = client(self.program, predictor)
        if not decides(predictor) or not hasattr(model, "second"):
            return self._decode(request.predictor, self._found(request))
        work = consult(self.program.doubt.of(request.predictor))
        tier = next(work)
        try:
            while True:
                self._asked += tier
                tier = work.send(self._found(request, (model.first, model.second)[tier]))
        except StopIteration as stop:
            return self._decode(request.predictor, stop.value)

    def _found(self, request: Request, model: Any = None) -> Any:
        """What came back for a request, of one model of a cascade when given."""
        key = self._key(request) if model is None else (*self._key(request), model.model)
        found = self._record.evidence.get(key)
        if found is None:
            found = self._perform(request, model)
            self._record.evidence[key] = found
            self._record.performed += 1
        else:
            self._record.replayed += 1
        return found

    def _key(self, request: Request) -> Key:
        if isinstance(request, Find):
            return ("find", request.query, request.sources, request.depth, request.not_before)
        fingerprint = self._fingerprints[request.predictor]
        return (request.predictor, fingerprint, *(_content(value) for value in request.inputs.values()))

    def _perform(self, request: Request, model: Any = None) -> Any:
        if isinstance(request, Find):
            return self._library.candidates(*search_arguments(request))
        predictor = self.program.predictor(request.predictor)
        inputs = prompt_inputs(request.inputs)
        if model is not None:
            return self.program.requests.ask(request.predictor, predictor, model, inputs)
        if not decides(predictor):
            lm = client(self.program, predictor, inputs)
            with speaking(lm):
                return dict(predictor(lm=lm, **inputs))
        return decide_directly(self.program, request.predictor, inputs)

    def _decides(self, name: str) -> bool:
        return decides(self.program.predictor(name))

    def _decode(self, name: str, found: Any) -> Any:
        predictor = self.program.predictor(name)
        if not decides(predictor):
            return found
        return decode(found, predictor.fields)


def _content(value: Any) -> Any:
    """What identifies an input: a passage by its id, a list by its members."""
    if isinstance(value, Passage):
        return value.id
    if isinstance(value, list | tuple):
        return tuple(_content(item) for item in value)
    return value


def _fingerprint(predictor: dspy.Predict) -> str:
    import hashlib

    outputs = {name: str(decision_type(field)) for name, field in predictor.signature.output_fields.items()}
    content = [predictor.signature.instructions, outputs, [dict(demo) for demo in predictor.demos]]
    packed = orjson.dumps(content, default=lambda item: item.model_dump(mode="json"))
    return hashlib.blake2b(packed, digest_size=16).hexdigest()
