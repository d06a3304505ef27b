"""A model that answers ragc's prompts at once and always alike, and a shelf of passages, for side-by-side runs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from program.passage import NO_FILTERS, Filters, Passage, SourceCard
from tests.support.replies import obliging

_OUTPUTS = re.compile(r"Your output fields are:\n(.*?)All interactions will be structured", re.DOTALL)
_FIELD = re.compile(r"^\d+\. `(\w+)` \((\w+)", re.MULTILINE)
_LABEL = re.compile(r'^    "(\w+)": "', re.MULTILINE)
TEXTS: Mapping[str, Any] = {
    "sub_queries": ["How much does the first hold?", "How much does the second hold?"],
    "details": [],
    "answer": "The first holds 2 litres. [1] The second holds 3 litres. [2]",
    "query": "the first",
    "missing": "",
    "next_query": "",
    "clarifying_question": "Which one?",
}
YES = 0.9
NO = 0.05
DENIED = frozenset({"vague", "contradict"})


def reply_to(system: str, route: str = "complex") -> str:
    """The reply to a prompt of DSPy's ChatAdapter, from its system message alone."""
    found = _OUTPUTS.search(system)
    listed = found[1] if found else ""
    fields = list(_FIELD.finditer(listed))
    parts = []
    for at, field in enumerate(fields):
        end = fields[at + 1].start() if at + 1 < len(fields) else len(listed)
        value = _value(field[1], field[2], listed[field.end() : end], route)
        parts.append(f"[[ ## {field[1]} ## ]]\n{value if isinstance(value, str) else json.dumps(value)}")
    return "\n\n".join([*parts, "[[ ## completed ## ]]"])


def elaborate(body: Mapping[str, Any]) -> str:
    """What a willing model replies to ragc's own prompts about a complex question of two parts."""
    reply = obliging(body)
    if not reply.startswith("{"):
        return str(TEXTS["answer"])
    found = json.loads(reply)
    for name in found.keys() & TEXTS.keys():
        found[name] = TEXTS[name]
    for name in found.keys() & DENIED:
        found[name] = {"reason": "it does not", "verdict": "no", "probability": NO}
    if "route" in found:
        shares = {label: YES if label == "complex" else NO for label in found["route"]["probabilities"]}
        found["route"] = {"reason": "two parts", "choice": "complex", "probabilities": shares}
    return json.dumps(found)


def _value(name: str, kind: str, described: str, route: str) -> Any:
    if kind == "NoulEvidence":
        return {"noul": NO if name in DENIED else YES}
    if kind == "ChoiceEvidence":
        labels = _LABEL.findall(described)
        shares = {label: YES if label == route else (1 - YES) / (len(labels) - 1) for label in labels}
        return {"probabilities": shares, "confidence": YES}
    return TEXTS[name]


class Shelf:
    """A source that holds the same passages for every query, and takes `seconds` to find them."""

    name = "shelf"

    def __init__(self, passages: int = 5, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.pool = [
            Passage(f"shelf/a.md#{n}", "shelf", f"Jar {n}", f"Jar {n} holds {n + 2} litres.", scores=_scores(n))
            for n in range(passages)
        ]

    def describe(self) -> SourceCard:
        return SourceCard("shelf", "documents", "jars and what they hold")

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        if self.seconds:
            time.sleep(self.seconds)
        return self.pool[:depth]

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return self.candidates(query, k, filters)

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return self.candidates(query, k, filters)


def _scores(n: int) -> dict[str, float]:
    return {"dense": 0.9 - n / 10, "keyword": 3.0 - n / 2}
