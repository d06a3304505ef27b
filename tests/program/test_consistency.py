"""Passages that may contradict each other."""

from datetime import date

from hypothesis import given
from hypothesis import strategies as st
from scripted import passage

from program.loop.evidence import find_suspects, order_conflict

FOURTEEN = "You can ask for a refund within 14 days of delivery."
THIRTY = "You can ask for a refund within 30 days of delivery."
texts = st.lists(st.sampled_from([FOURTEEN, THIRTY, "Nothing to see.", "Ring 3 times.", ""]), max_size=6)


def test_the_same_statement_with_another_number_is_suspect():
    (pair,) = find_suspects([passage("a/1", FOURTEEN), passage("a/2", THIRTY)])
    assert {pair.followed.id, pair.overruled.id} == {"a/1", "a/2"}


def test_the_same_number_or_another_subject_is_not():
    assert find_suspects([passage("a/1", THIRTY), passage("a/2", f"{THIRTY} By card.")]) == []
    assert find_suspects([passage("a/1", THIRTY), passage("a/2", "The kettle holds 2 litres of cold water.")]) == []


def test_what_is_not_superseded_then_official_then_newer_is_followed():
    old = passage("a/1", as_of=date(2024, 1, 1))
    new = passage("a/2", as_of=date(2026, 1, 1))
    gone = passage("a/3", as_of=date(2026, 6, 1), superseded_by="a/4")
    official = passage("a/5", as_of=date(2023, 1, 1), authority=3)
    assert (order_conflict(old, new).followed, order_conflict(old, new).reason) == (new, "newer")
    assert order_conflict(new, gone).followed == new
    assert (order_conflict(official, new).followed, order_conflict(official, new).reason) == (official, "more official")


@given(texts)
def test_suspects_are_few_and_of_two_different_passages(found):
    passages = [passage(f"a/{n}", text) for n, text in enumerate(found)]
    pairs = find_suspects(passages)
    assert len(pairs) <= 3
    assert all(pair.followed.text != pair.overruled.text for pair in pairs)
