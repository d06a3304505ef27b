"""Where answers are lost: of each labelled question that is not answered right the stage that lost it, and a remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ragc.answer import Outcome
from ragc.optimize.evaluation.grades import Grade

NOT_FOUND, CUT, OTHER = "not found", "cut at k", "other piece first"
REFUSED, HALF, ASKED_BACK, TOLD = "refused", "half said", "asked back", "answered what it should not"
REMEDIES = {
    NOT_FOUND: "say it in the documents in the askers' words, too; `ragc search` shows what is found instead",
    CUT: "raise `k` or `keep_at_most`, or part the long section; `ragc compile --trials` searches both",
    OTHER: "name in the sentence or its heading what it is about",
    REFUSED: "label more such questions, so that a compile trusts such passages",
    HALF: "state the facts in one sentence or row, or raise `sentences`",
    ASKED_BACK: "label the question with its twin that leaves something open",
    TOLD: "look whether its label is right; else label more questions that the documents do not answer",
}
"""What to do about the questions that a stage lost, the stages in the order of a question's way."""


def find_loss(grade: Grade) -> str:
    """Return the stage that lost a question, or "" where the answer is right."""
    if grade.correct:
        return ""
    if grade.outcome == Outcome.CLARIFY:
        return ASKED_BACK
    for metric, stage in (("retrieval_recall", NOT_FOUND), ("context_recall", CUT)):
        if (share := grade.metrics.get(metric)) is not None and share < 1:
            return stage
    if grade.outcome != Outcome.ANSWERED:
        return REFUSED
    if grade.metrics.get("outcome_accuracy") == 0:
        return TOLD
    return HALF if grade.partial else OTHER


def list_losses(grades: Iterable[Grade]) -> list[tuple[str, Grade]]:
    """Return each question that was lost behind its stage, in stage order."""
    found = [(stage, grade) for grade in grades if (stage := find_loss(grade))]
    return sorted(found, key=lambda loss: [*REMEDIES].index(loss[0]))


def describe_losses(losses: Sequence[tuple[str, Grade]], of: int, what: str) -> str:
    """Return in a sentence how many questions each stage lost."""
    counts = Counter(stage for stage, _ in losses)
    parts = ", ".join(f"{count} {stage}" for stage, count in counts.items())
    return f"Still wrong are {len(losses)} of {of} questions of {what}{f': {parts}' if parts else ''}."
