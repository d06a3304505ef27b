"""What a compile asks of a program: its runs on questions, under one setting after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import dspy

from ragc.optimize.labelled.dataset import Question

Chances = float | Mapping[Any, float] | Sequence[float]
"""The probability of yes; else those of the options, or of a Score's levels from the lowest on."""


class Decided(NamedTuple):
    """A decision that a run came by: of which output, and with what probabilities."""

    predictor: str
    output: str
    chances: Chances


class Runner(Protocol):
    """Runs a program from a record of what its models replied; only what the record lacks is asked.

    Parameters, demonstrations and instructions of the program may be exchanged between two calls, not during one.
    """

    @property
    def program(self) -> dspy.Module:
        """The program that is run."""

    @property
    def replays(self) -> bool:
        """False once the program was seen to do something else under the same replies."""

    def answer_all(self, questions: Sequence[Any]) -> Sequence[Any]:
        """Return the answers, in order, each with its `usage`.

        Raises `BudgetStop` when a cap keeps one from being found.
        """

    def decide_all(self, questions: Sequence[Any]) -> list[list[Decided]]:
        """Return the decisions on the way to each answer; raises as `answer_all`."""


R_co = TypeVar("R_co", bound=Runner, covariant=True)
Q_co = TypeVar("Q_co", bound=Question, covariant=True)


@dataclass(frozen=True, slots=True)
class Arm(Generic[R_co, Q_co]):
    """A program's runs, and questions of which its demonstrations hold none."""

    replay: R_co
    questions: Sequence[Q_co]


AnyArm = Arm[Runner, Question]
