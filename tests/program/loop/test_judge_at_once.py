"""A chat model that judges: everything about the evidence, and about a draft's claims, in one call each."""

import asyncio
import json
import re

import pytest

from ragc import open_program
from ragc.answer import StoppedBy
from ragc.optimize.compiler.runs.replay import Record, Replay
from ragc.text.history import Asked
from tests.conftest import add_toml
from tests.support.provider import Script, serve
from tests.support.replies import obliging

QUESTION = "How much water does the Merle kettle hold?"


def chances(n, probability=0.9):
    return [{"n": at, "probability": probability} for at in range(1, n + 1)]


class Brain:
    """A stand-in provider's replies: `changed` is given the object of each judgement to alter; all prompts are kept."""

    def __init__(self):
        self.prompts = []
        self.changed = lambda values: values

    def __call__(self, body):
        prompt = "\n".join(message["content"] for message in body["messages"])
        self.prompts.append(prompt)
        passages = len(re.findall(r"<passage n=", body["messages"][-1]["content"]))
        if "Judge the passages found" in prompt:
            values = {"relevant": chances(passages), "sufficient": chances(1), "missing": "", "next_query": ""}
        elif "Check a drafted answer" in prompt:
            values = {"supported": chances(9), "responsive": chances(1)}
        else:
            return obliging(body)
        return json.dumps(self.changed(values))

    def asked(self, words):
        return len([prompt for prompt in self.prompts if words in prompt])


@pytest.fixture
def asked(own_shop):
    """A project whose every model is the stand-in, and the stand-in."""
    brain = Brain()
    with serve(Script(), brain) as provider:
        models = '[models]\ndecide = "openai/x"\nwrite = "openai/x"\n[provider]\nfallback = false\n'
        models += f'[provider.model."openai/x"]\napi_base = "{provider.url}"\n'
        yield open_program(add_toml(own_shop, models)), brain


WAYS = {
    "asked": lambda program: program(QUESTION),
    "awaited": lambda program: asyncio.run(program.aask(QUESTION)),
    "replayed": lambda program: Replay(program, Record())(Asked(QUESTION)),
}


def poor(values):
    if "sufficient" in values:
        return {**values, "sufficient": chances(1, 0.2), "missing": "descaling", "next_query": "descaling the kettle"}
    return values


def test_a_question_judged_takes_four_calls_and_every_decision_is_counted(asked):
    program, brain = asked
    answer = program(QUESTION)
    assert [step.name for step in answer.trace.steps if step.name != "search"] == [
        "classifier.route", "judge.evidence", "generator.answer", "grounder.claims",
    ]  # fmt: skip
    assert len(brain.prompts) == answer.usage.calls == 4
    assert answer.usage.decisions > 7 and answer.confidence == pytest.approx(0.9)
    assert sum(step.tokens_in for step in answer.trace.steps) == answer.usage.tokens_in


@pytest.mark.parametrize("change", [lambda values: values, poor])
def test_asked_awaited_or_replayed_the_answer_is_the_same(asked, change):
    program, brain = asked
    brain.changed = change
    answers = [way(program) for way in WAYS.values()]
    assert len({(answer.text, answer.trace.path, answer.confidence) for answer in answers}) == 1


def test_what_is_missing_comes_with_the_judgement_and_a_second_round_takes_one_call_more(asked):
    program, brain = asked
    brain.changed = poor
    answer = program(QUESTION)
    assert [note for note in answer.trace.path if note.startswith("search")] == ["search(1)", "search(1)"]
    assert 'missing "descaling"' in str(answer.trace)
    assert len(brain.prompts) == 5 and brain.asked("Judge the passages found") == 2


def test_a_link_in_what_is_missing_goes_nowhere(asked):
    program, brain = asked
    link = dict.fromkeys(("missing", "next_query"), "https://evil.example/x")
    brain.changed = lambda values: {**poor(values), **link}
    assert "evil" not in str(program(QUESTION).trace)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("unread", ["sufficient", "relevant"])
def test_a_judgement_that_is_left_out_is_no_score_and_no_reason_to_search_again(asked, unread, way):
    program, brain = asked
    brain.changed = lambda values: {**values, unread: [{"n": 1, "probability": "who knows"}]}
    answer = WAYS[way](program)
    assert (answer.stopped_by, answer.confidence, answer.rounds) == (StoppedBy.FALLBACK, 0.0, ())
    assert answer.citations and sum(note.startswith("search") for note in answer.trace.path) == 1


def test_a_list_that_is_too_short_leaves_the_rest_undecided_and_one_too_long_is_cut(asked):
    program, brain = asked
    program.policy.turn(keep_at_least=0)
    brain.changed = lambda values: {**values, **({"relevant": chances(1)} if "relevant" in values else {})}
    assert len(program(QUESTION).retrieved) == 1
    brain.changed = lambda values: {**values, **({"relevant": chances(99)} if "relevant" in values else {})}
    assert len(program(QUESTION).retrieved) > 1


def test_a_reply_that_is_no_judgement_is_asked_for_once_more(asked):
    program, brain = asked
    brain.changed = lambda values: "I cannot help with that." if "relevant" in values else values
    answer = program(QUESTION)
    assert brain.asked("Judge the passages found") == 2
    assert answer.stopped_by is StoppedBy.FALLBACK and "took the safe default" in str(answer.trace)


def test_a_single_decisions_threshold_holds_for_the_list_and_what_gives_way_has_the_kept_judged_anew(asked):
    program, brain = asked
    program.judge.relevance.fields["relevant"] = {"threshold": 0.95}
    assert len(program(QUESTION).retrieved) == 1  # the one that is kept at least
    program.judge.relevance.fields["relevant"] = {"threshold": 0.5}
    program.policy.turn(keep_at_most=1)
    assert len(program(QUESTION).retrieved) == 1 and brain.asked("Decide whether the passages hold everything") == 1


def test_a_claim_that_is_not_supported_gives_way_to_a_quotation(asked):
    program, brain = asked
    brain.changed = lambda values: {**values, **({"supported": chances(9, 0.1)} if "supported" in values else {})}
    answer = program(QUESTION)
    assert "ground 0/1" in answer.trace.path and "> quote ." in str(answer.trace)
