"""From pools to the passages a writer sees: ranked, current, in agreement, and within bounds."""

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted import Scripted, passage

from program.loop.claims import split_claims
from program.loop.evidence import order_conflict, rank_pool, read_need
from program.loop.grounding import cite_passages
from program.loop.policy import Policy
from program.loop.state import Need

TUNING = Policy().tuning()
RANKED = [passage(f"a/b.md#{n}", dense=1 - n / 10) for n in range(6)]


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
    assert rank_pool(pool, replace(TUNING, **knobs), {"a": 0.9, "b": 0.1}, timely=True)[0].id == best


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
