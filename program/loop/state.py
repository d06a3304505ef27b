"""What is known of one question on its way: plan, evidence, verdict; and what the loop asks a driver for."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from program.answer import Answer, Round, StoppedBy
from program.knowledge.library import Library
from program.loop.decide import LoopProgress, Verdict
from program.loop.policy import Strategy, Tuning
from program.models.catalog import Models
from program.models.language.layout import PromptLayout
from program.passage import NO_FILTERS, Filters, Passage
from program.signatures import BASE_PREFIX, Detail

DEPTH = 30
DRAFT = "generator.answer"  # the predictor that writes the answer
STATES = "generator.states"  # the predictor that says which pieces of a passage the embedded writer quotes
MOST_LOOK_UPS = 4
MEND = "Ask again, or look at what ragc doctor PROJECT finds amiss."
ALL = "all"
_NO_TAGS = str.maketrans("<>", "()")
_YEAR = re.compile(r"(?a)\b((?:19|20)\d\d)\b")
UNJUDGED = Verdict(True, 1.0, 0)


@dataclass(frozen=True, slots=True)
class Find:
    """A search for candidates, `depth` of each source; `sql` is the SELECT written for a source of tables."""

    query: str
    sources: tuple[str, ...]
    depth: int = DEPTH
    sql: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A predictor to call, by its name in the program, with its inputs; passages are given as `Passage`."""

    predictor: str
    inputs: Mapping[str, Any]


Request = Find | Ask
Reply = Any
Result = TypeVar("Result")
Flow = Generator[list[Request], list[Reply], Result]
"""A part of the loop: yields requests, receives their replies, returns a result."""


class StepFailed(Exception):
    """Thrown into the loop by a driver when a request, a predictor's or a search, could not be performed."""

    def __init__(self, name: str, why: str, mend: str = "") -> None:
        super().__init__(f"{name}: {why}")
        what = "The search failed" if name == "search" else "I could not answer this"
        plain = " ".join(why.split()).rstrip(".").replace("](", "] (").translate(_NO_TAGS)  # a server may have a say
        self.text = f"{what}: {plain}. {mend or MEND}"
        """The failure as the answer says it."""


def search_arguments(find: Find) -> tuple[str, tuple[str, ...], int, Filters]:
    """Return the arguments of the library's search."""
    return find.query, find.sources, find.depth, Filters(sql=find.sql) if find.sql else NO_FILTERS


@dataclass(frozen=True, slots=True)
class Plan:
    """How a question will be looked up: its route, the bases wanted, and how likely each base is."""

    route: str
    bases: tuple[str, ...]
    likely: tuple[tuple[str, float], ...]
    vague: bool = False
    vagueness: float = 0.0
    confidence: float = 1.0  # the probability of the route


def read_plan(reply: Mapping[str, Any], sources: Sequence[str]) -> Plan:
    """Return the plan in a reply of `classifier.route`: the likeliest base at least."""
    likely = tuple((name, float(reply[BASE_PREFIX + name].probability)) for name in sources)
    bases = tuple(name for name in sources if reply[BASE_PREFIX + name].value)
    bases = bases or (max(likely, key=lambda pair: pair[1])[0],)
    route, vague = str(reply["route"].value), reply["vague"]
    sure = float(reply["route"].probabilities[route])
    return Plan(route, bases, likely, bool(vague.value), float(vague.probability), sure)


@dataclass(frozen=True, slots=True)
class LookUp:
    """One query of a plan, the base it belongs to (or empty), and the positions of the look-ups it waits for."""

    query: str
    base: str = ""
    after: tuple[int, ...] = ()


