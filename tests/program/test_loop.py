"""The loop as a generator: what it asks for, in which order, and how it ends. Replies are scripted."""

from datetime import date

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted import Scripted, noul, passage, planned, route, scores

from program.answer import Outcome, StoppedBy
from program.loop.decisions import Decision
from program.loop.grounding import FOUND_NOTHING
from program.loop.policy import PLAIN, PRESETS
from program.loop.state import Ask
from program.passage import SourceCard
from program.signatures import Detail


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


@pytest.mark.parametrize("question", ["What is 12 times 12?", "12 of 40 guest codes are gone, how many are left?"])
def test_no_rule_answers_a_question_before_the_classifier_has_seen_it(question):
    program = Scripted()
    program(question)
    assert program.asked[0] == "classifier.route"


def test_a_question_that_only_names_numbers_is_looked_up():
    program = Scripted()
    program("What do 12 locks cost?")
    assert program.asked[0] == "classifier.route"
    assert program.found


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


def test_a_cap_that_trips_sends_the_best_evidence_to_the_writer_poor_or_not():
    program = Scripted({"judge.sufficiency": {"sufficient": noul(0.2)}}, generate_above=0.5, clarify_above=0.05)
    answer = program("What does it cost?", tripped=lambda: StoppedBy.TOKENS)
    assert (answer.outcome, answer.stopped_by) == (Outcome.ANSWERED, StoppedBy.TOKENS)


@pytest.mark.parametrize("knobs", [{"generate_above": 0.5}, {"clarify_above": 0.05}])
def test_a_question_back_and_an_abstention_say_what_stopped_the_search(knobs):
    program = Scripted({"judge.sufficiency": {"sufficient": noul(0.2)}}, max_rounds=2, **knobs)
    answer = program("What does it cost?")
    assert (answer.outcome is Outcome.ANSWERED, answer.stopped_by) == (False, StoppedBy.ROUNDS)
    assert answer.outcome is Outcome.CLARIFY or answer.text.startswith(f"{FOUND_NOTHING}: the price.")


def test_a_withheld_draft_says_what_is_missing_and_what_stopped_the_search():
    replies = {
        "judge.sufficiency": {"sufficient": noul(0.3)},
        "judge.missing": lambda n: {"missing": "the price", "next_query": f"try {n}"},
        "grounder.support": {"supported": noul(0.1)},
    }
    program = Scripted(replies, max_rounds=2, each_part=0)
    tripped = iter([None] * 4)
    answer = program("What does it cost?", tripped=lambda: next(tripped, StoppedBy.USD))
    assert (answer.outcome, answer.stopped_by) == (Outcome.ABSTAIN, StoppedBy.USD)
    assert answer.text.startswith(f"{FOUND_NOTHING}: the price.")


def test_a_part_of_a_question_whose_judgement_cannot_be_read_is_not_looked_up_again():
    judged = {
        "judge.sufficiency": lambda n: {"sufficient": noul(0.9) if n == 1 else Decision(False, 0.0, undecided=True)}
    }
    program = Scripted({"classifier.route": route("complex"), **judged}, each_part=1)
    assert program("What?").rounds[0].completeness == 1.0
    assert program.asked.count("judge.sufficiency") == 3


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


def test_what_cannot_be_answered_directly_is_looked_up_or_left_as_the_knob_says():
    unknown = {"classifier.route": route("direct"), "generator.direct": {"answer": ""}}
    assert Scripted(unknown)("What does RAM stand for?").outcome is Outcome.ANSWERED
    program = Scripted(unknown, look_up_unknown=0)
    assert program("What does RAM stand for?").outcome is Outcome.ABSTAIN
    assert "generator.answer" not in program.asked


def test_a_vague_question_is_asked_back_whatever_its_route():
    answer = Scripted({"classifier.route": route("direct", vague=0.9)})("How much is it?")
    assert answer.outcome is Outcome.CLARIFY


@pytest.mark.parametrize(
    ("sure", "vague", "outcome"), [(0.8, 0.6, "answered"), (0.55, 0.51, "answered"), (0.8, 0.85, "clarify")]
)
def test_a_question_that_is_rather_direct_than_vague_is_not_asked_back_about(sure, vague, outcome):
    program = Scripted({"classifier.route": route("direct", vague=vague, sure=sure)})
    assert program("Write me a haiku.").outcome.value == outcome


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


