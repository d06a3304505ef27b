"""The setting of each operating point, chosen by folds on questions the search did not see.

A point is a price of a model call: nothing (`quality`), the project's own (`balanced`), a lot (`economy`). "As it is",
the program before the compile with the demonstrations that it had or had not, competes: another setting is taken only
where the lower one-sided 90 % limit of its gain is above 0, each fold of topics judged by what is best without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from optimize.compiler.runs.runner import AnyArm
from optimize.compiler.scoring import (
    LEAST_TOPICS,
    Scores,
    Scoring,
    best_row,
    gain_out_of_fold,
    group_topics,
    limit_to_reach,
    setting_key,
    survives,
)
from optimize.evaluation.outcome import BALANCED
from program.errors import BudgetStop
from program.loop.policy import Setting, is_candidate

DEAR = 0.15  # utility that a model call costs at `economy`, or twice the project's own price where that is more
STEEPER, STEEPEST = 1.5, 20.0
"""Factor by which that price is raised until a setting of fewer calls is the best, and the price where that ends."""
REVERTED = 12  # settings tried at most to simplify one
ONE_ERROR = 0.16  # chance of a normal mean's lower limit that is one standard error below it
EQUAL = 1e-9
FEWEST = 8  # answers under which no bound of confidence is fitted


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting with its mean utility, model calls and US dollars a question."""

    setting: Setting
    utility: float
    calls: float
    usd: float = 0.0


@dataclass(frozen=True, slots=True)
class OperatingPoints:
    """The settings chosen."""

    points: Mapping[str, Setting]  # the setting of each named point
    frontier: Sequence[Candidate] = ()  # settings that no other beats, scored on train (out of fold) and dev
    survived: Collection[str] = ()  # the points whose gain over "as it is" survived the folds
    named: Mapping[str, Candidate] = field(default_factory=dict)  # each point with what it comes to on train and dev
    stages: Sequence[Mapping[str, Any]] = ()
    """Utility and calls on train and dev of the best setting of each stage of the search, and of `balanced`."""

    def only_balanced(self) -> OperatingPoints:
        """Return the choice where a version has no other point."""
        return replace(self, points={BALANCED: self.points[BALANCED]}, frontier=())

    def seal(self) -> OperatingPoints:
        """Return the points without choices among candidates."""
        points = {name: without_choices(setting) for name, setting in self.points.items()}
        return replace(
            self, points=points, frontier=[replace(c, setting=without_choices(c.setting)) for c in self.frontier]
        )

    def dump_frontier(self) -> list[dict[str, Any]]:
        """Return the frontier as JSON values."""
        return [asdict(candidate) for candidate in self.frontier]


class Validation:
    """Scores of settings on train, each topic unseen, and then on dev; of its topics those that a cap reaches."""

    def __init__(self, train: Scoring, dev: AnyArm, price: float) -> None:
        self.train = train
        self.price = price
        self._whole = dev
        self.dev = train.over([dev])

    def __call__(self, setting: Setting) -> Scores:
        """Return the scores of every question. Raises `BudgetStop` when a cap is reached on what is not known."""
        scores = self.train(setting)
        return scores.append(self.dev(setting)) if self.dev.questions else scores

    def limit_to_reach(self, settings: Sequence[Setting]) -> None:
        """Leave of dev the topics on which a cap lets all settings be scored."""
        limited = limit_to_reach([self._whole], settings, least=0)
        questions = [question for arm in limited for question in arm.questions]
        self.dev = self.train.over(limited if len(group_topics(questions)) >= LEAST_TOPICS else [])

    @property
    def topics(self) -> list[str]:
        """The topic of each question, in the order of the scores."""
        return [question.cluster for question in (*self.train.questions, *self.dev.questions)]


def choose_points(
    validation: Validation,
    *,
    stages: Mapping[str, Setting],
    finalists: Sequence[Setting],
    as_it_is: Setting,
    progress: Callable[[int], None] = lambda done: None,
) -> OperatingPoints:
    """Return the setting of each named point at its price of a call.

    By cross-validation over topics: for each fold the best finalist is chosen without it and judged on it against "as
    it is". A choice stands only if those gains survive, and those of the setting with as much as possible of "as it
    is". Otherwise `balanced` is "as it is", and another point is what `balanced` is. A program holds one instruction
    and one set of demonstrations for each predictor, those of `balanced`, with which the frontier is scored anew.
    """
    try:
        chooser = _Chooser(validation, as_it_is, progress)
    except BudgetStop:
        return OperatingPoints({BALANCED: as_it_is})
    own = validation.price
    balanced = chooser.choose(chooser.score_all(finalists), own, simplify=True)
    survived = [] if balanced is None else [BALANCED]
    balanced = as_it_is if balanced is None else balanced
    choices = {name: value for name, value in balanced.items() if is_candidate(name)}
    front = chooser.score_all([balanced, *({**setting, **choices} for setting in (as_it_is, *finalists))])
    points = {BALANCED: balanced}
    for name, price in price_points(to_candidates(front), own).items():
        if name != BALANCED:
            found = chooser.choose(front, price)
            points[name] = balanced if found is None else found
            survived += [name] if found is not None else []
    scored = chooser.score_all([*points.values(), *(setting for setting, _ in front)])
    candidates = {setting_key(candidate.setting): candidate for candidate in to_candidates(scored)}
    return OperatingPoints(
        points,
        find_frontier(list(candidates.values())),
        survived,
        {name: candidates[key] for name, setting in points.items() if (key := setting_key(setting)) in candidates},
        chooser.compare_stages({**stages, "chosen": balanced}),
    )


