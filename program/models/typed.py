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

from program.models.phrases import is_no_reply, label, verdict
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
_SENTENCES = re.compile(r".*[.!?](?:\s*\[\d{1,3}\])*(?=\s|\Z)", re.DOTALL)
_PROBABILITY_KEYS = ("probability", "noul", "p", "prob", "score")
_NO_NAME_OF_TEXTS = re.compile(r"error|fault|detail|status|code|message|reason", re.IGNORECASE)


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
    if is_no_reply(body):
        raise Unreadable("it is no reply to what was asked")
    if len(names) == 1 and "{" not in body:
        if items := listed(sections(body, names).get(names[0], body)):
            return {names[0]: items}
        raise Unreadable("it holds no list")
    for found in objects(text, names):
        if len(names) == len(found) == 1 and not has(found, names[0]):  # a list, under whatever name
            ((name, value),) = found.items()
            if isinstance(value, list) and not _NO_NAME_OF_TEXTS.search(str(name)):
                return {names[0]: texts(value)}
        if all(has(found, name) for name in names):
            values = {name: of(found, name) for name in names}
            return {name: texts(v) if outputs[name] else one_text(v) for name, v in values.items()}
    raise Unreadable("the fields are not all there")


def read_records(text: str, name: str, record: type[Record]) -> list[Record]:
    """The records under a name; one that is not in its form counts as not given, and so does a reply without any."""
    read: list[Record] = []
    try:
        values = next((v for found in objects(text, (name,)) if isinstance(v := of(found, name), list)), [])
    except Unreadable:
        return read
    for value in values:
        with suppress(ValidationError):
            read.append(record.model_validate(value))
    return read


def whole_sentences(text: str) -> str:
    """A text that was cut off, up to its last whole sentence. Raises `Unreadable` when it has none."""
    if found := _SENTENCES.match(text):
        return found[0]
    raise Unreadable("it was cut off")


def _decision(name: str, found: Mapping[str, Any], put: Mapping[str, Any], alone: bool) -> dict[str, Any]:
    value = of(found, name)
    further = not isinstance(value, Mapping) and {same(str(key)) for key in found} & {*VERDICT_KEYS, *_PROBABILITY_KEYS}
    return read_decision(name, dict(found) if alone and (value is None or further) else value, put)


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
        bare = _verdict(name, value)
        return _probability(name, value) if bare is None else bare
    keys = {same(str(key)): item for key, item in value.items()}
    stated = [v for key in (*VERDICT_KEYS, same(name)) if key in keys and (v := _verdict(name, keys[key])) is not None]
    numbers: list[float] = []
    failure: Unreadable | None = None
    for key in (same(name), *_PROBABILITY_KEYS):
        if keys.get(key) is not None and not (key == same(name) and _verdict(name, keys[key]) is not None):
            try:
                numbers.append(_probability(name, keys[key]))
            except Unreadable as error:
                failure = error
    if not stated and not numbers:
        raise failure or Unreadable(f"{name} has neither a verdict nor a probability")
    said = [*stated, *numbers]
    if min(said) < 0.5 < max(said):
        raise Unreadable(f"the verdict and the probability of {name} contradict each other")
    return numbers[-1] if numbers else stated[0]


def _verdict(name: str, value: Any) -> float | None:
    """The probability that a verdict stands for, or None when the value states none plainly."""
    if isinstance(value, bool):
        return SURE if value else round(1 - SURE, 6)
    said = verdict(name, value) if isinstance(value, str) else None
    return None if said is None else {"yes": SURE, "no": round(1 - SURE, 6)}.get(said, 0.5)


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
    chosen = None if stated is None else _label(name, stated, labels)
    table = keys.get("probabilities")
    if table is None and any(of(value, each) is not None for each in labels):
        table = value
    shares = _table(table, labels) if isinstance(table, Mapping) else None
    if shares is None:
        if chosen is None:
            raise Unreadable(f"{name} names none of {', '.join(labels)}")
        for key in (*_PROBABILITY_KEYS, "confidence"):
            if keys.get(key) is not None and _probability(name, keys[key]) < 1 / len(labels):
                raise Unreadable(f"the choice and the probability of {name} contradict each other")
        return _shares(chosen, labels)
    best = max(shares.values())
    winners = [each for each in labels if shares[each] == best]
    if (chosen is None and len(winners) > 1) or (chosen is not None and chosen not in winners):
        raise Unreadable(f"the choice and the probabilities of {name} contradict each other")
    return {"probabilities": shares, "confidence": best}


def _label(name: str, value: Any, labels: Sequence[str]) -> str:
    if (found := label(str(value), labels)) is None:
        raise Unreadable(f"{name} is {str(value)[:60]!r}, none of {', '.join(labels)}")
    return found


def _shares(chosen: str, labels: Sequence[str]) -> dict[str, Any]:
    if len(labels) == 1:
        return {"probabilities": {chosen: 1.0}, "confidence": 1.0}
    rest = round((1 - SURE) / (len(labels) - 1), 6)
    return {"probabilities": {each: SURE if each == chosen else rest for each in labels}, "confidence": SURE}


def _table(table: Mapping[str, Any], labels: Sequence[str]) -> dict[str, float] | None:
    """A distribution over the labels that sums to one, or None when the table is none."""
    shares: dict[str, float] = {}
    for each in labels:
        value = of(table, each)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 1:
            value = value / 100
        try:
            shares[each] = 0.0 if value is None else _probability(each, value)
        except Unreadable:
            return None
    total = sum(shares.values())
    return {each: share / total for each, share in shares.items()} if 0.9 <= total <= 1.1 else None


def _verdicts(reading: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    return tuple(
        answer["noul"] >= 0.5 if "noul" in answer else max(answer["probabilities"], key=answer["probabilities"].get)
        for answer in reading.values()
    )
