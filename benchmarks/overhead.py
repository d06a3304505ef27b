"""What the loop itself costs: the strategy router as a LangGraph graph and as ragc's preset, with instant models.

    python benchmarks/overhead.py [--quick] [--json]

Both call the same DSPy predictors (the same prompts are formatted, the same replies parsed) over the same shelf, and
take the same way: classify, search, judge, write. ragc's side includes its budget and its trace. The two take turns,
question by question, in one process. Formatting and parsing is most of that time, so a second pair of figures has
predictors that return a ready reply: what is left is the loop and the graph. The models run in this process, as the
embedded ones do. Needs the extra `bench`.
"""

from __future__ import annotations

import json
import operator
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Any, TypedDict

import dspy
import numpy as np
from dspy.lm15 import Message, Request, Response, TextPart, Usage, response_to_events
from figures import Figure, figure, run_benchmark

from program.knowledge.library import Library
from program.loop.decisions import to_prompt_inputs
from program.loop.evidence import rank_pool
from program.loop.policy import PRESETS
from program.loop.rag import AgenticRAG
from program.loop.state import Budget, Runtime
from program.models.catalog import Models
from program.passage import NO_FILTERS, Filters, Passage, SourceCard
from program.settings import ModelSettings

Ask = Callable[[str], str]
MODEL = "local/instant"
QUESTIONS, QUICK = 400, 80
WARM = 10
ENOUGH = 0.6
_OUTPUTS = re.compile(r"Your output fields are:\n(.*?)All interactions will be structured", re.DOTALL)
_FIELD = re.compile(r"^\d+\. `(\w+)` \((\w+)", re.MULTILINE)
_LABEL = re.compile(r'^    "(\w+)": "', re.MULTILINE)
TEXTS: Mapping[str, Any] = {
    "sub_queries": ["How much does the first hold?", "How much does the second hold?"],
    "details": [],
    "answer": "The first holds 2 litres. [1] The second holds 3 litres. [2]",
    "query": "the first",
    "missing": "",
    "next_query": "",
    "clarifying_question": "Which one?",
}
YES = 0.9
NO = 0.05
DENIED = frozenset({"vague", "contradict"})


def reply_to(system: str, route: str) -> str:
    """The reply to a prompt of DSPy's ChatAdapter, from its system message alone."""
    found = _OUTPUTS.search(system)
    listed = found[1] if found else ""
    fields = list(_FIELD.finditer(listed))
    parts = []
    for at, field in enumerate(fields):
        end = fields[at + 1].start() if at + 1 < len(fields) else len(listed)
        value = _value(field[1], field[2], listed[field.end() : end], route)
        parts.append(f"[[ ## {field[1]} ## ]]\n{value if isinstance(value, str) else json.dumps(value)}")
    return "\n\n".join([*parts, "[[ ## completed ## ]]"])


def _value(name: str, kind: str, described: str, route: str) -> Any:
    if kind == "NoulEvidence":
        return {"noul": NO if name in DENIED else YES}
    if kind == "ChoiceEvidence":
        labels = _LABEL.findall(described)
        shares = {label: YES if label == route else (1 - YES) / (len(labels) - 1) for label in labels}
        return {"probabilities": shares, "confidence": YES}
    return TEXTS[name]


class Shelf:
    """A source that holds the same passages for every query."""

    name = "shelf"

    def __init__(self) -> None:
        self.pool = [
            Passage(f"shelf/a.md#{n}", "shelf", f"Jar {n}", f"Jar {n} holds {n + 2} litres.", scores=_scores(n))
            for n in range(5)
        ]

    def describe(self) -> SourceCard:
        return SourceCard("shelf", "documents", "jars and what they hold")

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return self.pool[:depth]

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return self.candidates(query, k, filters)

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return self.candidates(query, k, filters)


def _scores(n: int) -> dict[str, float]:
    return {"dense": 0.9 - n / 10, "keyword": 3.0 - n / 2}


class Instant:
    """An engine that replies at once."""

    def complete(self, request: Request) -> Response:
        system = request.system if isinstance(request.system, str) else request.system[0].text
        message = Message.assistant([TextPart(reply_to(system, "simple"))])
        usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
        return Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)

    def stream(self, request: Request) -> Any:
        return response_to_events(self.complete(request))


class Ready:
    """A predictor that returns what the real one replied once."""

    lm = None

    def __init__(self, predictor: dspy.Predict, **inputs: Any) -> None:
        self.signature, self.fields = predictor.signature, predictor.fields
        self._reply = predictor(lm=dspy.LM(MODEL, engine=Instant(), cache=False), **to_prompt_inputs(inputs))

    def __call__(self, **inputs: Any) -> Any:
        return self._reply


def without_prompts(rag: AgenticRAG) -> AgenticRAG:
    """The same program with its three predictors replaced by ready replies."""
    made = program()
    passages = Shelf().candidates("", 5)
    made.classifier.route = Ready(rag.classifier.route, question="q", glimpse=[])
    made.judge.sufficiency = Ready(rag.judge.sufficiency, question="q", passages=passages)
    written = {"question": "q", "sub_queries": (), "passages": passages, "sentences": 1, "strict": False}
    made.generator.answer = Ready(rag.generator.answer, **written)
    return made


