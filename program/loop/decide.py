"""What to do next, as a pure function of the evidence's verdict, the state, the knobs and the budget."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ragc.answer import StoppedBy
from ragc.loop.policy import Tuning

LEAST_DOUBT = 1e-6  # that a piece is right


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge made of the evidence."""

    sufficient: bool
    sufficiency: float
    kept: int
    missing: str = ""
    next_queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopProgress:
    """Where the loop stands."""

    rounds: int
    tried: frozenset[tuple[str, str]]  # the strategy and query of each search
    previous: float | None = None  # the last round's sufficiency
    strategy: str = ""
    untried: tuple[str, ...] = ()


class Move(StrEnum):
    """What the loop may do next."""

    SEARCH = "search"  # search again, with other queries
    SWITCH = "switch"  # search by another strategy
    GIVE_UP = "give up"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Action:
    """The next move, with the queries or the strategy of a search, and what stopped the search of an end."""

    move: Move
    queries: tuple[str, ...] = ()
    strategy: str = ""
    stopped_by: StoppedBy = StoppedBy.DONE


def rounds_left(progress: LoopProgress, tuning: Tuning, max_rounds: int, tripped: StoppedBy | None) -> bool:
    """Tell whether one more search is allowed."""
    return tripped is None and progress.rounds < min(tuning.max_rounds, max_rounds)


def wants_query(
    verdict: Verdict, progress: LoopProgress, tuning: Tuning, max_rounds: int, tripped: StoppedBy | None
) -> bool:
    """Tell whether a new query would be used: what is missing is worth asking."""
    return rounds_left(progress, tuning, max_rounds, tripped) and not (verdict.sufficient or progress.untried)


def decide(
    verdict: Verdict, progress: LoopProgress, tuning: Tuning, max_rounds: int, tripped: StoppedBy | None = None
) -> Action:
    """Return the next action.

    Ends within `max_rounds` searches and never repeats a tried query of the same strategy. Where `tripped`, a cap of
    the budget, is reached, the best evidence so far is written up, poor or not.
    """
    if verdict.sufficient:
        return Action(Move.WRITE)
    more = rounds_left(progress, tuning, max_rounds, tripped)
    gaining = progress.previous is None or verdict.sufficiency >= progress.previous
    if more and gaining and progress.untried:
        return Action(Move.SWITCH, strategy=progress.untried[0])
    if more and gaining:
        new = dict.fromkeys(q for q in verdict.next_queries if q and (progress.strategy, q) not in progress.tried)
        if new:
            return Action(Move.SEARCH, tuple(new))
    stopped_by = tripped or (StoppedBy.ROUNDS if gaining else StoppedBy.GAIN)
    if tripped is not None and verdict.kept:
        return Action(Move.WRITE, stopped_by=tripped)
    if not verdict.kept or verdict.sufficiency < tuning.generate_above:
        return Action(Move.GIVE_UP, stopped_by=stopped_by)
    return Action(Move.WRITE, stopped_by=stopped_by)


def weigh_rivals(
    chances: Sequence[float], look_ups: Sequence[int], none: Mapping[int, float] | None = None
) -> list[float]:
    """Return how probably each piece is right, where at most one of a look-up is.

    With o = p / (1 - p) the odds of its probability alone, it is o / (1 + the sum of all odds): a softmax in which
    "none of them" competes, as `fit_statement` fits it. `none` has by look-up the odds that "none of them" has more.
    """
    odds = [to_odds(chance) for chance in chances]
    total = defaultdict[int, float](float, none or {})
    for look_up, own in zip(look_ups, odds, strict=True):
        total[look_up] += own
    return [own / (1 + total[look_up]) for look_up, own in zip(look_ups, odds, strict=True)]


def to_odds(chance: float) -> float:
    """Return the odds of a probability."""
    return chance / max(1 - chance, LEAST_DOUBT)


def shift_odds(chance: float, by: float) -> float:
    """Return a probability with `by` added to the logarithm of its odds."""
    gained = chance * math.exp(by)
    return gained / (gained + 1 - chance)
