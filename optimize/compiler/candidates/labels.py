"""A program's decisions beside their labels: thresholds and weights fitted to them, and their calibration.

Every case is decided by a program that was not shown its topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optimize.compiler.candidates.demonstrations import Demonstration, learns_demos, thin_out
from optimize.compiler.runs.replay import ReplayArm
from optimize.compiler.scoring import ROUTE
from optimize.compiler.study import Caps, Spending
from program.errors import BudgetStop
from program.loop.decisions import Decision, is_decision, is_undecided
from program.loop.evidence import preview_pool
from program.loop.policy import HEAVIEST, LEAST, LIGHTEST, MOST, Setting, apply_setting
from program.loop.state import Ask, Find
from program.signatures import BASE_PREFIX

PAID = 24  # labelled examples put to a language model at most
GRID, PASSES = 17, 3  # weights tried for an option, and passes over all options


@dataclass(frozen=True, slots=True)
class Calibration:
    """A decision on labelled cases."""

    parameter: str  # name of the decision's threshold
    cut: bool  # false for a choice among options: `chances` are then of the likeliest option
    chances: list[float] = field(default_factory=list)  # probabilities in [0, 1]
    truths: list[bool] = field(default_factory=list)  # whether it was so; of a choice, if the likeliest was the label

    def note(self, decision: Decision, label: Any) -> None:
        """Add a yes-or-no decision, unless it was left open."""
        if not is_undecided(decision):
            self.chances.append(decision.probability)
            self.truths.append(bool(label))


@dataclass(frozen=True, slots=True)
class Routing:
    """The router's decisions on labelled questions."""

    cuts: dict[str, Calibration] = field(default_factory=dict)  # of each yes-or-no output
    tables: list[dict[str, float]] = field(default_factory=list)  # probabilities of the routes, one table a question
    routes: list[str] = field(default_factory=list)  # labelled routes

    def fit(self, names: Mapping[str, float]) -> Setting:
        """Return thresholds and weights, each fitted alone to its labels."""
        found = {one.parameter: fit_threshold(one.chances, one.truths) for one in self.cuts.values() if one.chances}
        found |= {f"{ROUTE}:route={label}": w for label, w in fit_weights(self.tables, self.routes).items()}
        return {name: value for name, value in found.items() if name in names}

    def calibrate(self) -> list[Calibration]:
        """Return the choice of a route, and every yes-or-no output."""
        likeliest = [max(table, key=table.__getitem__) for table in self.tables]
        chances = [table[route] for table, route in zip(self.tables, likeliest, strict=True)]
        truths = [route == label for route, label in zip(likeliest, self.routes, strict=True)]
        return [Calibration(f"{ROUTE}:route", False, chances, truths), *(self.cuts[one] for one in sorted(self.cuts))]


@dataclass(frozen=True, slots=True)
class LabelledCases:
    """Labelled examples of one predictor, each with an arm whose program was not shown its topic."""

    name: str
    cases: Sequence[tuple[ReplayArm, Demonstration]]

    def decide(self, setting: Setting) -> Iterator[tuple[int, Ask, Mapping[str, Decision], dict[str, Any]]]:
        """Yield each example's place, request, reply and labels, under a setting."""
        for arm in {id(arm): arm for arm, _ in self.cases}.values():
            mine = [(n, one.fields) for n, (other, one) in enumerate(self.cases) if other is arm]
            program = arm.replay.program
            apply_setting(program, setting)
            inputs = program.predictor(self.name).signature.input_fields
            asks = [Ask(self.name, {name: fields[name] for name in inputs}) for _, fields in mine]
            for (n, fields), ask, reply in zip(mine, asks, arm.replay.reply_all(asks), strict=True):
                if reply is not None:
                    yield n, ask, reply, {name: fields[name] for name in reply if name in fields}

    def calibrate(self, setting: Setting) -> list[Calibration]:
        """Return every output on the examples, under a setting."""
        found: dict[str, Calibration] = {}
        for _, _, reply, labels in self.decide(setting):
            for output, label in labels.items():
                found.setdefault(output, Calibration(f"{self.name}:{output}", True)).note(reply[output], label)
        return list(found.values())


def label_cases(arms: Sequence[ReplayArm], demonstrations: Sequence[Demonstration], name: str) -> LabelledCases:
    """Return the labelled examples of a predictor that decides.

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


def observe_routing(arms: Sequence[ReplayArm], setting: Setting) -> Routing:
    """Return the router's decisions on the labelled questions of the arms."""
    found = Routing()
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
                found.cuts.setdefault(output, Calibration(f"{ROUTE}:{output}", True)).note(reply[output], label)
            if question.route is not None:
                found.tables.append(dict(reply["route"].probabilities))
                found.routes.append(question.route)
    return found


def calibrate_decisions(
    arms: Sequence[ReplayArm], demonstrations: Sequence[Demonstration], setting: Setting, spending: Spending
) -> list[Calibration]:
    """Return every decision that has labels, under a setting, for no money."""
    before, spending.caps = (spending.caps, spending.tripped), Caps(calls=0)
    found: list[Calibration] = []
    try:
        with suppress(BudgetStop):
            found += observe_routing(arms, setting).calibrate()
        for name in sorted({one.predictor for one in demonstrations} - {ROUTE}):
            with suppress(BudgetStop):
                found += label_cases(arms, demonstrations, name).calibrate(setting)
    finally:
        spending.caps, spending.tripped = before
    return [one for one in found if one.chances]


def fit_threshold(probabilities: Sequence[float], labels: Sequence[bool]) -> float:
    """Return the cut in [0.02, 0.98] with the most labels right."""
    p, y = np.asarray(probabilities, float), np.asarray(labels, bool)
    if not len(p) or y.all() or not y.any():
        return 0.5
    edges = np.unique(np.clip(p, LEAST, MOST))
    cuts = np.unique(np.concatenate([[LEAST, 0.5, MOST], (edges[1:] + edges[:-1]) / 2]))
    right = ((p >= cuts[:, None]) == y).mean(axis=1)
    best = cuts[right >= right.max() - 1e-12]
    return float(best[np.argmin(np.abs(best - 0.5))])


def fit_weights(tables: Sequence[Mapping[str, float]], labels: Sequence[str]) -> dict[str, float]:
    """Return the options' weights in [1/4, 4] with most labels right, near 1."""
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
            right = ((p * tried[:, None]).argmax(axis=2) == y).mean(axis=1)
            weights = tried[np.argmax(right)]  # the first of equals: nearest to 1
    return {option: float(weight) for option, weight in zip(options[1:], weights[1:], strict=True)}
