"""A model that writes is asked once with the best passages; what it replies is told where the passages bear it out."""

import asyncio

import pytest
from scripted import Scripted, passage, read_drafts, turns

from ragc.answer import Outcome, StoppedBy
from ragc.signatures import Generate
from ragc.text.pieces import split_claims
from tests.support.faults import EMBEDDED
from tests.support.goods import program_at
from tests.support.provider import Script, serve

QUESTION = "How much does the Merle kettle hold?"
POOL = [
    passage("product/a.md#1", "The Merle kettle holds 1.7 litres and draws 2200 watts.", 0.9, title="Kettles"),
    passage("product/b.md#1", "Companies have 10 days to return a kettle.", 0.8, title="Returns"),
]
QUOTED = "The Merle kettle holds 1.7 litres and draws 2200 watts [1]."
GOOD = "The Merle holds 1.7 litres [1]."
MISSING = "MISSING: the fee for a lid. QUERY: price of a lid"
WHICH = "WHICH: Which kettle do you mean?\n- the Merle\n- the Wren"
REFUSED = "I could not find {} in the knowledge I have. The nearest page is “Kettles” [1]."
HISTORY = [{"role": "user", "content": "What is the Merle?"}, {"role": "assistant", "content": "A kettle [1]."}]


def writing(answer, *, pool=POOL, **knobs):
    states = lambda inputs: 0.9 if "Merle" in inputs["sentence"] else 0.1  # noqa: E731
    return Scripted(pool=pool, replies={"answer": answer, "states": states}, **knobs)


def asked(program, question=QUESTION, history=None):
    """The answer, and how often the model that writes was asked for one."""
    answer = program.rag(question, history)
    return answer, len(program.models.inputs("answer"))


def test_a_question_is_one_request_with_the_best_passages_whatever_anybody_thinks_of_them():
    pool = [passage(f"product/{n}", f"Text 1.7 {n}.", 1 - n / 50) for n in range(30)]
    program = writing("Text 1.7 [1].", pool=pool, shown=9)
    answer, calls = asked(program)
    (shown,) = program.models.inputs("answer")
    assert (answer.text, calls, answer.usage.calls) == ("Text 1.7 [1].", 1, 1)
    assert [one.title for one in shown["passages"]] == [one.id for one in pool[:9]] == [*answer.retrieved]
    assert shown["question"] == QUESTION and program.asked == ["route", "answer"]
    assert (answer.confidence, answer.stopped_by, len(answer.rounds)) == (0.5, StoppedBy.DONE, 1)


@pytest.mark.parametrize(
    ("replies", "rounds", "queries", "calls", "outcome"),
    [
        ([MISSING, GOOD], 1, [], 1, Outcome.ABSTAIN),
        ([MISSING, GOOD], 2, ["price of a lid"], 2, Outcome.ANSWERED),
        ([MISSING, MISSING, GOOD], 4, ["price of a lid"], 2, Outcome.ABSTAIN),  # nothing is searched twice
        ([MISSING, f"{MISSING} red", GOOD], 4, ["price of a lid", "price of a lid red"], 3, Outcome.ANSWERED),
        (["MISSING: the fee for a lid", GOOD], 4, [], 1, Outcome.ABSTAIN),
    ],
)
def test_what_is_missing_is_searched_for_by_the_replys_query_where_another_round_is_allowed(
    replies, rounds, queries, calls, outcome
):
    program = writing(turns(*replies), max_rounds=rounds)
    answer, times = asked(program)
    assert (program.queries[1:], times, answer.outcome, "missing" in program.asked) == (queries, calls, outcome, False)
    assert answer.text == (GOOD if outcome is Outcome.ANSWERED else REFUSED.format("“the fee for a lid”"))


def test_a_question_that_may_mean_several_things_is_asked_back_with_its_options_and_never_twice_in_a_row():
    answer, calls = asked(writing(WHICH))
    assert (answer.outcome, answer.options, calls) == (Outcome.CLARIFY, ("the Merle", "the Wren"), 1)
    assert answer.text == "Which kettle do you mean?\n- the Merle\n- the Wren"
    assert answer.found and not (answer.citations or answer.retrieved)
    history = [HISTORY[0], {"role": "assistant", "content": answer.text}]
    program = writing(WHICH)
    program.models.replies.update(follows_on=0.9, standalone="What is the Merle?")
    again, _ = asked(program, "the Merle", history)
    assert again.outcome is Outcome.ABSTAIN


