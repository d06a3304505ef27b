"""What a model that writes replied: its kind, read whatever stands around the word, and shown only where it answers."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragc.loop.reply import MOST_OPTIONS, AnswerFilter, ReplyKind, TypedReply, read_reply

ANSWER = "The Merle holds 1.7 litres [1]."


@pytest.mark.parametrize("before", ["", "\n ", "**", "__", "# ", "### **"])
@pytest.mark.parametrize("behind", [":", "**: ", ":** ", "__:\n\n", ":\n"])
def test_a_kind_is_read_whatever_marks_stand_around_its_word(before, behind):
    for kind in (ReplyKind.MISSING, ReplyKind.WHICH, ReplyKind.GENERAL, ReplyKind.QUOTE):
        assert read_reply(f"{before}{kind}{behind}The fee") == TypedReply(kind, "The fee")


@pytest.mark.parametrize("text", ["", " \n", "none", "None.", " NONE", '"none"', "**none**", "'None.'", "..."])
def test_an_empty_text_or_none_says_that_something_is_missing(text):
    assert read_reply(text) == TypedReply(ReplyKind.MISSING, "")


@pytest.mark.parametrize(
    "text",
    [ANSWER, "None of the plans has a fee [2].", "Which: of two?", "It is MISSING: a lid [1].", "MISSING a lid."],
)
def test_what_begins_with_no_kind_is_an_answer_as_it_stands(text):
    assert read_reply(f" {text}\n") == TypedReply(ReplyKind.ANSWERED, text)


@pytest.mark.parametrize("mark", [" QUERY:", "\nQUERY: ", " **QUERY:** ", "; QUERY: ", ".\n__QUERY__: "])
def test_what_is_missing_ends_where_the_query_that_would_find_it_begins(mark):
    found = read_reply(f"MISSING: the fee\nafter a week{mark}late  fee\nafter 7 days")
    missing = "the fee after a week" + "." * mark.startswith(".")
    assert found == TypedReply(ReplyKind.MISSING, missing, "late fee after 7 days")
    assert read_reply("MISSING: the SUBQUERY: of it").query == ""


@pytest.mark.parametrize("mark", ["- ", "* ", "• ", "1. ", "  2) "])
def test_the_options_of_a_question_back_stand_on_lines_of_their_own_each_once_and_few(mark):
    lines = [f"{mark}{option}" for option in ("Basic", "Pro", "Basic")]
    assert read_reply("\n".join(["WHICH: Which plan", "do you mean?", *lines])) == TypedReply(
        ReplyKind.WHICH, "Which plan do you mean?", options=("Basic", "Pro")
    )
    many = "\n".join(f"{mark}option {n}" for n in range(20))
    assert len(read_reply(f"WHICH: Which?\n{many}").options) == MOST_OPTIONS
    assert read_reply("WHICH: Which plan?").options == ()


WORDS = [
    *(f"{kind}:" for kind in ReplyKind if kind),
    *ReplyKind,
    "QUERY:",
    "none",
    "None",
    "Merle",
    "1.7",
    "[1]",
    "- Pro",
]
SCRAPS = st.one_of(st.sampled_from([*WORDS, *"*_#.\"'\n \t:;-", " ", "**"]), st.text(max_size=4))


@given(st.lists(SCRAPS, max_size=9).map("".join), st.lists(st.integers(1, 5), min_size=1, max_size=6))
@example(" " * 30 + "MISSING: the fee", [1])
@example("**GENERAL:** 144.", [11, 9])
@example("none of it, None. [1]", [1])
@example(" none.", [2])
@example("\u00a0It is 5 [1].", [1])
def test_however_a_reply_is_cut_an_answer_is_shown_whole_and_of_another_kind_nothing(text, sizes):
    shown, pieces, at, n = AnswerFilter(), [], 0, 0
    while at < len(text):
        pieces.append(text[at : at + sizes[n % len(sizes)]])
        at, n = at + len(pieces[-1]), n + 1
    told = "".join([*map(shown.feed, pieces), shown.rest()])
    reply = read_reply(text)
    assert told.strip() == (reply.text if reply.kind in (ReplyKind.ANSWERED, ReplyKind.GENERAL) else "")


def test_an_answer_is_shown_as_it_comes_once_its_first_word_is_no_kinds():
    shown = AnswerFilter()
    assert [shown.feed(piece) for piece in ("Th", "e ", "fee")] == ["Th", "e ", "fee"]
    general = AnswerFilter()
    assert [general.feed(piece) for piece in ("GEN", "ERAL", ": ", "1", "44")] == ["", "", "", "1", "44"]
