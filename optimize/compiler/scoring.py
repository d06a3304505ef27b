"""Settings scored on labelled questions by replay: utility, routing, calls and money of each question."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimize.compiler.replay import Arm
from optimize.evaluation.metrics import judge_answer, score_support
from optimize.evaluation.metrics import score_routing as routing
from optimize.evaluation.metrics import score_utility as utility
from optimize.evaluation.stats import paired_test
from optimize.labelled.dataset import LabelledQuestion
from program.answer import Answer
from program.loop.policy import ProgramParameters, Setting
from program.settings import UtilitySettings

ROUTING_CREDIT = 0.1
"""Worth of a question routed right in a search, so that ties fall to the better router."""
FOLDS = 4

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scores:
    """Numbers of a setting, one a question; NaN where it was not asked or not graded, or no label tells `routing`."""

    utility: Floats
    routing: Floats
    calls: Floats
    usd: Floats

    @classmethod
    def of(cls, rows: Floats) -> Scores:
        """Return the scores in four rows."""
        return cls(rows[0], rows[1], rows[2], rows[3])

    def rows(self) -> Floats:
        """Return the four rows as one array."""
        return np.array([self.utility, self.routing, self.calls, self.usd])

    def take(self, places: Sequence[int]) -> Scores:
        """Return the scores of the questions at those places."""
        return Scores.of(self.rows()[:, list(places)])

    def append(self, other: Scores) -> Scores:
        """Return the scores of these questions and then of the other's."""
        return Scores.of(np.hstack([self.rows(), other.rows()]))

    def price_calls(self, price: float, own: float) -> Floats:
        """Return the utilities if a call cost `price` instead of the project's `own`."""
        return self.utility + (own - price) * self.calls

    @property
    def worth(self) -> float:
        """Mean utility, and the credit for the share routed right."""
        routed = self.routing[np.isfinite(self.routing)]
        return float(np.nanmean(self.utility) + ROUTING_CREDIT * (routed.mean() if len(routed) else 0.0))

    @property
    def mean_calls(self) -> float:
        """Model calls a question."""
        return float(np.nanmean(self.calls))

    @property
    def mean_usd(self) -> float:
        """US dollars a question."""
        return float(np.nanmean(self.usd))


class Scoring:
    """Scores settings on the questions of several arms, in the order of the arms; remembers each score.

    `broken` has the questions whose grading raised, and why; their scores are NaN.
    """

    def __init__(self, arms: Sequence[Arm], weights: UtilitySettings) -> None:
        self.arms = arms
        self.questions = [question for arm in arms for question in arm.questions]
        self.broken: dict[str, str] = {}
        self.weights = weights
        self._turning = [ProgramParameters(arm.replay.program) for arm in arms]
        self._known: dict[tuple[tuple[str, float], ...], Floats] = {}
        self._grades: dict[tuple[Any, ...], tuple[float, ...]] = {}

    def __call__(self, setting: Setting, places: Sequence[int] | None = None) -> Scores:
        """Return the scores of the questions at those places, or of all; NaN elsewhere unless known before."""
        key = tuple(sorted(setting.items()))
        known = self._known.setdefault(key, np.full((4, len(self.questions)), np.nan))
        wanted = set(range(len(self.questions)) if places is None else places)
        first = 0
        for arm, turning in zip(self.arms, self._turning, strict=True):
            upto = first + len(arm.questions)
            open_ = [n for n in range(first, upto) if n in wanted and np.isnan(known[2, n])]
            if open_:
                turning.apply(setting)
                answers = arm.replay.answer_all([self.questions[n].question for n in open_])
                for n, answer in zip(open_, answers, strict=True):
                    known[:, n] = self._grade_answer(self.questions[n], answer)
            first = upto
        return Scores.of(known.copy())

    def _grade_answer(self, question: LabelledQuestion, answer: Answer) -> tuple[float, ...]:
        """Return utility, routing, calls and US dollars; the first two are NaN when grading raises."""
        calls, usd = float(answer.usage.calls), answer.usage.usd
        key = (question.id, answer.outcome, answer.text, answer.route, answer.sources, answer.citations, calls, usd)
        if key not in self._grades:
            try:
                verdict = judge_answer(question, answer.outcome, answer.text)
                held = score_support(answer, lambda passage: self._texts.get(passage, ""))
                worth = utility(verdict, answer.outcome, int(calls), self.weights, held, usd)
                routed = routing(question, answer)
                self._grades[key] = worth, np.nan if routed is None else routed, calls, usd
            except Exception as error:
                self.broken[question.id] = f"{type(error).__name__}: {error}"
                self._grades[key] = np.nan, np.nan, calls, usd
        return self._grades[key]

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        return {p.id: p.text for p in self.arms[0].replay.program.runtime.library.passages()}


def split_topics(topics: Sequence[str], most: int = FOLDS) -> list[list[int]]:
    """Return the places of questions, given their topics, in at most `most` parts of about one size, no topic in two.

    For cross-fitting: each part is judged by a program whose demonstrations hold none of its topics.
    """
    sizes = Counter(topics)
    parts: list[set[str]] = [set() for _ in range(min(most, len(sizes)))]
    for topic in sorted(sizes, key=lambda t: (-sizes[t], t)):
        min(parts, key=lambda part: sum(sizes[t] for t in part)).add(topic)
    return [[n for n, topic in enumerate(topics) if topic in part] for part in parts]


def group_topics(questions: Sequence[LabelledQuestion]) -> list[list[int]]:
    """Return the places of the questions of each topic."""
    topics: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        topics[question.cluster].append(place)
    return list(topics.values())


def gain_out_of_fold(table: Floats, topics: Sequence[str], held: Sequence[int], among: slice = slice(None)) -> Floats:
    """Return the gain over the first row by the row, of those `among`, that is best without the question's fold.

    Folds are made of the topics of the questions at the places `held`; NaN elsewhere.
    """
    gains = np.full(len(topics), np.nan)
    for fold in split_topics([topics[n] for n in held]):
        mine = np.zeros(len(topics), bool)
        mine[[held[n] for n in fold]] = True
        if not mine.all():
            best = best_row(table[among][:, ~mine])
            gains[mine] = table[among][best][mine] - table[0][mine]
    return gains


def best_row(table: Floats) -> int:
    """Return the row of the highest mean; of equals the first."""
    return int(np.argmax(np.round(np.nanmean(table, axis=1), 12)))


def survives(gains: Floats, topics: Sequence[str]) -> bool:
    """Return True when the mean gain is positive and at least its standard error, clustered by topic.

    NaN is left out; nothing survives on one topic alone.
    """
    known = np.isfinite(gains)
    groups = [topic for topic, there in zip(topics, known, strict=True) if there]
    if len(set(groups)) < 2:
        return False
    test = paired_test([0.0] * len(groups), gains[known].tolist(), groups)
    return test.difference > 0 and test.difference >= test.spread / test.units**0.5
