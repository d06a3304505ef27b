"""Which split each labelled question belongs to: groups stay whole, sizes and tags come out even."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from optimize.labelled.dataset import LabelledQuestion

SPLITS = ("train", "dev", "test")
SHARES = (0.5, 0.2, 0.3)
"""How much of the questions each split should get."""

_SIZE_WEIGHT = 4.0  # the number of questions counts as much as four tags
_PASSES = 10
_LEAST_GAIN = 1e-9
_SWAPS_UP_TO = 200  # groups; past that, moving single groups is even enough

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Group:
    """Questions that must stay together; `key` does not depend on their order, `split` is given or None."""

    key: str
    questions: tuple[LabelledQuestion, ...]
    split: str | None


def assign(questions: Sequence[LabelledQuestion], seed: int = 0) -> dict[str, str]:
    """The split of each question by id.

    Its own `split` when it has one. Otherwise questions that share a topic, or an evidence passage (an id
    with '#'), go together, and groups are placed largest first where they bring sizes, tags and outcomes
    nearest to SHARES, then moved and swapped while that helps. No split stays empty when there are three
    groups to fill them.
    """
    groups = _groups(questions, by_evidence=True)
    if len(groups) < len(SPLITS):
        # Better a passage in two splits than a split with nothing in it.
        groups = _groups(questions, by_evidence=False)
    place = _place(groups, seed)
    return {q.id: q.split or SPLITS[place[n]] for n, group in enumerate(groups) for q in group.questions}


def spread_out(questions: Sequence[LabelledQuestion], most: int) -> list[LabelledQuestion]:
    """At most so many of the questions, in their order: of every topic and outcome its share, evenly spaced."""
    if len(questions) <= most:
        return list(questions)
    places = sorted(range(len(questions)), key=lambda n: (questions[n].cluster, questions[n].outcome or "", n))
    step = len(places) / most
    kept = {places[int((n + 0.5) * step)] for n in range(most)}
    return [question for n, question in enumerate(questions) if n in kept]


def _groups(questions: Sequence[LabelledQuestion], by_evidence: bool) -> list[_Group]:
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def own(question: LabelledQuestion) -> tuple[str, str]:
        return ("topic", question.topic) if question.topic else ("question", question.id)

    for question in questions:
        root(own(question))
        for passage in question.evidence if by_evidence else ():
            if "#" in passage:
                parent[root(("passage", passage))] = root(own(question))
    members: dict[tuple[str, str], list[LabelledQuestion]] = {}
    for question in questions:
        members.setdefault(root(own(question)), []).append(question)
    groups = []
    for together in members.values():
        given: Counter[str] = Counter(q.split for q in together if q.split)
        split = min(given, key=lambda s: (-given[s], SPLITS.index(s))) if given else None
        groups.append(_Group(min(q.id for q in together), tuple(together), split))
    return groups


def _place(groups: Sequence[_Group], seed: int) -> list[int]:
    """The index in SPLITS of each group."""
    counts, weights = _features(groups)
    division = _Division(counts, weights)
    free = []
    for n, group in enumerate(groups):
        if group.split:
            division.put(n, SPLITS.index(group.split))
        else:
            free.append(n)
    free.sort(key=lambda n: (-len(groups[n].questions), _shuffle(groups[n].key, seed)))
    for n in free:
        division.put(n, division.best(n))
    division.fill_empty(free)
    for _ in range(_PASSES):
        moved = division.move(free)
        swapped = len(free) <= _SWAPS_UP_TO and division.swap(free)
        if not (moved or swapped):
            break
    return division.place


def _features(groups: Sequence[_Group]) -> tuple[Counts, Counts]:
    """Per group how many questions have each feature (all, tag, outcome), and each feature's weight."""
    seen: dict[str, int] = {"all": 0}
    per_group: list[Counter[str]] = []
    for group in groups:
        counted: Counter[str] = Counter()
        for question in group.questions:
            counted["all"] += 1
            counted.update(f"tag {tag}" for tag in question.tags)
            counted.update([f"outcome {question.outcome}"] if question.outcome else [])
        for feature in sorted(counted):
            seen.setdefault(feature, len(seen))
        per_group.append(counted)
    counts = np.zeros((len(groups), len(seen)))
    for n, counted in enumerate(per_group):
        for feature, value in counted.items():
            counts[n, seen[feature]] = value
    weights = 1.0 / np.maximum(counts.sum(axis=0), 1.0)
    weights[0] *= _SIZE_WEIGHT
    return counts, weights


def _shuffle(key: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{key}".encode()).hexdigest()


class _Division:
    """Groups placed in splits, and how far the counts of their features are from SHARES."""

    def __init__(self, counts: Counts, weights: Counts) -> None:
        self.counts, self.weights = counts, weights
        self.target = np.outer(SHARES, counts.sum(axis=0))
        self.filled = np.zeros_like(self.target)
        self.place = [-1] * len(counts)

    def put(self, n: int, split: int) -> None:
        """Place a group, out of the split it was in."""
        if self.place[n] >= 0:
            self.filled[self.place[n]] -= self.counts[n]
        self.filled[split] += self.counts[n]
        self.place[n] = split

    def best(self, n: int) -> int:
        """The split that gains most from a group that is in none."""
        after, before = self.filled + self.counts[n] - self.target, self.filled - self.target
        gain = ((after**2 - before**2) * self.weights).sum(axis=1)
        return int(np.argmin(np.round(gain, 9)))

    def gap(self) -> float:
        """Weighted squared distance from the wanted counts; 0 is perfect."""
        return float((((self.filled - self.target) ** 2) * self.weights).sum())

    def fill_empty(self, free: Sequence[int]) -> None:
        """Give each empty split the smallest group that another can spare."""
        for empty in range(len(SPLITS)):
            holds = Counter(self.place)
            spare = [n for n in free if holds[self.place[n]] > 1]
            if not holds[empty] and spare:
                self.put(min(spare, key=lambda n: self.counts[n, 0]), empty)

    def move(self, free: Sequence[int]) -> bool:
        """Move each group to a better split, never the last one out of its own; True when any moved."""
        moved = False
        holds = Counter(self.place)
        for n in free:
            old = self.place[n]
            for new in range(len(SPLITS)):
                if new != self.place[n] and holds[self.place[n]] > 1:
                    before, here = self.gap(), self.place[n]
                    self.put(n, new)
                    if self.gap() >= before - _LEAST_GAIN:
                        self.put(n, here)
            if self.place[n] != old:
                holds.update({old: -1, self.place[n]: 1})
                moved = True
        return moved

    def swap(self, free: Sequence[int]) -> bool:
        """Exchange pairs of groups where that helps; True when any was exchanged."""
        swapped = False
        for i, one in enumerate(free):
            for other in free[i + 1 :]:
                if self.place[one] != self.place[other]:
                    before = self.gap()
                    self._exchange(one, other)
                    if self.gap() < before - _LEAST_GAIN:
                        swapped = True
                    else:
                        self._exchange(one, other)
        return swapped

    def _exchange(self, one: int, other: int) -> None:
        here, there = self.place[one], self.place[other]
        self.put(one, there)
        self.put(other, here)
