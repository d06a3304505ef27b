"""Which setting to try next: Optuna's TPE now and then, else a step from one of the best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.trial import FrozenTrial

from optimize.compiler.front import Candidate, prices
from optimize.compiler.trials import Light, Trial, best_first, distributions, plain
from program.loop.policy import Dimension, Setting

STARTUP = 6  # the settings a search starts from are better company than random ones
PACE = ((160, 16, 0.75, 1), (410, 40, 0.75, 8), (float("inf"), 100, 0.9, 8))
"""Up to so many trials, of how many proposals one is Optuna's, of the steps how many move thresholds and weights only,
and how often a step is drawn, at most, until it is none that was tried. What turns knobs opens branches, which cost a
hundred times as much: a long search is for thresholds. In a short one a setting tried again costs nothing, and one in
its place brought 7 % more calls and no more utility, on eight projects of sixteen topics."""
BACK = 0.15  # of the moves, how many put a value back to what it was
ANYWHERE = 0.25  # of the moves, how many go anywhere in the range
REACH = 0.15  # of a range: the standard deviation of the others
GRAIN = 20  # of a range: settings a hair apart would open branches of their own for nothing
MEMORY = 120  # trials that a proposal is based on: its cost grows with them
BEST_KEPT = 60


class Proposals:
    """Proposes settings of a space. The same trials, seed and worker give the same proposal.

    `starts` come first, the very first of them last, and by the first worker alone; `own` is what a call costs. Steps
    are made from what is best at the price of a named point, each as often as another.
    """

    def __init__(
        self,
        space: Sequence[Dimension],
        starts: Sequence[Setting],
        own: float,
        seed: int,
        worker: int,
    ) -> None:
        self._space = space
        self._distributions = distributions(space)
        self._starts = starts
        self._own = own
        self._seed = seed
        self._worker = worker
        self._known: set[int] = set()
        self._tried: set[tuple[float, ...]] = set()
        self._open: list[tuple[str, float]] = [
            (d.name, n) for d in space if d.nominal for n in range(int(d.low), int(d.high) + 1)
        ]

    def next(
        self, trials: Sequence[Trial], frozen: Sequence[FrozenTrial], front: Sequence[Candidate]
    ) -> tuple[int | None, Setting]:
        """The next setting, and which start it is. `frozen` are the same trials as Optuna has them, `front` the
        frontier of those judged in full."""
        done = {trial.start for trial in trials}
        starts = [*range(1, len(self._starts)), *([] if self._worker else [0])]  # of one that is left, two would do all
        if open_ := [n for n in starts if n not in done]:
            start = open_[self._worker % len(open_)]  # workers begin at different ones
            return start, self._starts[start]
        if untried := self._untried(trials):
            return None, self._best(trials) | dict([untried[self._worker % len(untried)]])
        rng = np.random.default_rng([self._seed, self._worker, len(trials)])
        every, alone, draws = next(pace for upto, *pace in PACE if len(trials) < upto)
        if len(trials) % every == 0:
            return None, self._tpe(trials, frozen, int(rng.integers(2**31)))
        complete = [trial for trial in trials if not trial.pruned]
        self._note(trials)
        for _ in range(int(draws)):
            step = self._step(complete, front, rng, alone)
            if self._values(step) not in self._tried:
                break
        return None, step

    def _note(self, trials: Sequence[Trial]) -> None:
        """Notes what was tried."""
        for trial in trials:
            if trial.number not in self._known:
                self._known.add(trial.number)
                self._tried.add(self._values(trial.setting))

    def _values(self, setting: Setting) -> tuple[float, ...]:
        return tuple(setting[d.name] for d in self._space)

    def _untried(self, trials: Sequence[Trial]) -> list[tuple[str, float]]:
        """The candidates that no trial had yet: a step would come upon one in hundreds."""
        for trial in trials if self._open else ():
            self._open = [(name, n) for name, n in self._open if trial.setting[name] != n]
        return self._open

    def _best(self, trials: Sequence[Trial]) -> Setting:
        """The best setting so far."""
        return max((t for t in trials if not t.pruned), key=lambda t: (t.worth, -t.number)).setting

    def _tpe(self, trials: Sequence[Trial], frozen: Sequence[FrozenTrial], seed: int) -> Setting:
        """What Optuna's TPE proposes after the best and the latest trials."""
        best = sorted(range(len(trials)), key=lambda n: (trials[n].pruned, -trials[n].worth, n))[:BEST_KEPT]
        chosen = sorted({*best, *range(max(0, len(trials) - MEMORY + len(best)), len(trials))})
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP)
        study = optuna.create_study(sampler=sampler, direction="maximize")
        study.add_trials([Light(frozen[n], self._distributions) for n in chosen])
        found = plain(study.ask(self._distributions).params)
        return {d.name: _coarse(d, found[d.name]) for d in self._space}

    def _step(
        self, complete: Sequence[Trial], front: Sequence[Candidate], rng: np.random.Generator, alone: float
    ) -> Setting:
        """One of the best settings with one or a few of its values moved, or put back to what they were."""
        named = list(prices(front, self._own).values())
        price = named[int(rng.integers(len(named)))]
        ranked = best_first(complete, price, self._own)
        setting = dict(ranked[min(int(rng.geometric(0.4)) - 1, len(ranked) - 1)].setting)
        free = [d for d in self._space if ":" in d.name]
        among = free if free and rng.random() < alone else self._space
        for at in rng.choice(len(among), size=min(int(rng.geometric(0.5)), len(among)), replace=False):
            d = among[int(at)]
            setting[d.name] = self._starts[0][d.name] if rng.random() < BACK else _moved(d, setting[d.name], rng)
        return setting


def within(space: Sequence[Dimension], setting: Mapping[str, float]) -> Setting:
    """The setting's values of a space, each in its range and on its grid."""
    return {d.name: _on_grid(d, setting[d.name]) for d in space}


def _moved(d: Dimension, value: float, rng: np.random.Generator) -> float:
    """Another value of a dimension: near the one it has, or anywhere."""
    if d.nominal:
        return int(value + rng.integers(1, int(d.high) + 1)) % (int(d.high) + 1)
    if d.integral:
        return _on_grid(d, value + int(rng.choice([-1, 1])) * int(rng.integers(1, 3)))
    low, high = (np.log(d.low), np.log(d.high)) if d.log else (d.low, d.high)
    at = np.log(value) if d.log else value
    drawn = rng.uniform(low, high) if rng.random() < ANYWHERE else at + rng.normal(0, REACH * (high - low))
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
    value = min(max(value, d.low), d.high)
    if d.integral:
        return round(value)
    if d.step:
        value = round(d.low + d.step * round((value - d.low) / d.step), 10)
    return float(min(max(value, d.low), d.high))
