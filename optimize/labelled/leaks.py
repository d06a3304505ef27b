"""Which questions one split must hold: the one rule by which questions are divided, checked and compiled.

Questions are bound together by a topic, by a passage of evidence, by the same words, and by nearly the same words
unless their labels tell them apart. So a vague question and its twin, with another outcome, may be in two splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from ragc.optimize.labelled.dataset import SPLITS, LabelledQuestion
from ragc.text.facts import STOP, normalise_text

NEAR, SAME = 0.82, 0.9
"""The shares of letters in shared words, of the shorter question's and of both, from which two count as alike."""
LEAST_WORDS = 4  # shorter questions resemble each other by accident
_ROWS = 256  # questions compared at a time, so that memory stays small


@dataclass(frozen=True, slots=True)
class Link:
    """Two questions, and what they share: a topic, a passage, or most words of the shorter one."""

    first: LabelledQuestion
    other: LabelledQuestion
    shared: str
    repeats: bool = False  # whether both have nearly the same words
    equal: bool = False  # whether both have the very same words


class Links(NamedTuple):
    """What links the questions of a set."""

    near: tuple[Link, ...]  # questions that share words, bound or not
    binding: tuple[Link, ...]  # questions that one split must hold
    loose: tuple[Link, ...]  # shared passages that bind nothing: else there were fewer groups than splits
    groups: tuple[tuple[LabelledQuestion, ...], ...]  # the questions by what binds them


@lru_cache(maxsize=4)
def link_questions(questions: tuple[LabelledQuestion, ...]) -> Links:
    """Return what links questions.

    Passages of evidence (an id with '#') bind unless only with them there are fewer groups than splits: a passage in
    two splits is better than a split without a question.
    """
    near = tuple(_find_near(questions))
    topics = _find_shared((question, f"the topic {question.topic!r}") for question in questions if question.topic)
    binding = (*topics, *(link for link in near if link.equal or not differ_in_labels(link.first, link.other)))
    passages = tuple(_find_shared((q, f"the evidence {i!r}") for q in questions for i in q.evidence if "#" in i))
    groups, without = _group(questions, (*binding, *passages)), _group(questions, binding)
    if len(groups) < len(SPLITS) <= len(without):
        return Links(near, binding, passages, without)
    return Links(near, (*binding, *passages), (), groups)


def differ_in_labels(first: LabelledQuestion, other: LabelledQuestion) -> bool:
    """Tell whether a label that both questions have differs.

    It is the outcome, or facts or evidence with nothing in common.
    """
    labels = (
        (
            {question.outcome} - {None},
            {normalise_text(spelling) for fact in question.alternatives for spelling in fact},
            {*question.evidence},
        )
        for question in (first, other)
    )
    return any(one and other and one.isdisjoint(other) for one, other in zip(*labels, strict=True))


def _find_near(questions: Sequence[LabelledQuestion]) -> Iterator[Link]:
    """Yield pairs of questions by the letters of the words they share, counted by a sparse product."""
    texts = [normalise_text(q.conversation).replace(f" {STOP} ", " ").split() for q in questions]
    vocabulary: dict[str, int] = {}
    columns = [vocabulary.setdefault(word, len(vocabulary)) for words in texts for word in dict.fromkeys(words)]
    if not columns:
        return
    ends = np.cumsum([0, *(len(set(words)) for words in texts)])
    has = csr_array((np.ones(len(columns), np.float32), columns, ends), shape=(len(texts), len(vocabulary)))
    weight = np.array([len(word) + 1 for word in vocabulary], np.float32)
    length, weighted = has @ weight, csr_array(has.multiply(weight)).T.tocsr()
    numbers: dict[tuple[str, ...], int] = {}
    code = np.array([numbers.setdefault(tuple(words), len(numbers)) for words in texts])
    long = np.array([len(words) >= LEAST_WORDS for words in texts])
    for start in range(0, len(texts), _ROWS):
        rows = slice(start, start + _ROWS)
        shared = (has[rows] @ weighted).toarray()
        own, others = length[rows, None], length[None, :]
        equal = (code[rows, None] == code) & (own > 0)
        repeats = 2 * shared >= SAME * (own + others)
        near = equal | ((shared >= NEAR * np.minimum(own, others)) & long[rows, None] & long)
        for i, j in zip(*np.nonzero(np.triu(near, start + 1)), strict=True):
            first, shape = questions[start + i], (bool(repeats[i, j]), bool(equal[i, j]))
            yield Link(first, questions[j], f"nearly the question {first.question!r}", *shape)


def link_components(links: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return for each node the number of those that are linked with it."""
    numbers: dict[str, int] = {}
    ends = [[numbers.setdefault(node, len(numbers)) for node in link] for link in links]
    one, other = zip(*ends, strict=True) if ends else ((), ())
    linked = coo_array((np.ones(len(ends)), (one, other)), shape=(len(numbers), len(numbers)))
    return dict(zip(numbers, connected_components(linked, directed=False)[1].tolist(), strict=True))


def _find_shared(keys: Iterable[tuple[LabelledQuestion, str]]) -> Iterator[Link]:
    """Yield a link from each question to the first one with the same key."""
    first: dict[str, LabelledQuestion] = {}
    for question, key in keys:
        if (other := first.setdefault(key, question)) is not question:
            yield Link(other, question, key)


def _group(questions: Sequence[LabelledQuestion], links: Iterable[Link]) -> tuple[tuple[LabelledQuestion, ...], ...]:
    stands_for = link_components([*((q.id, q.id) for q in questions), *((k.first.id, k.other.id) for k in links)])
    groups: dict[int, list[LabelledQuestion]] = {}
    for question in questions:
        groups.setdefault(stands_for[question.id], []).append(question)
    return tuple(map(tuple, groups.values()))
