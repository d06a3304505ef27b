"""Filters that a question names: identifiers, values, phrases, yes-or-no columns, open dates."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from program.models.rules.sql_query import Filter
from program.models.rules.table_words import NEGATORS, QuestionWords, is_word_of, squash_text, stem_word, stem_words
from program.models.table_schema import Column, TableSchema

_STILL = re.compile(r"(?i)\b(?:still|yet) (?:to be |awaiting )?$")
_UNDONE = re.compile(r"(?i)\bstill (\w+)|\b(un\w+ed|ongoing|outstanding|unresolved|pending)\b")
CLOSE_SPELLING = 0.86
MOST_INITIALS = 5
MOST_WORDS = 6
LAND = 0.6
"""Cosine from which a people's name stands for a value."""
_DEMONYM = re.compile(r".{2,}(?:ish|ch|an|ese|ss)s?")
Near = Callable[[str, Sequence[str]], Sequence[float]]
"""Cosines of a text with several others."""
Hit = tuple[Column, str]


def is_negated(question: QuestionWords, at: int) -> bool:
    """Tell whether a denial stands within four words before, with no clause between."""
    before = question.text[question.words[max(0, at - 5)].start : question.words[at].start]
    clause = re.split(r"[;:.!?]|,\s*(?:and|which|who|what|how|where|when)\b", before)[-1]
    found = list(NEGATORS.finditer(clause))
    if not found:
        return False
    denied = question.words[at].start - len(clause) + found[-1].end()
    between = [word for word in question.words[max(0, at - 5) : at] if word.start >= denied]
    return all(word.low not in ("but", "only") for word in between) and len(between) <= 4


def identifier_filters(question: QuestionWords, columns: Sequence[Column], table: TableSchema) -> Iterator[Filter]:
    """Yield an equality filter for each identifier in the question.

    One is known by its shape, or as a number after the table's name (`order 1042`).
    """
    shaped = [c for c in columns if c.shapes]
    for at, word in question.free_words():
        for column in shaped:
            shape = next((s for s in column.shapes if re.fullmatch(s, word.text, re.IGNORECASE)), None)
            if shape:
                text = word.text.upper() if not re.search(r"[a-z]", shape.replace(r"\d", "")) else word.text
                question.mark_used(at, at + 1, strong=True)
                yield Filter(column, "=", (text,), at)
                break
    for column in table.columns:
        if column.kind != "integer" or not column.key or not (column.unique or column.name.lower() == "id"):
            continue
        for at, word in question.free_words():
            before = [w.stem for w in question.words[max(0, at - 2) : at] if w.low not in ("number", "no", "id")]
            number = re.fullmatch(r"[0-9]{1,15}", word.text)
            if number and before and is_word_of(before[-1], table.words):
                question.mark_used(at, at + 1, strong=True)
                yield Filter(column, "=", (float(word.text),), at)


def phrase_filters(question: QuestionWords, columns: Sequence[Column]) -> Iterator[Filter]:
    """Yield a filter for each phrase of the question that a prose column holds.

    A single word counts only when it is written as a name.
    """
    for column in (c for c in columns if c.prose):
        for size in (5, 4, 3, 2, 1):
            for at in range(len(question.words) - size + 1):
                window = question.words[at : at + size]
                if not question.is_free(at, at + size) or not all(w.content for w in (window[0], window[-1])):
                    continue
                if size == 1 and not (window[0].text[0].isupper() and at > 0 and len(window[0].text) > 3):
                    continue
                found = _find_phrase(tuple(w.stem for w in window), column)
                if found:
                    question.mark_used(at, at + size, strong=True)
                    yield Filter(column, "lacks" if is_negated(question, at) else "contains", (found,), at)


def _find_phrase(wanted: tuple[str, ...], column: Column) -> str:
    if not _stems_in(column).issuperset(wanted):
        return ""
    for value in column.values:
        stems, spans = _take_apart(value)
        for i in range(len(stems) - len(wanted) + 1):
            if stems[i : i + len(wanted)] == wanted:
                return value[spans[i][0] : spans[i + len(wanted) - 1][1]]
    return ""


