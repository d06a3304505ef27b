"""What can be tuned: knobs, their presets, search strategies, and the walk that finds every parameter of a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import Any, get_args

import dspy
from dspy.adapters.types.decision import Choice, Noul, Score, decision_type
from dspy.predict.parameter import Parameter

from ragc.errors import IntegrityError
from ragc.models.language.layout import LAYOUT, Layout
from ragc.passage import SourceCard
from ragc.settings import KINDS

KNOB = "knob"
LEAST, MOST = 0.02, 0.98
LIGHTEST, HEAVIEST = 0.25, 4.0
LEVEL = ">"
INSTRUCTIONS, DEMONSTRATIONS, LAYOUTS = "#instructions", "#demonstrations", "#layout"


@dataclass(eq=False)
class Knob(Parameter):
    """A number with a default, a range and a meaning, saved with the program's state.

    An integer default makes an integer knob. The range is closed and holds the value that changes nothing. What is not
    `searched` is fitted in another way.
    """

    default: float
    low: float
    high: float
    _: KW_ONLY
    step: float | None = None
    searched: bool = True
    meaning: str

    def __post_init__(self) -> None:
        self.set(self.default)

    @property
    def integral(self) -> bool:
        return isinstance(self.default, int)

    def reset(self) -> None:
        """Keep the value: DSPy resets parameters when it copies a program."""

    def set(self, value: float) -> None:
        """Set the value. Raises `ValueError` when it is not a number in the range."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{value!r} is not a number")
        if not self.low <= value <= self.high:
            raise ValueError(f"{value} is outside [{self.low}, {self.high}]")
        self.value = int(value) if self.integral else float(value)

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        return {"value": self.value}

    def load_state(self, state: dict[str, Any]) -> None:
        try:
            self.set(state["value"])
        except (KeyError, ValueError) as error:
            raise IntegrityError(
                f"A saved knob ({self.meaning}) holds {state!r}: {error}.", "Compile the program again."
            ) from error


def _knob(default: float, low: float, high: float, **rest: Any) -> Any:
    return field(metadata={KNOB: {"default": default, "low": low, "high": high, **rest}})


def _switch(default: int, meaning: str) -> Any:
    return _knob(default, 0, 1, meaning=meaning)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The values of a policy's knobs at one moment. A line added here is a knob that the compiler searches."""

    route: int = _switch(1, "classify the question first")
    decompose: int = _switch(1, "split complex questions")
    judge: int = _switch(1, "judge the evidence before writing")
    ground: int = _switch(1, "quote only what is probable enough")
    k: int = _knob(5, 2, 12, meaning="passages taken for each query")
    dense_weight: float = _knob(0.5, 0.0, 1.0, step=0.1, meaning="weight of dense over keyword scores in fusion")
    max_rounds: int = _knob(1, 1, 4, meaning="rounds of searching at most")
    keep_at_most: int = _knob(6, 1, 12, meaning="passages that are quoted from at most")
    shown: int = _knob(16, 3, 24, meaning="passages that a model that writes is shown")
    check: int = _knob(0, 0, 2, meaning="check of written statements: 0 marks and numbers, 1 words too, 2 by a judge")
    sentences: int = _knob(4, 1, 6, meaning="sentences of the answer for each look-up")
    near: float = _knob(
        1.5, 0.0, 4.0, step=0.5, meaning="log-odds that a piece said behind a look-up's best may be less probable"
    )
    subject: float = _knob(
        0.55,
        0.0,
        3.0,
        meaning="log-odds lost for a word of the question that a rival's subject has; 0: no subjects are compared",
    )
    quote_above: float = _knob(1.0, 0.0, 1.0, meaning="probability of a quotation past which no language model writes")
    generate_above: float = _knob(0.0, 0.0, 1.0, meaning="sufficiency under which the program abstains")
    answer_above: float = _knob(0.0, 0.0, 1.0, meaning="probability of answering under which a draft is withheld")
    graph_weight: float = _knob(
        0.35, 0.0, 1.0, step=0.05, meaning="share of the places that passages found by links fill"
    )
    only_chosen_bases: int = _switch(0, "search the chosen bases only, not all")
    sql: int = _switch(1, "query tables by SQL that a language model writes")
    one_strategy: int = _switch(0, "search by one strategy at a time, by the next when the evidence is poor")
    fast_above: float = _knob(1.0, 0.0, 1.0, meaning="probability of a simple question past which nothing is judged")
    open_above: float = _knob(0.5, 0.0, 1.0, meaning="chance of a second choice to the best's, past which it asks back")
    stated_above: float = _knob(0.5, 0.0, 1.0, step=0.1, meaning="share of a claim's words that a passage must hold")
    trust: float = _knob(0.0, -9.0, 9.0, searched=False, meaning="log-odds that a written answer is right, by itself")
    trust_tokens: float = _knob(0.2, 0.0, 9.0, searched=False, meaning="weight of the log-odds of the reply's tokens")
    trust_decider: float = _knob(1.0, 0.0, 9.0, searched=False, meaning="weight of the log-odds of `responsive`")
    unsure_below: float = _knob(
        0.0, 0.0, 1.0, searched=False, meaning="confidence under which an answer says that it is not certain"
    )
    refuse_below: float = _knob(
        0.0, 0.0, 1.0, searched=False, meaning="confidence under which an answer is withheld, for a stated risk"
    )
    asked_weight: float = _knob(0.7, 0.0, 1.0, step=0.1, meaning="weight of a follow-up's own words over those before")


