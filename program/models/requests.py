"""What DSPy sends a decision client for a predictor: taken from it once, kept, and sent again with other inputs.

A compiled predictor carries hundreds of demonstrations. DSPy serialises all of them for every call, which costs far
more than the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import unwrap
from typing import Any

import dspy

Inputs = Mapping[str, Any]
Evidence = dict[str, Any]
"""By output: the probability of a Noul, those of a Choice by option, or those of a Score in order of its levels; None
where nobody could tell."""


def to_jsonable(value: Any) -> Any:
    """Return an input as it is sent and saved: excerpts as objects, lists as lists."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_jsonable(item) for item in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


class DecisionClient:
    """What DSPy takes decisions from in a language model's place. Copies of a program share it."""

    supports_decision_requests = True
    cache = False

    def __init__(self, model: str) -> None:
        self.model = model
        self.callbacks: list[Any] = []
        self.kwargs: dict[str, Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> DecisionClient:
        return self


class RequestCache:
    """The requests of a program's predictors, kept until a predictor's demonstrations or questions change."""

    def __init__(self) -> None:
        self._kept: dict[str, _Request] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> RequestCache:
        return RequestCache()  # a copy of a program may be given other demonstrations

    def kept(self, predictors: Mapping[str, dspy.Predict]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Return the state and questions of every predictor asked as it is now."""
        found = [self._kept[name] for name in sorted(self._kept) if self._kept[name].fits(predictors[name])]
        return [(request.state, request.questions) for request in found]

    async def aask(self, name: str, predictor: dspy.Predict, client: Any, inputs: Inputs) -> Evidence:
        """Await the client's evidence for these inputs."""
        return await self._request(name, predictor, client, inputs).aask(client, inputs)

    def ask(self, name: str, predictor: dspy.Predict, client: Any, inputs: Sequence[Inputs]) -> list[Evidence]:
        """Return the client's evidence for each input, in one batch where it can."""
        request = self._request(name, predictor, client, inputs[0])
        return [read_answers(answers, request.questions) for answers in request.answer(client, inputs)]

    def answer(
        self, name: str, predictor: dspy.Predict, client: Any, inputs: Sequence[Inputs]
    ) -> list[Mapping[str, Any]]:
        """Return the client's answers, as it gives them."""
        return self._request(name, predictor, client, inputs[0]).answer(client, inputs)

    def _request(self, name: str, predictor: dspy.Predict, client: Any, inputs: Inputs) -> _Request:
        if name not in self._kept or not self._kept[name].fits(predictor):
            self._kept[name] = _Request(predictor, client, inputs)
        return self._kept[name]


class _Request:
    """What DSPy sends for a predictor, its inputs aside."""

    def __init__(self, predictor: dspy.Predict, client: Any, inputs: Inputs) -> None:
        self._demos = predictor.demos
        self._made_of = _parts_of(predictor)
        listener = _Listener(client)
        with dspy.context(trace=None):  # past whoever watches: nobody made this decision
            unwrap(dspy.Predict.forward)(predictor, lm=listener, **inputs)
        self.state = listener.state
        self.questions = listener.questions

    def fits(self, predictor: dspy.Predict) -> bool:
        return predictor.demos is self._demos and _parts_of(predictor) == self._made_of

    def answer(self, client: Any, inputs: Sequence[Inputs]) -> list[Mapping[str, Any]]:
        sent = [{name: to_jsonable(value) for name, value in one.items()} for one in inputs]
        if hasattr(client, "batch"):
            return list(client.batch(self.state, self.questions, sent))
        return [client(state={**self.state, "inputs": one}, questions=self.questions) for one in sent]

    async def aask(self, client: Any, inputs: Inputs) -> Evidence:
        state = {**self.state, "inputs": {name: to_jsonable(value) for name, value in inputs.items()}}
        return read_answers(await client.acall(state=state, questions=self.questions), self.questions)


class _Listener(DecisionClient):
    """A decision client that only notes what it is sent."""

    def __init__(self, client: Any) -> None:
        super().__init__(client.model)
        self.state: dict[str, Any] = {}
        self.questions: dict[str, Any] = {}

    def __call__(self, state: dict[str, Any], questions: dict[str, Any]) -> Any:
        self.state, self.questions = state, questions
        return {name: _any_answer(question) for name, question in questions.items()}


def _any_answer(question: Mapping[str, Any]) -> dict[str, Any]:
    if question["type"] == "noul":
        return {"noul": 0.5}
    levels = len(question["criteria"])
    labels = range(levels) if question["type"] == "score" else question["criteria"]
    return {"probabilities": dict.fromkeys(labels, 1 / levels), "confidence": 0}


def _parts_of(predictor: dspy.Predict) -> tuple[Any, ...]:
    wording = [(name, c.get("instructions"), c.get("criteria")) for name, c in predictor.fields.items()]
    return len(predictor.demos), predictor.signature, wording


def read_answers(answers: Mapping[str, Mapping[str, Any]], questions: Mapping[str, Any]) -> Evidence:
    """Return the evidence in a decision client's answers."""
    return {
        name: None
        if "undecided" in answer
        else order_levels(answer["probabilities"])
        if questions[name]["type"] == "score"
        else answer.get("noul", answer.get("probabilities"))
        for name, answer in answers.items()
    }


def order_levels(probabilities: Mapping[Any, float]) -> list[float]:
    """Return the probabilities of a Score's levels, from the lowest on."""
    return [probabilities[level] for level in sorted(probabilities, key=int)]
