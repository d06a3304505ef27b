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
from program.serve.manifest import Manifest
from program.storage import write_whole

SPLITS: tuple[str, ...] = get_args(Split)
LEARNT_FROM = ("train", "dev")
SHARES = (0.5, 0.2, 0.3)  # how much of the questions each split should get
_SIZE_WEIGHT = 4.0  # the number of questions counts as much as four tags
_PASSES = 3  # looks at each group in a division
_TURNS, _PLACED = 100, 20_000  # divisions made at most, and groups placed in all of them, about
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
    places = sorted(range(len(questions)), key=lambda n: (questions[n].cluster, questions[n].outcome or "", n))
    step = len(places) / most
    kept = {places[int((n + 0.5) * step)] for n in range(most)}
    return [question for n, question in enumerate(questions) if n in kept]


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
    """Return the index in SPLITS of each group: of several divisions the one nearest to SHARES."""
    features = [
        Counter(f for q in group.questions for f in ("all", q.outcome, *(f"tag {tag}" for tag in q.tags)) if f)
        for group in groups
    ]
    names = ["all", *sorted({name for counted in features for name in counted} - {"all"})]
    counts = np.array([[counted[name] for name in names] for counted in features], float).reshape(-1, len(names))
    weights = 1.0 / np.maximum(counts.sum(axis=0), 1.0)
    weights[0] *= _SIZE_WEIGHT
    target = np.outer(SHARES, counts.sum(axis=0))

    def divide(turn: int) -> tuple[float, list[int]]:
        """Put each group where it is needed most, a few times over; leave no split empty."""
        filled, place = np.zeros_like(target), [SPLITS.index(g.split) if g.split else -1 for g in groups]
        shuffled = [hashlib.sha256(f"{seed}:{turn}:{group.key}".encode()).hexdigest() for group in groups]
        free = [n for n, group in enumerate(groups) if not group.split]
        for n in set(range(len(groups))).difference(free):
            filled[place[n]] += counts[n]
        for n in sorted(free, key=lambda n: shuffled[n]) * _PASSES:
            if place[n] >= 0:
                if filled[place[n], 0] <= counts[n, 0]:  # the last of its split
                    continue
                filled[place[n]] -= counts[n]
            gain = (((filled + counts[n] - target) ** 2 - (filled - target) ** 2) * weights).sum(axis=1)
            place[n] = int(np.argmin(np.round(gain, 9)))
            filled[place[n]] += counts[n]
        for empty in sorted(set(range(len(SPLITS))) - {*place}):
            if spare := [n for n in free if filled[place[n], 0] > counts[n, 0]]:
                moved = min(spare, key=lambda n: len(groups[n].questions))
                filled[[place[moved], empty]] += np.outer([-1, 1], counts[moved])
                place[moved] = empty
        return round(float((((filled - target) ** 2) * weights).sum()), 9), place

    turns = min(_TURNS, 1 + _PLACED // max(len(groups), 1))
    return min((divide(turn) for turn in range(turns)), key=lambda found: found[0])[1]


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
    version = f"{manifest.name}@{manifest.version}"
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
