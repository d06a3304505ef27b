"""The setting of each operating point, chosen on questions the search did not see: a gain has to survive the folds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from optimize.compiler.bench import Bench, Table
from optimize.compiler.front import Candidate, frontier, prices
from optimize.compiler.preparation import Preparation
from optimize.compiler.scores import Floats, Scores
from optimize.compiler.simplify import simplified
from optimize.compiler.study import Search
from program.loop.policy import Setting, is_candidate

FINALISTS = 6
BALANCED = "balanced"


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting of each named point, the whole frontier, and the points whose gain over "as it is" survived.

    `gain` is that of `balanced`. `reached` is its utility on train (out of fold) and dev, `oracle` on the same
    questions that of the best finalist for each: what choosing by question could add. `named` has what each point is
    worth there.
    """

    points: Mapping[str, Setting]
    frontier: Sequence[Candidate]
    survived: Collection[str]
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


def choose(ready: Preparation, search: Search, bench: Bench) -> Choice:
    """Chooses among the finalists on train (out of fold) and dev together, for each named point at its price of a call.

    By cross-validation over the topics of dev, or of train too where fewer than two of dev are there, or within a
    cap: for each fold the best setting is chosen without it and judged on it against "as it is". The choice is made
    only if those gains, and those of what is then sealed, are positive and exceed their standard error, taken by
    topic. What is chosen is rid of every value that does no good. Else `balanced` stays as it is, but that a decider
    without demonstrations is given those labelled, and that of a program never compiled is plain RAG where the gain
    of that survives. Another point is then what `balanced` is. A program holds one instruction and one set of
    demonstrations for each predictor: those of `balanced`, with which the whole frontier is scored anew. Should
    another point be worth more with these even at the project's own price, and that gain survive, it is `balanced` as
    well.
    """
    own = ready.project.settings.utility.call
    as_it_is = {**search.as_it_is, **ready.begun}
    finalists = [trial.setting for trial in search.finalists(FINALISTS)]
    table, before = bench.all(finalists, as_it_is)
    if not table.settings:
        return Choice(dict.fromkeys(prices([], own), as_it_is), [], (), 0.0)
    choosing = _Choosing(bench, as_it_is, before, own)
    first, gains = choosing.point(table, own, search.fitted, lambda scores: scores.worth)
    survived = [] if first is None else [BALANCED]
    balanced = choosing.simplest(ready) if first is None else first

    front = choosing.front(balanced, [as_it_is, *finalists])
    points = {}
    for name, price in prices(front.candidates, own).items():
        points[name] = balanced
        if name == BALANCED:
            continue
        worth = _without_routing(price, own)
        if (found := choosing.point(front, price, balanced, worth)[0]) is not None:
            survived.append(name)
            points[name] = found
    for name in [one for one in survived if one != BALANCED]:
        new = points[name]  # with these demonstrations, at the project's own price:
        if bench.survives(choosing.gain(new, own, balanced)) and bench.survives(gained := choosing.gain(new, own)):
            points = {other: new if one == balanced else one for other, one in points.items()}
            balanced, gains = new, gained
            survived = list(dict.fromkeys([BALANCED, *survived]))
    last = choosing.scored([*points.values(), *front.settings], shared=True)
    candidates = last.candidates
    named = {name: candidates[last.settings.index(one)] for name, one in points.items() if one in last.settings}
    every = np.vstack([table.utility, choosing.scored([balanced]).utility])
    known = ~np.isnan(every).any(axis=0)
    return Choice(
        points,
        frontier(candidates, own),
        survived,
        0.0 if np.isnan(gains).all() else float(np.nanmean(gains)),
        float(every[-1, known].mean()),
        float(every[:, known].max(axis=0).mean()),
        named,
    )


class _Choosing:
    """Judges, for one price of a call after the other, against what was worth `before`."""

    def __init__(self, bench: Bench, as_it_is: Setting, before: Scores, own: float) -> None:
        self._bench = bench
        self._as_it_is = as_it_is
        self._before = before
        self._own = own

    def point(
        self, table: Table, price: float, start: Setting, worth: Callable[[Scores], float]
    ) -> tuple[Setting | None, Floats]:
        """The best setting of a table at a price, rid of what does no good over `start`, if its gain survives."""
        gains = table.out_of_fold(self._bench, price, self._before)
        if not self._bench.survives(gains):
            return None, gains
        best = table.settings[table.best(price)]
        for setting in (simplified(best, start, lambda one: worth(self._bench(one))), best):
            if self._bench.survives(self.gain(setting, price)):
                return setting, gains
        return None, gains

    def simplest(self, ready: Preparation) -> Setting:
        """The setting as it is; before a first compile plain RAG, if its gain survives."""
        plain = ready.starts[-1]
        proven = not ready.origin and self._bench.survives(self.gain(plain, self._own))
        return plain if proven else self._as_it_is

    def gain(self, setting: Setting, price: float, over: Setting | None = None) -> Floats:
        """What each question gains by a setting at a price, over another or "as it is"; NaN where a cap is in the
        way."""
        before = [self._before.at(price, self._own)] if over is None else self.scored([over]).at(price)
        found = self.scored([setting]).at(price)
        if not len(before) or not len(found):
            return np.full_like(self._before.utility, np.nan)
        return np.asarray(found[0] - before[0])

    def front(self, balanced: Setting, settings: Sequence[Setting]) -> Table:
        """All settings with the instructions and demonstrations of `balanced`, which is the first of them."""
        fitting = [balanced, *({**setting, **_places(balanced)} for setting in settings)]
        return self.scored(fitting)

    def scored(self, settings: Sequence[Setting], shared: bool = False) -> Table:
        """Those of the settings that no cap keeps from being scored, each once; `shared` as in `Bench.table`."""
        once = [one for n, one in enumerate(settings) if one not in settings[:n]]
        return self._bench.table(once, lambda one: self._before if one == self._as_it_is else None, shared)


def _without_routing(price: float, own: float) -> Callable[[Scores], float]:
    return lambda scores: float(np.nanmean(scores.at(price, own)))


def _places(setting: Setting) -> Setting:
    return {name: value for name, value in setting.items() if is_candidate(name)}


def _values(setting: Setting) -> Setting:
    return {name: value for name, value in setting.items() if not is_candidate(name)}
