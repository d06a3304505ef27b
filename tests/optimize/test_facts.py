"""A text states a fact: laws and the spellings that count as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.labelled.facts import is_bare_numeral, normal, spans_a_boundary, states

WORDS = st.from_regex(r"[a-z]{2,9}( [a-z]{2,9}){0,3}", fullmatch=True)
ANY_TEXT = st.text(max_size=60)
WHOLE = st.integers(min_value=0, max_value=999_999)
SMALL = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def in_words(n: int) -> str:
    """The English name of 0 to 9999."""
    if n < 20:
        return SMALL[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{SMALL[n % 10]}" if n % 10 else "")
    size, name = (100, "hundred") if n < 1000 else (1000, "thousand")
    joint = " and " if n % size < 100 else " "
    return f"{in_words(n // size)} {name}" + (joint + in_words(n % size) if n % size else "")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("a 30-day window", "30 days"),
        ("Within THIRTY\n days of paying", "30 days"),
        ("It costs £45 a year.", "GBP 45"),
        ("It costs GBP 45.00.", "£45"),
        ("45 pounds, please", "GBP 45"),
        ("GBP 4.50 a month", "£4.5"),
        ("EUR 1,250", "€1250"),
        ("1,000 events", "1000"),
        ("two hundred and fifty rows", "250 rows"),
        ("15 percent off", "15 per cent"),
        ("15% off", "15 per cent"),
        ("down to −20 °C", "-20"),
        ("down to minus 20", "-20"),
        ("4–6 working days", "4 to 6 working days"),
        ("a 9V battery", "9 V"),
        ("within 10 m", "10 metres"),
        ("on the 31st March 2027", "31 March 2027"),
        ("at 09:00", "9:00"),
        ("| Porter | 140 degrees |", "140 degrees"),
        ("**Ruth Amankwah** leads it", "Ruth Amankwah"),
        ("the Warden 3 Euro", "Euro"),
        ("Maple & Main Logistics", "Maple and Main Logistics"),
        ("order TG-40433", "TG-40433"),
        ("2½ hours", "2.5 hours"),
        ("the site's owner", "site owner"),
    ],
)
def test_spellings_of_the_same_value_count_as_one(text: str, fact: str) -> None:
    assert states(text, fact)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("18 doors", "8"),
        ("8.5 doors", "8"),
        ("8:30", "8"),
        ("-8 C", "8"),
        ("1,008 doors", "8"),
        ("1/8 inch", "8"),
        ("E8 and 8x and 3fa8", "3"),
        ("30 calendar days", "30 days"),
        ("It costs 8. Days later it broke.", "8 days"),
        ("| 8 | days |", "8 days"),
        ("GBP 50", "GBP 5"),
        ("GBP 5.50", "GBP 5"),
        ("EUR 45", "GBP 45"),
        ("promote", "Pro"),
        ("forty, five", "45"),
        ("30 days", ""),
        ("30 days", "!?"),
        ("", "30 days"),
    ],
)
def test_a_part_of_a_number_or_word_is_not_stated(text: str, fact: str) -> None:
    assert not states(text, fact)


def test_one_alternative_is_enough() -> None:
    assert states("in two weeks", ["14 days", "two weeks"])
    assert not states("in two months", ["14 days", "two weeks"])
    assert not states("anything", [])


@given(before=ANY_TEXT, fact=WORDS, after=ANY_TEXT)
def test_a_sentence_states_itself_whatever_surrounds_it(before: str, fact: str, after: str) -> None:
    assert states(f"{before}\n\n{fact}. {after}", fact)


@given(text=ANY_TEXT)
def test_what_is_stated_survives_case_and_white_space(text: str) -> None:
    if normal(text).strip(" ."):
        assert states(text, text)
        assert states(f"  {text}\t", text)


@given(n=WHOLE, unit=st.sampled_from(["days", "doors", "GBP"]))
def test_thousands_commas_do_not_matter(n: int, unit: str) -> None:
    assert states(f"up to {n:,} {unit} now", f"{n} {unit}")
    assert states(f"up to {n} {unit} now", f"{n:,} {unit}")


@given(n=st.integers(0, 9999))
def test_a_number_in_words_is_its_digits(n: int) -> None:
    assert states(f"within {in_words(n)} days", f"{n} days")
    assert states(f"within {n} days", f"{in_words(n)} days")


@given(n=st.integers(0, 99_999), m=st.integers(0, 99_999))
def test_a_number_states_only_itself(n: int, m: int) -> None:
    assert states(f"exactly {n} doors", str(m)) == (n == m)
    assert states(f"exactly {n}.5 doors", str(m)) is False


@given(text=ANY_TEXT)
def test_normalising_never_fails_and_keeps_its_frame(text: str) -> None:
    assert normal(text).startswith(" ") and normal(text).endswith(" ")


def test_a_number_in_words_by_itself_is_stated_by_that_word_alone() -> None:
    assert states("There are three.", "three") and states("Twenty-five of them", "twenty five")
    assert not states("Room 3", "three") and not states("3 rooms", "three")
    assert not states("twenty-five rooms", "twenty") and not states("twenty-five rooms", "five")
    assert not states("three hundred", "three") and states("one hundred and five.", "One hundred five")
    assert not is_bare_numeral("and") and not is_bare_numeral("3") and is_bare_numeral("twenty-five")
    assert states("3 rooms", "three rooms") and states("three rooms", "3 rooms") and states("three rooms", "3")


def test_a_fact_that_only_a_boundary_parts_is_known() -> None:
    assert spans_a_boundary("| Rowan | 4 beds |", "Rowan 4 beds")
    assert not spans_a_boundary("| Rowan | 4 beds |", "4 beds")
    assert not spans_a_boundary("| Rowan | 4 beds |", "Birch 4 beds")