class Policy(dspy.Module):
    """The loop's knobs, one for each field of `Tuning`."""

    def __init__(self) -> None:
        super().__init__()
        for one in fields(Tuning):
            setattr(self, one.name, Knob(**one.metadata[KNOB]))

    def tuning(self) -> Tuning:
        """Return the values now, frozen."""
        return Tuning(**{name: getattr(self, name).value for name in Tuning.__slots__})

    def turn(self, **values: float) -> None:
        """Set several knobs by name."""
        for name, value in values.items():
            getattr(self, name).set(value)


PLAIN: Mapping[str, float] = {"route": 0, "decompose": 0, "judge": 0, "ground": 0, "shown": 5, "graph_weight": 0.0}
"""Plain RAG: search once, write from whatever came back."""

WHOLE: Mapping[str, float] = {"decompose": 0, "ground": 0}
"""Looked up, judged and written as a whole."""

PRESETS: Mapping[str, Mapping[str, float]] = {
    "plain": PLAIN,
    # One strategy after another until the evidence as a whole is good enough; then, or in the end, write.
    "strategy-router": {**WHOLE, "one_strategy": 1, "max_rounds": 2},
    # The chosen bases only; rewrite and search again; ask back when that does not help.
    "knowledge-router": {**WHOLE, "only_chosen_bases": 1, "max_rounds": 3},
    # A fast path; else parts, the passages that help, the missing looked up, and the answer checked by claims.
    "judge-and-ground": {"fast_above": 0.5, "max_rounds": 3, "check": 2},
    # Retrieve or answer, round by round, the next query from what was found; the last round answers.
    "decide": {**WHOLE, "max_rounds": 4},
    # A plan of parts, which may wait for each other; round by round, as long as the evidence gains.
    "plan": {"ground": 0, "fast_above": 0.5, "max_rounds": 4},
    # All of it that needs no labels to be trusted; `ragc compile` decides about the rest.
    "full": {"fast_above": 0.8},
}
"""What each preset (a published design) turns away from the defaults of `Policy`."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way of looking up, and the sources it searches."""

    name: str
    sources: tuple[str, ...]


