"""The filters a question names: identifiers, values, free phrases and yes-or-no columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from rapidfuzz import fuzz

from program.knowledge.tables_query import Filter
from program.knowledge.tables_reading import Reading
from program.knowledge.tables_schema import Column, Table
from program.knowledge.tables_words import NEGATORS, alike, squash, stem

CLOSE_SPELLING = 86.0
MOST_INITIALS = 5
_DEMONYM = re.compile(r".{2,}(?:ish|ch|an|ese|ss)s?")
Near = Callable[[str, Sequence[str]], Sequence[float]]
"""Cosines of a text with several others."""


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
    for at, word in reading.free():
        for column in columns:
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


def values(reading: Reading, columns: Sequence[Column], near: Near) -> Iterator[Filter]:
    """Filters on values the question names, exactly, by initials, by people's name for a land, or nearly so."""
    named: dict[str, list[tuple[Column, str]]] = {}
    for column in columns:
        for value in column.values if column.kind == "text" else ():
            named.setdefault(_stemmed(value), []).append((column, value))
    yield from _exact(reading, named)
    short = [(c, v) for c in columns if c.kind == "text" and not c.prose for v in c.values]
    for at, word in list(reading.free()):
        letters = squash(word.text)
        brief = word.content and len(letters) <= MOST_INITIALS
        hits = [(c, v) for c, v in short if letters in _initials(v)] if brief else []
        hits = hits or _partly(reading, at, short)
        if hits:
            reading.use(at, at + 1, strong=True)
            yield _filter(reading, hits, at)
    for size in (3, 2, 1):
        for at in range(len(reading.words) - size + 1):
            window = reading.words[at : at + size]
            if not reading.is_free(at, at + size) or not all(w.content for w in (window[0], window[-1])):
                continue
            hits = _close(squash("".join(w.low for w in window)), short)
            if hits:
                reading.use(at, at + size, strong=True)
                yield _filter(reading, hits, at)
    for at, word in list(reading.free()):
        if word.text[:1].isupper() and _DEMONYM.fullmatch(word.low):
            single = list(dict.fromkeys(v for _, v in short if v[:1].isupper()))
            cosines = near(word.text, single)
            if len(cosines) and max(cosines) >= 0.6:
                best = single[max(range(len(single)), key=lambda i: cosines[i])]
                reading.use(at, at + 1, strong=True)
                yield _filter(reading, [(c, v) for c, v in short if v == best], at)


def _exact(reading: Reading, named: dict[str, list[tuple[Column, str]]]) -> Iterator[Filter]:
    for size in range(min(6, len(reading.words)), 0, -1):
        for at in range(len(reading.words) - size + 1):
            if not reading.is_free(at, at + size):
                continue
            window = reading.words[at : at + size]
            hits = named.get("".join(squash(w.stem) for w in window)) or named.get(
                squash("".join(w.low for w in window))
            )
            if not hits or (
                all(not w.content for w in window) and not any(w.text == v for w in window for _, v in hits)
            ):
                continue
            reading.use(at, at + size, strong=True)
            yield _filter(reading, hits, at)


def _filter(reading: Reading, hits: Sequence[tuple[Column, str]], at: int) -> Filter:
    """One filter: the column that the question also names, else the first; all values of it that fit."""
    stems = {w.stem for w in reading.words}
    column = max(hits, key=lambda hit: len(stems & set(hit[0].stems)))[0]
    fitting = tuple(dict.fromkeys(v for c, v in hits if c is column))
    away = negated(reading, at)
    if len(fitting) > 1:
        return Filter(column, "not in" if away else "in", fitting, at)
    return Filter(column, "<>" if away else "=", fitting, at)


def _stemmed(value: str) -> str:
    return "".join(squash(stem(w.lower())) for w in re.findall(r"[^\W_]+(?:['’][^\W_]+)?", value)) or value.lower()


@lru_cache(maxsize=20_000)
def _initials(value: str) -> tuple[str, ...]:
    """How a value of several capitalised words may be shortened."""
    parts = [p for p in value.split() if p[:1].isupper()]
    initials = "".join(p[0] for p in parts).lower()
    return (initials, initials + "a") if len(parts) >= 2 else ()


def _partly(reading: Reading, at: int, short: Sequence[tuple[Column, str]]) -> list[tuple[Column, str]]:
    """Values that hold the word, when it is written as a name or stands beside the column's own."""
    word = reading.words[at]
    beside = {w.stem for w in reading.words[max(0, at - 2) : at + 3]}
    if not word.content or len(word.low) < 3:
        return []
    name = word.text[0].isupper() and at > 0 and reading.text[: word.start].rstrip()[-1:] not in ".?!:"
    return [
        (c, v)
        for c, v in short
        if name or not beside.isdisjoint(c.stems)
        if word.stem in {stem(p.lower()) for p in v.split()}
    ]


def _close(text: str, short: Sequence[tuple[Column, str]]) -> list[tuple[Column, str]]:
    if len(text) < 5:
        return []
    best: list[tuple[float, Column, str]] = []
    for column, value in short:
        other = squash(value)
        if other[:1] != text[:1] or re.findall(r"\d", other) != re.findall(r"\d", text):
            continue
        ratio = fuzz.ratio(text, other, score_cutoff=CLOSE_SPELLING)
        if ratio:
            best.append((ratio, column, value))
    top = max((b[0] for b in best), default=0.0)
    return [(c, v) for ratio, c, v in best if ratio == top]


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
    for value in column.values:
        stems, spans = _taken_apart(value)
        for i in range(len(stems) - len(wanted) + 1):
            if stems[i : i + len(wanted)] == wanted:
                return value[spans[i][0] : spans[i + len(wanted) - 1][1]]
    return ""


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
    for at, word in list(reading.free()):
        for column in columns:
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
            if column.kind == "date" and column.blanks and denied:
                reading.use(at, at + 1, strong=True)
                yield Filter(column, "blank", (), at)
                break
