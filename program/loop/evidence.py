"""From pools of candidates to the passages a writer sees: ranked, merged, current, and without contradiction.

Pure functions of recorded scores and knobs, so that another setting needs no other search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from itertools import combinations

from program.knowledge.index.fusion import WEIGHT, fuse, rank_positions
from program.loop.policy import Tuning
from program.loop.state import Conflict, Key, Need, State
from program.passage import AUTHORITY, Passage, drop_repeats

PREVIEW = 8  # passages that the classifier is shown
REMEMBERED = 48  # rankings of one pool
INFORMAL = AUTHORITY["informal"]
NO_PRIOR: Mapping[str, float] = {}
OLD = timedelta(days=365)
"""An age, counted from the newest evidence found, past which a page no longer answers for the present."""
ALIKE = 0.4
"""Share of common words from which two statements are taken to be about the same thing."""
MOST_SUSPECTS = 3  # pairs of passages put to a judge
MOST_FOLLOWED = 3  # passages that look-ups written from others add to unjudged evidence

_TIMELY = re.compile(
    r"\b(?:latest|newest|most recent(?:ly)?|recent(?:ly)?|current(?:ly)?|nowadays|today|tonight|right now|at the moment"
    r"|at present|up[- ]to[- ]date|so far|this (?:week|month|quarter|season|autumn|fall|winter|spring|summer|year)"
    r"|last (?:week|month)|as of now|now)\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"\b(20\d\d)\b")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(r"[^\W\d_]{3,}")
_Statement = tuple[frozenset[str], frozenset[str]]


class Pool(list[Passage]):
    """A pool that remembers its rankings: a search over settings ranks one pool thousands of times."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        super().__init__(passages)
        self._known: dict[Hashable, list[Passage]] = {}

    def recall(self, key: Hashable, make: Callable[[], list[Passage]]) -> list[Passage]:
        """Return what was made under that key before, else what `make` gives now."""
        if key not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = make()
        return self._known[key]


def preview_pool(pool: Sequence[Passage]) -> list[Passage]:
    """Return the best passages of the first look, as the classifier sees them.

    They are the same under every knob, so that what was learned about routing holds whatever else is turned.
    """
    if isinstance(pool, Pool):
        return pool.recall("preview", lambda: fuse(pool, WEIGHT, PREVIEW))
    return fuse(pool, WEIGHT, PREVIEW)


def filter_by_source(pool: Sequence[Passage], sources: Sequence[str]) -> Sequence[Passage]:
    """Return the passages of those sources."""
    if isinstance(pool, Pool):
        return pool.recall(tuple(sources), lambda: Pool(p for p in pool if p.source in sources))
    return [passage for passage in pool if passage.source in sources]


def rank_pool(
    pool: Sequence[Passage],
    tuning: Tuning,
    prior: Mapping[str, float] = NO_PRIOR,
    timely: bool = False,
    part: str = "",
) -> list[Passage]:
    """Return the best `tuning.k` passages of one query's pool, best first.

    The score in [0, 1], fused or of the one `part` named, has `document_weight` of it from the best passage of its
    document: what a question asks for often stands under several headings of one page. It loses `stale_penalty` when
    the passage was superseded and `informal_penalty` when it is not official, and gains `base_prior` times the
    probability that its base is wanted; `timely` lets the newest gain `recency`.
    """
    if not isinstance(pool, Pool):
        return _rank_scores(pool, tuning, prior, timely, part)
    known = tuple(prior.items()) if tuning.base_prior else ()
    recency = tuning.recency if timely else 0.0
    weights = (tuning.dense_weight, tuning.graph_weight, tuning.base_prior, recency)
    knobs = (tuning.k, *weights, tuning.stale_penalty, tuning.informal_penalty, tuning.document_weight)
    return pool.recall((*knobs, part, known), lambda: _rank_scores(pool, tuning, prior, timely, part))


def interleave(ranked: Iterable[Sequence[Passage]]) -> list[Passage]:
    """Merge the passages of several queries, each one's best first in turn."""
    lists = [list(passages) for passages in ranked]
    longest = max((len(passages) for passages in lists), default=0)
    return drop_repeats([passages[n] for n in range(longest) for passages in lists if n < len(passages)])


