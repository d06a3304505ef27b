"""What to do next, as a pure function of the evidence's verdict, the state, the knobs and the budget."""

from __future__ import annotations

from dataclasses import dataclass

from program.answer import StoppedBy
from program.knobs import Tuning


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge made of the evidence. `sufficiency` is a probability; `sufficient` is it past its threshold."""

    sufficient: bool
    sufficiency: float
    kept: int
    missing: str = ""
    next_query: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the loop stands: rounds of searching done, queries tried, and the last round's sufficiency."""

    rounds: int
    tried: frozenset[str]
    previous: float | None = None
    vague: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """Search again with this query."""

    query: str
    reason: str


@dataclass(frozen=True, slots=True)
class Clarify:
    """Ask the user which is meant."""

    reason: str


@dataclass(frozen=True, slots=True)
class Abstain:
    """Say what is missing."""

    missing: str
    reason: str


@dataclass(frozen=True, slots=True)
class Generate:
    """Write the answer from what there is."""

    stopped_by: StoppedBy
    reason: str


Action = Search | Clarify | Abstain | Generate


def rounds_left(progress: Progress, tuning: Tuning, max_rounds: int, tripped: StoppedBy | None) -> bool:
    """True when one more search is allowed."""
    return tripped is None and progress.rounds < min(tuning.max_rounds, max_rounds)


def decide(
    verdict: Verdict, progress: Progress, tuning: Tuning, max_rounds: int, tripped: StoppedBy | None = None
) -> Action:
    """The next action. Ends within `max_rounds` searches and never repeats a tried query.

    `tripped` is the budget's cap that was reached, if any. The order is the order of certainty: a vague
    question is asked back, sufficient evidence is written up, a promising query is tried, and only then the
    program gives up or makes do.
    """
    if progress.vague:
        return Clarify("the question leaves open what is meant")
    if verdict.sufficient:
        return Generate(StoppedBy.DONE, "the evidence suffices")
    gain = None if progress.previous is None else verdict.sufficiency - progress.previous
    gained = gain is None or gain >= tuning.min_gain
    more = rounds_left(progress, tuning, max_rounds, tripped)
    if more and gained and verdict.next_query and verdict.next_query not in progress.tried:
        return Search(verdict.next_query, f"missing {verdict.missing!r}" if verdict.missing else "insufficient")
    if not verdict.kept or verdict.sufficiency < tuning.generate_above:
        return Abstain(verdict.missing, "the evidence does not hold the answer")
    if tripped is not None:
        return Generate(tripped, f"the budget for {tripped} is spent")
    if not gained:
        return Generate(StoppedBy.GAIN, "the last round gained too little")
    return Generate(StoppedBy.ROUNDS, "no further round is allowed or promising")
