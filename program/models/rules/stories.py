"""Sums told as a story: what is left, what each pays, what is put aside over time, and when something ends.

A story is only computed when every number in it is accounted for; otherwise it is left alone.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from program.models.rules.numbers import NUMBER as _N
from program.models.rules.numbers import number

_ANY = re.compile(_N)
_OTHER_SUM = re.compile(r"%|\b(?:vat|tax|discount|percent|(?<!no )interest|off|twice|double|half)\b", re.IGNORECASE)
_LEFT = re.compile(r"\b(?:left|remain(?:s|ing)?|still (?:have|got)|to go)\b", re.IGNORECASE)
_GONE = re.compile(
    r"\b(?:used|spent|sold|gave|given|ate|eaten|lost|took|taken|paid|drank|read|done|walked|ran|out of)\b",
    re.IGNORECASE,
)
_SHARED = re.compile(r"\b(?:split\w*|shar\w+|divid\w+)\b", re.IGNORECASE)
_EACH = re.compile(r"\b(?:each|equally|evenly|apiece|per (?:person|head)|every one)\b", re.IGNORECASE)
_SHARERS = re.compile(
    rf"{_N} (?:of us|of them|people|persons|friends|ways|colleagues|children|kids)\b"
    rf"|\b(?:between|among|amongst) {_N}\b",
    re.IGNORECASE,
)
_OVER_TIME = re.compile(
    rf"{_N} (?:a|per|each|every) (day|week|month|quarter|year),? (?:for|over|during) (?:the next )?{_N} \2s?\b",
    re.IGNORECASE,
)
_CHANGED = re.compile(rf"\bfrom {_N} to {_N}(?!\d)", re.IGNORECASE)
_IN_PERCENT = re.compile(r"%|\bper ?cent(?:age)?\b", re.IGNORECASE)
_CLOCK = re.compile(r"\b([01]?\d|2[0-3])[:.h]([0-5]\d)\b")
_LASTING = re.compile(
    r"\b(?:(\d+) ?h(?:ours?|rs?)?\b(?:,? (?:and )?(\d+)(?: ?m(?:in(?:ute)?s?)?)?\b)?|(\d+) ?min(?:ute)?s?\b)",
    re.IGNORECASE,
)
_WHEN = re.compile(r"\b(?:when|what time)\b", re.IGNORECASE)
_EARLIER = re.compile(r"\b(?:before|earlier|ago|back)\b", re.IGNORECASE)


def told(text: str) -> str:
    """A sentence with the result and how it was computed, or an empty string."""
    if ended := _ended(text):
        return ended
    numbers = [float(found) for found in _ANY.findall(text)]
    if len(numbers) != 2:
        return ""
    if (found := _CHANGED.search(text)) and _IN_PERCENT.search(text):
        return _change(float(found[1]), float(found[2]))
    if _OTHER_SUM.search(text):
        return ""
    if _LEFT.search(text) and _GONE.search(text):
        less, more = sorted(numbers)
        return f"{number(more - less)} are left ({number(more)} - {number(less)})."
    if found := _OVER_TIME.search(text):
        amount, times = float(found[1]), float(found[3])
        return f"That comes to {number(amount * times)} ({number(amount)} × {number(times)})."
    return _each(text, numbers)


def _change(before: float, after: float) -> str:
    if not before:
        return ""
    share = number(round(abs(after - before) / before * 100, 2))
    way = "more" if after >= before else "less"
    return f"{number(after)} is {share}% {way} than {number(before)} ({number(after)} / {number(before)} - 1)."


def _each(text: str, numbers: list[float]) -> str:
    among = _SHARERS.search(text)
    if not (among and _SHARED.search(text) and _EACH.search(text)):
        return ""
    parts = float(next(value for value in among.groups() if value is not None))
    whole = numbers[1] if numbers[0] == parts else numbers[0]
    shown = f"{number(whole)} / {number(parts)}"
    return f"{number(whole)} shared by {number(parts)} is {number(whole / parts)} each ({shown})." if parts else ""


def _ended(text: str) -> str:
    """The clock so long after (or before) a time of day."""
    clocks = _CLOCK.findall(text)
    if len(clocks) != 1 or not _WHEN.search(text):
        return ""
    spans = _LASTING.findall(_CLOCK.sub(" ", text))
    rest = _LASTING.sub(" ", _CLOCK.sub(" ", text))
    if len(spans) != 1 or re.search(r"\d", rest):
        return ""
    hours, minutes, alone = (int(value or 0) for value in spans[0])
    span = timedelta(hours=hours, minutes=minutes + alone)
    start = datetime(2000, 1, 1, int(clocks[0][0]), int(clocks[0][1]))
    end = start - span if _EARLIER.search(rest) else start + span
    way = "before" if _EARLIER.search(rest) else "after"
    return f"{end:%H:%M} ({_span(span)} {way} {start:%H:%M})."


def _span(span: timedelta) -> str:
    hours, minutes = divmod(int(span.total_seconds()) // 60, 60)
    return " ".join(said for said in (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "") if said)
