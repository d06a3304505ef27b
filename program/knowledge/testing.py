"""The checks that every Source passes, for pytest: subclass `SourceConformance` and give it two fixtures.

`source` is the source under test; `query` is a question that finds at least two of its passages. A subclass named
`Test...` is then collected like any other test class.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

from ragc.passage import AUTHORITY, Filters, Source

DEPTH = 20


class SourceConformance:
    """One method a rule; each takes the fixtures `source` and `query`."""

    def test_it_is_a_source_and_its_card_has_its_name(self, source: Source) -> None:
        card = source.describe()
        assert isinstance(source, Source)
        assert source.name and card.name == source.name
        assert card.kind and card.describe()

    def test_a_search_returns_at_most_k_passages_best_first(self, source: Source, query: str) -> None:
        for k in (1, 2, 5):
            found = source.search(query, k)
            assert 1 <= len(found) <= k
            scores = [p.score for p in found]
            assert scores == sorted(scores, reverse=True)
            assert all(math.isfinite(score) for score in scores)

    def test_the_best_k_begin_the_best_k_plus_one(self, source: Source, query: str) -> None:
        longer = [p.id for p in source.search(query, 5)]
        assert [p.id for p in source.search(query, 2)] == longer[:2]

    def test_passages_are_whole_and_no_id_comes_twice(self, source: Source, query: str) -> None:
        for found in (source.search(query, 5), source.candidates(query, DEPTH)):
            assert len({p.id for p in found}) == len(found)
            for passage in found:
                assert passage.id and passage.text and passage.method
                assert passage.source == source.name
                assert passage.authority in AUTHORITY.values()

    def test_candidates_carry_the_parts_of_their_scores(self, source: Source, query: str) -> None:
        found = source.candidates(query, DEPTH)
        assert found
        for passage in found:
            assert all(math.isfinite(part) for part in passage.scores.values())
            assert -1.001 <= passage.scores.get("dense", 0.0) <= 1.001
            assert passage.scores.get("keyword", 0.0) >= 0.0

    def test_what_a_search_finds_is_among_the_candidates(self, source: Source, query: str) -> None:
        wide = {p.id for p in source.candidates(query, DEPTH)}
        assert {p.id for p in source.search(query, 3)} <= wide

    def test_asking_for_nothing_finds_nothing(self, source: Source, query: str) -> None:
        assert source.search(query, 0) == []
        assert source.candidates(query, 0) == []
        assert source.search(" \n", 5) == []

    def test_the_same_query_finds_the_same_passages(self, source: Source, query: str) -> None:
        assert source.search(query, 5) == source.search(query, 5)
        assert source.candidates(query, DEPTH) == source.candidates(query, DEPTH)

    def test_many_threads_find_what_one_finds(self, source: Source, query: str) -> None:
        alone = source.search(query, 5)
        with ThreadPoolExecutor(8) as threads:
            assert all(found == alone for found in threads.map(lambda _: source.search(query, 5), range(16)))

    def test_filters_admit_only_what_they_say(self, source: Source, query: str) -> None:
        for pair in [pair for p in source.candidates(query, DEPTH) for pair in p.attributes.items()][:DEPTH]:
            filters = Filters(attributes=(pair,))
            found = source.candidates(query, DEPTH, filters)
            assert found and all(filters.admits(p) for p in (*found, *source.search(query, 5, filters)))

    def test_an_impossible_filter_finds_nothing(self, source: Source, query: str) -> None:
        none = Filters(attributes=(("no such attribute", ""),))
        assert source.search(query, 5, none) == []
        assert source.candidates(query, DEPTH, none) == []
