"""The program's predictors, grouped by role: thin modules over the signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from program.loop.knobs import Knob
from program.models.cascade import DOUBT
from program.passage import SourceCard
from program.signatures import (
    BASE_PREFIX,
    AnswerDirectly,
    Clarify,
    Contradiction,
    Decompose,
    Detail,
    FollowUp,
    Generate,
    Missing,
    Relevance,
    Responsive,
    Sufficiency,
    Support,
    route_signature,
)

MOST_LOOK_UPS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How a question will be looked up. `bases` are those wanted, `likely` their probabilities.

    `confidence` is the probability of the route.
    """

    route: str
    bases: tuple[str, ...]
    likely: tuple[tuple[str, float], ...]
    vague: bool = False
    vagueness: float = 0.0
    confidence: float = 1.0


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
        route = str(evidence["route"].value)
        return Plan(
            route,
            bases,
            likely,
            bool(evidence["vague"].value),
            float(evidence["vague"].probability),
            float(evidence["route"].probabilities[route]),
        )


@dataclass(frozen=True, slots=True)
class LookUp:
    """One query of a plan, the base it belongs to (or empty), and the positions of the look-ups it waits for."""

    query: str
    base: str = ""
    after: tuple[int, ...] = ()


class Decomposer(dspy.Module):
    """Splits a complex question into look-ups, and writes one that had to wait for another's evidence."""

    def __init__(self) -> None:
        super().__init__()
        self.split = dspy.Predict(Decompose)
        self.follow = dspy.Predict(FollowUp)


def look_ups(reply: Any) -> list[LookUp]:
    """The plan that a reply of `decomposer.split` stands for: at most four look-ups, most urgent first.

    A detail that names no look-up is ignored, and so is a dependency on a later or unknown one: what is left
    cannot go in circles.
    """
    texts = [(n, text) for n, text in enumerate(reply["sub_queries"], 1) if text.strip()][:MOST_LOOK_UPS]
    told = [Detail.model_validate(detail) for detail in reply.get("details") or ()]  # a record has them in JSON values
    details = {detail.n: detail for detail in told}
    texts.sort(key=lambda pair: (details.get(pair[0], Detail(n=0)).priority, pair[0]))
    place = {n: at for at, (n, _) in enumerate(texts)}
    plans = []
    for n, text in texts:
        detail = details.get(n, Detail(n=n))
        parents = sorted({place[other] for other in detail.after if other < n and other in place})
        plans.append(LookUp(text, detail.base, tuple(parents)))
    return plans


class Judge(dspy.Module):
    """Says which passages help, whether they suffice, what is missing, and which contradict each other."""

    def __init__(self) -> None:
        super().__init__()
        self.relevance = dspy.Predict(Relevance)
        self.sufficiency = dspy.Predict(Sufficiency)
        self.missing = dspy.Predict(Missing)
        self.contradiction = dspy.Predict(Contradiction)


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
        for name in ("route", "relevance", "sufficiency", "contradiction", "support", "responsive"):
            meaning = f"certainty of a decision on {name} under which a dearer model decides"
            setattr(self, name, Knob(DOUBT, 0.0, 1.0, step=0.05, meaning=meaning))

    def of(self, predictor: str) -> float:
        """The doubt that applies to a predictor, by its dotted name."""
        return float(getattr(self, predictor.rpartition(".")[2]).value)
