"""From pools of candidates to the passages a writer sees: pure functions of recorded scores and knobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from program.knobs import Tuning
from program.knowledge.fusion import WEIGHT, fuse, ranking
from program.knowledge.source import AUTHORITY, Passage, unique

GLIMPSE = 8
NO_PRIOR: Mapping[str, float] = {}


def first_look(pool: Sequence[Passage]) -> list[Passage]:
    """The best passages of the question's own pool, as the classifier is shown them: the same under every knob,
    so that what was learned about routing holds whatever else is turned."""
    return fuse(pool, WEIGHT, GLIMPSE)


def rank(pool: Sequence[Passage], tuning: Tuning, prior: Mapping[str, float] = NO_PRIOR) -> list[Passage]:
    """The best `tuning.k` passages of one query's pool, best first.

    The fused score in [0, 1] loses `stale_penalty` when the passage was superseded and `informal_penalty`
    when it is not official, and gains `base_prior` times the probability that its base is wanted.
    """
    ranked = ranking(pool, tuning.dense_weight, len(pool), graph=tuning.graph_weight)
    if tuning.stale_penalty or tuning.informal_penalty or (tuning.base_prior and prior):
        adjusted = [(at, score + _adjustment(pool[at], tuning, prior)) for at, score in ranked]
        ranked = sorted(adjusted, key=lambda pair: (-pair[1], pool[pair[0]].id))
    return [pool[at].rescored(score) for at, score in ranked[: tuning.k]]


def _adjustment(passage: Passage, tuning: Tuning, prior: Mapping[str, float]) -> float:
    return (
        tuning.base_prior * prior.get(passage.source, 0.0)
        - (tuning.stale_penalty if passage.superseded_by else 0.0)
        - (tuning.informal_penalty if passage.authority <= AUTHORITY["informal"] else 0.0)
    )


def interleave(ranked: Iterable[Sequence[Passage]]) -> list[Passage]:
    """The passages of several queries, each query's best first in turn, without repeats."""
    lists = [list(passages) for passages in ranked]
    longest = max((len(passages) for passages in lists), default=0)
    return unique([passages[n] for n in range(longest) for passages in lists if n < len(passages)])


def keep(found: Sequence[Passage], relevant: Mapping[str, float], threshold: float, tuning: Tuning) -> list[Passage]:
    """The passages the judge lets through, in their order: those past the threshold, at least and at most so many.

    `relevant` gives each passage's probability of helping, by id.
    """
    by_relevance = sorted(found, key=lambda passage: -relevant[passage.id])
    least = {passage.id for passage in by_relevance[: tuning.keep_at_least]}
    passing = {passage.id for passage in by_relevance if relevant[passage.id] >= threshold}
    best = {passage.id for passage in by_relevance[: tuning.keep_at_most]}
    return [passage for passage in found if passage.id in best and (passage.id in passing or passage.id in least)]
