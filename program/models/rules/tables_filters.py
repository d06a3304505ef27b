"""The filters a question names: identifiers, free phrases, yes-or-no columns and dates left open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from program.models.rules.tables_query import Filter
from program.models.rules.tables_reading import Reading
from program.models.rules.tables_words import NEGATORS, alike, stem
from program.models.table_schema import Column, Table


def negated(reading: Reading, at: int) -> bool:
    """True when a word of denial stands within the four words before, with no clause or result between."""
    before = reading.text[reading.words[max(0, at - 5)].start : reading.words[at].start]
    clause = re.split(r"[;:.!?]|,\s*(?:and|which|who|what|how|where|when)\b", before)[-1]
    found = list(NEGATORS.finditer(clause))
    if not found:
        return False
    between = [
        i
        for i in range(max(0, at - 5), at)
        if reading.words[i].start >= reading.words[at].start - len(clause) + found[-1].end()
    ]
    return all(reading.words[i].low not in ("but", "only") for i in between) and len(between) <= 4


def identifiers(reading: Reading, columns: Sequence[Column], table: Table) -> Iterator[Filter]:
    """Equality with identifiers found by their shape, or by a number after the table's name (`order 1042`)."""
    shaped = [c for c in columns if c.shapes]
    for at, word in reading.free():
        for column in shaped:
            shape = next((s for s in column.shapes if re.fullmatch(s, word.text, re.IGNORECASE)), None)
            if shape:
                text = word.text.upper() if not re.search(r"[a-z]", shape.replace(r"\d", "")) else word.text
                reading.use(at, at + 1, strong=True)
                yield Filter(column, "=", (text,), at)
                break
    for column in table.columns:
        if column.kind != "integer" or not column.key or not (column.unique or column.name.lower() == "id"):
            continue
        for at, word in reading.free():
            before = [w.stem for w in reading.words[max(0, at - 2) : at] if w.low not in ("number", "no", "id")]
            if re.fullmatch(r"[0-9]{1,15}", word.text) and before and any(alike(before[-1], s) for s in table.stems):
                reading.use(at, at + 1, strong=True)
                yield Filter(column, "=", (float(word.text),), at)


def phrases(reading: Reading, columns: Sequence[Column]) -> Iterator[Filter]:
    """`LIKE` filters: two words or more, or one name, found inside the phrases of a prose column."""
    for column in (c for c in columns if c.prose):
        for size in (5, 4, 3, 2, 1):
            for at in range(len(reading.words) - size + 1):
                window = reading.words[at : at + size]
                if not reading.is_free(at, at + size) or not all(w.content for w in (window[0], window[-1])):
                    continue
                if size == 1 and not (window[0].text[0].isupper() and at > 0 and len(window[0].text) > 3):
                    continue
                found = _inside(tuple(w.stem for w in window), column)
                if found:
                    reading.use(at, at + size, strong=True)
                    yield Filter(column, "lacks" if negated(reading, at) else "contains", (found,), at)


def _inside(wanted: tuple[str, ...], column: Column) -> str:
    if not _stems_in(column).issuperset(wanted):
        return ""
    for value in column.values:
        stems, spans = _taken_apart(value)
        for i in range(len(stems) - len(wanted) + 1):
            if stems[i : i + len(wanted)] == wanted:
                return value[spans[i][0] : spans[i + len(wanted) - 1][1]]
    return ""


@lru_cache(maxsize=256)
def _stems_in(column: Column) -> frozenset[str]:
    return frozenset(one for value in column.values for one in _taken_apart(value)[0])


@lru_cache(maxsize=20_000)
def _taken_apart(value: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """The stems of a value's words, and where each word lies in it."""
    parts = list(re.finditer(r"[^\W_]+(?:['’][^\W_]+)?", value))
    return tuple(stem(p.group().lower()) for p in parts), tuple(p.span() for p in parts)


_STILL = re.compile(r"\b(?:still|yet) (?:to be |awaiting )?$", re.IGNORECASE)
_UNDONE = re.compile(r"\bstill (\w+)|\b(un\w+ed|ongoing|outstanding|unresolved|pending)\b", re.IGNORECASE)


def undone(reading: Reading, columns: Sequence[Column]) -> Iterator[Filter]:
    """An empty end date: `still open`, `unshipped`, `ongoing`, when just one date column has gaps."""
    open_ = [c for c in columns if c.kind == "date" and c.blanks]
    for match in _UNDONE.finditer(reading.text) if len(open_) == 1 else ():
        at = reading.index(match.start(1) if match[1] else match.start(2))
        if reading.is_free(at, at + 1) and reading.words[at].content:
            reading.use(at, at + 1, strong=True)
            yield Filter(open_[0], "blank", (), at)


def flags(reading: Reading, columns: Sequence[Column]) -> Iterator[Filter]:
    """Yes-or-no columns the question names (`with SSO`), and dates denied (`not shipped` is an empty date)."""
    telling = [c for c in columns if c.kind == "boolean" or (c.kind == "date" and c.blanks)]
    for at, word in list(reading.free()):
        for column in telling:
            if not any(alike(word.stem, s) for s in column.stems):
                continue
            if column.kind == "boolean":
                yes: str | bool = (
                    next((v for v in column.values if v.lower()[0] in "yt"), "yes") if column.values else True
                )
                no: str | bool = (
                    next((v for v in column.values if v.lower()[0] in "nf"), "no") if column.values else False
                )
                reading.use(at, at + 1, strong=True)
                yield Filter(column, "=", (no if negated(reading, at) else yes,), at)
                break
            denied = negated(reading, at) or bool(_STILL.search(reading.text[: word.start]))
            if denied:
                reading.use(at, at + 1, strong=True)
                yield Filter(column, "blank", (), at)
                break
