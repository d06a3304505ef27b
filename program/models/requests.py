"""What DSPy sends a decision client for a predictor, and how the answer is read and decoded.

A compiled predictor carries hundreds of demonstrations. DSPy serialises all of them for every call, which costs far
more than the decision: here the request is taken from it once, kept, and sent again with other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from inspect import unwrap
from typing import Any

import dspy
from dspy.adapters.decision import record_evidence
from pydantic import BaseModel

DECIDED_KEPT = 65_536  # yes-or-no decisions of which the last are kept

Inputs = Mapping[str, Any]
State = Mapping[str, Any]  # what DSPy sends beside the questions: `instructions`, `inputs`, `demos`
Question = Mapping[str, Any]  # what DSPy asks of an output: `type`, `instructions`, `criteria`
Questions = Mapping[str, Question]
Answers = dict[str, dict[str, Any]]
Evidence = dict[str, Any]
"""By output: the probability of a Noul, those of a Choice by option, or those of a Score in order of its levels; None
where nobody could tell."""


def to_jsonable(value: Any) -> Any:
    """Return inputs as they are sent and saved.

    Excerpts are objects, lists are lists, a member of an Enum is its label.
    """
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str | int) else value.name
    if isinstance(value, Mapping):
        return {name: to_jsonable(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_jsonable(item) for item in value]
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


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

    def copy(self, **settings: Any) -> DecisionClient:
        """Return itself: no rollout and no temperature changes a decision."""
        return self

    def __call__(self, state: State, questions: Questions) -> Answers:
        """Return for each field `{"noul": p}`, or `{"probabilities": {option: p}, "confidence": p}`."""
        raise NotImplementedError

    def batch(self, state: State, questions: Questions, inputs: Sequence[Inputs]) -> list[Answers]:
        """Return the answers for several inputs, each as if asked alone."""
        return [self(state={**state, "inputs": one}, questions=questions) for one in inputs]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decoded decision, read like DSPy's `Noul`, `Choice` and `Score`."""

    value: Any
    probability: float
    probabilities: Mapping[Any, float] | None = None
    level: int | None = None  # the level of a Score
    undecided: bool = False  # whether a model was asked and its reply could not be read; it counts as denied


UNDECIDED = Decision(False, 0.0, undecided=True)


def is_undecided(decision: Any) -> bool:
    """Tell whether a model's reply could not be read, so that it is no score."""
    # DSPy's own decisions, which come while an optimizer watches, have no such mark.
    return getattr(decision, "undecided", False) is True


def options_of(question: Question) -> dict[str, Any]:
    """Return the options of a question, each with what it means; levels are digits."""
    criteria = question.get("criteria") or {}
    if question["type"] == "noul":
        return {"yes": criteria.get("true"), "no": criteria.get("false")}
    return dict(criteria) if question["type"] == "choice" else {str(n): text for n, text in enumerate(criteria)}


def read_answers(answers: Mapping[str, Mapping[str, Any]], questions: Questions) -> Evidence:
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


def decode(evidence: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Decision]:
    """Return the decisions that evidence stands for under a predictor's `fields`."""
    return {name: decode_output(found, fields.get(name, {})) for name, found in evidence.items()}


def decode_output(found: Any, config: Mapping[str, Any]) -> Decision:
    """Return the decision that one output's evidence stands for.

    As DSPy does: a `threshold` on a probability, `weights` on a table (ties go to the raw winner), `cuts` on a mean.
    """
    if found is None:
        return UNDECIDED
    if isinstance(found, float | int):  # first, as most are: a search decodes millions
        return _decide_noul(found >= config.get("threshold", 0.5), found)
    if isinstance(found, list):
        value = sum(level * p for level, p in enumerate(found)) / sum(found)
        cuts = config.get("cuts") or [n + 0.5 for n in range(len(found) - 1)]
        return Decision(value, max(found), dict(enumerate(found)), sum(value >= cut for cut in cuts))
    weights = config.get("weights", {})
    raw = max(found, key=found.__getitem__)
    chosen = max(found, key=lambda label: (found[label] * weights.get(label, 1.0), label == raw))
    return Decision(chosen, found[chosen], found)


