"""Decisions in words: how they are put to a language model, and read out of what it wrote.

A decision is asked for as a reason, a verdict, then a probability. A probability is a number in [0, 1], a percentage
or a fraction; a bare verdict counts as `SURE`. A reply that contradicts itself, or whose number fits no scale, is an
`UnreadableReply`: a parse failure is never a score.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from program.models.language.fence import DATA_RULE, fence_input
from program.models.language.parsing import VERDICT_KEYS, UnreadableReply, get_value, normalise_name, read_objects

DecisionState = Mapping[str, Any]  # what DSPy sends beside the questions: `instructions`, `inputs`, `demos`
Questions = Mapping[str, Mapping[str, Any]]  # by output, what DSPy asks (`type`, `instructions`, `criteria`)

EXAMPLES_SHOWN = 8  # demonstrations in a prompt
EXAMPLE_CHARACTERS = 1200  # of each
SURE = 0.9
LONGEST_PHRASE = 200  # characters of a plain verdict or label
PROBABILITY_KEYS = ("probability", "noul", "p", "prob", "score")
_NUMBER = re.compile(
    r"(?:p(?:robability)?\s*[=:]\s*|~|≈|about\s+|around\s+|approx(?:imately|\.)?\s+)?"
    r"(?P<number>\d+(?:[.,]\d+)?|[.,]\d+)\s*"
    r"(?:(?P<percent>%|percent|per cent)|(?:/|out of)\s*(?P<of>10|100|5|1)(?!\d))?"
    r"\s*(?:\([^)]*\)|,\s*[a-z ]+)?\s*[.!]?",
    re.IGNORECASE,
)
_QUOTES = re.compile(r"[*_`\"“”‘]+")
_IT = r"(?:it|this|that|the \w+)"
_YES = re.compile(rf"(?:yes|y|true)(?:[,;:]? {_IT} (?:is|does))?")
_NO = re.compile(rf"(?:no|n|false)(?:[,;:]? {_IT} (?:is|does)(?: not|n't))?")
_LABELLED = re.compile(
    r"(?:(?:it|this|that|(?:the|my)(?: \w+){1,2}|i(?: would)?) (?:is|are|choose|pick|seems)(?: the)? )?(.+)"
)
_UNSURE = {"unsure", "unclear", "unknown", "undecided"}


def build_decision_prompt(state: DecisionState, questions: Questions) -> list[dict[str, str]]:
    """Return the messages: task, form and examples, then the inputs as data."""
    parts = [_describe_task(state, questions), DATA_RULE, _describe_form(questions)]
    if found := _choose_examples(state.get("demos") or (), questions):
        parts.append("Examples that people labelled:\n" + "\n".join(found))
    inputs = "\n\n".join(fence_input(name, value) for name, value in state["inputs"].items())
    asked = f"{inputs}\n\nDecide now: {', '.join(questions)}. Reply with the JSON object alone."
    return [{"role": "system", "content": "\n\n".join(parts)}, {"role": "user", "content": asked}]


def decision_schema(questions: Questions) -> dict[str, Any]:
    """Return the reply's JSON schema in OpenAI's strict form."""
    schema = strict_object({name: _value_schema(put) for name, put in questions.items()})
    return {"type": "json_schema", "json_schema": {"name": "decisions", "strict": True, "schema": schema}}


def strict_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's schema in OpenAI's strict form: all required, no other."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _value_schema(put: Mapping[str, Any]) -> dict[str, Any]:
    text, number = {"type": "string"}, {"type": "number"}
    if put["type"] == "noul":
        verdict = {"type": "string", "enum": ["yes", "no"]}
        return strict_object({"reason": text, "verdict": verdict, "probability": number})
    labels = list(put["criteria"])
    table = strict_object(dict.fromkeys(labels, number))
    return strict_object({"reason": text, "choice": {"type": "string", "enum": labels}, "probabilities": table})


def _describe_task(state: DecisionState, questions: Questions) -> str:
    lines = [str(state.get("instructions", "")).strip(), "", "Decide:"]
    for name, put in questions.items():
        options = "yes or no" if put["type"] == "noul" else f"one of {', '.join(put['criteria'])}"
        lines.append(f"- {name} ({options}): {put['instructions']}")
        if put["type"] != "noul":
            lines += [f"    {label}: {meaning}" for label, meaning in put["criteria"].items()]
    return "\n".join(lines)


def _describe_form(questions: Questions) -> str:
    wanted: dict[str, Any] = {name: {"reason": "at most 15 words"} for name in questions}
    for name, put in questions.items():
        if put["type"] == "noul":
            wanted[name] |= {"verdict": "yes or no", "probability": 0.5}
        else:
            wanted[name] |= {"choice": "one of them", "probabilities": dict.fromkeys(put["criteria"], 0.5)}
    return (
        "Reply with one JSON object and nothing else: for each decision first a short reason, then the verdict, then "
        "how probable it is. `probability` is that of yes, from 0 to 1: near 1 when surely yes, near 0 when surely "
        "no, near 0.5 when it could be either; `probabilities` sum to 1.\n"
        f"Form: {json.dumps(wanted, ensure_ascii=False)}\n"
        'Bad: "Yes, it is." Bad: "80%". Bad: a verdict of no with a probability of 0.9.'
    )


def _choose_examples(demos: Sequence[Mapping[str, Any]], questions: Questions) -> list[str]:
    """Return a few demonstrations as text, as different in their labels as they come."""
    groups: dict[str, list[str]] = {}
    for demo in demos:
        labels = {name: _label_word(demo[name]) for name in questions if demo.get(name) is not None}
        told = json.dumps(labels, ensure_ascii=False)
        enough = sum(map(len, groups.values())) >= 4 * EXAMPLES_SHOWN and told in groups
        if labels and not enough and (inputs := format_example(demo, questions)) is not None:
            groups.setdefault(told, []).append(f"{inputs}\n-> {told}")
    turns = [text for turn in zip_longest(*groups.values()) for text in turn if text is not None]
    return turns[:EXAMPLES_SHOWN]


def format_example(demo: Mapping[str, Any], outputs: Collection[str]) -> str | None:
    """Return a demonstration's inputs as a prompt shows them; None when too long."""
    inputs = " ".join(fence_input(name, value) for name, value in demo.items() if name not in outputs)
    return inputs if len(inputs) <= EXAMPLE_CHARACTERS else None


