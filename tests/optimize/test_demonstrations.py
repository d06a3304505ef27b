"""Demonstrations: made from module-level labels, thinned evenly, kept out of their own fold."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.candidates import equip, gathered, taught
from optimize.dataset import read_labelled
from optimize.demonstrations import Demonstration, Demonstrator, thinned
from optimize.replay import Record, Replay
from program import open_program
from program.parameters import apply

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
    kept = thinned(demonstrations, most)
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
    train = [q for q in read_labelled(shop / "labelled.jsonl") if q.split == "train"]
    return rag, Demonstrator(rag, Replay(rag, Record())).make(train)


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
    sets = gathered(rag, demonstrations, [], rag.runtime.models.embedder)
    equip(copy, sets, taught(rag, sets), without=frozenset({"capacity"}))
    apply(copy, {"classifier.route#demonstrations": 1})
    asked = {demo["question"] for demo in copy.classifier.route.demos}
    assert "How much water does the Merle hold?" not in asked
    assert "What is 12 times 12?" in asked
