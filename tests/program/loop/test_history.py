"""A question after a conversation: read from every form, made to stand alone, and asked for once."""

import asyncio

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import POOL, Scripted, passage

from ragc import open_program
from ragc.errors import QuestionError
from ragc.loop.evidence import blend_pools, rank_pool
from ragc.loop.policy import Policy
from ragc.optimize.compiler.candidates.demonstrations import Demonstrator
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.serve.follow import Proxy
from ragc.text.history import FOUND_NOTHING, MOST_TURNS, Asked, Turn, join_questions, read_history

ASKED, BACK = "How much water does the kettle hold?", "Do you mean the Merle or the Wren?"
MESSAGES = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": BACK}]
TURNS = tuple(Turn(**one) for one in MESSAGES)
PARTS = [{"type": "text", "text": " Do you mean the Merle"}, {"type": "text", "text": "or the\nWren?"}]
FORMS = [
    MESSAGES,
    TURNS,
    [ASKED, MESSAGES[1]],
    dspy.History(messages=[{"question": ASKED, "answer": BACK}]),
    [{"role": "system", "content": "Be brief."}, *MESSAGES, {"role": "tool", "content": "none"}],
    [MESSAGES[0], {"role": "assistant", "content": None}, {"role": "assistant", "content": PARTS}],
]
BAD = ["before", 7, {"role": "user"}, [7], [{"role": "bot", "content": "x"}], [{"role": "user", "content": [1]}], [{}]]


@pytest.fixture(scope="module")
def rag(shop):
    return open_program(shop)


@pytest.mark.parametrize("history", FORMS)
def test_a_conversation_is_the_same_in_whatever_form_it_is_kept(history):
    assert read_history(history) == TURNS
    assert read_history([ASKED] * 99) == (TURNS[0],) * MOST_TURNS and read_history(None) == read_history([]) == ()


@pytest.mark.parametrize("history", BAD)
def test_what_is_no_conversation_is_refused_however_it_is_asked(rag, history):
    for ask in (rag, lambda *given: asyncio.run(rag.aask(*given))):
        with pytest.raises(QuestionError, match="history"):
            ask(ASKED, history)


REFUSALS = ["this", "“what a kettle costs”", "“in what colours it comes?”"]


@pytest.mark.parametrize("part", REFUSALS)
def test_a_question_after_a_refusal_follows_on_from_the_question_that_was_refused(part):
    refusal = f"{FOUND_NOTHING.format(part)} The nearest page is “Kettles” [1]."
    history = [TURNS[0], Turn(role="assistant", content=refusal)]
    assert join_questions(history, "and the Wren?") == "How much water does the kettle hold: and the Wren?"


def test_what_was_just_answered_is_not_said_again_to_a_question_that_follows_on(rag):
    asked = "How much water does the Merle kettle hold?"
    first = rag(asked)
    history = [{"role": "user", "content": asked}, {"role": "assistant", "content": first.text}]
    again = rag("And how much does it hold?", history=history)
    assert again.trace.path[0].startswith("follows on: ") and again.text != first.text


@pytest.mark.parametrize(
    ("history", "question", "joined"),
    [
        (TURNS, "The Merle", f"The Merle: {ASKED}"),
        (TURNS, "And power?", "How much water does the kettle hold: And power?"),
        (
            (*TURNS[:1], Turn(role="assistant", content="The Merle holds 1.7 litres [1]. Or 2 [2].")),
            "And power?",
            "The Merle holds 1.7 litres: And power?",
        ),
        ((*TURNS, Turn(role="user", content="The Merle")), "Power?", f"The Merle: {ASKED[:-1]}: Power?"),
        (TURNS[1:], "The Merle", "The Merle"),
        ((TURNS[0], Turn(role="assistant", content="Which? - Merle - Wren")), "Wren", f"Wren: {ASKED}"),
    ],
)
def test_a_follow_up_reads_behind_the_last_question_and_a_choice_before_it(history, question, joined):
    assert join_questions(history, question) == joined


def test_a_choice_is_answered_as_the_question_that_names_it_and_the_path_says_how_it_was_read(rag):
    async def streamed():
        return [event async for event in rag.stream("The Merle", MESSAGES)][-1]

    twin = rag("How much water does the Merle kettle hold?")
    for answer in (
        rag("The Merle", history=MESSAGES),
        asyncio.run(rag.aask("The Merle", MESSAGES)),
        asyncio.run(streamed()),
    ):
        assert answer.trace.path[0] == f"follows on: The Merle: {ASKED}"
        assert (answer.outcome, answer.citations[0].id) == (twin.outcome, twin.citations[0].id)
    assert answer.text.startswith(twin.text)


