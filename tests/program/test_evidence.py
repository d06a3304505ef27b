"""From pools to the passages a writer sees."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from program.loop.evidence import interleave, rank_pool
from program.loop.policy import Policy
from program.passage import Passage

TUNING = Policy().tuning()


def passage(n: int, dense: float = 0.5, keyword: float = 1.0, **fields) -> Passage:
    return Passage(
        f"a/b.md#{n}",
        fields.pop("source", "a"),
        "t",
        "x",
        scores={"dense": dense, "keyword": keyword},
        **fields,
    )


POOL = [passage(n, 1 - n / 10, 5 - n / 2) for n in range(6)]


def test_a_superseded_passage_loses_its_penalty():
    pool = [passage(0, 0.9, 5.0, superseded_by="a/new.md"), *POOL[1:]]
    assert rank_pool(pool, TUNING)[0].id == "a/b.md#0"
    assert rank_pool(pool, replace(TUNING, stale_penalty=0.5))[0].id == "a/b.md#1"


def test_an_informal_passage_loses_its_penalty():
    pool = [passage(0, 0.9, 5.0, authority=1), *POOL[1:]]
    assert rank_pool(pool, replace(TUNING, informal_penalty=0.5))[0].id == "a/b.md#1"


def test_a_likely_base_lifts_its_passages():
    pool = [*POOL, passage(9, 0.9, 4.5, source="b")]
    assert rank_pool(pool, replace(TUNING, base_prior=1.0), {"b": 0.9, "a": 0.1})[0].source == "b"


def test_a_passage_gains_from_the_best_of_its_document():
    best, second, sibling = (Passage(id_, "a", "t", "x") for id_ in ("a/one.md#top", "a/two.md", "a/one.md#end"))
    scored = [(best, 0.9), (second, 0.5), (sibling, 0.4), (passage(5), 0.0)]
    pool = [p.rescored(0.0, scores={"dense": score, "keyword": score}) for p, score in scored]
    order = {w: [p.id for p in rank_pool(pool, replace(TUNING, document_weight=w))][:3] for w in (0.0, 0.4)}
    assert order[0.0] == ["a/one.md#top", "a/two.md", "a/one.md#end"]
    assert order[0.4] == ["a/one.md#top", "a/one.md#end", "a/two.md"]


def test_passages_that_are_documents_of_their_own_keep_their_scores():
    pool = [replace(p, id=p.id.replace("#", "-")) for p in POOL]
    before, after = rank_pool(pool, TUNING), rank_pool(pool, replace(TUNING, document_weight=0.8))
    assert [(p.id, round(p.score, 9)) for p in before] == [(p.id, round(p.score, 9)) for p in after]


@given(st.integers(2, 12), st.floats(0, 1), st.floats(0, 1))
def test_at_most_k_passages_come_back_best_first(k, weight, penalty):
    found = rank_pool(POOL, replace(TUNING, k=k, dense_weight=weight, stale_penalty=penalty))
    assert len(found) == min(k, len(POOL))
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)


def test_queries_take_turns_and_nothing_comes_twice():
    assert [p.id[-1] for p in interleave([POOL[:3], POOL[1:5]])] == ["0", "1", "2", "3", "4"]
