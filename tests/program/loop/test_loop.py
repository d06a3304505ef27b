"""The loop: what it asks for, which evidence it keeps, and how it ends. Models and searches are scripted."""

from dataclasses import replace
from datetime import date
from itertools import cycle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted import POOL, Scripted, ScriptedModels, passage, turns

from ragc.answer import Outcome, StoppedBy
from ragc.loop.answers import cite_passages
from ragc.loop.evidence import drop_superseded
from ragc.loop.policy import PLAIN, PRESETS, Policy
from ragc.passage import SourceCard
from ragc.settings import BudgetSettings
from ragc.text.pieces import quote_shortly, split_claims, split_pieces

NOT_FOUND = "I could not find this in the knowledge I have."
ASKED = "What does the whole of it cost in the end?"
NO_ROUND_ENDS = turns(*(f"try {n}" for n in range(60)))


def scripted(knobs=None, *, pool=POOL, budget=None, models=None, **replies):
    return Scripted(pool=pool, budget=budget, models=models, replies=replies, **(knobs or {}))


def quoted(knobs=None, **replies):
    return scripted({"quotes": True, **(knobs or {})}, **{"states": 0.9, **replies})


def test_a_simple_question_is_classified_searched_and_written_once_or_judged_and_quoted():
    answer = scripted()()
    assert (answer.outcome, answer.stopped_by) == (Outcome.ANSWERED, StoppedBy.DONE)
    assert answer.text == "Text 0. [1] Text 1. [2]" and [c.n for c in answer.citations] == [1, 2]
    assert list(answer.trace.path) == ["classify->simple[product]", "search(1)", "ask: answered"]
    assert [step.name for step in answer.trace.steps] == ["search", "classifier.route", "generator.answer"]
    answer = quoted({"sentences": 1}, pool=POOL[:1])()
    assert answer.text == "Text 0, text 1, text 0 [1]." and answer.confidence == pytest.approx(0.9)
    assert list(answer.trace.path) == ["classify->simple[product]", "search(1)", "judge .90", "quote .90"]


def test_a_greeting_is_answered_without_a_search_and_the_embedded_models_do_sums_without_one():
    for program in (quoted(route="direct"), scripted(route="direct")):
        assert program("hello").text.startswith("Hello!") and not program.queries and program.asked == []
    assert quoted(route="direct")("What is 12 times 12?").text == "144"
    assert scripted(route="direct", answer="GENERAL: 144.")("What is 12 times 12?").text == "144."
    looked_up = quoted(route="direct")("What does a harness cost?")
    assert looked_up.citations and looked_up.strategy == "direct"


def test_insufficient_evidence_is_searched_for_again_with_what_is_missing_but_never_twice():
    program = quoted({"max_rounds": 2}, sufficient=turns(0.2, 0.9))
    answer = program("What does it cost?")
    assert program.queries == ["What does it cost?", "price of the kettle"]
    assert 'judge .20 missing "the price"' in answer.trace.path and answer.stopped_by is StoppedBy.DONE
    for rounds, queries in ((4, ["What does it cost?", "price of the kettle"]), (1, ["What does it cost?"])):
        program = quoted({"max_rounds": rounds}, sufficient=0.2)
        program("What does it cost?")
        assert program.queries == queries and program.asked.count("missing") == len(queries) * (rounds > 1)


@pytest.mark.parametrize("asks", [quoted, scripted])
def test_an_abstention_says_what_stopped_the_search_and_a_spent_budget_has_all_written(asks):
    knobs, said = {"generate_above": 0.5}, {"sufficient": 0.2, "answer": "MISSING: the price. QUERY: price"}
    answer = asks({"max_rounds": 2, **knobs}, **said)()
    assert (answer.outcome, answer.stopped_by) == (Outcome.ABSTAIN, StoppedBy.ROUNDS)
    assert (
        answer.text == "I could not find “the price” in the knowledge I have. The nearest page is “billing/a.md#0” [1]."
    )
    answer = asks({"max_rounds": 2, **knobs}, budget=BudgetSettings(max_tokens=1), **said)()
    written = Outcome.ANSWERED if asks is quoted else Outcome.ABSTAIN  # which is what the model replied
    assert (answer.outcome, answer.stopped_by) == (written, StoppedBy.TOKENS)


