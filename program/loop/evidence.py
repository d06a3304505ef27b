"""From pools of candidates to the passages a writer sees: ranked, merged and current.

Pure functions of recorded scores and knobs, so that another setting needs no other search.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import lru_cache
from itertools import product, zip_longest

from ragc.knowledge.index.fusion import WEIGHT, fold_copies, fuse, rank_positions
from ragc.knowledge.ingest.metadata import VALID_TO
from ragc.loop.policy import Tuning
from ragc.loop.state import STATES, Ask, Conflict, Key, State
from ragc.passage import Passage, document_of, drop_repeats
from ragc.text.days import parse_day
from ragc.text.facts import normalise_text
from ragc.text.pieces import split_pieces

PREVIEW = 8  # passages that the classifier is shown
REMEMBERED = 48  # rankings of one pool
ALIKE = 0.5  # share of common words from which two statements are taken to be about the same thing
MOST_FOLLOWED = 3  # passages that look-ups written from others add to unjudged evidence

LINKED = 0.9  # the share of the graph part in the ranking that fills the places of the graph
SHORT = 3  # letters of a word that tells what a statement is about, at least
_Statement = tuple[frozenset[str], frozenset[str]]
TEXTS_KEPT = 4096  # of the texts whose statements, or whose pieces, were read last


class Pool(list[Passage]):
    """A pool that remembers its rankings: a search over settings ranks one pool thousands of times."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        super().__init__(passages)
        self.known: dict[Hashable, list[Passage]] = {}


def _recall(pool: Sequence[Passage], key: Hashable, make: Callable[[], list[Passage]]) -> list[Passage]:
    """Return what was made of a remembering pool under that key before, else what `make` gives now."""
    known = pool.known if isinstance(pool, Pool) else {}
    if key not in known:
        if len(known) >= REMEMBERED:  # what is ranked stays, with the rankings of its own
            for old in [old for old, made in known.items() if not isinstance(made, Pool)]:
                del known[old]
        known[key] = make()
    return known[key]


def preview_pool(pool: Sequence[Passage]) -> list[Passage]:
    """Return the best of the first look, for the classifier, whatever the knobs."""
    return _recall(pool, "preview", lambda: fuse(pool, WEIGHT, PREVIEW))


def filter_by_source(pool: Sequence[Passage], sources: Sequence[str]) -> Sequence[Passage]:
    """Return the passages of those sources."""
    return _recall(pool, tuple(sources), lambda: Pool(p for p in pool if p.source in sources))


def drop_superseded(pool: Sequence[Passage], years: tuple[int, ...], day: date) -> Sequence[Passage]:
    """Return the passages without those that were replaced, or are over, by that day.

    One stays that was in force in a year that the question names: its own, or a later one before its successor's, where
    the pool holds that successor.
    """
    return _recall(pool, ("current", years, day), lambda: Pool(_list_current(pool, years, day)))


def _list_current(pool: Sequence[Passage], years: Sequence[int], day: date) -> Iterator[Passage]:
    since = {document_of(passage): passage.as_of or date.min for passage in pool}
    for passage in pool:
        first, after = passage.as_of or date.min, since.get(passage.superseded_by, passage.as_of or date.max)
        in_year = any(year == first.year or first.year < year < after.year for year in years)
        in_force = not years and since.get(passage.superseded_by, date.min) > day
        last = parse_day(passage.attributes.get(VALID_TO, "")) or date.max
        over = last.year < min(years) if years else last < day
        if not over and (not passage.superseded_by or in_year or in_force):
            yield passage


def begins_after(passage: Passage, day: date) -> bool:
    """Tell whether a passage is not in force yet on that day."""
    return passage.as_of is not None and passage.as_of > day


def blend_pools(pools: Sequence[Sequence[Passage]], weight: float) -> Sequence[Passage]:
    """Return what two searches found as one pool; one pool as it is.

    Of each score `weight` is the second search's. Cosines and BM25 are sums over a query, so that this ranks as a query
    would that is mixed of the two. Where a passage was not found, its score there counts as the lowest.
    """
    if len(pools) < 2:
        return pools[0]
    names = {name for pool in pools for passage in pool for name in passage.scores}
    lows = ({n: min((p.scores[n] for p in pool if n in p.scores), default=0.0) for n in names} for pool in pools)
    held = [{passage.id: passage.scores for passage in pool} for pool in pools]
    parts = list(zip((1 - weight, weight), held, lows, strict=True))

    def blend(passage: Passage) -> Passage:
        own = [scores.get(passage.id, {}) for scores in held]
        known = {name for scores in own for name in scores}
        mixed = {
            n: sum(share * found.get(passage.id, low).get(n, low[n]) for share, found, low in parts) for n in known
        }
        return passage.rescored(passage.score, None, mixed)

    return Pool(map(blend, drop_repeats([*pools[0], *pools[1]])))


