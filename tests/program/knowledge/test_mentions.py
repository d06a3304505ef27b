from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program.knowledge.index.mentions import Key, Lexicon, aliases, key, shared


def names(text: str) -> set[Key]:
    return shared([text, text])


@pytest.mark.parametrize(
    ("title", "also"),
    [
        ("Humboldt Peak (Colorado)", "humboldt peak"),
        ("Rochester, New York", "rochester"),
        ("The Rank Organisation", "rank organisation"),
        ("Plans > Home Plus", "home plus"),
        ("Plans > Home Plus", "plans"),
        ("Léopold Standaert", "leopold standaert"),
    ],
)
def test_a_title_goes_by_its_shorter_names_too(title: str, also: str) -> None:
    found = aliases(title)
    assert 0 < found[key(also)] <= 1


def test_a_few_words_of_a_long_title_hardly_name_it() -> None:
    found = aliases("Alcohol: its consumption in nine regions and what came of it")
    assert found[key("alcohol")] < 0.1


def test_function_words_and_bare_numbers_name_nothing() -> None:
    assert aliases("It") == aliases("2024") == aliases("") == {}


def test_names_are_capitalised_spans_code_and_what_is_set_off() -> None:
    found = names(
        "He met Ada King of Lovelace. Then set max_rounds, say `retry limit` or **grace period**. However, no."
    )
    assert {key("Ada King of Lovelace"), key("max_rounds"), key("retry limit"), key("grace period")} <= found
    assert key("However") not in found and key("He") not in found and key("Then") not in found


def test_a_name_is_shared_from_two_texts_on() -> None:
    found = shared(["He saw Oslo today.", "They left Oslo by bus.", "We like Bergen too."])
    assert key("Oslo") in found and key("Bergen") not in found


def test_a_list_of_names_is_several_names() -> None:
    found = names("It lies in Beitbridge District and Gwanda District, Zimbabwe, as Harold and Tostig Godwinson say.")
    assert {key("Beitbridge District"), key("Gwanda District"), key("Zimbabwe"), key("Tostig Godwinson")} <= found


def test_months_and_days_are_no_names() -> None:
    assert names("He came in April and left on a Tuesday.") == set()


def test_a_word_that_is_mostly_written_small_is_no_name() -> None:
    texts = ["We like the Report today.", "He read the Report too.", "a report", "the report", "one more report"]
    assert key("Report") not in shared(texts)
    assert key("Report") in shared(texts[:4])


@pytest.mark.parametrize("name", ["M. Ward", "J. R. R. Tolkien", "St. Vincent"])
def test_a_point_after_an_initial_ends_no_name(name: str) -> None:
    lexicon = Lexicon([key(name)])
    assert lexicon.find(f"An album by {name}, from 2003.") == [0]
    assert key(name) in names(f"An album by {name} is out.")


def test_a_name_inside_a_longer_one_is_found_after_a_comma_or_a_joining_word() -> None:
    lexicon = Lexicon([key("Kingston, Jamaica"), key("Jamaica"), key("New York City"), key("York City")])
    found = [lexicon.keys[n] for n in lexicon.find("from Kingston, Jamaica to New York City")]
    assert found == [key("Kingston, Jamaica"), key("Jamaica"), key("New York City")]


def test_the_longest_name_at_a_place_is_found_whatever_its_case() -> None:
    lexicon = Lexicon([key("New York"), key("New York City"), key("York")])
    assert [lexicon.keys[n] for n in lexicon.find("from new york city's harbour to York, and New York.")] == [
        key("New York City"),
        key("York"),
        key("New York"),
    ]


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_title_is_found_in_any_text_that_holds_it_between_stops(before: str, after: str) -> None:
    lexicon = Lexicon([key("Kraus House")])
    assert lexicon.find(f"{before}. Kraus House. {after}")