def test_a_mark_that_points_at_no_passage_is_no_citation_and_marks_are_numbered_in_order_of_use():
    answer = scripted(answer="Text 2. [3] Text 0. [1] Text 2. [3] Text 1. [9] Text [[0]1].")()
    assert answer.text == "Text 2. [1] Text 0. [2] Text 2. [1] Text 1.  Text [2]."
    assert [c.n for c in answer.citations] == [1, 2]


def test_plain_rag_is_one_search_and_one_text_and_withholds_nothing():
    program = scripted({**PLAIN, "answer_above": 0.4})
    answer = program()
    assert (program.asked, len(program.queries)) == (["answer"], 1)
    assert (answer.outcome, answer.strategy) == (Outcome.ANSWERED, "")
    assert program.rag.plain()("How big is it?").text == answer.text
    assert FEE[0].id in Scripted(pool=FEE).rag.plain()("What is the fee?").retrieved, "superseded or not"


@pytest.mark.parametrize("knobs", [{}, {"judge": 0}, {"fast_above": 0.5}, {"check": 2}])
def test_an_answer_is_as_sure_as_its_best_quotation_or_as_the_embedded_decider_is_that_it_answers(knobs):
    alone = quoted({"ground": 0, **knobs}, pool=POOL[:1], sure=0.99, states=0.23)
    assert alone().confidence == pytest.approx(0.23)
    for model, confidence in (("scripted/model", 0.5), ("local/scripted", 0.23)):
        models = ScriptedModels(model, responsive=0.23)
        for above, outcome in ((confidence + 0.01, Outcome.ABSTAIN), (confidence, Outcome.ANSWERED)):
            program = scripted({"writes": "scripted/model", "answer_above": above, **knobs}, models=models)
            answer = program()
            assert answer.outcome is outcome and ("responsive" in program.asked) is (model != "scripted/model")
        assert answer.confidence == pytest.approx(confidence)


@pytest.mark.parametrize(("failing", "asks"), [("route", quoted), ("sufficient", quoted), ("route", scripted)])
@pytest.mark.parametrize("how", [ValueError("x"), None])
def test_a_step_that_fails_or_cannot_be_read_ends_as_plain_rag_with_nothing_judged(failing, how, asks):
    if (failing, how) != ("route", None):
        answer = asks(**{failing: how})()
        assert (answer.stopped_by, answer.outcome, answer.confidence) == (StoppedBy.FALLBACK, Outcome.ANSWERED, 0.0)
        assert answer.citations and not answer.rounds and "failed: " in str(answer.trace)
    silent = scripted(route=RuntimeError("gone"), answer=" ")()
    assert (silent.outcome, silent.stopped_by) == (Outcome.ABSTAIN, StoppedBy.FALLBACK) and silent.text


@given(st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=300))
def test_an_abstention_repeats_at_most_80_characters_in_quotation_marks(missing):
    said = " ".join(missing.split()).rstrip(" .")
    quoted = quote_shortly(missing)
    assert (quoted == "") is (said == "") and len(quoted) <= 82
    if said:
        kept = quoted[1:-1].removesuffix("…")
        assert (quoted[0], quoted[-1]) == ("“", "”") and said.startswith(kept)
        assert kept == said or (len(said) > 80 and quoted[-2] == "…")
        assert kept == said or " " not in said[:79] or said[len(kept)] == " "  # cut at a word


