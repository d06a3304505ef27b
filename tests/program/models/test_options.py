"""The question back: options of one kind, as the passages name them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.models.embedded.encoder import shared_embedder
from program.models.rules.gaps import clarify
from program.signatures import Excerpt

PLANS = "| Plan | A month |\n|---|---|\n| Basic | GBP 4 |\n| Plus | GBP 9 |\n| Business | GBP 30 |\n"
FITTING = "Fitting a Merle kettle costs GBP 79, a Wren kettle GBP 45. Orders to Ireland or France cost GBP 12 more."


def excerpts(*passages):
    return [Excerpt(n=n, base="b", title=title, text=text) for n, (title, text) in enumerate(passages, 1)]


def asked(question, *passages):
    return clarify(question, excerpts(*passages), shared_embedder())


def test_rows_of_a_table_are_options_and_its_first_column_says_of_what():
    assert asked("How much does it cost?", ("Prices", PLANS), ("Having it fitted", FITTING)) == (
        "Which plan do you mean: Basic, Plus or Business?"
    )


def test_names_listed_beside_each_other_are_of_one_kind_and_nothing_else_is_offered_with_them():
    found = asked(
        "How long is the guarantee?",
        ("Guarantee for Basic and Plus", "On Basic and Plus it is two years. Claims go to Leith."),
        ("Guarantee for Business", "Business sites have five years. Flooding is covered on neither Plus nor Business."),
    )
    assert found == "Do you mean Basic, Plus or Business?"


def test_columns_of_a_table_are_options_when_prose_names_them():
    table = "The Merle 2 and the Merle 3.\n\n| | Merle 2 | Merle 3 |\n|---|---|---|\n| Weight | 410 g | 480 g |\n| Cells | 4 | 8 |\n"
    assert asked("What does it weigh?", ("The family side by side", table)) == "Do you mean Merle 2 or Merle 3?"


def test_a_name_is_not_offered_beside_its_own_cases():
    found = asked(
        "Can I pause it?",
        ("Pausing", "Home Free and Home Plus can be paused for a month. Customers on Home and Pro write to us."),
        ("Pausing a Pro site", "A Pro site can be paused for two months."),
    )
    assert found == "Do you mean Home Free, Home Plus or Pro?"


def test_a_way_through_menus_is_no_choice():
    found = asked(
        "Can I cancel?",
        ("Lost codes", "New codes are under Settings, Safety, Codes."),
        ("Invoices", "Cancel an invoice under Settings, Billing."),
    )
    assert found == "Which of these is it about: Lost codes or Invoices?"


def test_what_the_question_names_is_not_asked_for_again():
    found = asked("What does Basic cost by the month or year?", ("Prices", PLANS))
    assert "Basic" not in found and "Plus or Business" in found


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=80)), max_size=3))
@pytest.mark.filterwarnings("ignore")
def test_whatever_was_found_the_question_back_is_one_sentence(passages):
    found = asked("How much?", *passages)
    assert found.endswith("?") and found.split()[0] in {"Which", "Do"}
