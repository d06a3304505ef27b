"""From pools of candidates to the passages a writer sees: ranked, merged, current, and without contradiction.

Pure functions of recorded scores and knobs, so that another setting needs no other search.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from itertools import combinations, zip_longest

from program.knowledge.index.fusion import WEIGHT, fold_copies, fuse, rank_positions
from program.loop.policy import Tuning
from program.loop.state import Conflict, Key, State
from program.passage import AUTHORITY, Passage, drop_repeats
from program.text.pieces import split_pieces
from program.text.words import WORD

PREVIEW = 8  # passages that the classifier is shown
REMEMBERED = 48  # rankings of one pool
INFORMAL = AUTHORITY["informal"]
NO_PRIOR: Mapping[str, float] = {}
ALIKE = 0.4  # share of common words from which two statements are taken to be about the same thing
MOST_SUSPECTS = 3  # pairs of passages put to a judge
MOST_FOLLOWED = 3  # passages that look-ups written from others add to unjudged evidence

SHORT = 3  # letters of a word that tells what a statement is about, at least
_Statement = tuple[frozenset[str], frozenset[str]]


class Pool(list[Passage]):
    """A pool that remembers its rankings: a search over settings ranks one pool thousands of times."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        super().__init__(passages)
        self.known: dict[Hashable, list[Passage]] = {}


def _recall(pool: Sequence[Passage], key: Hashable, make: Callable[[], list[Passage]]) -> list[Passage]:
    """Return what was made of a remembering pool under that key before, else what `make` gives now."""
    known = pool.known if isinstance(pool, Pool) else {}
    if key not in known:
        if len(known) >= REMEMBERED:
            known.clear()
        known[key] = make()
    return known[key]


def preview_pool(pool: Sequence[Passage]) -> list[Passage]:
    """Return the best of the first look, for the classifier, whatever the knobs."""
    return _recall(pool, "preview", lambda: fuse(pool, WEIGHT, PREVIEW))


def filter_by_source(pool: Sequence[Passage], sources: Sequence[str]) -> Sequence[Passage]:
    """Return the passages of those sources."""
    return _recall(pool, tuple(sources), lambda: Pool(p for p in pool if p.source in sources))


def rank_pool(pool: Sequence[Passage], tuning: Tuning, prior: Mapping[str, float] = NO_PRIOR) -> list[Passage]:
    """Return the best `tuning.k` passages of one query's pool, best first.

    The fused score in [0, 1] has `document_weight` of it from the best passage of its
    document: what a question asks for often stands under several headings of one page. It loses `stale_penalty` when
    the passage was superseded and `informal_penalty` when it is not official, and gains `base_prior` times the
    probability that its base is wanted and, by its age among the others, up to `recency`.
    """
    known = tuple(prior.items()) if tuning.base_prior else ()
    weights = (tuning.dense_weight, tuning.graph_weight, tuning.rerank_weight, tuning.base_prior, tuning.recency)
    knobs = (tuning.k, *weights, tuning.stale_penalty, tuning.informal_penalty, tuning.document_weight)
    return _recall(pool, (*knobs, known), lambda: _rank_scores(pool, tuning, prior))


def interleave(ranked: Iterable[Sequence[Passage]]) -> list[Passage]:
    """Merge the passages of several queries, each one's best first in turn."""
    return drop_repeats([passage for turn in zip_longest(*ranked) for passage in turn if passage is not None])


def rank_searches(state: State, pools: Mapping[Key, Sequence[Passage]], bases: Mapping[str, str]) -> None:
    """Rank and merge what new searches found; `bases` names the base of a query."""
    likely = dict(state.plan.likely)
    for key, pool in pools.items():
        base = bases.get(key[1], "")
        prior = {**likely, base: 1.0} if base else likely
        state.ranked[key] = rank_pool(pool, state.tuning, prior)
    state.new += pools
    merge_searches(state)


def merge_searches(state: State) -> None:
    """Put into the state what all searches found together, and what of it is current."""
    state.found = state.current = interleave(state.ranked.values())
    if state.settled and state.tuning.fresh_above:
        state.current = [p for p in state.found if not is_stale(p, state.year)] or state.found


def keep_unjudged(state: State, most: int) -> None:
    """Keep the best of what was found, unjudged.

    What look-ups written from others found takes no room from it.
    """
    kept = interleave(found for (_, query), found in state.ranked.items() if query not in state.followed)[:most]
    known = {passage.id for passage in kept}
    more = interleave(found for (_, query), found in state.ranked.items() if query in state.followed)
    state.kept = interleave([kept, [passage for passage in more if passage.id not in known][:MOST_FOLLOWED]])


def keep_helpful(state: State, threshold: float) -> None:
    """Keep what helps, without a filter the best, and note what may contradict."""
    tuning, relevant = state.tuning, state.relevant
    state.kept = state.current[: tuning.keep_at_most]
    if state.filters:
        by_relevance = sorted(state.current, key=lambda passage: -relevant.get(passage.id, 0.0))
        least = {passage.id for passage in by_relevance[: tuning.keep_at_least]}
        passing = {passage.id for passage in by_relevance if relevant.get(passage.id, 0.0) >= threshold}
        best = {passage.id for passage in by_relevance[: tuning.keep_at_most]} & (passing | least)
        state.kept = [passage for passage in state.current if passage.id in best]
    state.suspects = find_suspects(state.kept) if tuning.consistent else []


