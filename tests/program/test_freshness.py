"""How current evidence must be, and how much of it is."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import passage

from program.loop.freshness import Need, freshness, is_stale, need, newest_of, youth

NEWEST = date(2026, 11, 1)
dated = st.builds(
    lambda n, day, old: passage(f"a/b#{n}", as_of=day, superseded_by=old),
    st.integers(0, 99),
    st.none() | st.dates(date(2020, 1, 1), NEWEST),
    st.sampled_from(["", "a/new.md"]),
)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("What are the latest release notes?", Need(True)),
        ("Is the office open at the moment?", Need(True)),
        ("Which offers run this year?", Need(True)),
        ("What did Home Plus cost in 2025?", Need(False, 2025)),
        ("How thick a door does it fit?", Need()),
        ("How do I renew my plan?", Need()),
        ("What is known about knowledge bases?", Need()),
    ],
)
def test_a_question_says_itself_how_fresh_its_evidence_must_be(question, wanted):
    assert need(question) == wanted


def test_a_superseded_page_is_stale_unless_its_own_year_is_asked_about():
    old = passage("a/b#1", as_of=date(2024, 5, 1), superseded_by="a/new.md")
    assert is_stale(old, Need(), NEWEST)
    assert not is_stale(old, Need(year=2024), NEWEST)
    assert is_stale(old, Need(year=2025), NEWEST)


def test_age_alone_makes_a_page_stale_only_for_a_timely_question():
    old = passage("a/b#1", as_of=date(2024, 5, 1))
    assert not is_stale(old, Need(), NEWEST)
    assert is_stale(old, Need(timely=True), NEWEST)
    assert not is_stale(passage("a/b#2"), Need(timely=True), NEWEST)


@given(st.lists(dated), st.booleans(), st.none() | st.integers(2020, 2026))
def test_freshness_is_a_share_and_the_newest_is_the_youngest(passages, timely, year):
    assert 0.0 <= freshness(passages, Need(timely, year), newest_of(passages)) <= 1.0
    young = youth(passages)
    assert all(0.0 <= value <= 1.0 for value in young)
    newest = newest_of(passages)
    assert all(value == 1.0 for p, value in zip(passages, young, strict=True) if newest and p.as_of == newest)
