"""Thresholds, cuts and weights of a program's decisions, fitted together to what its metric gives for each value.

Each decision is forced to its likely values in turn, which a record makes arithmetic. Then its probabilities are
calibrated by maximum likelihood to the values that are worth most, an example weighing as much as hangs on it. So where
mistakes of one kind cost more, a decision falls the other way sooner. A likelihood rests on all examples; the best of
many settings by counting what each scores would rest on the few where the decision is close, and on their luck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logsumexp, softmax

from optimize.compiler.scoring import Floats, Scoring, Sweeps, split_topics, sweep_knobs
from program.errors import BudgetStop
from program.loop.policy import LEAST, LEVEL, Dimension, Setting, apply_setting

ROUNDS = 2  # over the decisions of a program that has several, as others moved meanwhile
LIKELIEST = 8  # values of a decision that are tried on every example
RAREST = 5e-7  # half of the last digit that a probability is told with


def fit_decisions(
    scoring: Scoring, space: Sequence[Dimension], start: Setting, progress: Callable[[int, int], None]
) -> Sweeps:
    """Return the start with each decision fitted, unless that surely loses elsewhere.

    Knobs and candidates are swept after the decisions, as those of any program.
    """
    decisions = _list_decisions(space)
    others = [d for d in space if ":" not in d.name]
    folds = split_topics([question.cluster for question in scoring.questions])
    setting, gains, effective = dict(start), dict[str, float](), dict[str, None]()
    turns = [one for _ in range(min(ROUNDS, len(decisions))) for one in decisions]
    with suppress(BudgetStop):
        for done, decision in enumerate(turns):
            tell = partial(progress, done, len(turns) + len(others))
            before = np.nan_to_num(scoring(setting).utility)
            logs = np.log(decision.read_shares(scoring, setting))
            worth = decision.find_worth(scoring, setting, logs, tell)
            if not (worth != worth[:, :1]).any():
                continue
            effective |= dict.fromkeys(d.name for d in decision.parameters)
            held = np.zeros(len(worth))
            for fold in folds if len(folds) > 1 else ():
                rest = np.setdiff1d(range(len(worth)), fold)
                tried = {**setting, **decision.set(fit_log_weights(logs[rest], worth[rest]))}
                held[fold] = np.nan_to_num(scoring(tried, fold).utility[fold]) - before[fold]
            if held.sum() >= -np.linalg.norm(held):  # the sum's standard error
                setting |= decision.set(fit_log_weights(logs, worth))
                gains |= dict.fromkeys((d.name for d in decision.parameters), float(held.mean()))
    swept = sweep_knobs(scoring, others, setting, progress)
    return Sweeps(swept.setting, {**gains, **swept.gains}, (*effective, *swept.effective))


def fit_log_weights(logs: Floats, worth: Floats) -> Floats:
    """Return the log-weight of each value of a decision, fitted on examples.

    Maximised is the likelihood, softmax(scale * logs + bias), of the values that are worth most, each example weighed
    by the difference between its best value and its worst. Biases and the scale's logarithm have standard normal
    priors, so that little is moved on few examples.
    """
    stake = np.ptp(worth, axis=1)
    some = stake > 0
    if not some.any():
        return np.zeros(logs.shape[1])
    logs, stake = logs[some], stake[some]
    with np.errstate(divide="ignore"):
        share = np.log((worth[some] - worth[some].min(axis=1, keepdims=True)) / stake[:, None])
    stake = stake / stake.mean()

    def lose(x: Floats) -> tuple[float, Floats]:
        told = log_softmax(np.exp(x[0]) * logs + x[1:], axis=1)
        pull = stake[:, None] * (np.exp(told) - softmax(told + share, axis=1))
        slope = np.concatenate([[np.exp(x[0]) * (pull * logs).sum()], pull.sum(axis=0)])
        return float(x @ x / 2 - stake @ logsumexp(told + share, axis=1)), x + slope

    found = minimize(lose, np.zeros(1 + logs.shape[1]), jac=True, method="L-BFGS-B").x
    weights: Floats = found[1:] / np.exp(found[0])
    return weights


@dataclass(frozen=True, slots=True)
class _Decision:
    """A decision among options, or on which side of a threshold or of a cut it falls."""

    predictor: str
    output: str
    parameters: Sequence[Dimension]
    forced: Sequence[Setting]  # under each of which it falls on one of its values

    def read_shares(self, scoring: Scoring, setting: Setting) -> Floats:
        """Return the probabilities of its values on each example.

        Those of a cut say how near the mean level is to the levels on either side.
        """
        rows = []
        for arm in scoring.arms:
            apply_setting(arm.replay.program, setting)
            for decided in arm.replay.decide_all([question.question for question in arm.questions]):
                met = (one.chances for one in decided if one[:2] == (self.predictor, self.output))
                rows.append(self._share(next(met, None)))
        return np.clip(rows, RAREST, 1.0)

    def find_worth(self, scoring: Scoring, setting: Setting, logs: Floats, tell: Callable[[], None]) -> Floats:
        """Return what each of its values is worth on each example.

        Of many values the likeliest are tried. The others are, where those are worth the same; else they count as the
        worst of those.
        """
        likely = (-logs).argsort(axis=1, kind="stable").argsort(axis=1) < LIKELIEST
        worth, untold = np.full(logs.shape, np.nan), np.ones(len(logs), bool)
        for among in (likely, ~likely):
            for n, forced in enumerate(self.forced):
                tell()
                if len(places := np.flatnonzero(among[:, n] & untold)):
                    worth[places, n] = np.nan_to_num(scoring({**setting, **forced}, places.tolist()).utility[places])
            untold = np.nanmin(worth, axis=1) == np.nanmax(worth, axis=1)
        return np.where(np.isnan(worth), np.nanmin(worth, axis=1, keepdims=True), worth)

    def set(self, log_weights: Floats) -> dict[str, float]:
        """Return its parameters' values that weigh its values so."""
        by = log_weights[1:] - log_weights[0]
        values = np.exp(by) if self.parameters[0].log else self.parameters[0].low - LEAST + expit(-by)
        return {d.name: float(np.clip(v, d.low, d.high)) for d, v in zip(self.parameters, values, strict=True)}

    def _share(self, p: float | Mapping[Any, float] | None) -> list[float]:
        if p is None:
            return [1 / len(self.forced)] * len(self.forced)
        if isinstance(p, float):
            return [1 - p, p]
        if self.parameters[0].log:
            named = [d.name.partition("=")[2] for d in self.parameters]
            return [sum(share for option, share in p.items() if option not in named), *(p[one] for one in named)]
        level = sum(n * share for n, share in p.items()) / sum(p.values()) - (self.parameters[0].low - LEAST)
        return [1 - level, level]


def _list_decisions(space: Sequence[Dimension]) -> list[_Decision]:
    """Return the decisions that parameters belong to; one for each cut of a Score."""
    together: dict[tuple[str, str, str], list[Dimension]] = {}
    for d in space:
        predictor, _, of = d.name.partition(":")
        output, _, cut = of.split("=")[0].partition(LEVEL)
        if output:
            together.setdefault((predictor, output, cut), []).append(d)
    decisions = []
    for (predictor, output, _), own in together.items():
        if own[0].log:  # the first option has no weight of its own
            none = {d.name: d.low for d in own}
            forced = [none, *({**none, d.name: d.high} for d in own)]
        else:
            forced = [{own[0].name: own[0].high}, {own[0].name: own[0].low}]
        decisions.append(_Decision(predictor, output, own, forced))
    return decisions
