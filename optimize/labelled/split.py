"""Train, dev and test: questions divided by topic, the division written down, and kept for later versions."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from optimize.labelled.dataset import LabelledQuestion, Split
from program.errors import DataError
from program.serve.reference import Manifest
from program.storage import write_whole

SPLITS: tuple[str, ...] = get_args(Split)
LEARNT_FROM = ("train", "dev")
SHARES = (0.5, 0.2, 0.3)
"""How much of the questions each split should get."""
_SIZE_WEIGHT = 4.0  # the number of questions counts as much as four tags
_PASSES = 10
_LEAST_GAIN = 1e-9
_SWAPS_UP_TO = 200  # groups; past that, moving single groups is even enough
_DIGITS = 16


def split_questions(
    questions: Sequence[LabelledQuestion], seed: int = 0, before: Mapping[str, str] | None = None
) -> dict[str, list[LabelledQuestion]]:
    """Divide questions into train, dev and test, each in the order given.

    The split that a question had `before` (by its digest) counts most, then its own `split`. The others are divided as
    SHARES say, tags and outcomes alike, so that no topic and no evidence passage (an id with '#') is in two splits, and
    none is empty when there are three groups to fill them. The order of the questions does not matter.
    """
    known = before or {}
    given = {q.id: known.get(question_digest(q.question), q.split) for q in questions}
    groups = _group_questions(questions, given, by_evidence=True)
    if len(groups) < len(SPLITS):  # better a passage in two splits than a split with nothing in it
        groups = _group_questions(questions, given, by_evidence=False)
    places = _place_groups(groups, seed)
    where = {q.id: given[q.id] or SPLITS[places[n]] for n, group in enumerate(groups) for q in group.questions}
    return {split: [q for q in questions if where[q.id] == split] for split in SPLITS}


def sample_stratified(questions: Sequence[LabelledQuestion], most: int) -> list[LabelledQuestion]:
    """Return so many of the questions, of every topic and outcome its share."""
    if len(questions) <= most:
        return list(questions)
    places = _sort_by_stratum(questions)
    step = len(places) / most
    kept = {places[int((n + 0.5) * step)] for n in range(most)}
    return [question for n, question in enumerate(questions) if n in kept]


def order_stratified(questions: Sequence[LabelledQuestion]) -> list[int]:
    """Return the places of questions, in an order that may be cut anywhere.

    The first of them, however many, hold of every topic and outcome about its share: the strata side by side are
    visited in the order of van der Corput's sequence, by bits reversed.
    """
    places = _sort_by_stratum(questions)
    width = len(places).bit_length()
    return [places[n] for n in sorted(range(len(places)), key=lambda n: f"{n:0{width}b}"[::-1])]


def _sort_by_stratum(questions: Sequence[LabelledQuestion]) -> list[int]:
    return sorted(range(len(questions)), key=lambda n: (questions[n].cluster, questions[n].outcome or "", n))


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


@dataclass(frozen=True, slots=True)
class _Group:
    key: str
    questions: tuple[LabelledQuestion, ...]
    split: str | None


def _group_questions(
    questions: Sequence[LabelledQuestion], given: Mapping[str, str | None], by_evidence: bool
) -> list[_Group]:
    own = {q.id: f"topic {q.topic}" if q.topic else f"question {q.id}" for q in questions}
    passages = ((id_, own[q.id]) for q in questions for id_ in q.evidence if by_evidence and "#" in id_)
    component = link_components([*((node, node) for node in own.values()), *passages])
    members: dict[str, list[LabelledQuestion]] = {}
    for question in questions:
        members.setdefault(component[own[question.id]], []).append(question)
    groups = []
    for together in members.values():
        counts = Counter(split for q in together if (split := given[q.id]))
        split = min(counts, key=lambda s: (-counts[s], SPLITS.index(s)), default=None)
        groups.append(_Group(min(q.id for q in together), tuple(together), split))
    return groups


def _place_groups(groups: Sequence[_Group], seed: int) -> list[int]:
    """Return the index in SPLITS of each group: placed, then moved and swapped."""
    division = _Division(groups)
    free = [n for n, group in enumerate(groups) if not group.split]
    for n, group in enumerate(groups):
        if group.split:
            division.put(n, SPLITS.index(group.split))
    shuffled = {n: hashlib.sha256(f"{seed}:{groups[n].key}".encode()).hexdigest() for n in free}
    free.sort(key=lambda n: (-len(groups[n].questions), shuffled[n]))
    for n in free:
        division.put(n, division.find_best(n))
    division.fill_empty(free)
    for _ in range(_PASSES):
        moved = division.move_groups(free)
        swapped = len(free) <= _SWAPS_UP_TO and division.swap_groups(free)
        if not (moved or swapped):
            break
    return division.place


def _list_features(question: LabelledQuestion) -> list[str]:
    outcome = [f"outcome {question.outcome}"] if question.outcome else []
    return ["all", *outcome, *(f"tag {tag}" for tag in question.tags)]


class _Division:
    """Groups placed in splits, and how far their features are from SHARES."""

    def __init__(self, groups: Sequence[_Group]) -> None:
        features = [Counter(f for q in group.questions for f in _list_features(q)) for group in groups]
        names = ["all", *sorted({name for counted in features for name in counted} - {"all"})]
        rows = [[counted[name] for name in names] for counted in features]
        self.counts = np.array(rows, np.float64).reshape(len(groups), len(names))
        self.weights = 1.0 / np.maximum(self.counts.sum(axis=0), 1.0)
        self.weights[0] *= _SIZE_WEIGHT
        self.target = np.outer(SHARES, self.counts.sum(axis=0))
        self.filled = np.zeros_like(self.target)
        self.place = [-1] * len(groups)

    def put(self, n: int, split: int) -> None:
        """Place a group, out of the split that it was in."""
        if self.place[n] >= 0:
            self.filled[self.place[n]] -= self.counts[n]
        self.filled[split] += self.counts[n]
        self.place[n] = split

    def find_best(self, n: int) -> int:
        """Return the split that gains most from a group that is in none."""
        after, before = self.filled + self.counts[n] - self.target, self.filled - self.target
        gain = ((after**2 - before**2) * self.weights).sum(axis=1)
        return int(np.argmin(np.round(gain, 9)))

    def fill_empty(self, free: Sequence[int]) -> None:
        """Give each empty split the smallest group that another can spare."""
        for empty in range(len(SPLITS)):
            holds = Counter(self.place)
            spare = [n for n in free if holds[self.place[n]] > 1]
            if not holds[empty] and spare:
                self.put(min(spare, key=lambda n: self.counts[n, 0]), empty)

    def move_groups(self, free: Sequence[int]) -> bool:
        """Move each group to a better split, never the last out of its own."""
        moved = False
        holds = Counter(self.place)
        for n in free:
            old = self.place[n]
            for new in range(len(SPLITS)):
                if new != self.place[n] and holds[self.place[n]] > 1:
                    moved |= self._try_places({n: new})
            holds.update({old: -1})
            holds.update({self.place[n]: 1})
        return moved

    def swap_groups(self, free: Sequence[int]) -> bool:
        """Exchange pairs of groups where that helps; return whether any was exchanged."""
        swapped = False
        for i, one in enumerate(free):
            for other in free[i + 1 :]:
                if self.place[one] != self.place[other]:
                    swapped |= self._try_places({one: self.place[other], other: self.place[one]})
        return swapped

    def _try_places(self, places: Mapping[int, int]) -> bool:
        """Place groups anew where that brings the division nearer to the target."""
        before, old = self._measure_gap(), {n: self.place[n] for n in places}
        for n, split in places.items():
            self.put(n, split)
        if better := self._measure_gap() < before - _LEAST_GAIN:
            return better
        for n, split in old.items():
            self.put(n, split)
        return False

    def _measure_gap(self) -> float:
        return float((((self.filled - self.target) ** 2) * self.weights).sum())


def write_splits(path: Path, where: Mapping[str, str]) -> int:
    """Write the split of each question, by id; return how many lines changed.

    Only the value of `split` changes, or is added as the last key: order, spacing and line ends stay. Raises
    `DataError` when the file cannot be written.
    """
    lines = path.read_bytes().decode("utf-8").split("\n")
    changed = 0
    for n, line in enumerate(lines):
        text = line.lstrip("\ufeff")
        if text.strip() and (split := where.get(json.loads(text)["id"])):
            lines[n] = line[: len(line) - len(text)] + _set_split(text, split)
            changed += lines[n] != line
    if changed:
        target = path.resolve()  # a link stays a link
        try:
            mode = target.stat().st_mode
            write_whole(target, "\n".join(lines).encode())
            target.chmod(mode)
        except OSError as error:
            raise DataError(f"{path} cannot be written: {error.strerror}.", "Grant write permission on it.") from error
    return changed


def _set_split(line: str, split: str) -> str:
    """Return the line of one JSON object with its `split` set, all else in it as it is."""
    if key := re.search(r'"split"\s*:\s*(null|"\w*")', line):
        return f'{line[: key.start(1)]}"{split}"{line[key.end(1) :]}'
    body = line[: line.rindex("}")].rstrip()
    gap = " " if re.search(r'"\s*:\s', line) else ""
    return f'{body},{gap}"split":{gap}"{split}"{line[len(body) :]}'


def question_digest(text: str) -> str:
    """Return 16 hexadecimal digits for a question, whatever its case and spacing."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode()).hexdigest()[:_DIGITS]


def find_previous_splits(manifests: Collection[Manifest]) -> dict[str, str]:
    """Return by digest the split of each question that versions were compiled on."""
    found: dict[str, str] = {}
    for part in SPLITS:
        for manifest in manifests:
            for digest in manifest.section("data").get(part, {}).get("questions", ()):
                found.setdefault(digest, part)
    return found


def warn_of_overlap(manifest: Manifest, questions: Iterable[str]) -> str:
    """Return a warning when a version may have learnt from its test, else nothing."""
    version = manifest.label
    if manifest.section("optimizer").get("name", "none") == "none":
        return ""
    data = manifest.section("data")
    known = [data[part]["questions"] for part in LEARNT_FROM if "questions" in data.get(part, {})]
    if not known:
        return f"{version} does not say which questions it was compiled on, so an overlap would not be seen."
    asked = {question_digest(question) for question in questions}
    if shared := len(asked & {digest for part in known for digest in part}):
        return f"{version} was compiled on {shared} of these {len(asked)} questions: its scores on them prove nothing."
    return ""
