"""A DSPy decision client on a language model: it is asked for a reason, a verdict, then a probability."""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

from program.models.fence import DATA_RULE, shown
from program.models.gateway import Gateway, shared_gateway
from program.models.lane import Lane
from program.models.repair import Unreadable
from program.models.spending import current
from program.models.transport import Call, CallFailed, Reply
from program.models.typed import read_decisions

State = Mapping[str, Any]
Questions = Mapping[str, Mapping[str, Any]]
Answers = dict[str, dict[str, Any]]

SHOWN = 8  # demonstrations in a prompt
SHOWN_CHARACTERS = 1200  # of each
LONGEST = 700  # tokens of a reply, for each decision 60 more
AGAIN = "That could not be read: {why}. Reply once more with the JSON object alone, in exactly the form asked for."


class LanguageDecider:
    """Answers decision requests by asking a language model; give it to DSPy as a language model.

    A reply that cannot be mended is asked for once more; then each question gets its safe default (a source is
    looked into, everything else is denied) and the trace says so. When the model cannot be reached in time, the
    `fallback` client decides, if there is one. `structured` models are held to a JSON schema.
    """

    supports_decision_requests = True
    awaits = True

    def __init__(
        self, lane: Lane, fallback: Any = None, structured: bool = False, gateway: Gateway | None = None
    ) -> None:
        self.lane = lane
        self.model = lane.model
        self.fallback = fallback
        self.callbacks: list[Any] = []
        self.cache = False
        self.kwargs: dict[str, Any] = {}
        self._structured = structured
        self._gateway = gateway or shared_gateway()

    def __deepcopy__(self, memo: dict[int, Any]) -> LanguageDecider:
        return self  # copies of a program share its limits

    def __call__(self, state: State, questions: Questions) -> Answers:
        """For each field `{"noul": p}`, or `{"probabilities": {option: p}, "confidence": the largest}`."""
        spent = current()
        work = self._work(questions, state)
        try:
            call = next(work)
            while True:
                call = work.send(self._gateway.ask(self.lane, call, spent))
        except StopIteration as stop:
            answers: Answers = stop.value
            return answers
        except CallFailed as failure:
            fallback = self._instead(failure)
            found: Answers = fallback(state=state, questions=questions)
            return found

    async def acall(self, state: State, questions: Questions) -> Answers:
        """The same, awaited."""
        spent = current()
        work = self._work(questions, state)
        try:
            call = next(work)
            while True:
                call = work.send(await self._gateway.aask(self.lane, call, spent))
        except StopIteration as stop:
            answers: Answers = stop.value
            return answers
        except CallFailed as failure:
            found: Answers = await self._instead(failure).acall(state=state, questions=questions)
            return found

    def _work(self, questions: Questions, state: State) -> Generator[Call, Reply, Answers]:
        messages = prompt(state, questions)
        settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": LONGEST + 60 * len(questions)}
        if self._structured:
            settings["response_format"] = schema(questions)
        call = Call(self.model, messages, settings, self.lane.api_base)
        reply = yield call
        try:
            return read_decisions(reply.text, questions)
        except Unreadable as error:
            again = {"role": "user", "content": AGAIN.format(why=error)}
            said = {"role": "assistant", "content": reply.text[:SHOWN_CHARACTERS]}
        reply = yield Call(self.model, [*messages, said, again], settings, self.lane.api_base)
        try:
            return read_decisions(reply.text, questions)
        except Unreadable as error:
            current().note(f"no readable decision from {self.model} ({error}): took the safe default")
            return {name: safe_default(name, put) for name, put in questions.items()}

    def _instead(self, failure: CallFailed) -> Any:
        if self.fallback is None:
            raise failure
        current().note(f"{failure.what}: {self.fallback.model} decided")
        return self.fallback


