"""Knobs: numbers the compiler may turn, each declared once, where it is used, with its range and meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.predict.parameter import Parameter

from program.errors import IntegrityError
from program.knowledge.fusion import GRAPH


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


def switch(default: int, meaning: str) -> Knob:
    """A knob that is off (0) or on (1)."""
    return Knob(default, 0, 1, meaning=meaning)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The values of a policy's knobs at one moment: what the loop and `decide` read."""

    route: int
    decompose: int
    judge: int
    ground: int
    k: int
    dense_weight: float
    stale_penalty: float
    informal_penalty: float
    max_rounds: int
    min_gain: float
    keep_at_least: int
    keep_at_most: int
    sentences: int
    generate_above: float
    answer_above: float
    base_prior: float
    graph_weight: float
    only_chosen_bases: int
    look_up_unknown: int
    glimpse: int
    filter: int
    each_part: int
    one_strategy: int
    recency: float
    cross_below: float
    fast_above: float
    fresh_above: float
    consistent: int
    clarify_above: float
    search_claims: int
    document_weight: float


class Policy(dspy.Module):
    """The loop's knobs. A new attribute here (and in `Tuning`) is searched by the compiler from that day."""

    def __init__(self) -> None:
        super().__init__()
        self.route = switch(1, "classify the question first")
        self.decompose = switch(1, "split complex questions")
        self.judge = switch(1, "judge the evidence before writing")
        self.ground = switch(1, "check the answer claim by claim")
        self.k = Knob(5, 2, 12, meaning="passages taken for each query")
        self.dense_weight = Knob(0.5, 0.0, 1.0, step=0.1, meaning="weight of dense over keyword scores in fusion")
        self.stale_penalty = Knob(0.0, 0.0, 1.0, step=0.2, meaning="score taken from a passage that was superseded")
        self.informal_penalty = Knob(0.0, 0.0, 1.0, step=0.2, meaning="score taken from a passage that is not official")
        self.max_rounds = Knob(2, 1, 4, meaning="rounds of searching at most")
        self.min_gain = Knob(0.0, 0.0, 0.5, meaning="gain in sufficiency that justifies one more round")
        self.keep_at_least = Knob(1, 0, 4, meaning="best passages kept whatever the judge says")
        self.keep_at_most = Knob(6, 1, 12, meaning="passages the writer sees at most")
        self.sentences = Knob(3, 1, 6, meaning="sentences of the answer for each look-up")
        self.generate_above = Knob(0.0, 0.0, 1.0, meaning="sufficiency under which the program abstains")
        self.answer_above = Knob(0.0, 0.0, 1.0, meaning="responsiveness under which a draft is withheld")
        self.base_prior = Knob(0.0, 0.0, 1.0, step=0.2, meaning="score given for how likely a passage's base is wanted")
        self.graph_weight = Knob(GRAPH, 0.0, 1.0, step=0.1, meaning="weight of the graph over text scores in fusion")
        self.only_chosen_bases = switch(0, "search the chosen bases only, not all")
        self.look_up_unknown = switch(1, "look up what needs no look-up but could not be answered without one")
        self.glimpse = switch(1, "show the classifier a first look; off: search while it thinks")
        self.filter = switch(1, "judge passage by passage which of them help")
        self.each_part = switch(0, "judge the evidence of each look-up by itself too")
        self.one_strategy = switch(0, "search by one strategy at a time, by the next when the evidence is poor")
        self.recency = Knob(0.0, 0.0, 1.0, step=0.2, meaning="lift of the newest when a question asks for the latest")
        self.cross_below = Knob(0.0, 0.0, 1.0, meaning="probability of the likeliest base under which all are searched")
        self.fast_above = Knob(1.0, 0.0, 1.0, meaning="probability of a simple question past which nothing is judged")
        self.fresh_above = Knob(0.0, 0.0, 1.0, meaning="share of current evidence under which newer is searched for")
        self.consistent = switch(0, "look for contradictions in the evidence and settle them")
        self.clarify_above = Knob(1.0, 0.0, 1.0, meaning="vagueness past which poor evidence is asked back about")
        self.search_claims = switch(0, "search once more for a claim that has no support")
        self.document_weight = Knob(0.0, 0.0, 0.8, step=0.2, meaning="share of a score from its document's best")

    def tuning(self) -> Tuning:
        """The values now, frozen."""
        return Tuning(**{name: getattr(self, name).value for name in Tuning.__slots__})

    def turn(self, **values: float) -> None:
        """Sets several knobs by name."""
        for name, value in values.items():
            getattr(self, name).set(value)
