"""What two splits share (topics, evidence passages, questions in nearly the same words), and repeats within one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from optimize.labelled.dataset import LabelledQuestion
from optimize.labelled.facts import STOP, normal

NEAR = 90.0
"""token_set_ratio, 0 to 100, from which two questions count as one."""
LEAST_WORDS = 4
"""Shorter questions resemble each other by accident."""
_SHARED = 0.5
_ROWS = 256  # compared at a time, so that memory stays small


@dataclass(frozen=True, slots=True)
class Leak:
    """A question that shares with another what it should not."""

    question: LabelledQuestion
    what: str
    mend: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions, the earlier one first: the words of one are nearly all among the other's."""

    first: LabelledQuestion
    other: LabelledQuestion
    same: bool
    """Both have nearly the same words."""


def leaks(questions: Sequence[LabelledQuestion], pairs: Iterable[Pair]) -> Iterator[Leak]:
    """Yield one leak a topic, passage or pair of questions that is in two splits; none without `split` fields."""
    split = [q for q in questions if q.split]
    yield from _shared(split, "the topic", lambda q: (q.topic,) if q.topic else ())
    yield from _shared(split, "the evidence", lambda q: tuple(i for i in q.evidence if "#" in i))
    for pair in pairs:
        first, other = pair.first, pair.other
        if first.split and other.split and first.split != other.split:
            yield Leak(
                other,
                f"it is nearly the question {first.id} of {first.split}: {first.question!r}.",
                "Reword one of them, or put both into one split.",
            )


def repeats(pairs: Iterable[Pair]) -> Iterator[Leak]:
    """Yield questions in nearly the words of another of their split, with its labels: they add nothing."""
    told = set()
    for pair in pairs:
        first, other = pair.first, pair.other
        if pair.same and other.id not in told and first.split == other.split and _taught(first) == _taught(other):
            told.add(other.id)
            yield Leak(
                other,
                f"it is nearly the question {first.id}, with the same labels: {first.question!r}.",
                "Drop one of them, or ask for something else.",
            )


def near_duplicates(questions: Sequence[LabelledQuestion]) -> list[Pair]:
    """Return the pairs of questions in nearly the same words."""
    from rapidfuzz import fuzz

    texts = [normal(q.question).replace(f" {STOP} ", " ").strip() for q in questions]
    pairs = []
    for one, other in sorted(_alike([text.split() for text in texts])):
        if fuzz.token_set_ratio(texts[one], texts[other], score_cutoff=NEAR):
            same = fuzz.token_sort_ratio(texts[one], texts[other], score_cutoff=NEAR) > 0
            pairs.append(Pair(questions[one], questions[other], same))
    return pairs


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


def _taught(question: LabelledQuestion) -> tuple[object, ...]:
    return question.outcome, frozenset(question.alternatives), frozenset(question.evidence)


def _alike(texts: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
    """Pairs of texts of enough words where shared words make up half of the shorter, by length.

    All pairs of thousands of questions are too many to compare letter by letter; a sparse product counts
    what each pair shares.
    """
    import numpy as np
    from scipy.sparse import csr_array

    rows = [n for n, words in enumerate(texts) if len(words) >= LEAST_WORDS]
    vocabulary: dict[str, int] = {}
    columns = [[vocabulary.setdefault(word, len(vocabulary)) for word in dict.fromkeys(texts[n])] for n in rows]
    if len(rows) < 2:
        return
    ends = np.cumsum([0, *map(len, columns)])
    flat = np.concatenate([np.asarray(c) for c in columns])
    has = csr_array((np.ones(len(flat), np.float32), flat, ends), shape=(len(rows), len(vocabulary)))
    weight = np.array([len(word) for word in vocabulary], np.float32)
    length = has @ weight
    weighted = csr_array(has.multiply(weight)).T.tocsr()
    for start in range(0, len(rows), _ROWS):
        shared = (has[start : start + _ROWS] @ weighted).toarray()
        shorter = np.minimum(length[start : start + _ROWS, None], length[None, :])
        for i, j in zip(*np.nonzero(shared >= _SHARED * shorter), strict=True):
            if j > i + start:
                yield rows[i + start], rows[j]
