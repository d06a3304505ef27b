"""What the question wants added up, averaged or ordered by."""

from __future__ import annotations

import re
from collections.abc import Sequence

from program.models.rules.tables_naming import GUESS, SYNONYM, Naming
from program.models.rules.tables_query import Measure
from program.models.rules.tables_words import DIMENSIONS, Word, alike
from program.models.table_schema import Column

_EACH_PIECE = frozenset({"unit", "each", "price", "per"})


def asks_for(word: Word, column: Column) -> bool:
    """True when a word is one that asks for what the column measures (`long` for minutes)."""
    return bool(column.dimension) and word.stem in DIMENSIONS[column.dimension].asks


def names(word: Word, column: Column) -> bool:
    """True when a word is one of the column's telling words."""
    return any(alike(word.stem, s) for s in column.stems)


def measured(naming: Naming, dimension: str = "", after: int = -1) -> Measure | None:
    """The number column asked about: named, else of that dimension, else by meaning; its words are used.

    Words within three after the index `after` count half as much again.
    """
    scored: list[tuple[float, int, Column]] = []
    for order, column in enumerate(naming.numeric):
        hits = 2.0 * (bool(dimension) and column.dimension == dimension)
        for at, word in enumerate(naming.reading.words):
            if at in naming.nouns:
                continue
            weight = 3.0 if names(word, column) else 1.0 if asks_for(word, column) else 0.0
            hits += weight * (1.5 if 0 <= after < at <= after + 3 else 1.0)
        if hits:
            scored.append((hits, -order, column))
    if dimension:
        scored = [s for s in scored if s[2].dimension == dimension]
    if scored:
        column = max(scored)[2] if len(scored) == 1 else max(scored, key=lambda s: s[:2])[2]
        use(naming, column)
        return Measure((column,))
    return None if dimension else _by_meaning(naming)


def use(naming: Naming, column: Column) -> None:
    """Uses the words that name a column or ask for what it measures."""
    for at, word in list(naming.reading.free()):
        if names(word, column):
            naming.reading.use(at, at + 1, strong=True)
        elif asks_for(word, column):
            naming.reading.use(at, at + 1)


def _by_meaning(naming: Naming) -> Measure | None:
    numeric = naming.numeric
    best: tuple[float, int, Column] | None = None
    for at, word in list(naming.reading.free()) if numeric else ():
        if not word.content:
            continue
        cosines = naming.near(word.low, [" ".join(c.words) for c in numeric])
        top = max(range(len(numeric)), key=lambda i: cosines[i])
        if cosines[top] >= SYNONYM and (best is None or cosines[top] > best[0]):
            best = cosines[top], at, numeric[top]
    if best is None:
        return None
    naming.reading.use(best[1], best[1] + 1, GUESS)
    return Measure((best[2],))


def worth(naming: Naming, measure: Measure) -> Measure:
    """Price times quantity, when the price is of one piece and a quantity is beside it."""
    price = measure.columns[0]
    if len(measure.columns) != 1 or price.dimension != "money" or _EACH_PIECE.isdisjoint(price.words):
        return measure
    own = [c for c in naming.columns if c.table == price.table and c.dimension == "quantity" and c.kind == "integer"]
    return Measure((own[0], price)) if own else measure


def default(naming: Naming) -> Measure | None:
    """What makes a row big when nothing says: its money, else its first number."""
    money: Sequence[Column] = [c for c in naming.numeric if c.dimension == "money"] or naming.numeric
    return worth(naming, Measure((money[0],))) if money else None


def days_between(naming: Naming) -> Measure | None:
    """The days from one date column of the table to the other, when it has just two."""
    dated = [c for c in naming.table.columns if c.kind == "date"]
    return Measure((dated[0], dated[1]), days=True) if len(dated) == 2 and naming.schema.dialect == "sqlite" else None


def moment(naming: Naming) -> Measure | None:
    """The date column the question names, else the first."""
    dated = naming.dated
    for column in dated:
        if any(names(w, column) for w in naming.reading.words):
            use(naming, column)
            return Measure((column,))
    return Measure((dated[0],)) if dated else None


def spelt_out(naming: Naming, column: Column) -> bool:
    """True when the question says two words of the column's name, so that it alone is meant."""
    said = [s for s in column.stems if any(alike(w.stem, s) for w in naming.reading.words)]
    return len(said) >= 2


def wants_money(text: str) -> bool:
    """True when the text speaks of money."""
    return bool(re.search(r"[£$€]|\b(?:pounds|euros|dollars|money|value|worth)\b", text, re.IGNORECASE))
