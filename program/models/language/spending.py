"""What a question or a step may take and has spent at language models; passed along by context, not by argument."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from dspy.lm15 import Response

from ragc.models.language.provider import count_messages
from ragc.models.language.transport import Call
from ragc.notes import Note, NoteKind
from ragc.threads import begin_in_thread

RESERVED_SHARE, RESERVED_SECONDS = 0.1, 1.0  # of a question's time, at most, kept to answer without a language model
POLL = 0.005  # seconds between two looks whether a request is booked
MAX_REPLY_TOKENS = 4096  # when money is capped and the request sets no length
_LENGTHS = ("max_tokens", "max_completion_tokens")


class Cap(Protocol):
    """A hard limit on requests and money: `ragc.optimize.compiler.spending.Spending`."""

    @property
    def money(self) -> bool: ...
    def before_call(self, usd: float = 0.0) -> None: ...
    def after_call(self, expected: float, usd: float, sent: bool = True) -> None: ...


@dataclass(slots=True, eq=False)
class ModelSpending:
    """Requests, tokens and money of a question or a step at language models. Safe from many threads."""

    deadline: float = float("inf")  # the time of `time.monotonic` after which no language model is asked
    cap: Cap | None = None  # the hard limit that is asked before each request
    calls: int = 0  # requests sent, repeated and refused ones included
    tokens_in: int = 0  # tokens of the prompts
    tokens_out: int = 0  # tokens of the replies
    usd: float = 0.0  # price of the requests in US dollars
    handed_over: dict[tuple[str, str, str], Note] = field(default_factory=dict)
    """Notes on stand-ins by (failed model, stand-in, what the stand-in did)."""
    cut: bool = False  # true when the last text was cut off
    notes: list[Note] = field(default_factory=list)  # remarks for the trace, each once
    under_way: int = 0  # requests sent and not booked yet
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def book_request(self, tokens_in: int, tokens_out: int, usd: float) -> None:
        """Add one request that was sent."""
        with self._lock:
            self.calls += 1
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
            self.usd += usd

    async def settle(self, seconds: float) -> None:
        """Wait, so long at most, until no request is under way."""
        until = time.monotonic() + seconds
        while self.under_way and time.monotonic() < until:
            await asyncio.sleep(POLL)

    def note(self, text: Note) -> None:
        """Add a remark for the trace."""
        with self._lock:
            if text not in self.notes:
                self.notes.append(text)

    def hand_over(self, why: str, failed: str, other: Any, did: str) -> None:
        """Note that `other` steps in for a failed model; an embedded one `did` it."""
        does = did if other.model.startswith("local/") else "was asked"
        note = NoteKind.STOOD_IN(why=why, model=other.model, did=does)
        self.note(note)
        with self._lock:
            self.handed_over.setdefault((failed, other.model, does), note)

    def answering(self, model: str) -> str:
        """Return the model that answers, stand-ins put in."""
        instead = {failed: other for failed, other, _ in list(self.handed_over)}
        for _ in instead:
            model = instead.get(model, model)
        return model


_current: ContextVar[ModelSpending | None] = ContextVar("ragc_spending", default=None)


def current_spending() -> ModelSpending:
    """Return the spending of the step under way; outside any, one without limits."""
    return _current.get() or ModelSpending()


@contextmanager
def track_spending(deadline: float = float("inf"), cap: Cap | None = None) -> Iterator[ModelSpending]:
    """Collect what this thread, its tasks and `asyncio.to_thread` ask in the block."""
    spent = ModelSpending(deadline, cap)
    token = _current.set(spent)
    try:
        yield spent
    finally:
        _current.reset(token)


def deadline_after(seconds: float) -> float:
    """Return when models may be asked no more, for a question of `seconds`."""
    return time.monotonic() + seconds - min(RESERVED_SHARE * seconds, RESERVED_SECONDS)


@dataclass(slots=True)
class Paid:
    """What one request came to: its reply if any, US dollars, and whether it counts as sent."""

    reply: Response | None = None
    heard: bool = False  # whether a piece of the reply came
    usd: float = 0.0
    sent: bool = False


def limit_reply(call: Call, spent: ModelSpending) -> Call:
    """Return the request, limited in length where money is capped and no length set."""
    if spent.cap is None or not spent.cap.money or any(call.settings.get(name) for name in _LENGTHS):
        return call
    return replace(call, settings={**call.settings, _LENGTHS[0]: MAX_REPLY_TOKENS})


def count_used_tokens(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens in and out of a DSPy usage, under either of their names."""
    kinds = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
    read, written = (sum(int(t.get(new) or t.get(old) or 0) for t in usage.values()) for new, old in kinds)
    return read, written


def estimate_prompt_tokens(parts: Iterable[object], tasks: int = 1) -> int:
    """Return an upper estimate of a prompt's tokens: one for every two bytes."""
    return (4000 * tasks + sum(len(str(part).encode("utf-8", "replace")) for part in parts)) // 2


@asynccontextmanager
async def reserve_cost(call: Call, spent: ModelSpending, price: Callable[[int, int], float]) -> AsyncIterator[Paid]:
    """Reserve the most a request may cost, then book what it did cost.

    The block runs in between and says what that was. The most is the price of a token for every two bytes of the prompt
    (or its counted tokens, if more) and of the longest reply. Raises `BudgetStop` before the block.
    """
    paid = Paid()
    if (cap := spent.cap) is None:
        yield paid
        return
    longest = next((int(call.settings[name]) for name in _LENGTHS if call.settings.get(name)), MAX_REPLY_TOKENS)
    prompt = max(estimate_prompt_tokens(call.messages), count_messages(call.model, call.messages))
    most = price(prompt, longest)
    waiting = asyncio.wrap_future(begin_in_thread(partial(cap.before_call, most)))
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        waiting.add_done_callback(lambda done: None if done.exception() else cap.after_call(most, 0.0, False))
        raise
    try:
        yield paid
    finally:
        cap.after_call(most, paid.usd, paid.sent)
