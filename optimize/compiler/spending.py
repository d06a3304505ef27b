"""The caps on what a compile may spend, checked before each call."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from program.errors import BudgetStop

CANDIDATES_SHARE, FIRST_SHARE, SWEEP_SHARE, SEARCH_SHARE, CHOICE_SHARE = 0.1, 0.25, 0.33, 0.45, 0.75
"""Shares of each cap that may be gone after a stage: candidates found, first settings tried, sweeps, search, choice."""

MOST_TRIALS, MOST_CALLS, MOST_SEED, LEAST_SECONDS = 1_000_000, 10**9, 2**31 - 1, 1
"""Limits of what may be asked of a compile."""
KEPT_EVERY = 0.5
"""Seconds between two times that free calls and seconds are booked."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls, US dollars (of calls under way the most they may cost) and seconds of a study."""

    calls: int = 0
    usd: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Caps:
    """Hard caps of a compile; None is no cap. Calls are requests to a model that writes or is paid."""

    calls: int | None = None
    usd: float | None = None
    seconds: float | None = None

    def reduce_to(self, share: float) -> Caps:
        """Return that share of each cap."""
        calls, usd, seconds = ((None if cap is None else cap * share) for cap in (self.calls, self.usd, self.seconds))
        return Caps(None if calls is None else int(calls), usd, seconds)

    def fill_from(self, noted: Mapping[str, Any]) -> Caps:
        """Return these caps, with the noted ones where there is none."""
        return Caps(**{name: noted.get(name) if cap is None else cap for name, cap in asdict(self).items()})


class Ledger:
    """The spending of a study, booked in memory; a store books it on disk for several processes."""

    def __init__(self) -> None:
        self._spent = Spent()

    def reserve_call(self, study: str, usd: float, caps: Caps) -> bool:
        """Book a call of at most `usd` US dollars, unless that would pass a cap."""
        full = caps.calls is not None and self._spent.calls >= caps.calls
        if full or (caps.usd is not None and self._spent.usd + usd > caps.usd):
            return False
        self.book_spending(study, 1, usd)
        return True

    def book_spending(self, study: str, calls: int = 0, usd: float = 0.0, seconds: float = 0.0) -> None:
        """Add to what was spent."""
        was = self._spent
        self._spent = Spent(was.calls + calls, was.usd + usd, was.seconds + seconds)

    def read_spending(self, study: str) -> Spent:
        """Return what was spent."""
        return self._spent


class Spending:
    """Calls, US dollars and seconds of a compile, checked against caps before each call. Safe from many threads.

    `join_study` books them for a study: what it spent before counts, and what its other processes spend. `tripped`
    names the cap that was reached last.
    """

    def __init__(self, caps: Caps = Caps()) -> None:
        self.caps = caps
        self.calls = 0
        self.usd = 0.0
        self.tripped = ""
        self._ledger = Ledger()
        self._study = ""
        self._leads = False
        self._started = time.monotonic()
        self._before = 0.0  # seconds of the study before this process joined it
        self._booked_seconds = 0.0
        self._booked_at = 0.0
        self._unbooked = 0
        self._under_way = 0
        self._changed = threading.Condition()

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    @property
    def money(self) -> bool:
        """True when money is capped."""
        return self.caps.usd is not None

    def join_study(self, ledger: Ledger, study: str, leads: bool) -> None:
        """Book for a study from now on, with what was spent here before; one process `leads` and books its seconds."""
        before = self._ledger.read_spending(self._study)
        self._ledger, self._study, self._leads = ledger, study, leads
        self._before = ledger.read_spending(study).seconds
        ledger.book_spending(study, before.calls, before.usd)
        self.book()

    def book(self, every: float = 0.0) -> None:
        """Book what the study does not know of yet, not again within `every` seconds, and read its total."""
        if time.monotonic() - self._booked_at < every:
            return
        with self._changed:
            self._booked_at = time.monotonic()
            own = time.monotonic() - self._started
            seconds = own - self._booked_seconds if self._leads else 0.0
            self._ledger.book_spending(self._study, self._unbooked, 0.0, seconds)
            self._unbooked, self._booked_seconds = 0, own
            self._read_total()

    def check(self) -> None:
        """Raise `BudgetStop` when the time is up."""
        if self.caps.seconds is not None and self.seconds >= self.caps.seconds:
            raise self._stop_at("seconds")

    def before_call(self, usd: float = 0.0, here: bool = False) -> None:
        """Count a call that costs at most `usd`; one to a model in this process (`here`) is free.

        Waits for calls under way, which may cost less than reserved. Raises `BudgetStop` when it would pass a cap.
        """
        while True:
            self.check()
            with self._changed:
                if here and self.caps.calls is None:
                    self._unbooked += 1
                elif not self._ledger.reserve_call(self._study, usd, self.caps):
                    total = self._ledger.read_spending(self._study)
                    if self.caps.calls is not None and total.calls >= self.caps.calls:
                        raise self._stop_at("calls")
                    if not self._under_way:
                        raise self._stop_at("usd")
                    self._changed.wait()
                    continue
                self._under_way += 1
                self.calls += 1
                return

    def after_call(self, expected: float, usd: float, sent: bool = True, here: bool = False) -> None:
        """Book the cost of a call in place of what it might have cost; one that was not sent counts no more."""
        with self._changed:
            self._under_way -= 1
            self.calls -= not sent
            self.usd += usd
            if expected or usd or not sent:
                self._ledger.book_spending(self._study, 0 if sent else -1, usd - expected)
            self._changed.notify_all()

    def _read_total(self) -> None:
        total = self._ledger.read_spending(self._study)
        self.calls, self.usd = total.calls, total.usd

    def _stop_at(self, cap: str) -> BudgetStop:
        self.tripped = cap
        return BudgetStop(cap)
