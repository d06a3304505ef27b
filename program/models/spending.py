"""What one question may take and has spent at language models: passed along by context, not by argument."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

RESERVE = 0.1  # of a question's time, kept for answering without a language model
RESERVE_AT_MOST = 1.0  # seconds


class Cap(Protocol):
    """A hard limit on requests and money, asked before each request; see `optimize.compiler.spending.Spending`.

    `money` says that there is one on money.
    """

    @property
    def money(self) -> bool: ...

    def before_call(self, usd: float = 0.0) -> None:
        """Counts a request that will cost at most `usd`; may wait. Raises `BudgetStop` when that would pass it."""

    def after_call(self, expected: float, usd: float, sent: bool = True) -> None:
        """Puts what a request did cost in the place of what it might have."""


@dataclass(slots=True, eq=False)
class Spending:
    """Calls, tokens and money of a question or of one of its steps, and what had to be put up with.

    `calls` counts requests sent, repeated and refused ones too. `asked` counts decisions that a cascade's second model
    made, `agreed` those in which it came to the same as the first one; `dear` its calls, repeats aside, and `spared`
    those that it would have been asked besides if it always were. `stood_in` counts decisions that were wanted of a
    language model and made by another or by default; `instead` names who answered, by the name of who did not, and
    `handed_over` has the note of it by who did not, who did, and what. `cut` says that the last text was cut off.
    `under_way` counts requests sent and not yet booked. A `cap` is asked before each request. Safe from many threads.
    """

    deadline: float = float("inf")
    cap: Cap | None = None
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    asked: int = 0
    agreed: int = 0
    dear: int = 0
    spared: int = 0
    stood_in: int = 0
    instead: dict[str, str] = field(default_factory=dict)
    handed_over: dict[tuple[str, str, str], str] = field(default_factory=dict)
    cut: bool = False
    notes: list[str] = field(default_factory=list)
    under_way: int = 0
    _waiting: list[Future[None]] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def seconds_left(self) -> float:
        """Seconds until language models may be asked no more; `time.monotonic` is the clock."""
        return self.deadline - time.monotonic()

    @property
    def patience(self) -> float | None:
        """Seconds that may be waited, or None for no bound."""
        left = self.seconds_left
        return None if left == float("inf") else max(0.0, left)

    def pay(self, tokens_in: int, tokens_out: int, usd: float) -> None:
        """Books one request that was sent."""
        with self._lock:
            self.calls += 1
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
            self.usd += usd

    def sent(self) -> None:
        """Says that a request is under way."""
        with self._lock:
            self.under_way += 1

    def landed(self) -> None:
        """Says that a request is booked, whatever became of it."""
        with self._lock:
            self.under_way -= 1
            told, self._waiting = ([], self._waiting) if self.under_way else (self._waiting, [])
        for each in told:
            if each.set_running_or_notify_cancel():
                each.set_result(None)

    def settled(self) -> Future[None]:
        """Done as soon as no request is under way."""
        done: Future[None] = Future()
        with self._lock:
            if self.under_way:
                self._waiting.append(done)
                return done
        done.set_result(None)
        return done

    def note(self, text: str) -> None:
        """Keeps a remark for the trace, once."""
        with self._lock:
            if text not in self.notes:
                self.notes.append(text)

    def stand_in(self, decisions: int) -> None:
        """Says that so many decisions were not made by the language model that was asked."""
        with self._lock:
            self.stood_in += decisions

    def hand_over(self, why: str, failed: str, other: Any, did: str) -> None:
        """Notes that another model's client steps in for one that failed: an embedded one `did` what was wanted, a
        language model is asked in its turn."""
        does = "was asked" if hasattr(other, "lane") else did
        note = f"{why}: {other.model} {does}"
        self.note(note)
        with self._lock:
            self.instead[failed] = other.model
            self.handed_over.setdefault((failed, other.model, does), note)

    def answering(self, model: str) -> str:
        """The name of a model (`first > second` of a cascade), with who answered in the place of who did not."""
        names = model.split(" > ")
        for _ in self.instead:
            names = [self.instead.get(name, name) for name in names]
        return " > ".join(dict.fromkeys(names))

    def cascaded(self, agreed: Sequence[bool], dear: int, spared: int) -> None:
        """Books decisions that a cascade's second model made, its calls, and those that it was spared."""
        with self._lock:
            self.asked += len(agreed)
            self.agreed += sum(agreed)
            self.dear += dear
            self.spared += spared


_current: ContextVar[Spending | None] = ContextVar("ragc_spending", default=None)


def current() -> Spending:
    """The spending of the step that is under way; an unbounded one of its own outside any."""
    return _current.get() or Spending()


@contextmanager
def spending(deadline: float = float("inf"), cap: Cap | None = None) -> Iterator[Spending]:
    """The spending of everything asked inside the block, by this thread, its tasks and `asyncio.to_thread`."""
    spent = Spending(deadline, cap)
    token = _current.set(spent)
    try:
        yield spent
    finally:
        _current.reset(token)


def deadline_after(seconds: float) -> float:
    """When language models may be asked no more, for a question that is to end within `seconds` from now."""
    return time.monotonic() + seconds - min(RESERVE * seconds, RESERVE_AT_MOST)