def read_need(question: str) -> Need:
    """Return how current the evidence must be by the question's words; English."""
    years = _YEAR.findall(question)
    return Need(bool(_TIMELY.search(question)), int(years[-1]) if years else None)


def rank_searches(state: State, pools: Mapping[Key, Sequence[Passage]], bases: Mapping[str, str], part: str) -> None:
    """Rank what new searches found, and merge it with the rest.

    `bases` names the base that a query belongs to; `part` is the score to rank by, or empty.
    """
    likely = dict(state.plan.likely)
    for key, pool in pools.items():
        base = bases.get(key[1], "")
        prior = {**likely, base: 1.0} if base else likely
        state.ranked[key] = rank_pool(pool, state.tuning, prior, state.need.timely, part)
    state.new += pools
    merge_searches(state)


def merge_searches(state: State) -> None:
    """Put into the state what all searches found together, and what of it is current."""
    state.found = state.current = interleave(state.ranked.values())
    state.newest = _newest_date(state.found)
    if state.settled and state.tuning.fresh_above:
        state.current = [p for p in state.found if not is_stale(p, state.need, state.newest)] or state.found


def keep_unjudged(state: State, most: int) -> None:
    """Keep the best of what was found.

    What look-ups written from others found stands beside it and takes no room from it.
    """
    own = [found for (_, query), found in state.ranked.items() if query not in state.followed]
    kept = interleave(own)[:most]
    known = {passage.id for passage in kept}
    more = interleave(found for (_, query), found in state.ranked.items() if query in state.followed)
    state.kept = interleave([kept, [passage for passage in more if passage.id not in known][:MOST_FOLLOWED]])


def keep_helpful(state: State, threshold: float) -> None:
    """Keep what the judge let through, and note what may contradict each other.

    With `filter` these are the passages whose probability of helping is past the threshold, at least and at most so
    many; else the first of all.
    """
    tuning, relevant = state.tuning, state.relevant
    state.kept = state.current[: tuning.keep_at_most]
    if tuning.filter:
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
    stale = sum(is_stale(passage, state.need, state.newest) for passage in state.kept)
    return 1.0 - stale / len(state.kept) if state.kept else 1.0


def find_cutoff(state: State) -> date | None:
    """Return the date from which evidence would settle what is open.

    That is as new as what is in dispute, or newer than what is out of date.
    """
    since = _newest_date([conflict.followed for conflict in state.conflicts])
    if since is None:
        stale = _newest_date([p for p in state.kept if is_stale(p, state.need, state.newest)])
        since = stale + timedelta(days=1) if stale else None
    return since


def is_stale(passage: Passage, need: Need, newest: date | None) -> bool:
    """Tell whether a passage is out of date for what the question needs.

    It was superseded, is older than the year asked about, or too old for a timely question.
    `newest` is the date of the newest passage found: the knowledge's own present. An undated passage is not stale.
    """
    if need.year is not None:
        return passage.as_of is not None and passage.as_of.year < need.year
    if passage.superseded_by:
        return True
    if not need.timely or passage.as_of is None or newest is None:
        return False
    return newest - passage.as_of >= OLD


def find_suspects(passages: Sequence[Passage]) -> list[Conflict]:
    """Return pairs with common words and different numbers, most alike first.

    A heuristic that costs no model call. It sees contradictions in numbers only, and proposes at most three.
    """
    stated = [(passage, _numbered_sentences(passage.text)) for passage in passages]
    found = []
    for (a, of_a), (b, of_b) in combinations(stated, 2):
        alike = max((_measure_overlap(one, other) for one in of_a for other in of_b), default=0.0)
        if alike >= ALIKE:
            found.append((alike, order_conflict(a, b)))
    found.sort(key=lambda pair: -pair[0])
    return [conflict for _, conflict in found[:MOST_SUSPECTS]]


