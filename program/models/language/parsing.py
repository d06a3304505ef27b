"""Typed values out of what a language model replied: JSON and types by DSPy and pydantic.

A reply that cannot be read with certainty is an `UnreadableReply`, which is asked for once more: never a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import accumulate
from typing import Any, get_args

from dspy.adapters.utils import parse_value
from pydantic import BaseModel, ValidationError

LONGEST_REPLY = 20_000  # characters that are read
MOST_BRACKETS = 600  # of a reply that is mended: mending takes time by their square
_SENTENCES = re.compile(r".*[.!?](?:\s*\[\d{1,3}\])*(?=\s|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"```[\w-]*\n(.*?)\n?```", re.DOTALL)


class UnreadableReply(Exception):
    """A reply from which the values cannot be told with certainty; the text says what is wrong with it."""


def read_text(reply: str, name: str) -> str:
    """Return the one text wanted, bare. Raises `UnreadableReply`."""
    body = _remove_thoughts(reply)
    if fenced := _FENCED.fullmatch(body):
        body = fenced[1].strip()
    if body.startswith("{"):
        body = _read_value(_read_object(body), name, str)
    heading = rf"^\**{re.escape(name.replace('_', ' '))}\**\s*:\**\s*"
    return re.sub(heading, "", body, flags=re.IGNORECASE).strip()


def read_outputs(reply: str, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return each output's value from a reply that holds one JSON object.

    A list of records may be left out, and a record out of form is. Raises `UnreadableReply`.
    """
    found = _read_object(_remove_thoughts(reply))
    return {
        name: _read_records(found.get(name), record) if (record := record_of(kind)) else _read_value(found, name, kind)
        for name, kind in outputs.items()
    }


def is_record(annotation: Any) -> bool:
    """Tell whether an annotation is that of one record."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def record_of(annotation: Any) -> type[BaseModel] | None:
    """Return what the items of a list of records are, None for another annotation."""
    return next((item for item in get_args(annotation)[:1] if is_record(item)), None)


def whole_sentences(text: str) -> str:
    """Return a cut text's whole sentences. Raises `UnreadableReply` without one."""
    if found := _SENTENCES.match(text):
        return found[0]
    raise UnreadableReply("it was cut off")


def _remove_thoughts(reply: str) -> str:
    return _THOUGHT.sub("", reply[:LONGEST_REPLY]).strip()


def _read_object(body: str) -> dict[str, Any]:
    """Return the one object of a text, mended. Of one that was cut off, or of several, no value is believed."""
    part = body[max(body.find("{"), 0) : body.rfind("}") + 1]
    found: Any = None
    with suppress(ValueError, RecursionError):
        found = json.loads(part)
    if found is None:
        depths = [*accumulate({"{": 1, "}": -1}.get(character, 0) for character in part)]
        if not part or depths.index(min(depths)) < len(part) - 1 or part.count("{") + part.count("[") > MOST_BRACKETS:
            raise UnreadableReply("it holds no whole JSON object alone")
        with suppress(ValueError, RecursionError):
            found = parse_value(part, dict[str, Any])
    if not isinstance(found, dict):
        raise UnreadableReply("it holds no JSON object")
    return found


def _read_value(found: Mapping[str, Any], name: str, kind: Any) -> Any:
    if name not in found:
        raise UnreadableReply(f"{name} is missing")
    try:
        return parse_value("" if found[name] is None and kind is str else found[name], kind)
    except (ValueError, RecursionError) as error:  # pydantic's are among them
        raise UnreadableReply(f"{name} is out of form: {str(error)[:200]}") from None


def _read_records(values: Any, record: type[BaseModel]) -> list[BaseModel]:
    read: list[BaseModel] = []
    for value in values if isinstance(values, list) else ():
        with suppress(ValidationError):
            read.append(record.model_validate(value))
    return read
