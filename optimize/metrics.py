"""A metric for `dspy.Evaluate` and DSPy's optimizers: a score with feedback in words, made from the labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import dspy

from ragc.answer import Outcome
from ragc.optimize.evaluation.grades import judge_answer, score_utility
from ragc.optimize.labelled.dataset import KEYS, LabelledQuestion
from ragc.settings import UtilitySettings
from ragc.text.facts import states

_WEIGHTS = UtilitySettings()
_DID = {"answered": "answered", "clarify": "asked back", "abstain": "abstained", "failed": "failed"}
_SEARCHES, _JUDGES, _WRITES = {"decomposer", "retriever"}, {"judge"}, {"generator", "grounder"}


class GradedScore(float):
    """A score in [0, 1] with feedback; a number to `Evaluate`, `score` and `feedback` to GEPA."""

    feedback: str  # what is right or wrong, in sentences

    def __new__(cls, score: float, feedback: str) -> GradedScore:
        found = super().__new__(cls, score)
        found.feedback = feedback
        return found

    @property
    def score(self) -> float:
        """The score."""
        return float(self)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def graded(
    example: dspy.Example, prediction: Any, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
) -> GradedScore:
    """Return what an answer is worth by the labels of its question, and why.

    An example has the fields of a labelled question (`LabelledQuestion.as_example`). The score is the utility under
    the default weights, moved to [0, 1]; while demonstrations are bootstrapped it is 1 for a correct answer, else 0.
    With `pred_name` the feedback begins with what that predictor could have done.
    """
    given = {name: value for name in KEYS if (value := example.get(name)) is not None}
    question = LabelledQuestion(**{"id": "example", **given})
    verdict = judge_answer(question, prediction.outcome, prediction.text)
    worth = score_utility(verdict, prediction.outcome, 0, _WEIGHTS)
    score = (worth - _WEIGHTS.wrong) / (_WEIGHTS.correct - _WEIGHTS.wrong)
    if trace is not None and pred_name is None:
        score = float(verdict.correct)
    remarks = list(_find_remarks(question, prediction))
    stage = (pred_name or "").partition(".")[0]
    own = [text for stages, text in remarks if stage in stages]
    rest = [text for stages, text in remarks if stage not in stages]
    if pred_name:
        own = own or ["Nothing in the labels speaks against this step."]
        rest = ["The whole:", *rest] if rest else []
    return GradedScore(max(0.0, score), " ".join([*own, *rest]) or "All that is labelled is as it should be.")


def _find_remarks(question: LabelledQuestion, answer: Any) -> Iterator[tuple[set[str], str]]:
    """Yield what the labels say against an answer, each with the stages that it concerns."""
    if question.outcome and answer.outcome != question.outcome:
        should = _DID[question.outcome]
        yield {"classifier", *_JUDGES, *_WRITES}, f"It {_DID[answer.outcome]}; it should have {should}."
    if question.route and answer.route != question.route:
        yield {"classifier"}, f"The route was {answer.route or 'none'}; it should be {question.route}."
    needed = question.sources or tuple(dict.fromkeys(id_.partition("/")[0] for id_ in question.evidence))
    if needed and set(answer.sources) != set(needed):
        yield {"classifier"}, f"Bases chosen: {_list(answer.sources)}; needed: {_list(needed)}."
    if lost := [id_ for id_ in question.evidence if id_ not in answer.found]:
        yield {"classifier", *_SEARCHES}, f"Evidence that no search found: {_list(lost)}."
    if dropped := [id_ for id_ in question.evidence if id_ in answer.found and id_ not in answer.retrieved]:
        yield _JUDGES, f"Evidence that was found and then left out: {_list(dropped)}."
    if answer.outcome == Outcome.ANSWERED:
        if missing := [forms[0] for forms in question.alternatives if not states(answer.text, forms)]:
            yield _WRITES, f"Facts that the answer lacks: {_list(missing)}."
        if rivals := [rival for rival in question.not_facts if states(answer.text, rival)]:
            yield {*_WRITES, *_JUDGES}, f"It states what it must not: {_list(rivals)}."


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
