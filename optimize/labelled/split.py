"""Train, dev and test: questions divided by topic, the division written down, and kept for later versions."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from ragc.errors import DataError
from ragc.optimize.labelled.dataset import SPLITS, LabelledQuestion, Question
from ragc.optimize.labelled.leaks import link_questions
from ragc.optimize.labelled.units import question_digest
from ragc.serve.reference import Manifest
from ragc.storage import write_whole

LEARNT_FROM = ("train", "dev")
SHARES = (0.5, 0.2, 0.3)
"""How much of the questions each split should get."""
_SIZE_WEIGHT = 4.0  # the number of questions counts as much as four tags
_PASSES = 10

Q = TypeVar("Q", bound=Question)


def split_questions(
    questions: Sequence[LabelledQuestion], seed: int = 0, before: Mapping[str, str] | None = None
) -> dict[str, list[LabelledQuestion]]:
    """Divide labelled questions by what `leaks` binds together."""
    return divide_groups(questions, link_questions(tuple(questions)).groups, seed, before)


def divide_groups(
    questions: Sequence[Q], groups: Sequence[Sequence[Q]], seed: int = 0, before: Mapping[str, str] | None = None
) -> dict[str, list[Q]]:
    """Divide questions into train, dev and test, each in the order given.

    The split that a question had `before` (by its digest) counts most, then its own `split`. The others are divided as
    SHARES say, tags and outcomes alike. A group comes into one split. No split is empty when there are three groups to
    fill them. The order of the questions does not matter.
    """
    known = before or {}
    given = {q.id: known.get(question_digest(q.conversation), q.split) for q in questions}
    splits = [_find_commonest(given[q.id] for q in group) for group in groups]
    places = _place_groups(groups, splits, seed)
    where = {q.id: given[q.id] or SPLITS[place] for place, group in zip(places, groups, strict=True) for q in group}
    return {split: [q for q in questions if where[q.id] == split] for split in SPLITS}


def _find_commonest(splits: Iterable[str | None]) -> str | None:
    counts = Counter(split for split in splits if split)
    return min(counts, key=lambda split: (-counts[split], SPLITS.index(split)), default=None)


def sample_stratified(questions: Sequence[Q], most: int) -> list[Q]:
    """Return so many of the questions, of every topic and outcome its share."""
    if len(questions) <= most:
        return list(questions)
    places = _sort_by_stratum(questions)
    step = len(places) / most
    kept = {places[int((n + 0.5) * step)] for n in range(most)}
    return [question for n, question in enumerate(questions) if n in kept]


def order_stratified(questions: Sequence[Question]) -> list[int]:
    """Return the places of questions, in an order that may be cut anywhere.

    The first of them, however many, hold of every topic and outcome about its share: the strata side by side are
    visited in the order of van der Corput's sequence, by bits reversed.
    """
    places = _sort_by_stratum(questions)
    width = len(places).bit_length()
    return [places[n] for n in sorted(range(len(places)), key=lambda n: f"{n:0{width}b}"[::-1])]


def _sort_by_stratum(questions: Sequence[Question]) -> list[int]:
    return sorted(range(len(questions)), key=lambda n: (questions[n].cluster, questions[n].outcome or "", n))


def _place_groups(groups: Sequence[Sequence[Question]], splits: Sequence[str | None], seed: int) -> list[int]:
    """Return the index in SPLITS of each group, that of its split where it has one.

    The largest group comes first, each where it brings sizes, tags and outcomes nearest to SHARES; then each is placed
    anew while that helps. A group that would leave a split empty stays.
    """
    counted = [Counter(f for q in group for f in _list_features(q)) for group in groups]
    names = ["", *sorted({name for counts in counted for name in counts} - {""})]
    counts = np.array([[of[name] for name in names] for of in counted], np.float64).reshape(len(groups), len(names))
    weights = np.array([_SIZE_WEIGHT, *[1.0] * (len(names) - 1)]) / np.maximum(counts.sum(axis=0), 1.0)
    place = np.array([SPLITS.index(split) if split else -1 for split in splits], int)
    gap = np.array([counts[place == n].sum(axis=0) for n in range(len(SPLITS))]) - np.outer(SHARES, counts.sum(axis=0))
    holds = np.bincount(place[place >= 0], minlength=len(SPLITS))
    keys = [hashlib.sha256(f"{seed}:{min(q.id for q in group)}".encode()).hexdigest() for group in groups]
    free = sorted((n for n, split in enumerate(splits) if not split), key=lambda n: (-len(groups[n]), keys[n]))
    for _ in range(_PASSES):
        before = place.copy()
        for n in free:
            if place[n] >= 0:
                if holds[place[n]] == 1:
                    continue
                gap[place[n]] -= counts[n]
                holds[place[n]] -= 1
            loss = (((gap + counts[n]) ** 2 - gap**2) * weights).sum(axis=1).round(9)
            if len(groups) - holds.sum() <= (empty := holds == 0).sum():  # as few groups left as splits to fill
                loss[~empty] = np.inf
            place[n] = np.argmin(loss)
            gap[place[n]] += counts[n]
            holds[place[n]] += 1
        if (before == place).all():
            break
    return [int(split) for split in place]


def _list_features(question: Question) -> list[str]:
    """Return what is to be spread evenly; nothing stands for the question itself."""
    outcome = [f"outcome {question.outcome}"] if question.outcome else []
    return ["", *outcome, *(f"tag {tag}" for tag in question.tags)]


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