def drop_overruled(state: State, conflicts: Iterable[Conflict]) -> None:
    """Take from the kept passages those that give way to another kept one."""
    state.conflicts = list(conflicts)
    overruled = {conflict.overruled.id for conflict in state.conflicts}
    state.kept = [passage for passage in state.kept if passage.id not in overruled]


def measure_freshness(state: State) -> float:
    """Return the share of the kept passages that are current, in [0, 1]."""
    stale = sum(is_stale(passage, state.year) for passage in state.kept)
    return 1.0 - stale / len(state.kept) if state.kept else 1.0


def find_cutoff(state: State) -> date | None:
    """Return the date from which newer evidence is wanted, if any.

    It is the date of the newest in dispute, or the day after the newest that is out of date.
    """
    stale = _newest_date([p for p in state.kept if is_stale(p, state.year)])
    disputed = _newest_date([conflict.followed for conflict in state.conflicts])
    return disputed or (stale + timedelta(days=1) if stale else None)


def is_stale(passage: Passage, year: int | None) -> bool:
    """Tell whether a passage is older than the question's year, or superseded."""
    if year is not None:
        return passage.as_of is not None and passage.as_of.year < year
    return bool(passage.superseded_by)


def find_suspects(passages: Sequence[Passage]) -> list[Conflict]:
    """Return the few pairs most alike in words that state different numbers."""
    stated = [(passage, _numbered_sentences(passage.text)) for passage in passages]
    found = [
        (max((_measure_overlap(one, other) for one in of_a for other in of_b), default=0.0), a, b)
        for (a, of_a), (b, of_b) in combinations(stated, 2)
    ]
    found.sort(key=lambda pair: -pair[0])
    return [order_conflict(a, b) for alike, a, b in found[:MOST_SUSPECTS] if alike >= ALIKE]


def order_conflict(a: Passage, b: Passage) -> Conflict:
    """Return the pair as a conflict, the passage to follow first.

    That is the one not superseded, then the more official, then the newer.
    """

    def weight(passage: Passage) -> tuple[bool, int, date, float]:
        return not passage.superseded_by, passage.authority, passage.as_of or date.min, passage.score

    return Conflict(*sorted((a, b), key=weight, reverse=True))


def _rank_scores(pool: Sequence[Passage], tuning: Tuning, prior: Mapping[str, float]) -> list[Passage]:
    graph, rerank = tuning.graph_weight, tuning.rerank_weight
    ranked = rank_positions(pool, tuning.dense_weight, len(pool), graph=graph, rerank=rerank)
    if tuning.document_weight:
        ranked = _share_by_document(pool, ranked, tuning.document_weight)
    if tuning.recency:
        youth = _measure_youth(pool)
        ranked = [(at, score + tuning.recency * youth[at]) for at, score in ranked]
    elif not (tuning.stale_penalty or tuning.informal_penalty or (tuning.base_prior and prior)):
        return [passage.rescored(score) for passage, score in fold_copies(pool, ranked, tuning.k)]

    def adjust(passage: Passage, score: float) -> float:
        gain = tuning.base_prior * prior.get(passage.source, 0.0)
        stale = tuning.stale_penalty if passage.superseded_by else 0.0
        return score + (gain - stale - (tuning.informal_penalty if passage.authority <= INFORMAL else 0.0))

    ranked = _sort_positions(pool, [(at, adjust(pool[at], score)) for at, score in ranked])
    return [passage.rescored(score) for passage, score in fold_copies(pool, ranked, tuning.k)]


def _sort_positions(pool: Sequence[Passage], scored: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    return sorted(scored, key=lambda pair: (-pair[1], pool[pair[0]].id))


def _share_by_document(
    pool: Sequence[Passage], ranked: Sequence[tuple[int, float]], weight: float
) -> list[tuple[int, float]]:
    """Return positions with `weight` of their score from the best passage of their document, best first."""
    best: dict[str, float] = {}
    documents = {at: pool[at].id.partition("#")[0] for at, _ in ranked}
    for at, score in ranked:  # best first
        best.setdefault(documents[at], score)
    return _sort_positions(pool, ((at, (1 - weight) * score + weight * best[documents[at]]) for at, score in ranked))


def _measure_youth(passages: Sequence[Passage]) -> list[float]:
    """Return for each passage 0 (oldest or undated) to 1 (newest), by days."""
    days = [p.as_of.toordinal() for p in passages if p.as_of is not None] or [0]
    low, span = min(days), max(days) - min(days)
    return [0.0 if p.as_of is None else (p.as_of.toordinal() - low) / span if span else 1.0 for p in passages]


def _newest_date(passages: Iterable[Passage]) -> date | None:
    return max((p.as_of for p in passages if p.as_of is not None), default=None)


def _numbered_sentences(text: str) -> list[_Statement]:
    """Return the words and the numbers of each sentence that holds a number."""
    stated = []
    for piece in split_pieces(text):
        found = frozenset(WORD.findall(piece.text.lower()))
        numbers = frozenset(word for word in found if word[0].isdigit())
        if numbers:
            stated.append((frozenset(word for word in found - numbers if len(word) >= SHORT), numbers))
    return stated


def _measure_overlap(one: _Statement, other: _Statement) -> float:
    """Return the share of words in common when each has a number that the other lacks, else 0."""
    if one[1] <= other[1] or other[1] <= one[1]:
        return 0.0
    return len(one[0] & other[0]) / max(len(one[0] | other[0]), 1)
