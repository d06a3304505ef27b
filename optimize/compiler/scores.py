"""A setting's scores, one number a question: utility, routing, calls, US dollars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CREDIT = 0.1
"""What routing a question right is worth in a search, so that ties fall to the better router."""

Floats = NDArray[np.float64]
Values = tuple[float, float, float, float]
"""One question's utility, routing, calls and US dollars."""
UNKNOWN = (np.nan, np.nan, np.nan, np.nan)


@dataclass(frozen=True, slots=True)
class Scores:
    """One number a question; NaN where it was not asked, could not be graded, or no label tells (`routing`)."""

    utility: Floats
    routing: Floats
    spent: Floats
    usd: Floats

    @classmethod
    def none(cls, n: int) -> Scores:
        return cls(*(np.full(n, np.nan) for _ in UNKNOWN))

    def put(self, place: int, values: Values) -> None:
        """Notes one question's values."""
        for column, value in zip(self.columns, values, strict=True):
            column[place] = value

    def take(self, other: Scores, places: Sequence[int]) -> None:
        """Notes the other's at these places."""
        at = list(places)
        for own, column in zip(self.columns, other.columns, strict=True):
            own[at] = column[at]

    def on(self, places: NDArray[np.bool_]) -> Scores:
        """These where `places` is true, and none elsewhere."""
        return Scores(*(np.where(places, column, np.nan) for column in self.columns))

    @property
    def columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.utility, self.routing, self.spent, self.usd

    def joined(self, other: Scores) -> Scores:
        """These, and the other's where these have none."""
        pairs = zip(self.columns, other.columns, strict=True)
        return Scores(*(np.where(np.isnan(a), b, a) for a, b in pairs))

    def beside(self, other: Scores) -> Scores:
        """These questions and the other's."""
        return Scores(*(np.concatenate(pair) for pair in zip(self.columns, other.columns, strict=True)))

    def at(self, price: float, own: float) -> Floats:
        """The utilities were a call to cost `price` instead of the project's `own`."""
        return self.utility + (own - price) * self.spent

    @property
    def outcome(self) -> bytes:
        """Equal for settings that come to the same on every question, in utility and calls."""
        return np.round([self.utility, self.spent], 9).tobytes()

    @property
    def worth(self) -> float:
        """Mean utility and CREDIT times the share routed right."""
        routed = self.routing[~np.isnan(self.routing)]
        return float(np.nanmean(self.utility) + CREDIT * (routed.mean() if len(routed) else 0.0))

    @property
    def calls(self) -> float:
        """Model calls a question."""
        return float(np.nanmean(self.spent))

    @property
    def dollars(self) -> float:
        """US dollars a question."""
        return float(np.nanmean(self.usd))
