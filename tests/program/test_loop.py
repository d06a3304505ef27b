"""The loop as a generator: what it asks for, in which order, and how it ends. Replies are scripted."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from program.answer import Answer, Outcome, StoppedBy
from program.knobs import Policy
from program.knowledge.source import Passage, SourceCard
from program.loop import Ask, Find, StepFailed, steps
from program.modules import Classifier
from program.presets import PLAIN
from program.strategy import offered

CARDS = [SourceCard("product", "documents", "kettles"), SourceCard("billing", "documents", "refunds")]
POOL = [
    Passage(
        f"{base}/a.md#{n}",
        base,
        f"{base} {n}",
        f"text {n}",
        scores={"dense": 0.9 - n / 10, "keyword": 3.0 - n},
    )
    for base in ("product", "billing")
    for n in range(3)
]


def noul(probability: float) -> SimpleNamespace:
    return SimpleNamespace(value=probability >= 0.5, probability=probability)


def route(
    name: str = "simple", vague: float = 0.1, product: float = 0.9, billing: float = 0.1, sure: float = 0.8
) -> dict[str, Any]:
    return {
        "route": SimpleNamespace(value=name, probabilities={name: sure}),
        "vague": noul(vague),
        "base_product": noul(product),
        "base_billing": noul(billing),
    }


REPLIES: dict[str, Any] = {
    "classifier.route": route(),
    "decomposer.split": {"sub_queries": ["first part", "second part"]},
    "judge.relevance": {"relevant": noul(0.8)},
    "judge.sufficiency": {"sufficient": noul(0.9)},
    "judge.missing": {"missing": "the price", "next_query": "price of the kettle"},
    "generator.answer": {"answer": "Text 0. [1] Text 1. [2]"},
    "generator.direct": {"answer": "144."},
    "generator.clarify": {"clarifying_question": "Do you mean the Merle or the Wren?"},
    "grounder.support": {"supported": noul(0.9)},
    "grounder.responsive": {"responsive": noul(0.8)},
}


class Scripted:
    """A program whose predictors answer from a table; a callable entry is given the call's number."""

    def __init__(self, changed: dict[str, Any] | None = None, **knobs: float) -> None:
        self.replies = {**REPLIES, **(changed or {})}
        self.classifier = Classifier(CARDS)
        self.sources = ("product", "billing")
        self.strategies = offered(CARDS)
        self.policy = Policy()
        self.policy.turn(**knobs)
        self.asked: list[str] = []
        self.found: list[Find] = []
        self.path: list[str] = []

    def tuning(self):
        return self.policy.tuning()

    def threshold(self, predictor: str, field: str) -> float:
        return 0.5

    def __call__(self, question: str, fail: Callable[[Any], bool] = lambda request: False, **caps: Any) -> Answer:
        loop = steps(question, self, path=self.path, **caps)
        try:
            requests = next(loop)
            while True:
                if any(fail(request) for request in requests):
                    requests = loop.throw(StepFailed("scripted"))
                else:
                    requests = loop.send([self.reply(request) for request in requests])
        except StopIteration as stop:
            return stop.value

    def reply(self, request: Any) -> Any:
        if isinstance(request, Find):
            self.found.append(request)
            return [p for p in POOL if p.source in request.sources]
        assert isinstance(request, Ask)
        self.asked.append(request.predictor)
        reply = self.replies[request.predictor]
        return reply(self.asked.count(request.predictor)) if callable(reply) else reply


def test_a_simple_question_is_classified_judged_written_and_grounded():
    program = Scripted()
    answer = program("How big is it?")
    assert answer.outcome is Outcome.ANSWERED
    assert answer.text == "Text 0. [1] Text 1. [2]"
    assert [c.n for c in answer.citations] == [1, 2]
    assert answer.stopped_by is StoppedBy.DONE
    assert program.path == [
        "classify->simple[product]", "search(1)", "judge .90", "generate", "ground 2/2", "responsive .80",
    ]  # fmt: skip


def test_a_direct_question_is_answered_without_its_passages_and_marked():
    program = Scripted({"classifier.route": route("direct")})
    answer = program("12 times 12?")
    assert (answer.text, answer.citations, answer.retrieved) == ("144.", (), ())
    assert "unretrieved" in program.path


def test_a_direct_question_the_writer_cannot_answer_is_looked_up():
    program = Scripted({"classifier.route": route("direct"), "generator.direct": {"answer": " "}})
    assert program("capital of France?").citations
    assert "no direct answer" in program.path


def test_a_vague_question_is_asked_back_and_nothing_is_written():
    program = Scripted({"classifier.route": route(vague=0.9)})
    answer = program("How much does it cost?")
    assert answer.outcome is Outcome.CLARIFY
    assert answer.text == "Do you mean the Merle or the Wren?"
    assert "generator.answer" not in program.asked


def test_a_complex_question_searches_each_of_its_parts():
    program = Scripted({"classifier.route": route("complex")})
    program("How big is it and what does it cost?")
    assert [find.query for find in program.found] == [
        "How big is it and what does it cost?",
        "first part",
        "second part",
    ]


