"""Decisions asked directly of a decision client: what DSPy would send, without writing it anew for each question.

A compiled predictor carries hundreds of demonstrations. DSPy serialises all of them for every call, which costs
far more than the decision. The request is therefore taken once from DSPy, kept, and sent again with other inputs;
the reply is decoded as DSPy decodes it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.adapters.types.decision import Choice, Score

Evidence = dict[str, Any]
"""By output: the probability of a Noul, those of a Choice by option, or those of a Score in order of its levels; None
where nobody could tell."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decoded decision, read like DSPy's `Noul`, `Choice` and `Score`; `level` is the last one's. One that is
    `undecided` is denied."""

    value: Any
    probability: float
    probabilities: Mapping[Any, float] | None = None
    level: int | None = None
    undecided: bool = False


def decode(evidence: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Decision]:
    """The decisions that evidence stands for under a predictor's `fields` (thresholds and weights)."""
    return {name: _decision(found, fields.get(name, {})) for name, found in evidence.items()}


def undecided(decision: Any) -> bool:
    """True when a model was asked and its reply could not be read: what stands for it is no score.

    DSPy's own decisions, which come while an optimizer watches, have no such mark.
    """
    return getattr(decision, "undecided", False) is True


def evidence_of(prediction: dspy.Prediction) -> Evidence:
    """The probabilities behind a prediction."""
    return {
        name: _in_order(value.probabilities)
        if isinstance(value, Score)
        else dict(value.probabilities)
        if isinstance(value, Choice)
        else value.probability
        for name, value in prediction.items()
    }


def _in_order(probabilities: Mapping[Any, float]) -> list[float]:
    """The probabilities of a Score's levels, from the lowest on."""
    return [probabilities[level] for level in sorted(probabilities, key=int)]


def mean_level(found: Sequence[float]) -> float:
    """The value of a Score, as DSPy takes it: the mean of its levels, by their probabilities."""
    return sum(level * p for level, p in enumerate(found)) / sum(found)


def jsonable(value: Any) -> Any:
    """An input as it is sent and saved: excerpts as objects, lists as lists."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [jsonable(item) for item in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def is_direct(client: Any) -> bool:
    """True when the client takes decisions as structure, not as a prompt."""
    return getattr(client, "supports_decision_requests", False) is True


@dataclass(slots=True)
class Requests:
    """The requests of a program's predictors, kept until a predictor's demonstrations or questions change."""

    _kept: dict[str, _Request] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __deepcopy__(self, memo: dict[int, Any]) -> Requests:
        return Requests()  # a copy of a program may be given other demonstrations

    def kept(self, predictors: Mapping[str, dspy.Predict]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """The state and questions of every predictor that was asked with what it has now."""
        return [request.put for name, request in sorted(self._kept.items()) if request.fits(predictors[name])]

    def ask(self, name: str, predictor: dspy.Predict, client: Any, inputs: Mapping[str, Any]) -> Evidence:
        """The client's evidence for these inputs."""
        return self.ask_many(name, predictor, client, [inputs])[0]

    async def aask(self, name: str, predictor: dspy.Predict, client: Any, inputs: Mapping[str, Any]) -> Evidence:
        """The client's evidence for these inputs, awaited."""
        return await self._request(name, predictor, client, inputs).aask(client, inputs)

    def ask_many(
        self, name: str, predictor: dspy.Predict, client: Any, inputs: Sequence[Mapping[str, Any]]
    ) -> list[Evidence]:
        """The client's evidence for each of several inputs, all at once when it has a `batch`."""
        if not inputs:
            return []
        return self._request(name, predictor, client, inputs[0]).ask(client, inputs)

    def part(self, name: str, predictor: dspy.Predict, client: Any, inputs: Mapping[str, Any]) -> tuple[Any, Any]:
        """What is sent for these inputs: the state and the questions."""
        state, questions = self._request(name, predictor, client, inputs).put
        return {**state, "inputs": written(inputs)}, questions

    def _request(self, name: str, predictor: dspy.Predict, client: Any, inputs: Mapping[str, Any]) -> _Request:
        request = self._kept.get(name)
        if request is None or not request.fits(predictor):
            request = _Request(predictor, client, inputs)
            with self._lock:
                self._kept[name] = request
        return request


