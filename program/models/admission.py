"""The hard cap that a request has to pass before it is sent, by the most that it may cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

from program.models.spending import Spending
from program.models.tokens import count_messages
from program.models.transport import Call, Reply

WAITERS = 8
MOST_TOKENS = 4096  # of a reply, when money is capped and the request says nothing of its length
_LENGTHS = ("max_tokens", "max_completion_tokens")


@dataclass(slots=True)
class Paid:
    """What one request came to: its reply, if it got one, US dollars, and whether it counts as sent."""

    reply: Reply | None = None
    usd: float = 0.0
    sent: bool = False


def bounded(call: Call, spent: Spending) -> Call:
    """The request, its reply no longer than what is reserved for it where the spender's money is capped."""
    if spent.cap is None or not spent.cap.money or any(call.settings.get(name) for name in _LENGTHS):
        return call
    return replace(call, settings={**call.settings, _LENGTHS[0]: MOST_TOKENS})


def prompt_tokens(parts: Iterable[object], tasks: int = 1) -> int:
    """What a prompt is taken to have before it is counted: a token for every two bytes, with room for its form."""
    return (4000 * tasks + sum(len(str(part).encode("utf-8", "replace")) for part in parts)) // 2


@asynccontextmanager
async def allowed(call: Call, spent: Spending, price: Callable[[int, int], float]) -> AsyncIterator[Paid]:
    """One request within the spender's hard cap, to be filled in with what it cost. Raises `BudgetStop` before it.

    As long as it waits and flies its most is reserved: a token for every two bytes, or more if the prompt has more, and
    the longest reply.
    """
    paid = Paid()
    if (cap := spent.cap) is None:
        yield paid
        return
    longest = next((int(call.settings[name]) for name in _LENGTHS if call.settings.get(name)), MOST_TOKENS)
    most = price(max(prompt_tokens(call.messages), count_messages(call.model, call.messages)), longest)
    waiting = asyncio.get_running_loop().run_in_executor(_waiters(), cap.before_call, most)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        waiting.add_done_callback(lambda done: None if done.exception() else cap.after_call(most, 0.0, False))
        raise
    try:
        yield paid
    finally:
        cap.after_call(most, paid.usd, paid.sent)


@lru_cache(maxsize=1)
def _waiters() -> ThreadPoolExecutor:
    """Threads that wait for calls on their way, which may cost less than they might: not those LiteLLM works in."""
    return ThreadPoolExecutor(WAITERS, "ragc-caps")
