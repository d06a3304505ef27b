"""Which settings take a question down the same path: its runs as a tree of all that they read of a setting.

A run is determined by its question, the recorded replies, and what the loop reads of the knobs, thresholds and
weights. Two settings that agree on everything a run read, or on which side of it a number lies, have the same answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from program.answer import Answer
from program.decisions import Decision, decode
from program.knobs import Knob, Policy, Tuning
from program.rag import AgenticRAG
from program.state import Program

POLICY = "policy."
THRESHOLD = 0.5


class Values:
    """What a program's parameters are at one moment, by the names that a setting has for them.

    Weights, and which of its candidates it was given, by predictor.
    """

    def __init__(self, program: AgenticRAG, knobs: Mapping[str, Knob], thresholds: Sequence[tuple[str, str]]) -> None:
        self.fields = {name: program.predictor(name).fields for name in dict.fromkeys(name for name, _ in thresholds)}
        self.numbers: dict[str, float] = {name: knob.value for name, knob in knobs.items()}
        for name, output in thresholds:
            self.numbers[f"{name}:{output}"] = self.fields[name].get(output, {}).get("threshold", THRESHOLD)
        offered = ((name, getattr(predictor, "candidates", None)) for name, predictor in program.named_predictors())
        self.given = {name: (found.signature, found.shown) for name, found in offered if found}


@dataclass(slots=True, eq=False)
class _Value:
    """What a knob is."""

    name: str

    def of(self, values: Values) -> Hashable:
        return values.numbers[self.name]


@dataclass(slots=True, eq=False)
class _Side:
    """On which side of a number a knob or a threshold lies."""

    name: str
    how: Callable[[float, float], bool]
    other: float

    def of(self, values: Values) -> Hashable:
        return self.how(values.numbers[self.name], self.other)


@dataclass(slots=True, eq=False)
class _Decided:
    """What a choice comes to under its weights."""

    predictor: str
    output: str
    found: Mapping[str, float]

    def of(self, values: Values) -> Hashable:
        value: Hashable = decode({self.output: self.found}, values.fields[self.predictor])[self.output].value
        return value


@dataclass(slots=True, eq=False)
class _Given:
    """Which of its candidates a predictor was given."""

    predictor: str

    def of(self, values: Values) -> Hashable:
        return values.given[self.predictor]


_Read = _Value | _Side | _Decided | _Given


class _Fork:
    """A place where runs part: what is read there, and where each answer to it leads."""

    __slots__ = ("onward", "read")

    def __init__(self, read: _Read) -> None:
        self.read = read
        self.onward: dict[Hashable, _Fork | Answer] = {}


class Paths:
    """The runs known of each question. An answer is found without running anything when its path is known."""

    def __init__(self) -> None:
        self._roots: dict[str, _Fork | Answer] = {}

    def known(self, question: str, values: Values) -> Answer | None:
        """The answer under these values, or None when no run took that path yet."""
        at = self._roots.get(question)
        while isinstance(at, _Fork):
            at = at.onward.get(at.read.of(values))
        return at

    def add(self, question: str, reads: Mapping[Any, tuple[_Read, Hashable]], answer: Answer) -> None:
        """Keeps a run: what it read, in order, with what it was told."""
        onward: dict[Any, _Fork | Answer] = self._roots
        key: Hashable = question
        for read, told in reads.values():
            fork = onward.setdefault(key, _Fork(read))
            if not isinstance(fork, _Fork):
                return  # kept already
            onward, key = fork.onward, told
        onward.setdefault(key, answer)


class Watched:
    """A program as the loop reads it; every reading of a parameter is noted once, in the order it was made first."""

    def __init__(self, program: AgenticRAG, values: Values) -> None:
        self.classifier = program.classifier
        self.sources = program.sources
        self.strategies = program.strategies
        self.reads: dict[Any, tuple[_Read, Hashable]] = {}
        self._policy = program.policy
        self._values = values

    def seen(self) -> Program:
        """This, as the loop's type has it."""
        return cast(Program, self)

    def tuning(self) -> Tuning:
        """The knobs of the policy, each noted when it is read."""
        return cast(Tuning, _Knobs(self, self._policy))

    def threshold(self, predictor: str, field: str) -> float:
        """The threshold of a decision, noted by what it is compared with."""
        name = f"{predictor}:{field}"
        return cast(float, _Number(self, name))

    def knob(self, name: str) -> Any:
        """The value of a knob, noted."""
        return self.note(name, _Value(name))

    def asked(self, predictor: str) -> None:
        """Notes what the predictor was given, where there is a choice."""
        if predictor in self._values.given:
            self.note((predictor, _Given), _Given(predictor))

    def decided(self, predictor: str, evidence: Mapping[str, Any]) -> dict[str, Decision]:
        """The decisions that evidence stands for; what they come to is noted when it is looked at."""
        return {output: cast(Decision, _Decision(self, predictor, output, found)) for output, found in evidence.items()}

    def note(self, key: Hashable, read: _Read) -> Any:
        """What is read, noted unless it is known already."""
        known = self.reads.get(key)
        if known is None:
            known = self.reads[key] = read, read.of(self._values)
        return known[1]


class _Knobs:
    """The policy's knobs by name; of one so fine that hardly two settings share a value, counts where it lies."""

    __slots__ = ("_policy", "_watched")

    def __init__(self, watched: Watched, policy: Policy) -> None:
        self._watched, self._policy = watched, policy

    def __getattr__(self, name: str) -> Any:
        knob: Knob = getattr(self._policy, name)
        known = knob.integral or knob.step is not None
        return self._watched.knob(POLICY + name) if known else _Number(self._watched, POLICY + name)


class _Decision:
    """A decision, read like `program.decisions.Decision`."""

    __slots__ = ("_found", "_output", "_predictor", "_watched")

    def __init__(self, watched: Watched, predictor: str, output: str, found: Any) -> None:
        self._watched, self._predictor, self._output, self._found = watched, predictor, output, found

    @property
    def value(self) -> Any:
        found, name = self._found, f"{self._predictor}:{self._output}"
        if isinstance(found, Mapping):
            return self._watched.note((name, id(found)), _Decided(self._predictor, self._output, found))
        return self._watched.note((name, operator.le, found), _Side(name, operator.le, found))

    @property
    def probability(self) -> float:
        return float(self._found[self.value] if isinstance(self._found, Mapping) else self._found)

    @property
    def probabilities(self) -> Mapping[str, float] | None:
        return self._found if isinstance(self._found, Mapping) else None


class _Number:
    """A number that is only ever compared: each comparison is noted, not the number."""

    __slots__ = ("_name", "_watched")

    def __init__(self, watched: Watched, name: str) -> None:
        self._watched, self._name = watched, name

    def _is(self, how: Callable[[float, float], bool], other: float) -> bool:
        return bool(self._watched.note((self._name, how, other), _Side(self._name, how, other)))

    def __lt__(self, other: float) -> bool:
        return self._is(operator.lt, other)

    def __le__(self, other: float) -> bool:
        return self._is(operator.le, other)

    def __gt__(self, other: float) -> bool:
        return self._is(operator.gt, other)

    def __ge__(self, other: float) -> bool:
        return self._is(operator.ge, other)

    def __bool__(self) -> bool:
        return self._is(operator.ne, 0.0)
