"""The two ways to an answer, behind one door: the embedded reader quotes, a model that writes is prompted.

A question has one engine from its beginning to its end. The loop asks it to `judge` what the evidence is worth, and to
`write` the answer, None when nothing of it can be said; who judges and who writes is the engine's own affair.
"""

from __future__ import annotations

from ragc.loop.engines.prompting import PromptingEngine
from ragc.loop.engines.quoting import QuotingEngine
from ragc.loop.state import State

__all__ = ["Engine", "engine_of"]

Engine = QuotingEngine | PromptingEngine


def engine_of(state: State) -> Engine:
    """Return the engine of a question."""
    return QuotingEngine() if state.program.quotes else PromptingEngine()
