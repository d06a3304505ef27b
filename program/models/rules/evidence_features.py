"""Features of a set of passages for a question: similarity, coverage, and chains between passages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import fsum

import numpy as np
from numpy.typing import NDArray

from program.models.rules.words import content_stems, expected_kinds, find_names, find_quantities, value_kinds

Matrix = NDArray[np.float64]
Vector = NDArray[np.float32]
Rarity = Callable[[str], float]
"""How rare a stem is, from 0 (in every text) to 1."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n+")
MOST_CHAINED = 8  # pairs grow with the square; later passages of a longer list seldom start a chain
RARE = 0.45
ENOUGH_SHARED = 1.5  # summed rarity of shared names past which two passages plainly speak of one thing
FEATURE_NAMES = (
    "top", "second", "third", "last", "mean", "margin", "margin_second", "spread", "explained",
    "beyond_first", "near_first", "near_each_other", "count", "cover_best", "cover_second",
    "cover_mean", "cover_union", "cover_gain", "cover_pair", "cover_sentence", "cover_weighted",
    "uncovered_rarest", "uncovered_count", "uncovered_names", "names_present", "numbers_present",
    "numbers_asked", "title_best", "title_second", "titles_named", "kind_present", "kind_near",
    "shared_most", "shared_mean", "shared_first", "title_links", "title_links_sum", "links_count",
    "mentions", "chain", "chain_sharp", "chain_sentence", "chain_sentence_pair", "chain_back",
    "chain_mutual", "chain_dense", "chain_all", "chain_sum", "chain_shared", "chain_any", "chain_first",
    "chain_next", "chain_three", "rarity",
)  # fmt: skip
NEAR_FEATURES = (
    "top", "second", "mean", "explained", "cover_union", "cover_best", "uncovered_rarest", "names_present",
    "title_best",
)  # fmt: skip
"""The few that tell whether the passages are near the question at all; among the others they would weigh little."""
_NEAR_AT = [FEATURE_NAMES.index(name) for name in NEAR_FEATURES]


@dataclass(frozen=True, slots=True)
class TextWords:
    """The stems, names, numbers and kinds of value of one titled text.

    `body` leaves the title out, `words` has both. `kinds` are the kinds of value it holds, `asks` those it asks for.
    """

    title: frozenset[str]
    body: frozenset[str]
    words: frozenset[str]
    names: frozenset[str]
    sentences: tuple[frozenset[str], ...]
    kinds: frozenset[str]
    numbers: frozenset[str]
    asks: frozenset[str]
    plain_title: str
    plain_body: str


@lru_cache(maxsize=20_000)
def read_words(title: str, text: str) -> TextWords:
    """Return the words of a text under its title, either of which may be empty."""
    head, body = frozenset(content_stems(title)), frozenset(content_stems(text))
    return TextWords(
        title=head,
        body=body,
        words=head | body,
        names=head.union(*(content_stems(name) for name in find_names(text))),
        sentences=tuple(frozenset(content_stems(piece)) for piece in _SENTENCE_END.split(text) if piece.strip()),
        kinds=value_kinds(text),
        numbers=frozenset(number for _, number in find_quantities(text)),
        asks=frozenset(expected_kinds(text)),
        plain_title=title.partition("(")[0].strip().lower(),
        plain_body=text.lower(),
    )


@dataclass(frozen=True)
class _Cover:
    """The question's words (columns) that each passage (row) holds, and how much each word counts.

    `weights` sum to 1 over the words; `share` is `holds` weighted, `cover` its sum for each passage.
    """

    words: list[str]
    weights: Matrix
    holds: Matrix
    rarity: float

    @cached_property
    def share(self) -> Matrix:
        return self.holds * self.weights

    @cached_property
    def cover(self) -> Matrix:
        return np.asarray(self.share.sum(1))

    def cover_pairs(self) -> Matrix:
        """Return in (a, b) the weight of the question's words that a or b holds."""
        return np.asarray(self.cover[:, None] + self.cover[None, :] - self.share @ self.holds.T)

    def take_first(self, n: int) -> _Cover:
        return _Cover(self.words, self.weights, self.holds[:n], self.rarity)


