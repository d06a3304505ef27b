"""What holds of every decision the local decider makes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest
from dspy.experimental import Choice, Noul, Score
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import shared_embedder
from ragc.models.embedded.reader import shared_reader

FRUIT = ["apples", "pears", "plums", "cherries", "lemons", "grapes", "melons", "figs", "oranges", "peaches"]
TOOLS = ["hammers", "saws", "drills", "pliers", "chisels", "wrenches", "files", "planes", "clamps", "axes"]
CRITERIA = {"north": None, "south": "The other side.", "cellar": "Below."}
QUESTIONS = {
    "zebra": {"type": "noul", "instructions": "The question is a zebra question."},
    "aisle": {"type": "choice", "instructions": "Where it is kept.", "criteria": CRITERIA},
}
BILLING = {"type": "noul", "instructions": "The answer needs this knowledge base: invoices."}
BESIDE = {"base_billing": BILLING, "base_product": {**BILLING, "instructions": "It needs this one: products."}}


def _demos():
    fruit = [{"question": f"Where are the {f}?", "zebra": True, "aisle": "north"} for f in FRUIT]
    tools = [{"question": f"Where are the {t}?", "zebra": False, "aisle": "south"} for t in TOOLS]
    return [demo for pair in zip(fruit, tools, strict=True) for demo in pair]


def _passages(*texts):
    return [{"n": n, "base": "shop", "title": t, "text": text} for n, (t, text) in enumerate(texts, 1)]


def _state(question, demos=None, **more):
    inputs = {"question": question, **more}
    state = {"instructions": "Decide.", "input_fields": "1. `question` (str):", "inputs": inputs}
    return state | ({"demos": demos} if demos else {})


def fresh():
    return LocalDecider(shared_embedder(), shared_reader())


@pytest.fixture(scope="module")
def decider():
    return fresh()


AISLES = Choice.__class_getitem__((("north", ""), ("south", "The other side.")))
URGENCIES = Score.__class_getitem__(("none", "some", "much"))


class Shelf(dspy.Signature):
    """Say where it is kept."""

    question: str = dspy.InputField()
    zebra: Noul = dspy.OutputField(desc="The question is a zebra question.")
    aisle: AISLES = dspy.OutputField(desc="Where.")
    urgency: URGENCIES = dspy.OutputField(desc="How urgent it is.")


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(
    question=st.text(max_size=60),
    texts=st.lists(st.tuples(st.text(max_size=15), st.text(max_size=60)), max_size=3),
    shown=st.sampled_from([0, 1, 3, 20]),
)
def test_any_input_gets_probabilities_that_sum_to_one(decider, question, texts, shown):
    answer = decider(_state(question, _demos()[:shown], passages=_passages(*texts)), QUESTIONS)
    shares = answer["aisle"]["probabilities"]
    assert set(shares) == set(CRITERIA)
    assert all(0 <= share <= 1 for share in (answer["zebra"]["noul"], *shares.values()))
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert answer["aisle"]["confidence"] == max(shares.values())


def test_demonstrations_teach_a_rule_that_the_untaught_answer_gets_wrong(decider):
    asked = "Where are the strawberries?"
    untaught, taught = decider(_state(asked), QUESTIONS), decider(_state(asked, _demos()), QUESTIONS)
    assert untaught["zebra"]["noul"] < 0.5
    assert taught["zebra"]["noul"] > 0.6
    assert max(taught["aisle"]["probabilities"], key=taught["aisle"]["probabilities"].get) == "north"
    assert decider(_state("Where are the screwdrivers?", _demos()), QUESTIONS)["zebra"]["noul"] < 0.4


def test_without_demonstrations_what_is_asked_of_evidence_alone_is_what_the_reader_finds(decider):
    put = {"sufficient": {"type": "noul", "instructions": "All that is needed is stated."}}
    asked = "How long is the battery guarantee of the Warden 3?"
    texts = [("Warden 3", "The battery guarantee is two years long."), ("Parking", "Visitors park behind the house.")]
    found = [reading.answers for reading in decider.reader.read(asked, texts)]
    shown = ([texts[0]], [texts[1]], texts)
    one, other, both = (decider(_state(asked, passages=_passages(*t)), put)["sufficient"]["noul"] for t in shown)
    assert all(0.25 <= p <= 0.75 and (p > 0.5) == (logit > 0) for p, logit in zip((one, other), found, strict=True))
    assert both == max(one, other)


def test_several_inputs_are_answered_as_each_alone_and_by_many_threads_as_by_one(decider):
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
    shared = fresh()
    with ThreadPoolExecutor(6) as pool:
        found = pool.map(lambda one: shared({**state, "inputs": one}, QUESTIONS), inputs * 3)
    assert list(found) == together * 3


@pytest.mark.parametrize("questions", [QUESTIONS, BESIDE])
def test_exported_heads_answer_the_same_and_need_no_fitting(questions, monkeypatch):
    passages = _passages(("Shelf plan", "Pears and quinces: north. Hammers: south."))
    labels = [{"base_billing": bool(n % 2), "base_product": not n % 2, "passages": passages} for n in range(20)]
    demos = [{**demo, **more} for demo, more in zip(_demos(), labels, strict=True)]
    state = _state("Where are the quinces?", demos, passages=passages)
    taught, other = fresh(), fresh()
    before = taught(state, questions)
    other.import_heads(load_tensors(save_tensors(taught.export_heads([(state, questions)]))))
    monkeypatch.setattr("ragc.models.embedded.decider.fit_decision", lambda *_: pytest.fail("fitted again"))
    assert other(state, questions) == before
    assert sorted(other.export_heads()) == sorted(taught.export_heads())


def test_a_predictor_decides_alike_in_both_ways_of_calling_and_keeps_its_thresholds():
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


NAMES = ["ready", "vague", "follows_on", "states", "relevant", "base_billing", "is_ready", "is_late", "route"]
ASKED = [{"type": "noul", "instructions": f"It can be settled {by}."} for by in ("today", "by the customer")]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    names=st.permutations(NAMES),
    question=st.sampled_from(["Is it open?", "And for companies?", "How much is Pro?"]),
    put=st.sampled_from([ASKED[:1], ASKED]),
    demos=st.sampled_from([[], _demos()]),
)
def test_the_name_of_an_output_changes_no_decision(decider, names, question, put, demos):
    texts = _passages(("Prices > Basic", "Basic costs GBP 5."), ("Prices > Pro", "Pro costs GBP 12."))
    history = [{"role": "user", "content": "What does Basic cost?"}, {"role": "assistant", "content": "GBP 5."}]

    def decide(*names):
        labelled = [{"question": one["question"], **dict.fromkeys(names, one["zebra"])} for one in demos]
        state = _state(question, labelled, passages=texts, history=history)
        found = decider(state, dict(zip(names, put, strict=False)))
        return [found[name] for name, _ in zip(names, put, strict=False)]

    assert decide(*names[:2]) == decide("one", "two")


def test_best_of_n_of_a_decision_returns_what_it_decides_once(decider):
    program = dspy.Predict(Shelf)
    program.set_lm(decider)
    once = program(question="Where are the pears?")
    best = dspy.BestOfN(program, N=3, reward_fn=lambda inputs, found: found.zebra.probability, threshold=2.0)
    assert best(question="Where are the pears?").zebra.probability == once.zebra.probability
