"""What is known of one question on its way: plan, evidence, verdict; and what the loop asks a driver for."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any, TypeVar

import dspy
from pydantic import BaseModel

from ragc.answer import Answer, Round, StoppedBy
from ragc.knowledge.library import Library
from ragc.loop.decide import LoopProgress, Verdict
from ragc.loop.policy import Strategy, Tuning
from ragc.loop.reply import TypedReply
from ragc.loop.reviewed import ReviewedAnswers
from ragc.models.catalog import Models, is_local
from ragc.models.language.adapter import FencedAdapter
from ragc.models.language.layout import PromptLayout
from ragc.models.requests import RequestCache
from ragc.notes import Note
from ragc.passage import NO_FILTERS, Filters, Passage
from ragc.settings import BudgetSettings
from ragc.signatures import BASE_PREFIX, Detail
from ragc.text.days import date_question
from ragc.text.history import Asked, Turns, answers_back, is_answer
from ragc.text.pieces import Claim

DEPTH = 30
DRAFT = "generator.answer"  # the predictor that writes the answer
SQL = "sql"  # how a passage was found whose SELECT a language model wrote
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


@dataclass(frozen=True)
class Ask:
    """A predictor to call, by its name in the program, with its inputs; passages are given as `Passage`."""

    predictor: str
    inputs: Mapping[str, Any]

    @cached_property
    def content(self) -> Hashable:
        """The inputs as a key: of a passage its id and text."""
        return tuple(map(_hashable_input, self.inputs.values()))


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


def _hashable_input(value: Any) -> Hashable:
    if isinstance(value, Passage):
        return (value.id, value.text)
    if isinstance(value, list | tuple):
        return tuple(map(_hashable_input, value))
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return value  # type: ignore[no-any-return]


def search_arguments(find: Find) -> tuple[str, tuple[str, ...], int, Filters]:
    """Return the arguments of the library's search."""
    return find.query, find.sources, find.depth, Filters(sql=find.sql) if find.sql else NO_FILTERS


@dataclass(frozen=True, slots=True)
class Plan:
    """How a question will be looked up: its route, the bases wanted, and how likely each base is."""

    route: str
    bases: tuple[str, ...]
    likely: tuple[tuple[str, float], ...]
    confidence: float = 1.0  # the probability of the route


def read_plan(reply: Mapping[str, Any], sources: Sequence[str]) -> Plan:
    """Return the plan in a reply of `classifier.route`: the likeliest base at least."""
    likely = tuple((name, float(reply[BASE_PREFIX + name].probability)) for name in sources)
    bases = tuple(name for name in sources if reply[BASE_PREFIX + name].value)
    bases = bases or (max(likely, key=lambda pair: pair[1])[0],)
    route = str(reply["route"].value)
    return Plan(route, bases, likely, float(reply["route"].probabilities[route]))


@dataclass(frozen=True, slots=True)
class LookUp:
    """One query of a plan, and the positions of the look-ups it waits for."""

    query: str
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
    return [LookUp(text, tuple(sorted(after[n]))) for n, text in texts]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two passages that may disagree: the one to follow, and the one that gives way."""

    followed: Passage
    overruled: Passage


@dataclass(frozen=True, slots=True)
class Draft:
    """Quotations that may be said, whether any states what is asked, and how probably they do."""

    claims: tuple[Claim, ...]
    stated: bool
    probability: float
    options: tuple[str, ...] = ()
    """The names of the choices that the question leaves open, of which the claims tell what is said of each."""


Observer = Callable[[Answer, Asked, str], None]
"""Called with each finished answer, what was asked and the program's preset."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a program runs on; shared by its copies, never saved with it."""

    library: Library
    models: Models
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    observers: tuple[Observer, ...] = ()
    version: str = ""
    preset: str = ""
    links: tuple[str, ...] = ()  # the hosts that answers may link to
    configured: str = ""  # the writer that DSPy is configured with, where the project names none
    reopen: Callable[[], Any] | None = None
    """What opens such a program anew, in another process too; None where nothing can."""
    withholds: bool = True
    """Whether a text that no passage states is withheld; the control arm says whatever was written."""
    reviewed: ReviewedAnswers | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Runtime:
        return self


@dataclass(frozen=True)
class View:
    """What the loop and its drivers read of a program as it is now.

    Made anew for each question, or for a batch of them that is answered from a record.
    """

    runtime: Runtime
    requests: RequestCache
    predictors: Mapping[str, dspy.Predict]
    sources: tuple[str, ...]
    strategies: tuple[Strategy, ...]
    tuning: Tuning
    layout: PromptLayout  # of the answer's prompt
    vouches: bool  # whether an embedded decider says if a draft answers, which costs no call
    known: Answer | None = None  # the reviewed answer to the question, which then asks for nothing

    def threshold(self, predictor: str, field: str) -> float:
        """Return the probability from which a Noul output counts as true."""
        return float(self.predictors[predictor].fields.get(field, {}).get("threshold", 0.5))

    def layout_of(self, predictor: str) -> PromptLayout:
        """Return how the prompt of a predictor is laid out."""
        return self.layout if predictor == DRAFT else PromptLayout.FULL

    def prompt_of(self, predictor: str) -> str:
        """Return what a language model is told for a predictor beside its inputs."""
        adapter = FencedAdapter().lay_out(self.layout_of(predictor))
        return adapter.format_system_message(self.predictors[predictor].signature)

    @property
    def quotes(self) -> bool:
        """Whether the embedded reader answers, which quotes: where no other model writes, or none is to be asked."""
        return is_local(self.runtime.models.write) or self.tuning.quote_above <= 0

    @cached_property
    def tables(self) -> dict[str, str]:
        """The schemas that a language model is shown to write SQL for, by source."""
        if self.quotes:
            return {}
        library = self.runtime.library
        names = [card.name for card in library.describe() if card.kind == "tables"]
        return {name: tables for name in names if (tables := library.describe_tables(name))}


