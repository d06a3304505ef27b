"""The frontier of utility against model calls, and the points on it that have a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from program.parameters import Setting

DEAR = 0.15
"""What a model call costs, in utility, at the economy point."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting with its mean utility, calls at their own price taken off, and its mean calls a question."""

    setting: Setting
    utility: float
    calls: float

    def at(self, price: float, own: float) -> float:
        """The utility were a call to cost `price` instead of `own`."""
        return self.utility + (own - price) * self.calls


def prices(own: float) -> dict[str, float]:
    """What a call costs at each named point: nothing, what the project says, a lot."""
    return {"quality": 0.0, "balanced": own, "economy": max(DEAR, 2 * own)}


def frontier(candidates: Sequence[Candidate], own: float) -> list[Candidate]:
    """Those that no other beats in utility, calls aside, without more calls; fewest calls first."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.calls, -c.at(0.0, own))):
        if not kept or candidate.at(0.0, own) > kept[-1].at(0.0, own):
            kept.append(candidate)
    return kept
