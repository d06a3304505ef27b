"""The parameters of a program, found by walking it: every knob, every decision's threshold or weights, every candidate.

There is no list of parameters anywhere else; a knob is searched from the day it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import dspy
from dspy.adapters.types.decision import Choice, Noul, Score, decision_type

from program.loop.knobs import Knob

LEAST, MOST = 0.02, 0.98
LIGHTEST, HEAVIEST = 0.25, 4.0
LEVEL = ">"
INSTRUCTIONS, DEMONSTRATIONS = "#instructions", "#demonstrations"

Setting = dict[str, float]
"""A value for each parameter, by name: `policy.k`, `judge.relevance:relevant`, `classifier.route:route=simple`,
`generator.answer#instructions`; of a Score output the cut from which it is level 2: `grader.grade:quality>2`."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One parameter's name, range and scale; `nominal` numbers are names, of which none is nearer than another."""

    name: str
    low: float
    high: float
    integral: bool = False
    log: bool = False
    step: float | None = None
    nominal: bool = False


@dataclass(slots=True)
class Candidates:
    """What a predictor may be given: signatures that differ in their instructions, and sets of demonstrations.

    A search puts one on a predictor, as its `candidates`. It is never saved: what is chosen from it is the
    predictor's own from then on.
    """

    signatures: Sequence[Any]
    demonstrations: Sequence[list[dict[str, Any]]]
    signature: int = 0
    shown: int = 0

    def choose(self, predictor: dspy.Predict) -> None:
        """Gives the predictor what was chosen."""
        predictor.signature = self.signatures[self.signature]
        predictor.demos = self.demonstrations[self.shown]

    def dimensions(self, name: str) -> list[Dimension]:
        """One for each kind of which there is a choice."""
        sizes = ((INSTRUCTIONS, len(self.signatures)), (DEMONSTRATIONS, len(self.demonstrations)))
        return [Dimension(name + kind, 0, n - 1, integral=True, nominal=True) for kind, n in sizes if n > 1]


def is_candidate(name: str) -> bool:
    """True for the name of a choice among candidates, which a sealed program no longer has."""
    return name.endswith((INSTRUCTIONS, DEMONSTRATIONS))


def space(program: dspy.Module) -> list[Dimension]:
    """Every parameter of the program, in the order of the walk."""
    found: list[Dimension] = []
    for name, parameter in program.named_parameters():
        if isinstance(parameter, Knob):
            found.append(
                Dimension(name, parameter.low, parameter.high, parameter.integral, parameter.log, parameter.step)
            )
        elif isinstance(parameter, dspy.Predict):
            found += _decisions(name, parameter)
            if candidates := getattr(parameter, "candidates", None):
                found += candidates.dimensions(name)
    return found


def read(program: dspy.Module) -> Setting:
    """The values now."""
    setting: Setting = {}
    for name, parameter in program.named_parameters():
        if isinstance(parameter, Knob):
            setting[name] = parameter.value
        elif isinstance(parameter, dspy.Predict):
            for dimension in _decisions(name, parameter):
                output, label = _parts(dimension.name)
                config = parameter.fields.get(output, {})
                if level := _level(output):
                    output = output.partition(LEVEL)[0]
                    setting[dimension.name] = cuts_of(parameter, output)[level - 1]
                elif label is None:
                    setting[dimension.name] = config.get("threshold", 0.5)
                else:
                    setting[dimension.name] = config.get("weights", {}).get(label, 1.0)
            if candidates := getattr(parameter, "candidates", None):
                at = {INSTRUCTIONS: candidates.signature, DEMONSTRATIONS: candidates.shown}
                setting |= {d.name: at["#" + d.name.rpartition("#")[2]] for d in candidates.dimensions(name)}
    return setting


def apply(program: dspy.Module, setting: Mapping[str, float]) -> None:
    """Sets the values; names the program does not have are ignored, so that an older setting can start a search."""
    Turning(program).apply(setting)


