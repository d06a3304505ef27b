"""What a refusal shows: the pieces that come nearest, word for word, and no more than that."""

import pytest

from ragc.answer import NEAREST, Answer, Outcome
from ragc.optimize.evaluation.grades import grade_answer
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.settings import UtilitySettings
from tests.program.loop.scripted import CARDS, Scripted, passage

NIGHT = passage("product/night.md", "The door shuts at ten. Ring the warden at 555 0130. Bring a form. Pay later.", 0.9)
HOURS = passage("product/hours.md", "The office is open from 9 to 5. It closes at noon on Fridays.", 0.5)
REFUSALS = [{"answer": ""}, {"generate_above": 0.9, "sufficient": 0.1}]


CHANCES = {"Ring the": 0.4, "The door": 0.3, "Bring a": 0.27, "The office": 0.25}


@pytest.mark.parametrize("replies", REFUSALS, ids=["nothing to quote", "gave up"])
def test_a_refusal_quotes_the_best_pieces_those_of_one_passage_together(replies):
    knobs = {name: value for name, value in replies.items() if name == "generate_above"}
    replies = {name: value for name, value in replies.items() if name not in knobs}
    program = Scripted(
        cards=CARDS[:1],
        pool=[HOURS, NIGHT],
        replies={"states": lambda inputs: CHANCES.get(" ".join(inputs["sentence"].split()[:2]), 0.1), **replies},
        **knobs,
    )
    answer = program("Where do I sleep when I am locked out?")
    assert answer.outcome is Outcome.ABSTAIN
    first = "The door shuts at ten [1]. Ring the warden at 555 0130 [1]. Bring a form [1]."
    assert answer.nearest == f"{first} The office is open from 9 to 5 [2]."
    assert [citation.id for citation in answer.citations] == [NIGHT.id, HOURS.id]
    assert answer.shown == f"{answer.text}\n\n{NEAREST} {answer.nearest}"
    assert answer.as_dict()["nearest"] == answer.nearest and answer.nearest not in answer.answer


SHOWN = [
    ("Where do I sleep when the door is shut?", ["The door shuts at ten"], ["The office is open", "Pay later"]),
    ("Is the office near the door?", ["The door shuts at ten", "The office is open from 9 to 5"], ["Pay later"]),
    ("Is there a sauna?", ["The door shuts at ten"], ["The office is open", "Pay later"]),  # the likeliest alone
]


@pytest.mark.parametrize(("question", "shown", "left"), SHOWN)
def test_a_refusal_shows_what_is_likely_or_has_words_of_the_question(question, shown, left):
    chances = {"The door": 0.2}
    states = {"states": lambda inputs: chances.get(" ".join(inputs["sentence"].split()[:2]), 0.01), "answer": ""}
    nearest = Scripted(cards=CARDS[:1], pool=[HOURS, NIGHT], replies=states)(question).nearest
    assert all(one in nearest for one in shown) and not any(one in nearest for one in left)


def test_an_answer_and_a_refusal_without_passages_show_nothing_beside():
    assert Scripted()().nearest == ""
    refused = Scripted(pool=[])()
    assert refused.outcome is Outcome.ABSTAIN and refused.shown == refused.text


@pytest.mark.parametrize(
    ("outcome", "nearest", "helped"),
    [
        ("abstain", "Ring 555 0130.", 1.0),
        ("abstain", "Bring a form.", 0.0),
        ("abstain", "Ring 555 0130, or 555 0199.", 0.0),
        ("answered", "", None),
    ],
)
def test_a_refusal_helps_where_what_it_shows_states_the_facts_and_is_never_correct_for_it(outcome, nearest, helped):
    labelled = LabelledQuestion(id="1", question="Whom do I ring?", facts=["555 0130"], not_facts=["555 0199"])
    answer = Answer(text="I could not find this.", outcome=Outcome(outcome), nearest=nearest)
    grade = grade_answer(labelled, answer, UtilitySettings())
    assert grade.metrics["helped"] == helped and not grade.correct
