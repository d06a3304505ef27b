"""Demonstrations made from labels and kept out of their own fold; a replay that answers as the program does."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragc import open_program
from ragc.loop.policy import apply_setting, find_dimensions, read_setting
from ragc.loop.reply import ReplyKind, TypedReply, read_reply
from ragc.loop.state import Ask, View, read_look_ups
from ragc.optimize.compiler.candidates.demonstrations import Demonstration, Demonstrator
from ragc.optimize.compiler.candidates.offers import CandidateSets, offer_demonstrations
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.text.history import Asked
from ragc.text.pieces import split_claims


def train_of(shop):
    return [q for q in read_labelled(shop / "labelled.jsonl") if q.split == "train"]


@pytest.fixture(scope="module")
def shop_demonstrations(shop):
    rag, train = open_program(shop), train_of(shop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(View, "quotes", False)  # as with a model that writes
        return rag, Demonstrator(rag, Replay(rag, Record()), train).make(train)


def test_questions_that_are_not_worked_through_teach_the_classifier_and_what_suffices_alone(shop):
    rag, train = open_program(shop), train_of(shop)

    def taught(worked, asked):
        return Counter(one.predictor for one in Demonstrator(rag, Replay(rag, Record()), worked).make(asked))

    every, one = taught(train[:1], train), taught(train, train[:1])
    assert every.pop("classifier.route") == len(train) > one.pop("classifier.route") == 1
    assert every.pop("judge.sufficiency") > one.pop("judge.sufficiency")
    assert every == one, "all else is taught by what is worked through"
    assert not every["generator.states"], "the packaged prior says what a piece states, better than labels teach it"


def test_labels_become_worked_examples_of_each_decision(shop_demonstrations):
    by = {}
    for one in shop_demonstrations[1]:
        by.setdefault(one.predictor, []).append(one.fields)
    routes = {fields["question"]: fields for fields in by["classifier.route"]}
    assert routes["What is 12 times 12?"]["route"] == "direct"
    assert routes["How much water does the Merle hold?"]["base_product"] is True
    for predictor, name in (("judge.sufficiency", "sufficient"), ("grounder.responsive", "responsive")):
        assert {fields[name] for fields in by[predictor]} == {True, False}
    replies = [fields["answer"] for fields in by["generator.answer"]]
    assert {read_reply(reply).kind for reply in replies} == {ReplyKind.MISSING}, "no labelled answer is at hand"


def test_a_fold_is_given_nothing_of_its_own_topics(shop_demonstrations):
    rag, demonstrations = shop_demonstrations
    copy, offers = rag.deepcopy(), offer_demonstrations(rag, demonstrations)
    CandidateSets(offers).equip_program(copy, without=frozenset({"capacity"}))
    apply_setting(copy, {"classifier.route#demonstrations": 1})
    asked = {demo["question"] for demo in copy.classifier.route.demos}
    assert "What is 12 times 12?" in asked and "How much water does the Merle hold?" not in asked


BOTH = "How much water does the Merle hold, and how many watts does it draw?"


def labelled(**labels):
    """A question on both, with these labels beside its evidence."""
    evidence = ("product/kettles.md#capacity", "product/kettles.md#power")
    return LabelledQuestion(id="both", question=BOTH, outcome="answered", route="complex", evidence=evidence, **labels)


def texts_of(shop, question):
    rag = open_program(shop)
    made = Demonstrator(rag, Replay(rag, Record()), [question]).make([question])
    return {name: [d.fields for d in made if d.predictor == name] for name in ("decomposer.split", "generator.answer")}


def test_labelled_look_ups_are_shown_to_whoever_splits_questions(shop):
    look_ups = ("how much water the Merle holds", "power of the Merle")
    made = texts_of(shop, labelled(sub_queries=look_ups))
    assert made["decomposer.split"] == [{"question": BOTH, "sub_queries": list(look_ups)}]
    assert made["generator.answer"] == []


def test_a_labelled_select_is_shown_to_whoever_writes_sql_without_the_schema(shop):
    written = "SELECT COUNT(*) FROM orders"
    question = labelled(sql=written)
    rag = open_program(shop)
    made = Demonstrator(rag, Replay(rag, Record()), []).make([question])
    assert [d.fields for d in made if d.predictor == "retriever.sql"] == [{"question": BOTH, "sql": written}]


def test_a_labelled_answer_is_shown_to_the_writer_each_sentence_citing_what_bears_it_out(shop):
    answer = "The Merle holds 1.7 litres. It draws 2200 watts!"
    (shown,) = texts_of(shop, labelled(answer=answer))["generator.answer"]
    said = split_claims(shown["answer"])
    assert [claim.bare.rstrip(" !.") for claim in said] == ["The Merle holds 1.7 litres", "It draws 2200 watts"]
    for claim, number in zip(said, ("1.7", "2200"), strict=True):
        (n,) = claim.cites
        assert number in shown["passages"][n - 1].text and shown["passages"][n - 1].n == n
    assert shown["conversation"] == []


@pytest.mark.parametrize(
    "answer", ["The Merle holds 9 litres.", "It holds 1.7 litres. It comes from Oslo.", "It is sold by pirates.", ""]
)
def test_a_labelled_answer_that_the_evidence_does_not_bear_out_is_shown_to_nobody(shop, answer):
    assert texts_of(shop, labelled(answer=answer, facts=("1.7 litres",)))["generator.answer"] == []


def test_a_question_that_needs_no_document_shows_the_writer_an_answer_of_that_kind(shop):
    question = LabelledQuestion(id="sum", question="What is 12 times 12?", route="direct", answer="144.")
    (shown,) = texts_of(shop, question)["generator.answer"]
    assert read_reply(shown["answer"]) == TypedReply(ReplyKind.GENERAL, "144.")


def test_a_language_model_is_offered_the_labelled_texts_and_the_embedded_writer_is_not(paid_shop):
    made = [Demonstration("retriever.sql", f"t{n}", {"question": f"{n}?", "sql": "SELECT 1"}) for n in range(9)]
    made += [Demonstration("decomposer.split", "t", {"question": "a?", "sub_queries": ["a"]})]
    program = open_program(paid_shop)
    offers = offer_demonstrations(program, made)
    sets = offers["retriever.sql"].demonstrations
    assert {kind: len(shown) for kind, shown in sets.items()} == {"as it is": 0, "labelled-4": 4}
    assert "decomposer.split" not in offers


QUESTIONS = [
    "How much water does the Merle hold?",
    "How many days do I have to get my money back and how many watts does the Wren draw?",
    "What is 12 times 12?",
    "Does the kettle come in green?",
]


@pytest.fixture(scope="module")
def replay(rag):
    return Replay(rag.deepcopy(), Record())


def drawn(dimension):
    low, high = dimension.low, dimension.high
    return st.integers(int(low), int(high)) if dimension.integral else st.floats(low, high)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_under_any_setting_a_replay_answers_as_a_live_run(rag, replay, data):
    before = read_setting(rag)
    rag.runtime = replace(rag.runtime, reviewed=None)
    setting = {d.name: data.draw(drawn(d), label=d.name) for d in find_dimensions(rag)}
    question = data.draw(st.sampled_from(QUESTIONS))
    try:
        apply_setting(rag, setting)
        apply_setting(replay.program, setting)
        live, again = rag(question), replay(Asked(question))
    finally:
        apply_setting(rag, before)
    assert (again.text, again.outcome, again.trace.path) == (live.text, live.outcome, live.trace.path)
    assert again.confidence == pytest.approx(live.confidence)
    assert (again.usage.calls, again.usage.decisions) == (live.usage.calls, live.usage.decisions)


def test_a_plan_is_read_back_from_the_file(rag, tmp_path):
    ask = Ask("decomposer.split", {"question": "Who packs the kettles and how long does it take?"})
    made, read_back = (read_look_ups(Replay(rag.deepcopy(), Record(tmp_path / "record")).reply(ask)) for _ in range(2))
    assert read_back == made and len(made) == 2


def test_another_threshold_alone_performs_nothing(rag):
    record = Record()
    program = Replay(rag.deepcopy(), record)
    program.program.policy.turn(fast_above=1.0, ground=1)  # a draft that is judged, and not written before it is
    program(Asked(QUESTIONS[0]))
    known = len(record.kept)
    program.program.generator.states.fields["states"] = {"threshold": 0.999}
    assert program(Asked(QUESTIONS[0])).outcome == "abstain" and len(record.kept) == known
