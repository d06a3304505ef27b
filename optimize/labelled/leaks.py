"""Which questions one split must hold: the one rule by which questions are divided, checked and compiled.

Questions are bound together by a topic, by a passage of evidence, by the same words, and by nearly the same words
unless their labels tell them apart. So a vague question and its twin, with another outcome, may be in two splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.sparse import csr_array

from optimize.labelled.dataset import SPLITS, LabelledQuestion
from optimize.labelled.facts import STOP, normalise_text

NEAR, SAME = 0.82, 0.9
"""The shares of letters in shared words, of the shorter question's and of both, from which two count as alike."""
LEAST_WORDS = 4  # shorter questions resemble each other by accident
_ROWS = 256  # questions compared at a time, so that memory stays small


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions in nearly the same words."""

    first: LabelledQuestion
    other: LabelledQuestion
    repeats: bool  # whether nearly all words of both are shared, and not only those of the shorter one
    equal: bool  # whether all words are the same, in the same order

    @property
    def labels_differ(self) -> bool:
        """Whether a label that both have differs: the outcome, or facts or evidence with nothing in common."""
        one, two = self.first, self.other
        facts = ({normalise_text(s) for fact in q.alternatives for s in fact} for q in (one, two))
        labels = (({one.outcome} - {None}, {two.outcome} - {None}), facts, ({*one.evidence}, {*two.evidence}))
        return any(a and b and a.isdisjoint(b) for a, b in labels)


@dataclass(frozen=True, slots=True)
class Link:
    """Two questions, and what they share: a topic, a passage or their words."""

    first: LabelledQuestion
    other: LabelledQuestion
    shared: str


@dataclass(frozen=True, slots=True)
class Links:
    """What binds the questions of a set."""

    pairs: tuple[Pair, ...]  # all questions that are near to each other
    binding: tuple[Link, ...]  # those that one split must hold
    loose: tuple[Link, ...]  # shared passages that bind nothing: with them there were fewer groups than splits
    groups: tuple[tuple[LabelledQuestion, ...], ...]  # the questions by what binds them


@lru_cache(maxsize=4)
def link_questions(questions: tuple[LabelledQuestion, ...], by_words: bool = True) -> Links:
    """Return what binds questions to each other; their words only where asked for.

    Passages of evidence (an id with '#') bind unless only with them there are fewer groups than splits: a passage in
    two splits is better than a split without a question.
    """
    pairs = tuple(find_pairs(questions)) if by_words else ()
    binding = [*_find_shared((q, f"the topic {q.topic!r}") for q in questions if q.topic)]
    alike = (pair for pair in pairs if pair.equal or not pair.labels_differ)
    binding += (Link(pair.first, pair.other, f"nearly the question {pair.first.question!r}") for pair in alike)
    cited = ((q, f"the evidence {id_!r}") for q in questions for id_ in q.evidence if "#" in id_)
    passages = list(_find_shared(cited))
    groups, without = _group(questions, [*binding, *passages]), _group(questions, binding)
    if len(groups) < len(SPLITS) <= len(without):
        return Links(pairs, tuple(binding), tuple(passages), without)
    return Links(pairs, (*binding, *passages), (), groups)


def find_pairs(questions: Sequence[LabelledQuestion]) -> Iterator[Pair]:
    """Yield pairs of questions that share most letters, counted by words."""
    texts = [normalise_text(q.question).replace(f" {STOP} ", " ").split() for q in questions]
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
            yield Pair(questions[start + i], questions[j], bool(repeats[i, j]), bool(equal[i, j]))


def link_components(links: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return for each node one node that stands for all that are linked with it."""
    parent: dict[str, str] = {}

    def find_root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for one, other in links:
        parent[find_root(one)] = find_root(other)
    return {node: find_root(node) for node in list(parent)}


def _find_shared(keys: Iterable[tuple[LabelledQuestion, str]]) -> Iterator[Link]:
    """Yield a link from each question to the first one with the same key."""
    first: dict[str, LabelledQuestion] = {}
    for question, key in keys:
        if (other := first.setdefault(key, question)) is not question:
            yield Link(other, question, key)


def _group(questions: Sequence[LabelledQuestion], links: Iterable[Link]) -> tuple[tuple[LabelledQuestion, ...], ...]:
    stands_for = link_components([*((q.id, q.id) for q in questions), *((k.first.id, k.other.id) for k in links)])
    groups: dict[str, list[LabelledQuestion]] = {}
    for question in questions:
        groups.setdefault(stands_for[question.id], []).append(question)
    return tuple(map(tuple, groups.values()))
