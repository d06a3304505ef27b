"""The local writer computes what it can compute and leaves the rest empty."""

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.models.embedded.encoder import shared_embedder
from program.models.embedded.reader import shared_reader
from program.models.embedded.writer import local_writer
from program.models.rules.arithmetic import solve_arithmetic
from program.signatures import AnswerDirectly

KNOWN = [
    ("What is 15% of 240?", "36"),
    ("2^10", "1,024"),
    ("square root of 144", "12"),
    ("(3+4)*12 / 2?", "42"),
    ("twelve times eleven", "132"),
    ("how many minutes in 3.5 hours", "210"),
    ("convert 5 miles to km", "8.0467"),
    ("how many ounces in 2 kg", "70.5479"),
    ("72 F in C", "22.2222"),
    ("300 kelvin in fahrenheit", "80.33"),
    ("90 km/h in mph", "55.9234"),
    ("What is 240 plus 20% VAT?", "288"),
    ("20% off 80", "64"),
    ("the percentage change from 16 to 19", "18.75%"),
    ("Gave away 7 of my 30 tickets, how many have I got left?", "23"),
    ("The train leaves at 09:50 and takes 2 hours 25. What time does it arrive?", "12:15"),
]
UNKNOWN = [
    "who wrote Hamlet?",
    "what is the price of the larger plan?",
    "9**9**9**9",
    "1/0",
    "convert 5 apples to km",
    "5 miles in kg",
    "what percent of 0 is 5",
    "__import__('os').getcwd()",
    "I save 12 every week for nine weeks at 3% interest, what do I have?",
    "Calls are answered from 09:00 to 17:30 for 2 hours. When?",
    "",
]


def solved(question: str) -> str:
    with dspy.context(lm=local_writer(shared_embedder(), shared_reader())):
        return str(dspy.Predict(AnswerDirectly)(question=question).answer)


@pytest.mark.parametrize(("question", "result"), KNOWN)
def test_a_sum_is_answered_with_its_result(question: str, result: str) -> None:
    assert f" {result}".replace("%", "") in f" {solved(question)}".replace("%", "")


@pytest.mark.parametrize("question", UNKNOWN)
def test_what_is_not_a_certain_sum_gets_an_empty_answer(question: str) -> None:
    assert solved(question) == ""


@given(st.integers(-9999, 9999), st.integers(1, 9999), st.sampled_from(["plus", "minus", "times", "+", "*"]))
def test_two_whole_numbers_are_combined_exactly(a: int, b: int, word: str) -> None:
    sums = {"plus": a + b, "+": a + b, "minus": a - b, "times": a * b, "*": a * b}
    assert solve_arithmetic(f"What is {a} {word} {b}?").endswith(f"= {sums[word]:,}.")


@given(st.text(max_size=120))
def test_no_question_makes_it_raise(question: str) -> None:
    assert isinstance(solve_arithmetic(question), str)
