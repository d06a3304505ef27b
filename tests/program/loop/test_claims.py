"""Whatever a language model writes, nothing is delivered that no passage states."""

import pytest
from scripted import Scripted, passage, turns

from program.answer import Outcome
from program.loop.grounding import trace_claims
from program.signatures import Generate

QUESTION = "How much does the Merle kettle hold?"
POOL = [
    passage("product/a.md#1", "The Merle kettle holds 1.7 litres and draws 2200 watts.", 0.9, title="Kettles"),
    passage("product/b.md#1", "Companies have 10 days to return a kettle.", 0.8, title="Returns"),
]
QUOTED = "The Merle kettle holds 1.7 litres and draws 2200 watts [1]."
GOOD = "The Merle holds 1.7 litres [1]."
BAD = {
    "echo of the prompt": "no heading, no fence, no remark about it.",
    "echo of the instructions": " ".join(Generate.__doc__.split()[:14]),
    "echo of the question": QUESTION,
    "nothing": "",
    "cut in the middle": "The Merle kettle holds 1.7 litres and the",
    "invented number": "The Merle kettle holds 1.9 litres [1].",
    "invented unit": "Companies have 10 weeks to return a kettle [2].",
    "invented name": "The Merle kettle of Ada Lopez holds 1.7 litres [1].",
    "invented statement": "Nobody could possibly tell such things from here.",
    "mark of no passage": "Perhaps it is larger than it seems [7].",
}


def writing(answer, **knobs):
    states = lambda inputs: 0.9 if "Merle" in inputs["sentence"] else 0.1  # noqa: E731
    return Scripted(pool=POOL, replies={"answer": answer, "states": states}, **{"ground": 0, "judge": 0, **knobs})


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_text_that_no_passage_states_is_written_once_more_and_gives_way_to_a_quotation_as_nothing_does_at_once(text):
    program = writing(text)
    answer = program(QUESTION)
    assert (answer.text, answer.outcome) == (QUOTED, Outcome.ANSWERED)
    assert [inputs["strict"] for inputs in program.models.inputs("answer")] == ["False", "True"][: 1 + bool(text)]


@pytest.mark.parametrize(("above", "text"), [(0.9, QUOTED), (0.95, GOOD), (1.0, GOOD)])
def test_a_quotation_that_is_sure_enough_spares_the_call_to_the_language_model(above, text):
    program = writing(GOOD, quote_above=above, sentences=1)
    assert program(QUESTION).text == text
    assert len(program.models.inputs("answer")) == (text == GOOD)


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_where_nothing_can_be_quoted_it_abstains_and_says_so(text):
    answer = writing(text, sentences=1, rewrites=0)
    answer.models.replies["states"] = 0.1
    found = answer(QUESTION)
    refusal = "I could not find this in the knowledge I have. Did you mean “Kettles”? [1]"
    assert (found.outcome, found.text) == (Outcome.ABSTAIN, refusal)


@pytest.mark.parametrize("text", filter(None, BAD.values()))
def test_a_second_text_that_is_stated_is_delivered(text):
    assert writing(turns(text, GOOD))(QUESTION).text == GOOD


def test_a_claim_without_support_is_left_out_and_the_rest_stands():
    answer = writing(f"{GOOD} It was invented by Ada Lopez [1].")(QUESTION)
    assert answer.text == GOOD and answer.supported == 0.5


def test_a_sentence_that_cites_nothing_or_the_wrong_passage_is_given_to_the_one_that_states_it():
    answer = writing("The Merle holds 1.7 litres. Companies have 10 days [1].")(QUESTION)
    assert answer.text == "The Merle holds 1.7 litres [1]. Companies have 10 days [2]."
    assert [citation.id for citation in answer.citations] == [one.id for one in POOL]


PRICE = passage("shop/a", "In Ulm it costs 1,000 GBP a year and weighs 4.50 kg.")


@pytest.mark.parametrize("claim", ["It costs 1000 GBP a year.", "It weighs 4.5 kg.", "It costs 1,000 GBP in Ulm."])
def test_a_number_is_known_in_any_spelling(claim):
    assert trace_claims(claim, [PRICE], 0.5)[0].cites == (1,)


@pytest.mark.parametrize("claim", ["It costs 100 GBP a year.", "It weighs 4.5 pounds.", "It costs 1000 GBP in York."])
def test_another_number_unit_or_name_is_not_stated(claim):
    assert trace_claims(claim, [PRICE], 0.5)[0].cites == ()


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("1.7 litres", True),
        ("10 days", True),
        ("Companies have 10", False),
        ("1.7", False),
        ("the Merle kettle", False),
    ],
)
def test_a_few_words_without_a_full_stop_are_an_answer_where_a_passage_says_just_them(text, whole):
    assert bool(trace_claims(text, POOL, 0.5)[0].cites) is whole


def test_a_text_of_the_fallback_and_a_question_back_are_held_to_it_too():
    program = writing(BAD["echo of the prompt"])
    program.models.replies["route"] = RuntimeError("gone")
    assert program(QUESTION).text == QUOTED
    echo = "Ask the one question back whose answer would settle what is meant."
    back = Scripted(pool=POOL, replies={"vague": 0.9, "clarifying_question": echo})(QUESTION)
    assert back.outcome is Outcome.ABSTAIN and echo not in back.text


def test_plain_rag_is_the_control_and_says_whatever_was_written():
    assert writing(BAD["echo of the prompt"]).rag.plain()(QUESTION).text == BAD["echo of the prompt"]


def test_an_answer_under_the_bound_of_confidence_says_so_in_its_text():
    assert writing(GOOD, unsure_below=1.0)(QUESTION).text == f"(not certain) {GOOD}"
    assert writing(GOOD, unsure_below=0.1)(QUESTION).text == GOOD


def test_an_answer_under_the_confidence_of_a_stated_risk_is_withheld():
    refused = writing(GOOD, refuse_below=1.0)(QUESTION)
    assert refused.outcome is Outcome.ABSTAIN and GOOD not in refused.text
    assert writing(GOOD, refuse_below=0.1)(QUESTION).text == GOOD
