"""What a stand-in provider replies to ragc's prompts, and what those want to be told."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DECIDE = re.compile(r"Decide now: ([\w, ]+)\. Reply with the JSON object alone\.")
_NUMBER = re.compile(r"_\d+$")  # of one part among several
_FORM = re.compile(r"Form: (\{.*\})")
_QUESTION = re.compile(r"<question>\n(.*?)\n</question>", re.DOTALL)
_ABOUT = re.compile(r"^- [\w, ]+_\d+: task \d+, (.*)$", re.MULTILINE)
_NUMBERS = re.compile(r"\bpassages? (\d+(?:, \d+)*)")
_INPUT = re.compile(r"<(\w+)(?: n=\"(\d+)\")?>\n(.*?)\n</\1>", re.DOTALL)
_PASSAGE = re.compile(r"<passage n=\"(\d+)\"[^>]*>\n(.*?)\n</passage>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One value that a prompt of ragc's wants decided: `key` in the reply, the output's `name`, and what it is about.

    `inputs` are the texts by name (question, claim, answer), `passages` those shown with them.
    """

    key: str
    name: str
    inputs: Mapping[str, str]
    passages: tuple[str, ...]


def wanted(body: Mapping[str, Any]) -> list[Wanted]:
    """Every value that a request wants decided, be it one decision or several together; none of another request."""
    user = str(body["messages"][1]["content"])
    keys = _DECIDE.search(user)
    if keys is None:
        return []
    passages = dict(_PASSAGE.findall(user))
    inputs = {(name, n): text for name, n, text in _INPUT.findall(user) if name != "passage"}
    about = {key: line[1] for line in _ABOUT.finditer(user) for key in line[0].partition(":")[0][2:].split(", ")}
    if not about:
        given = {name: text for (name, _), text in inputs.items()}
        return [Wanted(key, key, given, tuple(passages.values())) for key in keys[1].split(", ")]
    return [
        Wanted(
            key,
            _NUMBER.sub("", key),
            {name: text for (name, n), text in inputs.items() if re.search(rf"\b{name} {n}(?!\d)", about[key])},
            tuple(passages[n] for list_ in _NUMBERS.findall(about[key]) for n in list_.split(", ")),
        )
        for key in keys[1].split(", ")
    ]


def obliging(body: Mapping[str, Any]) -> str:
    """What a willing model replies to ragc's prompts: everything is relevant, and the first passage is quoted."""
    system = str(body["messages"][0]["content"])
    user = "\n".join(str(message["content"]) for message in body["messages"][1:])
    if wanted := _DECIDE.search(user):
        return json.dumps({name: _decided(_NUMBER.sub("", name), system) for name in wanted[1].split(", ")})
    if form := _FORM.search(system):
        asked = _QUESTION.search(user)
        texts = [asked[1] if asked else ""]
        fields = json.loads(form[1])
        return json.dumps({name: _filled(value, texts) for name, value in fields.items()})
    if passage := _PASSAGE.search(user):
        return f"{passage[2].split('. ')[0].strip().rstrip('.')} [{passage[1]}]."
    return "I do not know."


def _filled(form: Any, texts: list[str]) -> Any:
    """Nothing for a text or a list of records, the texts for a list of texts."""
    return "" if not isinstance(form, list) else texts if isinstance(form[0], str) else []


def _decided(name: str, system: str) -> dict[str, Any] | str:
    if f"\n- {name} (a text)" in system:
        return ""
    options = re.search(rf"^- {name} \(one of ([^)]+)\)", system, re.MULTILINE)
    if options is None:
        no = name == "vague"
        return {"reason": "it seems so", "verdict": "no" if no else "yes", "probability": 0.1 if no else 0.9}
    labels = options[1].split(", ")
    chosen = "simple" if "simple" in labels else labels[0]
    rest = 0.2 / max(1, len(labels) - 1)
    return {
        "reason": "it seems so",
        "choice": chosen,
        "probabilities": {n: 0.8 if n == chosen else rest for n in labels},
    }
