"""A DSPy decision client on a chat model, which is asked for its decisions in JSON."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Annotated, Any, Literal

import dspy
from dspy.utils.exceptions import LMError
from pydantic import BaseModel, BeforeValidator, Field, create_model, model_validator

from ragc.models.language.adapter import FencedAdapter
from ragc.models.language.fence import fence_input
from ragc.models.language.gateway import Endpoint, ProviderLM, shared_gateway
from ragc.models.language.spending import current_spending
from ragc.models.requests import Answers, DecisionClient, Question, Questions, State, options_of
from ragc.signatures import NEEDS_BASE

EXAMPLES_SHOWN = 8  # demonstrations in a request
EXAMPLE_CHARACTERS = 1200  # of each
HOW_TO_DECIDE = (
    "Decide each of the outputs: first a short reason, then the verdict, then how probable it is. `probability` is "
    "that of yes, from 0 to 1: near 1 when surely yes, near 0 when surely no, near 0.5 when it could be either; "
    "`probabilities` sum to 1. Bad: a verdict of no with a probability of 0.9."
)
Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class LanguageDecider(DecisionClient):
    """A chat model asked for a reason, a verdict, then a probability, as JSON; give it to DSPy as a language model.

    A reply that cannot be read is asked for once more; then each question gets its safe default (a source is looked
    into, everything else is denied) and the trace says so. `structured` models are held to a JSON schema. When the
    model cannot be reached in time, the `fallback` client decides, if there is one.
    """

    awaits = True

    def __init__(self, endpoint: Endpoint, fallback: Any = None, structured: bool = False) -> None:
        super().__init__(endpoint.model)
        self.endpoint = endpoint
        self.fallback = fallback
        self._adapter = FencedAdapter(structured=structured)
        self._lm = ProviderLM(endpoint, self._adapter)

    def __call__(self, state: State, questions: Questions) -> Answers:
        return shared_gateway().run(self.acall(state, questions))

    async def acall(self, state: State, questions: Questions) -> Answers:
        """Return the same answers, awaited. Raises `LMError` when nobody answers."""
        # Not streamed, and counted with the decision.
        with dspy.context(usage_tracker=None, disable_history=True, send_stream=None):
            try:
                return await self._ask(state, questions)
            except LMError as error:
                if self.fallback is None:
                    raise
                current_spending().hand_over(error.message, self.model, self.fallback, "decided")
        answers: Answers = await self.fallback.acall(state=state, questions=questions)
        return answers

    async def _ask(self, state: State, questions: Questions) -> Answers:
        signature, inputs = _signature_of(state, questions), dict(state["inputs"])
        (said,) = await self._adapter.acall(self._lm, {}, signature, [], inputs)
        if None in said.values():
            return {name: safe_default(question) for name, question in questions.items()}
        return {name: said[name].evidence for name in questions}


class NoulVerdict(BaseModel):
    """A chat model's decision between yes and no."""

    reason: str = Field("", examples=["at most 15 words"])
    verdict: Annotated[Literal["yes", "no"], BeforeValidator(lambda said: str(said).casefold())] = Field(
        examples=["yes or no"]
    )
    probability: Probability

    @model_validator(mode="after")
    def _agrees(self) -> NoulVerdict:
        if self.probability != 0.5 and (self.probability > 0.5) != (self.verdict == "yes"):
            raise ValueError("the verdict and the probability contradict each other")
        return self

    @property
    def evidence(self) -> dict[str, Any]:
        """The probability in DSPy's form."""
        return {"noul": self.probability}


class ChoiceVerdict(BaseModel):
    """A chat model's decision among options, with a probability for each."""

    reason: str = Field("", examples=["at most 15 words"])
    choice: str
    probabilities: dict[str, Probability]

    @model_validator(mode="after")
    def _agrees(self) -> ChoiceVerdict:
        if not 0.9 <= sum(self.probabilities.values()) <= 1.1:
            raise ValueError("the probabilities do not sum to 1")
        if self.probabilities.get(self.choice, 0.0) < max(self.probabilities.values()):
            raise ValueError("the choice and the probabilities contradict each other")
        return self

    @property
    def evidence(self) -> dict[str, Any]:
        """The probabilities in DSPy's form."""
        total = sum(self.probabilities.values())
        shares = {option: share / total for option, share in self.probabilities.items()}
        return {"probabilities": shares, "confidence": max(shares.values())}


