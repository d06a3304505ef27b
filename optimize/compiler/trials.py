"""A trial: a setting, what it was worth, and its two forms, ours and Optuna's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from optimize.compiler.front import Candidate
from program.loop.policy import Dimension, Setting

OBJECTIVES = {"utility": "maximize", "model calls a question": "minimize"}


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting and what it was worth: mean utility (routing credit included), mean calls and US dollars a question.

    `judged_on` counts the questions it was tried on; `pruned` when it was given up on them because it could be best at
    no price of a call any more: `worth` is then the most it could have come to. `start` is its place among the
    settings a search began with.
    """

    number: int
    setting: Setting
    worth: float
    calls: float
    judged_on: int
    pruned: bool = False
    start: int | None = None
    usd: float = 0.0
    candidate: Candidate = field(init=False, repr=False, compare=False)
    """Made once: each proposal looks at those of all trials."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidate", Candidate(self.setting, self.worth, self.calls, self.usd))

    def frozen(self, space: Distributions, worker: str) -> FrozenTrial:
        """As Optuna keeps it, with a value for each of OBJECTIVES; by whom it was judged is noted."""
        noted = {"usd": self.usd, "worker": worker}
        return optuna.create_trial(
            state=TrialState.PRUNED if self.pruned else TrialState.COMPLETE,
            params=self.setting,
            distributions=space,
            values=[self.worth, self.calls],
            intermediate_values={self.judged_on: self.worth},
            user_attrs=noted if self.start is None else {**noted, "start": self.start},
        )


def thawed(frozen: FrozenTrial) -> Trial:
    """Optuna's trial as ours."""
    return Trial(
        frozen.number,
        plain(frozen.params),
        float(frozen.values[0]),
        float(frozen.values[1]),
        max(frozen.intermediate_values),
        frozen.state == TrialState.PRUNED,
        frozen.user_attrs.get("start"),
        float(frozen.user_attrs["usd"]),
    )


class Light(FrozenTrial):
    """A finished trial with the first of its values alone, for what knows one objective, over distributions that all
    share: Optuna copies each trial that is added to a study, and would copy all that it holds."""

    def __init__(self, frozen: FrozenTrial, space: Distributions) -> None:
        self.__dict__.update(vars(frozen))
        self.values = frozen.values[:1]
        self.distributions = space

    def __deepcopy__(self, memo: dict[int, Any]) -> Light:
        return copy(self)


def best_first(trials: Sequence[Trial], price: float, own: float) -> list[Trial]:
    """The trials, most worth first were a call to cost `price` instead of `own`; of equals the earliest."""
    worth = np.array([t.worth for t in trials]) + (own - price) * np.array([t.calls for t in trials])
    return [trials[at] for at in np.lexsort((np.array([t.number for t in trials]), -worth)).tolist()]


class Distributions(dict[str, BaseDistribution]):
    """A space as Optuna has it: shared by all trials, which are copied often, and never changed."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Distributions:
        return self


def distributions(space: Sequence[Dimension]) -> Distributions:
    """The space as Optuna has it."""
    return Distributions({d.name: _distribution(d) for d in space})


def _distribution(d: Dimension) -> BaseDistribution:
    if d.nominal:
        return CategoricalDistribution(range(int(d.low), int(d.high) + 1))
    if d.integral:
        return IntDistribution(int(d.low), int(d.high))
    return FloatDistribution(d.low, d.high, log=d.log, step=d.step)


def plain(params: Mapping[str, Any]) -> Setting:
    """Parameters as a setting."""
    return {name: float(value) if isinstance(value, float) else int(value) for name, value in params.items()}
