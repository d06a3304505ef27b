"""Settings scored by replay on labelled questions, each on topics that its program was not shown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragc.answer import Outcome
from ragc.errors import BudgetStop
from ragc.loop.policy import ProgramParameters, Setting
from ragc.optimize.compiler.runs.runner import AnyArm, Decided
from ragc.optimize.compiler.runs.workers import Workers
from ragc.optimize.evaluation.evaluate import Grading
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.stats import ALPHA, one_sided_limits
from ragc.optimize.labelled.dataset import Question

ROUTING_CREDIT = 0.1  # worth of a question routed right in a search, so that ties fall to the better router
FOLDS = 4
PREVIEW, FEW = 3, 60  # what is tried is first scored on every third question, where there are more than 60

Floats = NDArray[np.float64]


class Scores(NamedTuple):
    """Numbers of a setting, one a question; NaN where it was not asked or not graded, or no label tells `routing`."""

    utility: Floats
    routing: Floats
    calls: Floats
    usd: Floats
    confidence: Floats  # of an answer; 0 of a refusal, NaN where a program tells none

    def price_calls(self, price: float, own: float) -> Floats:
        """Return the utilities if a call cost `price` instead of the project's `own`."""
        return self.utility + (own - price) * self.calls

    @property
    def merit(self) -> Floats:
        """Utility of each question, and the credit for routing; 0 where neither is known."""
        return np.nan_to_num(self.utility) + ROUTING_CREDIT * np.nan_to_num(self.routing)

    @property
    def worth(self) -> float:
        """Mean utility, and the credit for the share routed right."""
        return float(np.nanmean(self.credited))

    @property
    def unit(self) -> str:
        """What `worth` is, in words."""
        return "utility + routing credit" if np.isfinite(self.routing).any() else "utility"

    @property
    def credited(self) -> Floats:
        """Each question's utility, with credit for a right route; the mean is `worth`."""
        known = np.isfinite(self.routing)
        share = ROUTING_CREDIT * len(known) / max(known.sum(), 1)
        return np.asarray(self.utility + share * np.where(known, self.routing, 0.0))