def test_a_single_question_and_a_greeting_ask_nothing_of_the_conversation(rag):
    for answer in (rag(ASKED), rag(ASKED, []), rag("Thanks!", MESSAGES)):
        assert not any(step.name.startswith("conversation.") for step in answer.trace.steps)


def test_the_threshold_decides_and_the_history_is_part_of_what_a_record_knows_an_answer_by(shop):
    program = open_program(shop)
    asked = [
        Asked("The Merle", TURNS),
        Asked("The Merle"),
        Asked("The Merle", (TURNS[0], Turn(role="user", content="Hm"))),
    ]
    replay = Replay(program, Record())
    assert [a.text for a in replay.answer_all(asked)] == [program(*one).text for one in asked]
    assert next(one.output for one in replay.decide_all(asked)[0]) == "follows_on"
    program.predictor("conversation.follows_on").fields["follows_on"] = {"threshold": 1.0}
    assert not any(note.startswith("follows on") for note in replay(asked[0]).trace.path)


def test_what_a_question_means_is_searched_beside_the_askers_own_words_which_alone_are_answered():
    program = Scripted(replies={"follows_on": 0.9, "standalone": "How big is the Merle?"})
    answer = program.rag("And it?", MESSAGES)
    assert program.asked == ["follows_on", "standalone", "route", "answer"]
    assert {*program.queries} == {"How big is the Merle?", "And it?"} and len(program.queries) == 2
    assert {one["question"] for one in program.models.inputs("route")} == {"How big is the Merle?"}
    (written,) = program.models.inputs("answer")
    assert written["question"] == "And it?" and BACK in written["conversation"]
    assert answer.trace.path[0] == "follows on: How big is the Merle?"
    assert BACK in str(program.models.inputs("standalone"))


@pytest.mark.parametrize(
    ("replies", "notes"),
    [
        ({"follows_on": 0.1}, ["classify"]),
        ({"follows_on": 0.9, "standalone": " "}, ["no text of conversation.standalone", "classify"]),
        ({"follows_on": 0.9, "standalone": RuntimeError("gone")}, ["history left out", "classify"]),
    ],
)
def test_what_does_not_follow_on_or_cannot_be_written_is_asked_as_it_is(replies, notes):
    program = Scripted(replies=replies)
    path = program.rag("How big is it?", MESSAGES).trace.path
    assert program.queries == ["How big is it?"]
    assert all(one.startswith(note) for one, note in zip(path, notes, strict=False)), path


@given(st.floats(0, 1), st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_a_blend_of_two_searches_has_each_score_in_its_share(weight, scores):
    names = [f"product/{n}" for n in range(4)]
    pools = [
        [passage(name, dense=score) for name, score in zip(names, half, strict=True)]
        for half in (scores[:4], scores[4:])
    ]
    found = {one.id: one.scores["dense"] for one in blend_pools(pools, weight)}
    assert found == {
        n: pytest.approx((1 - weight) * a + weight * b) for n, a, b in zip(names, scores, scores[4:], strict=False)
    }
    lacking = {one.id: one.scores for one in blend_pools([pools[0][:2], pools[1][1:]], weight)}
    assert lacking.keys() == {*names} and lacking[names[0]]["dense"] == pytest.approx(
        (1 - weight) * scores[0] + weight * min(scores[5:])
    )
    assert rank_pool(blend_pools([POOL], weight), Policy().tuning()) == rank_pool(POOL, Policy().tuning())


def test_a_program_that_stands_for_others_hands_the_conversation_on(rag):
    class Standing(Proxy):
        def choose_program(self):
            return rag

    async def streamed(program):
        return [event async for event in program.stream("The Merle", MESSAGES)][-1]

    program = Standing()
    for answer in (
        program("The Merle", MESSAGES),
        asyncio.run(program.aask("The Merle", MESSAGES)),
        asyncio.run(streamed(program)),
    ):
        assert answer.trace.path[0].startswith("follows on: ")


def test_labels_teach_what_follows_on_by_questions_of_other_topics_behind_the_same_conversation():
    single = [LabelledQuestion(id=f"s{n}", question=f"Q{n}?", topic=f"t{n}", outcome="abstain") for n in range(6)]
    later = LabelledQuestion(id="l", question="The Merle", topic="t0", outcome="answered", history=MESSAGES)
    made = Demonstrator.label_conversations([*single, later])
    assert [(one.fields["question"], one.fields["follows_on"]) for one in made] == [
        ("The Merle", True),
        ("Q1?", False),
        ("Q2?", False),
    ]
    assert all(one.fields["history"] == TURNS for one in made) and Demonstrator.label_conversations(single) == []
    assert later.as_example().inputs().keys() == ["question", "history"] and "history" not in single[0].model_dump()