SOURCES = [SourceCard("docs", "documents", "d"), SourceCard("news", "web", "w"), SourceCard("rows", "tables", "t")]
STATED = ["You have 14 days to ask.", "You have 30 days to ask.", "Ask by letter."]
DATED = [
    passage(f"{card.name}/a.md#{n}", text, 0.9 - n / 10, as_of=date(2024 + n, 1, 1), superseded_by="x" * (n == 0))
    for card in SOURCES
    for n, text in enumerate(STATED)
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=40, max_size=40),
    st.sampled_from(["direct", "simple", "complex"]),
    st.sampled_from(sorted(PRESETS)),
    st.sampled_from(["What does it cost?", "What did it cost in 2025?"]),
    st.sampled_from([lambda inputs: "", lambda inputs: "try again", NO_ROUND_ENDS]),
    st.booleans(),
)
def test_whatever_the_models_say_every_design_ends_within_its_rounds_and_searches_nothing_twice(
    numbers, route, preset, question, rewrite, quotes
):
    draws = cycle(numbers)
    drawn = dict.fromkeys(
        ("states", "sufficient", "supported", "responsive", "base_docs", "base_news", "base_rows"),
        lambda inputs: next(draws),
    )
    written = lambda inputs: (  # noqa: E731
        "You have 30 days [1]." if next(draws) > 0.5 else f"MISSING: a day QUERY: {rewrite(inputs)}"
    )
    texts = {"sub_queries": ["a?", "b?", "c?"], "details": [{"n": 2, "after": [1]}], "query": "b of a?"}
    program = Scripted(
        cards=SOURCES,
        pool=lambda find: DATED[len(find.query) % 5 :][:4],
        budget=BudgetSettings(max_rounds=10, max_seconds=120),
        replies={"route": route, **texts, **drawn, "next_query": rewrite, "answer": written},
        quotes=quotes,
        **PRESETS[preset],
    )
    answer = program(question)
    assert len(answer.rounds) <= PRESETS[preset].get("max_rounds", 1)
    assert len(program.shelf.finds) == len(set(program.shelf.finds))
    assert 0.0 <= answer.confidence <= 1.0
    if answer.outcome is Outcome.ANSWERED and answer.rounds and answer.rounds[-1].sufficiency < 0.5:
        assert answer.stopped_by is not StoppedBy.DONE


CARDS = [SourceCard("records", "tables", "visits"), SourceCard("product", "documents", "kettles")]
SQL = "SELECT COUNT(*) AS visits FROM visits"
WRITTEN = passage("records/visits", "Rows selected from visits: 1.", method="sql")


def pool(find):
    own = [WRITTEN] if find.sql == SQL else [passage("records/visits", "Visits: count 3.", method="rows")]
    return [*own, passage("product/a.md#0")]


def asked(sql, *answers, **options):
    answers = answers or ("MISSING: the sum", "It is 1 [1].")
    return Scripted(cards=CARDS, pool=pool, replies={"sql": sql, "answer": turns(*answers)}, **options)


def test_where_the_passages_do_not_answer_a_select_is_asked_for_and_its_rows_take_the_place_of_the_sources_own():
    program = asked(SQL)
    answer = program()
    (shown,) = program.models.inputs("sql")
    assert shown == {"question": "How big is it?", "tables": "Table of records", "passages": []}
    finds = [(find.sources, find.sql) for find in program.shelf.finds]
    assert finds == [(("records", "product"), ""), (("records",), SQL)]
    assert "sql(1)" in answer.trace.path and answer.usage.calls == 3 and answer.text == "It is 1 [1]."
    first, second = ([p.text for p in one["passages"]] for one in program.models.inputs("answer"))
    assert WRITTEN.text not in first and "Visits: count 3." in first
    assert WRITTEN.text in second and "Visits: count 3." not in second


def test_where_the_passages_answer_no_select_is_asked_for():
    program = asked(SQL, "It is 3 [1].")
    assert program().text == "It is 3 [1]." and program.models.inputs("sql") == []


@pytest.mark.parametrize(
    ("sql", "note"),
    [("DROP TABLE visits", "sql refused or empty: records"), ("", "sql(0)"), (RuntimeError("down"), "no sql: ")],
)
def test_without_a_select_that_finds_rows_the_first_reply_stands_and_the_path_says_so(sql, note):
    program = asked(sql)
    answer = program()
    assert [one for one in answer.trace.path if one.startswith(note)]
    assert answer.outcome is Outcome.ABSTAIN and len(program.models.inputs("answer")) == 1


@pytest.mark.parametrize(("knobs", "likely"), [({}, {"base_records": 0.1, "base_product": 0.9}), ({"route": 0}, {})])
def test_tables_that_no_plan_wants_cost_no_call(knobs, likely):
    program = asked(SQL, **knobs)
    program.models.replies.update(likely)
    program()
    assert program.models.inputs("sql") == []


def test_an_embedded_writer_is_not_asked(monkeypatch):
    monkeypatch.setattr("ragc.loop.state.is_local", lambda client: True)
    assert asked(SQL).rag.view().tables == {}


