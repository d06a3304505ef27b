"""What the loop knows so far about one question, and the answer it makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from program.answer import Answer, Outcome, Round, StoppedBy
from program.loop.claims import cited
from program.loop.consistency import Conflict
from program.loop.decide import Progress, Verdict
from program.loop.evidence import interleave
from program.loop.freshness import Need
from program.loop.knobs import Tuning
from program.loop.modules import Classifier, LookUp, Plan
from program.loop.requests import Find
from program.loop.strategy import ALL, Strategy, ordered
from program.models.language.fence import find_addresses, remove_links
from program.passage import Passage

UNJUDGED = Verdict(True, 1.0, 0)
DIRECT = "direct"
FOUND_NOTHING = "I could not find this in the knowledge I have"

Key = tuple[str, str]
"""A search that was made: the strategy's name and the query."""


class Program(Protocol):
    """What the loop reads of a program."""

    classifier: Classifier
    sources: tuple[str, ...]
    strategies: tuple[Strategy, ...]
    links: tuple[str, ...]
    vouches: bool
    """A draft whose claims are not checked may be put to the question: that costs no call."""

    def tuning(self) -> Tuning: ...

    def threshold(self, predictor: str, field: str) -> float: ...


@dataclass(slots=True)
class State:
    """One question on its way.

    `pool` is what the question's own first look found, `pools` what each later search found; `new` holds the
    searches that no judge has seen yet, `followed` the queries that were written from what others found; `missing` is
    what a judge last said is. `foresees` is true when the driver can have several things answered at once.
    """

    question: str
    program: Program
    tuning: Tuning
    max_rounds: int
    tripped: Callable[[], StoppedBy | None]
    path: list[str]
    need: Need
    plan: Plan
    strategy: Strategy
    order: tuple[Strategy, ...] = ()
    pool: Sequence[Passage] | None = None
    pools: dict[Find, Sequence[Passage]] = field(default_factory=dict)
    look_ups: list[LookUp] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    followed: set[str] = field(default_factory=set)
    ranked: dict[Key, list[Passage]] = field(default_factory=dict)
    new: list[Key] = field(default_factory=list)
    relevant: dict[str, float] = field(default_factory=dict)
    kept: list[Passage] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    verdict: Verdict = UNJUDGED
    missing: str = ""
    rounds: list[Round] = field(default_factory=list)
    searched: int = 0
    previous: float | None = None
    settled: bool = False
    foresees: bool = False

    @classmethod
    def of(
        cls,
        question: str,
        program: Program,
        need: Need,
        max_rounds: int,
        tripped: Callable[[], StoppedBy | None],
        path: list[str],
    ) -> State:
        """A question about which nothing is known yet."""
        everywhere = Plan("simple", program.sources, ())
        strategy = Strategy(ALL, program.sources)
        return cls(question, program, program.tuning(), max_rounds, tripped, path, need, everywhere, strategy)

    @property
    def found(self) -> list[Passage]:
        """Everything that was found, the best of each search first."""
        return interleave(self.ranked.values())

    @property
    def scope(self) -> tuple[str, ...]:
        """The sources to search: the strategy's, and of them the chosen ones unless in doubt which."""
        sources = self.strategy.sources
        likeliest = max((chance for _, chance in self.plan.likely), default=1.0)
        if not (self.tuning.only_chosen_bases and self.tuning.route) or likeliest < self.tuning.cross_below:
            return sources
        return tuple(name for name in sources if name in self.plan.bases) or sources

    @property
    def chosen(self) -> str:
        """The strategy that the plan puts first: `direct` where nothing need be looked up, empty without a plan."""
        if self.plan.route == DIRECT:
            return DIRECT
        return self.promising[0].name if self.plan.likely else ""

    @property
    def promising(self) -> tuple[Strategy, ...]:
        """The program's strategies, the most promising first: where one is searched at a time, newer sources gain."""
        lift = self.tuning.recency if self.tuning.one_strategy and self.need.timely else 0.0
        return ordered(self.program.strategies, dict(self.plan.likely), self.need.timely, lift)

    @property
    def progress(self) -> Progress:
        """Where the loop stands, as `decide` reads it."""
        tried = {name for name, _ in self.ranked}
        untried = tuple(strategy.name for strategy in self.order if strategy.name not in tried)
        return Progress(
            self.searched,
            frozenset(self.ranked),
            self.previous,
            self.strategy.name,
            untried,
            vagueness=self.plan.vagueness,
            settled=self.settled,
        )

    def answer(
        self,
        text: str,
        outcome: Outcome,
        confidence: float,
        passages: Sequence[Passage] = (),
        stopped_by: StoppedBy = StoppedBy.DONE,
        supported: float = 1.0,
    ) -> Answer:
        """The answer; the marks of its text point into `passages`.

        Whoever wrote it, here it loses the links, images and tags that a passage may have planted.
        """
        known = known_addresses(passages, self.program.links)
        text, citations = cited(remove_links(text, known), passages)
        citations = tuple(replace(citation, title=remove_links(citation.title, known)) for citation in citations)
        return Answer(
            text=text,
            outcome=outcome,
            citations=citations,
            confidence=min(1.0, max(0.0, confidence)),
            stopped_by=stopped_by,
            route=self.plan.route,
            sources=self.plan.bases,
            strategy=self.chosen,
            retrieved=ids(self.kept),
            found=ids(self.found),
            supported=supported,
            rounds=tuple(self.rounds),
        )

    def abstention(self, missing: str, confidence: float, stopped_by: StoppedBy = StoppedBy.DONE) -> Answer:
        """The answer that says what is missing, and names the nearest passage that was found."""
        self.path.append("abstain")
        nearest = (self.kept or self.found)[:1]
        missing = missing.strip(" .?")
        text = f"{FOUND_NOTHING}: {missing}." if missing else f"{FOUND_NOTHING}."
        if nearest:
            text += f" The nearest that I found is “{nearest[0].title}”. [1]"
        return self.answer(text, Outcome.ABSTAIN, confidence, nearest, stopped_by)


def known_addresses(passages: Iterable[Passage], hosts: Sequence[str]) -> set[str]:
    """The web addresses that an answer may repeat: stated by a passage, of a host that the project names."""
    return find_addresses((passage.text for passage in passages), hosts) if hosts else set()


def ids(passages: Iterable[Passage]) -> tuple[str, ...]:
    return tuple(passage.id for passage in passages)


def share(value: float) -> str:
    """A share as a path shows it: `.41`, or `1.00`."""
    return f"{value:.2f}".removeprefix("0")
