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
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ragc.errors import BudgetStop
from ragc.knowledge.index.build import Advance
from ragc.loop.policy import Dimension, Setting
from ragc.optimize.compiler.scoring import Floats, Scoring, best_row, gain_out_of_fold

BATCH = 8  # settings proposed before any of them is scored
NEAR = 0.25  # of a knob's range, on either side of the swept setting, in which proposals lie
GRAIN = 20  # parts of a range in which proposals lie, as settings a hair apart would open branches of their own
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
    swept, effective = sweep_knobs(scoring, space, start, progress)
    return propose_settings(scoring, effective or space, swept, trials, seed, progress)


def propose_settings(
    scoring: Scoring, space: Sequence[Dimension], start: Setting, trials: int, seed: int, progress: Advance
) -> Setting:
    """Return the best of the start and of so many settings proposed near it."""
    import optuna

    optuna.logging.set_verbosity(logging.ERROR)
    near = {d.name: list_values_near(d, start[d.name]) for d in space}
    kinds = optuna.distributions
    places = {
        d.name: kinds.CategoricalDistribution(range(len(near[d.name])))
        if d.nominal
        else kinds.IntDistribution(0, len(near[d.name]) - 1)
        for d in space
    }
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    best, worth = dict(start), scoring(start).worth
    known = {name: values.index(start[name]) for name, values in near.items()}
    study.add_trial(optuna.create_trial(value=worth, params=known, distributions=places))
    with contextlib.suppress(BudgetStop):
        for first in range(0, trials, BATCH):
            asked = [study.ask(places) for _ in range(min(BATCH, trials - first))]
            batch = [start | {name: near[name][place] for name, place in one.params.items()} for one in asked]
            scoring.score_ahead([(setting, None) for setting in batch])
            for one, setting in zip(asked, batch, strict=True):
                study.tell(one, found := scoring(setting).worth)
                best, worth = (setting, found) if found > worth else (best, worth)
            progress(first + len(asked), trials)
    return best


def sweep_knobs(
    scoring: Scoring, space: Sequence[Dimension], start: Setting, progress: Advance = lambda done, of: None
) -> tuple[Setting, list[Dimension]]:
    """Return the start with each knob at its best value, and the knobs that matter.

    These changed some question's score. One knob at a time over its grid; one that was moved stays so for those after
    it. A value that a cap on calls or money leaves no room for is left out: most values need no call. At a cap on time
    the rest stays as it is.
    """
    topics = [question.cluster for question in scoring.questions]
    setting, effective = dict(start), list[Dimension]()
    with contextlib.suppress(BudgetStop):
        for done, dimension in enumerate(space):
            progress(done, len(space))
            values, table, matters = _score_values(scoring, dimension, setting)
            effective += [dimension] if matters else []
            if np.nansum(gain_out_of_fold(table, topics)) > 0 and (best := best_row(table)):
                setting[dimension.name] = values[best - 1]
    return setting, effective


def _score_values(scoring: Scoring, dimension: Dimension, setting: Setting) -> tuple[list[float], Floats, bool]:
    """Return a knob's values that gain on a preview, all utilities (its own first), whether any matters."""
    before, preview = scoring(setting).utility, scoring.preview
    values, rows, matters = list[float](), [before], False
    grid = {value: {**setting, dimension.name: value} for value in grid_of(dimension, setting[dimension.name])}
    scoring.score_ahead([(tried, preview) for tried in grid.values()])
    gaining = []
    for value, tried in grid.items():
        with left_out_past_a_cap():
            gain = scoring(tried, preview).utility[preview] - before[preview]
            matters |= bool((np.nan_to_num(gain) != 0).any())
            gaining += [value] if np.nansum(gain) > 0 else []
    scoring.score_ahead([(grid[value], None) for value in gaining])
    for value in gaining:
        with left_out_past_a_cap():
            rows.append(scoring(grid[value]).utility)
            values.append(value)
    return values, np.array(rows), matters


@contextlib.contextmanager
def left_out_past_a_cap() -> Iterator[None]:
    """Leave out a value that needs a call past a cap; past one on time, all are."""
    try:
        yield
    except BudgetStop as stop:
        if stop.tripped == "seconds":
            raise


def grid_of(d: Dimension, now: float) -> list[float]:
    """Return the values at which a knob is swept, without the one it has."""
    shares = [n / (COUNTED - 1) for n in range(COUNTED)] if d.integral or d.step or d.log else SHARES
    return [value for value in _list_values(d, shares) if value != now]


def list_values_near(dimension: Dimension, now: float) -> list[float]:
    """Return a knob's own value, and those of GRAIN parts of its range near it."""
    values = _list_values(dimension, [n / GRAIN for n in range(GRAIN + 1)])
    return sorted({now, *(v for v in values if dimension.nominal or abs(_share_of(dimension, v, now)) <= NEAR)})


def _list_values(d: Dimension, shares: Sequence[float]) -> list[float]:
    """Return a knob's values at shares of its range, each once; of a choice every value."""
    if d.nominal:
        return [float(n) for n in range(int(d.high) + 1)]
    step = d.step or (1 if d.integral else 0)
    if d.log:
        values = [float(d.low * (d.high / d.low) ** share) for share in shares]
    elif step:
        values = [round(d.low + step * round(share * (d.high - d.low) / step), 10) for share in shares]
    else:
        values = [d.low + share * (d.high - d.low) for share in shares]
    return list(dict.fromkeys(values))


def _share_of(d: Dimension, value: float, since: float) -> float:
    """Return how far apart two values are, as a share of the range."""
    return math.log(value / since, d.high / d.low) if d.log else (value - since) / (d.high - d.low)
