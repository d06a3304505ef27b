"""What happened while a question was answered: a readable path, and each step with its cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4


@dataclass(frozen=True, slots=True)
class Step:
    """One request the loop made: what, on which inputs (by digest), what came back, and what it took.

    `scores` are the probabilities of a decision by output; `began` is in seconds since the epoch; `model` is
    empty for a search. `error` is the type of what a failed request raised, whose `output` says why.
    """

    name: str
    inputs: str
    output: str
    milliseconds: float
    tokens_in: int = 0
    tokens_out: int = 0
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)
    began: float = 0.0
    model: str = ""
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The step as a line of the log holds it."""
        return {
            "name": self.name,
            "inputs": self.inputs,
            "output": self.output,
            "scores": {name: round(score, 4) for name, score in self.scores.items()},
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "ms": round(self.milliseconds, 2),
            "model": self.model,
            **({"error": self.error} if self.error else {}),
        }


@dataclass(frozen=True, slots=True)
class Trace:
    """The path of one question, as a person reads it, and its steps.

    `stood_in` are the notes of the path that say who answered for whom, the first of each.
    """

    id: str = ""
    path: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    stood_in: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " > ".join(self.path)


def new_trace_id() -> str:
    return uuid4().hex[:16]
