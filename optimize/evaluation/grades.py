"""What an answer is worth: correct, partial or wrong, its utility, and the parts that explain it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from ragc.answer import Answer, Outcome
from ragc.loop.answers import NOTE, UNSURE
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.settings import UtilitySettings
from ragc.text.facts import states
from ragc.text.history import REFUSES
from ragc.text.numbers import list_unstated
from ragc.text.pieces import split_claims, split_sentences
from ragc.text.words import WORD

METRICS = (
    *("correct", "wrong", "selective_risk", "outcome_accuracy", "routing_accuracy", "route_accuracy"),
    *("strategy_accuracy", "source_f1", "retrieval_recall", "context_recall", "context_precision", "fact_recall"),
    *("helped", "answer_precision", "supported", "answer_relevancy", "sentences", "model_calls", "tokens", "usd"),
)
PROPORTIONS = frozenset(["partial", *METRICS]) - {"answer_relevancy", "sentences", "model_calls", "tokens", "usd"}
"""Metrics in [0, 1], as their means are."""
RANGES = {**dict.fromkeys(METRICS, (0.0, math.inf)), "answer_relevancy": (-1.0, 1.0)}
"""Between what the values of the others lie."""
FIRST = ("correct", "wrong", "model_calls")
"""Metrics that are shown before all others."""
DIGITS = 6  # behind the point, of the figures that are printed and sealed
CACHED = 65_536  # answers whose verdicts and sentences are remembered: a search meets most of them often
_MARK = re.compile(rf"\s*(?:\[\d{{1,3}}\]|{re.escape(UNSURE)})")


@dataclass(frozen=True, slots=True)
class Grade:
    """One graded answer, as a line of `scores.jsonl` holds it."""

    id: str
    topic: str
    """The topic of the question, or its id where it has none."""
    tags: tuple[str, ...]
    question: str
    outcome: str
    correct: int
    partial: int
    wrong: int
    utility: float
    """What the answer is worth under the project's weights."""
    answer: str
    """The text; of a question with readers only why it failed, for rows and pages of versions are read by others."""
    path: tuple[str, ...]
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """Further metrics in their own units; None where no label tells."""
    confidence: float | None = None
    """How sure an answer is, in [0, 1]; None where there is none."""
    failed: str = ""
    """Why there is no answer, where the program itself raised."""

    def read_metric(self, metric: str) -> float | None:
        """Return a metric by name, the three words and utility among them."""
        own = metric in {"correct", "partial", "wrong", "utility"}
        return float(getattr(self, metric)) if own else self.metrics.get(metric)


@dataclass(frozen=True, slots=True)
class Correctness:
    """The three words of an answer, the share of facts it states, and that of its sentences which state one."""

    correct: bool
    wrong: bool
    fact_share: float
    precision: float | None = None  # none where there is no answer, or no label says what one states

    @property
    def partial(self) -> bool:
        """Whether the answer is neither correct nor wrong."""
        return not (self.correct or self.wrong)


@lru_cache(maxsize=CACHED)
def judge_answer(question: LabelledQuestion, outcome: str, text: str) -> Correctness:
    """Judge an answer correct, wrong or partial by the labels of its question.

    Correct: outcome as labelled and, if answered, all facts and no not_facts. Wrong: answered where it should have
    clarified or abstained, or a not_fact stated, or none of the facts. The rest is partial.
    """
    if outcome != Outcome.ANSWERED:
        return Correctness(outcome == question.outcome, False, 0.0)
    if question.outcome not in (None, Outcome.ANSWERED):
        return Correctness(False, True, 0.0)
    text = REFUSES.sub("", NOTE.sub("", text))
    stated = [states(text, forms) for forms in question.alternatives]
    share = sum(stated) / len(stated) if stated else 1.0
    wrong = share == 0.0 or any(states(text, rival) for rival in question.not_facts)
    forms_of_all = [form for forms in question.alternatives for form in forms]
    stating = [states(sentence, forms_of_all) for sentence in split_answer(text)] if forms_of_all else []
    return Correctness(share == 1.0 and not wrong, wrong, share, sum(stating) / len(stating) if stating else None)


def score_utility(
    judged: Correctness,
    outcome: str,
    calls: int,
    weights: UtilitySettings,
    supported: float | None = None,
    usd: float = 0.0,
) -> float:
    """Return what an answer is worth under the project's weights.

    Correct earns `correct`; wrong, or without one claim supported by what it cites, `wrong`; a partial answer its
    share of the facts, a needless refusal `missed`. What correct and partial answers earn loses the share `padding` of
    the share of their sentences that state no fact. Each model call costs `call`, each US dollar `usd`.
    """
    if judged.wrong or supported == 0:
        worth = weights.wrong
    elif judged.correct or outcome == Outcome.ANSWERED:
        padded = 0.0 if judged.precision is None else 1 - judged.precision
        worth = weights.correct * (1.0 if judged.correct else judged.fact_share) * (1 - weights.padding * padded)
    else:
        worth = weights.missed
    return worth - weights.call * calls - weights.usd * usd