def safe_default(name: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """What to take when nothing was decided: look into every source, take the middle route, uphold nothing."""
    if question["type"] == "noul":
        return {"noul": 1.0 if name.startswith("base_") else 0.0}
    labels = list(question["criteria"])
    chosen = "simple" if "simple" in labels else labels[0]
    return {"probabilities": {label: float(label == chosen) for label in labels}, "confidence": 0.0}


def prompt(state: State, questions: Questions) -> list[dict[str, str]]:
    """The messages that put the questions: task, form and examples for the system, the inputs fenced as data."""
    parts = [str(state.get("instructions", "")).strip(), _asked(questions), DATA_RULE, _form(questions)]
    if examples := _examples(state.get("demos") or (), questions):
        parts.append("Examples that people labelled:\n" + "\n".join(examples))
    inputs = "\n\n".join(shown(name, value) for name, value in state["inputs"].items())
    wanted = ", ".join(questions)
    return [
        {"role": "system", "content": "\n\n".join(parts)},
        {"role": "user", "content": f"{inputs}\n\nDecide now: {wanted}. Reply with the JSON object alone."},
    ]


def schema(questions: Questions) -> dict[str, Any]:
    """The reply's JSON schema, in OpenAI's strict form."""
    properties = {name: _object(_fields(put)) for name, put in questions.items()}
    return {"type": "json_schema", "json_schema": {"name": "decisions", "strict": True, "schema": _object(properties)}}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _fields(put: Mapping[str, Any]) -> dict[str, Any]:
    text, number = {"type": "string"}, {"type": "number"}
    if put["type"] == "noul":
        return {"reason": text, "verdict": {"type": "string", "enum": ["yes", "no"]}, "probability": number}
    labels = list(put["criteria"])
    table = _object(dict.fromkeys(labels, number))
    return {"reason": text, "choice": {"type": "string", "enum": labels}, "probabilities": table}


def _asked(questions: Questions) -> str:
    lines = ["Decide:"]
    for name, put in questions.items():
        if put["type"] == "noul":
            lines.append(f"- {name} (yes or no): {put['instructions']}")
        else:
            lines.append(f"- {name} (one of {', '.join(put['criteria'])}): {put['instructions']}")
            lines += [f"    {label}: {meaning}" for label, meaning in put["criteria"].items()]
    return "\n".join(lines)


def _form(questions: Questions) -> str:
    form: dict[str, Any] = {}
    for name, put in questions.items():
        if put["type"] == "noul":
            form[name] = {"reason": "at most 15 words", "verdict": "yes or no", "probability": 0.5}
        else:
            shares = dict.fromkeys(put["criteria"], 0.5)
            form[name] = {"reason": "at most 15 words", "choice": "one of them", "probabilities": shares}
    return (
        "Reply with one JSON object and nothing else: for each decision first a short reason, then the verdict, then "
        "how probable it is. `probability` is that of yes, from 0 to 1: near 1 when surely yes, near 0 when surely "
        "no, near 0.5 when it could be either; `probabilities` sum to 1.\n"
        f"Form: {json.dumps(form, ensure_ascii=False)}\n"
        'Bad: "Yes, it is." Bad: "80%". Bad: a verdict of no with a probability of 0.9.'
    )


def _examples(demos: Sequence[Mapping[str, Any]], questions: Questions) -> list[str]:
    """A few demonstrations, as different in their labels as they come."""
    groups: dict[str, list[str]] = {}
    for demo in demos:
        labels = {name: _label(demo[name]) for name in questions if demo.get(name) is not None}
        if not labels:
            continue
        told = json.dumps(labels, ensure_ascii=False)
        if sum(map(len, groups.values())) >= 4 * SHOWN and told in groups:
            continue
        if (inputs := example(demo, questions)) is not None:
            groups.setdefault(told, []).append(f"{inputs}\n-> {told}")
    rounds = max((len(group) for group in groups.values()), default=0)
    turns = [group[n] for n in range(rounds) for group in groups.values() if n < len(group)]
    return turns[:SHOWN]


def example(demo: Mapping[str, Any], outputs: Collection[str]) -> str | None:
    """The inputs of a demonstration as a prompt shows them; None when they are too long for one."""
    inputs = " ".join(shown(name, value) for name, value in demo.items() if name not in outputs)
    return inputs if len(inputs) <= SHOWN_CHARACTERS else None


def _label(value: Any) -> Any:
    value = value.get("value") if isinstance(value, Mapping) else getattr(value, "value", value)
    return {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
