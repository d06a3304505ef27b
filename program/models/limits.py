"""How often and how long a model is asked: tokens a minute, a circuit breaker."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class TokenRate:
    """A bucket of tokens that fills evenly: at most `per_minute` pass in a minute. 0 lets everything pass."""

    per_minute: int
    _level: float = field(init=False)
    _at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._level = float(self.per_minute)

    async def take(self, tokens: int) -> None:
        """Waits until that many tokens may pass; more than a whole bucket waits for a full one."""
        if not self.per_minute:
            return
        wanted = min(tokens, self.per_minute)
        self._fill()
        self._level -= wanted  # a debt, so that those who wait are served in turn
        if self._level < 0:
            await asyncio.sleep(-self._level * 60 / self.per_minute)

    def _fill(self) -> None:
        now = time.monotonic()
        self._level = min(self.per_minute, self._level + (now - self._at) * self.per_minute / 60)
        self._at = now


@dataclass(slots=True)
class Breaker:
    """Opens after `after` failures in a row; after `seconds` one request is let through to try, and closes it.

    See M. Nygard, Release It!, "Circuit Breaker".
    """

    after: int
    seconds: float
    failures: int = 0
    opened: float | None = None
    trying: bool = False
    times_opened: int = 0

    def allows(self) -> bool:
        """True when a request may be sent now; when open, for one request every `seconds`."""
        if self.opened is None:
            return True
        if self.trying or time.monotonic() - self.opened < self.seconds:
            return False
        self.trying = True
        return True

    def succeeded(self) -> None:
        self.failures, self.opened, self.trying = 0, None, False

    def failed(self) -> None:
        self.failures += 1
        if self.trying or (self.opened is None and self.failures >= self.after):
            self.times_opened += self.opened is None
            self.opened, self.trying = time.monotonic(), False

    def abandoned(self) -> None:
        """The request that was let through was called off: another may try."""
        self.trying = False
