"""Thresholds and weights fitted one at a time: to the labels of their decisions, then by sweeps of utility.

Every fit rests on topics that the program was not shown, and a swept value must win on topics it was not chosen on.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optimize.compiler.demonstrations import Demonstration, learns_demos, thin_out
from optimize.compiler.replay import Arm
from optimize.compiler.scoring import Floats, Scoring, best_row, gain_out_of_fold
from optimize.compiler.spending import Caps, Spending
from program.errors import BudgetStop
from program.loop.decisions import Decision, is_decision, is_undecided
from program.loop.evidence import preview_pool
from program.loop.policy import HEAVIEST, LEAST, LIGHTEST, MOST, Dimension, Setting, apply_setting
from program.loop.state import Ask, Find
from program.signatures import BASE_PREFIX

ROUTE = "classifier.route"
PAID = 24
"""Labelled examples put to a language model at most."""
GRID, PASSES = 17, 3
"""Weights tried for an option, and passes over all options."""
SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""Places in the range of a threshold at which it is swept."""
COUNTED = 5
"""Values of a count, or of a knob with steps, that are swept at most."""
PREVIEW, FEW = 3, 60
"""Every so manieth question is tried first, where there are more than FEW; without gain there a value is given up."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A decision on labelled cases of topics it was not shown, for the report."""

    parameter: str
    """Name of the decision's threshold."""
    cut: bool
    """False for a choice among options: `chances` are then of the likeliest option."""
    chances: list[float]
    """Probabilities in [0, 1]."""
    truths: list[bool]
    """Whether it was so; of a choice, whether the likeliest option was the label."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The router's decisions on labelled questions, and their labels."""

    chances: Mapping[str, list[float]]
    """Probabilities of each yes-or-no output."""
    truths: Mapping[str, list[bool]]
    """Labels of each yes-or-no output."""
    tables: list[dict[str, float]]
    """Probabilities of the routes, one table a question."""
    routes: list[str]
    """Labelled routes."""

    def fit(self, names: Mapping[str, float]) -> Setting:
        """Return the thresholds and weights among `names`, each fitted alone to its labels."""
        found = {f"{ROUTE}:{output}": fit_threshold(p, self.truths[output]) for output, p in self.chances.items()}
        found |= {f"{ROUTE}:route={label}": w for label, w in fit_weights(self.tables, self.routes).items()}
        return {name: value for name, value in found.items() if name in names}


@dataclass(frozen=True, slots=True)
class Sweeps:
    """Knobs fitted one at a time."""

    setting: Setting
    """The start with every value that won."""
    gains: Mapping[str, float]
    """Out-of-fold gain in utility of each knob that was moved."""
    effective: tuple[str, ...]
    """Knobs of which some value changed some question's score."""


@dataclass(frozen=True, slots=True)
class LabelledCases:
    """Labelled examples of one predictor, each with an arm whose program was not shown its topic."""

    name: str
    cases: Sequence[tuple[Arm, Demonstration]]

    def decide(self, setting: Setting) -> Iterator[tuple[int, Ask, Mapping[str, Decision], dict[str, Any]]]:
        """Yield of each example with a reply its place, the request, the reply and the labels, under a setting."""
        for arm in {id(arm): arm for arm, _ in self.cases}.values():
            mine = [n for n, (other, _) in enumerate(self.cases) if other is arm]
            program = arm.replay.program
            apply_setting(program, setting)
            inputs = program.predictor(self.name).signature.input_fields
            shown = [self.cases[n][1].fields for n in mine]
            asks = [Ask(self.name, {name: one[name] for name in inputs}) for one in shown]
            for n, one, ask, reply in zip(mine, shown, asks, arm.replay.reply_all(asks), strict=True):
                if reply is not None:
                    yield n, ask, reply, {name: one[name] for name in reply if name in one}


def label_cases(arms: Sequence[Arm], demonstrations: Sequence[Demonstration], name: str) -> LabelledCases:
    """Return the labelled examples of a predictor that decides; none for one that writes.

    For an embedded decider those of the first arm, as the heads of each arm have to be fitted; for a language model
    some of every arm.
    """
    program = arms[0].replay.program
    if not is_decision(program.predictor(name)):
        return LabelledCases(name, [])
    topics = {question.cluster: arm for arm in arms for question in arm.questions}
    own = [one for one in demonstrations if one.predictor == name and one.topic in topics]
    own = [one for one in own if topics[one.topic] is arms[0]] if learns_demos(program, name) else thin_out(own, PAID)
    return LabelledCases(name, [(topics[one.topic], one) for one in own])


def fit_threshold(probabilities: Sequence[float], labels: Sequence[bool]) -> float:
    """Return the cut in [0.02, 0.98] with the most labels right; of equally good cuts the one nearest to one half."""
    p, y = np.asarray(probabilities, float), np.asarray(labels, bool)
    if not len(p) or y.all() or not y.any():
        return 0.5
    edges = np.unique(np.clip(p, LEAST, MOST))
    cuts = np.unique(np.concatenate([[LEAST, 0.5, MOST], (edges[1:] + edges[:-1]) / 2]))
    right = np.array([np.mean((p >= cut) == y) for cut in cuts])
    best = cuts[right >= right.max() - 1e-12]
    return float(best[np.argmin(np.abs(best - 0.5))])


