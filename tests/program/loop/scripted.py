"""A whole program, drivers and all, whose models answer from a table and whose searches find what they are told to."""

import asyncio
import re
import threading
from dataclasses import replace

import dspy
from dspy.lm15 import response_to_events

from ragc.answer import Token, Withdrawn
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import STATES, Find, Runtime
from ragc.models.catalog import Models
from ragc.models.embedded.reader import READER
from ragc.passage import NO_FILTERS, Passage, SourceCard
from ragc.serve.trace import TraceLog, emit_span
from ragc.settings import BudgetSettings, ModelSettings
from tests.support.prompts import format_reply, read_prompt, reply_with

CARDS = [SourceCard("product", "documents", "kettles"), SourceCard("billing", "documents", "refunds")]
REPLIES = {
    **{"route": "simple", "sure": 0.8, "sufficient": 0.9, "supported": 0.9, "responsive": 0.8},
    **{"sub_queries": ["first part", "second part"], "details": [], "query": "next"},
    **{"missing": "the price", "next_query": "price of the kettle"},
    **{"answer": "Text 0. [1] Text 1. [2]"},
}


def passage(id, text="", dense=0.8, **fields):
    """A passage whose base is the beginning of its id, whose title is its id, and whose text is its own."""
    scores = {"dense": dense, "keyword": dense}
    text = text or f"text {id}"
    return Passage(id, id.split("/", maxsplit=1)[0], fields.pop("title", id), text, scores=scores, **fields)


LIKELY = 0.12  # the threshold of a quotation: several pieces that are said to be sure have this chance each
STATED = "Text 0, text 1, "  # what the scripted answer says
POOL = [
    passage(f"{base}/a.md#{n}", f"{STATED}text {n}{dot}", 0.9 - n / 10)
    for base, dot in (("product", "."), ("billing", ""))
    for n in range(3)
]


def turns(*values):
    """A reply for each call; the last one goes on."""
    left = list(values)
    return lambda inputs: left.pop(0) if len(left) > 1 else left[0]


class ScriptedModels:
    """The models: a decision client and the engine of a language model, which hangs when `held` is wanted of it."""

    supports_decision_requests = True
    reader = None

    def __init__(self, name="scripted/model", held="", **replies):
        self.model, self.callbacks, self.cache, self.kwargs = name, [], False, {}
        self.replies = {**REPLIES, **replies}
        self.held, self.gate, self.holding = held, threading.Event(), 0
        self.asked = []

    def lm(self, name=""):
        return dspy.LM(name or self.model, engine=self, async_engine=_Async(self), cache=False)

    def inputs(self, output):
        """What was shown each time that output was wanted."""
        return [inputs for name, inputs in self.asked if name == output]

    def __call__(self, state, questions):
        if self.held in questions:
            self.gate.wait(60)
        self.asked += [(name, state["inputs"]) for name in questions if not name.startswith("base_")]
        return {name: self._decide(name, put, state["inputs"]) for name, put in questions.items()}

    async def acall(self, state, questions):
        return self(state, questions)

    def complete(self, request):
        if self.held in read_prompt(request).outputs:
            self.gate.wait(60)
        return self.respond(request)

    def stream(self, request):
        return response_to_events(self.complete(request))

    def respond(self, request):
        prompt = read_prompt(request)
        values = {name: self._write(name, prompt) for name in prompt.outputs}
        return reply_with(request, format_reply(prompt, values))

    def _decide(self, name, put, inputs):
        value = self._value(name, inputs)
        if put["type"] == "noul":
            return {"noul": 0.0, "undecided": True} if value is None else {"noul": value}
        rest = (1 - self.replies["sure"]) / (len(put["criteria"]) - 1)
        shares = {option: self.replies["sure"] if option == value else rest for option in put["criteria"]}
        return {"probabilities": shares, "confidence": self.replies["sure"]}

    def _write(self, name, prompt):
        inputs = {**prompt.inputs, "passages": prompt.read_passages()}
        self.asked.append((name, inputs))
        return self._value(name, inputs)

    def _value(self, name, inputs):
        value = self.replies.get(name, 0.1)
        value = value(inputs) if callable(value) else value
        if isinstance(value, Exception):
            raise value
        return value


