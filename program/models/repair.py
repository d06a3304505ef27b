"""The object, list or text that a language model was asked for, found in what it wrote around or instead of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from program.models.phrases import is_no_reply, is_nothing

MOST_READ = 20_000  # characters of a reply
MOST_BRACKETS = 600  # of a broken one that is mended: what mends it takes time by their square
VERDICT_KEYS = ("verdict", "choice", "value", "answer", "decision", "label", "result")
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_MARKER = re.compile(r"\[\[\s*##\s*(\w+)\s*##\s*\]\]")
_LINE = re.compile(
    r"^[ \t*_#>\-`\"']{0,20}([A-Za-z][\w ]{0,60}?)[ \t*_`\"']{0,20}[:=][\s*_]{0,20}(\S.*)$", re.MULTILINE
)
_ITEM = re.compile(r"^[ \t]{0,20}(?:[-*•–]|\d{1,3}[.)])[ \t]{1,20}(\S.*)$", re.MULTILINE)
_CUT_NUMBER = re.compile(r"[:,\[\s][-+]?\d*\.?\d*$")


class Unreadable(Exception):
    """A reply from which the values cannot be told with certainty; the text says what is wrong with it."""


def objects(text: str, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """The readings of a reply as an object, strictest first: JSON, mended JSON, marked sections, `name: value`."""
    body = body_of(text)
    if found := [*json_objects(body)]:
        return [_unwrapped(item, names) for item in found]
    if (mended := _mended(body)) is not None:
        if any(len(re.findall(rf"\b{re.escape(name)}[\"']?\s{{0,9}}:", body)) > 1 for name in names):
            raise Unreadable("it holds a value twice")
        return [_unwrapped(mended, names)]
    if marked := sections(body, names):
        return [marked]
    lines: dict[str, Any] = {}
    for name, rest in _LINE.findall(body):
        value = rest.strip()
        if same(name) in lines and lines[same(name)] != value:
            return []
        lines[same(name)] = value
    if any(same(name) in lines for name in names) or (len(names) == 1 and set(lines) & set(VERDICT_KEYS)):
        return [lines]
    # What is left of an object that was cut off is no verdict: its first word is only the name of the field.
    return [{names[0]: body}] if len(names) == 1 and "{" not in body else []


def body_of(text: str) -> str:
    """The reply without thoughts, and only its fenced part when it has exactly one."""
    body = _THOUGHT.sub("", text[:MOST_READ]).strip()
    fences = [part.strip() for part in _FENCE.findall(body)]
    return fences[0] if len(fences) == 1 and fences[0] else body


def json_objects(body: str) -> Iterable[Mapping[str, Any]]:
    """The JSON objects in a text, one after another. Raises `Unreadable` for one that states a value twice."""
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    at = body.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(body, at)
        except (ValueError, RecursionError):
            return
        if isinstance(found, dict):
            yield found
        at = body.find("{", end)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand once, or twice with the same value. Raises `Unreadable` for another."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(same(key), value) != value:
            raise Unreadable("it holds a value twice")
    return dict(pairs)


def _mended(body: str) -> Mapping[str, Any] | None:
    """The reply's object when it is broken JSON; a number at which it was cut off is dropped, not believed."""
    import json_repair

    start = body.find("{")
    if start < 0:
        return None
    part = body[start:]
    if part.count("{") + part.count("[") > MOST_BRACKETS:
        return None
    if part.count("{") > part.count("}"):
        part = _CUT_NUMBER.sub(":null", part) if _CUT_NUMBER.search(part) else part
    try:
        found = json_repair.loads(part)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, list):
        objects = [item for item in found if isinstance(item, dict)]
        found = objects[0] if len(objects) == 1 else None
    return found if isinstance(found, dict) and found else None


def _unwrapped(found: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """The object that holds the wanted names, when it lies one level down."""
    inner = [value for value in found.values() if isinstance(value, dict)]
    if len(found) == 1 and len(inner) == 1 and of(found, names[0]) is None and of(inner[0], names[0]) is not None:
        return inner[0]
    return found


def sections(body: str, names: Sequence[str]) -> dict[str, str]:
    """The texts under DSPy's markers, by name."""
    parts = _MARKER.split(body)
    return {name: value.strip() for name, value in zip(parts[1::2], parts[2::2], strict=False) if name in names}


def of(found: Mapping[str, Any], name: str) -> Any:
    """The value under a name, however the name is spelt."""
    wanted = same(name)
    return next((value for key, value in found.items() if same(str(key)) == wanted), None)


def has(found: Mapping[str, Any], name: str) -> bool:
    """True when there is something, if only null, under a name."""
    return any(same(str(key)) == same(name) for key in found)


def same(name: str) -> str:
    """A name without case, quotes and kinds of space."""
    return re.sub(r"[\s\-]+", "_", name.strip().strip("*`\"'")).casefold()


def plain(text: str, name: str) -> str:
    """The reply as the one text wanted, without markers, a heading, a fence or JSON around it.

    Raises `Unreadable` for a refusal, a page, and JSON that does not hold the text.
    """
    body = _THOUGHT.sub("", text[: 4 * MOST_READ]).strip()
    fence = re.fullmatch(r"```[\w-]*\n(.*?)\n?```", body, re.DOTALL)
    body = fence[1].strip() if fence else body
    if body.startswith("{") and (found := next(iter(json_objects(body)), None) or _mended(body)):
        body = body if (value := of(found, name)) is None else one_text(value).strip()
    if is_no_reply(body) or _is_json(body):
        raise Unreadable(f"it is no {name.replace('_', ' ')}")
    if body.startswith("[["):  # further on it would be a passage's text
        body = sections(body, (name, "completed")).get(name, body)
    body = re.sub(rf"^\**{re.escape(name.replace('_', ' '))}\**\s*:\**\s*", "", body, flags=re.IGNORECASE)
    return _MARKER.sub("", body).strip()


def _is_json(body: str) -> bool:
    """True for an object, a list or a constant, of which a text has not been made."""
    if body[:1] not in "{[" and body not in ("null", "true", "false"):
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return body.startswith("{") and _mended(body) is not None
    return True


def listed(body: str) -> list[str]:
    """A list written as bullets or numbers, or as JSON."""
    start, end = body.find("["), body.rfind("]")
    if 0 <= start < end:
        try:
            found = json.loads(body[start : end + 1])
        except ValueError:
            found = None
        if isinstance(found, list) and found:
            return texts(found)
    return [item.strip().strip("\"'") for item in _ITEM.findall(body)]


def texts(value: Any) -> list[str]:
    """A value as a list of texts. Raises `Unreadable`."""
    if isinstance(value, str):
        return listed(value) or ([value.strip()] if value.strip() else [])
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, Sequence):
        raise Unreadable("a list of texts was wanted")
    items = [one_text(next(iter(v.values()), "") if isinstance(v, Mapping) else v).strip() for v in value]
    if value and not any(items):
        raise Unreadable("the list holds nothing")
    return [item for item in items if item]


def one_text(value: Any) -> str:
    """A value as one text, empty for a word that says so. Raises `Unreadable`, also for a refusal."""
    if isinstance(value, str):
        if is_no_reply(value):
            raise Unreadable("it is no reply to what was asked")
        return "" if is_nothing(value) else value
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    if value is None or isinstance(value, bool | int | float):
        return "" if value is None else str(value)
    raise Unreadable("a text was wanted")