@lru_cache(maxsize=256)
def _choice_of(options: tuple[str, ...]) -> type[ChoiceVerdict]:
    """Return a selection among these options, each of which is given a probability."""
    told: Any = {"properties": {option: {"type": "number"} for option in options}}
    shares: Any = Field(min_length=len(options), examples=[dict.fromkeys(options, 0.5)], json_schema_extra=told)
    option: Any = Literal[options]
    fields: dict[str, Any] = {
        "choice": (option, Field(examples=["one of them"])),
        "probabilities": (dict[option, Probability], shares),
    }
    return create_model("ChoiceVerdict", __base__=ChoiceVerdict, **fields)


def _signature_of(state: State, questions: Questions) -> Any:
    """Return the request as a signature whose outputs are verdicts and selections."""
    fields: dict[str, Any] = {name: (str, dspy.InputField()) for name in state["inputs"]}
    for name, question in questions.items():
        options = options_of(question)
        told = [f"{question['instructions']} One of: {', '.join(options)}."]
        told += [f"    {option}: {meaning}" for option, meaning in options.items() if meaning]
        kind = NoulVerdict if question["type"] == "noul" else _choice_of(tuple(options))
        fields[name] = (kind, dspy.OutputField(desc="\n".join(told)))
    parts = [str(state.get("instructions", "")).strip(), HOW_TO_DECIDE]
    if shown := choose_examples(state.get("demos") or (), questions):
        parts.append("\n".join(["Examples that people labelled:", *(_format_example(one, questions) for one in shown)]))
    return dspy.Signature(fields, "\n\n".join(parts))


def choose_examples(demos: Sequence[Mapping[str, Any]], outputs: Collection[str]) -> list[Mapping[str, Any]]:
    """Return a few demonstrations, as different in their labels as they come."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for demo in demos:
        labels = _labels_of(demo, outputs)
        if labels and is_short(demo, outputs):
            groups.setdefault(str(labels), []).append(demo)
    return [demo for turn in zip_longest(*groups.values()) for demo in turn if demo is not None][:EXAMPLES_SHOWN]


def is_short(demo: Mapping[str, Any], outputs: Collection[str]) -> bool:
    """Tell whether a demonstration is short enough for a request."""
    return sum(len(str(value)) for name, value in demo.items() if name not in outputs) <= EXAMPLE_CHARACTERS


def _labels_of(demo: Mapping[str, Any], outputs: Collection[str]) -> dict[str, Any]:
    return {name: _label_word(demo[name]) for name in outputs if demo.get(name) is not None}


def _label_word(value: Any) -> Any:
    value = value.get("value") if isinstance(value, Mapping) else getattr(value, "value", value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def _format_example(demo: Mapping[str, Any], outputs: Collection[str]) -> str:
    inputs = " ".join(fence_input(name, value) for name, value in demo.items() if name not in outputs)
    return f"{inputs}\n-> {json.dumps(_labels_of(demo, outputs), ensure_ascii=False, default=str)}"


def safe_default(question: Question) -> dict[str, Any]:
    """Return the careful reading of a question that nothing decided.

    Every source is taken, the middle route, nothing upheld. What is not upheld is marked `undecided`: its 0 is no
    score.
    """
    if question["type"] == "noul":
        needed = str(question.get("instructions")).startswith(NEEDS_BASE)
        return {"noul": 1.0} if needed else {"noul": 0.0, "undecided": True}
    options = list(options_of(question))
    chosen = "simple" if "simple" in options else options[0]
    return {"probabilities": {option: float(option == chosen) for option in options}, "confidence": 0.0}
