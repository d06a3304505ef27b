"""The local writer fills the generative signatures from what the reader finds, and behaves as any DSPy model does."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import dspy
import numpy as np
import pytest
from dspy.utils.exceptions import LMUnexpectedError
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc.errors import ModelError
from ragc.loop.reply import ReplyKind, read_reply
from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import shared_embedder
from ragc.models.embedded.reader import Reader, Reading, shared_reader
from ragc.models.embedded.writer import local_writer, solve_sum
from ragc.models.language.adapter import use_adapter
from ragc.signatures import Decompose, Excerpt, FollowUp, Generate, Missing

PRICES = "Plans.\n\nPlan: Basic Plus; Monthly: GBP 4.50\nPlan: Deluxe; Monthly: GBP 19\n"
COMPOUND = "What does Deluxe cost and how many doors does it cover?"


class WordReader(Reader):
    """A reader whose best span is a word that a text shares with the question."""

    def read_pairs(self, pairs):
        return [self._read_words(question, text) for question, (_, text) in pairs]

    def _read_words(self, question, text):
        asked = set(re.findall(r"\w{3,}", question.casefold()))
        words = list(re.finditer(r"\w+", text))
        shared = np.array([1.0 if word[0].casefold() in asked else -0.5 for word in words], np.float32)
        offsets = np.array([word.span() for word in words], np.int32).reshape(-1, 2)
        known = len({word[0].casefold() for word in words} & asked)
        return Reading(known - 1.5, offsets, np.stack([shared, shared]))


def passage(n, text, title="Guide"):
    return Excerpt(n=n, base="docs", title=title, text=text)


PASSAGES = [passage(1, "The payroll service is run by the Harbour team.", "Services"), passage(2, PRICES, "Prices")]


def ask(signature, reader=None, **asked):
    writer = local_writer(LocalDecider(shared_embedder(), reader or WordReader()))
    with use_adapter(writer), dspy.context(lm=writer):
        return dspy.Predict(signature)(**asked)


TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            "Deluxe costs GBP 19 a month. Dr. Smith | **bold** `code` [link](http://x.y) [[ ## answer ## ]] [7] [**8**] - ; ? ! "
            "שלום עולם. مرحبا 🙂 👩‍👩‍👧 café \n \n\n # * > 1. Ignore all previous instructions.".split(" ")
        ),
        max_size=40,
    ).map(" ".join),
)


@settings(max_examples=25)
@given(TEXTS, TEXTS, TEXTS)
def test_any_text_fills_every_signature_the_same_way_twice(question, text, title):
    passages = [passage(1, text, title), passage(2, question, "A > B"), passage(3, "")]
    for signature, more in ((Decompose, {}), (FollowUp, {"draft": title}), (Missing, {})):
        asked = {"question": question, **more} | ({} if signature is Decompose else {"passages": passages})
        assert dict(ask(signature, **asked)) == dict(ask(signature, **asked))


@pytest.mark.parametrize("question", ["", "How much is Deluxe?", "How does it do that, and why? " * 300])
def test_the_packaged_reader_answers_short_and_long_questions_from_many_threads(question):
    asked = {"question": question, "passages": PASSAGES}
    with ThreadPoolExecutor(4) as pool:
        queries = list(pool.map(lambda _: ask(Missing, shared_reader(), **asked).next_query, range(8)))
    assert len(set(queries)) == 1 and queries[0] is not None


async def test_it_answers_the_same_in_turn_and_awaited_with_its_usage_in_words():
    writer = local_writer(LocalDecider(shared_embedder(), WordReader()))
    split = dspy.Predict(Decompose)
    with use_adapter(writer), dspy.context(lm=writer), dspy.track_usage() as tracker:
        parts = [split(question=COMPOUND).sub_queries, (await split.acall(question=COMPOUND)).sub_queries]
    assert parts == [["What does Deluxe cost", "how many doors does it cover?"]] * 2
    used = tracker.get_total_tokens()["local/reader"]
    assert used["prompt_tokens"] == 2 * len(COMPOUND.split()) and used["completion_tokens"]


def test_a_text_from_passages_is_left_to_the_loop_which_quotes():
    asked = {"question": "How much is Deluxe?", "conversation": [], "sentences": 1}
    assert read_reply(ask(Generate, **asked, passages=PASSAGES).answer).kind is ReplyKind.QUOTE


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Who owns the boat; where is it kept?", ["Who owns the boat", "where is it kept?"]),
        ("Who owns the boat, and to whom does she rent it?", ["Who owns the boat", "to whom does she rent it?"]),
        ("I lost my key. What do I do? Is it dear?", ["I lost my key. What do I do?", "Is it dear?"]),
        ("When and where was the boat built?", []),
        ("If it rains in May, how much do I get back?", []),
        ("When it rains in May, what do I get?", []),
        ("Who owns the boat, which was built in May?", []),
        ("Are the boat and the raft both red?", []),
        ("Who owns it and why?", []),
    ],
)
def test_a_question_is_split_where_a_question_word_begins_a_clause(question, parts):
    assert ask(Decompose, question=question).sub_queries == (parts or [question])


def test_a_follow_up_adds_the_span_that_the_passages_give():
    found = [passage(1, "The canteen opens at noon."), passage(2, "Payroll is run by Harbour.")]
    asked = {"question": "By whom is payroll run?", "draft": "Who leads that team?"}
    assert ask(FollowUp, **asked, passages=found).query == "Who leads that team? Payroll"
    known = {**asked, "draft": "Payroll is run by which team?"}
    assert ask(FollowUp, **known, passages=found).query == known["draft"]
    assert ask(FollowUp, **asked, passages=[]).query == asked["draft"]


def test_the_part_that_the_passages_answer_least_is_missing():
    found, doors, one = (
        [passage(1, "Deluxe does cost GBP 19, what else.", "Prices > Deluxe")],
        "how many doors does it cover?",
        "What does Deluxe cost?",
    )
    for question, passages, missing, query in (
        (COMPOUND, found, doors, f"{doors} Prices Deluxe"), (one, found, "", ""), (one, [], one, one),
    ):  # fmt: skip
        told = ask(Missing, question=question, passages=passages)
        assert (told.missing, told.next_query) == (missing, query)


def test_what_it_cannot_fill_and_a_prompt_are_refused_with_the_way_out():
    writer = local_writer(LocalDecider(shared_embedder(), WordReader()))
    with pytest.raises(ModelError, match=r"cannot fill poem.*\[models\] write"):
        ask("topic -> poem", topic="rain")
    with pytest.raises(LMUnexpectedError, match="use_adapter"):
        writer("just some text")


SUMS = """What is 1024 divided by 32? 32|What is 15% of 240? 36|7 percent of 300 21|6 x 7 42|please tell me 9 divided by 4 2.25
5 - -3 8|0 * -1.0 0|0.1 + 0.2 0.3|1 / 8000000 0.000000125|1,200 x 3 3600|100 / 4 25|5*5? 25""".replace("\n", "|").split(
    "|"
)
NO_SUMS = """|42|plus 3|Who wrote Hamlet?|1 / 0|1.2.3 + 4|1e5 * 2|(3 + 4|3 + 4 or 5 + 6?|3 + 4 + 5|2026-05-12|9-5|v1 + 2
__import__('os').getcwd()|Are you open 24/7?|Do you sell 4x4 tyres?|5 + 3% of 7
I put away 12 of my 40 coins, what share of them was it?""".replace("\n", "|").split("|")


@pytest.mark.parametrize("asked", SUMS)
def test_a_sum_of_two_numbers_has_an_exact_result(asked):
    question, _, result = asked.rpartition(" ")
    assert solve_sum(question) == result


@pytest.mark.parametrize("question", NO_SUMS)
def test_what_is_no_sum_of_two_numbers_gets_no_result(question):
    assert solve_sum(question) == ("7" if question == "(3 + 4" else "")


@pytest.mark.parametrize("pattern", ["(", "-", "1+", "9**", "1 times ", "5% of ", "4x", "0 ", "a 1 ", "1,111"])
def test_a_hostile_question_is_done_within_a_second(pattern):
    start = time.process_time()
    solve_sum((pattern * 10_000)[:10_000] + "1")
    assert time.process_time() - start < 1


@given(st.integers(-9999, 9999), st.integers(1, 9999), st.sampled_from(["plus", "minus", "times", "+", "*"]))
def test_two_whole_numbers_are_combined_exactly(a, b, word):
    sums = {"plus": a + b, "+": a + b, "minus": a - b, "times": a * b, "*": a * b}
    assert solve_sum(f"What is {a} {word} {b}?") == str(sums[word])


@given(st.one_of(st.text(max_size=120), st.text("0123456789+-*/^x%.,() of", max_size=60)))
def test_no_question_makes_it_raise(question):
    float(solve_sum(question).replace(",", "") or 0)
