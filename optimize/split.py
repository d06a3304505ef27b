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
    from optimize.dataset import LabelledQuestion

SPLITS = ("train", "dev", "test")
SHARES = (0.5, 0.2, 0.3)
"""How much of the questions each split should get."""

_SIZE_WEIGHT = 4.0  # the number of questions counts as much as four tags
_PASSES = 10
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
        given = Counter(q.split for q in together if q.split)
        split = min(given, key=lambda s: (-given[s], SPLITS.index(s))) if given else None
        groups.append(_Group(min(q.id for q in together), tuple(together), split))
    return groups


def _place(groups: Sequence[_Group], seed: int) -> list[int]:
    """The index in SPLITS of each group."""
    counts, weights = _features(groups)
    target = np.outer(SHARES, counts.sum(axis=0))
    filled = np.zeros_like(target)
    place = [SPLITS.index(group.split) if group.split else -1 for group in groups]
    for n, split in enumerate(place):
        if split >= 0:
            filled[split] += counts[n]
    free = [n for n, split in enumerate(place) if split < 0]
    free.sort(key=lambda n: (-len(groups[n].questions), _shuffle(groups[n].key, seed)))
    for n in free:
        place[n] = _best(filled, target, weights, counts[n])
        filled[place[n]] += counts[n]
    _fill_empty(place, free, filled, counts)
    for _ in range(_PASSES):
        if not (_move(place, free, filled, counts, target, weights) | _swap(place, free, filled, counts, target, weights)):
            break
    return place


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


def _gap(filled: Counts, target: Counts, weights: Counts) -> float:
    """Weighted squared distance from the wanted counts; 0 is perfect."""
    return float((((filled - target) ** 2) * weights).sum())


def _best(filled: Counts, target: Counts, weights: Counts, added: Counts) -> int:
    """The split that gains most from the group's counts."""
    gain = (((filled + added - target) ** 2 - (filled - target) ** 2) * weights).sum(axis=1)
    return int(np.argmin(np.round(gain, 9)))


def _fill_empty(place: list[int], free: Sequence[int], filled: Counts, counts: Counts) -> None:
    for empty in range(len(SPLITS)):
        holds = Counter(place)
        spare = [n for n in free if holds[place[n]] > 1]
        if not holds[empty] and spare:
            smallest = min(spare, key=lambda n: counts[n, 0])
            filled[place[smallest]] -= counts[smallest]
            filled[empty] += counts[smallest]
            place[smallest] = empty


def _move(
    place: list[int], free: Sequence[int], filled: Counts, counts: Counts, target: Counts, weights: Counts
) -> bool:
    moved = False
    holds = Counter(place)
    for n in free:
        old = place[n]
        if holds[old] < 2:
            continue
        before = _gap(filled, target, weights)
        filled[old] -= counts[n]
        new = _best(filled, target, weights, counts[n])
        filled[new] += counts[n]
        if new != old and _gap(filled, target, weights) < before - 1e-9:
            place[n], moved = new, True
            holds.update({old: -1, new: 1})
        else:
            filled[new] -= counts[n]
            filled[old] += counts[n]
    return moved


def _swap(
    place: list[int], free: Sequence[int], filled: Counts, counts: Counts, target: Counts, weights: Counts
) -> bool:
    if len(free) > _SWAPS_UP_TO:
        return False
    swapped = False
    for i, a in enumerate(free):
        for b in free[i + 1 :]:
            if place[a] == place[b]:
                continue
            change = counts[b] - counts[a]
            before = _gap(filled, target, weights)
            filled[place[a]] += change
            filled[place[b]] -= change
            if _gap(filled, target, weights) < before - 1e-9:
                place[a], place[b], swapped = place[b], place[a], True
            else:
                filled[place[a]] -= change
                filled[place[b]] += change
    return swapped
