"""What rows are ranked by and grouped by: superlatives, `per X`, `which X ... most`, `top 3 X`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from program.models.rules.tables_bounds import OPEN_ENDED
from program.models.rules.tables_naming import Naming
from program.models.rules.tables_query import Part
from program.models.rules.tables_words import ADJECTIVES, SUPERLATIVES, alike
from program.models.table_schema import Column

_SEVERAL = {"two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}
_N = r"(\d{1,3}|two|three|four|five|ten)"
_BEST = r"(?:latest|newest|oldest|biggest|largest|longest|shortest|highest|lowest|cheapest|most|fewest)"
_TOP = re.compile(rf"\b(?:top|first|last|{_BEST}) {_N}\b|\b{_N} (?:{_BEST}|\w+ with the {_BEST})\b", re.IGNORECASE)
_EACH = re.compile(
    r"\b(?:per|by|for each|for every|in each|each|every|across|(?:grouped|broken|split)(?: down)? by)"
    r"(?: of)?(?: the)?(?: different)? $",
    re.IGNORECASE,
)
_AGENT = re.compile(
    r"\b(?:(?!grouped|sorted|split|used|need|speed|broken)\w+(?:ed|en)|made|done|sent|held|paid|led|run|sold|bought"
    r"|won|lost) by (?:the )?$|\bhow many\b.*\bby (?:the )?$",
    re.IGNORECASE,
)
_WHICH = re.compile(r"\b(?:which|what)\s+(?:\w+\s+)?$", re.IGNORECASE)
_TOP_OF = re.compile(r"\btop(?: \w+)?\s+$", re.IGNORECASE)
_PARTS: dict[str, Part] = {"month": "month", "year": "year", "day": "day"}


@dataclass(frozen=True, slots=True)
class Best:
    """A superlative: its dimension (`date`, `count`, one of DIMENSIONS, or empty), which end, the word's index."""

    dimension: str
    largest: bool
    at: int


@dataclass(frozen=True, slots=True)
class Group:
    """What rows are grouped by; `chosen` when one group of it is asked for. No column: not grouped."""

    column: Column | None = None
    part: Part = ""
    chosen: bool = False


def how_many(naming: Naming) -> int | None:
    """The 3 of `top 3`, or None; its word is used."""
    found = _TOP.search(naming.reading.text)
    if not found:
        return None
    which = 1 if found[1] else 2
    at = naming.reading.index(found.start(which))
    naming.reading.use(at, at + 1)
    number = found[which].lower()
    return max(1, int(number)) if number.isdigit() else _SEVERAL[number]


def superlative(naming: Naming) -> Best | None:
    """The first superlative that no other slot has used."""
    reading = naming.reading
    free = [(i, w) for i, w in reading.free() if w.low in SUPERLATIVES]
    for at, word in free:
        following = reading.words[at + 1] if at + 1 < len(reading.words) else None
        if word.low == "top" and len(free) > 1:
            continue
        if word.low in ("most", "least") and re.search(
            r"\b(?:at|for)(?: the)?(?: very)? $", reading.text[: word.start]
        ):
            continue
        if word.low == "first" and following is None and len(reading.words) < 3:
            continue
        if word.low == "last" and not any(i in naming.nouns for i in range(at + 1, at + 5)):
            continue
        reading.use(at, at + 1)
        if word.low in ("most", "least") and following and following.stem in ADJECTIVES:
            reading.use(at + 1, at + 2)
            return Best(ADJECTIVES[following.stem] or "count", SUPERLATIVES[word.low][1], at)
        return Best(*SUPERLATIVES[word.low], at)
    return None


def group(naming: Naming, ranked: int, bounded: bool) -> Group:
    """The column that rows are grouped by. `ranked`: index of the superlative or -1; `bounded`: `over 5 orders`."""
    reading = naming.reading
    texts = [c for c in naming.columns if c.kind in ("text", "boolean")]
    texts = [c for c in texts if not (c.unique and c.table == naming.table.name)]
    for at, word in enumerate(reading.words):
        before = reading.text[: word.start]
        each = bool(_EACH.search(before)) and not _AGENT.search(before)
        which = bool(_WHICH.search(before)) and (at < ranked or bounded)
        top = ranked >= 0 and bool(_TOP_OF.search(before))
        if not (each or which or top or _is_common(naming, at, ranked)) or at in reading.used or at in naming.nouns:
            continue
        dated = [c for c in naming.dated if OPEN_ENDED.isdisjoint(c.words)]
        named = any(alike(word.stem, s) for c in naming.columns for s in c.stems)
        if word.stem in _PARTS and dated and not named and naming.schema.dialect == "sqlite":
            reading.use(at, at + 1, strong=True)
            return Group(dated[0], _PARTS[word.stem], which or top)
        column = naming.label_of(word) or naming.pair(at, texts) or naming.named(word, texts)
        column = column or (naming.meant(word, texts) if each else None)
        if column and not (column.unique and column.table == naming.table.name):
            naming.mark(column, at)
            return Group(column, "", not each)
    return Group()


def _is_common(naming: Naming, at: int, ranked: int) -> bool:
    """True for the noun of `most common X`."""
    before = naming.reading.words[at - 1].stem if at >= 2 else ""
    return ranked >= 0 and before in ADJECTIVES and not ADJECTIVES[before]
