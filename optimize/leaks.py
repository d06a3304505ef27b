"""What two splits share: topics, evidence passages, and questions in nearly the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from optimize.dataset import LabelledQuestion
from optimize.facts import STOP, normal

NEAR = 90.0
"""token_set_ratio, 0 to 100, from which two questions count as one."""
LEAST_WORDS = 4
"""Shorter questions resemble each other by accident."""
_ROWS = 256  # compared at a time, so that memory stays small


@dataclass(frozen=True, slots=True)
class Leak:
    """A question that shares something with one of another split."""

    question: LabelledQuestion
    what: str
    mend: str


def leaks(questions: Sequence[LabelledQuestion]) -> Iterator[Leak]:
    """One leak a topic, passage or pair of questions that is in two splits; none without `split` fields."""
    split = [q for q in questions if q.split]
    yield from _shared(split, "the topic", lambda q: (q.topic,) if q.topic else ())
    yield from _shared(split, "the evidence", lambda q: tuple(i for i in q.evidence if "#" in i))
    yield from _near_duplicates(split)


def _shared(
    questions: Sequence[LabelledQuestion], name: str, keys: Callable[[LabelledQuestion], Sequence[str]]
) -> Iterator[Leak]:
    first: dict[str, LabelledQuestion] = {}
    told = set()
    for question in questions:
        for key in keys(question):
            other = first.setdefault(key, question)
            if other.split != question.split and (key, question.split) not in told:
                told.add((key, question.split))
                yield Leak(
                    question,
                    f"{name} {key!r} is in {question.split} and, with {other.id}, in {other.split}.",
                    "Put both into one split, or let `ragc data split --again` divide the questions.",
                )


def _near_duplicates(questions: Sequence[LabelledQuestion]) -> Iterator[Leak]:
    from rapidfuzz import fuzz, process

    texts = [normal(q.question).replace(f" {STOP} ", " ").strip() for q in questions]
    long_enough = [n for n, text in enumerate(texts) if len(text.split()) >= LEAST_WORDS]
    for start in range(0, len(long_enough), _ROWS):
        rows, columns = long_enough[start : start + _ROWS], long_enough[start:]
        scores = process.cdist(
            [texts[n] for n in rows], [texts[n] for n in columns], scorer=fuzz.token_set_ratio, score_cutoff=NEAR
        )
        for i, j in zip(*scores.nonzero(), strict=True):
            one, other = questions[rows[i]], questions[columns[j]]
            if columns[j] > rows[i] and one.split != other.split:
                yield Leak(
                    other,
                    f"it is nearly the question {one.id} of {one.split}: {one.question!r}.",
                    "Reword one of them, or put both into one split.",
                )
