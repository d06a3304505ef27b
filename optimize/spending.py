"""What a compile may spend, and has spent: checked before each call, so that a cap is never passed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from program.errors import BudgetStop


@dataclass(frozen=True, slots=True)
class Caps:
    """The hard caps of a compile; None is no cap. `calls` are requests to a model that writes or is paid."""

    calls: int | None = None
    usd: float | None = None
    seconds: float | None = None

    def reduced(self, share: float) -> Caps:
        """The same caps with only that share of each."""
        return Caps(
            None if self.calls is None else int(self.calls * share),
            None if self.usd is None else self.usd * share,
            None if self.seconds is None else self.seconds * share,
        )


@dataclass(slots=True)
class Spending:
    """Calls, dollars and seconds so far. Safe from many threads."""

    caps: Caps = field(default_factory=Caps)
    calls: int = 0
    usd: float = 0.0
    started: float = field(default_factory=time.monotonic)
    _reserved: float = 0.0
    _underway: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def check(self) -> None:
        """Raises `BudgetStop` when the time is up."""
        if self.caps.seconds is not None and self.seconds >= self.caps.seconds:
            raise BudgetStop("seconds")

    def before_call(self, usd: float = 0.0) -> None:
        """Counts a call that will cost at most `usd`. Raises `BudgetStop` when that would pass a cap."""
        self.check()
        with self._changed:
            if self.caps.calls is not None and self.calls >= self.caps.calls:
                raise BudgetStop("calls")
            while self.caps.usd is not None and self.usd + self._reserved + usd > self.caps.usd:
                if not self._reserved:
                    raise BudgetStop("usd")
                self._changed.wait()  # calls on their way may cost less than they might
            self.calls += 1
            self._underway += 1
            self._reserved += usd

    def add(self, calls: int, usd: float) -> None:
        """Counts what another process of this compile has spent."""
        with self._changed:
            self.calls += calls
            self.usd += usd

    def after_call(self, expected: float, usd: float, sent: bool = True) -> None:
        """Puts what a call did cost in the place of what it might have; one that was not sent counts no more."""
        with self._changed:
            self.calls -= not sent
            self._underway -= 1
            self._reserved = self._reserved - expected if self._underway else 0.0
            self.usd += usd
            self._changed.notify_all()