def order_conflict(a: Passage, b: Passage) -> Conflict:
    """Return the pair with the passage to follow first.

    What is not superseded comes first, then the more official, then the newer.
    """

    def weight(passage: Passage) -> tuple[bool, int, date, float]:
        return not passage.superseded_by, passage.authority, passage.as_of or date.min, passage.score

    return Conflict(*sorted((a, b), key=weight, reverse=True))


def _rank_scores(
    pool: Sequence[Passage], tuning: Tuning, prior: Mapping[str, float], timely: bool, part: str
) -> list[Passage]:
    if part:
        pool = [passage for passage in pool if part in passage.scores]
        ranked = _rank_by_part(pool, part)
    else:
        ranked = rank_positions(pool, tuning.dense_weight, len(pool), graph=tuning.graph_weight)
    if tuning.document_weight:
        ranked = _share_by_document(pool, ranked, tuning.document_weight)
    if timely and tuning.recency:
        youth = _measure_youth(pool)
        ranked = [(at, score + tuning.recency * youth[at]) for at, score in ranked]
    elif not (tuning.stale_penalty or tuning.informal_penalty or (tuning.base_prior and prior)):
        return [pool[at].rescored(score) for at, score in ranked[: tuning.k]]
    likely, stale, informal = tuning.base_prior, tuning.stale_penalty, tuning.informal_penalty

    def adjust(passage: Passage, score: float) -> float:
        gain = likely * prior.get(passage.source, 0.0)
        loss = (stale if passage.superseded_by else 0.0, informal if passage.authority <= INFORMAL else 0.0)
        return score + (gain - loss[0] - loss[1])

    adjusted = [(at, adjust(pool[at], score)) for at, score in ranked]
    adjusted.sort(key=lambda pair: (-pair[1], pool[pair[0]].id))
    return [pool[at].rescored(score) for at, score in adjusted[: tuning.k]]


def _rank_by_part(pool: Sequence[Passage], part: str) -> list[tuple[int, float]]:
    """Return positions with their share of the best score of that part, best first."""
    best = max((passage.scores[part] for passage in pool), default=0.0) or 1.0
    shares = [(at, max(passage.scores[part] / best, 0.0)) for at, passage in enumerate(pool)]
    return sorted(shares, key=lambda pair: (-pair[1], pool[pair[0]].id))


def _share_by_document(
    pool: Sequence[Passage], ranked: Sequence[tuple[int, float]], weight: float
) -> list[tuple[int, float]]:
    """Return positions with `weight` of their score from the best passage of their document, best first."""
    best: dict[str, float] = {}
    documents = {at: pool[at].id.partition("#")[0] for at, _ in ranked}
    for at, score in ranked:  # best first
        best.setdefault(documents[at], score)
    shared = [(at, (1 - weight) * score + weight * best[documents[at]]) for at, score in ranked]
    return sorted(shared, key=lambda pair: (-pair[1], pool[pair[0]].id))


def _measure_youth(passages: Sequence[Passage]) -> list[float]:
    """Return for each passage 0 (oldest or undated) to 1 (newest), by days."""
    days = [p.as_of.toordinal() for p in passages if p.as_of is not None]
    if not days:
        return [0.0] * len(passages)
    low, span = min(days), max(max(days) - min(days), 1)
    alone = max(days) == min(days)
    return [0.0 if p.as_of is None else 1.0 if alone else (p.as_of.toordinal() - low) / span for p in passages]


def _newest_date(passages: Iterable[Passage]) -> date | None:
    return max((p.as_of for p in passages if p.as_of is not None), default=None)


def _numbered_sentences(text: str) -> list[_Statement]:
    """Return the words and the numbers of each sentence that holds a number."""
    return [
        (frozenset(w.lower() for w in _WORD.findall(sentence)), frozenset(numbers))
        for sentence in _SENTENCE.split(text)
        if (numbers := _NUMBER.findall(sentence))
    ]


def _measure_overlap(one: _Statement, other: _Statement) -> float:
    """Return the share of words in common when each has a number that the other lacks, else 0."""
    if one[1] <= other[1] or other[1] <= one[1]:
        return 0.0
    return len(one[0] & other[0]) / max(len(one[0] | other[0]), 1)
