"""Knobs: numbers the compiler may turn, each declared once, where it is used, with its range and meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import dspy
from dspy.predict.parameter import Parameter

from program.errors import IntegrityError
from program.knowledge.index.fusion import GRAPH

KNOB = "knob"


class Knob(Parameter):
    """A number with a default, a range and a meaning; saved with the program's state.

    An integer default makes an integer knob. The range is closed and holds the value that does nothing, so
    that a search can always leave a thing as it is.
    """

    def __init__(
        self,
        default: float,
        low: float,
        high: float,
        *,
        step: float | None = None,
        log: bool = False,
        meaning: str,
    ) -> None:
        if not low <= default <= high:
            raise ValueError(f"default {default} is outside [{low}, {high}]")
        self.default = default
        self.low = low
        self.high = high
        self.step = step
        self.log = log
        self.meaning = meaning
        self.value = default

    @property
    def integral(self) -> bool:
        return isinstance(self.default, int)

    def reset(self) -> None:
        """Keeps the value: DSPy resets parameters when it copies a program, and a tuned value must survive."""

    def set(self, value: float) -> None:
        """Takes a value within the range. Raises `ValueError` outside it, or when it is not a number."""
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


def _knob(default: float, low: float, high: float, **told: Any) -> Any:
    """A field of `Tuning`, and the knob of `Policy` that gives its value; see `Knob`."""
    return field(metadata={KNOB: {"default": default, "low": low, "high": high, **told}})


def _switch(default: int, meaning: str) -> Any:
    """A knob that is off (0) or on (1)."""
    return _knob(default, 0, 1, meaning=meaning)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The loop's knobs: the values of a policy at one moment, which the loop and `decide` read.

    A line added here is a knob of every policy, and searched by the compiler from that day.
    """

    route: int = _switch(1, "classify the question first")
    decompose: int = _switch(1, "split complex questions")
    judge: int = _switch(1, "judge the evidence before writing")
    ground: int = _switch(1, "check the answer claim by claim")
    k: int = _knob(5, 2, 12, meaning="passages taken for each query")
    dense_weight: float = _knob(0.5, 0.0, 1.0, step=0.1, meaning="weight of dense over keyword scores in fusion")
    stale_penalty: float = _knob(0.0, 0.0, 1.0, step=0.2, meaning="score taken from a passage that was superseded")
    informal_penalty: float = _knob(0.0, 0.0, 1.0, step=0.2, meaning="score taken from a passage that is not official")
    max_rounds: int = _knob(2, 1, 4, meaning="rounds of searching at most")
    min_gain: float = _knob(0.0, 0.0, 0.5, meaning="gain in sufficiency that justifies one more round")
    keep_at_least: int = _knob(1, 0, 4, meaning="best passages kept whatever the judge says")
    keep_at_most: int = _knob(6, 1, 12, meaning="passages the writer sees at most")
    sentences: int = _knob(3, 1, 6, meaning="sentences of the answer for each look-up")
    generate_above: float = _knob(0.0, 0.0, 1.0, meaning="sufficiency under which the program abstains")
    answer_above: float = _knob(0.0, 0.0, 1.0, meaning="responsiveness under which a draft is withheld")
    base_prior: float = _knob(0.0, 0.0, 1.0, step=0.2, meaning="score given for how likely a passage's base is wanted")
    graph_weight: float = _knob(GRAPH, 0.0, 1.0, step=0.1, meaning="weight of the graph over text scores in fusion")
    only_chosen_bases: int = _switch(0, "search the chosen bases only, not all")
    look_up_unknown: int = _switch(1, "look up what needs no look-up but could not be answered without one")
    glimpse: int = _switch(1, "show the classifier a first look; off: search while it thinks")
    filter: int = _switch(1, "judge passage by passage which of them help")
    each_part: int = _switch(0, "judge the evidence of each look-up by itself too")
    one_strategy: int = _switch(0, "search by one strategy at a time, by the next when the evidence is poor")
    recency: float = _knob(0.0, 0.0, 1.0, step=0.2, meaning="lift of the newest when a question asks for the latest")
    cross_below: float = _knob(0.0, 0.0, 1.0, meaning="probability of the likeliest base under which all are searched")
    fast_above: float = _knob(1.0, 0.0, 1.0, meaning="probability of a simple question past which nothing is judged")
    fresh_above: float = _knob(0.0, 0.0, 1.0, meaning="share of current evidence under which newer is searched for")
    consistent: int = _switch(0, "look for contradictions in the evidence and settle them")
    clarify_above: float = _knob(1.0, 0.0, 1.0, meaning="vagueness past which poor evidence is asked back about")
    search_claims: int = _switch(0, "search once more for a claim that has no support")
    follow: int = _switch(1, "write look-ups anew that wait for what others find")
    document_weight: float = _knob(0.0, 0.0, 0.8, step=0.2, meaning="share of a score from its document's best")


class Policy(dspy.Module):
    """The loop's knobs, one for each field of `Tuning`."""

    def __init__(self) -> None:
        super().__init__()
        for one in fields(Tuning):
            setattr(self, one.name, Knob(**one.metadata[KNOB]))

    def tuning(self) -> Tuning:
        """The values now, frozen."""
        return Tuning(**{name: getattr(self, name).value for name in Tuning.__slots__})

    def turn(self, **values: float) -> None:
        """Sets several knobs by name."""
        for name, value in values.items():
            getattr(self, name).set(value)
