"""What to do next, as a pure function of the evidence's verdict, the state, the knobs and the budget."""

from __future__ import annotations

from dataclasses import dataclass

from program.answer import StoppedBy
from program.loop.policy import Tuning


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge made of the evidence.

    `sufficiency` is a probability, `sufficient` is it past its threshold. `relevance` (share of what was found
    that helps), `completeness` (share of the look-ups with evidence enough) and `freshness` (share of the evidence
    that is current) are in [0, 1]; `contradiction` names the passages that disagree, or is empty. `next_queries`
    would find what is `missing`.
    """

    sufficient: bool
    sufficiency: float
    kept: int
    missing: str = ""
    next_queries: tuple[str, ...] = ()
    relevance: float = 1.0
    completeness: float = 1.0
    freshness: float = 1.0
    contradiction: str = ""


@dataclass(frozen=True, slots=True)
class LoopProgress:
    """Where the loop stands.

    Rounds of searching done, the (strategy, query) pairs tried, the last round's sufficiency, the strategy in use
    and those not tried yet, and how probably the question is vague. `settled` is true once newer or more official
    evidence was searched for.
    """

    rounds: int
    tried: frozenset[tuple[str, str]]
    previous: float | None = None
    strategy: str = ""
    untried: tuple[str, ...] = ()
    vagueness: float = 0.0
    settled: bool = False


@dataclass(frozen=True, slots=True)
class SearchAgain:
    """Search again with these queries."""

    queries: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SearchNewer:
    """Search for newer or more official evidence than there is."""

    reason: str


@dataclass(frozen=True, slots=True)
class SwitchStrategy:
    """Search by another strategy."""

    strategy: str
    reason: str


@dataclass(frozen=True, slots=True)
class AskBack:
    """Ask the user which is meant."""

    reason: str
    stopped_by: StoppedBy


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Say what is missing."""

    reason: str
    stopped_by: StoppedBy


@dataclass(frozen=True, slots=True)
class WriteUp:
    """Write the answer from what there is."""

    stopped_by: StoppedBy
    reason: str


Action = SearchAgain | SearchNewer | SwitchStrategy | AskBack | GiveUp | WriteUp


def rounds_left(progress: LoopProgress, tuning: Tuning, max_rounds: int, tripped: StoppedBy | None) -> bool:
    """Tell whether one more search is allowed."""
    return tripped is None and progress.rounds < min(tuning.max_rounds, max_rounds)


def gained_enough(verdict: Verdict, progress: LoopProgress, tuning: Tuning) -> bool:
    """Tell whether the last round was worth its price, or was the first."""
    return progress.previous is None or verdict.sufficiency - progress.previous >= tuning.min_gain


def find_doubt(verdict: Verdict, tuning: Tuning) -> str:
    """Return why evidence is not yet to be trusted, or ""."""
    if verdict.contradiction:
        return f"{verdict.contradiction} disagree"
    if verdict.freshness < tuning.fresh_above:
        return "the evidence is not current"
    if tuning.each_part and verdict.completeness < 1.0:
        return "a part of the question is open"
    return ""


def settles_next(verdict: Verdict, progress: LoopProgress, tuning: Tuning) -> bool:
    """Tell whether newer or more official evidence must be searched for first."""
    return not progress.settled and (bool(verdict.contradiction) or verdict.freshness < tuning.fresh_above)


def wants_query(
    verdict: Verdict, progress: LoopProgress, tuning: Tuning, max_rounds: int, tripped: StoppedBy | None
) -> bool:
    """Tell whether a new query would be used: what is missing is worth asking."""
    if not rounds_left(progress, tuning, max_rounds, tripped) or settles_next(verdict, progress, tuning):
        return False
    return bool(find_doubt(verdict, tuning)) if verdict.sufficient else not progress.untried


def decide(
    verdict: Verdict, progress: LoopProgress, tuning: Tuning, max_rounds: int, tripped: StoppedBy | None = None
) -> Action:
    """Return the next action.

    Ends within `max_rounds` searches and never repeats a tried query of the same strategy.
    `tripped` is the budget's cap that was reached, if any: the best evidence so far is then written up, poor or not.
    Else the order is the order of certainty: sound evidence is written up, a contradiction is settled, the next
    strategy or a promising query is tried, and only then the program asks back, gives up or makes do. Every end but
    the first says what stopped the search. A question taken for vague at first sight does not get this far.
    """
    doubt = find_doubt(verdict, tuning)
    if verdict.sufficient and not doubt:
        return WriteUp(StoppedBy.DONE, "the evidence suffices")
    more = rounds_left(progress, tuning, max_rounds, tripped)
    gaining = gained_enough(verdict, progress, tuning)
    if more and settles_next(verdict, progress, tuning):
        return SearchNewer(doubt)
    if more and gaining and not verdict.sufficient and progress.untried:
        return SwitchStrategy(progress.untried[0], "the evidence is poor")
    if more and gaining:
        new = dict.fromkeys(q for q in verdict.next_queries if q and (progress.strategy, q) not in progress.tried)
        if new:
            return SearchAgain(tuple(new), f"missing {verdict.missing!r}" if verdict.missing else "insufficient")
    stopped_by = tripped or (StoppedBy.ROUNDS if gaining else StoppedBy.GAIN)
    if tripped is not None and verdict.kept:
        return WriteUp(tripped, f"the budget for {tripped} is spent")
    if not verdict.sufficient and progress.vagueness > tuning.clarify_above:
        return AskBack("the evidence stays poor and the question may mean several things", stopped_by)
    if not verdict.kept or (not verdict.sufficient and verdict.sufficiency < tuning.generate_above):
        return GiveUp("the evidence does not hold the answer", stopped_by)
    if not gaining:
        return WriteUp(stopped_by, "the last round gained too little")
    return WriteUp(stopped_by, "no further round is allowed or promising")
