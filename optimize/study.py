"""One search over everything a program can turn, against labelled questions, by replay."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from optimize.front import Candidate, prices
from optimize.journal import Journal, distributions, host
from optimize.scoring import Arm, Scores, Scoring
from optimize.spending import Spending
from program.errors import BudgetStop
from program.parameters import Dimension, Setting, space
from program.settings import UtilitySettings

STARTUP = 6  # the settings a search starts from are better company than random ones
TPE_EVERY = 8  # of so many proposals one is Optuna's, the others are steps from the best so far
DECISIONS_ALONE = 0.75  # of the steps, how many move thresholds and weights only
GRAIN = 20  # of a range: settings a hair apart would open branches of their own for nothing
MEMORY = 120  # trials that a proposal is based on: its cost grows with them
BEST_KEPT = 60
IMPORTANT_FROM = 20  # complete trials under which nothing can be said of importances
SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""A trial is judged on growing parts of the questions, the most uncertain first."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting and what it was worth: mean utility (routing credit included), and mean calls a question.

    `pruned` when it was given up because it could be best at no price of a call any more.
    """

    number: int
    setting: Setting
    worth: float
    calls: float
    pruned: bool = False

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.setting, self.worth, self.calls)


@dataclass(slots=True)
class Live:
    """What a search has to show while it runs."""

    stage: str = ""
    done: int = 0
    of: int = 0
    best: float | None = None
    baseline: float | None = None
    calls: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end of the stage at the pace so far."""
        gone = time.monotonic() - self.started
        return gone / self.done * (self.of - self.done) if self.done else None


Watch = Callable[[Live], None]


class Search:
    """The trials of one study, proposed and judged by this process and by any other that joins.

    What is proposed depends on the trials finished before, the seed and the worker's number alone: a search that
    was killed goes on as if it had not been. `starts` are judged first, in full; the first is "as it is".
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
        self._prices = sorted(set(prices(weights.call).values()))
        self._seed = seed
        self._worker = worker
        self._name = f"{host()}:{os.getpid()}"
        self._journal = journal
        self._space = space(arms[0].replay.program)
        self._distributions = distributions(self._space)
        names = {d.name for d in self._space}
        self._starts = [_within(self._space, {n: v for n, v in s.items() if n in names}) for s in starts]
        self._order: list[int] = []
        optuna.logging.set_verbosity(logging.ERROR)

    @property
    def trials(self) -> list[Trial]:
        """Every trial of the study, in the order they were finished."""
        return [_trial(frozen) for frozen in self._journal.trials()]

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
                start, setting = self._proposal(frozen)
                found = self._judged(setting, frozen, full=start is not None)
                self._journal.add(self._frozen(found, start))
                live.done, live.calls = len(frozen) + 1, spending.calls
                if not found.pruned:
                    live.best = max(found.worth, live.best if live.best is not None else found.worth)
                watch(live)
        except BudgetStop as stop:
            return stop.tripped
        return ""

    def added(self) -> int:
        """How many of the study's trials this worker made."""
        return sum(t.user_attrs["worker"] == self._name for t in self._journal.trials())

    def complete(self) -> list[Trial]:
        """The trials judged on every question, best first, no setting twice."""
        ranked = sorted((t for t in self.trials if not t.pruned), key=lambda t: (-t.worth, t.number))
        return list({tuple(sorted(t.setting.items())): t for t in reversed(ranked)}.values())[::-1]

    def finalists(self, most: int) -> list[Trial]:
        """The best at each price of a call, in turn, `most` in all, and always the first start."""
        complete = self.complete()
        ranked = [sorted(complete, key=lambda t: (-t.candidate.at(p, self._own), t.number)) for p in self._prices]
        chosen: dict[int, Trial] = {t.number: t for t in complete if t.setting == self._starts[0]}
        for turn in zip(*ranked, strict=True):
            for trial in turn:
                if len(chosen) < most:
                    chosen.setdefault(trial.number, trial)
        return sorted(chosen.values(), key=lambda t: (-t.worth, t.number))

    def importances(self) -> dict[str, float]:
        """Each parameter's share of the spread in utility (PED-ANOVA, Watanabe et al. 2023); empty for few trials."""
        complete = [t for t in self._journal.trials() if not _pruned(t)]
        if len(complete) < IMPORTANT_FROM:
            return {}
        study = optuna.create_study(direction="maximize")
        study.add_trials(complete)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        found: dict[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return found

    def scores(self, setting: Setting) -> Scores:
        """Every training question under a setting."""
        return self._scoring(setting)

    def _proposal(self, frozen: Sequence[FrozenTrial]) -> tuple[int | None, Setting]:
        """The next setting, and which start it is."""
        done = {t.user_attrs["start"] for t in frozen if "start" in t.user_attrs}
        open_ = [n for n in range(len(self._starts)) if n not in done]
        if open_:
            start = open_[self._worker % len(open_)]  # workers begin at different ones
            return start, self._starts[start]
        rng = np.random.default_rng([self._seed, self._worker, len(frozen)])
        if len(frozen) % TPE_EVERY == 0:
            return None, self._tpe(frozen, int(rng.integers(2**31)))
        return None, self._step(frozen, rng)

    def _tpe(self, frozen: Sequence[FrozenTrial], seed: int) -> Setting:
        """What Optuna's TPE proposes after the best and the latest trials."""
        best = sorted(frozen, key=lambda t: (t.state != TrialState.COMPLETE, -t.values[0], t.number))[:BEST_KEPT]
        chosen = {t.number: t for t in [*best, *frozen[-(MEMORY - len(best)) :]]}
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP)
        study = optuna.create_study(sampler=sampler, direction="maximize")
        study.add_trials([chosen[number] for number in sorted(chosen)])
        found = _plain(study.ask(self._distributions).params)
        return {d.name: _coarse(d, found[d.name]) for d in self._space}

    def _step(self, frozen: Sequence[FrozenTrial], rng: np.random.Generator) -> Setting:
        """One of the best settings with one or a few of its values moved, or put back to what they were."""
        price = self._prices[int(rng.integers(len(self._prices)))]
        complete = [_trial(t) for t in frozen if t.state == TrialState.COMPLETE]
        ranked = sorted(complete, key=lambda t: (-t.candidate.at(price, self._own), t.number))
        setting = dict(ranked[min(int(rng.geometric(0.4)) - 1, len(ranked) - 1)].setting)
        # Decisions are read anew from recorded evidence; most knobs open branches, which cost a hundred times as much.
        free = [d for d in self._space if ":" in d.name]
        among = free if free and rng.random() < DECISIONS_ALONE else self._space
        for at in rng.choice(len(among), size=min(int(rng.geometric(0.5)), len(among)), replace=False):
            d = among[int(at)]
            setting[d.name] = self._starts[0][d.name] if rng.random() < 0.15 else _moved(d, setting[d.name], rng)
        return setting

    def _judged(self, setting: Setting, frozen: Sequence[FrozenTrial], full: bool) -> Trial:
        """The setting on growing parts of the questions, given up when it can be best at no price any more."""
        number = len(frozen)
        if full:
            found = self._scoring(setting)
            return Trial(number, setting, found.worth, found.calls)
        order = self._by_uncertainty()
        best = [max(_trial(t).candidate.at(p, self._own) for t in frozen if not _pruned(t)) for p in self._prices]
        scores = Scores.none(len(order))
        seen = 0
        for share in SHARES:
            upto = max(seen + 1, round(share * len(order)))
            scores = scores.joined(self._scoring(setting, order[seen:upto]))
            seen = upto
            if share < 1 and all(
                self._scoring.most(scores, price) <= had for price, had in zip(self._prices, best, strict=True)
            ):
                return Trial(number, setting, self._scoring.most(scores, self._own), scores.calls, pruned=True)
        return Trial(number, setting, scores.worth, scores.calls)

    def _by_uncertainty(self) -> list[int]:
        """The questions, those on which the starts disagree or lose most in front."""
        if not self._order:
            table = np.array([self._scoring(s).utility for s in self._starts])
            lost = self._scoring.ceiling(self._own) - table.max(axis=0)
            doubt = np.nan_to_num(table.std(axis=0) + lost)
            self._order = np.argsort(-doubt, kind="stable").tolist()
        return self._order

    def _frozen(self, trial: Trial, start: int | None) -> FrozenTrial:
        noted = {"calls": trial.calls, "pruned": trial.pruned, "worker": self._name}
        return optuna.create_trial(
            params=trial.setting,
            distributions=self._distributions,
            value=trial.worth,
            user_attrs=noted if start is None else {**noted, "start": start},
        )