Scored = list[tuple[Setting, Scores]]


class _Chooser:
    """Judges settings against "as it is"; raises `BudgetStop` when that cannot be scored."""

    def __init__(self, validation: Validation, as_it_is: Setting, progress: Callable[[int], None]) -> None:
        self._validation = validation
        self._progress = progress
        self._as_it_is, self._before = as_it_is, validation(as_it_is)
        self._seen: set[Any] = set()

    def score_all(self, settings: Sequence[Setting]) -> Scored:
        """Return the settings that no cap keeps from being scored, each once."""
        scored: dict[Any, tuple[Setting, Scores]] = {}
        with suppress(BudgetStop):
            for setting in settings:
                scored.setdefault(setting_key(setting), (setting, self._score_setting(setting)))
        return list(scored.values())

    def choose(self, scored: Scored, price: float, simplify: bool = False) -> Setting | None:
        """Return the best setting at a price, if its gain survives the folds."""
        own, validation = self._validation.price, self._validation
        if not scored:
            return None
        table = np.array([self._before.price_calls(price, own), *(s.price_calls(price, own) for _, s in scored)])
        gains = gain_out_of_fold(table, validation.topics, among=slice(1, None))
        if not survives(gains, validation.topics):
            return None
        best = scored[best_row(table[1:])][0]
        for setting in (self._simplify_setting(best) if simplify else best, best):
            if self.proves_gain(setting, price):
                return setting
        return None

    def proves_gain(self, setting: Setting, price: float) -> bool:
        """Return True when a setting surely gains over "as it is"."""
        own = self._validation.price
        with suppress(BudgetStop):
            gain = self._score_setting(setting).price_calls(price, own) - self._before.price_calls(price, own)
            return survives(gain, self._validation.topics)
        return False

    def compare_stages(self, stages: Mapping[str, Setting]) -> list[dict[str, Any]]:
        """Return utility and calls of each stage's setting."""
        scored = self.score_all(list(stages.values()))
        found = {setting_key(setting): scores for setting, scores in scored}
        return [
            {"name": name, "utility": round(float(np.nanmean(s.utility)), 6), "calls": round(s.mean_calls, 6)}
            for name, setting in stages.items()
            if (s := found.get(setting_key(setting))) is not None
        ]

    def _score_setting(self, setting: Setting) -> Scores:
        scores = self._validation(setting)
        self._seen.add(setting_key(setting))
        self._progress(len(self._seen))
        return scores

    def _simplify_setting(self, setting: Setting) -> Setting:
        """Return the setting with those values of "as it is" that are worth about as much, tried in halves.

        They cost no more calls, and are worth what the setting is within one standard error (Breiman et al. 1984,
        "Classification and Regression Trees", section 3.4.3): what gains less was fitted to these questions rather than
        to their kind.
        """
        reached, start = dict(setting), self._as_it_is
        waiting = [sorted(name for name in reached if reached[name] != start.get(name, reached[name]))]
        with suppress(BudgetStop):
            best = self._score_setting(reached)
            for _ in range(REVERTED):
                names = waiting.pop(0) if waiting else []
                if not names:
                    break
                tried = {**reached, **{name: start[name] for name in names}}
                scores = self._score_setting(tried)
                lost = survives(best.credited - scores.credited, self._validation.topics, ONE_ERROR)
                if not lost and scores.mean_calls <= best.mean_calls + EQUAL:
                    reached = tried
                elif len(names) > 1:
                    waiting += [names[: len(names) // 2], names[len(names) // 2 :]]
        return reached


def price_points(candidates: Sequence[Candidate], own: float) -> dict[str, float]:
    """Return the price of a model call at each named point.

    At `economy` it is DEAR, or twice the project's own; where what is best at `balanced` is best there too, as much as
    it takes until a setting of fewer calls is the best.
    """
    dear = max(DEAR, 2 * own)
    if candidates:
        calls = find_best(candidates, own, own).calls
        while dear < STEEPEST and find_best(candidates, dear, own).calls >= calls - EQUAL:
            dear *= STEEPER
    return {"quality": 0.0, BALANCED: own, "economy": dear}


def find_best(candidates: Sequence[Candidate], price: float, own: float) -> Candidate:
    """Return the candidate of most utility when a call costs `price`."""
    return max(candidates, key=lambda c: (round(c.utility + (own - price) * c.calls, 9), -c.calls))


def find_frontier(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that no other beats, those of fewest calls first."""
    kept: list[Candidate] = []
    for one in sorted(candidates, key=lambda c: (c.calls, -c.utility, c.usd)):
        if not any(other.utility >= one.utility - EQUAL and other.usd <= one.usd + EQUAL for other in kept):
            kept.append(one)
    return kept


def to_candidates(scored: Scored) -> list[Candidate]:
    """Return the settings with their means."""
    return [Candidate(setting, float(np.nanmean(s.utility)), s.mean_calls, s.mean_usd) for setting, s in scored]


def fit_doubt(judged: Sequence[tuple[float, bool]]) -> float:
    """Return the confidence under which most answers were wrong, else 0.

    `judged` has each answer's confidence, and whether it was wrong.
    """
    ranked = sorted(judged)
    excess = np.cumsum([1 if wrong else -1 for _, wrong in ranked])
    if len(ranked) < FEWEST or excess.max() <= 0:
        return 0.0
    last = int(np.flatnonzero(excess == excess.max())[-1])
    return float(ranked[last + 1][0] if last + 1 < len(ranked) else 1.0)


def without_choices(setting: Setting) -> Setting:
    """Return a setting without its choices among candidates."""
    return {name: value for name, value in setting.items() if not is_candidate(name)}
