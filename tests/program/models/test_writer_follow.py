"""The local writer marks look-ups that wait for another, and writes them from its evidence."""

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from program.models.embedded.encoder import shared_embedder
from program.models.embedded.writer import local_writer
from program.models.rules.split import MOST, split
from program.signatures import Decompose, Excerpt, FollowUp

PAYROLL = "Payroll is run by the Harbour team."
STORES = "Each write-off is signed by the head of Stores."
DESK = "Foreign invoices are checked by the customs desk before they are sent."


@pytest.fixture(scope="module")
def writer() -> dspy.LM:
    return local_writer(shared_embedder())


def plan(writer: dspy.LM, question: str) -> tuple[list[str], dict[int, list[int]]]:
    with dspy.context(lm=writer):
        found = dspy.Predict(Decompose)(question=question)
    return found.sub_queries, {detail.n: detail.after for detail in found.details}


def follow(writer: dspy.LM, question: str, *texts: str, draft: str = "") -> str:
    passages = [Excerpt(n=n, base="ops", title="Notes", text=text) for n, text in enumerate(texts, 1)]
    with dspy.context(lm=writer):
        return str(dspy.Predict(FollowUp)(question=question, draft=draft or question, passages=passages).query)


@pytest.mark.parametrize(
    ("question", "queries", "after"),
    [
        ("How long is the guarantee on Merle Duo?", ["How long is the guarantee on Merle Duo?"], {}),
        (
            "Who leads the team that runs payroll?",
            ["Which team runs payroll?", *["Who leads the team that runs payroll?"] * 2],
            {3: [1]},
        ),
        (
            "Which team runs payroll, and where does that team sit?",
            ["Which team runs payroll?", *["Where does that team sit?"] * 2],
            {3: [1]},
        ),
        ("Whose signature does a write-off need?", ["Whose signature does a write-off need?"] * 2, {2: [1]}),
    ],
)
def test_a_look_up_about_what_another_finds_waits_for_it(writer, question, queries, after):
    assert plan(writer, question) == (queries, after)


@pytest.mark.parametrize(
    ("question", "text", "query"),
    [
        ("Who leads the team that runs payroll?", PAYROLL, "Who leads Harbour team?"),
        ("Who leads the team behind payroll?", "Payroll belongs to Harbour.", "Who leads Harbour?"),
        ("Whose signature does a write-off need?", STORES, "Who is the head of Stores?"),
        ("Who leads the group that checks foreign invoices?", DESK, "Who leads customs desk?"),
        ("Somebody checks our foreign invoices. Where does that group sit?", DESK, "Where does customs desk sit?"),
    ],
)
def test_it_is_written_with_what_the_evidence_names(writer, question, text, query):
    assert follow(writer, question, "The canteen opens at noon.", text) == query


def test_a_pronoun_becomes_the_person_that_the_evidence_names(writer):
    asked = "Who heads Stores, and to whom does she report?"
    assert follow(writer, asked, "Ada Lopez heads Stores.", draft="To whom does she report?") == (
        "To whom does Ada Lopez report?"
    )


@pytest.mark.parametrize("text", ["Ada Lopez signs each write-off.", "A write-off needs a signature."])
def test_it_stays_as_it_is_where_the_evidence_names_the_person_or_nothing(writer, text):
    asked = "Whose signature does a write-off need?"
    assert follow(writer, asked, text) == asked
    assert follow(writer, asked) == asked


@settings(max_examples=60, deadline=None)
@given(st.text("abc WhotheamTR.?,'{}\n", max_size=80))
def test_whatever_is_asked_there_are_at_most_four_look_ups_and_each_waits_for_an_earlier_one(writer, text):
    question = f"who heads the team that runs {text}"
    queries, after = plan(writer, question)
    assert len(queries) <= MOST
    assert set(queries) == set(split(question.strip()))
    assert all(parent < n <= len(queries) for n, parents in after.items() for parent in parents)
    assert follow(writer, question, PAYROLL)
