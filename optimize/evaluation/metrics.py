"""What an answer is worth: correct, partial or wrong, and the parts that explain it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimize.labelled.dataset import LabelledQuestion
from optimize.labelled.facts import states
from program.answer import Answer, Outcome
from program.loop.grounding import split_claims
from program.settings import UtilitySettings

METRICS = (
    "correct",
    "wrong",
    "outcome_accuracy",
    "routing_accuracy",
    "route_accuracy",
    "strategy_accuracy",
    "source_f1",
    "retrieval_recall",
    "context_recall",
    "context_precision",
    "fact_recall",
    "supported",
    "answer_relevancy",
    "model_calls",
    "tokens",
    "usd",
    "calls_saved",
    "agreement",
)
PROPORTIONS = frozenset(["partial", *METRICS]) - {"model_calls", "tokens", "usd", "answer_relevancy"}
"""Metrics in [0, 1], as their means are."""
_CHECKABLE = re.compile(r"\d+(?:[.,:]\d+)*|\b[A-Z][\w-]+")


@dataclass(frozen=True, slots=True)
class Grade:
    """One graded answer. `metrics` holds a value in its metric's own unit, or None where no label tells."""

    id: str
    topic: str
    tags: tuple[str, ...]
    question: str
    outcome: str
    correct: int
    partial: int
    wrong: int
    utility: float
    answer: str
    path: tuple[str, ...]
    metrics: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Grade:
        """The grade whose fields are told, as JSON has them."""
        return cls(**{**told, "tags": tuple(told["tags"]), "path": tuple(told["path"])})

    def row(self) -> dict[str, Any]:
        """The line of `scores.jsonl`."""
        return {
            "id": self.id,
            "topic": self.topic,
            "tags": list(self.tags),
            "question": self.question,
            "outcome": self.outcome,
            "correct": self.correct,
            "partial": self.partial,
            "wrong": self.wrong,
            "utility": round(self.utility, 6),
            "answer": self.answer,
            "path": list(self.path),
            "metrics": {k: None if v is None else round(v, 6) for k, v in self.metrics.items()},
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The three words of an answer, and the share of facts it states."""

    correct: bool
    wrong: bool
    fact_share: float

    @property
    def partial(self) -> bool:
        return not (self.correct or self.wrong)


def judge(question: LabelledQuestion, outcome: str, text: str) -> Verdict:
    """Correct: outcome as labelled and, if answered, all facts and no not_facts. Wrong: answered where it should
    have clarified or abstained, or a not_fact stated, or none of the facts. The rest is partial."""
    answered = outcome == Outcome.ANSWERED
    stated = [states(text, forms) for forms in question.alternatives]
    share = sum(stated) / len(stated) if stated else 1.0
    rival = any(states(text, value) for value in question.not_facts)
    if not answered:
        return Verdict(outcome == question.outcome, False, 0.0)
    if question.outcome not in (None, Outcome.ANSWERED):
        return Verdict(False, True, 0.0)
    if rival or (stated and share == 0.0):
        return Verdict(False, True, share)
    return Verdict(share == 1.0, False, share)


def utility(
    verdict: Verdict,
    outcome: str,
    calls: int,
    weights: UtilitySettings,
    supported: float | None = None,
    usd: float = 0.0,
) -> float:
    """Correct earns `correct`; wrong, or without one claim `supported` by what it cites, `wrong`; a partial answer its
    share of the facts, a needless refusal `missed`; each model call costs `call`, each US dollar `usd`."""
    if verdict.wrong or supported == 0:
        worth = weights.wrong
    elif verdict.correct:
        worth = weights.correct
    elif outcome == Outcome.ANSWERED:
        worth = weights.correct * verdict.fact_share
    else:
        worth = weights.missed
    return worth - weights.call * calls - weights.usd * usd


def grade(
    question: LabelledQuestion,
    answer: Answer,
    weights: UtilitySettings,
    text_of: Callable[[str], str] | None = None,
    similarity: Callable[[str, str], float] | None = None,
    cascade: bool = False,
) -> Grade:
    """The graded answer. `text_of` gives a passage's text by id, for `supported`; `similarity` is for relevancy;
    `cascade` says that a dearer model might have been asked."""
    verdict = judge(question, answer.outcome, answer.text)
    answered = answer.outcome == Outcome.ANSWERED
    held = supported(answer, text_of) if text_of else None
    metrics: dict[str, float | None] = {
        "outcome_accuracy": None if question.outcome is None else float(answer.outcome == question.outcome),
        "route_accuracy": None if question.route is None else float(answer.route == question.route),
        "strategy_accuracy": _strategy(question, answer),
        "routing_accuracy": routing(question, answer),
        "source_f1": _source_f1(question.sources, answer.sources) if question.sources else None,
        "retrieval_recall": _recall(question.evidence, answer.found) if question.evidence else None,
        "context_recall": _recall(question.evidence, answer.retrieved) if question.evidence else None,
        "context_precision": _precision(question.evidence, answer.retrieved) if question.evidence else None,
        "fact_recall": verdict.fact_share if question.facts else None,
        "supported": held,
        "answer_relevancy": similarity(question.question, answer.text) if answered and similarity else None,
        "model_calls": float(answer.usage.calls),
        "tokens": float(answer.usage.tokens_in + answer.usage.tokens_out),
        "usd": answer.usage.usd,
        "calls_saved": _saved(answer) if cascade else None,
        "agreement": answer.usage.agreed / answer.usage.asked if answer.usage.asked else None,
    }
    return Grade(
        id=question.id,
        topic=question.cluster,
        tags=tuple(question.tags),
        question=question.question,
        outcome=answer.outcome.value,
        correct=int(verdict.correct),
        partial=int(verdict.partial),
        wrong=int(verdict.wrong),
        utility=utility(verdict, answer.outcome, answer.usage.calls, weights, held, answer.usage.usd),
        answer=answer.text,
        path=answer.trace.path,
        metrics=metrics,
    )


def value(grade_: Grade, metric: str) -> float | None:
    """A metric of a graded answer by name, the three words and utility among them."""
    if metric in {"correct", "partial", "wrong", "utility"}:
        return float(getattr(grade_, metric))
    return grade_.metrics.get(metric)


def _saved(answer: Answer) -> float | None:
    """The share of the calls of a cascade's dearer models, were they always asked, that were not made."""
    always = answer.usage.dear + answer.usage.spared
    return answer.usage.spared / always if always else None


def routing(question: LabelledQuestion, answer: Answer) -> float | None:
    """1 when the route is right and, for a question that is looked up, exactly the labelled bases are chosen."""
    if question.route is None:
        return None
    if answer.route != question.route:
        return 0.0
    if question.route == "direct" or not question.sources:
        return 1.0
    return float(set(answer.sources) == set(question.sources))


def _strategy(question: LabelledQuestion, answer: Answer) -> float | None:
    """1 when the labelled strategy was put first; None without a label, or where the program puts none first."""
    return float(answer.strategy == question.strategy) if question.strategy and answer.strategy else None


def _source_f1(wanted: Sequence[str], chosen: Sequence[str]) -> float:
    hits = len(set(wanted) & set(chosen))
    return 2 * hits / (len(set(wanted)) + len(set(chosen))) if wanted or chosen else 1.0


def _recall(evidence: Sequence[str], retrieved: Sequence[str]) -> float:
    return len(set(evidence) & set(retrieved)) / len(set(evidence))


def _precision(evidence: Sequence[str], retrieved: Sequence[str]) -> float:
    return len(set(evidence) & set(retrieved)) / len(set(retrieved)) if retrieved else 0.0


def supported(answer: Answer, text_of: Callable[[str], str]) -> float | None:
    """The share of an answer's claims whose numbers and names all stand in the passages they cite.

    A claim that cites a passage without a text (computed or fetched for this answer) is not counted; None when there
    is none to count, or the answer is from no passage. One that was written from passages and cites none has no share.
    """
    if answer.outcome != Outcome.ANSWERED:
        return None
    if not answer.citations:
        return 0.0 if answer.retrieved else None
    texts = {c.n: (c.title, text_of(c.id)) for c in answer.citations}
    held = []
    for claim in split_claims(answer.text):
        cited = [texts[n] for n in claim.cites if n in texts]
        if all(text for _, text in cited):
            told = " ".join(f"{title} {text}" for title, text in cited)
            held.append(bool(cited) and bears_out(told, claim.bare))
    return sum(held) / len(held) if held else None


def bears_out(text: str, claim: str) -> bool:
    """True when every number and name of a claim stands in the text."""
    told = text.lower()
    return all(token.lower() in told for token in _CHECKABLE.findall(claim))
