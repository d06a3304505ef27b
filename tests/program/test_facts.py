"""A text states a fact: laws and the spellings that count as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.text.facts import holds, is_bare_numeral, spans_boundary, states

WORDS = st.from_regex(r"[a-z]{2,9}( [a-z]{2,9}){0,3}", fullmatch=True)
ANY_TEXT = st.text(max_size=60)
SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(n):
    """Return the English name of 0 to 9999."""
    if n < 20:
        return SMALL[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{SMALL[n % 10]}" if n % 10 else "")
    size, name = (100, "hundred") if n < 1000 else (1000, "thousand")
    joint = " and " if n % size < 100 else " "
    return f"{in_words(n // size)} {name}" + (joint + in_words(n % size) if n % size else "")


SAME = """a 30-day window = 30 days|It costs £45 a year. = GBP 45|It costs GBP 45.00. = £45|45 pounds, please = GBP 45
GBP 4.50 a month = £4.5|15% off = 15 per cent|down to −20 °C = -20|down to minus 20 = -20|a 9V battery = 9 V
4–6 working days = 4 to 6 working days|within 10 m = 10 metres|on the 31st March 2027 = 31 March 2027|at 09:00 = 9:00
Maple & Main Logistics = Maple and Main Logistics|2½ hours = 2.5 hours|the site's owner = site owner
There are three. = three|3 rooms = three rooms|three rooms = 3""".replace("\n", "|").split("|")
OTHER = """18 doors = 8|8.5 doors = 8|8:30 doors = 8|-8 doors = 8|1,008 doors = 8|1/8 doors = 8
30 calendar days = 30 days|It costs 8. Days later it broke. = 8 days|GBP 50 = GBP 5|EUR 45 = GBP 45|promote = Pro|forty, five = 45
Room 3 = three|twenty-five rooms = five|three hundred = three""".replace("\n", "|").split("|")


@pytest.mark.parametrize("pair", SAME)
def test_spellings_of_the_same_value_count_as_one(pair):
    text, fact = pair.split(" = ")
    assert states(text, fact) and states(text, ["nothing of the kind", fact])


@pytest.mark.parametrize("pair", [*OTHER, "| 8 | days | = 8 days", "30 days = "])
def test_a_part_of_a_number_or_word_is_not_stated(pair):
    text, fact = pair.split(" = ")
    assert not states(text, fact)


@given(before=ANY_TEXT, fact=WORDS, after=ANY_TEXT)
def test_a_sentence_states_itself_whatever_surrounds_it(before, fact, after):
    assert states(f"{before}\n\n{fact}. {after}", fact)


@given(n=st.integers(0, 999_999), unit=st.sampled_from(["days", "doors", "GBP"]))
def test_thousands_commas_do_not_matter(n, unit):
    assert states(f"up to {n:,} {unit} now", f"{n} {unit}")
    assert states(f"up to {n} {unit} now", f"{n:,} {unit}")


@given(n=st.integers(0, 9999))
def test_a_number_in_words_is_its_digits(n):
    assert states(f"within {in_words(n)} days", f"{n} days")
    assert states(f"within {n} days", f"{in_words(n)} days")
    assert is_bare_numeral(in_words(n)) and not is_bare_numeral(str(n)) and not is_bare_numeral("and")


@given(n=st.integers(0, 99_999), m=st.integers(0, 99_999))
def test_a_number_states_only_itself(n, m):
    assert states(f"exactly {n} doors", str(m)) == (n == m)
    assert states(f"exactly {n}.5 doors", str(m)) is False


def test_a_fact_that_only_a_boundary_parts_is_known():
    assert spans_boundary("| Rowan | 4 beds |", "Rowan 4 beds")
    assert not spans_boundary("| Rowan | 4 beds |", "4 beds")
    assert not spans_boundary("| Rowan | 4 beds |", "Birch 4 beds")


@pytest.mark.parametrize(
    ("text", "claim", "held"),
    [
        ("Each visitor has a PIN of seven digits.", "A PIN has 7 digits.", True),
        ("Sums above GBP 1,200 are approved by Ann Lee.", "Sums above £1200 must be approved by Ann Lee.", True),
        ("It costs GBP 1,000 and weighs 4.50 kg.", "It weighs 4.5 kilograms.", True),
        ("It costs GBP 1,000 and weighs 4.50 kg.", "It weighs 4.5 pounds.", False),
        ("It costs GBP 1,000 and weighs 4.50 kg.", "It costs EUR 1,000.", False),
        ("It costs GBP 1,000 and weighs 4.50 kg.", "It costs GBP 1,000 in York.", False),
        ("It costs GBP 1,000 and weighs 4.50 kg.", "Buy now and save on every later order of the year.", False),
    ],
)
def test_a_claim_is_held_by_its_numbers_units_names_and_most_of_its_words(text, claim, held):
    assert holds(text, claim, 0.5) is held
    assert holds(text, text, 1.0)
