"""What is in force on the day that a question is about: the day of asking, or the year that it names."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.loop.evidence import ALIKE, drop_superseded, measure_dispute
from ragc.passage import Passage
from tests.support.documents import open_documents

ABOUT = "what things cost and when they are"
FARE = "# Fares\n\nA single ticket of the ferry costs {} euros.\n"
REPLACED = {
    "a.md": f"---\nas_of: 2025-01-01\n---\n{FARE.format('3.20')}",
    "b.md": f"---\nas_of: 2027-01-01\nsupersedes: docs/a.md\n---\n{FARE.format('3.80')}",
}
NAMED = {
    "fares-2024.md": FARE.format("2.90"),
    "2026/fares.md": FARE.format("3.40"),
    "fares-2027.md": FARE.format("3.80"),
}
TODAY, LATER = date(2026, 11, 28), date(2027, 3, 1)
COST = "What does a single ticket of the ferry cost?"
ASKED = [
    (REPLACED, COST, TODAY, "3.20", "3.80 euros [2] (from 1 January 2027)"),
    (REPLACED, COST, LATER, "3.80", None),
    (REPLACED, "What did a single ticket of the ferry cost in 2025?", TODAY, "3.20", None),
    (REPLACED, "What will a single ticket of the ferry cost in 2027?", TODAY, "3.80", None),
    (NAMED, COST, TODAY, "3.40", "3.80 euros [3] (from 1 January 2027)"),
    (NAMED, COST, date(2025, 5, 1), "2.90", "(from 1 January 2026"),
    (NAMED, "What did a single ticket of the ferry cost in 2024?", TODAY, "2.90", None),
]


@pytest.mark.parametrize(("files", "question", "today", "first", "then"), ASKED)
def test_what_is_in_force_comes_first_and_what_begins_later_behind_it_with_its_day(
    tmp_path, files, question, today, first, then
):
    text = open_documents(tmp_path, files, ABOUT)(question, today=today).text
    told = [value for value in sorted(("2.90", "3.20", "3.40", "3.80"), key=text.find) if value in text]
    assert told[0] == first, text
    assert (then in text) if then else (len(told) == 1), text


days = st.dates(date(2020, 1, 1), date(2030, 12, 31))


@given(st.lists(days, min_size=1, max_size=5, unique=True).map(sorted), days)
def test_of_a_chain_of_documents_that_replace_each_other_the_one_in_force_and_what_begins_later_stay(since, today):
    paths = [f"docs/{n}.md" for n in range(len(since))]
    pool = [
        Passage(f"{path}#x", "docs", "t", "x", as_of=day, superseded_by=after)
        for path, day, after in zip(paths, since, [*paths[1:], ""], strict=True)
    ]
    stays = [passage.as_of for passage in drop_superseded(pool, (), today)]
    begun = [day for day in since if day <= today]
    assert stays == [*begun[-1:], *(day for day in since if day > today)]


PLANS = {
    "plans.csv": "Plan,Price,Valid from,Valid to\nHome,GBP 20,2025-01-01,2025-12-31\nHome,GBP 24,2026-01-01,\n"
    "Home,GBP 27,2027-01-01,\nOffice,GBP 40,2026-01-01,\n"
}
FEES = {f"{year}.md": f"# Fee\n\nThe joining fee is {fee} euros." for year, fee in ((2024, 10), (2025, 12), (2026, 15))}


def test_of_rows_with_their_days_those_in_force_speak(tmp_path):
    text = open_documents(tmp_path, PLANS, ABOUT)("What does the Home plan cost?", today=TODAY).text
    assert text == "Home, Price: GBP 24 [1]. Home, Price: GBP 27 [2] (from 1 January 2027)."


spellings = st.sampled_from(
    [("2", "two"), ("3", "three"), ("14", "fourteen"), ("25", "twenty-five"), ("1,200", "1200")]
)


@given(spellings, spellings, st.booleans(), st.booleans())
def test_two_statements_dispute_where_their_numbers_differ_however_they_are_spelt(one, other, first, second):
    text = "A tenant gives {} months' notice in writing."
    disputed = measure_dispute(text.format(one[first]), text.format(other[second])) >= ALIKE
    assert disputed == (one != other)


def test_several_sources_that_say_otherwise_are_named_once(tmp_path):
    text = open_documents(tmp_path, FEES, ABOUT)("What is the joining fee?", today=TODAY).text
    assert text.endswith("15 euros [1] (from 1 January 2026; another source says otherwise [2] [3]).")