@pytest.mark.parametrize(
    ("likely", "knobs", "strategy"),
    [
        ({"shop": 0.9}, {}, "vector"),
        ({"sales": 0.9}, {}, "tables"),
        ({"name": "direct"}, {}, "direct"),
        ({}, PLAIN, ""),
    ],
)
def test_an_answer_tells_which_way_of_looking_up_its_plan_put_first(likely, knobs, strategy):
    cards = [SourceCard("shop", "documents", "kettles"), SourceCard("sales", "tables", "orders")]
    program = Scripted({"classifier.route": planned(**{"shop": 0.1, "sales": 0.1, **likely})}, cards=cards, **knobs)
    assert program("How big is it?").strategy == strategy


@pytest.mark.parametrize("knobs", [{"judge": 0}, {"judge": 1, "fast_above": 0.5}, {}])
def test_an_answer_whose_claims_nobody_checked_is_as_sure_as_it_answers_the_question(knobs):
    changed = {"classifier.route": route(sure=0.99), "grounder.responsive": {"responsive": noul(0.23)}}
    assert Scripted(changed, vouches=True, ground=0, **knobs)("How big is it?").confidence == 0.23


def test_where_that_would_cost_a_call_it_is_not_asked_and_the_answer_given_half_of_what_is_hoped():
    program = Scripted({"classifier.route": route(sure=0.9)}, ground=0, fast_above=0.5)
    assert program("How big is it?").confidence == pytest.approx(0.45)
    assert "grounder.responsive" not in program.asked


def test_where_that_would_cost_a_call_judged_evidence_says_how_sure_an_unchecked_answer_is():
    program = Scripted(ground=0)
    assert program("How big is it?").confidence == pytest.approx(0.9)
    assert "grounder.responsive" not in program.asked


@pytest.mark.parametrize("knobs", [{}, {"judge": 0}, {"fast_above": 0.5}, {"max_rounds": 1, "k": 2}])
@pytest.mark.parametrize("vouches", [True, False])
def test_a_draft_that_answers_less_than_is_asked_for_is_withheld_though_its_claims_are_not_checked(knobs, vouches):
    changed = {"classifier.route": route(sure=0.99), "grounder.responsive": {"responsive": noul(0.23)}}
    for answer_above, outcome in ((0.24, Outcome.ABSTAIN), (0.23, Outcome.ANSWERED)):
        program = Scripted(changed, vouches=vouches, ground=0, answer_above=answer_above, **knobs)
        assert program("How big is it?").outcome is outcome
        assert "grounder.support" not in program.asked


def test_a_draft_from_poor_evidence_may_be_withheld_as_well():
    changed = {"judge.sufficiency": scores(0.1), "grounder.responsive": {"responsive": noul(0.2)}}
    assert Scripted(changed, ground=0, max_rounds=1)("How big is it?").outcome is Outcome.ANSWERED
    assert Scripted(changed, ground=0, max_rounds=1, answer_above=0.3)("How big is it?").outcome is Outcome.ABSTAIN


def test_plain_rag_withholds_nothing():
    program = Scripted({"grounder.responsive": {"responsive": noul(0.1)}}, **PLAIN, answer_above=0.9)
    assert program("How big is it?").outcome is Outcome.ANSWERED
    assert program.asked == ["generator.answer"]


def test_what_a_dependent_look_up_finds_stands_beside_its_parents_evidence_and_takes_no_room_from_it():
    changed = {
        "classifier.route": route("complex"),
        "decomposer.split": {"sub_queries": ["a?", "a?"], "details": [Detail(n=2, after=[1])]},
        "decomposer.follow": {"query": "b?"},
    }
    found = {query: [passage(f"product/{query[0]}{n}", dense=0.9 - n / 10) for n in range(5)] for query in ("a?", "b?")}
    program = Scripted(changed, pool=lambda find: found.get(find.query, []), judge=0, ground=0, k=2, keep_at_most=2)
    assert [id[-2:] for id in program("How big is it?").retrieved] == ["a0", "b0", "a1", "b1"]