def evidence_features(
    question: TextWords, passages: Sequence[TextWords], query: Vector, vectors: Vector, rarity: Rarity
) -> Vector:
    """Return the FEATURE_NAMES of a set of passages; without passages all are 0.

    A question of several steps is answered by passages that lead to each other: one matches the question's words and
    mentions another by its title. The chain features measure that. `vectors` has a unit row for each passage.
    """
    if not passages:
        return np.zeros(len(FEATURE_NAMES), np.float32)
    sims = (vectors @ query).astype(np.float64)
    order = np.argsort(-sims, kind="stable")
    passages, rows, sims = [passages[i] for i in order], vectors[order].astype(np.float64), sims[order]
    covered = _cover_words(question, passages, rarity)
    near = passages[:MOST_CHAINED]
    together = _paired_cosines(rows[: len(near)], query)
    values = [
        *_similarity_features(sims, rows, query),
        *_coverage_features(question, passages, covered, sims),
        *_kind_features(question, passages, covered.cover),
        *_chain_features(question, near, covered.take_first(len(near)), together, rarity),
        covered.rarity,
    ]
    return np.array(values, np.float32)


def near_features(found: Vector) -> Vector:
    """Return the NEAR_FEATURES among what `evidence_features` found."""
    return found[_NEAR_AT]


def _cover_words(question: TextWords, passages: Sequence[TextWords], rarity: Rarity) -> _Cover:
    words = sorted(question.words)
    weights = np.array([rarity(word) for word in words], np.float64)
    total = float(weights.sum()) + 1e-9
    holds = np.array([[word in p.words for word in words] for p in passages], np.float64)
    holds = holds.reshape(len(passages), len(words))
    return _Cover(words, weights / total, holds, total / max(len(words), 1))


def _paired_cosines(rows: Matrix, query: Vector) -> Matrix:
    """Return in (a, b) the cosine of the question and of passages a and b taken as one."""
    sums = rows[:, None] + rows[None, :]
    return np.asarray((sums @ query) / np.maximum(np.linalg.norm(sums, axis=2), 1e-9))


def _nth(values: Matrix, n: int) -> float:
    return float(np.sort(values)[::-1][min(n, len(values) - 1)])


def _similarity_features(sims: Matrix, rows: Matrix, query: Vector) -> list[float]:
    near = rows @ rows.T
    others = near[0, 1:] if len(sims) > 1 else np.zeros(1)
    weights, *_ = np.linalg.lstsq(rows.T, query.astype(np.float64), rcond=1e-6)
    explained = 1.0 - float(np.sum((query - rows.T @ weights) ** 2))
    rest = query - rows[0] * sims[0]
    beyond = float((rows[1:] @ rest).max()) if len(sims) > 1 else 0.0
    pairs = len(sims) * (len(sims) - 1)
    mean_pair = float((near.sum() - np.trace(near)) / pairs) if pairs else 0.0
    return [
        float(sims[0]), _nth(sims, 1), _nth(sims, 2), float(sims[-1]), float(sims.mean()),
        float(sims[0]) - _nth(sims, 1), _nth(sims, 1) - _nth(sims, 2), float(sims.std()), explained, beyond,
        float(others.max()), mean_pair, float(np.log(len(sims))),
    ]  # fmt: skip


def _coverage_features(
    question: TextWords, passages: Sequence[TextWords], covered: _Cover, sims: Matrix
) -> list[float]:
    weights, cover = covered.weights, covered.cover
    held = covered.holds.max(0)
    union = float(held @ weights)
    named = np.array([word in question.names for word in covered.words], np.float64)
    weight = dict(zip(covered.words, weights.tolist(), strict=True))
    sentence = max(
        (
            fsum(weight[w] for w in (question.words & s) | titled)
            for p, titled in ((p, question.words & p.title) for p in passages)
            for s in p.sentences
        ),
        default=0.0,
    )
    numbers, found = question.numbers, frozenset[str]().union(*(p.numbers for p in passages))
    in_title = np.array([_share_in(p.title, question.words) for p in passages])
    return [
        _nth(cover, 0), _nth(cover, 1), float(cover.mean()), union, union - _nth(cover, 0),
        float(covered.cover_pairs().max()), sentence, float((cover * sims).max()),
        float(((1 - held) * weights).max(initial=0.0)), float((held == 0).sum()),
        float(((1 - held) * weights) @ named),
        float(held @ named) / float(named.sum()) if named.any() else 1.0,
        len(numbers & found) / len(numbers) if numbers else 1.0, float(bool(numbers)),
        _nth(in_title, 0), _nth(in_title, 1) if len(in_title) > 1 else 0.0, float((in_title > 0.7).sum()),
    ]  # fmt: skip


