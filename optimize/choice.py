"""The setting of each operating point, chosen on questions the search did not see: a gain has to survive the folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from optimize.dataset import LabelledQuestion
from optimize.front import Candidate, frontier, prices
from optimize.preparation import Preparation, topics_apart
from optimize.scores import Scores
from optimize.scoring import Arm, Scoring
from optimize.simplify import simplified
from optimize.study import Search
from optimize.survival import survives
from optimize.trials import Trial
from program.errors import BudgetStop
from program.parameters import Setting, is_candidate
from program.rag import AgenticRAG

FINALISTS = 12
FRONTIER = 12

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting of each named point, the whole frontier, and whether a gain over "as it is" survived the folds.

    `reached` is the utility of `balanced` on train (out of fold) and dev, or on dev when it is as it is; `oracle` that
    of the best finalist for each question: what choosing by question could add. `named` has what each point is worth
    there.
    """

    points: Mapping[str, Setting]
    frontier: Sequence[Candidate]
    survived: bool
    gain: float
    reached: float = 0.0
    oracle: float = 0.0
    named: Mapping[str, Candidate] = field(default_factory=dict)

    def sealed(self) -> Choice:
        """Without the places of candidates: what was chosen of them is the program's own."""
        return replace(
            self,
            points={name: _values(setting) for name, setting in self.points.items()},
            frontier=[replace(one, setting=_values(one.setting)) for one in self.frontier],
        )


def choose(ready: Preparation, search: Search, final: AgenticRAG) -> Choice:
    """Chooses among the finalists on train (out of fold) and dev together.

    By cross-validation over the topics of dev: for each fold the best setting is chosen without it and judged on it
    against "as it is". The choice is made only if those gains are positive and exceed their standard error, taken by
    topic; else everything stays as it is, but that a decider without demonstrations is given those labelled. What is
    chosen is then rid of every value that does no good. A program holds one instruction and one set of demonstrations
    for each predictor: those of `balanced`, which every other point and the frontier keep to. Without dev questions, or
    when a cap is reached on them, the gain is that of train.
    """
    finalists = search.finalists(FINALISTS)
    own = ready.project.settings.utility.call
    as_it_is = {**search.as_it_is, **ready.begun}
    if not finalists:
        return Choice(dict.fromkeys(prices(own), as_it_is), [], False, 0.0)
    train = {t.number: search.scores(t.setting) for t in finalists}
    dev = list(ready.parts["dev"])
    scoring = Scoring([Arm(ready.replay(final), dev)], ready.project.settings.utility)
    held = {t.number: Scores.none(0) for t in finalists}
    before = Scores.none(0)
    try:
        held = {t.number: scoring(t.setting) for t in finalists} if dev else held
        before = scoring(as_it_is) if dev else before
    except BudgetStop:
        dev, held = [], {t.number: Scores.none(0) for t in finalists}
    rows = _Rows(finalists, train, held, own)
    gains = _out_of_fold(rows, dev, own, before.utility) if dev else _on_train(rows, search, own, as_it_is)
    groups = [q.topic or q.id for q in dev] if dev else [q.topic or q.id for a in ready.arms for q in a.questions]
    survived = survives(gains.tolist(), groups)

    def worth(price: float) -> Callable[[Setting], float]:
        return lambda setting: search.scores(setting).beside(scoring(setting)).at(price, own)

    points = dict.fromkeys(prices(own), as_it_is)
    if survived:
        by_number = {t.number: t.setting for t in finalists}
        balanced = simplified(by_number[rows.best(own)], search.fitted, worth(own))
        for name, price in prices(own).items():
            kept = {**by_number[rows.best(price)], **_places(balanced)}
            points[name] = (
                balanced if price == own else simplified(kept, {**search.fitted, **_places(kept)}, worth(price))
            )
    try:
        named = {
            name: _candidate(setting, search.scores(setting).beside(scoring(setting)))
            for name, setting in points.items()
        }
    except BudgetStop:
        named = {}
    every = [Candidate(t.setting, rows.mean(t.number, own), rows.calls(t.number)) for t in finalists]
    every = [one for one in (*named.values(), *every) if _places(one.setting) == _places(points["balanced"])]
    reached = rows.mean(rows.best(own), own) if survived else float(np.nanmean(before.utility)) if dev else 0.0
    oracle = float(np.nanmean(np.max([rows.utility[t.number] for t in finalists], axis=0)))
    return Choice(
        points,
        frontier(every, own)[-FRONTIER:],
        survived,
        0.0 if np.isnan(gains).all() else float(np.nanmean(gains)),
        reached,
        oracle,
        named,
    )


def _candidate(setting: Setting, scores: Scores) -> Candidate:
    return Candidate(setting, float(np.nanmean(scores.utility)), scores.calls)


def _places(setting: Setting) -> Setting:
    return {name: value for name, value in setting.items() if is_candidate(name)}


def _values(setting: Setting) -> Setting:
    return {name: value for name, value in setting.items() if not is_candidate(name)}


class _Rows:
    """Utility and calls of every finalist on every question, train first, then dev."""

    def __init__(
        self, finalists: Sequence[Trial], train: Mapping[int, Scores], held: Mapping[int, Scores], own: float
    ) -> None:
        self._numbers = [t.number for t in finalists]
        self._own = own
        self.utility = {n: np.concatenate([train[n].utility, held[n].utility]) for n in self._numbers}
        self.spent = {n: np.concatenate([train[n].spent, held[n].spent]) for n in self._numbers}
        self._all = np.ones(len(self.utility[self._numbers[0]]), bool)

    def mean(self, number: int, price: float, on: NDArray[np.bool_] | None = None) -> float:
        """Mean utility, a call costing `price`."""
        values = self.utility[number] + (self._own - price) * self.spent[number]
        return float(np.nanmean(values[self._all if on is None else on]))

    def calls(self, number: int) -> float:
        return float(np.nanmean(self.spent[number]))

    def best(self, price: float, on: NDArray[np.bool_] | None = None) -> int:
        """The finalist of most utility at that price; of equals the first."""
        return max(self._numbers, key=lambda n: (round(self.mean(n, price, on), 12), -self._numbers.index(n)))


def _on_train(rows: _Rows, search: Search, own: float, as_it_is: Setting) -> Floats:
    """The gain of each training question under the best setting; unknown where a cap leaves "as it is" unasked."""
    try:
        before = search.scores(as_it_is)
    except BudgetStop:
        before = search.known(as_it_is)
    return np.asarray(rows.utility[rows.best(own)] - before.utility)


def _out_of_fold(rows: _Rows, dev: Sequence[LabelledQuestion], own: float, before: Floats) -> Floats:
    """The gain of each dev question under the setting chosen without its topic, over what it is worth `before`."""
    questions = list(dev)
    total = len(rows.utility[rows.best(own)])
    first = total - len(questions)
    gains = np.full(len(questions), np.nan)
    for part in topics_apart(questions):
        inside = {id(q) for q in part}
        places = [n for n, q in enumerate(questions) if id(q) in inside]
        others = np.ones(total, bool)
        others[[first + n for n in places]] = False
        found = rows.utility[rows.best(own, others)]
        for n in places:
            gains[n] = found[first + n] - before[n]
    return gains
