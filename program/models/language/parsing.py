"""Objects, texts and records out of what a language model wrote around or instead of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import json_repair
from pydantic import BaseModel, ValidationError

Record = TypeVar("Record", bound=BaseModel)
LONGEST_REPLY = 20_000  # characters that are read
MOST_BRACKETS = 600  # of a broken reply that is mended: mending takes time by their square
VERDICT_KEYS = ("verdict", "choice", "value", "answer", "decision", "label", "result")
_SENTENCES = re.compile(r".*[.!?](?:\s*\[\d{1,3}\])*(?=\s|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_MARKER = re.compile(r"\[\[\s*##\s*(\w+)\s*##\s*\]\]")
_LINE = re.compile(
    r"^[ \t*_#>\-`\"']{0,20}([A-Za-z][\w ]{0,60}?)[ \t*_`\"']{0,20}[:=][\s*_]{0,20}(\S.*)$", re.MULTILINE
)
_ITEM = re.compile(r"^[ \t]{0,20}(?:[-*•–]|\d{1,3}[.)])[ \t]{1,20}(\S.*)$", re.MULTILINE)
_CUT_NUMBER = re.compile(r"[:,\[\s][-+]?\d*\.?\d*$")
_NO_NAME_OF_TEXTS = re.compile(r"error|fault|detail|status|code|message|reason", re.IGNORECASE)
_NOTHING = {"", "none", "n/a", "na", "null", "nothing", "empty", "nothing is missing", "not applicable", "-"}
_NO_REPLY = re.compile(
    r"\W*(?:(?:i['’]?m|i am|we are|we['’]re)\s+(?:very |so |really )?sorry|sorry|apologies|my apologies|i apologi[sz]e|"
    r"unfortunately)\b.{0,60}?\b(?:can(?:no|['’])t|can not|unable|not able|won['’]t|not allowed|must decline)\b"
    r"|\W*(?:i|we)(?:['’]m| am| are|['’]re)?\s+(?:can(?:no|['’])t|can not|unable|not able|won['’]t|will not)"
    r"\s+(?:to\s+)?(?:help|assist|comply|answer|provide|do that|fulfil|discuss|continue|engage|respond|process|be able)"
    r"|\W*as an ai\b|\s*<(?:!doctype|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
"""A refusal, or a page that a server sent in place of a reply."""


class UnreadableReply(Exception):
    """A reply from which the values cannot be told with certainty; the text says what is wrong with it."""


def read_texts(text: str, outputs: Mapping[str, bool]) -> dict[str, str | list[str]]:
    """Return the text, or list of texts, of each output. Raises `UnreadableReply`."""
    names = tuple(outputs)
    if len(names) == 1 and not outputs[names[0]]:
        return {names[0]: _read_plain_text(text, names[0])}
    body = _strip_wrapping(text)
    if _NO_REPLY.match(body):
        raise UnreadableReply("it is no reply to what was asked")
    if len(names) == 1 and "{" not in body:
        if items := _list_items(_marked_sections(body, names).get(names[0], body)):
            return {names[0]: items}
        raise UnreadableReply("it holds no list")
    for found in read_objects(text, names):
        spelt = {normalise_name(str(key)) for key in found}
        if all(normalise_name(name) in spelt for name in names):
            values = {name: get_value(found, name) for name in names}
            return {name: _as_texts(v) if outputs[name] else _as_text(v) for name, v in values.items()}
        if len(names) == len(found) == 1:  # a list, under whatever name
            ((name, value),) = found.items()
            if isinstance(value, list) and not _NO_NAME_OF_TEXTS.search(str(name)):
                return {names[0]: _as_texts(value)}
    raise UnreadableReply("the fields are not all there")


def read_records(text: str, name: str, record: type[Record]) -> list[Record]:
    """Return the records under a name; one out of form counts as not given."""
    read: list[Record] = []
    try:
        values = next((v for found in read_objects(text, (name,)) if isinstance(v := get_value(found, name), list)), [])
    except UnreadableReply:
        values = []
    for value in values:
        with suppress(ValidationError):
            read.append(record.model_validate(value))
    return read


def whole_sentences(text: str) -> str:
    """Return a cut text's whole sentences. Raises `UnreadableReply` without one."""
    if found := _SENTENCES.match(text):
        return found[0]
    raise UnreadableReply("it was cut off")


