"""A setting on many labelled questions, as numbers: utility, routing, calls. What does not change is not done again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimize.dataset import LabelledQuestion
from optimize.metrics import judge, routing, utility
from optimize.replay import Replay
from program.answer import Answer
from program.parameters import Setting, apply
from program.settings import UtilitySettings

CREDIT = 0.1
"""What routing a question right is worth in a search, so that ties fall to the better router."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arm:
    """A program (through a replay) and the questions it may be judged on: its demonstrations hold none of them."""

    replay: Replay
    questions: Sequence[LabelledQuestion]


@dataclass(frozen=True, slots=True)
class Scores:
    """One number a question; NaN where it was not asked, could not be graded, or no label tells (`routing`)."""

    utility: Floats
    routing: Floats
    spent: Floats

    @classmethod
    def none(cls, n: int) -> Scores:
        return cls(np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan))

    def joined(self, other: Scores) -> Scores:
        """These, and the other's where these have none."""
        pairs = ((self.utility, other.utility), (self.routing, other.routing), (self.spent, other.spent))
        return Scores(*(np.where(np.isnan(a), b, a) for a, b in pairs))

    def beside(self, other: Scores) -> Scores:
        """These questions and the other's."""
        pairs = ((self.utility, other.utility), (self.routing, other.routing), (self.spent, other.spent))
        return Scores(*(np.concatenate(pair) for pair in pairs))

    def at(self, price: float, own: float) -> float:
        """The worth when a call costs `price` instead of the project's `own`."""
        return self.worth + (own - price) * self.calls

    @property
    def worth(self) -> float:
        """Mean utility and CREDIT times the share routed right."""
        routed = self.routing[~np.isnan(self.routing)]
        return float(np.nanmean(self.utility) + CREDIT * (routed.mean() if len(routed) else 0.0))

    @property
    def calls(self) -> float:
        """Model calls a question."""
        return float(np.nanmean(self.spent))


class Scoring:
    """Scores settings on the questions of several arms, in the order of the arms."""

    def __init__(self, arms: Sequence[Arm], weights: UtilitySettings) -> None:
        self._arms = arms
        self._weights = weights
        self._places = [(a, q) for a, arm in enumerate(arms) for q in range(len(arm.questions))]
        self._known: dict[tuple[Any, ...], tuple[float, float]] = {}
        questions = [arm.questions[q] for arm, q in ((arms[a], q) for a, q in self._places)]
        self._ids = [question.id for question in questions]
        self._answered = np.array([float(q.outcome == "answered") for q in questions])
        self._routed = np.array([q.route is not None for q in questions])
        self._broken = np.zeros(len(questions), bool)
        self.broken: dict[str, str] = {}

    def __call__(self, setting: Setting, at: Sequence[int] | None = None) -> Scores:
        """The questions at those places, or all, under a setting."""
        scores = Scores.none(len(self._places))
        groups: dict[int, list[int]] = defaultdict(list)
        for place in range(len(self._places)) if at is None else at:
            groups[self._places[place][0]].append(place)
        for number in sorted(groups):
            arm = self._arms[number]
            apply(arm.replay.program, setting)
            asked = [arm.questions[self._places[place][1]] for place in groups[number]]
            answers = arm.replay.answers([question.question for question in asked])
            for place, question, answer in zip(groups[number], asked, answers, strict=True):
                if question.id not in self.broken:
                    found = self._graded(question, answer)
                    scores.utility[place], scores.routing[place], scores.spent[place] = found
        if self.broken:
            self._broken = np.array([id_ in self.broken for id_ in self._ids])
            for column in (scores.utility, scores.routing, scores.spent):
                column[self._broken] = np.nan
        return scores

    def ceiling(self, price: float) -> Floats:
        """The most each question can be worth when a call costs `price`: one labelled as answered takes a call."""
        return np.asarray(self._weights.correct - price * self._answered)

    def most(self, scores: Scores, price: float) -> float:
        """The most that a setting scored on some questions can come to on all of them, a call costing `price`."""
        asked = ~np.isnan(scores.utility)
        value = np.where(asked, scores.utility + (self._weights.call - price) * scores.spent, self.ceiling(price))
        total = float(value[~self._broken].mean())
        routed = np.where(asked, scores.routing, 1.0)[self._routed & ~self._broken]
        return total + (CREDIT * float(np.nanmean(routed)) if len(routed) else 0.0)

    def _graded(self, question: LabelledQuestion, answer: Answer) -> tuple[float, float, float]:
        """Utility, routing (NaN when no label tells), calls; a question whose grade raises is noted and left out."""
        calls = answer.usage.calls
        key = (question.id, answer.outcome, answer.text, answer.route, answer.sources, calls)
        known = self._known.get(key)
        if known is None:
            try:
                worth = utility(judge(question, answer.outcome, answer.text), answer.outcome, calls, self._weights)
                routed = routing(question, answer)
            except Exception as error:
                self.broken[question.id] = f"{type(error).__name__}: {error}"
                return np.nan, np.nan, np.nan
            known = self._known[key] = (worth, np.nan if routed is None else routed)
        return *known, float(calls)
