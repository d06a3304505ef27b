"""A program's decisions beside their labels, by which candidates are screened.

Every case is decided by a program that was not shown its topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimize.compiler.candidates.demonstrations import Demonstration, learns_demos, thin_out
from optimize.compiler.runs.replay import ReplayArm
from program.loop.decisions import is_decision
from program.loop.policy import Setting, apply_setting
from program.loop.state import Ask
from program.models.requests import Decision

PAID = 24  # labelled examples put to a language model at most


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
