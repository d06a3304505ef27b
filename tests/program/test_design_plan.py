"""Plan, retrieve, evaluate, decide: parts that may wait for each other, judged on four counts, and stopped in time."""

from datetime import date

import pytest
from scripted import Scripted, noul, of_request, passage, planned, scores

from program.answer import Outcome, StoppedBy
from program.loop.policy import PRESETS
from program.loop.state import Ask, Find, read_look_ups
from program.passage import SourceCard
from program.signatures import Detail

CARDS = [SourceCard("docs", "documents", "rules"), SourceCard("news", "web", "dated pages")]
OLD = passage("docs/old.md#a", "Refunds are paid within 14 days of delivery.", 0.9, as_of=date(2024, 3, 1))
NEW = passage("docs/new.md#b", "Refunds are paid within 30 days of delivery.", 0.8, as_of=date(2026, 3, 1))
COMPLEX = {"classifier.route": planned("complex", docs=0.9, news=0.1)}


def design(changed=None, pool=(NEW,), **knobs: float) -> Scripted:
    replies = {**COMPLEX, "judge.contradiction": {"contradict": noul(0.1)}, **(changed or {})}
    return Scripted(replies, cards=CARDS, pool=pool, **{**PRESETS["plan"], **knobs})


def split(*queries: str, **details: list[Detail]) -> dict:
    return {"decomposer.split": {"sub_queries": list(queries), **details}}


def test_independent_parts_are_searched_together():
    program = design()
    program("What of this and what of that?")
    assert [[find.query for find in batch] for batch in program.batches if isinstance(batch[0], Find)] == [
        ["What of this and what of that?"],
        ["first part", "second part"],
    ]


def test_a_dependent_part_is_written_after_its_parents_evidence_is_in():
    manager = passage("docs/people.md#m", "Ada Park is the manager of Billing.")
    contract = passage("docs/signed.md#c", "Ada Park signed the Ghent lease.")

    def follow(ask):
        assert "Ada Park" in " ".join(p.text for p in ask.inputs["passages"])
        return {"query": "What did Ada Park sign?"}

    program = design(
        {
            **split("Who is the manager of Billing?", "What did they sign?", details=[Detail(n=2, after=[1])]),
            "decomposer.follow": of_request(follow),
        },
        pool=lambda find: [contract] if "Ada Park" in find.query else [manager],
    )
    answer = program("What did the manager of Billing sign?")
    assert [find.query for find in program.found][1:] == ["Who is the manager of Billing?", "What did Ada Park sign?"]
    assert program.path[1:4] == ["search(1)", "follow(1)", "search(1)"]
    assert set(answer.retrieved) == {manager.id, contract.id}
    assert program.inputs("generator.answer")[0]["sub_queries"][1] == "What did Ada Park sign?"


def test_a_plan_counts_as_one_round_however_its_parts_depend():
    chain = split("a?", "b?", "c?", details=[Detail(n=2, after=[1]), Detail(n=3, after=[2])])
    program = design(
        {**chain, "decomposer.follow": lambda n: {"query": f"follow {n}"}, "judge.sufficiency": scores(0.9)}
    )
    answer = program("Chain?")
    assert [find.query for find in program.found][1:] == ["a?", "follow 1", "follow 2"]
    assert len(answer.rounds) == 1


@pytest.mark.parametrize("after", [[1], [2], [3], [9], [1, 1]])
def test_a_plan_that_goes_in_circles_is_put_straight(after):
    plans = read_look_ups(
        {"sub_queries": ["a", "b", "c"], "details": [Detail(n=1, after=after), Detail(n=2, after=[1])]}
    )
    assert plans[0].after == ()
    assert plans[1].after == (0,)


def test_the_most_urgent_part_comes_first_and_four_are_enough():
    reply = {"sub_queries": ["a", " ", "b", "c", "d", "e"], "details": [Detail(n=3, priority=0)]}
    assert [plan.query for plan in read_look_ups(reply)] == ["b", "a", "c", "d"]


def test_only_the_part_without_enough_evidence_is_searched_for_again():
    def enough(ask):
        return {"sufficient": noul(0.2 if ask.inputs["question"] == "second part" else 0.9)}

    program = design(
        {"judge.sufficiency": of_request(enough), "judge.missing": {"missing": "it", "next_query": "more"}}
    )
    answer = program("This and that?")
    assert [inputs["question"] for inputs in program.inputs("judge.missing")][:1] == ["second part"]
    assert program.found[-1].query == "more"
    assert answer.stopped_by is StoppedBy.ROUNDS or answer.stopped_by is StoppedBy.GAIN


def test_a_stale_page_makes_the_loop_look_for_a_newer_one():
    stale = passage("docs/old.md#a", "Within 14 days.", 0.9, as_of=date(2024, 3, 1), superseded_by="docs/new.md")
    program = design({**split("How long?")}, pool=lambda find: [stale, NEW] if find.not_before else [stale])
    answer = program("How long do refunds take?")
    assert program.found[-1].not_before == date(2024, 3, 2)
    assert "search newer(1)" in program.path
    assert NEW.id in answer.retrieved


