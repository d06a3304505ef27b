"""How a set of passages bears on a question: covered words, names and numbers, and chains between passages.

A question of several steps is answered by passages that lead to each other: one matches the question's
words and mentions another by its title, which in turn holds the rest. When the second is missing, passages
may be as similar to the question as before, but nothing leads on from the first. The chain features measure
that, and cost no model call.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

import numpy as np
from numpy.typing import NDArray

from program.models.reading import Rarity, Reading, Vector
from program.models.words import expected

Matrix = NDArray[np.float64]
MOST_CHAINED = 8  # pairs grow with the square; later passages of a longer list seldom start a chain
RARE = 0.45
ENOUGH_SHARED = 1.5  # summed rarity of shared names past which two passages plainly speak of one thing
NAMES = (
    "top", "second", "third", "last", "mean", "margin", "margin_second", "spread", "explained", "beyond_first",
    "near_first", "near_each_other", "count",
    "cover_best", "cover_second", "cover_mean", "cover_union", "cover_gain", "cover_pair", "cover_sentence",
    "cover_weighted", "uncovered_rarest", "uncovered_count", "uncovered_names", "names_present", "numbers_present",
    "numbers_asked", "title_best", "title_second", "titles_named", "kind_present", "kind_near",
    "shared_most", "shared_mean", "shared_first", "title_links", "title_links_sum", "links_count", "mentions",
    "chain", "chain_sharp", "chain_sentence", "chain_sentence_pair", "chain_back", "chain_mutual", "chain_dense",
    "chain_all", "chain_sum", "chain_shared", "chain_any", "chain_first", "chain_next", "chain_three", "rarity",
)  # fmt: skip


def bearing(
    question: Reading, asked: str, passages: Sequence[Reading], query: Vector, vectors: Vector, rarity: Rarity
) -> NDArray[np.float32]:
    """Shape (len(NAMES),). `vectors` has a unit row for each passage; no passages give zeros."""
    if not passages:
        return np.zeros(len(NAMES), np.float32)
    sims = (vectors @ query).astype(np.float64)
    order = np.argsort(-sims, kind="stable")
    passages, vectors, sims = [passages[i] for i in order], vectors[order], sims[order]
    words = sorted(question.words)
    weights = np.array([rarity(w) for w in words]) if words else np.zeros(0)
    total = float(weights.sum()) + 1e-9
    holds = np.array([[w in p.words for w in words] for p in passages], np.float64).reshape(len(passages), len(words))
    share = holds * (weights / total)
    cover = share.sum(1)
    values = [
        *_similarity(sims, vectors, query),
        *_coverage(question, words, weights / total, holds, share, cover, sims, passages),
        *_kinds(asked, passages, cover),
        *_chains(question, passages[:MOST_CHAINED], vectors[:MOST_CHAINED], query, share[:MOST_CHAINED],
                 holds[:MOST_CHAINED], rarity),
        total / max(len(words), 1),
    ]  # fmt: skip
    return np.array(values, np.float32)


def _nth(values: Matrix, n: int) -> float:
    """The n-th largest, or the smallest of a shorter list."""
    return float(np.sort(values)[::-1][min(n, len(values) - 1)])


def _similarity(sims: Matrix, vectors: Vector, query: Vector) -> list[float]:
    rows = vectors.astype(np.float64)
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


def _coverage(
    question: Reading, words: list[str], weights: Matrix, holds: Matrix, share: Matrix, cover: Matrix, sims: Matrix,
    passages: Sequence[Reading],
) -> list[float]:  # fmt: skip
    held = holds.max(0) if words else np.zeros(0)
    union = float(held @ weights)
    left = (1 - held) * weights
    named = np.array([w in question.names for w in words], np.float64)
    both = _pair_cover(share, holds)
    sentence = max(
        (fsum(weights[i] for i, w in enumerate(words) if w in s or w in p.title) for p in passages for s in p.sentences),
        default=0.0,
    )
    numbers = question.numbers
    found = set().union(*(p.numbers for p in passages))
    in_title = np.array([_share_in(p.title, question.words) for p in passages])
    return [
        _nth(cover, 0), _nth(cover, 1), float(cover.mean()), union, union - _nth(cover, 0), float(both.max()),
        float(sentence), float((cover * sims).max()), float(left.max(initial=0.0)), float((held == 0).sum()),
        float(left @ named) if words else 0.0,
        float(held @ named) / float(named.sum()) if named.any() else 1.0,
        len(numbers & found) / len(numbers) if numbers else 1.0, float(bool(numbers)),
        _nth(in_title, 0), _nth(in_title, 1) if len(in_title) > 1 else 0.0, float((in_title > 0.7).sum()),
    ]  # fmt: skip


def _kinds(asked: str, passages: Sequence[Reading], cover: Matrix) -> list[float]:
    wanted = expected(asked)
    if not wanted:
        return [0.5, 0.5]
    has = np.array([bool(p.kinds & set(wanted)) for p in passages], np.float64)
    return [float(has.max()), float((has * cover).max())]


def _share_in(some: frozenset[str], words: frozenset[str]) -> float:
    return len(some & words) / len(some) if some else 0.0


def _pair_cover(share: Matrix, holds: Matrix) -> Matrix:
    """Entry (a, b): the weight of the question's words that a or b holds."""
    cover = share.sum(1)
    return np.asarray(cover[:, None] + cover[None, :] - share @ holds.T)


