"""A whole program, drivers and all, over a shelf of passages and models that say what they are told to."""

import asyncio
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
from dspy.lm15 import Message, Response, TextPart, Usage, response_to_events

from program.knowledge.library import Library
from program.loop.rag import AgenticRAG
from program.loop.state import Budget, Runtime
from program.models.catalog import Models
from program.models.prompt import Prompt, read, reply
from program.passage import NO_FILTERS, Passage, SourceCard
from program.serve.trace import TraceLog, emit_spans
from program.settings import ModelSettings

WRITTEN: dict[str, Any] = {
    "sub_queries": ["first part", "second part"],
    "details": [],
    "query": "next",
    "missing": "the price",
    "next_query": "price",
    "clarifying_question": "Which one?",
    "answer": lambda prompt: f"{prompt.inputs['question']} is 42. [1]",
}


class Shelf:
    """A source of passages that are the same for every query."""

    name = "shelf"

    def describe(self) -> SourceCard:
        return SourceCard("shelf", "documents", "everything")

    def candidates(self, query: str, depth: int, filters=NO_FILTERS) -> list[Passage]:
        return [
            Passage(f"shelf/a.md#{n}", "shelf", f"Title {n}", f"text {n}", scores={"dense": 1 - n / 10, "keyword": 1.0})
            for n in range(3)
        ]

    def search(self, query: str, k: int, filters=NO_FILTERS) -> list[Passage]:
        return self.candidates(query, k)[:k]

    async def asearch(self, query: str, k: int, filters=NO_FILTERS) -> list[Passage]:
        return self.search(query, k)


class Decider:
    """A decision client: the probability of each Noul by name, the first option of every Choice unless named."""

    supports_decision_requests = True

    def __init__(self, route: str = "simple", **nouls: float) -> None:
        self.model, self.callbacks, self.cache, self.kwargs = "staged/decider", [], False, {}
        self.route = route
        self.nouls = {"vague": 0.1, "base_shelf": 0.9, "relevant": 0.9, "sufficient": 0.9, **nouls}

    def __call__(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._answer(name, put) for name, put in questions.items()}

    async def acall(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> dict[str, Any]:
        return self(state, questions)

    def _answer(self, name: str, put: Mapping[str, Any]) -> dict[str, Any]:
        if put["type"] == "noul":
            return {"noul": self.nouls.get(name, 0.9)}
        shares = {option: 0.9 if option == self.route else 0.05 for option in put["criteria"]}
        return {"probabilities": shares, "confidence": 0.9}


class Writer:
    """The engines of a language model that writes `values`; it hangs, until `gate` opens, when `held` is wanted."""

    def __init__(self, held: str = "", model: str = "staged/writer", **values: Any) -> None:
        self.model = model
        self.values = {**WRITTEN, **values}
        self.held = held
        self.gate = threading.Event()
        self.holding = 0
        self.prompts: list[Prompt] = []

    def lm(self) -> dspy.LM:
        return dspy.LM(self.model, engine=self, async_engine=_Async(self), cache=False)

    def respond(self, request: Any) -> Response:
        prompt = read(request)
        self.prompts.append(prompt)
        values = {n: self._value(n, prompt) for n in prompt.outputs}
        usage = Usage(input_tokens=10, output_tokens=5, total_tokens=15)
        message = Message.assistant([TextPart(reply(prompt, values))])
        return Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)

    def holds(self, request: Any) -> bool:
        return bool(self.held) and self.held in read(request).outputs

    def complete(self, request: Any) -> Response:
        if self.holds(request):
            self.gate.wait(60)
        return self.respond(request)

    def stream(self, request: Any) -> Any:
        return response_to_events(self.complete(request))

    def _value(self, name: str, prompt: Prompt) -> Any:
        value = self.values[name]
        return value(prompt) if isinstance(value, Callable) else value


class _Async:
    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    async def complete(self, request: Any) -> Response:
        if self.writer.holds(request):
            self.writer.holding += 1
            await asyncio.sleep(60)
        await asyncio.sleep(0)
        return self.writer.respond(request)

    async def stream(self, request: Any) -> Any:
        for event in response_to_events(await self.complete(request)):
            delta = getattr(event, "delta", None)
            for word in re.findall(r"\s*\S+\s*", getattr(delta, "text", "")):
                yield replace(event, delta=replace(delta, text=word))
            if not getattr(delta, "text", ""):
                yield event


def staged(
    decider: Any = None,
    writer: Writer | None = None,
    *,
    log: Path | None = None,
    review_below: float = 0.0,
    budget: Budget | None = None,
    shelf: Shelf | None = None,
    **knobs: float,
) -> AgenticRAG:
    """The program. `log` is the folder of its traces."""
    shelf = shelf or Shelf()
    library = Library([], None, None, [shelf])
    names = ModelSettings(decide="staged/decider", write="local/staged")
    models = Models(decider or Decider(), (writer or Writer()).lm(), None, names)
    observers = (TraceLog(log, review_below).write_answer, emit_spans) if log else (emit_spans,)
    program = AgenticRAG([shelf.describe()], Runtime(library, models, budget or Budget(), observers, "staged@v1"))
    program.policy.turn(**knobs)
    return program
