"""Decisions and texts out of what a language model wrote, however it wrote them; what is doubtful is refused.

A probability is a number in [0, 1], a percentage or a fraction; a bare verdict counts as `SURE`. A reply that
contradicts itself, or whose number fits no scale, is `Unreadable`: a parse failure is never a score.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from program.models.repair import (
    VERDICT_KEYS,
    Unreadable,
    body_of,
    has,
    listed,
    objects,
    of,
    one_text,
    plain,
    same,
    sections,
    texts,
)

Record = TypeVar("Record", bound=BaseModel)
SURE = 0.9
_NUMBER = re.compile(
    r"(?:p(?:robability)?\s*[=:]\s*|~|≈|about\s+|around\s+|approx(?:imately|\.)?\s+)?"
    r"(?P<number>\d+(?:[.,]\d+)?|[.,]\d+)\s*"
    r"(?:(?P<percent>%|percent|per cent)|(?:/|out of)\s*(?P<of>10|100|5|1)(?!\d))?"
    r"\s*(?:\([^)]*\)|,\s*[a-z ]+)?\s*[.!]?",
    re.IGNORECASE,
)
_YES, _NO = {"yes", "y", "true"}, {"no", "n", "false"}
_UNSURE = {"unsure", "unclear", "unknown", "undecided"}
_PROBABILITY_KEYS = ("probability", "noul", "p", "prob", "score")
_BUT = re.compile(r"\b(?:no|not|but|however|unless|partly|partially|except)\b|n't\b")
_YET = re.compile(r"\b(?:yes|but|however|although|unless|except)\b")


def read_decisions(text: str, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each question `{"noul": p}` or `{"probabilities": {label: p}, "confidence": p}`.

    Questions are in DSPy's form (`type`, `criteria`). Raises `Unreadable`.
    """
    readings = []
    failure = Unreadable("there is no decision in it")
    for found in objects(text, tuple(questions)):
        try:
            readings.append({name: _decision(name, found, put, len(questions) == 1) for name, put in questions.items()})
        except Unreadable as error:
            failure = error
    if not readings or (len(readings) > 1 and len({_verdicts(reading) for reading in readings}) > 1):
        raise failure if not readings else Unreadable("it holds two different decisions")
    return readings[-1]


def read_texts(text: str, outputs: Mapping[str, bool]) -> dict[str, str | list[str]]:
    """For each output its text, or a list of texts where the mapping says so. Raises `Unreadable`."""
    names = tuple(outputs)
    if len(names) == 1 and not outputs[names[0]]:
        return {names[0]: plain(text, names[0])}
    body = body_of(text)
    if len(names) == 1 and "{" not in body:
        if items := listed(sections(body, names).get(names[0], body)):
            return {names[0]: items}
        raise Unreadable("it holds no list")
    for found in objects(text, names):
        if len(names) == len(found) == 1:  # under whatever name
            return {names[0]: texts(next(iter(found.values())))}
        if all(has(found, name) for name in names):
            values = {name: of(found, name) for name in names}
            return {name: texts(v) if outputs[name] else one_text(v) for name, v in values.items()}
    raise Unreadable("the fields are not all there")


def read_records(text: str, name: str, record: type[Record]) -> list[Record]:
    """The records under a name; one that is not in its form counts as not given, and so does a reply without any."""
    values = next((v for found in objects(text, (name,)) if isinstance(v := of(found, name), list)), [])
    read = []
    for value in values:
        with suppress(ValidationError):
            read.append(record.model_validate(value))
    return read


def _decision(name: str, found: Mapping[str, Any], put: Mapping[str, Any], alone: bool) -> dict[str, Any]:
    value = of(found, name)
    return read_decision(name, dict(found) if value is None and alone else value, put)