def _kind_features(question: TextWords, passages: Sequence[TextWords], cover: Matrix) -> list[float]:
    if not question.asks:
        return [0.5, 0.5]
    has = np.array([bool(p.kinds & question.asks) for p in passages], np.float64)
    return [float(has.max()), float((has * cover).max())]


def _share_in(some: frozenset[str], words: frozenset[str]) -> float:
    return len(some & words) / len(some) if some else 0.0


def _chain_features(
    question: TextWords, passages: Sequence[TextWords], covered: _Cover, together: Matrix, rarity: Rarity
) -> list[float]:
    n = len(passages)
    link, back, shared, sentence, onward, mentions = ([[0.0] * n for _ in range(n)] for _ in range(6))
    weight = {word: rarity(word) for p in passages for word in p.title | p.names}
    asked = dict(zip(covered.words, covered.weights.tolist(), strict=True))
    rare = [{word for word in p.names - question.words if weight[word] > RARE} for p in passages]
    titles = [fsum(weight[word] for word in p.title) for p in passages]
    for b, to in enumerate(passages):
        bridge = to.title - question.words
        whole = fsum(weight[word] for word in bridge)
        for a, of in enumerate(passages):
            if a == b:
                continue
            if titles[a] and (held := of.title & to.body):
                back[a][b] = fsum(weight[word] for word in held) / titles[a]
            if a < b and (names := rare[a] & rare[b]):
                shared[a][b] = shared[b][a] = fsum(weight[word] for word in names)
            if len(to.plain_title) > 2 and to.plain_title in of.plain_body:
                mentions[a][b] = 1.0 if bridge else 0.3
            met = bridge & of.body
            if not met:
                continue
            onward[a][b] = fsum(weight[word] for word in met) / whole if whole else 0.0
            new = bridge - of.title
            link[a][b] = _weighted_share(new, of.body, weight)
            if link[a][b]:
                titled = question.words & of.title
                sentence[a][b] = max(
                    (
                        fsum(asked[word] for word in (question.words & s) | titled) * _weighted_share(new, s, weight)
                        for s in of.sentences
                        if not new.isdisjoint(s)
                    ),
                    default=0.0,
                )
    found = [np.array(matrix, np.float64) for matrix in (link, back, shared, sentence, onward, mentions)]
    return _summarise_chains(found, covered, together)


def _summarise_chains(found: Sequence[Matrix], covered: _Cover, together: Matrix) -> list[float]:
    link, back, shared, sentence, onward, mentions = found
    n = len(link)
    both = covered.cover_pairs()
    np.fill_diagonal(both, 0.0)
    sharp = link**2
    same = np.minimum(shared / ENOUGH_SHARED, 1.0)
    first = int(np.argmax(covered.cover))
    pairs = max(n * (n - 1), 1)
    return [
        float(shared.max()), float(shared.sum()) / pairs, float(shared[first].max()), float(link.max()),
        float(link.sum()), float((link > 0.7).sum()), float(mentions.sum()),
        float((both * link).max()), float((both * sharp).max()), float(sentence.max()),
        float((sentence * both).max()), float((both * np.maximum(link, 0.7 * back)).max()),
        float((both * link * back).max()), float((together * link).max()),
        float((together * link * both).max()), float((both * sharp).sum()), float((both * same).max()),
        float((both * np.maximum(link, 0.6 * same)).max()), float((both * link)[first].max()),
        float((both * onward).max()), _best_three(link, covered),
    ]  # fmt: skip


def _weighted_share(some: frozenset[str], words: frozenset[str], weight: dict[str, float]) -> float:
    whole = fsum(weight[w] for w in some)
    return fsum(weight[w] for w in some & words) / whole if whole else 0.0


def _best_three(link: Matrix, covered: _Cover) -> float:
    """Return the best chain of three passages, times what the three cover."""
    best, share = 0.0, covered.share
    for a, b in np.argwhere(link > 0.2).tolist():
        onward = np.maximum(link[b], link[a])
        for c in range(len(link)):
            if c not in (a, b) and onward[c] > 0.2:
                reach = float(link[a, b] * onward[c])
                if reach > best:  # what three passages cover is at most 1
                    best = max(best, reach * float(share[[a, b, c]].max(axis=0).sum()))
    return best
