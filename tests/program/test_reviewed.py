"""Reviewed answers: given again where a question means the same, and nowhere else."""

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc.answer import Outcome
from ragc.knowledge.project import Project
from ragc.loop.reviewed import Review, see_sources, write_answer
from ragc.loop.same_question import agree_on, changes_one_place
from ragc.serve.opening import open_program

MERLE, FIRMS = "product/kettles.md#capacity", "billing/refunds.md#business-customers"
ASKED = "How much water does the Merle hold?"


@pytest.fixture
def project(own_shop):
    return Project.open(own_shop)


@pytest.fixture
def rag(project):
    return open_program(project)


def review(rag, project, question=ASKED, facts=("1.7 litres",), evidence=(MERLE,), readers=(), **more):
    """Write a reviewed answer."""
    noted = {name: more.pop(name) for name in ("until", "retired") if name in more}
    seen = see_sources(evidence, rag.runtime.library.readable_by(readers))
    row = {"id": "r1", "question": question, "outcome": "answered", "facts": [*facts], "evidence": [*evidence]}
    row |= {"readers": [*readers], "reviewed": Review(at="2026-11-26", seen=seen, **noted).model_dump(mode="json")}
    write_answer(project, {**row, **more})


@pytest.mark.parametrize(
    "question", [ASKED, "how much water does the merle hold", "What amount of water does the Merle hold?"]
)
def test_a_question_that_means_the_same_gets_the_reviewed_answer_at_no_call(rag, project, question):
    review(rag, project)
    answer = rag(question)
    assert answer.text == "The Merle kettle holds 1.7 litres and the Wren kettle holds 0.8 litres [1]."
    assert (answer.reviewed.id, answer.outcome, answer.usage.calls, answer.usage.searches) == ("r1", "answered", 0, 0)
    assert [one.id for one in answer.citations] == [MERLE] and answer.as_dict()["reviewed"]["at"] == "2026-11-26"


@pytest.mark.parametrize(
    "question",
    [
        "How much water does the Wren hold?",  # another thing
        "How many watts does the Merle draw?",  # another property
        "How much water does the Merle not hold?",  # denied
        "How much water does the Merle hold in 2024?",  # another year
        "How much water do 2 Merle hold?",  # another number
        "How much water does the kettle hold?",  # no thing
        "How much water does the Merle lose?",  # the opposite, in one place
        "How much tea does the Merle hold?",
        "How much water does the broken Merle hold?",
        "When does the Merle hold water?",  # which the reader does not find there
    ],
)
def test_a_question_that_only_looks_alike_does_not(rag, project, question):
    review(rag, project)
    assert rag(question).reviewed is None


def test_an_answer_whose_source_changed_is_not_given_and_says_so(rag, project):
    review(rag, project)
    file = project.folder / "knowledge" / "product" / "kettles.md"
    file.write_text(file.read_text().replace("holds 1.7", "has room for 1.7"))
    changed = open_program(project)
    assert changed(ASKED).reviewed is None
    assert changed.runtime.reviewed.list_changed(changed.runtime.library) == {ASKED: "its source changed"}
    assert rag(ASKED).reviewed is not None  # over the documents as they were


@pytest.mark.parametrize(
    "noted, why",
    [({"until": date.today() - timedelta(1)}, "it held until"), ({"retired": True}, "it was retired")],
)
def test_an_answer_that_ended_is_not_given(rag, project, noted, why):
    review(rag, project, **noted)
    reviewed = rag.runtime.reviewed
    assert rag(ASKED).reviewed is None
    assert reviewed.explain_disuse(reviewed.list_answers()[0], rag.runtime.library).startswith(why)


def test_an_abstention_holds_for_the_documents_as_they_were(rag, project):
    question = "Does the kettle come in green?"
    review(rag, project, question, (), (), outcome="abstain")
    assert (rag(question).outcome, rag(question).reviewed.id) == (Outcome.ABSTAIN, "r1")
    (project.folder / "knowledge" / "product" / "colours.md").write_text("# Colours\nThe Merle comes in green.\n")
    assert open_program(project)(question).reviewed is None


@pytest.mark.parametrize("outcome", ["clarify", "abstain"])
@pytest.mark.parametrize("question", ["Does the big kettle come in green?", "Is there a green kettle?"])
def test_what_cites_nothing_is_given_to_the_very_words_alone(rag, project, outcome, question):
    review(rag, project, "Does the kettle come in green?", (), (), outcome=outcome, answer="Which kettle?")
    assert rag("does the kettle come in green").reviewed is not None
    assert rag(question).reviewed is None


def test_an_answer_for_some_readers_is_given_to_them_alone(rag, project):
    review(rag, project, readers=("staff",))
    assert rag(ASKED).reviewed is None and rag(ASKED, readers=["staff", "sales"]).reviewed is not None


def test_behind_other_turns_a_question_has_to_be_in_the_very_words(rag, project):
    review(rag, project)
    history = ["Which kettles are there?"]
    assert rag(ASKED.lower(), history).reviewed is not None
    assert rag("What amount of water does the Merle hold?", history).reviewed is None


def test_a_review_counts_from_when_it_is_written(rag, project):
    assert rag(ASKED).reviewed is None
    review(rag, project)
    assert rag(ASKED).reviewed is not None
    write_answer(project, {}, "r1")
    assert rag(ASKED).reviewed is None


@given(st.integers(0, 99), st.integers(0, 99), st.sampled_from(["How long is plan {} kept?", "is it {} or not"]))
@settings(max_examples=50)
def test_questions_agree_only_where_their_numbers_do(one, other, form):
    assert (agree_on(form.format(one)) == agree_on(form.format(other))) == (one == other)


@pytest.mark.parametrize("denied", ["not", "never", "can't", "don’t", "without", "no"])
def test_a_question_that_denies_agrees_with_none_that_does_not(denied):
    assert agree_on(f"May I {denied} pay by card?") != agree_on("May I pay by card?")


WORDS = st.lists(st.sampled_from("boat tide lamp sledge pilot sand rope fog".split()), min_size=6, max_size=9)


@given(WORDS, st.data(), st.sampled_from(["harbour", "harbour wall", ""]))
def test_a_question_is_another_one_with_a_word_of_it_replaced_or_left_out(words, data, put):
    at = data.draw(st.integers(0, len(words) - 1))
    changed = [*words[:at], *put.split(), *words[at + 1 :]]
    assert changes_one_place(" ".join(changed), " ".join(words))
    assert not changes_one_place(" ".join(words), " ".join(words))


@given(WORDS)
def test_a_question_in_other_words_is_not_one_with_a_word_replaced(words):
    assert not changes_one_place(" ".join(f"{word} harbour" for word in words), " ".join(words))
