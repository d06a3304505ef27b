"""Language models of one habit for programs of one's own: they write fields as text, as JSON, or as they are asked."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Mapping
from enum import Enum
from typing import Any

import dspy
from dspy.lm15 import Request, Response, TextPart
from pydantic import BaseModel

from tests.support.prompts import reply_with

HABITS = ("text", "json", "either")


class HabitualEngine:
    """An engine that gives the same values to every prompt, in the form of its habit, and keeps what it was sent."""

    def __init__(self, habit: str, values: Mapping[str, Any]) -> None:
        self.habit, self.values = habit, dict(values)
        self.prompts: list[str] = []

    def __deepcopy__(self, memo: Any) -> HabitualEngine:
        return self

    def complete(self, request: Request) -> Response:
        prompt = read_request(request)
        self.prompts.append(prompt)
        return reply_with(request, self.write(prompt))

    def write(self, prompt: str) -> str:
        """Return the reply to a prompt."""
        values = {name: to_plain(value) for name, value in self.values.items()}
        if self.habit == "json" or (self.habit == "either" and "JSON object" in prompt):
            return json.dumps(values)
        shown = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
        return "\n\n".join([f"[[ ## {name} ## ]]\n{text}" for name, text in shown.items()] + ["[[ ## completed ## ]]"])


def habitual_lm(habit: str, values: Mapping[str, Any]) -> tuple[dspy.LM, HabitualEngine]:
    """Return a language model of a habit, and its engine."""
    engine = HabitualEngine(habit, values)
    return dspy.LM(f"scripted/{habit}", engine=engine, cache=False), engine


def read_request(request: Request) -> str:
    """Return all that a request says, its parts and their roles in order."""
    texts = [
        f"{message.role}: {part.text}"
        for message in request.messages
        for part in message.parts
        if isinstance(part, TextPart)
    ]
    return "\n\n".join([str(request.system), *texts])


def to_plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list):
        return [to_plain(one) for one in value]
    return value.value if isinstance(value, Enum) else value


def answer_in_child(ask, seconds):
    """What asking comes to in a forked child that has so long, None where it hangs."""
    replies = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=lambda: replies.put(ask()))
    child.start()
    child.join(seconds)
    child.kill()
    return None if replies.empty() else replies.get()
