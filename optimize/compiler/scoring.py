"""A setting on many labelled questions, as numbers: utility, routing, calls. What does not change is not done again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optimize.compiler.abreast import Abreast, close_files, half_the_threads
from optimize.compiler.paths import NONE
from optimize.compiler.replay import Replay
from optimize.compiler.scores import CREDIT, UNKNOWN, Floats, Scores, Values
from optimize.compiler.spending import Spending
from optimize.evaluation.metrics import judge_answer, score_routing, score_support, score_utility
from optimize.labelled.dataset import LabelledQuestion
from program.answer import Answer
from program.loop.policy import ProgramParameters, Setting
from program.settings import UtilitySettings


@dataclass(frozen=True, slots=True)
class Arm:
    """A program (through a replay) and the questions it may be judged on: its demonstrations hold none of them."""

    replay: Replay
    questions: Sequence[LabelledQuestion]


class Scoring:
    """Scores settings on the questions of several arms, in the order of the arms."""

    def __init__(self, arms: Sequence[Arm], weights: UtilitySettings) -> None:
        self._arms = arms
        self._weights = weights
        self._places = [(a, q) for a, arm in enumerate(arms) for q in range(len(arm.questions))]
        self._known: dict[tuple[Any, ...], tuple[float, float]] = {}
        self._grades: dict[tuple[int, int], Values] = {}  # by place and run
        self._setting: Setting = {}
        questions = [question for arm in arms for question in arm.questions]
        self._ids = [question.id for question in questions]
        self._answered = np.array([float(q.outcome == "answered") for q in questions])
        self._routed = np.array([q.route is not None for q in questions])
        self._broken = np.zeros(len(questions), bool)
        self._abreast: Abreast | None = None
        self._found = Scores.none(len(questions))
        self._asked = np.zeros(len(questions), bool)
        self.broken: dict[str, str] = {}

    def __call__(self, setting: Setting, at: Sequence[int] | None = None) -> Scores:
        """The questions at those places, or all, under a setting."""
        places = range(len(self._places)) if at is None else at
        found, told = (self._abreast or self._scored)(setting, places), Scores.none(len(self._places))
        if self.broken:
            self._broken = np.array([id_ in self.broken for id_ in self._ids])
        wanted = [place for place in places if not self._broken[place]]
        told.take(found, wanted)
        return told

    def known(self, setting: Setting) -> Scores:
        """The questions whose run under a setting is known, without asking any."""
        self._look_up(setting)
        return Scores(*(column.copy() for column in self._found.columns))

    @contextmanager
    def abreast(self, spending: Spending) -> Iterator[None]:
        """Inside, every other arm is scored by a second process; what that spends is added to `spending`."""
        far = [number % 2 == 1 for number, _ in self._places]
        first = self._arms[0].replay  # all arms have one record
        with half_the_threads():
            close_files(first.program, first.record)
            self._abreast = Abreast(self._scored, far, self.broken, spending, first.record)
            try:
                yield
            finally:
                self._abreast.close()
                self._abreast = None

    @cached_property
    def _turning(self) -> list[ProgramParameters]:
        return [ProgramParameters(arm.replay.program) for arm in self._arms]

    def _scored(self, setting: Setting, places: Sequence[int]) -> Scores:
        """At least these questions: all whose run is known are looked up at once, and the rest of these are asked."""
        if setting != self._setting or not self._asked.any():
            self._look_up(setting)
        groups: dict[int, list[int]] = defaultdict(list)
        for place in places:
            if not self._asked[place]:
                groups[self._places[place][0]].append(place)
        for number in sorted(groups):
            arm = self._arms[number]
            self._turning[number].apply(setting)
            asked = [arm.questions[self._places[place][1]] for place in groups[number]]
            answers = arm.replay.answers([question.question for question in asked])
            for place, question, answer in zip(groups[number], asked, answers, strict=True):
                self._found.put(place, self._graded(question, answer))
                self._asked[place] = True
        return self._found

    def _look_up(self, setting: Setting) -> None:
        """Puts in place what the runs that are known come to under a setting."""
        self._setting = dict(setting)
        self._found = Scores.none(len(self._places))
        self._asked = np.zeros(len(self._places), bool)
        first = 0
        for number, arm in enumerate(self._arms):
            self._turning[number].apply(setting)
            runs = arm.replay.known([question.question for question in arm.questions])
            for place, question, run in zip(range(first, first + len(runs)), arm.questions, runs, strict=True):
                if run == NONE:
                    continue
                if (place, run) not in self._grades:
                    self._grades[place, run] = self._graded(question, arm.replay.answer(run))
                self._found.put(place, self._grades[place, run])
                self._asked[place] = True
            first += len(runs)

    def ceiling(self, price: float) -> Floats:
        """The most each question can be worth when a call costs `price`: an answer, which takes a call where the label
        says that there is one, or a refusal, which need not take any."""
        answered = max(self._weights.correct, self._weights.wrong) - price * self._answered
        return np.maximum(answered, self._weights.missed)

    @property
    def bends(self) -> list[float]:
        """The prices at which `ceiling` bends: a refusal is worth more than an answer from there on."""
        return [max(self._weights.correct, self._weights.wrong) - self._weights.missed]

    def most(self, scores: Scores, price: float) -> float:
        """The most that a setting scored on some questions can come to on all of them, a call costing `price`."""
        asked = ~np.isnan(scores.utility)
        value = np.where(asked, scores.utility + (self._weights.call - price) * scores.spent, self.ceiling(price))
        total = float(value[~self._broken].mean())
        routed = np.where(asked, scores.routing, 1.0)[self._routed & ~self._broken]
        return total + (CREDIT * float(np.nanmean(routed)) if len(routed) else 0.0)

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        return {p.id: p.text for p in self._arms[0].replay.program.runtime.library.passages()}

    def _text_of(self, passage: str) -> str:
        return self._texts.get(passage, "")

    def _graded(self, question: LabelledQuestion, answer: Answer) -> Values:
        """Utility, routing (NaN when no label tells), calls, dollars; one whose grade raises is noted, left out."""
        if question.id in self.broken:
            return UNKNOWN
        calls, usd = answer.usage.calls, answer.usage.usd
        key = (question.id, answer.outcome, answer.text, answer.route, answer.sources, answer.citations, calls, usd)
        known = self._known.get(key)
        if known is None:
            try:
                verdict, held = (
                    judge_answer(question, answer.outcome, answer.text),
                    score_support(answer, self._text_of),
                )
                worth = score_utility(verdict, answer.outcome, calls, self._weights, held, usd)
                routed = score_routing(question, answer)
            except Exception as error:
                self.broken[question.id] = f"{type(error).__name__}: {error}"
                return UNKNOWN
            known = self._known[key] = (worth, np.nan if routed is None else routed)
        return *known, float(calls), usd
