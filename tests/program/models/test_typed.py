"""Values out of replies: what Hypothesis finds must be a value in range or a refusal."""

import json
import math
import time
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from program.models.language.adapter import FencedAdapter
from program.models.language.decision_format import read_decisions
from program.models.language.fence import LinkFilter, remove_links
from program.models.language.parsing import UnreadableReply, read_records, read_texts
from program.signatures import Decompose, Detail

NOUL = {"supported": {"type": "noul", "instructions": "The passages state the claim."}}
CHOICE = {"route": {"type": "choice", "criteria": {"direct": "", "simple": "", "complex": ""}}}
BOTH = {**NOUL, **CHOICE}
scraps = st.sampled_from(
    [*'{}[]:,"', "yes", "no", "0.8", "supported", "80%", "simple", "```", "null", "<think>", "nan"]
)
replies = (
    st.text(max_size=60) | st.lists(scraps, max_size=20).map("".join) | st.lists(scraps, max_size=20).map(" ".join)
)


@given(replies, st.sampled_from([{"a": False}, {"a": True}, {"a": False, "b": False}, {"a": True, "b": False}]))
def test_any_text_is_read_as_values_in_range_or_refused(text, outputs):
    with suppress(UnreadableReply):
        answer = read_decisions(text, NOUL)["supported"]["noul"]
        assert math.isfinite(answer) and 0 <= answer <= 1
    with suppress(UnreadableReply):
        shares = read_decisions(text, CHOICE)["route"]["probabilities"]
        assert set(shares) == {"direct", "simple", "complex"}
        assert math.isclose(sum(shares.values()), 1, abs_tol=1e-5)
    with suppress(UnreadableReply):
        values = read_texts(text, outputs)
        assert {name: isinstance(value, list) for name, value in values.items()} == outputs
    assert all(isinstance(detail, Detail) for detail in read_records(text, "details", Detail))


@given(st.floats(0, 1), st.sampled_from(["yes", "no"]), st.sampled_from(["direct", "simple", "complex"]))
def test_a_well_formed_reply_is_read_as_it_says(probability, verdict, label):
    shares = {each: 0.8 if each == label else 0.1 for each in CHOICE["route"]["criteria"]}
    reply = {
        "supported": {"reason": "r", "verdict": verdict, "probability": probability},
        "route": {"reason": "r", "choice": label, "probabilities": shares},
    }
    if (probability < 0.5) if verdict == "yes" else (probability > 0.5):
        with pytest.raises(UnreadableReply):
            read_decisions(json.dumps(reply), BOTH)
        return
    answers = read_decisions(json.dumps(reply), BOTH)
    assert answers["supported"]["noul"] == probability
    assert answers["route"]["probabilities"] == pytest.approx(shares)


@example(0.0, 11)
@given(st.floats(0, 1), st.integers(1, 200))
def test_a_reply_cut_anywhere_never_changes_the_verdict(probability, length):
    verdict = "yes" if probability >= 0.5 else "no"
    whole = json.dumps({"supported": {"reason": "r", "verdict": verdict, "probability": probability}})
    try:
        answer = read_decisions(whole[:length], NOUL)["supported"]["noul"]
    except UnreadableReply:
        return
    assert (answer >= 0.5) == (verdict == "yes")


PLAN = '{"sub_queries": ["Who leads Dune?", "Where does she live?"], "details": %s}'


@pytest.mark.parametrize(
    ("details", "read"),
    [
        ('[{"n": 2, "base": "", "priority": 1, "after": [1]}]', [Detail(n=2, after=[1])]),
        ('[{"n": "2", "after": ["1"]}, {"n": "the second"}, "2", null]', [Detail(n=2, after=[1])]),
        ("[]", []),
        ("null", []),
        ('"none"', []),
    ],
)
def test_a_plan_keeps_the_details_that_are_in_their_form(details, read):
    plan = FencedAdapter().parse(Decompose, PLAN % details)
    assert plan == {"sub_queries": ["Who leads Dune?", "Where does she live?"], "details": read}
    assert FencedAdapter().parse(Decompose, "1. One thing\n2. Another")["details"] == []


def test_the_form_of_a_plan_and_an_example_of_it_read_back_as_they_were():
    adapter, plan = FencedAdapter(), {"sub_queries": ["a", "b"], "details": [Detail(n=2, base="x", after=[1])]}
    assert adapter.parse(Decompose, adapter.format_assistant_message_content(Decompose, plan)) == plan
    form = adapter.format_system_message(Decompose).partition("Form: ")[2].splitlines()[0]
    assert json.loads(form)["details"] == [{"n": 1, "base": "", "priority": 1, "after": [1]}]


@pytest.mark.parametrize("scrap", ["[", "![", "{", "[x](", "\n", "a: ", " ", '{"a":', "[{", "http://", "<a", "- "])
def test_no_reply_however_made_keeps_the_reader_for_seconds(scrap):
    text, began = (scrap * 32_000)[:32_000] + "x)", time.process_time()
    remove_links(text)
    links = LinkFilter()
    links.feed(text)
    links.rest()
    for outputs in ({"a": False}, {"a": True}, {"a": False, "b": False}):
        with suppress(UnreadableReply):
            read_texts(text, outputs)
    with suppress(UnreadableReply):
        read_decisions("x" + text, NOUL)
    assert time.process_time() - began < 3.0, "of the processor's time: by the square of the length it would be ten"
