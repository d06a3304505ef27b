"""Whatever a language model writes, nothing is delivered that no passage states."""

import pytest
from scripted import Scripted, passage, turns

from ragc.answer import Outcome
from ragc.loop.grounding import trace_claims
from ragc.signatures import Generate

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


@pytest.mark.parametrize("text", ["none", "None.", " NONE", '"none"'])
@pytest.mark.parametrize("knobs", [{}, {"ground": 1}])
def test_a_language_model_that_finds_no_answer_is_believed_at_once(text, knobs):
    program = writing(text, **knobs)
    program.models.replies["states"] = 0.6
    assert program(QUESTION).outcome is Outcome.ABSTAIN
    assert len(program.models.inputs("answer")) == 1
    assert program.rag.plain()(QUESTION).outcome is Outcome.ABSTAIN


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_where_nothing_can_be_quoted_it_abstains_and_a_second_text_that_is_stated_is_delivered(text):
    answer = writing(text, sentences=1)
    answer.models.replies["states"] = 0.1
    found = answer(QUESTION)
    refusal = "I could not find this in the knowledge I have. The nearest page is “Kettles” [1]."
    assert (found.outcome, found.text) == (Outcome.ABSTAIN, refusal)
    assert not text or writing(turns(text, GOOD))(QUESTION).text == GOOD


@pytest.mark.parametrize(
    ("said", "text", "supported"),
    [
        (f"{GOOD} It was invented by Ada Lopez [1].", GOOD, 0.5),
        ("The Merle holds 1.7 litres. Companies have 10 days [1].", f"{GOOD} Companies have 10 days [2].", 1.0),
    ],
)
def test_a_claim_without_support_is_left_out_and_each_is_given_to_the_passage_that_states_it(said, text, supported):
    answer = writing(said)(QUESTION)
    assert (answer.text, answer.supported) == (text, supported)
    assert [citation.id for citation in answer.citations] == [one.id for one in POOL][: 1 + (supported == 1)]


@pytest.mark.parametrize("text", ["1.7 litres", "10 days", "Companies have 10", "1.7", "the Merle kettle"])
def test_a_few_words_without_a_full_stop_are_an_answer_where_a_passage_says_just_them(text):
    assert bool(trace_claims(text, POOL, 0.5)[0].cites) is (text in ("1.7 litres", "10 days"))


def test_a_text_of_the_fallback_is_held_to_it_too():
    program = writing(BAD["echo of the prompt"])
    program.models.replies["route"] = RuntimeError("gone")
    assert program(QUESTION).text == QUOTED


@pytest.mark.parametrize("text", ["", "Ask the one question back whose answer would settle what is meant.", QUESTION])
def test_a_question_back_that_is_an_echo_gives_way_to_the_options_that_were_read(text):
    back = Scripted(pool=POOL, replies={"vague": 0.9, "clarifying_question": text})(QUESTION)
    assert back.outcome is Outcome.CLARIFY and all(one.title in back.text for one in POOL)
    assert not text or text not in back.text
    assert f"{'echo' if text else 'no text'} of generator.clarify" in back.trace.path


def test_plain_rag_is_the_control_and_says_whatever_was_written_and_what_is_doubtful_says_so_in_its_text():
    assert writing(BAD["echo of the prompt"]).rag.plain()(QUESTION).text == BAD["echo of the prompt"]
    assert writing(GOOD, unsure_below=1.0)(QUESTION).text == f"(not certain) {GOOD}"
    assert writing(GOOD, unsure_below=0.1)(QUESTION).text == GOOD


def test_an_answer_under_the_confidence_of_a_stated_risk_is_withheld():
    refused = writing(GOOD, refuse_below=1.0)(QUESTION)
    assert refused.outcome is Outcome.ABSTAIN and GOOD not in refused.text
    assert writing(GOOD, refuse_below=0.1)(QUESTION).text == GOOD