@lru_cache(maxsize=256)
def _stems_in(column: Column) -> frozenset[str]:
    return frozenset(one for value in column.values for one in _take_apart(value)[0])


@lru_cache(maxsize=20_000)
def _take_apart(value: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    parts = list(re.finditer(r"[^\W_]+(?:['’][^\W_]+)?", value))
    return tuple(stem_word(p.group().lower()) for p in parts), tuple(p.span() for p in parts)


def open_date_filters(question: QuestionWords, columns: Sequence[Column]) -> Iterator[Filter]:
    """Yield a filter on an empty date for words such as `still open` or `unshipped`.

    Yield nothing unless exactly one date column has gaps.
    """
    open_ = [c for c in columns if c.kind == "date" and c.blanks]
    for match in _UNDONE.finditer(question.text) if len(open_) == 1 else ():
        at = question.word_at(match.start(1) if match[1] else match.start(2))
        if question.is_free(at, at + 1) and question.words[at].content:
            question.mark_used(at, at + 1, strong=True)
            yield Filter(open_[0], "blank", (), at)


def flag_filters(question: QuestionWords, columns: Sequence[Column]) -> Iterator[Filter]:
    """Yield yes-or-no columns named (`with SSO`), and dates denied (`not shipped`)."""
    telling = [c for c in columns if c.kind == "boolean" or (c.kind == "date" and c.blanks)]
    for at, word in list(question.free_words()):
        for column in telling:
            if not is_word_of(word.stem, column.telling):
                continue
            if column.kind == "boolean":
                question.mark_used(at, at + 1, strong=True)
                yield Filter(column, "=", (_flag_value(column, not is_negated(question, at)),), at)
                break
            if is_negated(question, at) or _STILL.search(question.text[: word.start]):
                question.mark_used(at, at + 1, strong=True)
                yield Filter(column, "blank", (), at)
                break


def _flag_value(column: Column, flag: bool) -> str | bool:
    if not column.values:
        return flag
    return next((v for v in column.values if v.lower()[0] in ("yt" if flag else "nf")), "yes" if flag else "no")


@dataclass(frozen=True)
class _Vocabulary:
    """The values of text columns by how a question may name them; `short` leaves prose out."""

    whole: Mapping[str, Sequence[Hit]]
    short: Sequence[Hit]
    initials: Mapping[str, Sequence[Hit]]
    parts: Mapping[str, Sequence[Hit]]
    spelt: Mapping[tuple[str, tuple[str, ...]], Sequence[tuple[str, Hit]]]
    """By first letter and digits, with the letters of each."""


@lru_cache(maxsize=64)
def _read_vocabulary(columns: tuple[Column, ...]) -> _Vocabulary:
    every = [(c, v) for c in columns if c.kind == "text" for v in c.values]
    short = [(c, v) for c, v in every if not c.prose]
    spelt = [(squash_text(v), (c, v)) for c, v in short]
    return _Vocabulary(
        whole=_group_pairs((_stem_value(v), (c, v)) for c, v in every),
        short=short,
        initials=_group_pairs((letters, (c, v)) for c, v in short for letters in _shortened(v)),
        parts=_group_pairs((part, (c, v)) for c, v in short for part in {stem_word(p.lower()) for p in v.split()}),
        spelt=_group_pairs(((text[:1], _digits_in(text)), (text, hit)) for text, hit in spelt),
    )


def value_filters(question: QuestionWords, columns: tuple[Column, ...], near: Near) -> Iterator[Filter]:
    """Yield filters on the values of columns that the question names."""
    known = _read_vocabulary(columns)
    yield from _exact_filters(question, known)
    for at, word in list(question.free_words()):
        letters = squash_text(word.text)
        brief = word.content and len(letters) <= MOST_INITIALS
        hits = (known.initials.get(letters, ()) if brief else ()) or _partial_hits(question, at, known)
        if hits:
            question.mark_used(at, at + 1, strong=True)
            yield _filter_on(question, hits, at)
    for size in (3, 2, 1):
        for at in range(len(question.words) - size + 1):
            window = question.words[at : at + size]
            if not question.is_free(at, at + size) or not (window[0].content and window[-1].content):
                continue
            if hits := _close_hits(squash_text("".join(w.low for w in window)), known):
                question.mark_used(at, at + size, strong=True)
                yield _filter_on(question, hits, at)
    for at, word in list(question.free_words()):
        if word.text[:1].isupper() and _DEMONYM.fullmatch(word.low):
            single = list(dict.fromkeys(v for _, v in known.short if v[:1].isupper()))
            cosines = near(word.text, single)
            if len(cosines) and max(cosines) >= LAND:
                best = single[max(range(len(single)), key=lambda i: cosines[i])]
                question.mark_used(at, at + 1, strong=True)
                yield _filter_on(question, [(c, v) for c, v in known.short if v == best], at)


def _exact_filters(question: QuestionWords, known: _Vocabulary) -> Iterator[Filter]:
    stems = [squash_text(w.stem) for w in question.words]
    lows = [squash_text(w.low) for w in question.words]
    for size in range(min(MOST_WORDS, len(question.words)), 0, -1):
        for at in range(len(question.words) - size + 1):
            upto = at + size
            if not question.is_free(at, upto):
                continue
            hits = known.whole.get("".join(stems[at:upto])) or known.whole.get("".join(lows[at:upto]))
            if not hits:
                continue
            window = question.words[at:upto]
            if not any(w.content for w in window) and not any(w.text == v for w in window for _, v in hits):
                continue
            question.mark_used(at, upto, strong=True)
            yield _filter_on(question, hits, at)


def _filter_on(question: QuestionWords, hits: Sequence[Hit], at: int) -> Filter:
    """Filter on the column that the question also names, else the first, by all values that fit."""
    stems = {w.stem for w in question.words}
    column = max(hits, key=lambda hit: len(stems & set(stem_words(hit[0].telling))))[0]
    fitting = tuple(dict.fromkeys(v for c, v in hits if c is column))
    away = is_negated(question, at)
    if len(fitting) > 1:
        return Filter(column, "not in" if away else "in", fitting, at)
    return Filter(column, "<>" if away else "=", fitting, at)


def _partial_hits(question: QuestionWords, at: int, known: _Vocabulary) -> list[Hit]:
    """Return values that hold the word, if written as a name or beside the column's own."""
    word = question.words[at]
    if not word.content or len(word.low) < 3:
        return []
    beside = {w.stem for w in question.words[max(0, at - 2) : at + 3]}
    name = word.text[0].isupper() and at > 0 and question.text[: word.start].rstrip()[-1:] not in ".?!:"
    return [(c, v) for c, v in known.parts.get(word.stem, ()) if name or not beside.isdisjoint(stem_words(c.telling))]


def _close_hits(text: str, known: _Vocabulary) -> list[Hit]:
    """Return the values spelt most nearly so, with the same first letter and digits."""
    if len(text) < 5:
        return []
    matcher, alike = SequenceMatcher(b=text, autojunk=False), list[tuple[float, Hit]]()
    for other, hit in known.spelt.get((text[:1], _digits_in(text)), ()):
        matcher.set_seq1(other)
        if min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= CLOSE_SPELLING:
            alike.append((matcher.ratio(), hit))
    top = max((ratio for ratio, _ in alike), default=0.0)
    return [hit for ratio, hit in alike if ratio == top >= CLOSE_SPELLING]


def _stem_value(value: str) -> str:
    return "".join(map(squash_text, _take_apart(value)[0])) or value.lower()


def _shortened(value: str) -> tuple[str, ...]:
    parts = [p for p in value.split() if p[:1].isupper()]
    initials = "".join(p[0] for p in parts).lower()
    return (initials, initials + "a") if len(parts) >= 2 else ()


def _digits_in(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d", text))


def _group_pairs(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)