def fit_weights(tables: Sequence[Mapping[str, float]], labels: Sequence[str]) -> dict[str, float]:
    """Return weights in [1/4, 4] for every option but the first, by which most tables' heaviest option is the label.

    One option at a time on a logarithmic grid, a few passes; of equally good weights the one nearest to 1.
    """
    if not tables:
        return {}
    options = list(tables[0])
    p = np.array([[table[option] for option in options] for table in tables])
    y = np.array([options.index(label) for label in labels])
    grid = sorted(np.geomspace(LIGHTEST, HEAVIEST, GRID), key=lambda w: abs(float(np.log(w))))
    weights = np.ones(len(options))
    for _ in range(PASSES):
        for at in range(1, len(options)):
            tried = np.tile(weights, (GRID, 1))
            tried[:, at] = grid
            right = [float(np.mean((p * w).argmax(axis=1) == y)) for w in tried]
            weights = tried[int(np.argmax(right))]  # the first of equals: nearest to 1
    return {option: float(weight) for option, weight in zip(options[1:], weights[1:], strict=True)}


def observe_routing(arms: Sequence[Arm], setting: Setting) -> Routing:
    """Return the router's decisions on the labelled questions of the arms, under a setting."""
    found = Routing(defaultdict(list), defaultdict(list), [], [])
    for arm in arms:
        apply_setting(arm.replay.program, setting)
        sources = arm.replay.program.sources
        pools = arm.replay.reply_all([Find(question.question, sources) for question in arm.questions])
        asks = [
            Ask(ROUTE, {"question": question.question, "glimpse": preview_pool(pool or [])})
            for question, pool in zip(arm.questions, pools, strict=True)
        ]
        for question, reply in zip(arm.questions, arm.replay.reply_all(asks), strict=True):
            if reply is None:
                continue
            labels = {"vague": question.outcome == "clarify"} if question.outcome is not None else {}
            if question.sources:
                labels |= {BASE_PREFIX + name: name in question.sources for name in sources}
            for output, label in labels.items():
                if not is_undecided(reply[output]):
                    found.chances[output].append(reply[output].probability)
                    found.truths[output].append(label)
            if question.route is not None:
                found.tables.append(dict(reply["route"].probabilities))
                found.routes.append(question.route)
    return found


def calibrate_decisions(
    arms: Sequence[Arm], demonstrations: Sequence[Demonstration], setting: Setting, spending: Spending
) -> list[Calibration]:
    """Return every decision that has labels, the router's first, under a setting; makes no call that is paid for."""
    before, spending.caps = (spending.caps, spending.tripped), Caps(calls=0)
    found: list[Calibration] = []
    try:
        with contextlib.suppress(BudgetStop):
            found += _calibrate_routing(observe_routing(arms, setting))
        for name in sorted({one.predictor for one in demonstrations} - {ROUTE}):
            with contextlib.suppress(BudgetStop):
                found += _calibrate_cases(label_cases(arms, demonstrations, name), setting)
    finally:
        spending.caps, spending.tripped = before
    return [one for one in found if one.chances]


def _calibrate_routing(routing: Routing) -> list[Calibration]:
    choice = Calibration(f"{ROUTE}:route", False, [], [])
    for table, label in zip(routing.tables, routing.routes, strict=True):
        likeliest = max(table, key=table.__getitem__)
        choice.chances.append(table[likeliest])
        choice.truths.append(likeliest == label)
    outputs = sorted(routing.chances)
    return [choice, *(Calibration(f"{ROUTE}:{o}", True, routing.chances[o], routing.truths[o]) for o in outputs)]


def _calibrate_cases(cases: LabelledCases, setting: Setting) -> list[Calibration]:
    found: dict[str, Calibration] = {}
    for _, _, reply, wanted in cases.decide(setting):
        for output, label in wanted.items():
            if not is_undecided(reply[output]):
                one = found.setdefault(output, Calibration(f"{cases.name}:{output}", True, [], []))
                one.chances.append(reply[output].probability)
                one.truths.append(bool(label))
    return list(found.values())


def sweep_knobs(
    scoring: Scoring,
    space: Sequence[Dimension],
    start: Setting,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Sweeps:
    """Return the start with each knob at the value of most utility, where that gains out of fold.

    One knob at a time over its grid; a knob that was moved stays so for those after it. What a cap leaves no room for
    stays as it is.
    """
    topics = [question.cluster for question in scoring.questions]
    setting, gains, effective = dict(start), dict[str, float](), list[str]()
    with contextlib.suppress(BudgetStop):
        for done, dimension in enumerate(space):
            progress(done, len(space))
            if dimension.name.startswith(f"{ROUTE}:{BASE_PREFIX}"):
                continue  # its labels say all that there is to say of it
            values, table, matters = _score_values(scoring, dimension, setting)
            if matters:
                effective.append(dimension.name)
            gain = gain_out_of_fold(table, topics, range(len(topics)))
            if np.nansum(gain) > 0 and (best := best_row(table)):
                setting[dimension.name] = values[best - 1]
                gains[dimension.name] = float(np.nanmean(gain))
    return Sweeps(setting, gains, tuple(effective))


def _score_values(scoring: Scoring, dimension: Dimension, setting: Setting) -> tuple[list[float], Floats, bool]:
    """Return the values of a knob that may win, their utilities below the setting's own, and whether any matters.

    A value without gain on a preview of the questions is given up.
    """
    before = scoring(setting).utility
    preview = range(0, len(before), PREVIEW if len(before) > FEW else 1)
    promising, matters = [], False
    for value in grid_of(dimension, setting[dimension.name]):
        gain = scoring({**setting, dimension.name: value}, preview).utility[preview] - before[preview]
        matters |= bool((np.nan_to_num(gain) != 0).any())
        if np.nansum(gain) > 0:
            promising.append(value)
    rows = [scoring({**setting, dimension.name: value}).utility for value in promising]
    return promising, np.array([before, *rows]), matters


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