def offer_strategies(cards: Iterable[SourceCard]) -> tuple[Strategy, ...]:
    """Return the strategies that these sources allow, in the sources' order."""
    by_name: dict[str, list[str]] = {}
    for card in cards:
        name = KINDS[card.kind].strategy if card.kind in KINDS else card.kind
        by_name.setdefault(name, []).append(card.name)
    return tuple(Strategy(name, tuple(sources)) for name, sources in by_name.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """A stated risk: at most `level` of the answers are wrong, as proved, or not, on the questions of dev."""

    level: float  # the share of wrong among the answers that was asked for
    proved: bool  # whether `upper` is at most that
    threshold: float  # the confidence under which the program refuses; 0 where nothing is proved
    upper: float  # the upper 95 % limit of wrong among answered
    answered: float  # the share of the questions that is answered
    n: int  # the answers it rests on
    topics: int  # their topics, taken as independent
    lacks: str = ""  # what is missing where it is not proved: labels, with how many, or knowledge

    def describe(self) -> str:
        """Return the promise in a line, or why there is none."""
        rests = f"{self.answered:.0%} answered; on {self.n} answers of {self.topics} topics"
        if self.proved:
            held = f"at most {self.upper:.1%} of the answers are wrong (95 % limit; asked: {self.level:.0%})"
            return f"{held}, {rests}, refusing {f'under confidence {self.threshold:.2f}' if self.threshold else 'none'}"
        return (
            f"not proved: the 95 % limit of wrong among answered is {self.upper:.1%} (asked: {self.level:.0%}), {rests}"
        )


Setting = dict[str, float]
"""A value for each parameter, by name: `policy.k`, `judge.sufficiency:sufficient`, `classifier.route:route=simple`,
`generator.answer#instructions`; of a Score output the cut from which it is level 2: `grader.grade:quality>2`."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One parameter's name, range, scale and meaning.

    `nominal` numbers are names, of which none is nearer than another.
    """

    name: str
    low: float
    high: float
    integral: bool = False
    log: bool = False
    step: float | None = None
    nominal: bool = False
    meaning: str = ""


@dataclass(slots=True)
class Candidates:
    """Signatures (which differ in their instructions) and sets of demonstrations that a predictor may be given.

    A search puts one on a predictor as its `candidates`; only what is chosen is saved, as the predictor's own.
    """

    signatures: Sequence[Any]
    demonstrations: Sequence[list[dict[str, Any]]]
    signature: int = 0
    shown: int = 0

    def choose(self, predictor: dspy.Predict) -> None:
        """Give the predictor what was chosen."""
        predictor.signature = self.signatures[self.signature]
        predictor.demos = self.demonstrations[self.shown]


def is_candidate(name: str) -> bool:
    """Tell whether a parameter is a choice among candidates; none is sealed."""
    return name.endswith((INSTRUCTIONS, DEMONSTRATIONS, LAYOUTS))


class ProgramParameters:
    """The parameters of a program, found once by walking it: knobs, decision thresholds, weights and candidates.

    The program must keep its predictors; their demonstrations and candidates may be exchanged.
    """

    def __init__(self, program: dspy.Module) -> None:
        self.dimensions: list[Dimension] = []
        self._slots: dict[str, tuple[Callable[[], float], Callable[[float], None]]] = {}
        self._predictors: list[dspy.Predict] = []
        for name, parameter in program.named_parameters():
            if isinstance(parameter, Knob) and parameter.searched:
                self._add_knob(name, parameter)
            elif isinstance(parameter, Layout) and len(parameter.candidates) > 1:
                found = Dimension(
                    name.removesuffix(LAYOUT) + LAYOUTS, 0, len(parameter.candidates) - 1, integral=True, nominal=True
                )
                self._add(found, partial(attrgetter("chosen"), parameter), parameter.choose)
            elif isinstance(parameter, dspy.Predict):
                self._predictors.append(parameter)
                self._add_decisions(name, parameter)
                self._add_candidates(name, parameter)

    def read(self) -> Setting:
        """Return the values now."""
        return {name: read() for name, (read, _) in self._slots.items()}

    def apply(self, setting: Mapping[str, float]) -> None:
        """Set the values; names the program does not have are ignored."""
        for name, value in setting.items():
            if name in self._slots:
                self._slots[name][1](value)
        for predictor in self._predictors:
            if candidates := getattr(predictor, "candidates", None):
                candidates.choose(predictor)

    def _add(self, dimension: Dimension, read: Callable[[], float], write: Callable[[float], None]) -> None:
        self.dimensions.append(dimension)
        self._slots[dimension.name] = read, write

    def _add_knob(self, name: str, knob: Knob) -> None:
        def write(value: float) -> None:
            if value != knob.value:
                knob.set(min(max(value, knob.low), knob.high))

        found = Dimension(name, knob.low, knob.high, knob.integral, step=knob.step, meaning=knob.meaning)
        self._add(found, lambda: knob.value, write)

    def _add_decisions(self, name: str, predictor: dspy.Predict) -> None:
        for output, one in predictor.signature.output_fields.items():
            kind: Any = (decision_type(one) if reads_evidence(predictor, output) else None) or object
            meaning = str((one.json_schema_extra or {}).get("desc", "")).rstrip(".")
            if issubclass(kind, Noul):
                meant = f"probability from which it holds: {meaning}"
                found = Dimension(f"{name}:{output}", LEAST, MOST, meaning=meant)
                self._add_field(found, predictor, (output, "threshold"), 0.5)
            elif issubclass(kind, Choice):
                # One label's weight is fixed: only ratios count.
                for label in [str(v) for v in get_args(kind.model_fields["value"].annotation)][1:]:
                    meant = f"weight of {label} among: {meaning}"
                    found = Dimension(f"{name}:{output}={label}", LIGHTEST, HEAVIEST, log=True, meaning=meant)
                    self._add_field(found, predictor, (output, "weights", label), 1.0)
            elif issubclass(kind, Score):
                # Each cut stays between its two levels, so that they are in order whatever is tried.
                for n in range(len(kind.criteria()) - 1):
                    found = Dimension(f"{name}:{output}{LEVEL}{n + 1}", n + LEAST, n + MOST)
                    self._add_cut(found, predictor, output, n)

    def _add_field(self, dimension: Dimension, predictor: dspy.Predict, path: tuple[str, ...], default: float) -> None:
        output, *nested, last = path

        def read() -> float:
            values = predictor.fields.get(output, {})
            for key in nested:
                values = values.get(key, {})
            return float(values.get(last, default))

        def write(value: float) -> None:
            if value == read():
                return  # a field that says nothing new would still have a language model asked for probabilities
            values = predictor.fields.setdefault(output, {})
            for key in nested:
                values = values.setdefault(key, {})
            values[last] = float(value)

        self._add(dimension, read, write)

    def _add_cut(self, dimension: Dimension, predictor: dspy.Predict, output: str, n: int) -> None:
        def write(value: float) -> None:
            cuts = cuts_of(predictor, output)
            if value != cuts[n]:
                cuts[n] = float(value)
                predictor.fields.setdefault(output, {})["cuts"] = cuts

        self._add(dimension, lambda: cuts_of(predictor, output)[n], write)

    def _add_candidates(self, name: str, predictor: dspy.Predict) -> None:
        candidates: Candidates | None = getattr(predictor, "candidates", None)
        signatures, shown = (candidates.signatures, candidates.demonstrations) if candidates else ((), ())
        for kind, chosen, choices in (INSTRUCTIONS, "signature", signatures), (DEMONSTRATIONS, "shown", shown):
            if len(choices) > 1:
                found = Dimension(name + kind, 0, len(choices) - 1, integral=True, nominal=True)
                write = lambda value, chosen=chosen: setattr(predictor.candidates, chosen, int(value))  # noqa: E731
                self._add(found, partial(attrgetter(f"candidates.{chosen}"), predictor), write)


def is_declared(field: Any) -> bool:
    """Tell whether an output's own type is a decision.

    DSPy asks every model for its probabilities.
    """
    kinds = (one for one in (field.annotation, *field.metadata) if isinstance(one, type))
    return any(issubclass(kind, Choice | Noul | Score) for kind in kinds)


def reads_evidence(predictor: dspy.Predict, output: str) -> bool:
    """Tell whether a decision is read from probabilities.

    Only then can a threshold or a weight move it. A decision client gives them for every output; a language model is
    asked for them where the output is declared as a decision, or has an entry in the predictor's `fields`.
    """
    decides = not isinstance(predictor.lm or dspy.settings.lm, dspy.BaseLM)
    return decides or output in predictor.fields or is_declared(predictor.signature.output_fields[output])


def find_dimensions(program: dspy.Module) -> list[Dimension]:
    """Return every parameter of the program, in the order of the walk."""
    return ProgramParameters(program).dimensions


def read_setting(program: dspy.Module) -> Setting:
    """Return the value of every parameter of the program."""
    return ProgramParameters(program).read()


def apply_setting(program: dspy.Module, setting: Mapping[str, float]) -> None:
    """Set the parameters that a setting names; unknown names are ignored."""
    ProgramParameters(program).apply(setting)


def cuts_of(predictor: dspy.Predict, output: str) -> list[float]:
    """Return where the levels of a Score output begin; default: half-way."""
    levels = len(decision_type(predictor.signature.output_fields[output]).criteria())
    return list(predictor.fields.get(output, {}).get("cuts") or (n + 0.5 for n in range(levels - 1)))
