"""Settings proposed beside those that were fitted: knobs swept one at a time, then Optuna's proposals near the best.

1. Each knob takes the value of its grid that is worth most on train. A value is first scored on every PREVIEW-th
   question, and dropped unless it gains there; the knob is moved where topics that did not choose the value gain, too.
2. Optuna's TPE, in memory, is told the swept setting. It proposes BATCH settings of the knobs that had an effect,
   within NEAR of their ranges around it, and is told what they are worth once all are scored: so what is proposed
   depends on the seed alone, not on how many processes there are.
3. The best on train comes out. What that proves is not said here: `choice` asks dev, which was not looked at.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragc.errors import BudgetStop
from ragc.knowledge.index.build import Advance
from ragc.loop.policy import Dimension, Setting
from ragc.optimize.compiler.scoring import Floats, Scoring, best_row, gain_out_of_fold

BATCH = 8  # settings proposed before any of them is scored
NEAR = 0.25  # of a knob's range, on either side of the swept setting, in which proposals lie
GRAIN = 20  # parts of a range: proposals are rounded, as settings a hair apart would open branches of their own
SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)  # places in the range of a threshold at which it is swept
COUNTED = 5  # values of a count, or of a knob with steps, that are swept at most


def search_settings(
    scoring: Scoring,
    space: Sequence[Dimension],
    start: Setting,
    trials: int,
    seed: int,
    progress: Advance = lambda done, of: None,
) -> Setting:
    """Return the best setting of a sweep and of so many proposals; a cap ends both."""
    swept = sweep_knobs(scoring, space, start, progress)
    effective = [d for d in space if d.name in swept.effective] or list(space)
    return propose_settings(scoring, effective, swept.setting, trials, seed, progress)


def propose_settings(
    scoring: Scoring, space: Sequence[Dimension], start: Setting, trials: int, seed: int, progress: Advance
) -> Setting:
    """Return the best of the start and of so many settings proposed near it."""
    import optuna

    optuna.logging.set_verbosity(logging.ERROR)
    ranges = {d.name: _make_distribution(optuna, d, start[d.name]) for d in space}
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    known = {name: start[name] for name in ranges}
    best, worth = dict(start), scoring(start).worth
    study.add_trial(optuna.create_trial(value=worth, params=known, distributions=ranges))
    with contextlib.suppress(BudgetStop):
        for first in range(0, trials, BATCH):
            asked = [study.ask(ranges) for _ in range(min(BATCH, trials - first))]
            batch = [start | {d.name: _coarsen_value(d, one.params[d.name]) for d in space} for one in asked]
            scoring.score_ahead([(setting, None) for setting in batch])
            for one, setting in zip(asked, batch, strict=True):
                study.tell(one, found := scoring(setting).worth)
                best, worth = (setting, found) if found > worth else (best, worth)
            progress(first + len(asked), trials)
    return best


@dataclass(frozen=True, slots=True)
class Sweeps:
    """Knobs fitted one at a time."""

    setting: Setting  # the start with every value that won
    gains: Mapping[str, float]  # out-of-fold gain in utility of each knob that was moved
    effective: tuple[str, ...]  # knobs of which some value changed some question's score


def sweep_knobs(
    scoring: Scoring, space: Sequence[Dimension], start: Setting, progress: Advance = lambda done, of: None
) -> Sweeps:
    """Return the start with each knob at its value of most utility.

    One knob at a time over its grid; a knob that was moved stays so for those after it. A value that a cap on calls or
    money leaves no room for is left out: most values need no call. At a cap on time the rest stays as it is.
    """
    topics = [question.cluster for question in scoring.questions]
    setting, gains, effective = dict(start), dict[str, float](), list[str]()
    with contextlib.suppress(BudgetStop):
        for done, dimension in enumerate(space):
            progress(done, len(space))
            values, table, matters = _score_values(scoring, dimension, setting)
            if matters:
                effective.append(dimension.name)
            gain = gain_out_of_fold(table, topics)
            if np.nansum(gain) > 0 and (best := best_row(table)):
                setting[dimension.name] = values[best - 1]
                gains[dimension.name] = float(np.nanmean(gain))
    return Sweeps(setting, gains, tuple(effective))


def _score_values(scoring: Scoring, dimension: Dimension, setting: Setting) -> tuple[list[float], Floats, bool]:
    """Return a knob's values that gain on a preview, all utilities (its own first), whether any matters."""
    before, preview = scoring(setting).utility, scoring.preview
    values, rows, matters = list[float](), [before], False
    grid = {value: {**setting, dimension.name: value} for value in grid_of(dimension, setting[dimension.name])}
    scoring.score_ahead([(tried, preview) for tried in grid.values()])
    gaining = []
    for value, tried in grid.items():
        with _left_out_past_a_cap():
            gain = scoring(tried, preview).utility[preview] - before[preview]
            matters |= bool((np.nan_to_num(gain) != 0).any())
            gaining += [value] if np.nansum(gain) > 0 else []
    scoring.score_ahead([(grid[value], None) for value in gaining])
    for value in gaining:
        with _left_out_past_a_cap():
            rows.append(scoring(grid[value]).utility)
            values.append(value)
    return values, np.array(rows), matters


