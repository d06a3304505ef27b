"""A program's decisions beside their labels, for screening and for their calibration.

Every case is decided by a program that was not shown its topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from optimize.compiler.candidates.demonstrations import Demonstration, learns_demos, thin_out
from optimize.compiler.runs.replay import ReplayArm
from optimize.compiler.study import Caps, Spending
from program.errors import BudgetStop
from program.loop.decisions import is_decision, is_undecided
from program.loop.evidence import preview_pool
from program.loop.policy import Setting, apply_setting
from program.loop.state import Ask, Find
from program.models.requests import Decision
from program.signatures import BASE_PREFIX

ROUTE = "classifier.route"
PAID = 24  # labelled examples put to a language model at most


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


def calibrate_routing(arms: Sequence[ReplayArm], setting: Setting) -> list[Calibration]:
    """Return the choice of a route, and every yes-or-no output of the router."""
    route, cuts = Calibration(f"{ROUTE}:route", False), dict[str, Calibration]()
    for arm in arms:
        apply_setting(arm.replay.program, setting)
        sources = arm.replay.program.sources
        questions = [question for question in arm.questions if not question.history]
        pools = arm.replay.reply_all([Find(question.question, sources) for question in questions])
        asks = [
            Ask(ROUTE, {"question": question.question, "glimpse": preview_pool(pool or [])})
            for question, pool in zip(questions, pools, strict=True)
        ]
        for question, reply in zip(questions, arm.replay.reply_all(asks), strict=True):
            if reply is None:
                continue
            labels = {"vague": question.outcome == "clarify"} if question.outcome is not None else {}
            if question.sources:
                labels |= {BASE_PREFIX + name: name in question.sources for name in sources}
            for output, label in labels.items():
                cuts.setdefault(output, Calibration(f"{ROUTE}:{output}", True)).note(reply[output], label)
            if question.route is not None:
                shares = reply["route"].probabilities
                likeliest = max(shares, key=shares.__getitem__)
                route.chances.append(shares[likeliest])
                route.truths.append(likeliest == question.route)
    return [route, *(cuts[output] for output in sorted(cuts))]


def calibrate_decisions(
    arms: Sequence[ReplayArm], demonstrations: Sequence[Demonstration], setting: Setting, spending: Spending
) -> list[Calibration]:
    """Return every decision that has labels, under a setting, for no money."""
    before, spending.caps = (spending.caps, spending.tripped), Caps(calls=0)
    found: list[Calibration] = []
    try:
        with suppress(BudgetStop):
            found += calibrate_routing(arms, setting)
        for name in sorted({one.predictor for one in demonstrations} - {ROUTE}):
            with suppress(BudgetStop):
                found += label_cases(arms, demonstrations, name).calibrate(setting)
    finally:
        spending.caps, spending.tripped = before
    return [one for one in found if one.chances]
