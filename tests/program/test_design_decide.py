"""The decide loop: retrieve or answer, round by round, the next query from what the last one found."""

from scripted import Scripted, of_request, passage, planned, scores

from program.answer import Outcome, StoppedBy
from program.loop.policy import PRESETS
from program.passage import SourceCard

CARDS = [SourceCard("docs", "documents", "a company")]
CHIEF = passage("docs/chief.md#a", "Jin-ho Park is the chief technology officer.")
PAST = passage("docs/past.md#b", "Jin-ho Park built engines before.")


def design(changed=None, pool=(CHIEF,), **knobs: float) -> Scripted:
    routed = {"classifier.route": planned("simple", docs=0.9)}
    return Scripted({**routed, **(changed or {})}, cards=CARDS, pool=pool, **{**PRESETS["decide"], **knobs})


def test_the_second_query_depends_on_what_the_first_found():
    def missing(ask):
        text = " ".join(p.text for p in ask.inputs["passages"])
        return {"missing": "the past", "next_query": "previous role of Jin-ho Park" if "Jin-ho Park" in text else "?"}

    program = design(
        {"judge.sufficiency": scores(0.3, 0.9), "judge.missing": of_request(missing)},
        pool=lambda find: [PAST] if "previous role" in find.query else [CHIEF],
    )
    answer = program("What did the chief technology officer do before?")
    assert [find.query for find in program.found][1:] == ["previous role of Jin-ho Park"]
    assert set(answer.retrieved) == {CHIEF.id, PAST.id}


def test_the_last_round_answers_whatever_the_judge_says():
    fresh = {"judge.missing": lambda n: {"missing": "x", "next_query": f"try {n}"}}
    program = design({"judge.sufficiency": scores(0.2), **fresh})
    answer = program("What did he do before?")
    assert answer.outcome is Outcome.ANSWERED
    assert answer.stopped_by is StoppedBy.ROUNDS
    assert len(program.found) == 4


def test_the_capital_of_france_is_not_looked_up_again_and_again():
    """Over-retrieval: general knowledge goes to the writer directly, and is marked for the audit."""
    program = design({"classifier.route": planned("direct", docs=0.2), "generator.direct": {"answer": "Paris."}})
    answer = program("What is the capital of France?")
    assert answer.text == "Paris."
    assert len(program.found) == 1
    assert "unretrieved" in program.path


def test_the_same_query_again_is_not_a_search():
    program = design({"judge.sufficiency": scores(0.2), "judge.missing": {"missing": "x", "next_query": "same"}})
    answer = program("capital of France")
    assert [find.query for find in program.found] == ["capital of France", "same"]
    assert answer.stopped_by is StoppedBy.ROUNDS


def test_evidence_that_suffices_is_answered_from_at_once():
    program = design()
    program("Who is the chief technology officer?")
    assert program.asked == ["classifier.route", "judge.sufficiency", "generator.answer"]


def test_the_classifier_and_the_search_are_asked_for_together_without_a_glimpse():
    program = design(glimpse=0)
    program("Who is the chief technology officer?")
    first = program.batches[0]
    assert [type(request).__name__ for request in first] == ["Find", "Ask"]
    assert first[1].inputs["glimpse"] == []