def test_a_stale_page_without_a_date_does_not_repeat_the_first_look():
    stale = passage("docs/old.md#a", "Within 14 days.", 0.9, superseded_by="docs/new.md")
    program = design({**split("How long?")}, pool=[stale])
    program("How long do refunds take?")
    assert "search newer(1)" in program.path
    assert [find.query for find in program.found].count("How long do refunds take?") == 1


def test_a_page_of_the_year_asked_about_is_not_stale():
    old = passage("docs/old.md#a", "Within 14 days.", 0.9, as_of=date(2024, 3, 1), superseded_by="docs/new.md")
    program = design({**split("How long?")}, pool=[old])
    program("How long did refunds take in 2024?")
    assert "search newer(1)" not in program.path


def test_a_question_for_the_latest_takes_the_newer_of_two_pages():
    pool = [OLD, NEW, passage("docs/far.md#f", dense=0.1, as_of=date(2023, 1, 1))]
    program = design({**split("q")}, pool=pool, keep_at_most=1, filter=0)
    answer = program("What is the latest rule on refunds?")
    assert answer.retrieved == (NEW.id,)
    assert "search newer(1)" not in program.path


def test_once_newer_evidence_is_in_the_stale_page_is_out():
    stale = passage("docs/old.md#a", "Within 14 days.", 0.9, as_of=date(2024, 3, 1), superseded_by="docs/new.md")
    program = design({**split("q")}, pool=lambda find: [stale, NEW] if find.not_before else [stale])
    assert program("How long do refunds take?").retrieved == (NEW.id,)


def test_a_contradiction_is_looked_into_settled_for_the_newer_and_mentioned():
    program = design(
        {
            **split("q"),
            "judge.contradiction": {"contradict": noul(0.9)},
            "generator.answer": {"answer": "30 days. [1]"},
        },
        pool=[OLD, NEW],
    )
    answer = program("How long do refunds take?")
    assert f"contradiction {NEW.id} and {OLD.id}" in " ".join(program.path)
    assert program.found[-1].not_before == NEW.as_of
    assert answer.retrieved == (NEW.id,)
    assert "another source says otherwise; the newer one is followed" in answer.text
    assert [citation.id for citation in answer.citations] == [NEW.id, OLD.id]
    assert answer.stopped_by is StoppedBy.DONE


def test_the_more_official_of_two_is_followed_although_it_is_older():
    note = passage("docs/note.md#n", NEW.text, 0.8, as_of=date(2026, 5, 1), authority=1)
    official = passage("docs/rule.md#r", OLD.text, 0.9, as_of=date(2025, 1, 1), authority=3)
    program = design({**split("q"), "judge.contradiction": {"contradict": noul(0.9)}}, pool=[note, official])
    answer = program("How long do refunds take?")
    assert answer.retrieved == (official.id,)
    assert "more official" in answer.text


def test_passages_that_agree_are_never_held_against_each_other():
    program = design({**split("q")}, pool=[NEW, passage("docs/also.md#c", NEW.text)])
    program("How long do refunds take?")
    assert "judge.contradiction" not in program.asked


def test_diminishing_returns_end_the_loop():
    fresh = {"judge.missing": lambda n: {"missing": "x", "next_query": f"try {n}"}}
    program = design({**split("q"), "judge.sufficiency": scores(0.3, 0.35), **fresh})
    answer = program("Why?")
    assert answer.stopped_by is StoppedBy.GAIN
    assert sum(note.startswith("search(") for note in program.path) == 2


@pytest.mark.parametrize("cap", [StoppedBy.SECONDS, StoppedBy.TOKENS, StoppedBy.USD])
def test_a_spent_budget_goes_to_generation_with_the_best_so_far(cap):
    program = design({**split("q"), "judge.sufficiency": scores(0.3)})
    answer = program("Why?", tripped=lambda: cap)
    assert answer.outcome is Outcome.ANSWERED
    assert answer.stopped_by is cap


def test_when_the_time_to_judge_is_over_what_was_found_is_written_up_and_nobody_is_sure():
    program = design({**split("q")})
    answer = program("Why?", tripped=lambda: StoppedBy.SECONDS if program.found else None)
    assert "judge.sufficiency" not in program.asked
    assert (answer.outcome, answer.stopped_by, answer.confidence) == (Outcome.ANSWERED, StoppedBy.SECONDS, 0.0)


def test_parts_are_searched_as_they_were_planned_where_none_is_written_anew():
    program = design({**split("a?", "b?", details=[Detail(n=2, after=[1])])}, follow=0)
    program("Chain?")
    assert "decomposer.follow" not in program.asked
    assert [find.query for find in program.found][1:3] == ["a?", "b?"]


def test_a_spent_budget_leaves_the_dependent_parts_unwritten():
    program = design({**split("a?", "b?", details=[Detail(n=2, after=[1])])})
    program("Chain?", tripped=lambda: StoppedBy.TOKENS)
    assert "decomposer.follow" not in program.asked


def test_a_failed_plan_ends_as_plain_rag_with_what_was_found():
    program = design()
    answer = program("Why?", fail=lambda r: isinstance(r, Ask) and r.predictor == "decomposer.split")
    assert answer.stopped_by is StoppedBy.FALLBACK
    assert answer.retrieved == (NEW.id,)
    assert len(program.found) == 1
