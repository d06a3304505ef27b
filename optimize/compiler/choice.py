"""What is sealed: what the labels teach, unless it is proved to lose; anything else, only where its gain is proved.

1. Settings are compared on train. Dev, whose topics nothing was learned or chosen from, has the say.
2. What demonstrations and refitted thresholds come to stands, unless dev proves its loss against the program as it is.
3. Then each other setting in turn (the best whole way, the best of a search) takes the place of what stands where dev
   proves that it gains over that: the lower one-sided 95 % limit by topics is above 0. It does not matter how many
   settings it is the best of, as dev saw none of them: where nothing gains, a place is lost by luck in .05 of compiles.
4. The operating points `quality` and `economy` are the best settings at another price of a call, by the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from ragc.errors import BudgetStop
from ragc.knowledge.index.build import Advance
from ragc.loop.policy import Setting, is_candidate
from ragc.loop.trust import log_odds
from ragc.optimize.compiler.scoring import Scores, Scoring, prove_gain
from ragc.optimize.evaluation.outcome import AS_IT_IS, BALANCED

DEAR = 0.15  # utility that a model call costs at `economy`, or twice the project's own price where that is more
FEWEST = 8  # answers under which no bound of confidence is fitted
PULL = 4.0  # precision with which the numbers of a confidence are drawn to those without labels
FAR = 9.0  # log-odds past which none of them goes
FITTED = "labels and thresholds"


@dataclass(frozen=True, slots=True)
class Stage:
    """A setting that a stage of the compile came to, and what it scores on train and dev, as far as it was asked."""

    name: str
    setting: Setting
    train: Scores
    dev: Scores

    def describe(self) -> dict[str, Any]:
        """Return its name with the mean utilities and the calls a question of train; None where not asked."""
        means = {"train": self.train.utility, "dev": self.dev.utility, "calls": self.train.calls}
        known = {name: x[np.isfinite(x)] for name, x in means.items()}
        return {"name": self.name, **{name: round(float(x.mean()), 6) if len(x) else None for name, x in known.items()}}


@dataclass(frozen=True, slots=True)
class OperatingPoints:
    """The settings chosen."""

    points: Mapping[str, Setting]  # the setting of each named point
    stages: Sequence[Stage] = ()  # what each stage came to, as it is first
    chosen: str = AS_IT_IS  # name of the stage that `balanced` is
    before: Sequence[float] = field(default=(), repr=False)
    """Utilities on dev of the program as it is, one a question; `after` those of `balanced`."""
    after: Sequence[float] = field(default=(), repr=False)

    def describe(self, point: str) -> dict[str, float | None]:
        """Return `utility` and `calls` of a point on train."""
        stage = next(one for one in self.stages if one.setting == self.points[point]).describe()
        return {"utility": stage["train"], "calls": stage["calls"]}


def choose_points(
    train: Scoring,
    dev: Scoring,
    stages: Mapping[str, Setting],
    price: float,
    gated: bool = True,
    progress: Advance = lambda done, of: None,
) -> OperatingPoints:
    """Return the setting of each named point; `price` is that of a model call.

    `stages` are settings by name, "as it is" first, then what was fitted, then others in the order in which they may
    take its place. Unless `gated`, as where dev is kept for a proof of its own, what was fitted stands and nothing else
    does. A setting that a cap keeps from being scored on dev takes no place.
    """
    scored = _score_stages(train, dev, stages, progress)
    topics = [question.cluster for question in dev.questions]

    def gains(name: str, other: str, at: float) -> bool:
        new, old = (scored[one].dev.price_calls(at, price) for one in (name, other))
        return prove_gain(new - old, topics)

    standing, *others = scored
    for name in others:
        if name == FITTED:
            standing = name if not (gated and gains(standing, name, price)) else standing
        elif gated and gains(name, standing, price):
            standing = name
    chosen = _list_choices(stages[standing])  # a version holds one set of demonstrations for all its points
    alike = [name for name in scored if _list_choices(stages[name]) == chosen]
    points = {"quality": standing, BALANCED: standing, "economy": standing}
    for point, at in (("quality", 0.0), ("economy", max(DEAR, 2 * price))):
        worth = {name: round(float(np.nanmean(scored[name].train.price_calls(at, price))), 9) for name in alike}
        best = max(alike, key=worth.__getitem__)
        points[point] = best if gated and gains(best, standing, at) else standing
    return OperatingPoints(
        {point: dict(stages[name]) for point, name in points.items()},
        [*scored.values()],
        standing,
        scored[AS_IT_IS].dev.utility.tolist(),
        scored[standing].dev.utility.tolist(),
    )


def _list_choices(setting: Setting) -> Setting:
    return {name: value for name, value in setting.items() if is_candidate(name)}


def _score_stages(train: Scoring, dev: Scoring, stages: Mapping[str, Setting], progress: Advance) -> dict[str, Stage]:
    """Return what each setting scores on train and dev, as far as the caps reach; the first one in any case."""
    scored: dict[str, Stage] = {}
    for done, (name, setting) in enumerate(stages.items()):
        with suppress(BudgetStop):
            progress(done, len(stages))
            scored[name] = Stage(name, dict(setting), train(setting), dev(setting))
        if not scored:
            scored[name] = Stage(name, dict(setting), train.read(setting), dev.read(setting))
    return scored


def fit_trust(judged: Sequence[tuple[Sequence[float], bool]], start: Sequence[float]) -> list[float]:
    """Return the shift and the weights by which opinions tell what is not wrong.

    They are of log-odds. `judged` has the opinions on each answer, as probabilities, and whether it was wrong. The
    numbers are drawn to those they start from, as strongly as a few answers would. No weight is below 0: who is surer
    never counts against an answer.
    """
    told = np.array([[1.0, *map(log_odds, said)] for said, _ in judged]).reshape(-1, len(start))
    sign = np.array([-1.0 if wrong else 1.0 for _, wrong in judged])

    def loss_at(given: np.ndarray) -> tuple[float, np.ndarray]:
        off, margin = given - start, sign * (told @ given)
        loss = np.logaddexp(0.0, -margin).sum() + PULL / 2 * (off @ off)
        return float(loss), PULL * off - told.T @ (sign * expit(-margin))

    bounds = [(-FAR, FAR), *[(0.0, FAR)] * (len(start) - 1)]
    return [float(one) for one in minimize(loss_at, start, jac=True, method="L-BFGS-B", bounds=bounds).x]


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
