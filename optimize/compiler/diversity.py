"""A few demonstrations in place of many: as far from each other as they come, in the proportion of their labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimize.compiler.demonstrations import Demonstration, Fields, label_of
from program.loop.decisions import to_jsonable
from program.models.embedded.encoder import Embedder


def diverse(demonstrations: Sequence[Demonstration], size: int, embedder: Embedder) -> list[Demonstration]:
    """At most `size` of one predictor's demonstrations, in their order: for each label the k-centers of its share."""
    if len(demonstrations) <= size:
        return list(demonstrations)
    vectors = _gists(demonstrations, embedder)
    groups: dict[Any, list[int]] = defaultdict(list)
    for at, one in enumerate(demonstrations):
        groups[label_of(one)].append(at)
    kept: list[int] = []
    left, rest = size, len(demonstrations)
    for _, places in sorted(groups.items(), key=lambda pair: (len(pair[1]), pair[1])):  # the rarest has one at least
        share = min(len(places), max(1, round(left * len(places) / rest)), left)
        kept += [places[n] for n in centers(vectors[places], share)]
        left, rest = left - share, rest - len(places)
    return [demonstrations[at] for at in sorted(kept)]


def centers(vectors: NDArray[np.float32], k: int) -> list[int]:
    """`k` rows of unit length that leave no row far from all of them: greedy k-center (Gonzalez 1985), within a factor
    of two of the best. The first is the row nearest to the middle; of equals the first is taken."""
    if k <= 0:
        return []
    chosen = [int(np.argmax(vectors @ vectors.mean(axis=0)))]
    distance = 1 - vectors @ vectors[chosen[0]]
    while len(chosen) < min(k, len(vectors)):
        distance[chosen] = -np.inf
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, 1 - vectors @ vectors[chosen[-1]])
    return chosen


def _gists(demonstrations: Sequence[Demonstration], embedder: Embedder) -> NDArray[np.float32]:
    """Shape (demonstrations, dimension), unit length: what each is about, the mean of its short texts and of the
    titles of its passages."""
    told = [_told(one.fields) for one in demonstrations]
    texts = list(dict.fromkeys(text for some in told for text in some))
    vectors = dict(zip(texts, embedder.encode(texts), strict=True))
    means = np.stack([np.mean([vectors[text] for text in some], axis=0) for some in told])
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True), np.float32)


def _told(fields: Fields) -> list[str]:
    told: list[str] = []
    for value in fields.values():
        for item in value if isinstance(value, list) else [value]:
            plain = to_jsonable(item)
            told += [plain] if isinstance(plain, str) else [plain["title"]] if isinstance(plain, dict) else []
    return told or [""]