def grade_answer(
    question: LabelledQuestion,
    answer: Answer,
    weights: UtilitySettings,
    support: Callable[[Answer, str], float | None] = lambda answer, asked: None,
    similarity: Callable[[str, str], float] | None = None,
    copies: Mapping[str, str] = MappingProxyType({}),
) -> Grade:
    """Grade an answer by the labels of its question.

    `support` measures `supported`, `similarity` the relevancy. `copies` names for a passage the first one with its
    text: to find it is as good. So is any passage of a document or table that is itself labelled evidence.
    """
    verdict, supported = judge_answer(question, answer.outcome, answer.text), support(answer, question.conversation)
    usage, of = answer.usage, (question.evidence, answer.found, answer.retrieved)

    def name_evidence(id_: str) -> str:
        whole = id_.partition("#")[0]
        return whole if whole in question.evidence else copies.get(id_, id_)

    evidence, every, retrieved = ({*map(name_evidence, ids)} for ids in of)
    found, kept = len(evidence & every), len(evidence & retrieved)
    strategies = question.strategy, answer.strategy
    answered = answer.outcome == Outcome.ANSWERED
    compare = similarity if answered else None
    metrics: dict[str, float | None] = {
        "selective_risk": float(verdict.wrong) if answered else None,
        "outcome_accuracy": float(answer.outcome == question.outcome) if question.outcome else None,
        "route_accuracy": float(answer.route == question.route) if question.route else None,
        "strategy_accuracy": float(len(set(strategies)) == 1) if all(strategies) else None,
        "routing_accuracy": score_routing(question, answer),
        "source_f1": _score_f1(question.sources, answer.sources) if question.sources else None,
        "retrieval_recall": found / len(evidence) if evidence else None,
        "context_recall": kept / len(evidence) if evidence else None,
        "context_precision": kept / max(len(retrieved), 1) if evidence else None,
        "helped": _score_refusal(question, answer),
        "fact_recall": verdict.fact_share if question.facts else None,
        "answer_precision": verdict.precision,
        "supported": supported,
        "answer_relevancy": compare(question.conversation, answer.text) if compare else None,
        "sentences": float(len(split_answer(answer.text))) if answered else None,
        "model_calls": float(usage.calls),
        "tokens": float(usage.tokens_in + usage.tokens_out),
        "usd": usage.usd,
        "seconds": usage.seconds,
    }
    return Grade(
        id=question.id,
        topic=question.cluster,
        tags=tuple(question.tags),
        question=question.conversation,
        outcome=str(answer.outcome),
        correct=int(verdict.correct),
        partial=int(verdict.partial),
        wrong=int(verdict.wrong),
        utility=round(score_utility(verdict, answer.outcome, usage.calls, weights, supported, usage.usd), DIGITS),
        answer="" if question.readers and answer.outcome is not Outcome.FAILED else answer.text,
        path=() if question.readers else answer.trace.path,
        metrics={name: None if value is None else round(value, DIGITS) for name, value in metrics.items()},
        confidence=round(answer.confidence, DIGITS) if answered else None,
    )


@lru_cache(maxsize=CACHED)
def split_answer(text: str) -> tuple[str, ...]:
    """Return an answer's sentences, list items and table rows.

    Citation marks and notes of other sources are left out.
    """
    lines = _MARK.sub("", REFUSES.sub("", NOTE.sub("", text))).splitlines()
    return tuple(sentence for line in lines for sentence in split_sentences(line) if WORD.search(sentence))


def score_routing(question: LabelledQuestion, answer: Answer) -> float | None:
    """Return 1 for the right route and, where one looks up, the right bases."""
    if question.route is None:
        return None
    if answer.route != question.route:
        return 0.0
    if question.route == "direct" or not question.sources:
        return 1.0
    return float(set(answer.sources) == set(question.sources))


def score_support(answer: Answer, asked: str, text_of: Callable[[str], str]) -> float | None:
    """Return the share of claims that cite a passage and state only known numbers.

    These stand in the passages that the answer was made from or in what was `asked`, or are worked out from such. A
    claim that cites a passage without a text (computed or fetched for this answer) is not counted; None when there
    is none to count, or the answer is from no passage. One that was written from passages and cites none has no share.
    """
    if answer.outcome != Outcome.ANSWERED:
        return None
    if not answer.citations:
        return 0.0 if answer.retrieved else None
    texts = {one.n: text_of(one.id) for one in answer.citations}
    sources = [asked, *texts.values(), *map(text_of, answer.retrieved)]
    supported = []
    for claim in split_claims(REFUSES.sub("", NOTE.sub("", answer.text)).strip()):
        cited = [texts[n] for n in claim.cites if n in texts]
        if all(cited):
            supported.append(bool(cited) and not list_unstated(claim.bare, sources))
    return sum(supported) / len(supported) if supported else None


def _score_refusal(question: LabelledQuestion, answer: Answer) -> float | None:
    """Return 1 where what a needless refusal shows states the facts; None of any other answer."""
    if answer.outcome != Outcome.ABSTAIN or not question.facts or question.outcome not in (None, Outcome.ANSWERED):
        return None
    return float(judge_answer(question, Outcome.ANSWERED, answer.nearest).correct)


def _score_f1(wanted: Sequence[str], chosen: Sequence[str]) -> float:
    return 2 * len(set(wanted) & set(chosen)) / (len(set(wanted)) + len(set(chosen)))
