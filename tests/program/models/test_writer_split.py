"""The local writer splits a question into look-ups that stand alone."""

import time

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.models.embedded.encoder import shared_embedder
from program.models.embedded.writer import local_writer
from program.models.rules.split import MOST, split
from program.signatures import Decompose

ONE = [
    "How long is the guarantee on Merle Duo?",
    "home plus price per month?",
    "What is the rule for terms and conditions?",
    "my tenant moved out, what do I do about the codes?",
    "Is it 14 or 30 days?",
    "My Merle 3 died last night. It was making noise. What does the guarantee cover?",
    "How much door codes can the people who rent from me make, maximum?",
    "who signs off a refund",
]
SEVERAL = [
    ("What does Deluxe cost and how many doors does it cover?",
     ["What does Deluxe cost?", "How many doors does Deluxe cover?"]),
    ("Compare Basic Plus and Deluxe on video history",
     ["Video history of Basic Plus?", "Video history of Deluxe?"]),
    ("What is the difference between Merle 2 and Merle 3 in noise?", ["Noise of Merle 2?", "Noise of Merle 3?"]),
    ("merle 2 vs merle 3 noise, in dB", ["Merle 2 noise, in dB?", "Merle 3 noise, in dB?"]),
    ("When and where was the company founded?",
     ["When was the company founded?", "Where was the company founded?"]),
    ("When was Wren launched and by whom?", ["When was Wren launched?", "By whom was Wren launched?"]),
    ("What are the price, the door limit and the video history of Deluxe?",
     ["The price of Deluxe?", "The door limit of Deluxe?", "The video history of Deluxe?"]),
    ("How long is the guarantee on the Wren and the Merle?",
     ["How long is the guarantee on the Wren?", "How long is the guarantee on the Merle?"]),
    ("How long is footage kept for a family on Basic and for a company on Deluxe?",
     ["How long is footage kept for a family on Basic?", "How long is footage kept for a company on Deluxe?"]),
    ("Do both Basic Plus and Deluxe include video?",
     ["Do Basic Plus include video?", "Do Deluxe include video?"]),
    ("Which is cheaper, Basic Plus or Deluxe?", ["Which is cheaper: Basic Plus?", "Which is cheaper: Deluxe?"]),
    ("who leads the team that runs payroll?", ["Which team runs payroll?", "Who leads the team that runs payroll?"]),
    ("Who leads the team behind billing?", ["Which team is behind billing?", "Who leads the team behind billing?"]),
    ("Who does the lead of the team that works on parcels report to?",
     ["Which team works on parcels?", "Who is the lead of the team that works on parcels?",
      "Who does the lead of the team that works on parcels report to?"]),
    ("Who heads the company hosting the service that handles login?",
     ["Which service handles login?", "Which company is hosting the service that handles login?",
      "Who heads the company hosting the service that handles login?"]),
    ("Can I pause Deluxe, and if so, for how long?", ["Can I pause Deluxe?", "For how long Can I pause Deluxe?"]),
    ("What is VAT? What does an invoice show?", ["What is VAT?", "What does an invoice show (VAT)?"]),
    ("I am on Deluxe. Two things: what does postage cost, and if a box turns up smashed how fast must we shout?",
     ["I am on Deluxe. What does postage cost?", "If a box turns up smashed how fast must we shout (Deluxe)?"]),
    ("Which Merle do I need for a tall door, and what is the coldest weather it is rated for?",
     ["Which Merle do I need for a tall door?", "What is the coldest weather Merle is rated for?"]),
    ("I have Basic Plus and Deluxe. How many people can I put on each?",
     ["I have Basic Plus and Deluxe. How many people can I put on Basic Plus?",
      "I have Basic Plus and Deluxe. How many people can I put on Deluxe?"]),
    ("How long must we set aside for a visit, and which port has to be open for commands and door state?",
     ["How long must we set aside for a visit?", "Which port has to be open for commands and door state?"]),
    ("Compare the price of Basic Plus and Deluxe", ["The price of Basic Plus?", "The price of Deluxe?"]),
]  # fmt: skip


@pytest.mark.parametrize("question", ONE)
def test_a_question_for_one_thing_comes_back_alone(question: str) -> None:
    assert split(question) == (question,)


@pytest.mark.parametrize(("question", "look_ups"), SEVERAL)
def test_a_compound_question_becomes_its_look_ups(question: str, look_ups: list[str]) -> None:
    assert list(split(question)) == look_ups


def test_a_long_story_around_one_question_is_left_out() -> None:
    story = "We moved house in the spring, and it rained, and nobody could find the boxes for weeks on end. " * 3
    assert split(f"{story}How long is the guarantee on the Merle keypad by the garden gate?") == (
        "How long is the guarantee on the Merle keypad by the garden gate?",
    )


def test_predict_gets_the_look_ups_as_a_list() -> None:
    with dspy.context(lm=local_writer(shared_embedder())):
        found = dspy.Predict(Decompose)(question="What does Deluxe cost and how many doors does it cover?")
    assert found.sub_queries == ["What does Deluxe cost?", "How many doors does Deluxe cover?"]


@given(st.text(max_size=300))
def test_any_text_gives_one_to_four_look_ups(question: str) -> None:
    assert 1 <= len(split(question)) <= MOST


@pytest.mark.parametrize(
    "pattern", ["and and ", "why and what, is A and B or C, ", "Big Team and ", "a the which who "]
)
def test_a_hostile_question_is_split_within_seconds(pattern: str) -> None:
    start = time.process_time()
    split("Who leads the " + pattern * 400)
    assert time.process_time() - start < 5