class _Request:
    """What DSPy sends for a predictor, its inputs aside."""

    def __init__(self, predictor: dspy.Predict, client: Any, inputs: Mapping[str, Any]) -> None:
        self._signature = predictor.signature
        self._demos = predictor.demos
        self._length = len(predictor.demos)
        self._wording = _wording(predictor)
        listener = _Listener(client)
        with dspy.context(trace=None):
            predictor(lm=listener, **inputs)
        self._state = listener.state
        self._questions = listener.questions

    @property
    def put(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return self._state, self._questions

    def fits(self, predictor: dspy.Predict) -> bool:
        return (
            predictor.demos is self._demos
            and len(predictor.demos) == self._length
            and predictor.signature is self._signature
            and _wording(predictor) == self._wording
        )

    def ask(self, client: Any, inputs: Sequence[Mapping[str, Any]]) -> list[Evidence]:
        sent = [written(one) for one in inputs]
        if (batch := getattr(client, "batch", None)) is not None:
            found = batch(self._state, self._questions, sent)
        else:
            found = [client(state={**self._state, "inputs": one}, questions=self._questions) for one in sent]
        return [evidence_from(answers, self._questions) for answers in found]

    async def aask(self, client: Any, inputs: Mapping[str, Any]) -> Evidence:
        state = {**self._state, "inputs": written(inputs)}
        return evidence_from(await client.acall(state=state, questions=self._questions), self._questions)


def written(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as they are sent."""
    return {name: jsonable(value) for name, value in inputs.items()}


def evidence_from(answers: Mapping[str, Mapping[str, Any]], questions: Mapping[str, Any]) -> Evidence:
    """The probabilities in what a decision client replied to questions."""
    return {
        name: None
        if "undecided" in answer
        else _in_order(answer["probabilities"])
        if questions[name]["type"] == "score"
        else answer.get("noul", answer.get("probabilities"))
        for name, answer in answers.items()
    }


class _Listener:
    """A decision client that only notes what it is sent."""

    supports_decision_requests = True

    def __init__(self, client: Any) -> None:
        self.model = client.model
        self.callbacks: list[Any] = []
        self.cache = False
        self.kwargs: dict[str, Any] = {}
        self.state: dict[str, Any] = {}
        self.questions: dict[str, Any] = {}

    def __call__(self, state: dict[str, Any], questions: dict[str, Any]) -> Any:
        self.state, self.questions = state, questions
        return {name: _any_answer(question) for name, question in questions.items()}


def _any_answer(question: Mapping[str, Any]) -> dict[str, Any]:
    if question["type"] == "noul":
        return {"noul": 0.5}
    if question["type"] == "score":
        levels = len(question["criteria"])
        return {"probabilities": dict.fromkeys(range(levels), 1 / levels), "confidence": 0}
    return {"probabilities": {label: 1 / len(question["criteria"]) for label in question["criteria"]}, "confidence": 0}


def _wording(predictor: dspy.Predict) -> list[Any]:
    return [(name, c.get("instructions"), c.get("criteria")) for name, c in predictor.fields.items()]


def _decision(found: Any, config: Mapping[str, Any]) -> Decision:
    """As DSPy decodes it: a threshold on a probability, or weights on a table; ties go to the raw winner."""
    if isinstance(found, dict):
        weights = config.get("weights", {})
        raw = max(found, key=found.__getitem__)
        chosen = max(found, key=lambda label: (found[label] * weights.get(label, 1.0), label == raw))
        return Decision(chosen, found[chosen], found)
    if found is None:
        return Decision(False, 0.0, undecided=True)
    if isinstance(found, list):
        value = mean_level(found)
        cuts = config.get("cuts") or [n + 0.5 for n in range(len(found) - 1)]
        return Decision(value, max(found), dict(enumerate(found)), sum(value >= cut for cut in cuts))
    return Decision(found >= config.get("threshold", 0.5), found)