def _trial(frozen: FrozenTrial) -> Trial:
    return Trial(
        frozen.number,
        _plain(frozen.params),
        float(frozen.values[0]),
        float(frozen.user_attrs["calls"]),
        _pruned(frozen),
    )


def _pruned(frozen: FrozenTrial) -> bool:
    return bool(frozen.user_attrs["pruned"])


def _plain(params: Mapping[str, Any]) -> Setting:
    return {name: float(value) if isinstance(value, float) else int(value) for name, value in params.items()}


def _within(dimensions: Sequence[Dimension], setting: Mapping[str, float]) -> Setting:
    """The setting with each value in its range and on its grid."""
    found: Setting = {}
    for d in dimensions:
        value = min(max(setting[d.name], d.low), d.high)
        found[d.name] = _on_grid(d, value)
    return found


def _moved(d: Dimension, value: float, rng: np.random.Generator) -> float:
    """Another value of a dimension: near the one it has, or anywhere."""
    if d.integral:
        near = value + int(rng.choice([-1, 1])) * int(rng.integers(1, 3))
        return int(min(max(near, d.low), d.high))
    low, high = (np.log(d.low), np.log(d.high)) if d.log else (d.low, d.high)
    at = np.log(value) if d.log else value
    drawn = rng.uniform(low, high) if rng.random() < 0.25 else at + rng.normal(0, 0.15 * (high - low))
    return _coarse(d, float(np.exp(min(drawn, high))) if d.log else float(drawn))


def _coarse(d: Dimension, value: float) -> float:
    """The value on a grid of GRAIN parts of its range."""
    if d.integral or d.step:
        return _on_grid(d, value)
    low, high = (np.log(d.low), np.log(d.high)) if d.log else (d.low, d.high)
    at = np.log(max(value, d.low)) if d.log else value
    part = (high - low) / GRAIN
    snapped = low + part * round((min(max(float(at), low), high) - low) / part)
    return _on_grid(d, round(float(np.exp(snapped)) if d.log else float(snapped), 6))


def _on_grid(d: Dimension, value: float) -> float:
    if d.integral:
        return round(value)
    if d.step:
        value = round(d.low + d.step * round((value - d.low) / d.step), 10)
    return float(min(max(value, d.low), d.high))
