"""A model that is always right about the example: it answers from the labels of the question that is being asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from optimize.labelled.dataset import LabelledQuestion
from optimize.labelled.facts import states
from program.models.language.fence import remove_invisible
from tests.support.replies import Wanted, wanted

_FORM = re.compile(r"Form: (\{.*\})")
_PASSAGE = re.compile(r"<passage n=\"(\d+)\"[^>]*>\n(.*?)\n</passage>", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Perfect:
    """The brain of a stand-in server. `asked` is the question under way; `texts` are the passages by id."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._ids = {remove_invisible(text).strip(): id_ for id_, text in texts.items()}
        self.asked: LabelledQuestion | None = None

    def __call__(self, body: Mapping[str, Any]) -> str:
        label = self.asked
        assert label is not None
        if values := wanted(body):
            return json.dumps({value.key: self._decided(value, label) for value in values})
        system, user = (str(body["messages"][n]["content"]) for n in (0, -1))
        if form := _FORM.search(system):
            fields = {"sub_queries": [*label.sub_queries] or [label.question]}
            return json.dumps({name: fields.get(name, [] if value == [] else "") for name, value in _form(form[1])})
        said = [
            f"{_telling(text, label)} [{n}]" for n, text in _PASSAGE.findall(user) if self._id(text) in label.evidence
        ]
        return " ".join(said) or "The passages do not say."

    def _decided(self, value: Wanted, label: LabelledQuestion) -> dict[str, Any] | str:
        if value.name in ("missing", "next_query"):
            return label.question if value.name == "next_query" else "the rest"
        if value.name == "route":
            chosen = label.route or "simple"
            shares = {route: float(route == chosen) for route in ("direct", "simple", "complex")}
            return {"reason": "labelled so", "choice": chosen, "probabilities": shares}
        shown, evidence = {self._id(text) for text in value.passages}, set(label.evidence)
        yes = {
            "vague": label.outcome == "clarify",
            "relevant": bool(shown & evidence),
            "sufficient": label.outcome == "answered" and evidence <= shown,
            "supported": True,  # both writers only quote
            "responsive": label.outcome == "answered"
            and (not label.facts or any(states(value.inputs.get("answer", ""), each) for each in label.alternatives)),
        }.get(value.name, value.name.removeprefix("base_") in label.sources)
        return {"reason": "labelled so", "verdict": "yes" if yes else "no", "probability": 0.99 if yes else 0.01}

    def _id(self, shown: str) -> str:
        return self._ids.get(shown.replace("&lt;", "<").strip(), "")


def _form(text: str) -> list[tuple[str, Any]]:
    """The fields that a reply is to have; a list of records may stay empty."""
    fields = json.loads(text).items()
    return [
        (name, [] if isinstance(value, list) and value and isinstance(value[0], dict) else value)
        for name, value in fields
    ]


def _telling(text: str, label: LabelledQuestion) -> str:
    """The first sentence that states a wanted fact, else the first."""
    sentences = [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]
    return next((s for s in sentences if any(states(s, each) for each in label.alternatives)), sentences[0])
