"""A DSPy decision client on a language model: it is asked for a reason, a verdict, then a probability."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

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
from program.models.together import Part, Reading, composed, read_parts

Answers = dict[str, dict[str, Any]]

SAID_CHARACTERS = 1200  # of an unreadable reply, shown when it is asked for again
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

    def __init__(self, lane: Endpoint, fallback: Any = None, structured: bool = False) -> None:
        self.endpoint = lane
        self.model = lane.model
        self.fallback = fallback
        self.callbacks: list[Any] = []
        self.cache = False
        self.kwargs: dict[str, Any] = {}
        self._structured = structured
        self._gateway = shared_gateway()

    def __deepcopy__(self, memo: dict[int, Any]) -> LanguageDecider:
        return self  # copies of a program share its limits

    def __call__(self, state: DecisionState, questions: Questions) -> Answers:
        """For each field `{"noul": p}`, or `{"probabilities": {option: p}, "confidence": the largest}`."""
        spent = current_spending()
        work = self._work(questions, state)
        try:
            call = next(work)
            while True:
                call = work.send(self._gateway.ask(self.endpoint, call, spent))
        except StopIteration as stop:
            answers: Answers = stop.value
            return answers
        except CallFailed as failure:
            found: Answers = self._instead(failure)(state=state, questions=questions)
            return found

    async def acall(self, state: DecisionState, questions: Questions) -> Answers:
        """The same, awaited."""
        spent = current_spending()
        work = self._work(questions, state)
        try:
            call = next(work)
            while True:
                call = work.send(await self._gateway.aask(self.endpoint, call, spent))
        except StopIteration as stop:
            answers: Answers = stop.value
            return answers
        except CallFailed as failure:
            found: Answers = await self._instead(failure).acall(state=state, questions=questions)
            return found

    def together(self, parts: Sequence[Part]) -> list[Reading | None]:
        """The answers to all parts from one call; None for one that is optional and was not answered.

        A part that cannot be told from the reply is asked for alone, once; when none can, all are once more. What is
        open then gets its safe defaults.
        """
        spent = current_spending()
        work = self._together(parts)
        calls = next(work)
        try:
            while True:
                calls = work.send([_attempt(self._gateway.ask, self.endpoint, call, spent) for call in calls])
        except StopIteration as stop:
            return _filled(stop.value, self._others(parts, stop.value))

    async def atogether(self, parts: Sequence[Part]) -> list[Reading | None]:
        """The same, awaited."""
        spent = current_spending()
        work = self._together(parts)
        calls = next(work)
        try:
            while True:
                asked = (_aattempt(self._gateway.aask, self.endpoint, call, spent) for call in calls)
                calls = work.send(await asyncio.gather(*asked))
        except StopIteration as stop:
            return _filled(stop.value, await self._aothers(parts, stop.value))

    def _together(
        self, parts: Sequence[Part]
    ) -> Generator[list[Call], list[Reply | CallFailed], list[Reading | CallFailed | None]]:
        """Yields calls to be made at once; a failed one stands for the parts that it would have answered."""
        messages, wanted = composed(parts)
        (reply,) = yield [self._call(messages, wanted)]
        if isinstance(reply, CallFailed):
            return [reply] * len(parts)
        found: list[Reading | CallFailed | None] = [*read_parts(reply.text, parts)]
        if not any(found):
            (reply,) = yield [self._call([*messages, *_again(reply, "no decision can be told")], wanted)]
            if isinstance(reply, CallFailed):
                return [reply] * len(parts)
            found = [*read_parts(reply.text, parts)]
            return [
                one or (None if p.optional else self._defaults(p.questions))
                for one, p in zip(found, parts, strict=True)
            ]
        open_ = [n for n, part in enumerate(parts) if found[n] is None and not part.optional]
        if open_:
            alone = [parts[n] for n in open_]
            replies = yield [
                self._call(build_decision_prompt(part.state, part.questions), part.questions) for part in alone
            ]
            for n, one in zip(open_, replies, strict=True):
                found[n] = one if isinstance(one, CallFailed) else self._read(one, parts[n].questions)
        return found

    def _work(self, questions: Questions, state: DecisionState) -> Generator[Call, Reply, Answers]:
        messages = build_decision_prompt(state, questions)
        reply = yield self._call(messages, questions)
        try:
            return read_decisions(reply.text, questions)
        except UnreadableReply as error:
            again = _again(reply, str(error))
        return self._read((yield self._call([*messages, *again], questions)), questions)

    def _call(self, messages: list[dict[str, str]], questions: Questions) -> Call:
        settings: dict[str, Any] = {"temperature": 0.0}
        if self._structured:
            settings["response_format"] = decision_schema(questions)
        return Call(self.model, messages, settings, self.endpoint.api_base)

    def _read(self, reply: Reply, questions: Questions) -> Answers:
        """What the last reply says, or the safe defaults."""
        try:
            return read_decisions(reply.text, questions)
        except UnreadableReply as error:
            return self._defaults(questions, str(error))

    def _defaults(self, questions: Questions, why: str = "nothing can be told") -> Answers:
        current_spending().note(f"no readable decision from {self.model} ({why}): {DEFAULTED}")
        current_spending().stand_in(len(questions))
        return {name: safe_default(name, put) for name, put in questions.items()}

    def _instead(self, failure: CallFailed, decisions: int = 1) -> Any:
        if self.fallback is None:
            raise failure
        current_spending().hand_over(failure.what, self.model, self.fallback, "decided")
        current_spending().stand_in(decisions)
        return self.fallback

    def _others(self, parts: Sequence[Part], found: Sequence[Reading | CallFailed | None]) -> list[Reading | None]:
        """What the fallback says of the parts whose request failed, in order: in one call where it takes several."""
        lost, failure = _lost(parts, found)
        if failure is None:
            return []
        fallback = self._instead(failure, len(lost))
        if hasattr(fallback, "together"):
            return list(fallback.together(lost))
        return [None if p.optional else fallback(state=p.state, questions=p.questions) for p in lost]

    async def _aothers(
        self, parts: Sequence[Part], found: Sequence[Reading | CallFailed | None]
    ) -> list[Reading | None]:
        """The same, awaited."""
        lost, failure = _lost(parts, found)
        if failure is None:
            return []
        fallback = self._instead(failure, len(lost))
        if hasattr(fallback, "together"):
            return list(await fallback.atogether(lost))
        return [None if p.optional else await fallback.acall(state=p.state, questions=p.questions) for p in lost]


def _lost(parts: Sequence[Part], found: Sequence[Reading | CallFailed | None]) -> tuple[list[Part], CallFailed | None]:
    """The parts whose request failed, and how the first of those that are needed did; None when none is."""
    failed = [(part, one) for part, one in zip(parts, found, strict=True) if isinstance(one, CallFailed)]
    return [part for part, _ in failed], next((one for part, one in failed if not part.optional), None)


def _filled(found: Sequence[Reading | CallFailed | None], others: Sequence[Reading | None]) -> list[Reading | None]:
    """What was found, with the others in the places of the failures, as far as they go."""
    rest = iter(others)
    return [next(rest, None) if isinstance(one, CallFailed) else one for one in found]


def safe_default(name: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """What to take when nothing was decided: look into every source, take the middle route, uphold nothing.

    What is not upheld is marked `undecided`: its 0 is no score.
    """
    if question["type"] == "noul":
        return {"noul": 1.0} if name.startswith("base_") else {"noul": 0.0, "undecided": True}
    labels = list(question["criteria"])
    chosen = "simple" if "simple" in labels else labels[0]
    return {"probabilities": {label: float(label == chosen) for label in labels}, "confidence": 0.0}


def _again(reply: Reply, why: str) -> list[dict[str, str]]:
    """The turns that ask for a reply in the right form."""
    return [
        {"role": "assistant", "content": reply.text[:SAID_CHARACTERS]},
        {"role": "user", "content": AGAIN.format(why=why)},
    ]


def _attempt(ask: Callable[..., Reply], *arguments: Any) -> Reply | CallFailed:
    try:
        return ask(*arguments)
    except CallFailed as failure:
        return failure


async def _aattempt(ask: Callable[..., Awaitable[Reply]], *arguments: Any) -> Reply | CallFailed:
    try:
        return await ask(*arguments)
    except CallFailed as failure:
        return failure
