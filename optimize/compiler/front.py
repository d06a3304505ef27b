"""The frontier of utility against model calls, and the points on it that have a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from program.loop.policy import Setting

DEAR = 0.15
"""What a model call costs, in utility, at the economy point, unless `balanced` is still the best there."""
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting with its mean utility, calls at their own price taken off, its mean calls and dollars a question."""

    setting: Setting
    utility: float
    calls: float
    usd: float = 0.0

    def at(self, price: float, own: float) -> float:
        """The utility were a call to cost `price` instead of `own`."""
        return self.utility + (own - price) * self.calls


def prices(candidates: Sequence[Candidate], own: float) -> dict[str, float]:
    """What a call costs at each named point: nothing, what the project says, a lot.

    At `balanced` one call more no longer earns the project's own price: the knee of the frontier by the project's own
    measure. A lot is DEAR, or twice the project's own; where what is best at `balanced` is best at that too, as much
    as it takes until something of fewer calls is the best.
    """
    dear = max(DEAR, 2 * own)
    candidates = frontier(candidates, own, money=False)
    if candidates and best(candidates, dear, own).calls >= best(candidates, own, own).calls - SAME:
        turns = [price for price in turning(candidates, own) if price > dear]
        dear = (turns[0] + (turns[1] if len(turns) > 1 else 2 * turns[0])) / 2 if turns else dear
    return {"quality": 0.0, "balanced": own, "economy": dear}


def best(candidates: Sequence[Candidate], price: float, own: float) -> Candidate:
    """The one of most utility when a call costs `price`; of equals the one of fewest calls, then the first."""
    most = max(c.at(price, own) for c in candidates)
    return min((c for c in candidates if c.at(price, own) >= most - SAME), key=lambda c: c.calls)


def turning(candidates: Sequence[Candidate], own: float) -> list[float]:
    """The prices of a call, from nothing up, at each of which another candidate becomes the best."""
    rest, found = frontier(candidates, own, money=False), []
    if rest:
        now = rest.pop()
    while rest:
        steeps = [(now.at(0.0, own) - one.at(0.0, own)) / (now.calls - one.calls) for one in rest]
        found.append(min(steeps))
        place = steeps.index(found[-1])
        now, rest = rest[place], rest[:place]
    return found


def frontier(candidates: Sequence[Candidate], own: float, money: bool = True) -> list[Candidate]:
    """Those that no other beats in utility, calls aside, without more calls (or `money`); fewest calls first."""
    kept: list[tuple[float, float, Candidate]] = []
    worth = [(round(c.calls, 9), -c.at(0.0, own), c.usd if money else 0.0) for c in candidates]
    for at in sorted(range(len(worth)), key=worth.__getitem__):
        _, lost, usd = worth[at]
        if not any(had >= -lost - SAME and paid <= usd + SAME for had, paid, _ in kept):
            kept.append((-lost, usd, candidates[at]))
    return [candidate for _, _, candidate in kept]


def spread(front: Sequence[Candidate], own: float, most: int) -> list[Candidate]:
    """At most so many of a frontier: both its ends, and of the rest those that lose least where it is thinned."""
    kept = list(front)
    while len(kept) > max(most, 2):
        gaps = [kept[n + 1].at(0.0, own) - kept[n - 1].at(0.0, own) for n in range(1, len(kept) - 1)]
        kept.pop(1 + gaps.index(min(gaps)))
    return kept