class _Async:
    def __init__(self, models):
        self.models = models

    async def complete(self, request):
        if self.models.held in read_prompt(request).outputs:
            self.models.holding += 1
            await asyncio.sleep(60)
        return self.models.respond(request)

    async def stream(self, request):
        for event in response_to_events(await self.complete(request)):
            delta = getattr(event, "delta", None)
            for word in re.findall(r"\s*\S+\s*", getattr(delta, "text", "")):
                yield replace(event, delta=replace(delta, text=word))
            if not getattr(delta, "text", ""):
                yield event


class Shelf:
    """A library that finds the same whatever is asked, or what a function of the search says; it notes each search."""

    def __init__(self, cards, pool):
        self.cards, self.pool = cards, pool
        self.finds = []

    def describe(self):
        return self.cards

    keeps = False

    def readable_by(self, readers):
        return self

    def describe_tables(self, name):
        return f"Table of {name}"

    def searches_here(self, sources):
        return False

    def find_known_words(self, text):
        return {}

    def candidates(self, query, sources, depth, filters=NO_FILTERS, failed=None):
        find = Find(query, tuple(sources), depth, filters.sql)
        self.finds.append(find)
        pool = self.pool(find) if callable(self.pool) else self.pool
        return [p for p in pool if p.source in find.sources]


def read_drafts(events):
    """Each text that a stream showed until it was withdrawn, or to the end."""
    drafts = [""]
    for event in events:
        if isinstance(event, Withdrawn):
            drafts.append("")
        elif isinstance(event, Token):
            drafts[-1] += event.text
    return drafts


class Scripted:
    """A program over a shelf; `ask` it, and read what its models were asked (`asked`, `inputs`) and what was found.

    Its language model is asked for everything, unless it `quotes`, as a program of the embedded models does.
    """

    def __init__(
        self,
        *,
        cards=CARDS,
        pool=POOL,
        models=None,
        judging=None,
        budget=None,
        log=None,
        links=(),
        replies=None,
        library=None,
        quotes=False,
        writes="",
        **knobs,
    ):
        likely = {f"base_{card.name}": 0.1 if n else 0.9 for n, card in enumerate(cards)}
        self.models = models or ScriptedModels()
        self.models.replies.update({**likely, **(replies or {})})
        own, now = REPLIES["sub_queries"], self.models.replies
        if quotes and now["sub_queries"] is own and now["route"] != "complex":  # as the embedded writer does
            now["sub_queries"] = lambda inputs: [inputs["question"]]
        self.shelf = Shelf(cards, pool)
        names = ModelSettings(decide="scripted/model", write="scripted/model")
        writer, queries = self.models.lm(READER if quotes else writes), self.models.lm()
        clients = Models(self.models, writer, None, None, self.models, names, judging, query=queries)
        observers = (TraceLog(log).write_answer, emit_span) if log else (emit_span,)
        runtime = Runtime(
            library or self.shelf,
            clients,
            budget or BudgetSettings(max_rounds=10, max_seconds=120),
            observers,
            "scripted@v1",
            "",
            links,
        )
        self.rag = AgenticRAG(cards, runtime)
        self.rag.policy.turn(**knobs)
        self.rag.predictor(STATES).fields["states"] = {"threshold": LIKELY}

    def __call__(self, question="How big is it?"):
        return self.rag(question)

    @property
    def queries(self):
        return [find.query for find in self.shelf.finds]

    @property
    def asked(self):
        """The outputs that were wanted of the models, in order."""
        return [name for name, _ in self.models.asked]