def read_objects(text: str, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return a reply as objects, by the strictest reading that fits.

    Readings are JSON, mended JSON, marked sections and `name: value`. Raises `UnreadableReply` when a value is given
    twice.
    """
    body = _strip_wrapping(text)
    if found := [*_json_objects(body)]:
        return [_unwrapped(item, names) for item in found]
    if (mended := _mended_object(body)) is not None:
        if any(len(re.findall(rf"\b{re.escape(name)}[\"']?\s{{0,9}}:", body)) > 1 for name in names):
            raise UnreadableReply("it holds a value twice")
        return [_unwrapped(mended, names)]
    if marked := _marked_sections(body, names):
        return [marked]
    lines: dict[str, Any] = {}
    for name, value in _LINE.findall(body):
        if lines.setdefault(normalise_name(name), value.strip()) != value.strip():
            return []
    if any(normalise_name(name) in lines for name in names) or (len(names) == 1 and set(lines) & set(VERDICT_KEYS)):
        return [lines]
    # What is left of an object that was cut off is no verdict: its first word is only the name of the field.
    return [{names[0]: body}] if len(names) == 1 and "{" not in body else []


def _strip_wrapping(text: str) -> str:
    """Return the reply without thoughts, and only its fenced part when it has exactly one."""
    body = _THOUGHT.sub("", text[:LONGEST_REPLY]).strip()
    fences = [part.strip() for part in _FENCE.findall(body)]
    return fences[0] if len(fences) == 1 and fences[0] else body


def _json_objects(body: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of a text. Raises `UnreadableReply` for one that states a value twice."""
    decoder = json.JSONDecoder(object_pairs_hook=_refuse_repeats)
    at = body.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(body, at)
        except (ValueError, RecursionError):
            return
        yield found
        at = body.find("{", end)


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(normalise_name(key), value) != value:
            raise UnreadableReply("it holds a value twice")
    return dict(pairs)


def _mended_object(body: str) -> Mapping[str, Any] | None:
    """Return the object of broken JSON; a number at which it was cut off is dropped, not believed."""
    part = body[body.find("{") :] if "{" in body else ""
    if not part or part.count("{") + part.count("[") > MOST_BRACKETS:
        return None
    if part.count("{") > part.count("}"):
        part = _CUT_NUMBER.sub(":null", part)
    try:
        found: Any = json_repair.loads(part)
    except (ValueError, RecursionError):
        return None
    items = [item for item in (found if isinstance(found, list) else [found]) if isinstance(item, dict)]
    return items[0] if len(items) == 1 and items[0] else None


def _unwrapped(found: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Return the object that holds the wanted names, when it lies one level down."""
    inner = next(iter(found.values()), None)
    down = len(found) == 1 and isinstance(inner, dict) and get_value(found, names[0]) is None
    return inner if down and isinstance(inner, dict) and get_value(inner, names[0]) is not None else found


def _marked_sections(body: str, names: Sequence[str]) -> dict[str, str]:
    parts = _MARKER.split(body)
    return {name: value.strip() for name, value in zip(parts[1::2], parts[2::2], strict=False) if name in names}


def get_value(found: Mapping[str, Any], name: str) -> Any:
    """Return the value under a name, however the name is spelt."""
    return next((value for key, value in found.items() if normalise_name(str(key)) == normalise_name(name)), None)


def normalise_name(name: str) -> str:
    """Return a name without case, quotes and kinds of space."""
    return re.sub(r"[\s\-]+", "_", name.strip().strip("*`\"'")).casefold()


def _read_plain_text(text: str, name: str) -> str:
    """Return the one text wanted, unwrapped. Raises `UnreadableReply` for a refusal, a page, other JSON."""
    body = _THOUGHT.sub("", text[: 4 * LONGEST_REPLY]).strip()
    fence = re.fullmatch(r"```[\w-]*\n(.*?)\n?```", body, re.DOTALL)
    body = fence[1].strip() if fence else body
    if body.startswith("{") and (found := next(_json_objects(body), None) or _mended_object(body)):
        body = body if (value := get_value(found, name)) is None else _as_text(value).strip()
    if _NO_REPLY.match(body) or _is_json(body):
        raise UnreadableReply(f"it is no {name.replace('_', ' ')}")
    if body.startswith("[["):  # further on it would be a passage's text
        body = _marked_sections(body, (name, "completed")).get(name, body)
    body = re.sub(rf"^\**{re.escape(name.replace('_', ' '))}\**\s*:\**\s*", "", body, flags=re.IGNORECASE)
    return _MARKER.sub("", body).strip()


def _is_json(body: str) -> bool:
    """Tell whether a text is an object, a list or a constant of JSON, broken objects included."""
    if body[:1] not in "{[" and body not in ("null", "true", "false"):
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return body.startswith("{") and _mended_object(body) is not None
    return True


def _list_items(body: str) -> list[str]:
    """Return a list written as bullets or numbers, or as JSON."""
    start, end = body.find("["), body.rfind("]")
    if 0 <= start < end:
        with suppress(ValueError, RecursionError):
            found = json.loads(body[start : end + 1])
            if isinstance(found, list) and found:
                return _as_texts(found)
    return [item.strip().strip("\"'") for item in _ITEM.findall(body)]


def _as_texts(value: Any) -> list[str]:
    """Return a value as a list of texts. Raises `UnreadableReply`."""
    if isinstance(value, str):
        return _list_items(value) or ([value.strip()] if value.strip() else [])
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, Sequence):
        raise UnreadableReply("a list of texts was wanted")
    items = [_as_text(next(iter(v.values()), "") if isinstance(v, Mapping) else v).strip() for v in value]
    if value and not any(items):
        raise UnreadableReply("the list holds nothing")
    return [item for item in items if item]


def _as_text(value: Any) -> str:
    """Return a value as one text, empty for a word that says so. Raises `UnreadableReply`, also for a refusal."""
    if isinstance(value, str):
        if _NO_REPLY.match(value):
            raise UnreadableReply("it is no reply to what was asked")
        return "" if value.strip(" .!()[]*`\"'\n").casefold() in _NOTHING else value
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    if value is None or isinstance(value, bool | int | float):
        return "" if value is None else str(value)
    raise UnreadableReply("a text was wanted")