class Turning:
    """A program walked once, whose parameters are to be set many times; it must keep its predictors."""

    def __init__(self, program: dspy.Module) -> None:
        self._knobs: list[tuple[str, Knob]] = []
        self._decisions: list[tuple[str, dspy.Predict, str, str | None]] = []
        self._offered: list[tuple[str, Any]] = []
        for name, parameter in program.named_parameters():
            if isinstance(parameter, Knob):
                self._knobs.append((name, parameter))
            elif isinstance(parameter, dspy.Predict):
                self._decisions += [(d.name, parameter, *_parts(d.name)) for d in _decisions(name, parameter)]
                if getattr(parameter, "candidates", None):
                    self._offered.append((name, parameter))

    def apply(self, setting: Mapping[str, float]) -> None:
        """Sets the values, as `apply` does."""
        for name, knob in self._knobs:
            value = setting.get(name, knob.value)
            if value != knob.value:
                knob.set(min(max(value, knob.low), knob.high))
        for name, predictor, output, label in self._decisions:
            if name not in setting:
                continue
            if level := _level(output):
                known = output.partition(LEVEL)[0]
                cuts = cuts_of(predictor, known)
                cuts[level - 1] = float(setting[name])
                predictor.fields.setdefault(known, {})["cuts"] = cuts
                continue
            config = predictor.fields.setdefault(output, {})
            if label is None:
                config["threshold"] = float(setting[name])
            else:
                config.setdefault("weights", {})[label] = float(setting[name])
        for name, predictor in self._offered:
            candidates = predictor.candidates
            candidates.signature = int(setting.get(name + INSTRUCTIONS, candidates.signature))
            candidates.shown = int(setting.get(name + DEMONSTRATIONS, candidates.shown))
            candidates.choose(predictor)


def _decisions(name: str, predictor: dspy.Predict) -> list[Dimension]:
    found = []
    for output, field in predictor.signature.output_fields.items():
        kind: Any = decision_type(field)
        if kind is None:
            continue
        if issubclass(kind, Noul):
            found.append(Dimension(f"{name}:{output}", LEAST, MOST))
        elif issubclass(kind, Choice):
            labels = [str(v) for v in get_args(kind.model_fields["value"].annotation)]
            # One label's weight is fixed: only ratios count.
            found += [Dimension(f"{name}:{output}={label}", LIGHTEST, HEAVIEST, log=True) for label in labels[1:]]
        elif issubclass(kind, Score):
            # Each cut stays between its two levels, so that they are in order whatever is tried.
            names = cut_names(name, output, len(kind.criteria()))
            found += [Dimension(cut, n + LEAST, n + MOST) for n, cut in enumerate(names)]
    return found


def cut_names(name: str, output: str, levels: int) -> list[str]:
    """The parameters of a Score output: one for each level but the lowest, where it begins."""
    return [f"{name}:{output}{LEVEL}{n}" for n in range(1, levels)]


def cuts_of(predictor: dspy.Predict, output: str) -> list[float]:
    """Where the levels of a Score output begin; half-way between two where nothing else is said."""
    levels = len(decision_type(predictor.signature.output_fields[output]).criteria())
    return list(predictor.fields.get(output, {}).get("cuts") or (n + 0.5 for n in range(levels - 1)))


def levels_of(predictor: dspy.Predict, output: str) -> int:
    """How many levels an output has: none unless it is a Score."""
    kind: Any = decision_type(predictor.signature.output_fields[output])
    return len(kind.criteria()) if kind is not None and issubclass(kind, Score) else 0


def _level(output: str) -> int:
    """The level that the name of a cut ends in, 0 for another name."""
    level = output.partition(LEVEL)[2]
    return int(level) if level else 0


def _parts(name: str) -> tuple[str, str | None]:
    output, _, label = name.partition(":")[2].partition("=")
    return output, label or None
