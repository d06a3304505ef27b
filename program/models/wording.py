"""How decisions are put to a language model: a reason, a verdict, then a probability; the texts of one prompt."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from program.models.fence import DATA_RULE, shown

State = Mapping[str, Any]
Questions = Mapping[str, Mapping[str, Any]]
"""By output, what DSPy asks (`type`, `instructions`, `criteria`); of type `text` for an output that is no decision."""

TEXT = "text"
SHOWN = 8  # demonstrations in a prompt
SHOWN_CHARACTERS = 1200  # of each


def prompt(state: State, questions: Questions) -> list[dict[str, str]]:
    """The messages that put the questions: task, form and examples for the system, the inputs fenced as data."""
    parts = [task(state, questions), DATA_RULE, form(questions)]
    if found := examples(state.get("demos") or (), questions):
        parts.append("Examples that people labelled:\n" + "\n".join(found))
    inputs = "\n\n".join(shown(name, value) for name, value in state["inputs"].items())
    return [
        {"role": "system", "content": "\n\n".join(parts)},
        {"role": "user", "content": f"{inputs}\n\n{decide_now(questions)}"},
    ]


def decide_now(names: Iterable[str]) -> str:
    """The last line of a prompt."""
    return f"Decide now: {', '.join(names)}. Reply with the JSON object alone."


def schema(questions: Questions) -> dict[str, Any]:
    """The reply's JSON schema, in OpenAI's strict form."""
    properties = {name: _value(put) for name, put in questions.items()}
    return {"type": "json_schema", "json_schema": {"name": "decisions", "strict": True, "schema": _object(properties)}}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _value(put: Mapping[str, Any]) -> dict[str, Any]:
    text, number = {"type": "string"}, {"type": "number"}
    if put["type"] == TEXT:
        return text
    if put["type"] == "noul":
        return _object({"reason": text, "verdict": {"type": "string", "enum": ["yes", "no"]}, "probability": number})
    labels = list(put["criteria"])
    table = _object(dict.fromkeys(labels, number))
    return _object({"reason": text, "choice": {"type": "string", "enum": labels}, "probabilities": table})


def task(state: State, questions: Questions) -> str:
    """What is to be decided: the signature's instructions and each output with its criteria."""
    lines = [str(state.get("instructions", "")).strip(), "", "Decide:"]
    for name, put in questions.items():
        if put["type"] == TEXT:
            lines.append(f"- {name} (a text): {put['instructions']}")
        elif put["type"] == "noul":
            lines.append(f"- {name} (yes or no): {put['instructions']}")
        else:
            lines.append(f"- {name} (one of {', '.join(put['criteria'])}): {put['instructions']}")
            lines += [f"    {label}: {meaning}" for label, meaning in put["criteria"].items()]
    return "\n".join(lines)


def form(questions: Questions) -> str:
    """The form of the reply."""
    wanted: dict[str, Any] = {}
    for name, put in questions.items():
        if put["type"] == TEXT:
            wanted[name] = "a text"
        elif put["type"] == "noul":
            wanted[name] = {"reason": "at most 15 words", "verdict": "yes or no", "probability": 0.5}
        else:
            shares = dict.fromkeys(put["criteria"], 0.5)
            wanted[name] = {"reason": "at most 15 words", "choice": "one of them", "probabilities": shares}
    return (
        "Reply with one JSON object and nothing else: for each decision first a short reason, then the verdict, then "
        "how probable it is. `probability` is that of yes, from 0 to 1: near 1 when surely yes, near 0 when surely "
        "no, near 0.5 when it could be either; `probabilities` sum to 1.\n"
        f"Form: {json.dumps(wanted, ensure_ascii=False)}\n"
        'Bad: "Yes, it is." Bad: "80%". Bad: a verdict of no with a probability of 0.9.'
    )


def examples(demos: Sequence[Mapping[str, Any]], questions: Questions) -> list[str]:
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