def test_insufficient_evidence_is_searched_for_again_with_what_is_missing():
    program = Scripted({"judge.sufficiency": lambda n: {"sufficient": noul(0.2 if n == 1 else 0.9)}})
    answer = program("What does it cost?")
    assert [find.query for find in program.found] == ["What does it cost?", "price of the kettle"]
    assert 'judge .20 missing "the price"' in program.path
    assert answer.stopped_by is StoppedBy.DONE


def test_a_judge_that_always_says_no_stops_at_the_round_cap_and_says_so():
    fresh = {"judge.missing": lambda n: {"missing": "x", "next_query": f"try {n}"}}
    program = Scripted({"judge.sufficiency": {"sufficient": noul(0.2)}, **fresh}, max_rounds=3)
    answer = program("What does it cost?")
    assert answer.stopped_by is StoppedBy.ROUNDS
    assert len(program.found) == 3


def test_a_rewrite_that_was_tried_before_is_not_searched_again():
    program = Scripted({"judge.sufficiency": {"sufficient": noul(0.2)}}, max_rounds=4)
    program("What does it cost?")
    assert [find.query for find in program.found] == ["What does it cost?", "price of the kettle"]


def test_evidence_under_the_abstention_bar_is_not_written_up():
    program = Scripted({"judge.sufficiency": {"sufficient": noul(0.2)}}, generate_above=0.5)
    answer = program("What does it cost?")
    assert answer.outcome is Outcome.ABSTAIN
    assert "generator.answer" not in program.asked


def test_an_unsupported_claim_is_written_again_strictly_and_then_withdrawn():
    support = {"grounder.support": lambda n: {"supported": noul(0.9 if n % 2 else 0.1)}}
    program = Scripted(support)
    answer = program("What does it cost?")
    assert program.asked.count("generator.answer") == 2
    assert "generate strictly" in program.path
    assert answer.text == "Text 0. [1]"
    assert answer.supported == 0.5


def test_a_draft_without_any_upheld_claim_is_an_abstention():
    answer = Scripted({"grounder.support": {"supported": noul(0.1)}})("What does it cost?")
    assert answer.outcome is Outcome.ABSTAIN


def test_a_draft_that_misses_the_question_is_withheld():
    answer = Scripted({"grounder.responsive": {"responsive": noul(0.2)}})("What does it cost?")
    assert answer.outcome is Outcome.ABSTAIN


def test_a_mark_that_points_at_no_passage_is_no_citation():
    answer = Scripted({"generator.answer": {"answer": "Text 0. [1] Made up. [9]"}})("What?")
    assert answer.text == "Text 0. [1]"


def test_plain_rag_is_one_search_and_one_text():
    program = Scripted(**PLAIN)
    answer = program("How big is it?")
    assert program.asked == ["generator.answer"]
    assert len(program.found) == 1
    assert answer.outcome is Outcome.ANSWERED


@pytest.mark.parametrize("failing", ["classifier.route", "judge.relevance", "judge.sufficiency", "grounder.support"])
def test_a_failed_step_ends_as_plain_rag(failing):
    program = Scripted()
    answer = program("How big?", fail=lambda r: isinstance(r, Ask) and r.predictor == failing)
    assert answer.stopped_by is StoppedBy.FALLBACK
    assert answer.outcome is Outcome.ANSWERED


def test_when_even_the_fallback_fails_the_program_abstains():
    answer = Scripted()("How big?", fail=lambda request: True)
    assert (answer.outcome, answer.stopped_by) == (Outcome.ABSTAIN, StoppedBy.FALLBACK)


def test_a_spent_budget_ends_the_searching():
    program = Scripted({"judge.sufficiency": {"sufficient": noul(0.2)}}, max_rounds=4)
    answer = program("What does it cost?", tripped=lambda: StoppedBy.SECONDS)
    assert answer.stopped_by is StoppedBy.SECONDS
    assert len(program.found) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=40, max_size=40),
    st.sampled_from(["direct", "simple", "complex"]),
    st.integers(1, 4),
)
def test_whatever_the_models_say_the_loop_ends_within_its_rounds(numbers, chosen, rounds):
    draws = iter(numbers * 20)
    replies = {
        "classifier.route": route(chosen, next(draws), next(draws), next(draws)),
        "judge.relevance": lambda n: {"relevant": noul(next(draws))},
        "judge.sufficiency": lambda n: {"sufficient": noul(next(draws))},
        "judge.missing": lambda n: {"missing": "x", "next_query": f"try {n}"},
        "grounder.support": lambda n: {"supported": noul(next(draws))},
        "grounder.responsive": lambda n: {"responsive": noul(next(draws))},
    }
    program = Scripted(replies, max_rounds=rounds)
    answer = program("What does it cost?")
    assert program.asked.count("judge.sufficiency") <= rounds
    assert isinstance(answer.outcome, Outcome)
    assert 0.0 <= answer.confidence <= 1.0