@pytest.mark.parametrize("failing", ["classifier.route", "judge.relevance", "judge.sufficiency", "grounder.support"])
def test_a_failed_step_ends_as_plain_rag(failing):
    program = Scripted()
    answer = program("How big?", fail=lambda r: isinstance(r, Ask) and r.predictor == failing)
    assert answer.stopped_by is StoppedBy.FALLBACK
    assert answer.outcome is Outcome.ANSWERED


def test_when_even_the_fallback_fails_the_program_abstains():
    answer = Scripted()("How big?", fail=lambda request: True)
    assert (answer.outcome, answer.stopped_by) == (Outcome.ABSTAIN, StoppedBy.FALLBACK)


@pytest.mark.parametrize("changed", [{"pool": []}, {"changed": {"generator.answer": {"answer": " "}}}])
def test_a_fallback_that_has_nothing_to_say_abstains(changed):
    program = Scripted(**changed)
    answer = program("How big?", fail=lambda r: isinstance(r, Ask) and r.predictor.startswith("classifier"))
    assert (answer.outcome, answer.stopped_by) == (Outcome.ABSTAIN, StoppedBy.FALLBACK)
    assert answer.text


def test_plain_rag_that_writes_nothing_abstains():
    assert Scripted({"generator.answer": {"answer": ""}}, **PLAIN)("How big?").outcome is Outcome.ABSTAIN


def test_a_spent_budget_ends_the_searching():
    program = Scripted({"judge.sufficiency": {"sufficient": noul(0.2)}}, max_rounds=4)
    answer = program("What does it cost?", tripped=lambda: StoppedBy.SECONDS)
    assert answer.stopped_by is StoppedBy.SECONDS
    assert len(program.found) == 1


CARDS = [SourceCard("docs", "documents", "d"), SourceCard("news", "web", "w"), SourceCard("rows", "tables", "t")]
STATED = ["You have 14 days to ask.", "You have 30 days to ask.", "Ask by letter."]
SHELF = [
    passage(f"{card.name}/a.md#{n}", text, 0.9 - n / 10, as_of=date(2024 + n, 1, 1), superseded_by="x" * (n == 0))
    for card in CARDS
    for n, text in enumerate(STATED)
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=40, max_size=40),
    st.sampled_from(["direct", "simple", "complex"]),
    st.integers(1, 4),
    st.sampled_from(sorted(PRESETS)),
    st.sampled_from(["What does it cost?", "What is the latest price?", "What did it cost in 2025?"]),
    st.sampled_from(["", "try again", "try {n}"]),
)
@example([0.0] * 40, "simple", 3, "judge-and-ground", "What does it cost?", "")  # the same claims drafted again
def test_whatever_the_models_say_every_design_ends_within_its_rounds_and_searches_nothing_twice(
    numbers, chosen, rounds, preset, question, rewrite
):
    draws = iter(numbers * 40)
    replies = {
        "classifier.route": planned(chosen, next(draws), docs=next(draws), news=next(draws), rows=next(draws)),
        "decomposer.split": {"sub_queries": ["a?", "b?", "c?"], "details": [Detail(n=2, after=[1])]},
        "decomposer.follow": {"query": "b of a?"},
        "judge.relevance": lambda n: {"relevant": noul(next(draws))},
        "judge.sufficiency": lambda n: {"sufficient": noul(next(draws))},
        "judge.contradiction": lambda n: {"contradict": noul(next(draws))},
        "judge.missing": lambda n: {"missing": "x", "next_query": rewrite.format(n=n)},
        "grounder.support": lambda n: {"supported": noul(next(draws))},
        "grounder.responsive": lambda n: {"responsive": noul(next(draws))},
    }
    knobs = {**PRESETS[preset], "max_rounds": min(rounds, PRESETS[preset].get("max_rounds", 4))}
    program = Scripted(replies, cards=CARDS, pool=lambda find: SHELF[len(find.query) % 5 :][:4], **knobs)
    answer = program(question)
    assert len(answer.rounds) <= knobs["max_rounds"]
    assert len(program.found) == len(set(program.found))
    assert isinstance(answer.outcome, Outcome)
    assert 0.0 <= answer.confidence <= 1.0
    if answer.outcome is Outcome.ANSWERED and answer.rounds and answer.rounds[-1].sufficiency < 0.5:
        assert answer.stopped_by is not StoppedBy.DONE