@contextlib.contextmanager
def _left_out_past_a_cap() -> Iterator[None]:
    """Leave out a value that needs a call past a cap; past one on time, all are."""
    try:
        yield
    except BudgetStop as stop:
        if stop.tripped == "seconds":
            raise


def grid_of(dimension: Dimension, now: float) -> list[float]:
    """Return the values at which a knob is swept, without the one it has."""
    low, high = dimension.low, dimension.high
    if dimension.nominal:
        values: list[float] = [float(n) for n in range(int(high) + 1)]
    elif dimension.integral or dimension.step:
        step = dimension.step or 1
        values = [low + step * round(n * (high - low) / step / (COUNTED - 1)) for n in range(COUNTED)]
        values = [round(value) if dimension.integral else round(value, 10) for value in values]
    elif dimension.log:
        values = np.geomspace(low, high, COUNTED).tolist()
    else:
        values = [low + share * (high - low) for share in SHARES]
    return [value for value in dict.fromkeys(values) if value != now]


def _make_distribution(optuna: Any, d: Dimension, around: float) -> Any:
    """Return Optuna's distribution of a knob near a value."""
    if d.nominal:
        return optuna.distributions.CategoricalDistribution(range(int(d.high) + 1))
    low, high, at = (np.log(v) for v in (d.low, d.high, around)) if d.log else (d.low, d.high, around)
    least, most = (float(v) for v in (max(low, at - NEAR * (high - low)), min(high, at + NEAR * (high - low))))
    if d.log:
        least, most = max(d.low, float(np.exp(least))), min(d.high, float(np.exp(most)))
    if d.integral:
        return optuna.distributions.IntDistribution(round(least), max(round(most), round(least)))
    if d.step:
        least, most = (round(d.low + d.step * round((v - d.low) / d.step), 10) for v in (least, most))
    return optuna.distributions.FloatDistribution(least, most, log=d.log, step=d.step)


def _coarsen_value(d: Dimension, value: float) -> float:
    """Return the value on a grid of GRAIN parts of the range, or on the knob's own steps."""
    if d.nominal or d.integral:
        return int(value)
    if d.step:
        return float(min(max(round(d.low + d.step * round((value - d.low) / d.step), 10), d.low), d.high))
    low, high, at = (np.log(v) for v in (d.low, d.high, value)) if d.log else (d.low, d.high, value)
    snapped = low + (high - low) / GRAIN * round(float((at - low) / (high - low) * GRAIN))
    return float(min(max(round(float(np.exp(snapped)) if d.log else float(snapped), 6), d.low), d.high))