def read_look_ups(reply: Mapping[str, Any]) -> list[LookUp]:
    """Return the look-ups in a reply of `decomposer.split`, most urgent first.

    A detail of no look-up is ignored, and so is a dependency on a later or unknown one: nothing goes in circles.
    """
    texts = [(n, text) for n, text in enumerate(reply["sub_queries"], 1) if text.strip()][:MOST_LOOK_UPS]
    read = [Detail.model_validate(detail) for detail in reply.get("details") or ()]  # a record has them in JSON values
    details = {n: Detail(n=n) for n, _ in texts} | {detail.n: detail for detail in read}
    texts.sort(key=lambda pair: (details[pair[0]].priority, pair[0]))
    place = {n: at for at, (n, _) in enumerate(texts)}
    after = {n: {place[other] for other in details[n].after if other < n and other in place} for n in place}
    return [LookUp(text, details[n].base, tuple(sorted(after[n]))) for n, text in texts]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two passages that may disagree: the one to follow, and the one that gives way."""

    followed: Passage
    overruled: Passage

    @property
    def between(self) -> str:
        """The ids of the two passages."""
        return f"{self.followed.id} and {self.overruled.id}"


@dataclass(frozen=True, slots=True)
class Budget:
    """The caps of one question. Rounds are capped by the policy and by this, whichever is lower."""

    max_rounds: int = 3
    max_seconds: float = 15.0
    """The deadline of the answer; searching and judging end before it, so that there is time to write."""
    max_tokens: int = 50_000
    max_usd: float = 0.20


class Observer(Protocol):
    """Whoever is told of each finished answer."""

    def __call__(self, answer: Answer, question: str, preset: str, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a program runs on; shared by its copies, never saved with it."""

    library: Library
    models: Models
    budget: Budget = field(default_factory=Budget)
    observers: tuple[Observer, ...] = ()
    version: str = ""
    preset: str = ""
    links: tuple[str, ...] = ()
    """The hosts that answers may link to."""
    configured: str = ""
    """The writer that DSPy is configured with, where the project names none."""
    reopen: Callable[[], Any] | None = None
    """What opens such a program anew, in another process too; None where nothing can."""
    withholds: bool = True
    """Whether a text that no passage states is withheld; the control arm says whatever was written."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Runtime:
        return self


class Program(Protocol):
    """What the loop reads of a program; `tables` has the schemas for which a language model can write SQL."""

    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def strategies(self) -> tuple[Strategy, ...]: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def vouches(self) -> bool: ...
    @property
    def judges_at_once(self) -> bool: ...
    @property
    def tables(self) -> Mapping[str, str]: ...
    def quotes(self, strict: bool) -> bool: ...
    def prompt_of(self, predictor: str) -> str: ...
    def layout_of(self, predictor: str) -> PromptLayout: ...
    def tuning(self) -> Tuning: ...
    def threshold(self, predictor: str, field: str) -> float: ...
    def find_unread_language(self, question: str) -> str: ...
    def is_greeting(self, message: str) -> bool: ...


Key = tuple[str, str]  # A search that was made: the strategy's name and the query


@dataclass(slots=True)
class State:
    """One question on its way."""

    question: str
    program: Program
    max_rounds: int
    tripped: Callable[[], StoppedBy | None]
    path: list[str]
    years: tuple[int, ...] = field(init=False)
    """The years that the question names: what was superseded counts where it was in force in one of them."""
    tuning: Tuning = field(init=False)
    plan: Plan = field(init=False)
    strategy: Strategy = field(init=False)
    at_once: bool = field(init=False)
    """Whether a chat model judges and can be reached: all decisions about some evidence are then asked in one call."""
    order: tuple[Strategy, ...] = ()
    """The strategies to try one after another, where one is searched at a time."""
    pool: Sequence[Passage] | None = None
    """What the question's own first look found."""
    pools: dict[Find, Sequence[Passage]] = field(default_factory=dict)
    queried: set[tuple[Find, str]] = field(default_factory=set)
    """The searches, with a source of tables, for which a SELECT was asked for."""
    look_ups: list[LookUp] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    followed: set[str] = field(default_factory=set)
    """The queries that were written from what others found."""
    ranked: dict[Key, list[Passage]] = field(default_factory=dict)
    found: list[Passage] = field(default_factory=list)
    """The passages of all searches, the best of each first."""
    new: list[Key] = field(default_factory=list)
    """The searches that no judge has seen yet."""
    relevant: dict[str, float] = field(default_factory=dict)
    kept: list[Passage] = field(default_factory=list)
    """The passages a writer is given."""
    conflicts: list[Conflict] = field(default_factory=list)
    verdict: Verdict = UNJUDGED
    missing: str = ""
    rounds: list[Round] = field(default_factory=list)
    searched: int = 0
    previous: float | None = None

    def __post_init__(self) -> None:
        self.years = tuple(map(int, _YEAR.findall(self.question)))
        self.tuning = self.program.tuning()
        self.plan = Plan("simple", self.program.sources, ())
        self.strategy = Strategy(ALL, self.program.sources)
        self.at_once = self.program.judges_at_once

    @property
    def filters(self) -> bool:
        """Whether passages are judged one by one; a writer that quotes weighs each of their pieces instead."""
        return bool(self.tuning.filter) and not self.program.quotes(strict=False)

    @property
    def scope(self) -> tuple[str, ...]:
        """The sources to search: the strategy's chosen ones, or all in doubt."""
        sources = self.strategy.sources
        likeliest = max((chance for _, chance in self.plan.likely), default=1.0)
        if not (self.tuning.only_chosen_bases and self.tuning.route) or likeliest < self.tuning.cross_below:
            return sources
        return tuple(name for name in sources if name in self.plan.bases) or sources

    def split_by_look_up(self, passages: Sequence[Passage]) -> list[tuple[str, list[Passage]]]:
        """Return each look-up of the plan with those of the passages that it found."""
        found = {q: {p.id for (_, query), ps in self.ranked.items() if query == q for p in ps} for q in self.queries}
        return [(query, [p for p in passages if p.id in found[query]]) for query in self.queries]

    @property
    def chosen(self) -> str:
        """The strategy put first: `direct` without a look-up, empty without a plan."""
        if self.plan.route == "direct":
            return "direct"
        return self.promising[0].name if self.plan.likely else ""

    @property
    def promising(self) -> tuple[Strategy, ...]:
        """The program's strategies, those of the likeliest sources first."""
        likely = dict(self.plan.likely)
        return tuple(sorted(self.program.strategies, key=lambda one: -max(likely.get(s, 0.0) for s in one.sources)))

    @property
    def progress(self) -> LoopProgress:
        """Where the loop stands, as `decide` reads it."""
        tried = {name for name, _ in self.ranked}
        untried = tuple(strategy.name for strategy in self.order if strategy.name not in tried)
        done = self.searched, frozenset(self.ranked), self.previous
        return LoopProgress(*done, self.strategy.name, untried, self.plan.vagueness)


def list_ids(passages: Iterable[Passage]) -> tuple[str, ...]:
    """Return the passages' ids."""
    return tuple(passage.id for passage in passages)


def format_share(value: float) -> str:
    """Return a share as a path shows it: `.41`, or `1.00`."""
    return f"{value:.2f}".removeprefix("0")
