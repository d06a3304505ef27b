"""When a model that fails is left alone: a circuit breaker."""

from __future__ import annotations

import time
from dataclasses import dataclass


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
            self.opened, self.trying = time.monotonic(), False

    def abandoned(self) -> None:
        """The request that was let through was called off: another may try."""
        self.trying = False