TUNING = Policy().tuning()
RANKED = [passage(f"a/b.md#{n}", dense=1 - n / 10) for n in range(6)]


@pytest.mark.parametrize("most", [1, 2, 6])
@pytest.mark.parametrize("quotes", [True, False])
def test_what_is_kept_is_the_best_that_was_found_within_its_bound(most, quotes):
    pool = [replace(p, source="product") for p in RANKED]
    answer = Scripted(pool=pool, quotes=quotes, keep_at_most=most, shown=max(3, most), replies={"states": 0.9})()
    assert [*answer.retrieved] == [one.id for one in RANKED[: min(5, most) if quotes else max(3, most)]]


TODAY = date(2026, 11, 28)
FEE = [
    passage("product/old.md#0", "The fee is GBP 5.", as_of=date(2023, 5, 1), superseded_by="product/new.md"),
    passage("product/new.md#0", "The fee is GBP 9 since spring.", 0.7, as_of=date(2026, 5, 1)),
    passage("product/tips.md#0", "The lid is red.", 0.6),
]


@pytest.mark.parametrize(
    ("asked", "counts"),
    [("now", False), ("in 2023", True), ("in 2025", True), ("in 2026", False), ("in 2022", False), ("at 2023 m", True)],
)
@pytest.mark.parametrize("knobs", [{}, {"judge": 0, "quotes": True}, {"fast_above": 0.5, "quotes": True}, {"route": 0}])
def test_what_was_superseded_is_no_evidence_unless_the_question_names_a_year_in_which_it_was_in_force(
    asked, counts, knobs
):
    program = Scripted(pool=FEE, replies={"states": 0.9}, **knobs)
    answer = program(f"What is the fee {asked}?")
    assert (FEE[0].id in answer.found) is (FEE[0].id in answer.retrieved) is counts
    written = program.models.inputs("answer") or [{"passages": []}]
    quoted = [inputs["passage"]["title"] for inputs in program.models.inputs("states")]
    shown = [one.title for one in written[0]["passages"]] + quoted
    assert (FEE[0].title in shown) is counts and FEE[1].title in shown


def test_without_its_successor_it_is_in_force_in_its_own_year_alone_and_without_a_date_in_any():
    alone, undated = FEE[0], replace(FEE[0], as_of=None)
    kept = {year: [len(drop_superseded([one], (year,), TODAY)) for one in (alone, undated)] for year in (2023, 2024)}
    assert kept == {2023: [1, 1], 2024: [0, 1]} and drop_superseded([alone, undated], (), TODAY) == []


@pytest.mark.parametrize(("fee", "dated"), [("The fee is GBP 9 since spring.", True), ("The fee since spring.", False)])
def test_a_fact_that_the_superseded_page_lacks_is_given_with_the_date_of_the_page_that_speaks(fee, dated):
    pool = [FEE[0], replace(FEE[1], text=fee)]
    answer = Scripted(pool=pool, replies={"answer": f"{fee} [1]"})("What is the fee?")
    assert answer.text == f"{fee} [1]{' (from 1 May 2026)' * dated}" and len(answer.citations) == 1


@given(st.text(alphabet="ab .[]0123456789", max_size=60))
@example("[[0]0]")
@example("[[0]1]")
def test_every_mark_left_in_an_answer_has_its_citation_and_no_text_is_lost_in_splitting_it(answer):
    text, citations = cite_passages(answer, RANKED[:3])
    known = {c.n for c in citations}
    assert known == set(range(1, len(citations) + 1))
    assert {n for claim in split_claims(text) for n in claim.cites} <= known
    joined = "".join(claim.text for claim in split_claims(answer))
    assert "".join(joined.split()) == "".join(answer.split())


def test_of_the_pieces_of_a_look_up_at_most_one_is_right_and_an_answer_is_as_sure_as_the_best():
    """With n pieces of odds 4 each, one is right with 4 / (1 + 4 n)."""
    answer = quoted({"ground": 0, "judge": 0, "sentences": 6}, sure=0.99, states=0.8)()
    count = sum(len(split_pieces(one.text)) for one in POOL if one.id in answer.retrieved)
    assert answer.confidence == pytest.approx(4 / (1 + 4 * count), abs=1e-4)