def _chains(
    question: Reading, passages: Sequence[Reading], vectors: Vector, query: Vector, share: Matrix, holds: Matrix,
    rarity: Rarity,
) -> list[float]:  # fmt: skip
    n = len(passages)
    link, back, shared, sentence, fresh, mentions = (np.zeros((n, n)) for _ in range(6))
    weight = {w: rarity(w) for p in passages for w in p.title | p.names}
    asked = {w: float(s) for w, s in zip(sorted(question.words), share.max(0), strict=True)} if question.words else {}
    for b, to in enumerate(passages):
        bridge = to.title - question.words
        whole = fsum(weight[w] for w in bridge)
        for a, of in enumerate(passages):
            if a == b:
                continue
            back[a, b] = _weighted_share(of.title, to.body, weight)
            shared[a, b] = fsum(weight[w] for w in (of.names & to.names) - question.words if weight[w] > RARE)
            fresh[a, b] = fsum(weight[w] for w in bridge & of.body) / whole if whole else 0.0
            new = bridge - of.title
            link[a, b] = _weighted_share(new, of.body, weight)
            if len(to.plain_title) > 2 and to.plain_title in of.plain_body:
                mentions[a, b] = 1.0 if bridge else 0.3
            if link[a, b]:
                sentence[a, b] = max(
                    fsum(asked[w] for w in question.words & (s | of.title)) * _weighted_share(new, s, weight)
                    for s in of.sentences
                )
    cover = share.sum(1)
    both = _pair_cover(share, holds)
    np.fill_diagonal(both, 0.0)
    rows = vectors.astype(np.float64)
    sums = rows[:, None] + rows[None, :]
    dense = (sums @ query) / np.maximum(np.linalg.norm(sums, axis=2), 1e-9)
    sharp = link**2
    same = np.minimum(shared / ENOUGH_SHARED, 1.0)
    first = int(np.argmax(cover))
    pairs = max(n * (n - 1), 1)
    return [
        float(shared.max()), float(shared.sum()) / pairs, float(shared[first].max()), float(link.max()),
        float(link.sum()), float((link > 0.7).sum()), float(mentions.sum()),
        float((both * link).max()), float((both * sharp).max()), float(sentence.max()), float((sentence * both).max()),
        float((both * np.maximum(link, 0.7 * back)).max()), float((both * link * back).max()),
        float((dense * link).max()), float((dense * link * both).max()), float((both * sharp).sum()),
        float((both * same).max()), float((both * np.maximum(link, 0.6 * same)).max()),
        float((both * link)[first].max()), float((both * fresh).max()), _three(link, share, holds),
    ]  # fmt: skip


def _weighted_share(some: frozenset[str], words: frozenset[str], weight: dict[str, float]) -> float:
    whole = fsum(weight[w] for w in some)
    return fsum(weight[w] for w in some & words) / whole if whole else 0.0


def _three(link: Matrix, share: Matrix, holds: Matrix) -> float:
    """The best chain of three passages: linked end to end or from one, times what the three cover."""
    n = len(link)
    best = 0.0
    for a, b in np.argwhere(link > 0.2).tolist():
        onward = np.maximum(link[b], link[a])
        for c in range(n):
            if c not in (a, b) and onward[c] > 0.2:
                held = np.max(share[[a, b, c]], axis=0).sum() if holds.shape[1] else 0.0
                best = max(best, float(link[a, b] * onward[c] * held))
    return best
