"""What holds of every decision the local decider makes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dspy
import numpy as np
import pytest
from dspy.experimental import Choice, Noul, Score
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from program.errors import IntegrityError
from program.models.embedded.cases import read_case
from program.models.embedded.decider import LocalDecider
from program.models.embedded.encoder import shared_embedder
from program.models.embedded.features import BLOCKS, STATEMENT, FeatureSpace
from program.models.embedded.heads import EVIDENCE_SETS, fit_decision
from program.models.embedded.reader import shared_reader

FRUIT = ["apples", "pears", "plums", "cherries", "lemons", "grapes", "melons", "figs", "oranges", "peaches"]
TOOLS = ["hammers", "saws", "drills", "pliers", "chisels", "wrenches", "files", "planes", "clamps", "axes"]
CRITERIA = {"north": None, "south": "The other side.", "cellar": "Below."}
QUESTIONS: dict[str, dict[str, Any]] = {
    "zebra": {"type": "noul", "instructions": "The question is a zebra question."},
    "aisle": {"type": "choice", "instructions": "Where it is kept.", "criteria": CRITERIA},
}
BILLING: dict[str, Any] = {"type": "noul", "instructions": "The answer needs this knowledge base: invoices."}
BESIDE = {"base_billing": BILLING, "base_product": {**BILLING, "instructions": "It needs this one: products."}}


def _demos() -> list[dict[str, Any]]:
    fruit = [{"question": f"Where are the {f}?", "zebra": True, "aisle": "north"} for f in FRUIT]
    tools = [{"question": f"Where are the {t}?", "zebra": False, "aisle": "south"} for t in TOOLS]
    return [demo for pair in zip(fruit, tools, strict=True) for demo in pair]


def _passages(*texts: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"n": n, "base": "shop", "title": t, "text": text} for n, (t, text) in enumerate(texts, 1)]


def _state(question: str, demos: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    inputs = {"question": question, **more}
    state = {"instructions": "Decide.", "input_fields": "1. `question` (str):", "inputs": inputs}
    return state | ({"demos": demos} if demos else {})


def fresh() -> LocalDecider:
    return LocalDecider(shared_embedder(), shared_reader())


@pytest.fixture(scope="module")
def decider() -> LocalDecider:
    return fresh()


AISLES: Any = Choice.__class_getitem__((("north", ""), ("south", "The other side.")))
URGENCIES: Any = Score.__class_getitem__(("none", "some", "much"))


class Shelf(dspy.Signature):
    """Say where it is kept."""

    question: str = dspy.InputField()
    zebra: Noul = dspy.OutputField(desc="The question is a zebra question.")
    aisle: AISLES = dspy.OutputField(desc="Where.")
    urgency: URGENCIES = dspy.OutputField(desc="How urgent it is.")


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    question=st.text(max_size=60),
    texts=st.lists(st.tuples(st.text(max_size=15), st.text(max_size=60)), max_size=3),
    shown=st.sampled_from([0, 1, 3, 20]),
)
def test_any_input_gets_probabilities_that_sum_to_one(
    decider: LocalDecider, question: str, texts: list[tuple[str, str]], shown: int
) -> None:
    answer = decider(_state(question, _demos()[:shown], passages=_passages(*texts)), QUESTIONS)
    shares = answer["aisle"]["probabilities"]
    assert set(shares) == set(CRITERIA)
    assert all(0 <= share <= 1 for share in (answer["zebra"]["noul"], *shares.values()))
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert answer["aisle"]["confidence"] == max(shares.values())


def test_demonstrations_teach_a_rule_that_the_untaught_answer_gets_wrong(decider: LocalDecider) -> None:
    asked = "Where are the strawberries?"
    untaught, taught = decider(_state(asked), QUESTIONS), decider(_state(asked, _demos()), QUESTIONS)
    assert untaught["zebra"]["noul"] < 0.5
    assert taught["zebra"]["noul"] > 0.6
    assert max(taught["aisle"]["probabilities"], key=taught["aisle"]["probabilities"].get) == "north"
    assert decider(_state("Where are the screwdrivers?", _demos()), QUESTIONS)["zebra"]["noul"] < 0.4


def test_without_demonstrations_an_answer_is_soft_and_the_likest_option_is_likeliest(decider: LocalDecider) -> None:
    for question in ("Is this a zebra question?", "42", "", "Where are the zebras kept?"):
        assert 0.2 <= decider(_state(question), QUESTIONS)["zebra"]["noul"] <= 0.8
    criteria = {"billing": "invoices, refunds and payments", "animals": "cats, dogs and horses"}
    put = {"about": {"type": "choice", "instructions": "What it is about.", "criteria": criteria}}
    shares = decider(_state("My refund has not arrived"), put)["about"]["probabilities"]
    assert 0.5 < shares["billing"] < 1
    demos = [{"question": f"Where are the {t}?", "zebra": True} for t in TOOLS]
    assert decider(_state("Where is it?", demos), QUESTIONS)["zebra"]["noul"] > 0.6, "labels of one option only"


def test_without_demonstrations_what_is_asked_of_evidence_alone_is_what_the_reader_finds(decider: LocalDecider) -> None:
    put = {"sufficient": {"type": "noul", "instructions": "All that is needed is stated."}}
    asked = "How long is the battery guarantee of the Warden 3?"
    texts = [("Warden 3", "The battery guarantee is two years long."), ("Parking", "Visitors park behind the house.")]
    found = [reading.answers for reading in decider.reader.read(asked, texts)]
    shown = ([texts[0]], [texts[1]], texts)
    one, other, both = (decider(_state(asked, passages=_passages(*t)), put)["sufficient"]["noul"] for t in shown)
    assert all(0.25 <= p <= 0.75 and (p > 0.5) == (logit > 0) for p, logit in zip((one, other), found, strict=True))
    assert both == max(one, other)


def test_several_inputs_are_answered_as_each_alone(decider: LocalDecider) -> None:
    passage = _passages(("Shelf plan", "Pears and quinces: north. Hammers: south. We open at 9."))[0]
    demos = [{**demo, "passage": passage, "sentence": "We open at 9."} for demo in _demos()]
    inputs = [
        {"question": f"Where are the {word}?", "passage": passage, "sentence": sentence}
        for word in ("pears", "hammers")
        for sentence in ("Pears and quinces: north.", "Hammers: south.", "It is nowhere there.", "")
    ]
    state = {**_state("", demos), "input_fields": "`question` `passage` `sentence`"}
    together = decider.batch(state, QUESTIONS, inputs)
    assert together == [fresh()({**state, "inputs": one}, QUESTIONS) for one in inputs]


def test_a_sentence_that_can_be_quoted_from_its_passage_is_read_there_and_alone(decider: LocalDecider) -> None:
    passage = {"title": "Shelf plan", "text": "Pears are north. Hammers are south.\n\n* We open at **nine**."}
    fields = "`question` `passage` `sentence`"
    for sentence, place in (("Pears are north.", (0, 0)), ("We open at nine.", (0, 2)), ("We close at nine.", None)):
        inputs = {"question": "When?", "sentence": sentence, "passage": passage}
        case = read_case(inputs, fields)
        (block,) = FeatureSpace.from_cases([case]).compute_blocks([case], decider.embedder, decider.reader)
        assert case.quoted == place
        assert block["statement"].any() == (place is not None)
        assert np.isfinite(block["statement"]).all() and len(block["statement"]) == STATEMENT
        told = decider({"inputs": inputs, "input_fields": fields}, {"zebra": QUESTIONS["zebra"]})["zebra"]["noul"]
        assert place is None or (told > 0.5) == (block["statement"][0] > 0), "untaught: what is read in the sentence"


def test_the_order_of_demonstrations_does_not_change_the_answer() -> None:
    shuffled = [_demos()[i] for i in np.random.default_rng(7).permutation(20)]
    one, other = (fresh()(_state("Where are the quinces?", demos), QUESTIONS) for demos in (_demos(), shuffled))
    assert one == other


_PROGRAM = """
import json
from program.models.embedded.encoder import Embedder
from program.models.embedded.reader import shared_reader
from program.models.embedded.decider import LocalDecider
from tests.program.models.test_decider import QUESTIONS, _demos, _passages, _state
passages = _passages(("Shelf plan", "Pears and quinces: north. Hammers: south."), ("Hours", "We open at 9."))
demos = [{**demo, "passages": passages[i % 2:]} for i, demo in enumerate(_demos())]
decider = LocalDecider(Embedder(), shared_reader())
print(json.dumps(decider(_state("Where are the quinces?", demos, passages=passages), QUESTIONS)))
"""


def test_another_process_gives_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _PROGRAM]
    other = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    exec(_PROGRAM, {})
    assert other.stdout == capsys.readouterr().out
    assert json.loads(other.stdout)["aisle"]["probabilities"]


@pytest.mark.parametrize("questions", [QUESTIONS, BESIDE])
def test_exported_heads_answer_the_same_and_need_no_fitting(
    questions: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    passages = _passages(("Shelf plan", "Pears and quinces: north. Hammers: south."))
    labels = [{"base_billing": bool(n % 2), "base_product": not n % 2, "passages": passages} for n in range(20)]
    demos = [{**demo, **more} for demo, more in zip(_demos(), labels, strict=True)]
    state = _state("Where are the quinces?", demos, passages=passages)
    taught, other = fresh(), fresh()
    before = taught(state, questions)
    other.import_heads(load_tensors(save_tensors(taught.export_heads([(state, questions)]))))
    monkeypatch.setattr("program.models.embedded.decider.fit_decision", lambda *_: pytest.fail("fitted again"))
    assert other(state, questions) == before
    assert sorted(other.export_heads()) == sorted(taught.export_heads())


@pytest.mark.parametrize("part", ["weights", "classes", "calibration", "bias"])
def test_an_array_missing_or_cut_or_of_what_is_no_number_is_refused(part: str) -> None:
    taught = fresh()
    taught(_state("Where are the quinces?", _demos()), QUESTIONS)
    arrays = taught.export_heads()
    own = {name: array for name, array in arrays.items() if name.endswith(f".{part}")}
    rest = {name: array for name, array in arrays.items() if name not in own}
    cut = {name: array[:-1] for name, array in own.items()}
    no_number = {name: np.full_like(array, np.nan) for name, array in own.items() if array.dtype.kind == "f"}
    for broken in (rest, rest | cut, *([rest | no_number] if no_number else [])):
        with pytest.raises(IntegrityError, match="not as they were exported"):
            fresh().import_heads(broken)


def test_a_field_named_after_a_base_learns_where_passages_come_from(decider: LocalDecider) -> None:
    def glimpse(first: str, second: str, fruit: str) -> list[dict[str, Any]]:
        found = _passages((fruit, f"All about {fruit} and where they are."), ("Notes", "We open at nine."))
        return [{**found[0], "base": first}, {**found[1], "base": second}]

    orders = (("product", "billing"), ("billing", "product"))
    labels = [(demo["question"], glimpse(*orders[n % 2], str(n)), bool(n % 2)) for n, demo in enumerate(_demos())]
    demos = [dict(zip(("question", "glimpse", "base_billing"), label, strict=True)) for label in labels]
    states = (_state("Where are the bananas?", demos, glimpse=glimpse(*order, "bananas")) for order in orders)
    no, yes = (decider(state, {"base_billing": BILLING})["base_billing"]["noul"] for state in states)
    assert no < 0.3 and yes > 0.7


def test_a_predictor_decides_alike_in_both_ways_of_calling_and_keeps_its_thresholds() -> None:
    predict = dspy.Predict(Shelf)
    urgent = [{"urgency": {"value": float(n % 3), "level": n % 3, "confidence": 1.0}} for n in range(20)]
    predict.demos = [dspy.Example(**demo, **own) for demo, own in zip(_demos(), urgent, strict=True)]
    predict.fields = {"zebra": {"threshold": 0.99}}
    with dspy.context(lm=fresh()):
        now = predict(question="Where are the apricots?")
        later = asyncio.run(predict.acall(question="Where are the apricots?"))
        copied = predict.deepcopy()(question="Where are the apricots?")
    assert now.zebra.probability == later.zebra.probability == copied.zebra.probability
    assert now.aisle.value == "north" and 0 <= now.urgency.value <= 2
    assert now.zebra.probability > 0.5 and not now.zebra.value


def test_many_threads_get_the_answers_that_one_would() -> None:
    states = [_state(f"Where are the {word}?", _demos()) for word in ("limes", "bolts", "nuts", "mangoes")] * 3
    together = fresh()
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda state: together(state, QUESTIONS), states))
    assert found == [together(state, QUESTIONS) for state in states]
    assert found[:4] == [fresh()(state, QUESTIONS) for state in states[:4]]


WIDTHS = {"meaning": 16, "grams": 16, "shape": 6, "reading": 20, "statement": 4, "bases": 2, "options": 3}


def drawn(n: int, seed: int = 0) -> tuple[list[dict[str, np.ndarray]], list[int], list[str]]:
    """Cases of three options, told by one number of `reading` and one of `shape`."""
    rng = np.random.default_rng(seed)
    labels = [0 if i % 8 == 0 else 1 + i % 2 for i in range(n)]
    cases = [{name: rng.normal(size=WIDTHS[name]).astype(np.float32) for name in BLOCKS} for _ in labels]
    for case, label in zip(cases, labels, strict=True):
        case["reading"][0] = -3.0 if label == 0 else 1.0
        case["shape"][0] += 4.0 * (label == 2)
    return cases, labels, [str(i) for i in range(n)]


def test_a_head_learns_what_two_numbers_tell_among_many_that_do_not() -> None:
    fitted, (cases, labels, _) = fit_decision(*drawn(160), sets=EVIDENCE_SETS), drawn(160, seed=1)
    found = np.array([int(np.argmax(fitted.probabilities(case, 3))) for case in cases])
    assert np.mean(found[::8] == 0) > 0.9
    assert np.mean(found == labels) > 0.85
    shares = fitted.probabilities(cases[0], 4)
    assert shares.sum() == pytest.approx(1.0) and 0 < shares[3] < 0.05, "an option that no case showed"
