"""From pools to the passages a writer sees: ranked, current, in agreement, and within bounds."""

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted import Scripted, passage

from program.loop.claims import split_claims
from program.loop.evidence import Pool, find_suspects, interleave, order_conflict, rank_pool, read_need
from program.loop.grounding import cite_passages
from program.loop.policy import Policy
from program.loop.state import Need

TUNING = Policy().tuning()
RANKED = [passage(f"a/b.md#{n}", dense=1 - n / 10) for n in range(6)]
FOURTEEN = "You can ask for a refund within 14 days of delivery."
THIRTY = "You can ask for a refund within 30 days of delivery."


@pytest.mark.parametrize(
    ("changed", "knobs", "best"),
    [
        ({"superseded_by": "a/new.md"}, {}, "a/b.md#0"),
        ({"superseded_by": "a/new.md"}, {"stale_penalty": 0.5}, "a/b.md#1"),
        ({"authority": 1}, {"informal_penalty": 0.5}, "a/b.md#1"),
        ({"source": "b"}, {"base_prior": 1.0}, "a/b.md#1"),
        ({"as_of": date(2020, 1, 1)}, {"recency": 1.0}, "a/b.md#2"),
    ],
)
def test_a_passage_loses_or_gains_by_its_date_authority_and_base(changed, knobs, best):
    pool = [replace(RANKED[0], **changed), RANKED[1], replace(RANKED[2], as_of=date(2026, 1, 1)), *RANKED[3:]]
    tuning = replace(TUNING, **knobs)
    for given_ in (pool, Pool(pool)):  # a pool that remembers its rankings gives the same, also the second time
        assert rank_pool(given_, tuning, {"a": 0.9, "b": 0.1}, timely=True)[0].id == best
        assert rank_pool(given_, tuning, {"a": 0.9, "b": 0.1}, timely=True)[0].id == best


def test_a_passage_gains_from_the_best_of_its_document_and_a_single_one_keeps_its_score():
    scored = [("a/one.md#top", 0.9), ("a/two.md", 0.5), ("a/one.md#end", 0.4), ("a/b.md#5", 0.0)]
    pool = [passage(id, dense=score) for id, score in scored]
    order = {w: [p.id for p in rank_pool(pool, replace(TUNING, document_weight=w))][:3] for w in (0.0, 0.4)}
    assert order[0.0] == ["a/one.md#top", "a/two.md", "a/one.md#end"]
    assert order[0.4] == ["a/one.md#top", "a/one.md#end", "a/two.md"]


@given(st.integers(2, 12), st.floats(0, 1), st.floats(0, 1))
def test_at_most_k_passages_come_back_best_first(k, weight, penalty):
    found = rank_pool(RANKED, replace(TUNING, k=k, dense_weight=weight, stale_penalty=penalty))
    assert len(found) == min(k, len(RANKED))
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)


def test_queries_take_turns_and_nothing_comes_twice():
    assert [p.id[-1] for p in interleave([RANKED[:3], RANKED[1:5]])] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(("least", "most"), [(0, 1), (1, 2), (2, 6), (4, 4)])
@pytest.mark.parametrize("helping", ["", "2", "12", "01234"])
def test_what_is_kept_is_within_its_bounds_and_in_the_order_it_was_found(least, most, helping):
    program = Scripted(
        pool=[replace(p, source="product") for p in RANKED],
        replies={"relevant": lambda inputs: 0.9 if inputs["passage"]["title"][-1] in helping else 0.1},
        keep_at_least=least,
        keep_at_most=most,
    )
    kept = [id[-1] for id in program().retrieved]
    assert kept == sorted(kept) and min(least, most) <= len(kept) <= most
    assert set(helping) <= set(kept) or len(helping) > most


@pytest.mark.parametrize(
    ("question", "need"),
    [
        ("What are the latest release notes?", Need(True)),
        ("Which offers run this year?", Need(True)),
        ("What did Home Plus cost in 2025?", Need(False, 2025)),
        ("How do I renew my plan?", Need()),
        ("What is known about knowledge bases?", Need()),
    ],
)
def test_a_question_says_itself_how_fresh_its_evidence_must_be(question, need):
    assert read_need(question) == need


@pytest.mark.parametrize(
    ("question", "old", "freshness"),
    [
        ("What does it cost?", {"superseded_by": "a/new.md"}, 0.5),
        ("What did it cost in 2024?", {"superseded_by": "a/new.md"}, 1.0),
        ("What did it cost in 2025?", {}, 0.5),
        ("What does it cost now?", {}, 0.5),
        ("What does it cost?", {}, 1.0),
    ],
)
def test_a_page_is_out_of_date_when_it_was_superseded_or_is_too_old_for_the_question(question, old, freshness):
    pool = [passage("product/a", as_of=date(2024, 5, 1), **old), passage("product/b", as_of=date(2026, 11, 1))]
    assert Scripted(pool=pool)(question).rounds[0].freshness == freshness


def test_the_same_statement_with_another_number_is_suspect_and_another_subject_is_not():
    (pair,) = find_suspects([passage("a/1", FOURTEEN), passage("a/2", THIRTY)])
    assert {pair.followed.id, pair.overruled.id} == {"a/1", "a/2"}
    assert find_suspects([passage("a/1", THIRTY), passage("a/2", f"{THIRTY} By card.")]) == []
    assert find_suspects([passage("a/1", THIRTY), passage("a/2", "The kettle holds 2 litres of cold water.")]) == []
    assert len(find_suspects([passage(f"a/{n}", FOURTEEN.replace("14", str(n))) for n in range(6)])) == 3


def test_what_is_not_superseded_then_official_then_newer_is_followed():
    old = passage("a/1", as_of=date(2024, 1, 1))
    new = passage("a/2", as_of=date(2026, 1, 1))
    gone = passage("a/3", as_of=date(2026, 6, 1), superseded_by="a/4")
    official = passage("a/5", as_of=date(2023, 1, 1), authority=3)
    assert (order_conflict(old, new).followed, order_conflict(old, new).reason) == (new, "newer")
    assert order_conflict(new, gone).followed == new
    assert (order_conflict(official, new).followed, order_conflict(official, new).reason) == (official, "more official")


@given(st.text(alphabet="ab .[]0123456789", max_size=60))
@example("[[0]0]")
@example("[[0]1]")
def test_every_mark_left_in_an_answer_has_its_citation_and_no_text_is_lost_in_splitting_it(answer):
    text, citations = cite_passages(answer, RANKED[:3])
    known = {c.n for c in citations}
    assert known == set(range(1, len(citations) + 1))
    assert {n for claim in split_claims(text) for n in claim.cites} <= known
    joined = "".join(claim.text for claim in split_claims(answer))
    assert "".join(joined.split()) == "".join(answer.split())


def test_an_answer_is_split_at_its_marks():
    found = split_claims("One thing. [1] Another thing. [2][3] And more.")
    assert [(c.bare, c.cites) for c in found] == [("One thing.", (1,)), ("Another thing.", (2, 3)), ("And more.", ())]
