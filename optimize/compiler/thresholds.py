"""Thresholds, cuts and weights of a program's decisions, fitted together to what its answers are worth for each value.

1. A decision that an example asks once is forced to its likely values in turn, which a record makes arithmetic.
2. Its probabilities are calibrated by maximum likelihood to the values that are worth most, an example weighing as much
   as hangs on it. So where mistakes of one kind cost more, a decision falls the other way sooner. A likelihood rests on
   all examples; the best of many settings by counting what each scores would rest on the few where the decision is
   close, and on their luck.
3. The fit stays unless it surely loses on topics that it was not made from.
4. A decision that is asked several times of an example, which no one value can force, is swept.
5. From which probability a quotation is said is fitted by itself, held near the value that the program has. How
   strongly was chosen on topics left out of train: of strengths 50, 17 and 5 the example gained .004, .023 and .012 in
   utility, and squad2 .030, .062 and .041.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logit, logsumexp, softmax

from ragc.errors import BudgetStop
from ragc.loop.policy import LEAST, LEVEL, MOST, Dimension, Setting
from ragc.optimize.compiler.runs.runner import Chances, Decided
from ragc.optimize.compiler.scoring import Floats, Scoring, split_topics
from ragc.optimize.compiler.search import left_out_past_a_cap, sweep_knobs

LIGHTEST, HEAVIEST = 1e-6, 1e6  # weights of an option at which no other, or only others, are chosen
ROUNDS = 2  # over the decisions of a program that has several, as others moved meanwhile
LIKELIEST = 8  # values of a decision that are tried on every example
CAUTION = 20.0  # strength of the priors about what holds a quotation back
RAREST = 5e-7  # half of the last digit of a probability in a reply


def fit_thresholds(
    scoring: Scoring, space: Sequence[Dimension], start: Setting, progress: Callable[[int, int], None]
) -> Setting:
    """Return the start with its thresholds, cuts and weights of decisions fitted.

    A decision with a value for which a cap on calls or money leaves no room stays as it is: most need no call. At a cap
    on time all others do.
    """
    setting, turns = dict(start), list[_Decision]()
    with suppress(BudgetStop):
        runs = scoring.decide_all(setting)
        decisions = [one for one in _list_decisions(space) if one.count_most(runs) == 1]
        fitted = {d.name for one in decisions for d in one.parameters}
        space = [d for d in space if d.name not in fitted]
        turns = [one for _ in range(min(ROUNDS, len(decisions))) for one in decisions]
        for done, decision in enumerate(turns):
            with left_out_past_a_cap():
                tell = partial(progress, done, len(turns) + len(space))
                setting |= _fit_decision(decision, scoring, setting, tell)
    return sweep_knobs(scoring, space, setting, lambda done, of: progress(len(turns) + done, len(turns) + of))[0]


def fit_caution(scoring: Scoring, name: str, start: Setting) -> Setting:
    """Return the start with the probability from which a quotation is said, fitted to what answers and refusals gain.

    It is where a logistic regression of which of the two is worth more, on the log-odds of the answer, is even: each
    question weighs as much as hangs on it, and slope and shift have normal priors about the value that the start has.
    """
    always, never = ({**start, name: end} for end in (LEAST, MOST))
    scoring.score_ahead([(always, None), (never, None)])
    said, refused = scoring(always), scoring(never).utility
    gain = said.utility - refused
    known = np.isfinite(gain) & (said.confidence > 0) & (gain != 0)
    if not known.any():
        return start
    here = logit(start[name])
    odds, sign = logit(np.clip(said.confidence[known], LEAST / 2, 1 - LEAST / 2)) - here, np.sign(gain[known])
    stake = np.abs(gain[known]) / np.abs(gain[known]).mean()

    def lose(x: Floats) -> float:
        miss = np.logaddexp(0, -(np.exp(x[0]) * odds + x[1]) * sign)
        return float(CAUTION * x @ x / 2 + stake @ miss)

    slope, shift = minimize(lose, np.zeros(2), method="L-BFGS-B").x
    return {**start, name: float(np.clip(expit(here - shift / np.exp(slope)), LEAST, MOST))}


def _fit_decision(decision: _Decision, scoring: Scoring, setting: Setting, tell: Callable[[], None]) -> Setting:
    """Return a decision's values; none where it does not matter, or where they surely lose on topics held out."""
    logs = decision.read_logs(scoring.decide_all(setting))
    worth = decision.find_worth(scoring, setting, logs, tell)
    if not (worth != worth[:, :1]).any():
        return {}
    before, held = scoring(setting).merit, np.zeros(len(worth))
    folds = split_topics([question.cluster for question in scoring.questions])
    rests = [np.setdiff1d(range(len(worth)), fold) for fold in folds]
    tried = [{**setting, **decision.set(fit_log_weights(logs[rest], worth[rest]))} for rest in rests if len(folds) > 1]
    scoring.score_ahead([*zip(tried, folds, strict=False)])
    for one, fold in zip(tried, folds, strict=False):
        held[fold] = scoring(one, fold).merit[fold] - before[fold]
    loses = held.sum() < -np.linalg.norm(held)  # the sum's standard error
    return {} if loses else decision.set(fit_log_weights(logs, worth))


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
        likely = log_softmax(np.exp(x[0]) * logs + x[1:], axis=1)
        pull = stake[:, None] * (np.exp(likely) - softmax(likely + share, axis=1))
        slope = np.concatenate([[np.exp(x[0]) * (pull * logs).sum()], pull.sum(axis=0)])
        return float(x @ x / 2 - stake @ logsumexp(likely + share, axis=1)), x + slope

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

    def count_most(self, runs: Sequence[Sequence[Decided]]) -> int:
        """Return how often an example asks it at most."""
        return max((sum(one[:2] == (self.predictor, self.output) for one in run) for run in runs), default=0)

    def read_logs(self, runs: Sequence[Sequence[Decided]]) -> Floats:
        """Return the logarithms of its values' probabilities on each example.

        They are equal where it was not asked. Those of a cut say how near the mean level is to the levels beside it.
        """
        own = (self.predictor, self.output)
        met = (next((one.chances for one in run if one[:2] == own), None) for run in runs)
        shares: Floats = np.log(np.clip([self._share(found) for found in met], RAREST, 1.0))
        return shares

    def find_worth(self, scoring: Scoring, setting: Setting, logs: Floats, tell: Callable[[], None]) -> Floats:
        """Return what each of its values is worth on each example.

        Of many values the likeliest are tried, and all others where these are worth the same. A value that was not
        tried counts as the worst of those that were.
        """
        likely = (-logs).argsort(axis=1, kind="stable").argsort(axis=1) < LIKELIEST
        worth, open_ = np.full(logs.shape, np.nan), np.ones(len(logs), bool)
        for among in (likely, ~likely):
            places = [np.flatnonzero(column & open_).tolist() for column in among.T]
            tried = [({**setting, **forced}, own) for forced, own in zip(self.forced, places, strict=True)]
            scoring.score_ahead(tried)
            for n, (one, own) in enumerate(tried):
                tell()
                if own:
                    worth[own, n] = scoring(one, own).merit[own]
            open_ = np.nanmin(worth, axis=1) == np.nanmax(worth, axis=1)
        return np.where(np.isnan(worth), np.nanmin(worth, axis=1, keepdims=True), worth)

    def set(self, log_weights: Floats) -> dict[str, float]:
        """Return its parameters' values that weigh its values so."""
        by = log_weights[1:] - log_weights[0]
        values = np.exp(by) if self.parameters[0].log else self.parameters[0].low - LEAST + expit(-by)
        return {d.name: float(np.clip(v, d.low, d.high)) for d, v in zip(self.parameters, values, strict=True)}

    def _share(self, p: Chances | None) -> list[float]:
        if p is None:
            return [1 / len(self.forced)] * len(self.forced)
        if isinstance(p, float):
            return [1 - p, p]
        p = p if isinstance(p, Mapping) else dict(enumerate(p))
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
            none = {d.name: LIGHTEST for d in own}
            forced = [none, *({**none, d.name: HEAVIEST} for d in own)]
        else:
            forced = [{own[0].name: own[0].high}, {own[0].name: own[0].low}]
        decisions.append(_Decision(predictor, output, own, forced))
    return decisions