def _label_word(value: Any) -> Any:
    value = value.get("value") if isinstance(value, Mapping) else getattr(value, "value", value)
    return {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value


def read_decisions(text: str, questions: Questions) -> dict[str, dict[str, Any]]:
    """Return what a reply decides for each question.

    It is `{"noul": p}` or `{"probabilities": {label: p}, "confidence": p}`. Questions are in DSPy's form (`type`,
    `criteria`). Raises `UnreadableReply`.
    """
    readings = []
    failure = UnreadableReply("there is no decision in it")
    for found in read_objects(text, tuple(questions)):
        try:
            readings.append({name: _decision_in(found, name, questions) for name in questions})
        except UnreadableReply as error:
            failure = error
    if not readings:
        raise failure
    if len({_verdicts_of(reading) for reading in readings}) > 1:
        raise UnreadableReply("it holds two different decisions")
    return readings[-1]


def _decision_in(found: Mapping[str, Any], name: str, questions: Questions) -> dict[str, Any]:
    """Return what an object says of a question: under its name, or by itself when nothing else is asked."""
    value = get_value(found, name)
    keys = {normalise_name(str(key)) for key in found}
    further = not isinstance(value, Mapping) and keys & {*VERDICT_KEYS, *PROBABILITY_KEYS}
    alone = len(questions) == 1 and (value is None or further)
    value = dict(found) if alone else value[0] if isinstance(value, list) and len(value) == 1 else value
    if value is None:
        raise UnreadableReply(f"{name} is missing")
    if questions[name]["type"] == "noul":
        return {"noul": _read_noul(name, value)}
    return _read_choice(name, value, list(questions[name]["criteria"]))


def _read_noul(name: str, value: Any) -> float:
    own = normalise_name(name)
    pairs = value.items() if isinstance(value, Mapping) else ((own, value),)
    keys = {normalise_name(str(key)): item for key, item in pairs if item is not None}
    said: list[float] = []  # verdicts, then probabilities
    failure = UnreadableReply(f"{name} has neither a verdict nor a probability")
    for key in (key for key in (*VERDICT_KEYS, own, *PROBABILITY_KEYS) if key in keys):
        verdict = None if key in PROBABILITY_KEYS else _verdict_probability(name, keys[key])
        try:
            if verdict is not None or key not in VERDICT_KEYS:
                said.append(_read_probability(name, keys[key]) if verdict is None else verdict)
        except UnreadableReply as error:
            failure = error
    if not said:
        raise failure
    if min(said) < 0.5 < max(said):
        raise UnreadableReply(f"the verdict and the probability of {name} contradict each other")
    return said[-1]


def _verdict_probability(name: str, value: Any) -> float | None:
    """Return the probability that a verdict stands for, or None when the value states none plainly."""
    said = {True: "yes", False: "no"}[value] if isinstance(value, bool) else _find_verdict(name, value)
    return None if said is None else {"yes": SURE, "no": round(1 - SURE, 6)}.get(said, 0.5)


def _read_probability(name: str, value: Any) -> float:
    if isinstance(value, bool):
        raise UnreadableReply(f"{name} has no probability")
    if isinstance(value, int | float):
        number = float(value)
    else:
        match = _NUMBER.fullmatch(re.sub(r"[*_`\"']+", "", str(value)).strip())
        if match is None:
            raise UnreadableReply(f"{name} is {str(value)[:60]!r}, not a probability")
        number = float(match["number"].replace(",", "."))
        number /= 100 if match["percent"] else float(match["of"] or 1)
    if not math.isfinite(number) or not 0.0 <= number <= 1.0:
        raise UnreadableReply(f"{name} is {str(value)[:60]}, which is not within 0 and 1")
    return number


def _read_choice(name: str, value: Any, labels: list[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return _sure_of(_read_label(name, value, labels), labels)
    keys = {normalise_name(str(key)): item for key, item in value.items() if item is not None}
    stated = next((keys[key] for key in (*VERDICT_KEYS, normalise_name(name)) if key in keys), None)
    chosen = None if stated is None else _read_label(name, stated, labels)
    table = keys.get("probabilities")
    if table is None and any(get_value(value, each) is not None for each in labels):
        table = value
    shares = _read_shares(table, labels) if isinstance(table, Mapping) else None
    if shares is None:
        if chosen is None:
            raise UnreadableReply(f"{name} names none of {', '.join(labels)}")
        for key in (*PROBABILITY_KEYS, "confidence"):
            if key in keys and _read_probability(name, keys[key]) < 1 / len(labels):
                raise UnreadableReply(f"the choice and the probability of {name} contradict each other")
        return _sure_of(chosen, labels)
    best = max(shares.values())
    winners = [each for each in labels if shares[each] == best]
    if (chosen is None and len(winners) > 1) or (chosen is not None and chosen not in winners):
        raise UnreadableReply(f"the choice and the probabilities of {name} contradict each other")
    return {"probabilities": shares, "confidence": best}


def _read_label(name: str, value: Any, labels: Sequence[str]) -> str:
    """Return the label that the words are, or plainly give (`The route is simple.`)."""
    text = _plain_phrase(str(value))
    given = _LABELLED.fullmatch(text) if text else None
    found = [each for each in labels if given and each.casefold().replace("_", " ") in (text, given[1])]
    if len(found) != 1:
        raise UnreadableReply(f"{name} is {str(value)[:60]!r}, none of {', '.join(labels)}")
    return found[0]


def _sure_of(chosen: str, labels: Sequence[str]) -> dict[str, Any]:
    """Return `SURE` for the label, the rest shared among the others."""
    sure, rest = (SURE, round((1 - SURE) / (len(labels) - 1), 6)) if len(labels) > 1 else (1.0, 0.0)
    return {"probabilities": {each: sure if each == chosen else rest for each in labels}, "confidence": sure}


def _read_shares(table: Mapping[str, Any], labels: Sequence[str]) -> dict[str, float] | None:
    """Return a distribution over the labels that sums to one, or None when the table is none."""
    shares: dict[str, float] = {}
    for each in labels:
        value = get_value(table, each)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 1:
            value = value / 100
        try:
            shares[each] = 0.0 if value is None else _read_probability(each, value)
        except UnreadableReply:
            return None
    total = sum(shares.values())
    return {each: share / total for each, share in shares.items()} if 0.9 <= total <= 1.1 else None


def _verdicts_of(reading: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    return tuple(
        answer["noul"] >= 0.5 if "noul" in answer else max(answer["probabilities"], key=answer["probabilities"].get)
        for answer in reading.values()
    )


def _find_verdict(name: str, said: Any) -> str | None:
    """Return `yes`, `no` or `unsure`; None for words that say none of them plainly."""
    text = _plain_phrase(said) if isinstance(said, str) else None
    if text is None or text in _UNSURE:
        return text and "unsure"
    wanted = re.escape(name.replace("_", " ").casefold())
    subject = rf"(?:{_IT} )?"
    being = r"(?:(?:is|are|was|were|seems) )?"
    if _YES.fullmatch(text) or re.fullmatch(rf"{subject}{being}(?:fully |clearly )*{wanted}", text):
        return "yes"
    denied = rf"{subject}(?:{being}(?:clearly )?(?:not |un|in|ir|non[ -]?)|(?:isn't|aren't|wasn't) ){wanted}"
    return "no" if _NO.fullmatch(text) or re.fullmatch(denied, text) else None


def _plain_phrase(said: str) -> str | None:
    """Return the words in lower case without marks around them; None when they are too many, or none."""
    if len(said) > LONGEST_PHRASE:
        return None
    text = _QUOTES.sub(" ", said.replace("’", "'")).strip().strip("'").strip("-•> ").rstrip(".! ,;:")
    return " ".join(text.split()).casefold() or None