class Scoring:
    """Settings scored on the questions of several arms, once each; `broken` says what could not be graded.

    `fork` makes the processes that share the work; each question always goes to the same one.
    """

    def __init__(
        self,
        arms: Sequence[AnyArm],
        grade: Grading,
        fork: Callable[[Callable[[Any], Any]], Workers[Any, Any]] = Workers,
    ) -> None:
        self.arms = arms
        self.questions = [question for arm in arms for question in arm.questions]
        self._arm_of = [at for at, arm in enumerate(arms) for _ in arm.questions]
        self.broken: dict[str, str] = {}
        self._turning = [ProgramParameters(arm.replay.program) for arm in arms]
        self._known: dict[tuple[tuple[str, float], ...], Floats] = {}
        self._grade = grade
        self._fork = fork
        self._workers = fork(lambda task: getattr(self, task[0])(*task[1:]))

    def __call__(self, setting: Setting, places: Sequence[int] | None = None) -> Scores:
        """Return the scores of the questions at those places, or of all; NaN elsewhere unless known before."""
        self.score_ahead([(setting, places)])
        self._score_here(setting, range(len(self.questions)) if places is None else sorted(places))
        return Scores(*self._scores_of(setting).copy())

    def read(self, setting: Setting) -> Scores:
        """Return the scores that are known already; NaN elsewhere."""
        return Scores(*self._scores_of(setting).copy())

    def score_ahead(self, wanted: Sequence[tuple[Setting, Sequence[int] | None]]) -> None:
        """Have workers score settings as far as no call is needed.

        They wait for one another only once: what can be wanted together should be.
        """
        tasks = []
        for setting, places in wanted:
            lacking = np.isnan(self._scores_of(setting)[2])
            every = range(len(self.questions)) if places is None else sorted(places)
            shares = self._split([n for n in every if lacking[n]])
            tasks += [(number, ("_score_share", setting, share)) for number, share in shares]
        for (_, (_, setting, share)), found in zip(tasks, self._workers.run(tasks), strict=True):
            if found is not None:
                self._scores_of(setting)[:, share], broken = found
                self.broken |= broken

    @property
    def preview(self) -> range:
        """The places of the questions on which what is tried is scored first."""
        return range(0, len(self.questions), PREVIEW if len(self.questions) > FEW else 1)

    @property
    def tried(self) -> int:
        """How many settings were scored on some of the questions."""
        return len(self._known)

    def decide_all(self, setting: Setting) -> list[list[Decided]]:
        """Return the decisions on the way to each answer; a cap raises `BudgetStop`."""
        return self._gather("_decide", setting, range(len(self.questions)))

    def grade_all(self, setting: Setting) -> list[Grade]:
        """Return the graded answers of what was scored."""
        return self._gather("_grade_scored", setting, np.flatnonzero(np.isfinite(self._scores_of(setting)[2])).tolist())

    def loses(self, setting: Setting, to: Setting) -> bool:
        """Tell whether a setting loses to another on the preview, by a standard error."""
        gains = (self.read(setting).merit - self.read(to).merit)[self.preview]
        return float(gains.sum()) < -float(np.linalg.norm(gains))

    def over(self, arms: Sequence[AnyArm]) -> Scoring:
        """Return the same scoring over other arms."""
        return Scoring(arms, self._grade, self._fork)

    def _scores_of(self, setting: Setting) -> Floats:
        return self._known.setdefault(setting_key(setting), np.full((5, len(self.questions)), np.nan))

    def _split(self, places: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Return the number of each process that has some of the questions, and those."""
        shares: dict[int, list[int]] = defaultdict(list)
        for n in places:
            shares[n * self._workers.count // len(self.questions)].append(n)
        return list(shares.items())

    def _gather(self, work: str, setting: Setting, places: Sequence[int]) -> list[Any]:
        """Return what a method finds under a setting for the questions, a share in each process."""
        shares = self._split(places)
        found = self._workers.run([(number, (work, setting, share)) for number, share in shares])
        pairs = zip(shares, found, strict=True)
        return [one for (_, share), own in pairs for one in own or getattr(self, work)(setting, share)]

    def _run(self, setting: Setting, places: Sequence[int], what: str = "answer_all") -> Iterator[tuple[int, Any]]:
        """Yield the place of each question, in order, and what its arm's runs find for it."""
        for at, arm in enumerate(self.arms):
            if own := [n for n in places if self._arm_of[n] == at]:
                self._turning[at].apply(setting)
                yield from zip(own, getattr(arm.replay, what)([self.questions[n].asked for n in own]), strict=True)

    def _decide(self, setting: Setting, places: Sequence[int]) -> list[list[Decided]]:
        return [decided for _, decided in self._run(setting, places, "decide_all")]

    def _grade_scored(self, setting: Setting, places: Sequence[int]) -> list[Grade]:
        """Return the grades of answers that the record has, but of those that cannot be graded."""
        grades = []
        for n, answer in self._run(setting, places):
            with suppress(Exception):
                grades.append(self._grade(self.questions[n], answer))
        return grades

    def _score_here(self, setting: Setting, places: Sequence[int]) -> None:
        known = self._scores_of(setting)
        for n, answer in self._run(setting, [n for n in places if np.isnan(known[2, n])]):
            known[:, n] = *self._grade_answer(self.questions[n], answer), *_read_costs(answer)

    def _score_share(self, setting: Setting, share: list[int]) -> tuple[Floats, dict[str, str]]:
        """Return the scores of a setting on a share of the questions; NaN where a language model is asked."""
        self.broken = {}
        for places in (share, *([n] for n in share)):  # one by one where a call was refused
            with suppress(BudgetStop):
                self._score_here(setting, places)
        return self._scores_of(setting)[:, share], self.broken

    def _grade_answer(self, question: Question, answer: Any) -> tuple[float, float]:
        """Return utility and routing, NaN when grading raises."""
        try:
            grade = self._grade(question, answer)
        except Exception as error:
            self.broken[question.id] = f"{type(error).__name__}: {error}"
            return np.nan, np.nan
        if grade.failed:
            self.broken[question.id] = grade.failed
        routed = grade.metrics.get("routing_accuracy")
        return grade.utility, np.nan if routed is None else routed


def _read_costs(answer: Any) -> tuple[float, float, float]:
    """Return calls, US dollars, and the confidence of an answer."""
    sure = getattr(answer, "confidence", np.nan) if getattr(answer, "outcome", "") == Outcome.ANSWERED else 0.0
    return answer.usage.calls, answer.usage.usd, sure


def setting_key(setting: Setting) -> tuple[tuple[str, float], ...]:
    """Return a key that is equal for equal settings."""
    return tuple(sorted(setting.items()))


def split_topics(topics: Sequence[str]) -> list[list[int]]:
    """Return the places of questions in parts by topic, of about one size."""
    sizes = Counter(topics)
    parts: list[set[str]] = [set() for _ in range(min(FOLDS, len(sizes)))]
    held = [0] * len(parts)
    for topic in sorted(sizes, key=lambda t: (-sizes[t], t)):
        smallest = held.index(min(held))
        parts[smallest].add(topic)
        held[smallest] += sizes[topic]
    return [[n for n, topic in enumerate(topics) if topic in part] for part in parts]


def gain_out_of_fold(table: Floats, topics: Sequence[str]) -> Floats:
    """Return each question's gain by the row best without its fold."""
    gains = np.full(len(topics), np.nan)
    for fold in split_topics(topics):
        mine = np.zeros(len(topics), bool)
        mine[fold] = True
        if not mine.all():
            best = best_row(table[:, ~mine])
            gains[mine] = table[best][mine] - table[0][mine]
    return gains


def best_row(table: Floats) -> int:
    """Return the row of the highest mean; of equals the first."""
    return int(np.argmax(np.round(np.nanmean(table, axis=1), 12)))


def prove_gain(gains: Floats, topics: Sequence[str]) -> bool:
    """Tell whether the lower one-sided 95 % limit of a gain, by topics, is above 0.

    A question that could not be graded, whose gain is NaN, has no say. Fewer than two topics prove nothing.
    """
    known = np.isfinite(gains)
    groups = [topic for topic, there in zip(topics, known, strict=True) if there]
    return len(set(groups)) > 1 and one_sided_limits(gains[known].tolist(), groups, ALPHA)[0] > 0
