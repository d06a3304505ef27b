from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.knowledge.index.fusion import Method, fuse, rank_positions
from program.passage import Passage

PART = st.floats(-1, 1, allow_subnormal=False)
SCORES = st.fixed_dictionaries({}, optional={"dense": PART, "keyword": st.floats(0, 40, allow_subnormal=False)})
METHOD = st.sampled_from(["convex", "rrf"])


def passages(scores: list[dict[str, float]]) -> list[Passage]:
    return [passage(f"p{n:03}", parts) for n, parts in enumerate(scores)]


def passage(id: str, scores: Mapping[str, float], method: str = "dense", score: float = 0.0) -> Passage:
    return Passage(id=id, source="s", title="t", text="x", scores=scores, method=method, score=score)


POOL = [
    passage("a", {"dense": 0.9, "keyword": 0.0}),
    passage("b", {"dense": 0.5, "keyword": 8.0}),
    passage("c", {"dense": 0.1, "keyword": 4.0}),
]


def test_a_convex_fusion_is_the_weighted_sum_of_min_max_normalised_parts() -> None:
    found = fuse(POOL, 0.6, 3)
    assert [p.id for p in found] == ["b", "a", "c"]
    assert [p.score for p in found] == pytest.approx([0.6 * 0.5 + 0.4, 0.6, 0.4 * 0.5])


def test_reciprocal_rank_fusion_sums_shares_of_ranks() -> None:
    found = {p.id: p.score for p in fuse(POOL, 0.5, 3, "rrf", 60)}
    # A keyword score of 0 is no match and earns nothing.
    expected = {"a": 0.5, "b": 0.5 * 61 / 62 + 0.5, "c": 0.5 * 61 / 63 + 0.5 * 61 / 62}
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("method", ["convex", "rrf"])
def test_weight_one_is_dense_only_and_weight_zero_keyword_only(method: Method) -> None:
    assert [p.id for p in fuse(POOL, 1.0, 3, method)] == ["a", "b", "c"]
    assert [p.id for p in fuse(POOL, 0.0, 3, method)] == ["b", "c", "a"]


def test_a_missing_part_counts_as_the_lowest_of_the_pool() -> None:
    pool = [*POOL, passage("d", {"dense": 0.9}), passage("e", {"keyword": 8.0})]
    found = {p.id: p.score for p in fuse(pool, 0.5, 5)}
    assert found["d"] == pytest.approx(found["a"]) == pytest.approx(0.5)
    assert found["e"] == pytest.approx(0.5)


def test_the_method_tells_which_parts_a_passage_has_and_other_methods_stay() -> None:
    pool = [
        *POOL,
        passage("d", {"dense": 0.2}),
        passage("e", {"keyword": 2.0}),
        passage("f", {"dense": 0.2, "keyword": 2.0}, "web"),
        passage("g", {}, "sql", 0.7),
    ]
    assert {p.id: p.method for p in fuse(pool, 0.5, 9)} == {
        "a": "dense", "b": "both", "c": "both", "d": "dense", "e": "keyword", "f": "web", "g": "sql",
    }  # fmt: skip


def test_a_passage_with_neither_part_keeps_its_own_score() -> None:
    found = {p.id: p.score for p in fuse([*POOL, passage("g", {}, "sql", 0.7), passage("h", {}, "sql", 3.0)], 0.5, 9)}
    assert (found["g"], found["h"]) == (0.7, 1.0)


def test_a_pool_of_one_that_matches_scores_one() -> None:
    assert fuse([POOL[1]], 0.5, 1)[0].score == 1.0


def test_a_passage_under_another_score_is_otherwise_the_same() -> None:
    full = Passage(
        "i",
        "s",
        "t",
        "x",
        0.1,
        "web",
        date(2026, 1, 2),
        3,
        "b/new.md",
        "i:1-2",
        {"dense": 0.1},
        {"team": "sales"},
        "way",
    )
    assert all(getattr(full, f.name) != f.default for f in fields(Passage))
    assert full.rescored(0.1) == full
    assert full.rescored(0.5, "dense", {}) == replace(full, score=0.5, method="dense", scores={})


def test_nothing_comes_of_nothing() -> None:
    assert fuse([], 0.5, 3) == fuse(POOL, 0.5, 0) == []


@given(st.lists(SCORES, max_size=30), st.floats(0, 1), st.integers(1, 40), METHOD)
def test_results_are_the_first_k_of_one_order_in_zero_to_one_with_ties_by_id(
    scores: list[dict[str, float]], weight: float, k: int, method: Method
) -> None:
    pool = passages(scores)
    found = fuse(pool, weight, k, method)
    assert len(found) == min(k, len(pool))
    assert all(0 <= p.score <= 1 for p in found)
    assert found == sorted(found, key=lambda p: (-p.score, p.id))
    assert [(pool[at].id, score) for at, score in rank_positions(pool, weight, k, method)] == [(p.id, p.score) for p in found]


@given(st.lists(SCORES, max_size=20), st.floats(0, 1), METHOD, st.randoms())
def test_the_order_of_the_pool_does_not_matter(
    scores: list[dict[str, float]], weight: float, method: Method, random: object
) -> None:
    pool = passages(scores)
    mixed = list(pool)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert fuse(mixed, weight, 9, method) == fuse(pool, weight, 9, method)


@given(st.lists(SCORES, min_size=2, max_size=20), st.floats(0.01, 0.99), st.integers(0, 19), PART)
def test_a_nearer_passage_never_falls(scores: list[dict[str, float]], weight: float, which: int, dense: float) -> None:
    pool = passages([{"dense": s.get("dense", 0.0), "keyword": s.get("keyword", 0.0)} for s in scores])
    at = which % len(pool)
    raised = list(pool)
    parts = pool[at].scores
    raised[at] = replace(pool[at], scores={**parts, "dense": max(dense, parts["dense"])})
    before = [p.id for p in fuse(pool, weight, 99, "rrf")].index(pool[at].id)
    assert [p.id for p in fuse(raised, weight, 99, "rrf")].index(pool[at].id) <= before


def test_sixty_candidates_are_ranked_in_a_fraction_of_a_millisecond() -> None:
    pool = passages([{"dense": n * 0.37 % 1, "keyword": n * 1.7 % 9} for n in range(60)])
    best = min(_timed(pool) for _ in range(50))
    assert best < 500e-6


def _timed(pool: list[Passage]) -> float:
    began = time.perf_counter()
    rank_positions(pool, 0.4, 8)
    return time.perf_counter() - began
