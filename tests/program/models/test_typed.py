"""Values out of replies: what a model wrote is read as it says, or asked for once more, and never guessed."""

import json
import math
import time
from contextlib import suppress
from pathlib import Path

import pytest
from dspy.utils.exceptions import AdapterParseError
from hypothesis import given
from hypothesis import strategies as st

from ragc.models.deciders import LanguageDecider
from ragc.models.language.adapter import FencedAdapter
from ragc.models.language.fence import LinkFilter, remove_links
from ragc.models.language.gateway import EndpointTerms, shared_gateway
from ragc.models.language.spending import track_spending
from ragc.signatures import Decompose, Detail, Generate, Missing
from tests.support.provider import serve

TORTURE = [json.loads(line) for line in (Path(__file__).parent / "torture.jsonl").read_text().splitlines()]
NOUL = {"supported": {"type": "noul", "instructions": "The passages state the claim."}}
CHOICE = {
    "route": {"type": "choice", "instructions": "How much.", "criteria": {"direct": "", "simple": "", "complex": ""}}
}
SCORE = {"tone": {"type": "score", "instructions": "How polite.", "criteria": ["rude", "neutral", "kind"]}}
STATE = {"instructions": "Decide.", "inputs": {"claim": "It is blue."}}
DECIDED = {"noul": NOUL, "choice": CHOICE}
WRITTEN = {"list": Decompose, "pair": Missing, "text": Generate}
scraps = st.sampled_from([*'{}[]:,"', *'yes 0.8 "supported" "verdict" simple ``` null <think> nan'.split()])
replies = st.text(max_size=60) | st.sampled_from(["", " "]).flatmap(
    lambda gap: st.lists(scraps, max_size=20).map(gap.join)
)


class Asked:
    """A chat model that always replies the same, and what it is taken to have decided."""

    def __init__(self, provider):
        provider.brain = lambda body: self.reply
        endpoint = shared_gateway().endpoint("openai/stand-in", provider.url, EndpointTerms(retries=0))
        self.decide = LanguageDecider(endpoint)

    def read(self, reply, questions):
        """Return the answers, or None where the safe default was taken."""
        self.reply = reply or " "
        with track_spending() as spent:
            answers = self.decide(STATE, questions)
        return None if spent.notes else answers


@pytest.fixture(scope="module")
def asked():
    with serve() as provider:
        yield Asked(provider)


def written(reply, signature):
    """What the adapter reads of a reply, or None where it is asked for again."""
    with suppress(AdapterParseError):
        return FencedAdapter().parse(signature, reply)


@pytest.mark.parametrize("kind", [*DECIDED, *WRITTEN])
def test_a_malformed_reply_is_mended_or_refused_but_never_believed(asked, kind):
    for line in (line for line in TORTURE if line["kind"] == kind):
        if kind in WRITTEN:
            found = written(line["reply"], WRITTEN[kind])
            found = found and {name: value for name, value in found.items() if name != "details"}
        elif found := asked.read(line["reply"], DECIDED[kind]):
            (answer,) = found.values()
            shares = answer.get("probabilities")
            found = max(shares, key=shares.get) if shares else answer["noul"] >= 0.5
        assert found == line["expect"], line["reply"]


@given(replies, st.sampled_from([Decompose, Missing, Generate]))
def test_any_text_is_read_as_values_of_their_type_or_refused(text, signature):
    if (values := written(text, signature)) is not None:
        assert values.keys() == signature.output_fields.keys()
        assert all(isinstance(value, str) for name, value in values.items() if name not in ("sub_queries", "details"))
        assert all(isinstance(detail, Detail) for detail in values.get("details", []))


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.5, 0.97, 1.0])
def test_a_reply_cut_anywhere_never_changes_the_verdict(asked, probability):
    verdict = "yes" if probability >= 0.5 else "no"
    whole = json.dumps({"supported": {"reason": "r", "verdict": verdict, "probability": probability}})
    assert asked.read(whole, NOUL) == {"supported": {"noul": probability}}
    assert not any(asked.read(whole[:length], NOUL) for length in range(1, len(whole), 7))


def test_choices_and_scores_are_distributions_over_their_options(asked):
    shares = {"direct": 0.1, "simple": 0.82, "complex": 0.1}
    (route,) = asked.read(json.dumps({"route": {"choice": "simple", "probabilities": shares}}), CHOICE).values()
    assert math.isclose(sum(route["probabilities"].values()), 1) and route["confidence"] < 0.82
    levels = {"0": 0.2, "1": 0.5, "2": 0.3}
    (tone,) = asked.read(json.dumps({"tone": {"choice": "1", "probabilities": levels}}), SCORE).values()
    assert tone["probabilities"] == pytest.approx(levels)


@pytest.mark.parametrize(
    ("details", "read"),
    [
        ('[{"n": 2, "priority": 1, "after": [1]}]', [Detail(n=2, after=[1])]),
        ('[{"n": "2", "after": ["1"]}, {"n": "the second"}, "2", null]', [Detail(n=2, after=[1])]),
        ("null", []),
        ('"none"', []),
    ],
)
def test_a_plan_keeps_the_details_that_are_in_their_form_and_its_form_reads_back_as_it_was(details, read):
    asked = ["Who leads Dune?", "Where does she live?"]
    plan = written(json.dumps({"sub_queries": asked, "details": json.loads(details)}), Decompose)
    assert plan == {"sub_queries": asked, "details": read}
    adapter = FencedAdapter()
    assert adapter.parse(Decompose, adapter.format_assistant_message_content(Decompose, plan)) == plan
    form = adapter.format_system_message(Decompose).partition("Form: ")[2].splitlines()[0]
    assert json.loads(form)["details"] == [{"n": 1, "priority": 1, "after": [1]}]


@pytest.mark.parametrize("scrap", ["[", "![", "{", "{}", "[x](", "\n", "a: ", '{"a":', "[{", "http://", "<a", "- "])
def test_no_reply_however_made_keeps_the_reader_for_seconds(scrap):
    text, began, links = (scrap * 32_000)[:32_000] + "x)}", time.process_time(), LinkFilter()
    remove_links(text)
    links.feed(text)
    links.rest()
    for signature in (Decompose, Missing, Generate):
        written(text, signature)
        written("{x" + text, signature)
    assert time.process_time() - began < 3.0, "of the processor's time: by the square of the length it would be ten"
