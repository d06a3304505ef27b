"""What a compile may spend, and has spent: checked before each call, so that a cap is never passed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from optimize.compiler.store import Store
from program.errors import BudgetStop

CANDIDATES_SHARE, REACH_SHARE, SEARCH_SHARE, CHOICE_SHARE = 0.105, 0.32, 0.4, 0.75
"""Of each cap, what may be gone when candidates are found, when the settings to begin with were tried, when the search
ends, and when the choice is made; the rest is for the test."""
OTHERS = 30.0  # seconds without a change after which calls of other processes are waited for no more
PAUSE = 0.05
KEPT_EVERY = 0.5  # seconds between two times that what is free is put on disk


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

    def or_else(self, noted: Mapping[str, Any]) -> Caps:
        """The same, with what was noted where there is no cap here."""
        here = asdict(self)
        return Caps(**{name: noted.get(name) if cap is None else cap for name, cap in here.items()})


@dataclass(slots=True)
class Spending:
    """Calls, dollars and seconds so far. Safe from many threads.

    From `join` on they are those of a study: what it spent before counts, and what its other processes spend. `tripped`
    is the cap that was reached last.
    """

    caps: Caps = field(default_factory=Caps)
    calls: int = 0
    usd: float = 0.0
    tripped: str = ""
    started: float = field(default_factory=time.monotonic)
    _reserved: float = 0.0
    _underway: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _store: Store | None = None
    _study: str = ""
    _leads: bool = False
    _before: float = 0.0  # seconds that the study took before this process joined it
    _timed: float = 0.0  # of this process's seconds, those that the study knows of
    _kept: float = 0.0
    _unbooked: int = 0

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self.started

    @property
    def money(self) -> bool:
        """True when money is capped."""
        return self.caps.usd is not None

    def join(self, store: Store, study: str, leads: bool) -> None:
        """Spends with the study from now on, what was spent here before included. One process `leads`: its seconds are
        those that the study takes."""
        self._store, self._study, self._leads = store, study, leads
        self._before = store.spent(study).seconds
        if self.calls:
            store.book(study, self.calls, self.usd)
        self.keep()

    def keep(self, every: float = 0.0) -> None:
        """Adds to the study what it does not know of yet, and learns what its other processes have spent.

        Not again within `every` seconds: what is paid for, and all that is capped, the study knows at once anyway.
        """
        if self._store is None or time.monotonic() - self._kept < every:
            return
        with self._changed:
            self._kept = time.monotonic()
            own = time.monotonic() - self.started
            self._store.book(self._study, self._unbooked, 0.0, own - self._timed if self._leads else 0.0)
            self._unbooked, self._timed = 0, own
            total = self._store.spent(self._study)
            self.calls, self.usd = total.calls, total.usd

    def check(self) -> None:
        """Raises `BudgetStop` when the time is up."""
        if self.caps.seconds is not None and self.seconds >= self.caps.seconds:
            raise self._stop("seconds")

    def before_call(self, usd: float = 0.0, here: bool = False) -> None:
        """Counts a call that will cost at most `usd`. Raises `BudgetStop` when that would pass a cap.

        One of a model in this process (`here`) is free: unless calls are capped it is booked with the next `keep`.
        """
        while True:
            self.check()
            with self._changed:
                if self._fits(usd, here):
                    self.calls += 1
                    self._underway += 1
                    self._reserved += usd
                    return
                if self._underway:
                    self._changed.wait()  # calls on their way may cost less than they might
                    continue
            time.sleep(PAUSE)

    def add(self, calls: int, usd: float) -> None:
        """Counts what this process's second one has spent."""
        with self._changed:
            self.calls += calls
            self.usd += usd
            self._unbooked += calls

    def after_call(self, expected: float, usd: float, sent: bool = True, here: bool = False) -> None:
        """Puts what a call did cost in the place of what it might have; one that was not sent counts no more."""
        with self._changed:
            self.calls -= not sent
            self._underway -= 1
            self._reserved = self._reserved - expected if self._underway else 0.0
            self.usd += usd
            if self._store is not None and self._booked(here):
                self._store.book(self._study, 0 if sent else -1, usd - expected, landed=1)
            self._changed.notify_all()

    def _stop(self, cap: str) -> BudgetStop:
        self.tripped = cap
        return BudgetStop(cap)

    def _booked(self, here: bool) -> bool:
        return not here or self.caps.calls is not None

    def _fits(self, usd: float, here: bool) -> bool:
        """Whether a call may begin; false when others on their way may yet leave room. Raises `BudgetStop`."""
        if self._store is None:
            if self.caps.calls is not None and self.calls >= self.caps.calls:
                raise self._stop("calls")
            if self.caps.usd is None or self.usd + self._reserved + usd <= self.caps.usd:
                return True
            if not self._underway:
                raise self._stop("usd")
            return False
        if not self._booked(here):
            self._unbooked += 1
            return True
        if self._store.reserve(self._study, usd, self.caps.calls, self.caps.usd):
            return True
        total = self._store.spent(self._study)
        if self.caps.calls is not None and total.calls >= self.caps.calls:
            raise self._stop("calls")
        waits = self._underway or (total.underway and abs(time.time() - total.at) < OTHERS)
        if self.caps.usd is not None and total.usd + usd > self.caps.usd and not waits:
            raise self._stop("usd")
        return False