@lru_cache(maxsize=DECIDED_KEPT)
def _decide_noul(value: bool, probability: float) -> Decision:
    """Return a decision, the same object for all settings of a search that decode it alike."""
    return Decision(value, probability)


class RequestCache:
    """The requests of a program's predictors, kept until a predictor's demonstrations or questions change."""

    def __init__(self) -> None:
        self._kept: dict[str, _Request] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> RequestCache:
        return RequestCache()  # a copy of a program may be given other demonstrations

    def kept(self, predictors: Mapping[str, dspy.Predict]) -> list[tuple[State, Questions]]:
        """Return the state and questions of every predictor asked as it is now."""
        found = [self._kept[name] for name in sorted(self._kept) if self._kept[name].fits(predictors[name])]
        return [(request.state, request.questions) for request in found]

    async def aask(self, name: str, predictor: dspy.Predict, client: Any, inputs: Inputs) -> Evidence:
        """Await the client's evidence for these inputs."""
        request, sent = self._request(name, predictor, client, inputs), to_jsonable(inputs)
        answers = await client.acall(state={**request.state, "inputs": sent}, questions=request.questions)
        return read_answers(answers, request.questions)

    def ask(self, name: str, predictor: dspy.Predict, client: Any, inputs: Sequence[Inputs]) -> list[Evidence]:
        """Return the client's evidence for each input, in one batch where it can."""
        questions = self._request(name, predictor, client, inputs[0]).questions
        return [read_answers(answers, questions) for answers in self.answer(name, predictor, client, inputs)]

    def answer(self, name: str, predictor: dspy.Predict, client: Any, inputs: Sequence[Inputs]) -> list[Answers]:
        """Return the client's answers, as it gives them."""
        request = self._request(name, predictor, client, inputs[0])
        batch = type(client).batch if isinstance(client, DecisionClient) else DecisionClient.batch
        return batch(client, request.state, request.questions, [to_jsonable(one) for one in inputs])

    def _request(self, name: str, predictor: dspy.Predict, client: Any, inputs: Inputs) -> _Request:
        if name not in self._kept or not self._kept[name].fits(predictor):
            self._kept[name] = _Request(predictor, client, inputs)
        return self._kept[name]


class _Request:
    """What DSPy sends for a predictor, its inputs aside."""

    def __init__(self, predictor: dspy.Predict, client: Any, inputs: Inputs) -> None:
        self._demos = predictor.demos
        self._made_of = _parts_of(predictor)
        listener = _Listener(client.model)
        with dspy.context(trace=None), record_evidence():  # past whoever watches: nobody made this decision
            unwrap(dspy.Predict.forward)(predictor, lm=listener, **inputs)
        self.state = listener.state
        self.questions = listener.questions

    def fits(self, predictor: dspy.Predict) -> bool:
        return predictor.demos is self._demos and _parts_of(predictor) == self._made_of


class _Listener(DecisionClient):
    """A decision client that only notes what it is sent."""

    state: State
    questions: Questions

    def __call__(self, state: State, questions: Questions) -> Any:
        self.state, self.questions = state, questions
        return {name: _any_answer(question) for name, question in questions.items()}


def _any_answer(question: Question) -> dict[str, Any]:
    if question["type"] == "noul":
        return {"noul": 0.5}
    options = options_of(question)
    return {"probabilities": dict.fromkeys(options, 1 / len(options)), "confidence": 0}


def _parts_of(predictor: dspy.Predict) -> tuple[Any, ...]:
    wording = [(name, c.get("instructions"), c.get("criteria")) for name, c in predictor.fields.items()]
    return len(predictor.demos), predictor.signature, wording
