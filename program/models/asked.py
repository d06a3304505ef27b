"""A DSPy decision client on a language model: it is asked for a reason, a verdict, then a probability."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cached_property
from typing import Any, cast

from program.models.language.decision_format import (
    DecisionState,
    Questions,
    build_decision_prompt,
    decision_schema,
    read_decisions,
)
from program.models.language.gateway import Endpoint, shared_gateway
from program.models.language.parsing import UnreadableReply
from program.models.language.spending import current_spending
from program.models.language.transport import Call, CallFailed, Reply

Answers = dict[str, dict[str, Any]]

MOST_REPEATED = 1200  # characters of an unreadable reply, shown when it is asked for again
DEFAULTED = "took the safe default"
AGAIN = "That could not be read: {why}. Reply once more with the JSON object alone, in exactly the form asked for."


class LanguageDecider:
    """Answers decision requests by asking a language model; give it to DSPy as a language model.

    A reply that cannot be mended is asked for once more; then each question gets its safe default (a source is
    looked into, everything else is denied) and the trace says so. When the model cannot be reached in time, the
    `fallback` client decides, if there is one. `structured` models are held to a JSON schema.
    """

    supports_decision_requests = True
    awaits = True

    def __init__(self, endpoint: Endpoint, fallback: Any = None, structured: bool = False) -> None:
        self.endpoint = endpoint
        self.model = endpoint.model
        self.fallback = fallback
        self.callbacks: list[Any] = []
        self.cache = False
        self.kwargs: dict[str, Any] = {}
        self._structured = structured
        self._gateway = shared_gateway()

    def __deepcopy__(self, memo: dict[int, Any]) -> LanguageDecider:
        return self  # copies of a program share its limits

    @cached_property
    def chat(self) -> Any:
        """The model as a `dspy.LM`, asked many decisions at once."""
        from program.models.language.adapter import FencedAdapter
        from program.models.language.gateway import ProviderLM

        model: Any = ProviderLM(self.endpoint, FencedAdapter(getattr(self.fallback, "chat", None), self._structured))
        model.stand_in = self.stand_in
        return model

    @property
    def stand_in(self) -> Any:
        """The embedded client behind all language models, or None."""
        return getattr(self.fallback, "stand_in", self.fallback)

    def __call__(self, state: DecisionState, questions: Questions) -> Answers:
        """Return for each field `{"noul": p}`, or `{"probabilities": {option: p}, "confidence": the largest}`."""
        spent, work = current_spending(), self._converse(questions, state)
        try:
            call = next(work)
            while True:
                call = work.send(self._gateway.ask(self.endpoint, call, spent))
        except StopIteration as stop:
            return cast(Answers, stop.value)
        except CallFailed as failure:
            return cast(Answers, self._hand_over(failure)(state=state, questions=questions))

    async def acall(self, state: DecisionState, questions: Questions) -> Answers:
        """Return the same, awaited."""
        spent, work = current_spending(), self._converse(questions, state)
        try:
            call = next(work)
            while True:
                call = work.send(await self._gateway.aask(self.endpoint, call, spent))
        except StopIteration as stop:
            return cast(Answers, stop.value)
        except CallFailed as failure:
            return cast(Answers, await self._hand_over(failure).acall(state=state, questions=questions))

    def _converse(self, questions: Questions, state: DecisionState) -> Generator[Call, Reply, Answers]:
        messages = build_decision_prompt(state, questions)
        form = {"response_format": decision_schema(questions)} if self._structured else {}
        for _ in range(2):
            reply = yield Call(self.model, list(messages), {"temperature": 0.0, **form}, self.endpoint.api_base)
            try:
                return read_decisions(reply.text, questions)
            except UnreadableReply as error:
                why = str(error)
                messages.append({"role": "assistant", "content": reply.text[:MOST_REPEATED]})
                messages.append({"role": "user", "content": AGAIN.format(why=why)})
        current_spending().note(f"no readable decision from {self.model} ({why}): {DEFAULTED}")
        current_spending().stand_in(len(questions))
        return {name: safe_default(name, put) for name, put in questions.items()}

    def _hand_over(self, failure: CallFailed) -> Any:
        """Return the client that decides instead. Raises the failure where there is none."""
        if self.fallback is None:
            raise failure
        current_spending().hand_over(failure.what, self.model, self.fallback, "decided")
        current_spending().stand_in(1)
        return self.fallback


def safe_default(name: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the careful reading of a question that nothing decided.

    Every source is taken, the middle route, nothing upheld. What is not upheld is marked `undecided`: its 0 is no
    score.
    """
    if question["type"] == "noul":
        return {"noul": 1.0} if name.startswith("base_") else {"noul": 0.0, "undecided": True}
    labels = list(question["criteria"])
    chosen = "simple" if "simple" in labels else labels[0]
    return {"probabilities": {label: float(label == chosen) for label in labels}, "confidence": 0.0}
