"""The meter of one question: seconds, tokens and money spent, and which cap tripped first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from program.answer import StoppedBy, Usage
from program.models.language.spending import ModelSpending

FOR_WRITING = 1 / 3
"""The share of the seconds that is kept for writing the answer, or for the fallback."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The caps of one question. Rounds are capped by the policy and by this, whichever is lower.

    `max_seconds` is the deadline of the answer; searching and judging end before it, so that there is time to write.
    """

    max_rounds: int = 3
    max_seconds: float = 15.0
    max_tokens: int = 50_000
    max_usd: float = 0.20


@dataclass(slots=True)
class Meter:
    """What was spent so far. The driver adds to it; the loop only asks `tripped`."""

    budget: Budget = field(default_factory=Budget)
    calls: int = 0
    decisions: int = 0
    searches: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    asked: int = 0
    agreed: int = 0
    dear: int = 0
    spared: int = 0
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def left(self, writing: bool) -> float:
        """Seconds that a step may still take: to the deadline for one that writes, else to where writing must begin."""
        share = 1.0 if writing else 1.0 - FOR_WRITING
        return self.budget.max_seconds * share - self.seconds

    def tripped(self) -> StoppedBy | None:
        """The first cap that is reached, or None."""
        if self.left(writing=False) <= 0:
            return StoppedBy.SECONDS
        if self.tokens_in + self.tokens_out >= self.budget.max_tokens:
            return StoppedBy.TOKENS
        if self.usd and self.usd >= self.budget.max_usd:
            return StoppedBy.USD
        return None

    def add(self, spent: ModelSpending) -> None:
        """Adds what language models cost."""
        self.calls += spent.calls
        self.tokens_in += spent.tokens_in
        self.tokens_out += spent.tokens_out
        self.usd += spent.usd
        self.asked += spent.asked
        self.agreed += spent.agreed
        self.dear += spent.dear
        self.spared += spent.spared

    def usage(self) -> Usage:
        """The totals now, frozen."""
        return Usage(
            self.calls,
            self.decisions,
            self.searches,
            self.tokens_in,
            self.tokens_out,
            self.usd,
            self.seconds,
            self.asked,
            self.agreed,
            self.dear,
            self.spared,
        )
