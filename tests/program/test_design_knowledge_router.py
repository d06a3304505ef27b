"""The knowledge-base router: whether to look up, where, again with another query, or ask back."""

from scripted import Scripted, passage, planned, scores

from program.answer import Outcome, StoppedBy
from program.loop.policy import PRESETS
from program.passage import SourceCard

CARDS = [SourceCard(name, "documents", name) for name in ("product", "ops", "faq")]
POOL = [passage(f"{name}/a.md#{n}") for name in ("product", "ops", "faq") for n in range(2)]
ROUTED = {"classifier.route": planned(product=0.1, ops=0.45, faq=0.9)}


def router(changed=None, **knobs: float) -> Scripted:
    return Scripted({**ROUTED, **(changed or {})}, cards=CARDS, pool=POOL, **{**PRESETS["knowledge-router"], **knobs})


def test_only_the_chosen_base_is_in_the_evidence():
    answer = router()("How do I get an invoice for my company?")
    assert answer.sources == ("faq",)
    assert {id.split("/")[0] for id in answer.retrieved} == {"faq"}


def test_a_question_that_a_word_pulls_to_the_wrong_base_is_searched_in_both_when_both_are_wanted():
    """The invoice question that mentions a company: two bases past their thresholds are two bases searched."""
    program = router({"classifier.route": planned(product=0.1, ops=0.6, faq=0.55)})
    answer = program("How do I get a VAT invoice for my company?")
    assert answer.sources == ("ops", "faq")
    assert {id.split("/")[0] for id in answer.retrieved} == {"ops", "faq"}


def test_in_doubt_about_the_base_all_are_searched():
    program = router({"classifier.route": planned(product=0.3, ops=0.35, faq=0.2)})
    answer = program("Where is data stored?")
    assert {id.split("/")[0] for id in answer.retrieved} == {"product", "ops", "faq"}


def test_poor_evidence_is_searched_for_with_a_rewritten_query_in_the_chosen_base():
    rewritten = {"judge.missing": {"missing": "the fee", "next_query": "refund fee after 15 days"}}
    program = router({"judge.sufficiency": scores(0.2, 0.9), **rewritten})
    program("What do I get back?")
    assert [(find.query, find.sources) for find in program.found][1:] == [("refund fee after 15 days", ("faq",))]
    assert program.path[-1] == "generate"


def test_the_vague_price_question_is_asked_back_and_not_looped_over():
    vague = {"classifier.route": planned(vague=0.9, product=0.5, ops=0.2, faq=0.5)}
    program = router(vague)
    answer = program("how much does it cost")
    assert answer.outcome is Outcome.CLARIFY
    assert answer.text == "Do you mean the Merle or the Wren?"
    assert len(program.found) == 1
    assert "judge.sufficiency" not in program.asked


def test_a_question_not_taken_for_vague_is_still_asked_back_when_rewriting_does_not_help():
    replies = {
        "classifier.route": planned(vague=0.45, product=0.5, ops=0.2, faq=0.5),
        "judge.sufficiency": scores(0.3, 0.1),
        "judge.missing": lambda n: {"missing": "what", "next_query": f"product price range {n}"},
    }
    program = router(replies)
    answer = program("how much does it cost")
    assert answer.outcome is Outcome.CLARIFY
    assert program.path[-1] == "clarify"
    assert "generator.answer" not in program.asked


def test_a_clear_question_with_poor_evidence_is_not_asked_back():
    program = router({"judge.sufficiency": scores(0.2), "judge.missing": {"missing": "it", "next_query": ""}})
    answer = program("What does plan B cost?")
    assert answer.outcome is Outcome.ANSWERED
    assert answer.stopped_by is StoppedBy.ROUNDS
