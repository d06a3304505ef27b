"""From pools of candidates to the passages a writer sees: pure functions of recorded scores and knobs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from program.knowledge.index.fusion import WEIGHT, fuse, rank_positions
from program.loop.freshness import youth
from program.loop.knobs import Tuning
from program.passage import AUTHORITY, Passage, drop_repeats

GLIMPSE = 8
REMEMBERED = 48  # rankings of one pool
INFORMAL = AUTHORITY["informal"]
NO_PRIOR: Mapping[str, float] = {}


class Pool(list[Passage]):
    """A pool that remembers its rankings: a search over settings ranks one pool thousands of times."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        super().__init__(passages)
        self._known: dict[Hashable, list[Passage]] = {}

    def known(self, key: Hashable, found: Callable[[], list[Passage]]) -> list[Passage]:
        """What was found under that key before, else what `found` gives now."""
        if key not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = found()
        return self._known[key]


def first_look(pool: Sequence[Passage]) -> list[Passage]:
    """The best passages of the question's own pool, as the classifier is shown them: the same under every knob,
    so that what was learned about routing holds whatever else is turned."""
    if isinstance(pool, Pool):
        return pool.known("first look", lambda: fuse(pool, WEIGHT, GLIMPSE))
    return fuse(pool, WEIGHT, GLIMPSE)


def within(pool: Sequence[Passage], sources: Sequence[str]) -> Sequence[Passage]:
    """The passages of those sources."""
    if isinstance(pool, Pool):
        return pool.known(tuple(sources), lambda: Pool(p for p in pool if p.source in sources))
    return [passage for passage in pool if passage.source in sources]


def rank(
    pool: Sequence[Passage],
    tuning: Tuning,
    prior: Mapping[str, float] = NO_PRIOR,
    timely: bool = False,
    part: str = "",
) -> list[Passage]:
    """The best `tuning.k` passages of one query's pool, best first.

    The score in [0, 1], fused or of the one `part` named, has `document_weight` of it from the best passage of its
    document: what a question asks for often stands under several headings of one page. It loses `stale_penalty` when
    the passage was superseded and `informal_penalty` when it is not official, and gains `base_prior` times the
    probability that its base is wanted; `timely` lets the newest gain `recency`.
    """
    if not isinstance(pool, Pool):
        return _ranked(pool, tuning, prior, timely, part)
    known = tuple(prior.items()) if tuning.base_prior else ()
    recency = tuning.recency if timely else 0.0
    weights = (tuning.dense_weight, tuning.graph_weight, tuning.base_prior, recency)
    knobs = (tuning.k, *weights, tuning.stale_penalty, tuning.informal_penalty, tuning.document_weight)
    return pool.known((*knobs, part, known), lambda: _ranked(pool, tuning, prior, timely, part))


def _ranked(
    pool: Sequence[Passage], tuning: Tuning, prior: Mapping[str, float], timely: bool, part: str
) -> list[Passage]:
    if part:
        pool = [passage for passage in pool if part in passage.scores]
    ranked = (
        _by_part(pool, part)
        if part
        else rank_positions(pool, tuning.dense_weight, len(pool), graph=tuning.graph_weight)
    )
    if tuning.document_weight:
        ranked = _by_document(pool, ranked, tuning.document_weight)
    if timely and tuning.recency:
        young = youth(pool)
        ranked = [(at, score + tuning.recency * young[at]) for at, score in ranked]
    elif not (tuning.stale_penalty or tuning.informal_penalty or (tuning.base_prior and prior)):
        return [pool[at].rescored(score) for at, score in ranked[: tuning.k]]
    likely, stale, informal = tuning.base_prior, tuning.stale_penalty, tuning.informal_penalty  # each read once
    adjusted = [(at, score + _adjustment(pool[at], likely, stale, informal, prior)) for at, score in ranked]
    adjusted.sort(key=lambda pair: (-pair[1], pool[pair[0]].id))
    return [pool[at].rescored(score) for at, score in adjusted[: tuning.k]]


def _by_part(pool: Sequence[Passage], part: str) -> list[tuple[int, float]]:
    """Positions with their share of the best score of that part, best first."""
    best = max((passage.scores[part] for passage in pool), default=0.0) or 1.0
    shares = [(at, max(passage.scores[part] / best, 0.0)) for at, passage in enumerate(pool)]
    return sorted(shares, key=lambda pair: (-pair[1], pool[pair[0]].id))


def _by_document(
    pool: Sequence[Passage], ranked: Sequence[tuple[int, float]], weight: float
) -> list[tuple[int, float]]:
    """Positions with `weight` of their score from the best passage of their document, best first."""
    best: dict[str, float] = {}
    documents = {at: pool[at].id.partition("#")[0] for at, _ in ranked}
    for at, score in ranked:  # best first
        best.setdefault(documents[at], score)
    shared = [(at, (1 - weight) * score + weight * best[documents[at]]) for at, score in ranked]
    return sorted(shared, key=lambda pair: (-pair[1], pool[pair[0]].id))


def _adjustment(passage: Passage, likely: float, stale: float, informal: float, prior: Mapping[str, float]) -> float:
    return (
        likely * prior.get(passage.source, 0.0)
        - (stale if passage.superseded_by else 0.0)
        - (informal if passage.authority <= INFORMAL else 0.0)
    )


def interleave(ranked: Iterable[Sequence[Passage]]) -> list[Passage]:
    """The passages of several queries, each query's best first in turn, without repeats."""
    lists = [list(passages) for passages in ranked]
    longest = max((len(passages) for passages in lists), default=0)
    return drop_repeats([passages[n] for n in range(longest) for passages in lists if n < len(passages)])


def keep(found: Sequence[Passage], relevant: Mapping[str, float], threshold: float, tuning: Tuning) -> list[Passage]:
    """The passages the judge lets through, in their order: those past the threshold, at least and at most so many.

    `relevant` gives each passage's probability of helping, by id; 0 where nobody could tell.
    """
    by_relevance = sorted(found, key=lambda passage: -relevant.get(passage.id, 0.0))
    least = {passage.id for passage in by_relevance[: tuning.keep_at_least]}
    passing = {passage.id for passage in by_relevance if relevant.get(passage.id, 0.0) >= threshold}
    best = {passage.id for passage in by_relevance[: tuning.keep_at_most]}
    return [passage for passage in found if passage.id in best and (passage.id in passing or passage.id in least)]
