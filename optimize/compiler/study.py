"""One search over everything a program can turn, against labelled questions, by replay."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from optimize.compiler.front import Candidate, best, frontier, prices, spread, turning
from optimize.compiler.journal import Journal, host
from optimize.compiler.proposals import Proposals, within
from optimize.compiler.scores import Scores
from optimize.compiler.scoring import Arm, Scoring
from optimize.compiler.spending import Spending
from optimize.compiler.trials import Light, Trial, best_first, distributions, thawed
from program.errors import BudgetStop
from program.loop.policy import Setting, find_dimensions
from program.settings import UtilitySettings

IMPORTANT_FROM = 20  # complete trials under which nothing can be said of importances
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""A trial is judged on growing parts of the questions, the most uncertain first."""
NEAR = 3  # of the finalists, how many at least are the best at the project's own price, wherever they lie


@dataclass(slots=True)
class Live:
    """What a search has to show while it runs: `done` steps of its stage, `of` so many (0: not known before).

    `best` and `baseline`, the most that the program as it was could come to, are `Scores.worth`.
    """

    stage: str = ""
    study: str = ""
    done: int = 0
    of: int = 0
    baseline: float | None = None
    best: float | None = None
    calls: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end of the stage at the pace so far."""
        gone = time.monotonic() - self.started
        return gone / self.done * (self.of - self.done) if self.done and self.of else None


Watch = Callable[[Live], None]


class Search:
    """The trials of one study, proposed and judged by this process and by any other that joins.

    What is proposed depends on the trials finished before, the seed and the worker's number alone: a search that
    was killed goes on as if it had not been. `starts` are judged first: all in full but the first, "as it is", which is
    judged after them, as any other setting is.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        weights: UtilitySettings,
        seed: int,
        starts: Sequence[Setting],
        journal: Journal,
        worker: int = 0,
    ) -> None:
        self._arms = arms
        self._scoring = Scoring(arms, weights)
        self._own = weights.call
        self._name = f"{host()}:{os.getpid()}:{worker}"
        self._helps = bool(worker)
        self._journal = journal
        found = find_dimensions(arms[0].replay.program)
        self._distributions = distributions(found)
        self._starts = [within(found, start) for start in starts]
        self._proposals = Proposals(found, self._starts, self._own, seed, worker)
        self._order: list[int] = []
        self._trials: dict[int, Trial] = {}
        self._front: list[Candidate] = []
        self._fronted: set[int] = set()
        optuna.logging.set_verbosity(logging.ERROR)

    @property
    def trials(self) -> list[Trial]:
        """Every trial of the study, in the order they were finished."""
        return self._thawed(self._journal.trials())

    @property
    def as_it_is(self) -> Setting:
        """The first start: the program before any search."""
        return self._starts[0]

    @property
    def fitted(self) -> Setting:
        """The second start: with labelled demonstrations, and the thresholds that module-level labels fit."""
        return self._starts[1]

    @property
    def broken(self) -> Mapping[str, str]:
        """Questions that could not be graded, and why; they count in no trial."""
        return self._scoring.broken

    def run(self, target: int, watch: Watch, live: Live, spending: Spending) -> str:
        """Tries settings until the study has `target` trials past its starts; the cap that stopped it, or nothing."""
        live.of, live.started = target + len(self._starts), time.monotonic()
        try:
            while len(frozen := self._journal.trials()) < live.of:
                spending.check()
                if self._helps and self._journal.finished:
                    break  # sealed: nobody would read what is tried now
                trials = self._thawed(frozen)
                if live.best is None:  # of a study that goes on
                    live.best = max((trial.worth for trial in trials if not trial.pruned), default=None)
                start, setting = self._proposals.next(trials, frozen, self._frontier(trials))
                found = self._judged(setting, trials, start)
                self._journal.add(found.frozen(self._distributions, self._name))
                live.done, live.calls = len(frozen) + 1, spending.calls
                if live.baseline is None:
                    live.baseline = next((t.worth for t in (*trials, found) if t.start == 0), None)
                if not found.pruned:
                    live.best = max(found.worth, live.best if live.best is not None else found.worth)
                watch(live)
        except BudgetStop as stop:
            return stop.tripped
        finally:
            spending.keep()
        return ""

    def abreast(self, spending: Spending) -> AbstractContextManager[None]:
        """Inside, settings are scored by two processes."""
        return self._scoring.abreast(spending)

    def added(self) -> int:
        """How many of the study's trials this worker made."""
        return sum(t.user_attrs["worker"] == self._name for t in self._journal.trials())

    def complete(self) -> list[Trial]:
        """The trials judged on every question, best first, no setting twice."""
        best: dict[tuple[tuple[str, float], ...], Trial] = {}
        for trial in sorted((t for t in self.trials if not t.pruned), key=lambda t: (-t.worth, t.number)):
            best.setdefault(tuple(sorted(trial.setting.items())), trial)
        return list(best.values())

    def finalists(self, most: int) -> list[Trial]:
        """Those along the frontier, and the best at the project's own price: `most` in all, best first.

        No two do the same on the training questions; fewer where a cap is reached on what was not kept of them.
        """
        complete = self.complete()
        trials = {id(trial.setting): trial for trial in complete}
        front = spread(frontier([trial.candidate for trial in complete], self._own), self._own, most - NEAR)
        chosen: dict[bytes, Trial] = {}
        with suppress(BudgetStop):
            for trial in [*(trials[id(one.setting)] for one in front), *best_first(complete, self._own, self._own)]:
                if len(chosen) < most:
                    chosen.setdefault(self.scores(trial.setting).outcome, trial)
        return sorted(chosen.values(), key=lambda t: (-t.worth, t.number))

    def importances(self) -> dict[str, float]:
        """Each parameter's share of the spread in utility (PED-ANOVA, Watanabe et al. 2023); empty for few trials."""
        complete = [t for t in self._journal.trials() if t.state == TrialState.COMPLETE]
        if len(complete) < IMPORTANT_FROM:
            return {}
        study = optuna.create_study(direction="maximize")
        study.add_trials([Light(trial, self._distributions) for trial in complete])
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        found: dict[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return found

    def scores(self, setting: Setting) -> Scores:
        """Every training question under a setting."""
        return self._scoring(setting)

    def known(self, setting: Setting) -> Scores:
        """The training questions of which it is known what they come to under a setting; nothing is performed."""
        return self._scoring.known(setting)

    def _thawed(self, frozen: Sequence[FrozenTrial]) -> list[Trial]:
        """Optuna's finished trials as ours; a trial once finished never changes."""
        for trial in frozen:
            if trial.number not in self._trials:
                self._trials[trial.number] = thawed(trial)
        return [self._trials[trial.number] for trial in frozen]

    def _judged(self, setting: Setting, trials: Sequence[Trial], start: int | None) -> Trial:
        """The setting on growing parts of the questions, given up when it can be best at no price of a call any more,
        from nothing to that of the economy point."""
        number = len(trials)
        if start:
            found = self._scoring(setting)
            return Trial(number, setting, found.worth, found.calls, len(found.utility), start=start, usd=found.dollars)
        order = self._by_uncertainty()
        front = self._frontier(trials)
        bounds = [(price, best(front, price, self._own).at(price, self._own)) for price in self._bends(front)]
        scores = Scores.none(len(order))
        seen = 0
        for share in SHARES:
            if seen == len(order):
                break
            upto = max(seen + 1, round(share * len(order)))
            scores = scores.joined(self._scoring(setting, order[seen:upto]))
            seen = upto
            if seen < len(order) and all(self._scoring.most(scores, price) <= had for price, had in bounds):
                worth = self._scoring.most(scores, self._own)
                return Trial(number, setting, worth, scores.calls, seen, True, start, scores.dollars)
        return Trial(number, setting, scores.worth, scores.calls, seen, False, start, scores.dollars)

    def _frontier(self, trials: Sequence[Trial]) -> Sequence[Candidate]:
        """The frontier of the trials judged in full: what is beaten once never comes back."""
        new = [trial for trial in trials if trial.number not in self._fronted]
        if added := [trial.candidate for trial in new if not trial.pruned]:
            self._front = frontier([*self._front, *added], self._own, money=False)
        self._fronted.update(trial.number for trial in new)
        return self._front

    def _bends(self, front: Sequence[Candidate]) -> list[float]:
        """Prices between which neither the best of a front nor what a setting can come to bends: a bound that holds at
        all of these holds at every price between."""
        dearest = prices(front, self._own)["economy"]
        inside = [price for price in (*turning(front, self._own), *self._scoring.bends) if 0 < price < dearest]
        return [0.0, *inside, dearest]

    def _by_uncertainty(self) -> list[int]:
        """The questions, those on which the starts that were judged in full disagree or lose most in front."""
        if not self._order:
            table = np.array([self._scoring(s).utility for s in self._starts[1:]])
            lost = self._scoring.ceiling(self._own) - table.max(axis=0)
            doubt = np.nan_to_num(table.std(axis=0) + lost)
            self._order = np.argsort(-doubt, kind="stable").tolist()
        return self._order
