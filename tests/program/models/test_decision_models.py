"""Typed decision models by name, against a loopback server of both wires and the faults of each."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from dspy.utils.exceptions import LMError

from ragc import Outcome
from ragc.errors import ModelError
from ragc.models.catalog import missing_keys, open_models
from ragc.models.deciders import DecisionModel
from ragc.models.language.gateway import EndpointTerms, Gateway
from ragc.models.language.spending import track_spending
from ragc.optimize.report.doctor import examine_setup
from ragc.settings import ModelSettings, ProviderSettings
from tests.program.models.responder import responding
from tests.support.goods import program_at

JEV, LUNA, LAYA = "systemone/typesafe/jev-latest", "decisions/openai/gpt-6-luna", "systemone/hosted_vllm/laya"
QUESTIONS = {
    "relevant": {"type": "noul", "instructions": "It helps."},
    "route": {"type": "choice", "instructions": "How much.", "criteria": {"direct": "none", "simple": "one"}},
    "tone": {"type": "score", "instructions": "How polite.", "criteria": ["rude", "neutral", "kind"]},
}
DEMOS = [{"question": f"Q{n}?", "relevant": {"value": n % 2 == 0}} for n in range(20)]
STATE = {"instructions": "Decide.", "input_fields": "question", "inputs": {"question": "Is it\u200b blue?"}}
READ = {
    "relevant": {"noul": 0.9},
    "route": {"probabilities": {"direct": 0.3, "simple": 0.7}, "confidence": 0.4},
    "tone": {"probabilities": {"0": 0.2, "1": 0.5, "2": 0.3}, "confidence": 0.4},
}
JSON = "application/json"


def system_one(body):
    """What `/v1/systemone` replies: 0.9 to a Noul, the second option of a Choice, the middle of a Score."""

    def answer(name, question):
        options = question.get("criteria") or ()
        if question["type"] == "noul":
            return {"type": "noul", "noul": 0.1 if name == "vague" else 0.9}
        if question["type"] == "score":
            shares = {"0": 0.2, "1": 0.5, "2": 0.3}
            return {"type": "score", "score": 1.1, "confidence": 0.4, "legend": {}, "probabilities": shares}
        first, last, *rest = options
        shares = {first: 0.3, last: 0.7, **dict.fromkeys(rest, 0.0)}
        return {"type": "choice", "choice": last, "confidence": 0.4, "probabilities": shares}

    answers = {name: answer(name, question) for name, question in body["questions"].items()}
    return {"model": body["model"], "answers": answers, "usage": {"input_tokens": 100, "output_tokens": 2}}


def open_ai(body):
    """What `/v1/decisions` replies: the same."""

    def answer(question):
        said = {"type": question["type"], "name": question["name"], "confidence": 0.4}
        if question["type"] == "predicate":
            return {**said, "probability": 0.9}
        if question["type"] == "score":
            levels = enumerate(zip(question["levels"], (0.2, 0.5, 0.3), strict=True))
            shares = [{"value": n, "label": level["label"], "probability": p} for n, (level, p) in levels]
            return {**said, "score": 1.1, "probabilities": shares}
        shares = [{"value": o["value"], "probability": p} for o, p in zip(question["choices"], (0.3, 0.7), strict=True)]
        return {**said, "choice": question["choices"][1]["value"], "probabilities": shares}

    usage = {"input_tokens": 100, "output_tokens": 2, "total_tokens": 102}
    return {"model": body["model"], "answers": [answer(one) for one in body["questions"]], "usage": usage}


class Server:
    """Answers either wire; `faults` are the replies to the first requests, each made from the right one."""

    def __init__(self, place):
        self.place, self.faults, self.bodies = place, [], []
        place.respond = self.respond

    def respond(self, body):
        self.bodies.append(body)
        right = json.dumps(open_ai(body) if "input" in body else system_one(body)).encode()
        return self.faults.pop(0)(right) if self.faults else (200, {}, JSON, right)

    def model(self, name, fallback=None, **terms):
        return DecisionModel(Gateway().endpoint(name, self.place.url, EndpointTerms(**terms)), fallback)


@pytest.fixture
def server():
    with responding() as place:
        yield Server(place)


@pytest.mark.parametrize("name", [JEV, LUNA, LAYA])
def test_each_wire_answers_every_type_in_one_pass_and_costs_what_it_says(server, name):
    with track_spending() as spent:
        assert server.model(name)({**STATE, "demos": DEMOS}, QUESTIONS) == READ
    (body,) = server.bodies
    state = json.loads(body["input"]) if name is LUNA else body["state"]
    assert state["inputs"] == {"question": "Is it blue?"} and len(state["demos"]) == 8
    assert {demo["relevant"]["value"] for demo in state["demos"]} == {True, False}
    assert (spent.calls, spent.tokens_in, spent.tokens_out) == (1, 100, 2)
    assert spent.usd == pytest.approx(100 * 4.2e-8 if name is JEV else spent.usd)


FAULTS = {
    "busy": lambda right: (429, {"Retry-After": "0"}, JSON, b"{}"),
    "broken": lambda right: (500, {}, JSON, b"{}"),
    "cut": lambda right: (200, {"Content-Length": str(2 * len(right))}, JSON, right),
    "half": lambda right: (200, {}, JSON, right[: len(right) // 2]),
    "page": lambda right: (200, {}, "text/html", b"<html>"),
    "shape": lambda right: (200, {}, JSON, right.replace(b"answers", b"replies")),
    "refused": lambda right: (200, {}, JSON, right.replace(b'"score", ', b'"refusal", ')),
    "sum": lambda right: (200, {}, JSON, right.replace(b"0.7", b"0.9")),
    "share": lambda right: (200, {}, JSON, right.replace(b"0.9", b"1.9")),
    "nan": lambda right: (200, {}, JSON, right.replace(b"0.9", b"NaN")),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", [JEV, LUNA])
def test_after_a_fault_it_is_asked_again_and_what_is_no_distribution_is_never_believed(server, name, fault):
    server.faults = [FAULTS[fault]]
    with track_spending() as spent:
        assert server.model(name)(STATE, QUESTIONS) == READ
    assert spent.calls == len(server.bodies) == 2
    server.faults = [FAULTS[fault]]
    with pytest.raises(LMError):
        server.model(name, retries=0)(STATE, QUESTIONS)


def test_behind_a_model_that_fails_another_decides_and_what_is_refused_anyway_says_nothing_of_demonstrations(server):
    server.faults = [FAULTS["broken"]]
    with track_spending() as spent:
        assert server.model(JEV, server.model(LAYA), retries=0)(STATE, QUESTIONS) == READ
    assert spent.notes == [f"{JEV} answered 500: {LAYA} was asked"]
    model, server.faults = server.model(JEV), [lambda right: (400, {}, JSON, b"{}")] * 2
    with pytest.raises(LMError, match="400"):
        model({**STATE, "demos": DEMOS}, QUESTIONS)
    assert model.endpoint.takes_examples


@pytest.mark.parametrize("name", [JEV, LUNA])
def test_a_model_that_refuses_demonstrations_is_asked_without_however_many_at_once_and_from_then_on(server, name):
    def respond(body):
        server.bodies.append(body)
        if "demos" in json.dumps(body):
            return 422, {}, JSON, b'{"error": "no demos"}'
        return 200, {}, JSON, json.dumps(open_ai(body) if "input" in body else system_one(body)).encode()

    server.place.respond = respond
    model = server.model(name)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: model({**STATE, "demos": DEMOS}, QUESTIONS), range(8)))
    assert found == [READ] * 8
    server.bodies.clear()
    assert model({**STATE, "demos": DEMOS}, QUESTIONS) == READ and len(server.bodies) == 1


def test_a_server_of_ones_own_gets_the_key_of_its_host_and_no_other(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-belongs-to-openai")
    server.model(LUNA)(STATE, QUESTIONS)
    assert server.place.authorization == "Bearer none"
    monkeypatch.delenv("TYPESAFE_API_KEY", raising=False)
    assert missing_keys(JEV, ProviderSettings()) == ["TYPESAFE_API_KEY"] and not missing_keys(LUNA, ProviderSettings())


@pytest.mark.parametrize("decide", [f'"{JEV}"', f'["local/reader", "{JEV}"]'])
def test_a_program_decides_and_judges_by_it_and_the_doctor_calls_it_once_and_tells_its_price(server, tmp_path, decide):
    own = f'[provider.model."{JEV}"]\napi_base = "{server.place.url}"'
    models = f'decide = {decide}\njudge = "{JEV}"\nwrite = "local/reader"'
    answer = program_at("http://127.0.0.1:9/v1", tmp_path, models=models, provider=own)("What does the lamp cost?")
    assert answer.outcome is Outcome.ANSWERED and answer.usage.calls == len(server.bodies) > 1
    assert JEV in {step.model for step in answer.trace.steps} and not answer.degraded
    server.bodies.clear()
    told = [found.what for found in examine_setup(tmp_path) if JEV in found.what]
    assert len(server.bodies) == len(told) == 2 and all("US$ 0.042 in" in one for one in told)
    assert f"judge: {JEV} answers" in told[1]


def test_a_name_that_cannot_decide_is_refused_with_what_can():
    with pytest.raises(ModelError, match="writes no text"):
        open_models(ModelSettings(write=JEV))
    for name in ("systemone/ollama/laya", "systemone/typesafe", "decisions/vllm/x"):
        with pytest.raises(ModelError, match="no provider of decisions"):
            open_models(ModelSettings(decide=name))
