"""The values of a database that a question names: exactly, by initials, by people's name for a land, or nearly so."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from rapidfuzz import fuzz

from program.models.rules.tables_filters import negated
from program.models.rules.tables_query import Filter
from program.models.rules.tables_reading import Reading
from program.models.rules.tables_words import squash, stem
from program.models.table_schema import Column

CLOSE_SPELLING = 86.0
MOST_INITIALS = 5
MOST_WORDS = 6
LAND = 0.6
"""Cosine from which a people's name stands for a value."""
_DEMONYM = re.compile(r".{2,}(?:ish|ch|an|ese|ss)s?")
Near = Callable[[str, Sequence[str]], Sequence[float]]
"""Cosines of a text with several others."""

Hit = tuple[Column, str]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Vocabulary:
    """The values of text columns by how a question may name them; `short` are those of columns that are no prose."""

    whole: Mapping[str, Sequence[Hit]]
    short: Sequence[Hit]
    initials: Mapping[str, Sequence[Hit]]
    parts: Mapping[str, Sequence[Hit]]
    spelt: Mapping[tuple[str, tuple[str, ...]], Sequence[tuple[str, Hit]]]
    """By first letter and digits, with the letters of each."""

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Vocabulary:
        every = [(c, v) for c in columns if c.kind == "text" for v in c.values]
        short = [(c, v) for c, v in every if not c.prose]
        spelt = [(squash(v), (c, v)) for c, v in short]
        return cls(
            _grouped((_stemmed(v), (c, v)) for c, v in every),
            short,
            _grouped((letters, (c, v)) for c, v in short for letters in _initials(v)),
            _grouped((part, (c, v)) for c, v in short for part in {stem(p.lower()) for p in v.split()}),
            _grouped(((text[:1], _digits(text)), (text, hit)) for text, hit in spelt),
        )


_vocabulary = lru_cache(maxsize=64)(Vocabulary.of)


def values(reading: Reading, columns: tuple[Column, ...], near: Near) -> Iterator[Filter]:
    """Filters on the values of columns that the question names."""
    known = _vocabulary(columns)
    yield from _exact(reading, known)
    for at, word in list(reading.free()):
        letters = squash(word.text)
        brief = word.content and len(letters) <= MOST_INITIALS
        hits = (known.initials.get(letters, ()) if brief else ()) or _partly(reading, at, known)
        if hits:
            reading.use(at, at + 1, strong=True)
            yield _filter(reading, hits, at)
    for size in (3, 2, 1):
        for at in range(len(reading.words) - size + 1):
            window = reading.words[at : at + size]
            if not reading.is_free(at, at + size) or not (window[0].content and window[-1].content):
                continue
            if hits := _close(squash("".join(w.low for w in window)), known):
                reading.use(at, at + size, strong=True)
                yield _filter(reading, hits, at)
    for at, word in list(reading.free()):
        if word.text[:1].isupper() and _DEMONYM.fullmatch(word.low):
            single = list(dict.fromkeys(v for _, v in known.short if v[:1].isupper()))
            cosines = near(word.text, single)
            if len(cosines) and max(cosines) >= LAND:
                best = single[max(range(len(single)), key=lambda i: cosines[i])]
                reading.use(at, at + 1, strong=True)
                yield _filter(reading, [(c, v) for c, v in known.short if v == best], at)


def _exact(reading: Reading, known: Vocabulary) -> Iterator[Filter]:
    stems = [squash(w.stem) for w in reading.words]
    lows = [squash(w.low) for w in reading.words]
    for size in range(min(MOST_WORDS, len(reading.words)), 0, -1):
        for at in range(len(reading.words) - size + 1):
            upto = at + size
            if not reading.is_free(at, upto):
                continue
            hits = known.whole.get("".join(stems[at:upto])) or known.whole.get("".join(lows[at:upto]))
            if not hits:
                continue
            window = reading.words[at:upto]
            if not any(w.content for w in window) and not any(w.text == v for w in window for _, v in hits):
                continue
            reading.use(at, upto, strong=True)
            yield _filter(reading, hits, at)


def _filter(reading: Reading, hits: Sequence[Hit], at: int) -> Filter:
    """One filter: the column that the question also names, else the first; all values of it that fit."""
    stems = {w.stem for w in reading.words}
    column = max(hits, key=lambda hit: len(stems & set(hit[0].stems)))[0]
    fitting = tuple(dict.fromkeys(v for c, v in hits if c is column))
    away = negated(reading, at)
    if len(fitting) > 1:
        return Filter(column, "not in" if away else "in", fitting, at)
    return Filter(column, "<>" if away else "=", fitting, at)


def _partly(reading: Reading, at: int, known: Vocabulary) -> list[Hit]:
    """Values that hold the word, when it is written as a name or stands beside the column's own."""
    word = reading.words[at]
    if not word.content or len(word.low) < 3:
        return []
    beside = {w.stem for w in reading.words[max(0, at - 2) : at + 3]}
    name = word.text[0].isupper() and at > 0 and reading.text[: word.start].rstrip()[-1:] not in ".?!:"
    return [(c, v) for c, v in known.parts.get(word.stem, ()) if name or not beside.isdisjoint(c.stems)]


def _close(text: str, known: Vocabulary) -> list[Hit]:
    """The values spelt most nearly so, with the same first letter and digits."""
    if len(text) < 5:
        return []
    alike = [
        (ratio, hit)
        for other, hit in known.spelt.get((text[:1], _digits(text)), ())
        if (ratio := fuzz.ratio(text, other, score_cutoff=CLOSE_SPELLING))
    ]
    top = max((ratio for ratio, _ in alike), default=0.0)
    return [hit for ratio, hit in alike if ratio == top]


def _stemmed(value: str) -> str:
    return "".join(squash(stem(w.lower())) for w in re.findall(r"[^\W_]+(?:['’][^\W_]+)?", value)) or value.lower()


def _initials(value: str) -> tuple[str, ...]:
    """How a value of several capitalised words may be shortened."""
    parts = [p for p in value.split() if p[:1].isupper()]
    initials = "".join(p[0] for p in parts).lower()
    return (initials, initials + "a") if len(parts) >= 2 else ()


def _digits(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d", text))


def _grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    found: dict[Key, list[Value]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)
