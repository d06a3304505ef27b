"""When a question is vague over what was found, and what it leaves open, before and after labels."""

from itertools import product

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc.errors import DataError
from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import shared_embedder
from ragc.models.embedded.features import EvidenceText
from ragc.models.embedded.reader import shared_reader
from ragc.models.embedded.rivals import MOST_RIVALS, PIECES, RIVALS, read_rivals
from ragc.optimize.reader.vague import VAGUE, fit_vague, read_vague
from ragc.signatures import Route, words_of

PUT = {"vague": {"type": "noul", "instructions": words_of(Route, "vague")}}
PLANS = """Plan: Home Free; Monthly: GBP 0; Yearly: GBP 0
Plan: Home Plus; Monthly: GBP 4.50; Yearly: GBP 45
Plan: Pro; Monthly: GBP 12; Yearly: GBP 120"""
TABLE = [("Plans > Prices", PLANS)]
YEARS = [(f"Fees {n} > Late fees", f"The late fee is GBP {n % 9 + 4} an item.") for n in (2025, 2026)]
TOWNS = "Town: Ulm; Opens: 8:00\nTown: Bern; Opens: 9:30\nTown: Graz; Opens: 7:15"
PAIRS = [
    ("How much is it a year?", "How much is Home Plus a year?", TABLE, ["Home Free", "Home Plus", "Pro"]),
    ("What is the monthly price?", "What is the monthly price of Pro?", TABLE, ["Home Free", "Home Plus", "Pro"]),
    ("How much is the late fee?", "How much was the late fee in 2025?", YEARS, ["Fees 2025", "Fees 2026"]),
    ("When do you open?", "When do you open in Bern?", [("Hours", TOWNS)], ["Bern", "Graz", "Ulm"]),
]


@pytest.fixture(scope="module")
def decider():
    return LocalDecider(shared_embedder(), shared_reader())


def show(question, texts):
    return {"question": question, "glimpse": [{"title": title, "text": text} for title, text in texts]}


def decide(decider, inputs, demos=()):
    state = {"input_fields": "`question` `glimpse`", "inputs": inputs[0], "demos": demos}
    return [answer["vague"]["noul"] for answer in decider.batch(state, PUT, inputs)]


@pytest.mark.parametrize(("vague", "twin", "texts", "options"), PAIRS)
def test_without_labels_a_vague_question_is_above_its_twin_and_its_options_are_of_one_kind(
    decider, vague, twin, texts, options
):
    above, below = decide(decider, [show(vague, texts), show(twin, texts)])
    assert above > VAGUE and above > below
    assert sorted(decider.name_options(vague, texts)) == options


def test_labels_move_the_probability(decider):
    shown = [(show(q, texts), q == vague) for vague, twin, texts, _ in PAIRS for q in (vague, twin)]
    shown += [({**one, "question": f"Please tell me: {one['question']}"}, label) for one, label in shown]
    inputs, labels = zip(*shown, strict=True)
    right, wrong = ([{**one, "vague": label ^ odd} for one, label in shown] for odd in (False, True))
    gaps = [np.subtract(decide(decider, inputs, right), decide(decider, inputs, wrong))[list(labels)].mean()]
    assert gaps[0] > 0.1


def test_a_question_that_nothing_was_found_for_is_decided_beside_others_and_alone(decider):
    shown = [show(q, texts) | {"vague": q == vague} for vague, twin, texts, _ in PAIRS for q in (vague, twin)]
    for demos in (shown, [*shown, show("Is it blue?", []) | {"vague": False}], []):
        found = decide(decider, [show("Is it blue?", []), show(*PAIRS[0][::2])], demos)
        assert all(0 <= one <= 1 for one in found)


def test_over_one_sentence_or_nothing_there_is_nothing_to_name(decider):
    for texts in ([], [("Fees", "The late fee is GBP 4.")]):
        assert decider.name_options("How much is the late fee?", texts) == []
    assert decide(decider, [show("How much is the late fee?", [("Fees", "The late fee is GBP 4.")])])[0] < VAGUE


WORDS = st.lists(st.sampled_from("fee Pro Basic 2025 > ; : . a month town\n".split(" ")), max_size=25).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(WORDS, st.lists(st.tuples(WORDS, WORDS), max_size=4))
def test_options_stand_in_the_texts_and_measures_are_finite(question, pages):
    texts = [EvidenceText(*page) for page in pages]
    kinds, rows = read_rivals(question, texts, np.zeros(len(texts), np.float32), shared_reader())
    assert rows.shape == (len(kinds), RIVALS) and np.isfinite(rows).all()
    for kind in kinds:
        assert len(kind.options) <= MOST_RIVALS
        told = " ".join(f"{texts[n].title} {texts[n].text}" for n in kind.places)
        assert kind.form == PIECES or all(option in told for option in kind.options)


def test_a_prior_is_fitted_on_pairs_and_a_line_that_is_none_is_told(tmp_path):
    lines = []
    for n, (vague, twin, ((title, text), *_), options) in enumerate(PAIRS):
        page = {"id": str(n), "title": title, "context": text}
        for begin, question in product(("", "Hello, ", "Quickly: "), (vague, twin)):
            told = options if question == vague else []
            line = {
                "pair": str(n),
                "question": begin + question,
                "vague": bool(told),
                "options": told,
                "passages": [page],
            }
            lines.append(orjson.dumps(line))
    file = tmp_path / "vague.jsonl"
    file.write_bytes(b"\n".join(lines))
    head = fit_vague(shared_reader(), read_vague(file), shared_embedder())
    assert np.shape(head["weights"]) == (RIVALS, 1) and np.any(head["weights"])
    file.write_text('{"question": "?"}')
    with pytest.raises(DataError, match="pair"):
        read_vague(file)
