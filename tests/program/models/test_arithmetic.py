"""A question that holds one sum is answered with its result, any other with nothing."""

import time

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.models.embedded.arithmetic import LONGEST, solve_arithmetic
from program.models.embedded.reader import shared_reader
from program.models.embedded.writer import local_writer
from program.signatures import AnswerDirectly

SUMS = """What is 15% of 240? 36|7 percent of 300 21|15 % of 240 plus 10 46|2 ** 3 ^ 2 512|7 squared 49|(3+4)*12 / 2? 42
3 × (4 ÷ 2) 6|6 x 7 = 42|please tell me 9 divided by 4 2.25|3 plus 4 minus 12 -5|5 − -3 8|0 * -1.0 0|0.1 + 0.2 0.3
1 / 8000000 0.000000125|1,200 x 3 3,600|1200 x 3 3600|100/4 25""".replace("\n", "|").split("|")
NO_SUMS = """|42|plus 3|Who wrote Hamlet?|1/0|9^9^9^9|10^400|(-8)^0.5|10^15 + 1|1.2.3 + 4|2(3)|1e5 * 2|(3 + 4|3 + 4 or 5 + 6?
__import__('os').getcwd()|Are you open 24/7?|Do you sell 4x4 tyres?|2026-05-12
I put away 12 of my 40 coins, what share of them was it?""".replace("\n", "|").split("|")


@pytest.mark.parametrize("asked", SUMS)
def test_a_sum_has_an_exact_result(asked):
    question, _, result = asked.rpartition(" ")
    assert solve_arithmetic(question) == result


@pytest.mark.parametrize("question", [*NO_SUMS, f"{'9' * 390}.0 - {'9' * 390}.0"])
def test_what_is_no_sum_or_too_large_a_one_gets_no_result(question):
    assert solve_arithmetic(question) == ""


@pytest.mark.parametrize("pattern", ["(", "-", "1+", "9**", "9^9*", "1 times ", "5% of ", "4x", "0 ", "a 1 "])
@pytest.mark.parametrize("length", [LONGEST - 1, 10_000])
def test_a_hostile_question_is_done_within_a_second(pattern, length):
    start = time.process_time()
    solve_arithmetic((pattern * length)[:length] + "1")
    assert time.process_time() - start < 1


@given(st.integers(-9999, 9999), st.integers(1, 9999), st.sampled_from(["plus", "minus", "times", "+", "*"]))
def test_two_whole_numbers_are_combined_exactly(a, b, word):
    sums = {"plus": a + b, "+": a + b, "minus": a - b, "times": a * b, "*": a * b}
    assert solve_arithmetic(f"What is {a} {word} {b}?") == str(sums[word])


@given(st.one_of(st.text(max_size=120), st.text("0123456789+-*/^x%.,() of", max_size=60)))
def test_no_question_makes_it_raise(question):
    float(solve_arithmetic(question).replace(",", "") or 0)


def test_a_direct_question_is_answered_by_it():
    with dspy.context(lm=local_writer(shared_reader())):
        direct = dspy.Predict(AnswerDirectly)
        assert [direct(question=asked).answer for asked in ("What is 6 x 7?", "Who wrote Hamlet?")] == ["42", ""]
