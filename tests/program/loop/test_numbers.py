"""The numbers of a statement: each stands in a source or is worked out from such, or it is found out."""

import operator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ragc.text.numbers import ROUNDED, list_unstated

SOURCE = "The fee is GBP 12, and GBP 5 more after 3 days. It holds 1.7 litres, draws 2,200 watts and saves 15 %."


@pytest.mark.parametrize(
    "statement",
    [
        *("The fee is GBP 12.", "The fee is £12.", "It draws 2200 watts.", "It holds 1.70 litres.", "It is 15%."),
        *("No number at all.", "Some two or three hundred fees."),
        *("1. It is GBP 12.\n2. After 3 days GBP 5.", "It takes three days."),
    ],
)
def test_what_the_source_states_in_whatever_form_is_stated_and_numbers_in_words_are_not_counted(statement):
    assert list_unstated(statement, [SOURCE]) == set()


@pytest.mark.parametrize(
    ("statement", "unstated"),
    [
        ("The fee is GBP 13.", {"13"}),
        ("It holds 17 litres and draws 2.2 watts.", {"17", "2.2"}),
        ("It holds 7 litres.", {"7"}),
        ("Article AX77 costs GBP 12.", {"ax77"}),
        ("GBP 12 on 3 May 2026.", {"2026"}),
    ],
)
def test_a_number_or_a_code_that_no_source_states_is_found_out(statement, unstated):
    assert list_unstated(statement, [SOURCE]) == unstated


@pytest.mark.parametrize(
    ("statement", "passes"),
    [
        *(
            (text, True)
            for text in ("12 + 5 = 17", "GBP 12 + GBP 5 = GBP 17", "£12 + £5 = £17", "12 days x 3 = 36 days")
        ),
        *((text, True) for text in ("12 − 5 = 7", "12 / 5 = 2.4", "12 ÷ 3 = 4", "12 + 5 x 3 = 27", "12 * 5 + 3 = 63")),
        *(
            (text, True)
            for text in ("2,200 x 3 = 6,600", "12 + 5 = 17, and 17 x 3 = 51", "5 / 3 = 1.67", "5/12 = 0.42")
        ),
        *((text, False) for text in ("12 + 5 = 18", "12 x 3 = 35", "12 + 6 = 18", "12 / 0 = 12.5", "17 x 3 = 51")),
        *((text, False) for text in ("It is 17.", "12 and 5 make 17.", "17 = 12 + 5", "5 - 12 = 7")),
    ],
)
def test_what_is_worked_out_before_the_readers_eyes_passes_where_the_sum_is_right(statement, passes):
    assert (list_unstated(statement, [SOURCE]) == set()) is passes


NAMES = st.sampled_from(["", " late fee", " (fee)", " [1]", " €", " (a fee, say)", "**"])
BRACKETS = st.sampled_from(["{0} + {1} x {2}", "({0} + {1}) x {2}", "{0} x ({1} + {2})", "(({0} + {1}) + {2})"])


@given(st.tuples(*[st.integers(2, 99)] * 3), NAMES, BRACKETS, st.sampled_from("=≈"), st.integers(2, 9))
def test_a_sum_passes_with_names_marks_and_brackets_and_only_as_a_whole(terms, name, shape, equals, off):
    right = eval(shape.format(*terms).replace("x", "*"))
    said = shape.format(*(f"GBP {one}{name}" for one in terms))
    sources = [f"One is {one}." for one in terms]
    assert list_unstated(f"Over 5 days (all of them) {said} {equals} GBP **{right}** [2].", [*sources, "2, 5"]) == set()
    wrong = right * off + 1
    assert str(wrong) in list_unstated(f"{said} {equals} {wrong}", [*sources, "1"])
    assert str(right) in list_unstated(f"1000 + {said} {equals} {right}", [*sources, "1, 1000"])


@pytest.mark.parametrize(
    ("statement", "passes"),
    [
        *((text, True) for text in ("12 % x 5 = 0.6", "5 x 12 % = GBP 0.60", "5 % + 12 % = 17 %", "GBP12+GBP5=GBP17")),
        *((text, False) for text in ("12 % x 5 = 60", "3 + 12 + 5 = 17", "(12 + 5 x 3 = 51", "12 5 = 17")),
        *(
            (text, False)
            for text in (") = 17", "12 + = 17", "12 + 5. = 17", f"{'(3 x ' * 4000}5{')' * 4000} = 17", "( ) = 17")
        ),
    ],
)
def test_a_share_is_of_a_hundred_and_what_is_no_whole_sum_gives_nothing(statement, passes):
    assert (list_unstated(statement, [SOURCE]) == set()) is passes


DATES = ["3 November 2026", "November 3, 2026", "2026-11-03", "3rd November 2026", "03.11.2026", "03/11/2026"]


@pytest.mark.parametrize("stated", DATES)
@pytest.mark.parametrize("said", DATES)
def test_a_date_may_be_said_in_another_form_and_no_other_day(stated, said):
    assert list_unstated(f"It opens on {said}.", [f"Opening day: {stated}"]) == set()
    other = said.replace("3", "4", 1)
    assert list_unstated(f"It opens on {other}.", [f"Opening day: {stated}"])


NUMBERS = st.integers(2, 9999)
SIGNS = {"+": operator.add, "-": operator.sub, "x": operator.mul, "/": operator.truediv}


@given(NUMBERS, NUMBERS, st.sampled_from([*SIGNS]), st.sampled_from(["", "GBP ", "£"]), st.floats(1.1, 9.0))
def test_a_right_sum_of_stated_numbers_passes_and_a_wrong_one_never(a, b, sign, unit, off):
    right = SIGNS[sign](max(a, b), min(a, b))
    assume(right > ROUNDED)
    said = f"{unit}{max(a, b)} {sign} {unit}{min(a, b)} = {unit}"
    sources = [f"One is {a}.", f"The other is {b}."]
    assert list_unstated(f"{said}{right:.4f} in all", sources) == set()
    wrong = f"{right * off + 1:.3f}1"
    assert list_unstated(f"{said}{wrong} in all", sources) == {wrong}
    assert list_unstated(f"{said}{right:.4f} in all", sources[:1]) or a == b


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.lists(NUMBERS, max_size=5))
def test_exactly_the_numbers_that_stand_nowhere_are_found_out_and_another_source_never_adds_one(said, stated):
    statement = ", ".join(f"item {n} of them" for n in said)
    sources = [f"There are {n} things." for n in stated]
    unstated = list_unstated(statement, sources)
    assert unstated == {str(n) for n in said} - {str(n) for n in stated}
    assert list_unstated(statement, [*sources, statement]) == set()
