"""Which settings take a question down the same path: of each run the ranges in which all that it read may lie.

A run is determined by its question, the recorded replies, and what the loop reads of the knobs, thresholds and
weights. Under every setting that agrees with all it read, or lies on the same side of all it compared, the answer is
the same. The ranges of all runs are held side by side, so that a setting is looked up for many questions at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
import numpy as np
from dspy.adapters.types.decision import Score, decision_type

from optimize.compiler.content import fingerprint
from optimize.compiler.readings import Choice, cut_names, is_noted
from program.answer import Answer
from program.loop.decisions import all_clients_of, decode
from program.loop.policy import Knob, cuts_of
from program.loop.rag import AgenticRAG

THRESHOLD = 0.5
NONE = -1

Weights = dict[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Path:
    """A run: by column the range in which a parameter leaves it as it is, what choices came to, and its answer."""

    question: str
    low: Sequence[float]
    high: Sequence[float]
    choices: Sequence[tuple[Choice, str]]
    answer: Answer


class Parameters:
    """A program's parameters, walked once: each by its column in a row of numbers, weights of choices apart.

    `unnoted` are the knobs whose reading nobody notes: a run counts as having read them.
    What a predictor was given (its signature and demonstrations) is a number too: another for each that it ever had.
    `given` are the columns of these.
    """

    def __init__(self, program: AgenticRAG, deciders: Mapping[str, dspy.Predict]) -> None:
        self._knobs = [(name, p) for name, p in program.named_parameters() if isinstance(p, Knob)]
        self._deciders = [(name, p, output) for name, p in deciders.items() for output in p.signature.output_fields]
        self._given = list(program.named_predictors())
        self._program = program
        self._predictors = deciders
        self._codes: dict[tuple[int, int], tuple[int, Any, Any]] = {}
        self._prints: list[str] = []
        self._numbers: dict[str, int] = {}
        names = [name for name, _ in self._knobs]
        names += [f"{name}:{output}" for name, _, output in self._deciders]
        self._scores = [(name, p, output) for name, p, output in self._deciders if levels_of(p, output)]
        names += [cut for name, p, output in self._scores for cut in cut_names(name, output, levels_of(p, output))]
        names += [name for name, _ in self._given]
        self.columns = {name: n for n, name in enumerate(names)}
        self.unnoted = [name for name, _ in self._knobs if not is_noted(name)]
        self.given = {name for name, _ in self._given}

    def row(self) -> list[float]:
        """What the parameters are now, by column."""
        found = [knob.value for _, knob in self._knobs]
        found += [p.fields.get(output, {}).get("threshold", THRESHOLD) for _, p, output in self._deciders]
        found += [cut for _, p, output in self._scores for cut in cuts_of(p, output)]
        return [*found, *(self._code(predictor) for _, predictor in self._given)]

    def weights(self) -> Weights:
        """The weights of every decision now, by predictor and output."""
        return {
            f"{name}:{output}": dict(p.fields.get(output, {}).get("weights", {})) for name, p, output in self._deciders
        }

    def told(self, code: float) -> str:
        """What a predictor was given that has this number: a digest, the same in every process."""
        return self._prints[int(code)]

    def code(self, told: str) -> int:
        """The number of what has that digest."""
        if told not in self._numbers:
            self._numbers[told] = len(self._prints)
            self._prints.append(told)
        return self._numbers[told]

    def decided(self, name: str, output: str, found: Mapping[str, float]) -> Any:
        """What a choice comes to under its weights now."""
        return decode({output: found}, self._predictors[name].fields)[output].value

    def _code(self, predictor: dspy.Predict) -> int:
        own = vars(predictor)  # DSPy's modules look every attribute up twice, and this is asked at every setting
        signature, demos = own["signature"], own["demos"]
        key = id(signature), id(demos)
        if key not in self._codes:  # what it was given is kept, so that nothing else takes its place in memory
            models = all_clients_of(self._program, predictor)
            told = "".join(fingerprint(self._program, predictor, model) for model in models)
            self._codes[key] = self.code(told), signature, demos
        return self._codes[key][0]


@dataclass(slots=True)
class _Choice:
    """A decision among options: what it comes to under the weights now, and the runs that came of each value."""

    name: str
    output: str
    found: Mapping[str, float]
    value: str
    runs: dict[str, list[int]] = field(default_factory=dict)

    def wanted(self, value: str, run: int) -> bool:
        """Notes the value of which a run came; false when that is noted."""
        runs = self.runs.setdefault(value, [])
        if new := runs[-1:] != [run]:
            runs.append(run)
        return new


class Paths:
    """The runs known of each question. An answer is found without running anything when its path is known."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._numbers: dict[str, int] = {}
        self._answers: list[Answer] = []
        self._low = np.empty((64, len(parameters.columns)))
        self._high = np.empty_like(self._low)
        self._of = np.empty(64, np.intp)
        self._choices: dict[tuple[Any, ...], _Choice] = {}
        self._among: dict[str, list[_Choice]] = defaultdict(list)  # by predictor and output
        self._other = np.zeros(64, np.intp)  # of a run: how many choices come to something else under the weights now
        self._weights: Weights = {}
        self._row: list[float] = []
        self._known = np.empty(0, np.intp)

    def known(self, questions: Sequence[str]) -> list[int]:
        """The number of each question's run under the parameters as they are, NONE where no run took that path yet."""
        numbers = [self._numbers.setdefault(question, len(self._numbers)) for question in questions]
        row, weights = self._parameters.row(), self._parameters.weights()
        if row != self._row or weights != self._weights or len(self._known) < len(self._numbers):
            self._look_up(row, weights)
        found: list[int] = self._known[numbers].tolist()
        return found

    def answer(self, run: int) -> Answer:
        """What a run came to."""
        return self._answers[run]

    def add(self, path: Path) -> bool:
        """Keeps a run that was made under the parameters as they are; false when it is known."""
        number = self._numbers[path.question]
        if self._known[number] != NONE:
            return False
        self._known[number] = self._put(number, path)
        return True

    def take(self, paths: Iterable[Path]) -> None:
        """Keeps runs made under any parameters."""
        for path in paths:
            self._put(self._numbers.setdefault(path.question, len(self._numbers)), path)
            self._row = []  # to be looked up anew

    def _put(self, number: int, path: Path) -> int:
        run = len(self._answers)
        if run == len(self._of):
            self._low, self._high = (np.concatenate([a, a]) for a in (self._low, self._high))
            self._of, self._other = (
                np.concatenate([self._of] * 2),
                np.concatenate([self._other, np.zeros_like(self._of)]),
            )
        self._answers.append(path.answer)
        self._low[run], self._high[run], self._of[run] = path.low, path.high, number
        for (name, output, found), value in path.choices:
            key = name, output, *found.items()
            if key not in self._choices:
                choice = _Choice(name, output, found, self._parameters.decided(name, output, found))
                self._choices[key] = choice
                self._among[f"{name}:{output}"].append(choice)
            if self._choices[key].wanted(value, run):
                self._other[run] += self._choices[key].value != value
        return run

    def _look_up(self, row: list[float], weights: Weights) -> None:
        for output in (output for output, own in weights.items() if own != self._weights.get(output)):
            for choice in self._among[output]:
                value = self._parameters.decided(choice.name, choice.output, choice.found)
                if value != choice.value:
                    self._other[choice.runs.get(choice.value, [])] += 1
                    self._other[choice.runs.get(value, [])] -= 1
                    choice.value = value
        self._row, self._weights = row, weights
        n, at = len(self._answers), np.array(row)
        fits = ((self._low[:n] <= at) & (at <= self._high[:n])).all(axis=1) & (self._other[:n] == 0)
        self._known = np.full(len(self._numbers), NONE)
        runs = np.flatnonzero(fits)
        self._known[self._of[runs]] = runs


def levels_of(predictor: Any, output: str) -> int:
    """Return how many levels an output has: none unless it is a Score."""
    kind: Any = decision_type(predictor.signature.output_fields[output])
    return len(kind.criteria()) if kind is not None and issubclass(kind, Score) else 0
