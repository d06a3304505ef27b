"""How probably a piece of a passage states what is asked, before and after labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.loop.decide import weigh_rivals
from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import shared_embedder
from ragc.models.embedded.features import STATEMENT
from ragc.models.embedded.heads import Head, calibrate_competing, fit_statement
from ragc.models.embedded.reader import shared_reader
from ragc.text.facts import normalise_text
from ragc.text.pieces import split_pieces

PUT = {"states": {"type": "noul", "instructions": "The sentence states something that the question asks for."}}
CENTRES = """Turnaround by centre.

Centre: Ghent; Working days: 5; Charge out of guarantee: GBP 38
Centre: Halifax; Working days: 9; Charge out of guarantee: CAD 120
Centre: Osaka; Working days: 7; Charge out of guarantee: JPY 6100"""
PLANS = """Plan: Home Free; Monthly: GBP 0; Yearly: GBP 0
Plan: Home Plus; Monthly: GBP 4.50; Yearly: GBP 45
Plan: Pro; Monthly: GBP 12; Yearly: GBP 120"""
BEAMS = """Item: Green oak beam 200 x 200 mm; Unit: per metre; Price (GBP): 54.00
Item: Larch cladding 20 x 150 mm; Unit: per metre; Price (GBP): 3.40"""
HOURS = "The library has 40 desks. It opens at 9:30 on weekdays. Dogs are not admitted. A locker costs 2 euros a day."


@pytest.fixture(scope="module")
def decider():
    return LocalDecider(shared_embedder(), shared_reader())


@pytest.mark.parametrize(
    ("title", "text", "question", "holds"),
    [
        ("Repair centres", CENTRES, "What does Halifax charge for a repair out of guarantee?", "CAD 120"),
        ("Repair centres", CENTRES, "How many working days does Osaka take?", "7"),
        ("Plans and prices", PLANS, "How much does Home Plus cost a year?", "GBP 45"),
        ("Plans and prices", PLANS, "What is the price of Pro per month?", "GBP 12"),
        ("Prices", BEAMS, "What does a green oak beam cost per metre?", "54.00"),
        ("Prices", BEAMS, "How much is larch cladding per metre?", "3.40"),
        ("Library", HOURS, "When does the library open?", "9:30"),
        ("Library", HOURS, "How much is a locker?", "2 euros"),
    ],
)
def test_without_labels_the_piece_that_answers_is_the_most_probable(decider, title, text, question, holds):
    pieces = split_pieces(text)
    passage = {"n": 1, "base": "", "title": title, "text": text}
    inputs = [{"question": question, "passage": passage, "sentence": piece.text} for piece in pieces]
    state = {"input_fields": "`question` `passage` `sentence`", "inputs": inputs[0]}
    chances = [answer["states"]["noul"] for answer in decider.batch(state, PUT, inputs)]
    assert holds in pieces[int(np.argmax(chances))].text


def _pieces(rng, questions, weights):
    """Return cases of 12 pieces a question, of which the first by these weights is right."""
    cases, labels, groups = [], [], []
    for n in range(questions):
        x = rng.normal(size=(12, STATEMENT)).astype(np.float32)
        cases += [{"statement": row} for row in x]
        labels += (np.arange(12) == np.argmax(x @ weights)).astype(int).tolist()
        groups += [f"question {n}"] * 12
    return cases, labels, groups


def _prior(reader):
    return Head.from_arrays(reader.priors["statement"])


def _share_right(head, cases, labels):
    chances = np.array([head.probabilities(case, 2)[1] for case in cases]).reshape(-1, 12)
    return float((chances.argmax(1) == np.array(labels).reshape(-1, 12).argmax(1)).mean())


def test_labels_that_disagree_with_the_prior_change_the_order(decider):
    prior, rng = _prior(decider.reader), np.random.default_rng(1)
    weights = -prior.weights[:, 0]
    head = fit_statement(*_pieces(rng, 120, weights), prior)
    cases, labels, _ = _pieces(rng, 120, weights)
    assert _share_right(head, cases, labels) > 2 * _share_right(prior, cases, labels)


def test_labels_of_few_questions_and_labels_by_chance_leave_the_prior(decider):
    prior, rng = _prior(decider.reader), np.random.default_rng(2)
    few = _pieces(rng, 5, -prior.weights[:, 0])
    assert fit_statement(*few, prior) is prior
    cases, labels, groups = _pieces(rng, 30, prior.weights[:, 0])
    found = fit_statement(cases, labels, groups, prior)
    assert _share_right(found, cases, labels) >= _share_right(prior, cases, labels) - 0.1


@pytest.mark.parametrize("part", ["\n", "\n ", "- ", "1. ", "| a ", "`", "*", "(", "12 "])
def test_a_text_of_one_part_a_hundred_thousand_times_is_read(part):
    text = part * 100_000  # what takes quadratic time does not end
    assert isinstance(normalise_text(text), str) and isinstance(split_pieces(text), list | tuple)


@pytest.mark.parametrize(("slope", "shift", "lose"), [(0.5, -2.0, 0.0), (2.0, 1.0, 0.0), (1.0, 1.5, 0.55)])
def test_of_simulated_questions_the_chance_of_a_piece_among_its_rivals_is_how_often_it_is_right(slope, shift, lose):
    """At most one of a question's pieces is right, with its share of the softmax; the logits are off by a line."""
    rng = np.random.default_rng(7)
    count, pieces = 2_000, 12
    true = rng.normal(-2.5, 1.5, (count, pieces))
    lost = lose * rng.integers(0, 4, (count, pieces))
    powers = np.exp(np.hstack([true - lost, np.zeros((count, 1))]))
    drawn = (rng.random((count, 1)) > (powers / powers.sum(1, keepdims=True)).cumsum(1)).sum(1)
    y = np.arange(pieces) == drawn[:, None]
    asked = np.repeat(np.arange(count), pieces)
    logits = (true - shift) / slope
    found = calibrate_competing(logits.ravel(), y.ravel(), asked, lost.ravel())
    assert found == pytest.approx([slope, shift], rel=0.1, abs=0.1)
    odds = np.exp(found[0] * logits + found[1] - lost)
    said = [weigh_rivals(row / (1 + row), [0] * pieces) for row in odds]
    best = np.argmax(said, 1)
    sure = np.max(said, 1)
    for low, high in ((0.0, 0.35), (0.35, 0.6), (0.6, 1.0)):
        of = (sure >= low) & (sure < high)
        assert y[np.arange(count), best][of].mean() == pytest.approx(sure[of].mean(), abs=0.05)


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=6), st.floats(0.01, 50))
def test_what_speaks_for_none_of_the_pieces_lowers_each_and_moves_no_chance_to_another(chances, none):
    alone, weighed = (weigh_rivals(chances, [0] * len(chances), lost) for lost in ({}, {0: none, 1: 9.0}))
    assert all(less < more for less, more in zip(weighed, alone, strict=True))
    assert sum(weighed) == pytest.approx(sum(alone) * weighed[0] / alone[0])
