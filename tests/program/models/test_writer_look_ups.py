"""The local writer splits a question into look-ups, and writes those that wait for another from its evidence."""

import time

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from program.models.embedded.encoder import shared_embedder
from program.models.embedded.reader import shared_reader
from program.models.embedded.writer import local_writer
from program.models.rules.splitting import MOST, split_question
from program.signatures import Clarify, Decompose, Excerpt, FollowUp, Missing

SEVERAL = [
    ("What does Deluxe cost and how many doors does it cover?",
     ["What does Deluxe cost?", "How many doors does Deluxe cover?"]),
    ("When and where was the company founded?",
     ["When was the company founded?", "Where was the company founded?"]),
    ("What are the price, the door limit and the video history of Deluxe?",
     ["The price of Deluxe?", "The door limit of Deluxe?", "The video history of Deluxe?"]),
    ("How long is the guarantee on the Wren and the Merle?",
     ["How long is the guarantee on the Wren?", "How long is the guarantee on the Merle?"]),
    ("Who heads the company hosting the service that handles login?",
     ["Which service handles login?", "Which company is hosting the service that handles login?",
      "Who heads the company hosting the service that handles login?"]),
]  # fmt: skip
PAYROLL = "Payroll is run by the Harbour team."
STORES = "Each write-off is signed by the head of Stores."


@pytest.fixture(scope="module")
def writer() -> dspy.LM:
    return local_writer(shared_embedder(), shared_reader())


def ask(writer: dspy.LM, signature: type[dspy.Signature], **inputs: object) -> dspy.Prediction:
    with dspy.context(lm=writer):
        return dspy.Predict(signature)(**inputs)


def plan(writer: dspy.LM, question: str) -> tuple[list[str], dict[int, list[int]]]:
    found = ask(writer, Decompose, question=question)
    return found.sub_queries, {detail.n: detail.after for detail in found.details}


def excerpts(*texts: str) -> list[Excerpt]:
    return [Excerpt(n=n, base="ops", title=f"Note {n} > Part", text=text) for n, text in enumerate(texts, 1)]


def follow(writer: dspy.LM, question: str, *texts: str, draft: str = "") -> str:
    return str(ask(writer, FollowUp, question=question, draft=draft or question, passages=excerpts(*texts)).query)


@pytest.mark.parametrize("question", ["home plus price per month?", "Is it 14 or 30 days?", "who signs off a refund"])
def test_a_question_for_one_thing_comes_back_alone(question: str) -> None:
    assert split_question(question) == (question,)


@pytest.mark.parametrize(("question", "look_ups"), SEVERAL)
def test_a_compound_question_becomes_its_look_ups(question: str, look_ups: list[str]) -> None:
    assert list(split_question(question)) == look_ups


@given(st.text(max_size=300))
def test_any_text_gives_one_to_four_look_ups(question: str) -> None:
    assert 1 <= len(split_question(question)) <= MOST


@pytest.mark.parametrize(
    "pattern", ["and and ", "why and what, is A and B or C, ", "Big Team and ", "a the which who "]
)
def test_a_hostile_question_is_split_within_seconds(pattern: str) -> None:
    start = time.process_time()
    split_question("Who leads the " + pattern * 400)
    assert time.process_time() - start < 5


def test_a_look_up_about_what_another_finds_waits_for_it(writer):
    chain = "Who leads the team that runs payroll?"
    assert plan(writer, chain) == (["Which team runs payroll?", chain, chain], {3: [1]})
    office = "Whose signature does a write-off need?"
    assert plan(writer, office) == ([office, office], {2: [1]})


@pytest.mark.parametrize(
    ("question", "text", "query"),
    [
        ("Who leads the team that runs payroll?", PAYROLL, "Who leads Harbour team?"),
        ("Who leads the team behind payroll?", "Payroll belongs to Harbour.", "Who leads Harbour?"),
        ("Whose signature does a write-off need?", STORES, "Who is the head of Stores?"),
        ("Whose signature does a write-off need?", "Ada Lopez signs.", "Whose signature does a write-off need?"),
    ],
)
def test_it_is_written_with_what_the_evidence_names(writer, question, text, query):
    assert follow(writer, question, "The canteen opens at noon.", text) == query
    assert follow(writer, question) == question


def test_a_pronoun_becomes_the_person_that_the_evidence_names(writer):
    asked = "Who heads Stores, and to whom does she report?"
    found = follow(writer, asked, "Ada Lopez heads Stores.", draft="To whom does she report?")
    assert found == "To whom does Ada Lopez report?"


@settings(max_examples=60, deadline=None)
@given(st.text("abc WhotheamTR.?,'{}\n", max_size=80))
def test_each_look_up_waits_for_an_earlier_one(writer, text):
    question = f"who heads the team that runs {text}"
    queries, after = plan(writer, question)
    assert len(queries) <= MOST
    assert set(queries) == set(split_question(question.strip()))
    assert all(parent < n <= len(queries) for n, parents in after.items() for parent in parents)
    assert follow(writer, question, PAYROLL)


def test_what_the_passages_leave_open_is_asked_next(writer):
    found = ask(writer, Missing, question="Who leads the team that runs payroll?", passages=excerpts(PAYROLL))
    assert found.next_query.startswith("Who leads Harbour")


def test_a_vague_question_is_answered_back_with_the_pages_found(writer):
    asked = ask(writer, Clarify, question="How much is it?", passages=excerpts(PAYROLL, STORES, "Tea is free."))
    assert asked.clarifying_question == "Which of these is it about: Note 1, Note 2 or Note 3?"
    asked = ask(writer, Clarify, question="How much is it?", passages=excerpts(PAYROLL))
    assert asked.clarifying_question == "Which product, plan or case do you mean?"
