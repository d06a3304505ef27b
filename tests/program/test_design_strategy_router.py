"""The strategy router: one way of looking up at a time, the next when the evidence is poor."""

from scripted import Scripted, noul, passage, planned, scores

from program.answer import Outcome, StoppedBy
from program.loop.policy import PRESETS, Strategy, offer_strategies, order_strategies
from program.loop.state import Find
from program.passage import SourceCard

CARDS = [
    SourceCard("docs", "documents", "how things work"),
    SourceCard("news", "web", "dated pages"),
    SourceCard("orders", "tables", "rows to count"),
]
POOL = [passage("docs/a.md#a"), passage("news/b.md#b"), passage("orders/c")]


def router(changed=None, **knobs: float) -> Scripted:
    likely = {"classifier.route": planned(docs=0.6, news=0.4, orders=0.1)}
    return Scripted({**likely, **(changed or {})}, cards=CARDS, pool=POOL, **{**PRESETS["strategy-router"], **knobs})


def test_the_likeliest_strategy_goes_first_and_enough_is_enough():
    program = router()
    answer = program("How does it work?")
    assert answer.outcome is Outcome.ANSWERED
    assert answer.retrieved == ("docs/a.md#a",)
    assert program.path == ["classify->simple[docs]", "search vector(1)", "judge .90", "generate"]
    assert program.asked == ["classifier.route", "judge.sufficiency", "generator.answer"]


def test_poor_evidence_switches_to_the_next_untried_strategy():
    program = router({"judge.sufficiency": scores(0.2, 0.9)})
    answer = program("How does it work?")
    assert program.path[1:] == [
        "search vector(1)", "judge .20", "switch->web", "search web(1)", "judge .90", "generate",
    ]  # fmt: skip
    assert answer.stopped_by is StoppedBy.DONE
    assert "judge.missing" not in program.asked


def test_every_strategy_is_tried_once_and_no_more():
    program = router(
        {"judge.sufficiency": scores(0.2), "judge.missing": {"missing": "", "next_query": ""}}, max_rounds=4
    )
    answer = program("How does it work?")
    assert [note for note in program.path if note.startswith("search")] == [
        "search vector(1)", "search web(1)", "search tables(1)",
    ]  # fmt: skip
    assert answer.stopped_by is StoppedBy.ROUNDS


def test_the_cap_on_attempts_ends_the_switching_and_is_named():
    program = router({"judge.sufficiency": scores(0.2)})
    answer = program("How does it work?")
    assert sum(note.startswith("search") for note in program.path) == 2
    assert answer.stopped_by is StoppedBy.ROUNDS


def test_a_question_for_the_latest_goes_to_the_fresh_source_although_it_was_misrouted():
    program = router()
    program("What are the latest papers on retrieval?")
    assert program.path[1] == "search web(1)"


def test_the_same_question_without_the_word_goes_where_it_was_routed():
    program = router()
    program("What are the papers on retrieval?")
    assert program.path[1] == "search vector(1)"


def test_general_knowledge_is_answered_without_a_look_up_and_marked():
    direct = {"classifier.route": planned("direct", docs=0.1, news=0.1, orders=0.1)}
    program = router(direct)
    answer = program("What is 12 times 12?")
    assert (answer.text, answer.retrieved) == ("144.", ())
    assert "unretrieved" in program.path


def test_a_strategy_is_there_only_when_a_source_offers_it():
    assert [strategy.name for strategy in offer_strategies(CARDS)] == ["vector", "web", "tables"]
    assert [strategy.name for strategy in offer_strategies(CARDS[:1])] == ["vector"]
    several = [*CARDS, SourceCard("people", "graph", "who is who"), SourceCard("more", "documents", "more")]
    assert offer_strategies(several)[0] == Strategy("vector", ("docs", "more"))
    assert offer_strategies(several)[-1] == Strategy("graph", ("people",))


def test_strategies_without_any_evidence_keep_the_order_of_the_project():
    assert order_strategies(offer_strategies(CARDS), {}, timely=False, recency=0.0) == offer_strategies(CARDS)


def test_a_strategy_with_a_score_of_its_own_ranks_by_that_score():
    pool = [
        passage("docs/a.md#a", dense=0.9),
        passage("docs/b.md#b", dense=0.1).rescored(0.0, scores={"dense": 0.1, "graph": 2.0}),
        passage("docs/c.md#c", dense=0.2).rescored(0.0, scores={"dense": 0.2, "graph": 1.0}),
    ]
    program = Scripted(
        {"classifier.route": planned(docs=0.9)}, cards=CARDS[:1], pool=pool, **PRESETS["strategy-router"]
    )
    program.strategies = (Strategy("graph", ("docs",), "graph"), *program.strategies)
    answer = program("Who signed what?")
    assert program.path[1] == "search graph(1)"
    assert answer.retrieved == ("docs/b.md#b", "docs/c.md#c")


def test_switching_repeats_no_search_of_the_question_itself():
    program = router({"judge.sufficiency": scores(0.2, 0.9)})
    program("How does it work?")
    assert program.found == [Find("How does it work?", ("docs", "news", "orders"))]


def test_an_unsure_judge_is_a_probability_and_the_threshold_decides():
    program = router({"judge.sufficiency": {"sufficient": noul(0.5)}})
    program("How does it work?")
    assert "switch->web" not in program.path
