"""Demonstrations: made from module-level labels, thinned evenly, kept out of their own fold."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.compiler.candidates import gather_sets
from optimize.compiler.demonstrations import Demonstration, Demonstrator, thin_out
from optimize.compiler.record import Record
from optimize.compiler.replay import Arm, Replay
from optimize.compiler.scoring import label_cases
from optimize.labelled.dataset import LabelledQuestion, read_labelled
from program import open_program
from program.loop.claims import split_claims
from program.loop.policy import apply_setting

made = st.lists(
    st.builds(
        lambda topic, relevant: Demonstration("judge.relevance", topic, {"question": topic, "relevant": relevant}),
        st.text("ab", min_size=1, max_size=2),
        st.booleans(),
    ),
    max_size=120,
)


@given(made, st.integers(1, 60))
def test_thinning_keeps_the_order_the_cap_and_about_the_share_of_each_label(demonstrations, most):
    kept = thin_out(demonstrations, most)
    assert len(kept) <= most
    rest = iter(demonstrations)
    assert all(any(one is other for other in rest) for one in kept)
    if len(demonstrations) <= most:
        assert kept == demonstrations
    positive = Counter(bool(d.fields["relevant"]) for d in demonstrations)[True]
    expected = positive * min(1, most / max(1, len(demonstrations)))
    assert abs(Counter(bool(d.fields["relevant"]) for d in kept)[True] - expected) <= 1


@pytest.fixture(scope="module")
def shop_demonstrations(shop):
    rag = open_program(shop)
    rag.quotes = lambda strict: False  # as with a writer whose claims are checked
    train = [q for q in read_labelled(shop / "labelled.jsonl") if q.split == "train"]
    return rag, Demonstrator(rag, Replay(rag, Record()), train).make(train)


def test_questions_that_are_not_worked_through_teach_the_classifier_and_what_suffices_alone(shop):
    rag = open_program(shop)
    train = [q for q in read_labelled(shop / "labelled.jsonl") if q.split == "train"]
    made = Demonstrator(rag, Replay(rag, Record()), train[:1]).make(train)
    taught = Counter(one.predictor for one in made)
    assert taught["classifier.route"] == len(train) > 1
    worked = Counter(one.predictor for one in Demonstrator(rag, Replay(rag, Record()), train).make(train[:1]))
    assert taught["generator.states"] and not taught["judge.relevance"], "each piece of a quotation is judged itself"
    of_all = {"classifier.route", "judge.sufficiency"}
    assert taught["judge.sufficiency"] > worked["judge.sufficiency"]
    assert {name: n for name, n in taught.items() if name not in of_all} == {
        name: n for name, n in worked.items() if name not in of_all
    }


def test_labels_become_worked_examples_of_each_decision(shop_demonstrations):
    _, demonstrations = shop_demonstrations
    by = {
        name: [d.fields for d in demonstrations if d.predictor == name]
        for name in {d.predictor for d in demonstrations}
    }
    routes = {fields["question"]: fields for fields in by["classifier.route"]}
    assert routes["What is 12 times 12?"]["route"] == "direct"
    assert routes["How much water does the Merle hold?"]["base_product"] is True
    assert {fields["relevant"] for fields in by["judge.relevance"]} == {True, False}
    assert {fields["sufficient"] for fields in by["judge.sufficiency"]} == {True, False}
    assert {fields["supported"] for fields in by["grounder.support"]} == {True, False}


def test_a_fold_is_given_nothing_of_its_own_topics(shop_demonstrations):
    rag, demonstrations = shop_demonstrations
    copy = rag.deepcopy()
    sets = gather_sets(rag, demonstrations, [])
    sets.equip_program(copy, without=frozenset({"capacity"}))
    apply_setting(copy, {"classifier.route#demonstrations": 1})
    asked = {demo["question"] for demo in copy.classifier.route.demos}
    assert "How much water does the Merle hold?" not in asked
    assert "What is 12 times 12?" in asked


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


def test_a_labelled_answer_is_shown_to_the_writer_each_sentence_citing_what_bears_it_out(shop):
    answer = "The Merle holds 1.7 litres. It draws 2200 watts!"
    (shown,) = texts_of(shop, labelled(answer=answer))["generator.answer"]
    said = split_claims(shown["answer"])
    assert [claim.bare.rstrip(" !.") for claim in said] == ["The Merle holds 1.7 litres", "It draws 2200 watts"]
    for claim, number in zip(said, ("1.7", "2200"), strict=True):
        (n,) = claim.cites
        assert number in shown["passages"][n - 1].text and shown["passages"][n - 1].n == n
    assert shown["sub_queries"] == [] and shown["strict"] is False


@pytest.mark.parametrize(
    "answer", ["The Merle holds 9 litres.", "It holds 1.7 litres. It comes from Oslo.", "It is sold by pirates.", ""]
)
def test_a_labelled_answer_that_the_evidence_does_not_bear_out_is_shown_to_nobody(shop, answer):
    assert texts_of(shop, labelled(answer=answer, facts=("1.7 litres",)))["generator.answer"] == []


def test_a_language_model_is_offered_the_labelled_texts_and_the_embedded_writer_is_not(paid_shop):
    made = [Demonstration("decomposer.split", f"t{n}", {"question": f"{n}?", "sub_queries": ["a"]}) for n in range(9)]
    program = open_program(paid_shop)
    sets = gather_sets(program, made, []).sets
    assert {kind: len(shown) for kind, shown in sets["decomposer.split"].items()} == {
        "as it is": 0,
        "labelled-4": 4,
    }
    assert not label_cases([Arm(Replay(program, Record()), [])], made, "decomposer.split").cases
