"""Candidates judged by module-level labels alone: what loses there is not searched, what was got wrong is learnt from.

A candidate is let in when its loss on labelled examples of topics that it was not shown is lower than that of what the
predictor has, by at least a standard error over topics. Where there are too few labels the search itself must tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optimize.compiler.candidates import learns
from optimize.compiler.demonstrations import Demonstration, thinned
from optimize.compiler.instructions import Failure
from optimize.compiler.runs import said
from optimize.compiler.scores import Floats
from optimize.compiler.scoring import Arm
from optimize.compiler.survival import survives
from program.loop.decisions import Decision, is_decision, is_undecided, to_jsonable
from program.loop.policy import DEMONSTRATIONS, INSTRUCTIONS, Setting, apply_setting
from program.loop.state import Ask

LEAST = 8  # examples; fewer tell nothing
PAID = 24  # examples put to a language model
SURE = 1e-3  # probabilities are kept this far from 0 and 1
MOST_LET_IN = 3


@dataclass(slots=True)
class Examples:
    """Labelled examples of one predictor, each with the arm whose program was not shown its topic.

    `base` is the place of the demonstrations that others have to do better than: what the predictor has as it is, or
    the first that make it a decider.
    """

    name: str
    cases: Sequence[tuple[Arm, Demonstration]]
    base: int = 0
    failures: list[Failure] = field(default_factory=list)
    _as_it_is: Floats | None = None

    @property
    def tell(self) -> bool:
        """True when there are enough to judge a candidate by."""
        return len(self.cases) >= LEAST and len({one.topic for _, one in self.cases}) > 1

    def as_it_is(self) -> Floats:
        """What the examples lose under what others have to do better than; notes what it gets wrong."""
        if self._as_it_is is None:
            self._as_it_is = self._losses(DEMONSTRATIONS, self.base, learning=True)
        return self._as_it_is

    def judged(self, setting: Setting) -> Iterator[tuple[int, Ask, Mapping[str, Decision], dict[str, Any]]]:
        """Under a setting, for each example with a reply: its place, what was asked, the reply, what it should be."""
        for arm in {id(arm): arm for arm, _ in self.cases}.values():
            mine = [n for n, (other, _) in enumerate(self.cases) if other is arm]
            program = arm.replay.program
            apply_setting(program, setting)
            inputs = program.predictor(self.name).signature.input_fields
            fields = [self.cases[n][1].fields for n in mine]
            asks = [Ask(self.name, {name: one[name] for name in inputs}) for one in fields]
            for n, one, ask, reply in zip(mine, fields, asks, arm.replay.replies(asks), strict=True):
                if reply is not None:
                    yield n, ask, reply, {name: one[name] for name in reply if name in one}

    def _losses(self, kind: str, place: int, learning: bool = False) -> Floats:
        """The logarithmic loss of each example under one candidate; NaN where no reply could be had."""
        found = np.full(len(self.cases), np.nan)
        as_it_is = {self.name + INSTRUCTIONS: 0.0, self.name + DEMONSTRATIONS: float(self.base)}
        for n, ask, reply, wanted in self.judged({**as_it_is, self.name + kind: place}):
            found[n] = loss(reply, wanted)
            if learning:
                self._learn(ask, reply, wanted)
        return found

    def let_in(self, kind: str, sets: Sequence[str]) -> list[int]:
        """The places (from 1) of the candidates that do better than what there is, by a standard error or more.

        Of sets that shrink the next is tried only while the larger does not lose. At most MOST_LET_IN, the best.
        """
        gains: dict[int, float] = {}
        lost = ""
        for place, name in enumerate(sets, 1):
            if kind == DEMONSTRATIONS and place == self.base:
                continue
            shrinking = name.rpartition("-")[0] if kind == DEMONSTRATIONS else ""
            if shrinking and shrinking == lost:
                continue
            gain = self.as_it_is() - self._losses(kind, place)
            mean = float(np.nanmean(gain)) if not np.isnan(gain).all() else -np.inf
            if mean <= 0:
                lost = shrinking
            elif survives(gain.tolist(), [one.topic for _, one in self.cases]):
                gains[place] = mean
        return sorted(sorted(gains, key=lambda place: (-gains[place], place))[:MOST_LET_IN])

    def _learn(self, ask: Ask, reply: Mapping[str, Decision], wanted: Mapping[str, Any]) -> None:
        told = said(reply)
        if wrong := {name: value for name, value in wanted.items() if told[name] != value}:
            inputs = {name: to_jsonable(value) for name, value in ask.inputs.items()}
            feedback = "; ".join(f"{name} should have been {value}" for name, value in wrong.items())
            failure = {"Inputs": inputs, "Generated Outputs": told, "Feedback": feedback}
            if failure not in self.failures:
                self.failures.append(failure)


def examples(arms: Sequence[Arm], made: Sequence[Demonstration], name: str, base: int = 0) -> Examples:
    """The labelled examples of a predictor that decides: for an embedded decider those of the first fold, as each
    fold's heads have to be fitted; for a language model some of every fold. What a text loses nobody can say."""
    topics = {q.cluster: arm for arm in arms for q in arm.questions}
    own = [one for one in made if one.predictor == name and one.topic in topics]
    if not is_decision(arms[0].replay.program.predictor(name)):
        return Examples(name, [], base)
    if learns(arms[0].replay.program, name):
        own = [one for one in own if topics[one.topic] is arms[0]]
    else:
        own = thinned(own, PAID)
    return Examples(name, [(topics[one.topic], one) for one in own], base)


def loss(reply: Mapping[str, Decision], wanted: Mapping[str, Any]) -> float:
    """The mean negative logarithm of the probabilities given to what was wanted; an even chance where the reply could
    not be read, as nothing is concluded from it."""
    right = []
    for name, value in wanted.items():
        decision = reply[name]
        if is_undecided(decision):
            right.append(0.5)
        elif decision.probabilities is not None:
            right.append(decision.probabilities.get(str(value), 0.0))
        else:
            right.append(decision.probability if value else 1 - decision.probability)
    return float(-np.log(np.clip(right, SURE, 1 - SURE)).mean()) if right else float("nan")
