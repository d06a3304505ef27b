"""What `how many` counts (rows, different values, a number column added up), and what a share is of."""

from __future__ import annotations

import re
from collections.abc import Sequence

from program.models.rules import tables_measures as measures
from program.models.rules.tables_cues import VERBS
from program.models.rules.tables_naming import Naming
from program.models.rules.tables_query import Filter, Measure, Query
from program.models.rules.tables_reading import Reading
from program.models.rules.tables_words import Word

_COUNT = re.compile(
    r"\bhow many\b|\bhow often\b|\bnumber of\b|\bcount\b"
    r"|\b(?:are|were|is|was|have|has|did) (?:there |we |they )*any\b",
    re.IGNORECASE,
)
_NO_NOUN = frozenset(
    ["did", "do", "does", "were", "are", "was", "is", "have", "has", "had", "times", "in", "from", "where", "on", "at"]
)
_NOUNS_WITHIN = 5


def counted(naming: Naming, filters: Sequence[Filter], total: bool) -> Query | None:
    """Intent, measure and asked column of a counting question; None when it is none."""
    reading, rows = naming.reading, Query(naming.table, "count")
    match = _COUNT.search(reading.text)
    if not match:
        return None
    if re.search(r"(?:\bany|often)$", match.group(), re.IGNORECASE):
        return rows
    first = reading.index(match.end())
    for at in range(first, min(first + _NOUNS_WITHIN, len(reading.words))):
        word = reading.words[at]
        if at in naming.nouns:
            return rows
        if word.low in _NO_NOUN:
            return rows if at > first or word.low == "times" else None
        if at not in reading.used:
            found = _of_column(naming, filters, at, word, total)
            if found:
                return found
        elif amount := pieces(naming, filters, at):
            return Query(naming.table, "sum", measure=amount)
    return rows


def _of_column(naming: Naming, filters: Sequence[Filter], at: int, word: Word, total: bool) -> Query | None:
    texts = [c for c in naming.columns if c.kind in ("text", "boolean") and not c.prose]
    column = naming.label_of(word) or next((c for c in texts if measures.names(word, c) and c.stems[-1:]), None)
    if column:
        naming.mark(column, at)
        return Query(naming.table, "distinct count", asked=(column,))
    numeric = naming.numeric
    amount = next((c for c in numeric if measures.names(word, c)), None)
    amount = amount or next((c for c in numeric if measures.asks_for(word, c)), None)
    if amount:
        naming.reading.use(at, at + 1, strong=True)
        measures.use(naming, amount)
        one = any(f.op == "=" and (f.column.key or f.column == naming.table.label) for f in filters)
        one = one or any(f.op == "=" and f.column == naming.table.columns[0] for f in filters)
        return Query(naming.table, "lookup" if one and not total else "sum", measure=Measure((amount,)))
    if word.stem == "day" and (days := measures.days_between(naming)):
        naming.reading.use(at, at + 1)
        return Query(naming.table, "lookup", measure=days)
    return None


def pieces(naming: Naming, filters: Sequence[Filter], at: int) -> Measure | None:
    """The amount, when what is counted is a value (`how many bolts`, `most wheat`) and no row follows it."""
    if any(i in naming.nouns for i in range(at + 1, at + 4)):
        return None
    if not any(f.at == at and f.op in ("=", "in") for f in filters):
        return None
    return next((Measure((c,)) for c in naming.numeric if c.dimension in ("quantity", "weight")), None)


def part_and_whole(reading: Reading, filters: Sequence[Filter]) -> tuple[tuple[Filter, ...], tuple[Filter, ...]]:
    """The filters of the part and of the whole: those between `of` and the verb, and dates, make the whole."""
    verb = next((i for i, w in enumerate(reading.words) if i > 1 and w.low in VERBS), -1)
    of = next((i for i, w in enumerate(reading.words) if w.low == "of"), -1)
    whole = tuple(f for f in filters if of < f.at < verb or (f.column.kind == "date" and f.op != "blank"))
    parts = tuple(f for f in filters if f not in whole)
    return (parts, whole) if parts else (whole, ())