def read_decision(name: str, value: Any, put: Mapping[str, Any]) -> dict[str, Any]:
    """The decision that a value of a reply states; `name` is the output's. Raises `Unreadable`."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        raise Unreadable(f"{name} is missing")
    if put["type"] == "noul":
        return {"noul": _noul(name, value)}
    return _choice(name, value, list(put["criteria"]))


def _noul(name: str, value: Any) -> float:
    if not isinstance(value, Mapping):
        stated = _verdict(name, value)
        if stated is not None:
            return 0.5 if stated == "unsure" else SURE if stated == "yes" else round(1 - SURE, 6)
        return _probability(name, value)
    keys = {same(str(key)): item for key, item in value.items()}
    stated = next((_verdict(name, keys[key]) for key in (*VERDICT_KEYS, same(name)) if key in keys), None)
    number = next((keys[key] for key in _PROBABILITY_KEYS if keys.get(key) is not None), None)
    try:
        p = None if number is None else _probability(name, number)
    except Unreadable:
        if stated is None:
            raise
        p = None
    if p is None and stated is None:
        raise Unreadable(f"{name} has neither a verdict nor a probability")
    if p is None:
        return _noul(name, {"yes": True, "no": False}.get(str(stated), "unsure"))
    if (stated == "yes" and p < 0.5) or (stated == "no" and p > 0.5):
        raise Unreadable(f"the verdict and the probability of {name} contradict each other")
    return p


def _verdict(name: str, value: Any) -> str | None:
    """`yes`, `no`, `unsure`, or None when the value states none of them clearly."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, str):
        return None
    text = re.sub(r"[*_`\"'“”‘’]+", " ", value.replace("n't", "n’t")).strip().casefold()
    words = re.findall(r"[\w’]+", text.replace("n t ", "n’t "))
    if not words:
        return None
    plain = " ".join(words)
    first, rest = words[0], plain[len(words[0]) :]
    if plain in _UNSURE:
        return "unsure"
    if first in _YES | _NO:
        says = "yes" if first in _YES else "no"
        doubtful = (_BUT if says == "yes" else _YET).search(rest)
        return None if doubtful or re.match(r"\s*(?:and|or)\b", rest) else says
    wanted = name.replace("_", " ").casefold()
    denied = rf"\b(?:not|un|in|ir|non)[ -]?{re.escape(wanted)}\b|\bnot\b.*\b{re.escape(wanted)}\b"
    if len(words) > 8 or _YET.search(plain):
        return None
    if re.search(denied, plain):
        return "no"
    positive = re.fullmatch(rf"(?:it is |this is |the \w+ (?:is|are) |fully |clearly )*{re.escape(wanted)}", plain)
    return "yes" if positive else None


def _probability(name: str, value: Any) -> float:
    number: float
    if isinstance(value, bool) or value is None:
        raise Unreadable(f"{name} has no probability")
    if isinstance(value, int | float):
        number = float(value)
    else:
        match = _NUMBER.fullmatch(re.sub(r"[*_`\"']+", "", str(value)).strip())
        if match is None:
            raise Unreadable(f"{name} is {str(value)[:60]!r}, not a probability")
        number = float(match["number"].replace(",", "."))
        number /= 100 if match["percent"] else float(match["of"] or 1)
    if not math.isfinite(number) or not 0.0 <= number <= 1.0:
        raise Unreadable(f"{name} is {str(value)[:60]}, which is not within 0 and 1")
    return number


def _choice(name: str, value: Any, labels: list[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return _shares(_label(name, value, labels), labels)
    keys = {same(str(key)): item for key, item in value.items()}
    stated = next((keys[key] for key in (*VERDICT_KEYS, same(name)) if keys.get(key) is not None), None)
    label = None if stated is None else _label(name, stated, labels)
    table = keys.get("probabilities")
    if table is None and any(of(value, label) is not None for label in labels):
        table = value
    shares = _table(table, labels) if isinstance(table, Mapping) else None
    if shares is None:
        if label is None:
            raise Unreadable(f"{name} names none of {', '.join(labels)}")
        return _shares(label, labels)
    best = max(shares.values())
    winners = [each for each in labels if shares[each] == best]
    if (label is None and len(winners) > 1) or (label is not None and label not in winners):
        raise Unreadable(f"the choice and the probabilities of {name} contradict each other")
    return {"probabilities": shares, "confidence": best}


def _label(name: str, value: Any, labels: Sequence[str]) -> str:
    text = re.sub(r"[*_`\"'“”‘’]+", " ", str(value)).strip().strip(".!,;: ").casefold()
    exact = [label for label in labels if label.casefold().replace("_", " ") == text]
    if len(exact) == 1:
        return exact[0]
    named = [label for label in labels if re.search(rf"\b{re.escape(label.casefold().replace('_', ' '))}\b", text)]
    denied = re.search(r"\b(?:not|neither|nor|either|or|unless|but|however)\b|n't\b", text)
    if len(named) == 1 and not denied and len(text.split()) <= 12:
        return named[0]
    raise Unreadable(f"{name} is {str(value)[:60]!r}, none of {', '.join(labels)}")


def _shares(label: str, labels: Sequence[str]) -> dict[str, Any]:
    if len(labels) == 1:
        return {"probabilities": {label: 1.0}, "confidence": 1.0}
    rest = round((1 - SURE) / (len(labels) - 1), 6)
    return {"probabilities": {each: SURE if each == label else rest for each in labels}, "confidence": SURE}


def _table(table: Mapping[str, Any], labels: Sequence[str]) -> dict[str, float] | None:
    """A distribution over the labels that sums to one, or None when the table is none."""
    shares: dict[str, float] = {}
    for label in labels:
        value = of(table, label)
        scale = 1.0
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 1:
            value, scale = value / 100, 1.0
        try:
            shares[label] = 0.0 if value is None else _probability(label, value) * scale
        except Unreadable:
            return None
    total = sum(shares.values())
    return {label: share / total for label, share in shares.items()} if 0.9 <= total <= 1.1 else None


def _verdicts(reading: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    return tuple(
        answer["noul"] >= 0.5 if "noul" in answer else max(answer["probabilities"], key=answer["probabilities"].get)
        for answer in reading.values()
    )