def test_what_needs_no_document_is_answered_without_a_citation():
    answer, calls = asked(writing("GENERAL: 12 times 12 is 144 [1]."), "What is 12 times 12?")
    assert (answer.outcome, answer.citations, answer.retrieved, calls) == (Outcome.ANSWERED, (), (), 1)
    assert "144" in answer.text and "[1]" not in answer.text and "unretrieved" in answer.trace.path


UNSTATED = {
    "echo of the instructions": " ".join(Generate.__doc__.split()[:14]),
    "echo of the question": QUESTION,
    "cut in the middle": "The Merle kettle holds 1.7 litres and the",
    "invented number": "The Merle kettle holds 1.9 litres [1].",
    "part of a number": "The Merle kettle holds 7 litres [1].",
    "statement of no passage": "Nobody could possibly tell such things from here.",
    "mark of no passage": "Perhaps it is larger than it seems [7].",
    "wrong sum": "It draws 2200 + 10 = 2310 watts [1].",
}


@pytest.mark.parametrize("text", UNSTATED.values(), ids=UNSTATED)
def test_what_cites_no_passage_or_has_a_number_that_stands_nowhere_is_not_said(text):
    assert asked(writing(text))[0].text == REFUSED.format("this")
    assert asked(writing(f"{GOOD} {text}"))[0].text == GOOD or text in (UNSTATED["echo of the instructions"], QUESTION)


@pytest.mark.parametrize(
    ("text", "said", "supported"),
    [
        (f"{GOOD} It weighs 3 kg [1].", GOOD, 0.5),
        ("The Merle holds 1.7 litres. Companies have 10 days [1].", None, 1.0),
        ("The Merle kettle holds 1.7 litres. It is blue.", GOOD.replace("Merle", "Merle kettle"), 0.5),
        ("1.7 litres", "1.7 litres [1].", 1.0),
        ("It draws 2200 x 10 = 22,000 watts in all [1][2].", None, 1.0),
        ("It holds some one point seven litres [1].", None, 1.0),
    ],
)
def test_the_statements_that_can_be_said_are_and_the_others_are_left_out(text, said, supported):
    answer, _ = asked(writing(text))
    assert (answer.text, answer.supported) == (said or text, supported)


def test_the_questions_own_numbers_may_be_said():
    answer, _ = asked(writing("For 4 people the Merle holds enough [1]."), "Does the Merle do for 4 people?")
    assert answer.outcome is Outcome.ANSWERED


@pytest.mark.parametrize("check", [0, 1, 2])
def test_words_are_compared_or_judged_as_the_knob_says(check):
    made_up = "Whoever likes tea adores this thing [1]."
    judged = {}
    for chance in (0.9, 0.1):
        program = writing(f"{GOOD} {made_up}", check=check)
        program.models.replies["supported"] = chance
        judged[chance] = asked(program)[0]
        claims = [inputs["claim"] for inputs in program.models.inputs("supported")]
        assert claims == ([" ".join(one.bare for one in split_claims(f"{GOOD} {made_up}"))] if check == 2 else [])
    assert judged[0.9].text == (GOOD if check == 1 else f"{GOOD} {made_up}")
    assert (judged[0.1].text == judged[0.9].text) is (check != 2)
    assert (judged[0.1].outcome is Outcome.ABSTAIN) is (check == 2)


@pytest.mark.parametrize("text", ["", "none", " None. "])
def test_an_empty_reply_takes_one_call_and_abstains(text):
    for knobs in ({}, {"max_rounds": 4}):
        answer, calls = asked(writing(text, **knobs))
        assert (answer.outcome, answer.stopped_by is StoppedBy.FALLBACK, calls) == (Outcome.ABSTAIN, False, 1)
        assert answer.text == REFUSED.format("this")


