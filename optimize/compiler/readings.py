"""A program as the loop reads it: what a run reads of its parameters is noted, as the ranges they may lie in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from program.loop.decisions import Decision, mean_level
from program.loop.policy import LEVEL, Knob, Policy, Tuning
from program.loop.rag import AgenticRAG
from program.loop.state import Program

if TYPE_CHECKING:
    from optimize.compiler.paths import Parameters

POLICY, DOUBT = "policy.", "doubt."

Choice = tuple[str, str, Mapping[str, float]]
"""A decision among options: the predictor, the output, and the probabilities of the options."""


def is_noted(knob: str) -> bool:
    """True for a knob that is read through `Watched`, or by a replay itself, so that its reading is noted."""
    return knob.removeprefix(POLICY) in Tuning.__slots__ if knob.startswith(POLICY) else knob.startswith(DOUBT)


def cut_names(name: str, output: str, levels: int) -> list[str]:
    """Return the parameters of a Score output: one for each level but the lowest."""
    return [f"{name}:{output}{LEVEL}{n}" for n in range(1, levels)]


class Readings:
    """What a run has read: by column the range in which a parameter leaves it as it is, and what choices came to."""

    def __init__(self, parameters: Parameters, row: Sequence[float]) -> None:
        self._parameters = parameters
        self._row = row
        self._chosen: dict[tuple[str, str, int], tuple[Choice, str]] = {}
        self.low = [-math.inf] * len(row)
        self.high = [math.inf] * len(row)

    @property
    def choices(self) -> list[tuple[Choice, str]]:
        """Each choice that was looked at, with what it came to."""
        return list(self._chosen.values())

    def value(self, name: str) -> float:
        """The value itself: another one may change the run."""
        at = self._parameters.columns[name]
        self.low[at] = self.high[at] = self._row[at]
        return self._row[at]

    def below(self, name: str, other: float, or_equal: bool) -> bool:
        """Whether the parameter is less than a number: any other value on the same side leaves the run as it is."""
        at = self._parameters.columns[name]
        found = bool(self._row[at] <= other if or_equal else self._row[at] < other)
        if found:
            self.high[at] = min(self.high[at], other if or_equal else math.nextafter(other, -math.inf))
        elif not math.isnan(other):
            self.low[at] = max(self.low[at], math.nextafter(other, math.inf) if or_equal else other)
        return found

    def chosen(self, name: str, output: str, found: Mapping[str, float]) -> Any:
        """What a choice comes to under its weights."""
        key = name, output, id(found)
        if key not in self._chosen:
            self._chosen[key] = (name, output, found), self._parameters.decided(name, output, found)
        return self._chosen[key][1]


class Watched:
    """A program as the loop reads it; every reading of a parameter is noted."""

    def __init__(self, program: AgenticRAG, readings: Readings, vouches: bool = False) -> None:
        self.vouches = vouches
        self.judges_at_once = program.judges_at_once
        self.sources = program.sources
        self.strategies = program.strategies
        self.links = program.links
        self.readings = readings
        self._policy = program.policy

    def seen(self) -> Program:
        """This, as the loop's type has it."""
        return cast(Program, self)

    def tuning(self) -> Tuning:
        """The knobs of the policy, each noted when it is read."""
        return cast(Tuning, _Knobs(self.readings, self._policy))

    def threshold(self, predictor: str, field: str) -> float:
        """The threshold of a decision, noted by what it is compared with."""
        return cast(float, _Number(self.readings, f"{predictor}:{field}"))

    def decided(self, predictor: str, evidence: Mapping[str, Any]) -> dict[str, Decision]:
        """The decisions that evidence stands for; what they come to is noted when it is looked at."""
        return {
            output: cast(Decision, _Decision(self.readings, predictor, output, found))
            for output, found in evidence.items()
        }


class _Knobs:
    """The policy's knobs by name; of one so fine that hardly two settings share a value, counts where it lies."""

    __slots__ = ("_policy", "_readings")

    def __init__(self, readings: Readings, policy: Policy) -> None:
        self._readings, self._policy = readings, policy

    def __getattr__(self, name: str) -> Any:
        knob: Knob = getattr(self._policy, name)
        known = knob.integral or knob.step is not None
        return self._readings.value(POLICY + name) if known else _Number(self._readings, POLICY + name)


class _Decision:
    """A decision, read like `program.loop.decisions.Decision`."""

    __slots__ = ("_found", "_name", "_output", "_readings")

    def __init__(self, readings: Readings, name: str, output: str, found: Any) -> None:
        self._readings, self._name, self._output, self._found = readings, name, output, found

    @property
    def value(self) -> Any:
        if isinstance(self._found, Mapping):
            return self._readings.chosen(self._name, self._output, self._found)
        if isinstance(self._found, list):
            return mean_level(self._found)
        return not self.undecided and self._readings.below(f"{self._name}:{self._output}", self._found, or_equal=True)

    @property
    def probability(self) -> float:
        if isinstance(self._found, list):
            return float(max(self._found))
        return float(self._found[self.value] if isinstance(self._found, Mapping) else self._found or 0.0)

    @property
    def probabilities(self) -> Mapping[Any, float] | None:
        if isinstance(self._found, list):
            return dict(enumerate(self._found))
        return self._found if isinstance(self._found, Mapping) else None

    @property
    def undecided(self) -> bool:
        return self._found is None

    @property
    def level(self) -> int | None:
        if not isinstance(self._found, list):
            return None
        cuts, value = cut_names(self._name, self._output, len(self._found)), mean_level(self._found)
        reached = [cut for cut in cuts if self._readings.below(cut, value, or_equal=True)]
        return len(reached)


class _Number:
    """A number that is only ever compared: each comparison is noted, not the number."""

    __slots__ = ("_name", "_readings")

    def __init__(self, readings: Readings, name: str) -> None:
        self._readings, self._name = readings, name

    def __lt__(self, other: float) -> bool:
        return self._readings.below(self._name, other, or_equal=False)

    def __le__(self, other: float) -> bool:
        return self._readings.below(self._name, other, or_equal=True)

    def __gt__(self, other: float) -> bool:
        return not math.isnan(other) and not self._readings.below(self._name, other, or_equal=True)

    def __ge__(self, other: float) -> bool:
        return not math.isnan(other) and not self._readings.below(self._name, other, or_equal=False)

    def __bool__(self) -> bool:
        return self._readings.below(self._name, 0.0, or_equal=False) or not self._readings.below(
            self._name, 0.0, or_equal=True
        )
