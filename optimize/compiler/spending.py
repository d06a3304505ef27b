"""What a compile spends: calls, US dollars and seconds, under caps that hold however often the same command is given.

1. What is spent is booked under the digest of what is compiled: a call, and the most it may cost, before it is made.
2. The same compile given again after a kill begins with what was spent; a sealed version ends the account.
3. A call that would pass a cap waits for calls under way, which may cost less than was reserved, else it is refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragc.errors import BudgetStop

BOOKED_EVERY = 0.5  # seconds between two times that a compile's seconds are booked


class Spent(NamedTuple):
    """Calls, US dollars (of calls under way the most they may cost) and seconds."""

    calls: int = 0
    usd: float = 0.0
    seconds: float = 0.0

    def plus(self, calls: int = 0, usd: float = 0.0, seconds: float = 0.0) -> Spent:
        """Return the sum of this and more."""
        return Spent(self.calls + calls, self.usd + usd, self.seconds + seconds)


@dataclass(frozen=True, slots=True)
class Caps:
    """Hard caps of a compile; None is no cap. A call is a request to a language model on a server."""

    calls: int | None = None
    usd: float | None = None
    seconds: float | None = None

    def take_share(self, share: float) -> Caps:
        """Return that share of each cap."""
        calls, usd, seconds = ((None if cap is None else cap * share) for cap in (self.calls, self.usd, self.seconds))
        return Caps(None if calls is None else int(calls), usd, seconds)

    def allow(self, spent: Spent, usd: float) -> bool:
        """Tell whether one call more, of at most `usd` US dollars, passes no cap."""
        full = self.calls is not None and spent.calls >= self.calls
        return not full and (self.usd is None or spent.usd + usd <= self.usd)


class Account:
    """What a compile has spent, in this process alone; whoever uses it holds a lock."""

    def __init__(self) -> None:
        self._spent = Spent()

    def change(self, to: Callable[[Spent], Spent | None]) -> Spent | None:
        """Put another sum in the place of what was spent, unless it is None; return it."""
        if (found := to(self._spent)) is not None:
            self._spent = found
        return found

    def read(self) -> Spent:
        """Return what was spent."""
        return self._spent

    def end(self) -> None:
        """Forget what was spent: what was compiled is sealed."""
        self.change(lambda spent: Spent())


class Spending:
    """Calls, US dollars and seconds of a compile, checked against caps before each call. Safe from many threads.

    `tripped` names the cap that was reached last; unless it `pays`, every call is past a cap.
    """

    def __init__(self, caps: Caps = Caps()) -> None:
        self.caps = caps
        self.pays = True
        self.tripped = ""
        self._account = Account()
        self._started = time.monotonic()
        self._before = 0.0  # seconds that earlier processes booked
        self._booked = 0.0  # seconds of this process that are booked
        self._under_way = 0
        self._changed = threading.Condition()

    @property
    def calls(self) -> int:
        return self._account.read().calls

    @property
    def usd(self) -> float:
        return self._account.read().usd

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._started

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the time is up; None without a cap."""
        return None if self.caps.seconds is None else max(0.0, self.caps.seconds - self.seconds)

    @property
    def money(self) -> bool:
        """True when money is capped."""
        return self.caps.usd is not None

    def use_account(self, account: Account) -> None:
        """Book there from now on; nothing was paid for before."""
        self._account = account
        self._before = account.read().seconds
        self._booked = 0.0
        self.book()

    def pay_nothing(self) -> None:
        """Refuse calls, as in a process that shares the work of the one that pays."""
        self.caps, self.pays = replace(self.caps, seconds=None), False

    def book(self, every: float = 0.0) -> None:
        """Book the seconds of this process, unless it was done `every` seconds ago."""
        own = time.monotonic() - self._started
        if self.pays and own - self._booked >= every:
            with self._changed:
                more = own - self._booked
                self._account.change(lambda spent: spent.plus(seconds=more))
                self._booked = own

    def check(self) -> None:
        """Raise `BudgetStop` when the time is up."""
        if self.seconds_left == 0:
            raise self._stop_at("seconds")

    def before_call(self, usd: float = 0.0) -> None:
        """Book a call of at most `usd` US dollars, or raise `BudgetStop` at a cap."""
        if not self.pays:
            raise BudgetStop("calls")
        while True:
            self.check()
            with self._changed:
                if self._account.change(lambda spent: spent.plus(1, usd) if self.caps.allow(spent, usd) else None):
                    self._under_way += 1
                    return
                if self.caps.calls is not None and self._account.read().calls >= self.caps.calls:
                    raise self._stop_at("calls")
                if not self._under_way:
                    raise self._stop_at("usd")
                self._changed.wait()

    def after_call(self, expected: float, usd: float, sent: bool = True) -> None:
        """Book the cost of a call in place of what it might have cost."""
        with self._changed:
            self._under_way -= 1
            if expected != usd or not sent:
                self._account.change(lambda spent: spent.plus(0 if sent else -1, usd - expected))
            self._changed.notify_all()

    def _stop_at(self, cap: str) -> BudgetStop:
        self.tripped = cap
        return BudgetStop(cap)
