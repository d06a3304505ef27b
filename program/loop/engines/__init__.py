"""The two ways to an answer, behind one door: the embedded reader quotes, a model that writes is prompted.

A question has one engine from its beginning to its end. The loop asks it what the evidence is worth, and for the
answer; who judges and who writes is the engine's own affair.
"""

from __future__ import annotations

from typing import Protocol

from ragc.answer import Answer, StoppedBy
from ragc.loop.decide import Verdict
from ragc.loop.engines.prompting import PromptingEngine
from ragc.loop.engines.quoting import QuotingEngine
from ragc.loop.state import Flow, State

__all__ = ["Engine", "engine_of"]


class Engine(Protocol):
    """What the loop asks of either way."""

    def judge(self, state: State) -> Flow[Verdict]:
        """Return what the evidence is worth, and what would be searched next."""

    def write(self, state: State, stopped_by: StoppedBy) -> Flow[Answer | None]:
        """Return the answer from the evidence; None when nothing of it can be said."""


def engine_of(state: State) -> Engine:
    """Return the engine of a question."""
    return QuotingEngine() if state.program.quotes else PromptingEngine()