@pytest.mark.parametrize(("above", "text"), [(0.4, QUOTED), (0.95, GOOD), (1.0, GOOD)])
def test_a_quotation_that_is_sure_enough_spares_the_call_to_the_language_model(above, text):
    program = writing(GOOD, quote_above=above, sentences=1)
    answer, calls = asked(program)
    assert (answer.text, calls) == (text, int(text == GOOD))


def test_a_text_of_the_fallback_is_held_to_it_too_and_the_control_arm_says_whatever_was_written():
    for text in (UNSTATED["cut in the middle"], UNSTATED["invented number"], GOOD):
        program = writing(text)
        program.models.replies["route"] = RuntimeError("gone")
        answer, calls = asked(program)
        assert (answer.outcome is Outcome.ANSWERED, answer.stopped_by) == (text == GOOD, StoppedBy.FALLBACK)
        plain = writing(text).rag.plain()(QUESTION)
        assert (calls, plain.text, plain.usage.calls, plain.usage.searches) == (1, text, 1, 1)
    assert writing("None.").rag.plain()(QUESTION).outcome is Outcome.ABSTAIN


def test_what_is_doubtful_says_so_and_an_answer_under_the_confidence_of_a_stated_risk_is_withheld():
    assert asked(writing(GOOD, unsure_below=1.0))[0].text == f"(not certain) {GOOD}"
    assert asked(writing(GOOD, refuse_below=1.0))[0].outcome is Outcome.ABSTAIN
    assert asked(writing(GOOD, unsure_below=0.1, refuse_below=0.1))[0].text == GOOD


def drafts(program, question=QUESTION):
    """The answer, and each text that a stream showed until it was withdrawn, or to the end."""

    async def collect():
        return [event async for event in program.rag.stream(question)]

    *events, answer = asyncio.run(collect())
    return answer, read_drafts(events)


@pytest.mark.parametrize(
    "text", [GOOD, "GENERAL: It is 144.", MISSING, WHICH, "", "none", f"{GOOD} It weighs 3 kg [1]."]
)
def test_what_is_streamed_is_the_answer_and_of_a_reply_that_is_none_nothing_is_shown(text):
    answer, told = drafts(writing(text))
    assert told[-1].split() == answer.shown.split()
    assert len(told) == 1 + (told[0] not in ("", answer.shown))
    assert not any(word in "".join(told) for word in ("MISSING", "QUERY", "WHICH", "GENERAL", "none"))


@pytest.fixture(scope="module")
def provider():
    with serve() as running:
        yield running


def test_a_follow_up_question_takes_one_call_and_the_model_sees_the_conversation(provider, tmp_path):
    prompts = []
    provider.follow(Script())
    provider.brain = lambda body: prompts.append(str(body["messages"])) or "It costs GBP 10 [1]."
    rag = program_at(provider.url, tmp_path, models=EMBEDDED)
    history = [
        {"role": "user", "content": "How long is the kettle guaranteed?"},
        {"role": "assistant", "content": "The kettle is guaranteed for 2 years [1]."},
    ]
    answer = rag("And what does it cost?", history)
    assert (answer.outcome, answer.usage.calls, provider.calls) == (Outcome.ANSWERED, 1, 1)
    assert answer.trace.path[0].startswith("follows on: ")
    assert "guaranteed for 2 years" in prompts[0] and "And what does it cost?" in prompts[0]
    rag("What does the kettle cost?")
    assert "How long is the kettle" not in prompts[1]


def test_the_embedded_reader_quotes_where_the_model_cannot_be_reached(tmp_path):
    with serve() as gone:
        rag = program_at(gone.url, tmp_path, models=EMBEDDED, provider="retries = 0")
    rag.policy.turn(sentences=1)
    answer = rag("What does the kettle cost?")
    assert answer.text == "The kettle costs GBP 10 [1]." and answer.stopped_by is StoppedBy.DONE
    assert any(note.startswith("openai/stand-in") and note.endswith("wrote") for note in answer.degraded)
    assert answer.usage.calls == 0 and "ask: quote" in answer.trace.path