def rank_pool(pool: Sequence[Passage], tuning: Tuning) -> list[Passage]:
    """Return the best `tuning.k` passages of one query's pool, best first.

    They are ranked by their text. The share `graph_weight` of the places, the last ones, go to others: to those that
    rank first where links count most.
    """
    key = tuning.k, tuning.dense_weight, tuning.graph_weight
    return _recall(pool, key, lambda: _rank_scores(pool, tuning))


def interleave(ranked: Iterable[Sequence[Passage]]) -> list[Passage]:
    """Merge the passages of several queries, each one's best first in turn."""
    return drop_repeats([passage for turn in zip_longest(*ranked) for passage in turn if passage is not None])


def rank_searches(state: State, pools: Mapping[Key, Sequence[Passage]]) -> None:
    """Rank and merge what new searches found."""
    for key, pool in pools.items():
        current = drop_superseded(pool, state.years, state.day) if state.program.runtime.withholds else pool
        state.ranked[key] = rank_pool(current, state.tuning)
    state.found = interleave(state.ranked.values())


def keep_unjudged(state: State, most: int) -> None:
    """Keep the best of what was found, unjudged.

    What look-ups written from others found takes no room from it.
    """
    kept = interleave(found for (_, query), found in state.ranked.items() if query not in state.followed)[:most]
    known = {passage.id for passage in kept}
    more = interleave(found for (_, query), found in state.ranked.items() if query in state.followed)
    state.kept = interleave([kept, [passage for passage in more if passage.id not in known][:MOST_FOLLOWED]])


def measure_dispute(one: str, other: str) -> float:
    """Return how alike the two most like sentences with different numbers are."""
    pairs = product(_numbered_sentences(one), _numbered_sentences(other))
    return max((_measure_overlap(*pair) for pair in pairs), default=0.0)


def order_conflict(a: Passage, b: Passage) -> Conflict:
    """Return the pair as a conflict, the passage with the higher rank first."""
    return Conflict(*sorted((a, b), key=lambda passage: (rank_source(passage), passage.score), reverse=True))


def add_conflict(known: Sequence[Conflict], new: Conflict) -> list[Conflict]:
    """Return the conflicts with a new one: what its overruled source overruled gives way to the other, too."""
    after = (replace(one, followed=new.followed) if one.followed is new.overruled else one for one in known)
    return [*dict.fromkeys([*after, new])]


def rank_source(passage: Passage) -> tuple[int, date]:
    """Return a key whose greatest is the most official, then the newest."""
    return passage.authority, passage.as_of or date.min


@lru_cache(maxsize=TEXTS_KEPT)
def ask_pieces(
    query: str, id_: str, source: str, title: str, text: str, as_of: date | None, authority: int
) -> Sequence[Ask]:
    """Return what is asked of each piece of a passage, whatever its score."""
    passage = Passage(id_, source, title, text, as_of=as_of, authority=authority)
    asked = {"question": query, "passage": passage}
    return tuple(Ask(STATES, {**asked, "sentence": piece.text}) for piece in split_pieces(text))


def _rank_scores(pool: Sequence[Passage], tuning: Tuning) -> list[Passage]:
    ranked = rank_positions(pool, tuning.dense_weight, len(pool))
    if places := int(tuning.k * tuning.graph_weight):
        linked = rank_positions(pool, tuning.dense_weight, len(pool), LINKED)
        first = {at for at, _ in ranked[: tuning.k - places]}
        ranked = [*ranked[: tuning.k - places], *(pair for pair in linked if pair[0] not in first)]
    return [passage.rescored(score) for passage, score in fold_copies(pool, ranked, tuning.k)]


@lru_cache(maxsize=TEXTS_KEPT)
def _numbered_sentences(text: str) -> list[_Statement]:
    """Return the words and the numbers of each sentence that holds a number, in digits or in words."""
    stated = []
    for piece in split_pieces(text):
        found = frozenset(normalise_text(piece.text).split())
        numbers = frozenset(word for word in found if any(map(str.isdigit, word)))
        if numbers:
            stated.append((frozenset(word for word in found - numbers if len(word) >= SHORT), numbers))
    return stated


def _measure_overlap(one: _Statement, other: _Statement) -> float:
    """Return the share of words in common when each has a number that the other lacks, else 0."""
    if one[1] <= other[1] or other[1] <= one[1]:
        return 0.0
    return len(one[0] & other[0]) / max(len(one[0] | other[0]), 1)
