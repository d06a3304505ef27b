"""The program's predictors, grouped by role: thin modules over the signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from program.knobs import Knob
from program.knowledge.source import SourceCard
from program.models.cascade import DOUBT
from program.signatures import (
    BASE_PREFIX,
    AnswerDirectly,
    Clarify,
    Decompose,
    Generate,
    Missing,
    Relevance,
    Responsive,
    Sufficiency,
    Support,
    route_signature,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a question will be looked up. `bases` are those wanted, `likely` their probabilities."""

    route: str
    bases: tuple[str, ...]
    likely: tuple[tuple[str, float], ...]
    vague: bool = False
    vagueness: float = 0.0


class Classifier(dspy.Module):
    """Decides whether to look up, how much, where, and whether the question is clear."""

    def __init__(self, cards: Sequence[SourceCard]) -> None:
        super().__init__()
        self.names = tuple(card.name for card in cards)
        self.route = dspy.Predict(route_signature(cards))

    def plan(self, evidence: Any) -> Plan:
        """The plan that a prediction of `route` stands for; no base past its threshold means the likeliest."""
        likely = tuple((name, float(evidence[BASE_PREFIX + name].probability)) for name in self.names)
        bases = tuple(name for name in self.names if evidence[BASE_PREFIX + name].value)
        if not bases:
            bases = (max(likely, key=lambda pair: pair[1])[0],)
        return Plan(
            str(evidence["route"].value),
            bases,
            likely,
            bool(evidence["vague"].value),
            evidence["vague"].probability,
        )


class Decomposer(dspy.Module):
    """Splits a complex question into look-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.split = dspy.Predict(Decompose)


class Judge(dspy.Module):
    """Says which passages help, whether they suffice, and what is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.relevance = dspy.Predict(Relevance)
        self.sufficiency = dspy.Predict(Sufficiency)
        self.missing = dspy.Predict(Missing)


class Generator(dspy.Module):
    """Writes: an answer from passages, a direct answer, or a question back."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = dspy.Predict(Generate)
        self.direct = dspy.Predict(AnswerDirectly)
        self.clarify = dspy.Predict(Clarify)


class Grounder(dspy.Module):
    """Checks a draft: each claim against its citations, and the whole against the question."""

    def __init__(self) -> None:
        super().__init__()
        self.support = dspy.Predict(Support)
        self.responsive = dspy.Predict(Responsive)


class Doubt(dspy.Module):
    """How certain the cheaper model must be of each kind of decision, or else the dearer one is asked.

    0 never asks it, 1 always does. Only a program whose models form a cascade has these knobs.
    """

    def __init__(self) -> None:
        super().__init__()
        for name in ("route", "relevance", "sufficiency", "support", "responsive"):
            meaning = f"certainty of a decision on {name} under which a dearer model decides"
            setattr(self, name, Knob(DOUBT, 0.0, 1.0, step=0.05, meaning=meaning))

    def of(self, predictor: str) -> float:
        """The doubt that applies to a predictor, by its dotted name."""
        return float(getattr(self, predictor.rpartition(".")[2]).value)