def program() -> AgenticRAG:
    """ragc's strategy router over the shelf."""
    shelf = Shelf()
    lm = dspy.LM(MODEL, engine=Instant(), cache=False)
    names = ModelSettings(decide=MODEL, write=MODEL)
    library = Library([], None, None, [shelf])  # type: ignore[arg-type]  # nothing is embedded
    models = Models(lm, lm, None, names)  # type: ignore[arg-type]
    made = AgenticRAG([shelf.describe()], Runtime(library, models, Budget()))
    made.policy.turn(**PRESETS["strategy-router"], glimpse=0)
    return made


class State(TypedDict):
    question: str
    strategy: str
    tried: Annotated[list[str], operator.add]
    passages: list[Any]
    score: float
    answer: str
    path: Annotated[list[str], operator.add]


def graph(rag: AgenticRAG) -> Ask:
    """The same router as a graph: one node a step, conditional edges, the path as the trace."""
    from langgraph.graph import END, START, StateGraph

    lm, library, tuning = rag.runtime.models.write, rag.runtime.library, rag.tuning()

    def ask(predictor: dspy.Predict, **inputs: Any) -> Any:
        return predictor(lm=lm, **to_prompt_inputs(inputs))

    def classify(state: State) -> dict[str, Any]:
        plan = rag.classifier.plan(ask(rag.classifier.route, question=state["question"], glimpse=[]))
        strategy = "direct" if plan.route == "direct" else "vector"
        return {"strategy": strategy, "tried": [strategy], "path": [f"classify->{strategy}"]}

    def retrieve(state: State) -> dict[str, Any]:
        pool = library.candidates(state["question"], rag.sources)
        return {"passages": rank_pool(pool, tuning), "path": [f"search {state['strategy']}"]}

    def evaluate(state: State) -> dict[str, Any]:
        found = ask(rag.judge.sufficiency, question=state["question"], passages=state["passages"])
        score = float(found["sufficient"].probability)
        return {"score": score, "path": [f"judge {score:.2f}"]}

    def reroute(state: State) -> dict[str, Any]:
        return {"strategy": "web", "tried": ["web"], "path": ["switch->web"]}

    def generate(state: State) -> dict[str, Any]:
        written = ask(
            rag.generator.answer,
            question=state["question"],
            sub_queries=(),
            passages=state["passages"],
            sentences=tuning.sentences,
            strict=False,
        )
        return {"answer": written["answer"], "path": ["generate"]}

    def routed(state: State) -> str:
        return "generate" if state["strategy"] == "direct" else "retrieve"

    def judged(state: State) -> str:
        return "generate" if state["score"] >= ENOUGH or len(state["tried"]) >= 2 else "reroute"

    made = StateGraph(State)
    for node in (classify, retrieve, evaluate, reroute, generate):
        made.add_node(node.__name__, node)
    made.add_edge(START, "classify")
    made.add_conditional_edges("classify", routed, ["retrieve", "generate"])
    made.add_edge("retrieve", "evaluate")
    made.add_conditional_edges("evaluate", judged, ["generate", "reroute"])
    made.add_edge("reroute", "retrieve")
    made.add_edge("generate", END)
    compiled = made.compile()
    empty = {"strategy": "", "tried": [], "passages": [], "score": 0.0, "answer": "", "path": []}
    return lambda question: str(compiled.invoke({"question": question, **empty})["answer"])


def alternating(sides: Sequence[Ask], questions: int) -> list[list[float]]:
    """Milliseconds a question for each side; who begins changes from question to question."""
    times: list[list[float]] = [[] for _ in sides]
    for n in range(WARM + questions):
        for turn in range(len(sides)):
            at = (n + turn) % len(sides)
            began = time.perf_counter()
            sides[at](f"How much does jar {n} hold?")
            if n >= WARM:
                times[at].append(1000 * (time.perf_counter() - began))
    return times


def compared(title: str, rag: AgenticRAG, questions: int) -> list[Figure]:
    """Both sides' median, and the median of their ratio question by question."""
    theirs = graph(rag)
    said = rag("How much does jar 1 hold?")
    assert said.usage.searches == 1 and said.text.startswith("The first") and theirs("x").startswith("The first")
    times = alternating([lambda question: str(rag(question).text), theirs], questions)
    ours, other = np.array(times[0]), np.array(times[1])
    name = f"LangGraph {version('langgraph')}"
    return [
        figure(f"{title}: ragc, ms a question", float(np.median(ours)), "reported", questions),
        figure(f"{title}: {name}, ms a question", float(np.median(other)), "reported", questions),
        figure(f"{title}: ragc over {name}", float(np.median(ours / other)), "<= 1.0", questions),
    ]


def measure(quick: bool) -> Iterator[Figure]:
    questions = QUICK if quick else QUESTIONS
    whole = program()
    yield from compared("prompts and all", whole, questions)
    yield from compared("the loop alone", without_prompts(whole), questions)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
