"""A program whose models answer from a table: what the tests of the loop and of the designs ask."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from program.answer import Answer
from program.loop.policy import Policy, offer_strategies
from program.loop.state import Ask, Find, StepFailed
from program.loop.steps import steps
from program.passage import Passage, SourceCard

CARDS = [SourceCard("product", "documents", "kettles"), SourceCard("billing", "documents", "refunds")]
POOL = [
    Passage(
        f"{base}/a.md#{n}",
        base,
        f"{base} {n}",
        f"text {n}",
        scores={"dense": 0.9 - n / 10, "keyword": 3.0 - n},
    )
    for base in ("product", "billing")
    for n in range(3)
]


def noul(probability: float) -> SimpleNamespace:
    return SimpleNamespace(value=probability >= 0.5, probability=probability)


def route(
    name: str = "simple", vague: float = 0.1, product: float = 0.9, billing: float = 0.1, sure: float = 0.8
) -> dict[str, Any]:
    return {
        "route": SimpleNamespace(value=name, probabilities={name: sure}),
        "vague": noul(vague),
        "base_product": noul(product),
        "base_billing": noul(billing),
    }


REPLIES: dict[str, Any] = {
    "classifier.route": route(),
    "decomposer.split": {"sub_queries": ["first part", "second part"]},
    "judge.relevance": {"relevant": noul(0.8)},
    "judge.sufficiency": {"sufficient": noul(0.9)},
    "judge.missing": {"missing": "the price", "next_query": "price of the kettle"},
    "generator.answer": {"answer": "Text 0. [1] Text 1. [2]"},
    "generator.direct": {"answer": "144."},
    "generator.clarify": {"clarifying_question": "Do you mean the Merle or the Wren?"},
    "grounder.support": {"supported": noul(0.9)},
    "grounder.responsive": {"responsive": noul(0.8)},
}


def passage(id: str, text: str = "text", dense: float = 0.8, **fields: Any) -> Passage:
    """A passage whose base is the beginning of its id."""
    return Passage(id, id.split("/", maxsplit=1)[0], id, text, scores={"dense": dense, "keyword": dense}, **fields)


def planned(name: str = "simple", vague: float = 0.1, sure: float = 0.8, **bases: float) -> dict[str, Any]:
    """A reply of the classifier: the route, how vague the question is, and each base's probability."""
    chosen = {"route": SimpleNamespace(value=name, probabilities={name: sure}), "vague": noul(vague)}
    return chosen | {f"base_{base}": noul(chance) for base, chance in bases.items()}


def scores(*numbers: float) -> Callable[[int], dict[str, Any]]:
    """The judge's sufficiency, call by call; the last number goes on."""
    return lambda n: {"sufficient": noul(numbers[min(n, len(numbers)) - 1])}


class Scripted:
    """A program whose predictors answer from a table; a callable entry is given the call's number.

    An entry that takes a request instead is made with `of_request`. `pool` is what any search finds, or a function
    of the search. `batches` are the requests as they were made, those of one step together.
    """

    def __init__(
        self,
        changed: dict[str, Any] | None = None,
        *,
        cards: Sequence[SourceCard] = CARDS,
        pool: Sequence[Passage] | Callable[[Find], Sequence[Passage]] = POOL,
        vouches: bool = False,
        **knobs: float,
    ) -> None:
        self.replies = {**REPLIES, **(changed or {})}
        self.judges_at_once = False
        self.sources = tuple(card.name for card in cards)
        self.strategies = offer_strategies(cards)
        self.links = ()
        self.vouches = vouches
        self.pool = pool
        self.policy = Policy()
        self.policy.turn(**knobs)
        self.asked: list[str] = []
        self.asks: list[Ask] = []
        self.found: list[Find] = []
        self.batches: list[list[Any]] = []
        self.path: list[str] = []

    def tuning(self):
        return self.policy.tuning()

    def threshold(self, predictor: str, field: str) -> float:
        return 0.5

    def __call__(self, question: str, fail: Callable[[Any], bool] = lambda request: False, **caps: Any) -> Answer:
        loop = steps(question, self, path=self.path, **caps)
        try:
            requests = next(loop)
            while True:
                self.batches.append(requests)
                if any(fail(request) for request in requests):
                    requests = loop.throw(StepFailed("scripted"))
                else:
                    requests = loop.send([self.reply(request) for request in requests])
        except StopIteration as stop:
            return stop.value

    def inputs(self, predictor: str) -> list[Any]:
        """The inputs of each request to that predictor."""
        return [ask.inputs for ask in self.asks if ask.predictor == predictor]

    def reply(self, request: Any) -> Any:
        if isinstance(request, Find):
            self.found.append(request)
            pool = self.pool(request) if callable(self.pool) else self.pool
            fresh = [p for p in pool if not request.not_before or (p.as_of and p.as_of >= request.not_before)]
            return [p for p in fresh if p.source in request.sources]
        assert isinstance(request, Ask)
        self.asked.append(request.predictor)
        self.asks.append(request)
        reply = self.replies[request.predictor]
        if isinstance(reply, of_request):
            return reply.make(request)
        return reply(self.asked.count(request.predictor)) if callable(reply) else reply


@dataclass(frozen=True)
class of_request:
    """An entry of the table made from the request itself."""

    make: Callable[[Ask], Any]