Key = tuple[str, str]  # A search that was made: the strategy's name and the query


@dataclass(slots=True)
class State:
    """One question on its way."""

    question: str  # as it stands by itself
    program: View
    max_rounds: int
    tripped: Callable[[], StoppedBy | None]
    path: list[Note]
    history: Turns = ()
    today: date = date.max
    own_words: str = field(init=False)  # the question as it was asked
    follows: bool = False  # whether it follows on from the conversation
    chose: bool = False  # whether it chooses an option that was asked back about
    last_answer: str = ""  # what the question follows on from, as it was shown
    undated: str = field(init=False)
    """The question without the words that name a day by that of asking."""
    dates: str = field(init=False)
    """The days that the question names by that of asking: `30 November`."""
    years: tuple[int, ...] = field(init=False)
    """The years that the question names: what was superseded counts where it was in force in one of them."""
    tuning: Tuning = field(init=False)
    plan: Plan = field(init=False)
    strategy: Strategy = field(init=False)
    order: tuple[Strategy, ...] = ()  # the strategies to try one after another, where one is searched at a time
    pool: Sequence[Passage] | None = None  # what the question's own first look found
    pools: dict[Find, Sequence[Passage]] = field(default_factory=dict)
    queried: set[tuple[Find, str]] = field(default_factory=set)
    """The searches, with a source of tables, for which a SELECT was asked for."""
    look_ups: list[LookUp] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    followed: set[str] = field(default_factory=set)  # the queries that were written from what others found
    ranked: dict[Key, list[Passage]] = field(default_factory=dict)
    found: list[Passage] = field(default_factory=list)  # the passages of all searches, the best of each first
    kept: list[Passage] = field(default_factory=list)  # the passages a writer is given
    conflicts: list[Conflict] = field(default_factory=list)
    verdict: Verdict = UNJUDGED
    draft: Draft | None = None  # quotations that were chosen before the answer is written
    weighed: dict[Hashable, tuple[list[Any], str]] = field(default_factory=dict)
    """By passages and queries: their weighed pieces, and the code of the question that none of them holds."""
    reply: TypedReply | None = None  # what the model that writes replied last
    missing: str = ""
    rounds: list[Round] = field(default_factory=list)
    searched: int = 0
    previous: float | None = None

    def __post_init__(self) -> None:
        self.own_words = self._take(self.question)
        self.tuning = self.program.tuning
        self.plan = Plan("simple", self.program.sources, ())
        self.strategy = Strategy(ALL, self.program.sources)
        if not self.program.quotes:
            self.tuning = replace(self.tuning, k=self.tuning.shown)

    def follow_on(self, standalone: str) -> None:
        """Take the question as it stands by itself."""
        self.follows, self.chose = True, answers_back(self.history, self.question)
        if not self.chose and is_answer(self.history[-1]):
            self.last_answer = self.history[-1].content
        self._take(standalone)

    def _take(self, question: str) -> str:
        """Take a question, and return it with the days behind the words that name them."""
        dated = date_question(question, self.today)
        self.question, self.undated, self.dates = dated.text, dated.undated, dated.dates
        self.years = (*map(int, _YEAR.findall(question)), *dated.years)
        return dated.explained

    def date_query(self, query: str) -> str:
        """Return a query with the named days behind it, to compare rows with."""
        return f"{query}\n{self.dates}" if self.dates else query

    @property
    def asked(self) -> str:
        """The asker's own words where they are searched by too: where they follow on, and choose no option."""
        return self.own_words if self.follows and not self.chose else ""

    @property
    def day(self) -> date:
        """The day that the question is about: the last of the latest year that it names, else that of asking."""
        year = max(self.years, default=self.today.year)
        return self.today if year == self.today.year else date(year, 12, 31)

    @property
    def asking(self) -> dict[str, Any]:
        """What a model that writes is asked: the asker's own words, with the conversation that they follow on from."""
        return {"conversation": self.history if self.follows else (), "question": self.own_words}

    @property
    def scope(self) -> tuple[str, ...]:
        """The sources to search: all of the strategy's, or the chosen ones."""
        sources = self.strategy.sources
        if not (self.tuning.only_chosen_bases and self.tuning.route):
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
        return LoopProgress(*done, self.strategy.name, untried)


def list_ids(passages: Iterable[Passage]) -> tuple[str, ...]:
    """Return the passages' ids."""
    return tuple(passage.id for passage in passages)
