"""Prompts that a model refuses for good while it answers others: asked no more, in this process."""

from __future__ import annotations

import threading
from collections import Counter

from program.loop.state import StepFailed
from program.models.language.transport import CallFailed

_NOT_TAKEN = (400, 413, 422)  # not that of a key or an address, which is of no one prompt


class Refused(StepFailed):
    """A request that the same model would refuse again: how a run goes on without it can be remembered."""


class Refusals:
    """What was refused, and how many other prompts each model has answered. Safe from many threads.

    A server that is away, or takes no key, refuses everything, and may be back: only of a model that answered another
    prompt since it first refused one is it known that the prompt is to blame.
    """

    def __init__(self) -> None:
        self._answered: Counter[str] = Counter()
        self._since: dict[bytes, int] = {}
        self._final: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def final(self, digest: bytes) -> Refused | None:
        """How a prompt was refused for good, if it was."""
        why = self._final.get(digest)
        return None if why is None else Refused(why)

    def answered(self, model: str) -> None:
        """Counts a prompt that a model answered."""
        with self._lock:
            self._answered[model] += 1

    def refused(self, digest: bytes, model: str) -> None:
        """Notes that a model has refused a prompt, for the first time or again."""
        with self._lock:
            self._since.setdefault(digest, self._answered[model])

    def settle(self, digest: bytes, model: str, why: str) -> StepFailed:
        """How a prompt failed that was refused each time it was put."""
        with self._lock:
            if self._answered[model] == self._since[digest]:
                return StepFailed(why)
            self._final[digest] = why
        return Refused(why)


def is_refusal(error: BaseException | None) -> bool:
    """True for a reply by which a provider says that this prompt is not to be had, whoever has wrapped it since: it is
    not taken, or its reply's tokens are used up before the first word."""
    while error is not None and not isinstance(error, CallFailed):
        error = error.__cause__
    return error is not None and (error.cut or error.status in _NOT_TAKEN)
