"""Tables and columns that the words of a question name, by stem or by meaning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from program.models.rules.scoring import Encoder
from program.models.rules.sql_query import MeasureExpression
from program.models.rules.table_words import (
    ASKED_BY,
    SUPERLATIVES,
    QuestionWords,
    Word,
    is_word_of,
    same_word,
    stem_words,
)
from program.models.table_schema import Column, Schema, TableSchema

SYNONYM = 0.6
"""Cosine from which a word stands for a table's or column's name."""
HEAD_SYNONYM = 0.36
"""The same for the noun right after a superlative or `how many`, which can only name a kind of row."""
GUESS = 0.7
"""What a word counts that was matched by meaning only."""
_EACH_PIECE = frozenset({"unit", "each", "price", "per"})


@dataclass
class TableTrial:
    """One question tried on one table and the columns it reaches."""

    question: QuestionWords
    table: TableSchema
    columns: tuple[Column, ...]
    schema: Schema
    embedder: Encoder | None
    nouns: list[int] = field(default_factory=list)
    """Indices of the words that name the table."""

    @property
    def numeric(self) -> list[Column]:
        """Return the table's own columns that can be added up.

        Those of linked tables would count repeatedly.
        """
        return [c for c in self.table.columns if c.number]

    @property
    def dated(self) -> list[Column]:
        """The date columns that hold a date."""
        return [c for c in self.columns if c.kind == "date" and c.high]

    def cosines(self, text: str, others: Sequence[str]) -> list[float]:
        """Return the cosines of a text with others; 0 without an encoder."""
        if self.embedder is None:
            return [0.0] * len(others)
        rows = self.embedder.encode([text, *others])
        return [float(x) for x in rows[1:] @ rows[0]]

    def mark_table(self) -> None:
        """Mark the words that name the table as used.

        Where none does, the first word that means this table and nothing else is marked.
        """
        for at, word in list(self.question.free_words()):
            if is_word_of(word.stem, self.table.words):
                self.nouns.append(at)
                self.question.mark_used(at, at + 1, strong=True)
        if self.nouns:
            return
        own = self.schema.tables.index(self.table)
        names = [" ".join(t.words) for t in self.schema.tables]
        for at, word in list(self.question.free_words()):
            if not word.content or self._names_something(word):
                continue
            cosines = self.cosines(word.low, names)
            others = max((c for i, c in enumerate(cosines) if i != own), default=0.0)
            enough = HEAD_SYNONYM if self._is_head(at) else SYNONYM
            if cosines[own] >= enough and cosines[own] > others:
                self.nouns.append(at)
                self.question.mark_used(at, at + 1, GUESS, strong=True)
                return

    def _names_something(self, word: Word) -> bool:
        named = [*(t.words for t in self.schema.tables), *(c.telling for c in self.columns)]
        asked = any(word.stem in ASKED_BY[c.dimension] for c in self.numeric if c.dimension)
        return asked or any(is_word_of(word.stem, name) for name in named)

    def _is_head(self, at: int) -> bool:
        before = self.question.words[max(0, at - 2) : at]
        return bool(before) and (before[-1].low in SUPERLATIVES or [w.low for w in before] == ["how", "many"])

    def column_named(self, word: Word, columns: Sequence[Column]) -> Column | None:
        """Return the column a word names: by its last telling word, then by any."""
        for column in columns:
            last = same_word(word.stem, stem_words(column.telling)[-1])
            if last and (len(column.telling) == 1 or column.kind == "text"):
                return column
        return next((c for c in columns if is_word_of(word.stem, c.telling)), None)

    def label_of(self, word: Word) -> Column | None:
        """Return what names the rows of a linked table, when the word names that table."""
        for key in self.table.foreign_keys:
            other = self.schema.table(key.to_table)
            if is_word_of(word.stem, other.words):
                return other.label
        return None

    def column_meant(self, word: Word, columns: Sequence[Column]) -> Column | None:
        """Return the column whose name is nearest in meaning to the word, if near enough."""
        if not columns or not word.content:
            return None
        cosines = self.cosines(word.low, [" ".join(c.words) for c in columns])
        best = max(range(len(columns)), key=lambda i: cosines[i])
        return columns[best] if cosines[best] >= SYNONYM else None

    def mark_column(self, column: Column, at: int) -> None:
        """Mark the word at `at`, and those right after that name the column, as used."""
        self.question.mark_used(at, at + 1, strong=True)
        while self.question.is_free(at + 1, at + 2) and at + 1 < len(self.question.words):
            at += 1
            word = self.question.words[at]
            if word.low not in column.words and not is_word_of(word.stem, column.telling):
                return
            self.question.mark_used(at, at + 1)

    def find_measure(self, dimension: str = "", after: int = -1) -> MeasureExpression | None:
        """Return the number column asked about, and use its words.

        It is named, else of that dimension, else near in meaning. Words within three after the index
        `after` count half as much again.
        """
        scored: list[tuple[float, int, Column]] = []
        for order, column in enumerate(self.numeric):
            hits = 2.0 * (bool(dimension) and column.dimension == dimension)
            for at, word in enumerate(self.question.words):
                if at in self.nouns:
                    continue
                weight = 3.0 if is_word_of(word.stem, column.telling) else 1.0 if asks_for(word, column) else 0.0
                hits += weight * (1.5 if 0 <= after < at <= after + 3 else 1.0)
            if hits:
                scored.append((hits, -order, column))
        if dimension:
            scored = [s for s in scored if s[2].dimension == dimension]
        if scored:
            column = max(scored, key=lambda s: s[:2])[2]
            self.use_column(column)
            return MeasureExpression((column,))
        return None if dimension else self._by_meaning()

    def use_column(self, column: Column) -> None:
        """Use the words that name a column or ask for what it measures."""
        for at, word in list(self.question.free_words()):
            if is_word_of(word.stem, column.telling):
                self.question.mark_used(at, at + 1, strong=True)
            elif asks_for(word, column):
                self.question.mark_used(at, at + 1)

    def _by_meaning(self) -> MeasureExpression | None:
        numeric = self.numeric
        best: tuple[float, int, Column] | None = None
        for at, word in list(self.question.free_words()) if numeric else ():
            if not word.content:
                continue
            cosines = self.cosines(word.low, [" ".join(c.words) for c in numeric])
            top = max(range(len(numeric)), key=lambda i: cosines[i])
            if cosines[top] >= SYNONYM and (best is None or cosines[top] > best[0]):
                best = cosines[top], at, numeric[top]
        if best is None:
            return None
        self.question.mark_used(best[1], best[1] + 1, GUESS)
        return MeasureExpression((best[2],))

    def price_times_quantity(self, measure: MeasureExpression) -> MeasureExpression:
        """Multiply the price of one piece by the quantity beside it.

        Any other measure comes back as it is.
        """
        price = measure.columns[0]
        if len(measure.columns) != 1 or price.dimension != "money" or _EACH_PIECE.isdisjoint(price.words):
            return measure
        beside = [c for c in self.columns if c.table == price.table and c.kind == "integer"]
        own = [c for c in beside if c.dimension == "quantity"]
        return MeasureExpression((own[0], price)) if own else measure

    def default_measure(self) -> MeasureExpression | None:
        """Return what makes a row big when the question does not say.

        It is the table's money, else its first number.
        """
        money: Sequence[Column] = [c for c in self.numeric if c.dimension == "money"] or self.numeric
        return self.price_times_quantity(MeasureExpression((money[0],))) if money else None

    def days_between(self) -> MeasureExpression | None:
        """Return the days from the table's first date column to its second.

        Return None unless it has just two and the dialect is SQLite.
        """
        dated = [c for c in self.table.columns if c.kind == "date"]
        if len(dated) != 2 or self.schema.dialect != "sqlite":
            return None
        return MeasureExpression((dated[0], dated[1]), days=True)

    def date_measure(self) -> MeasureExpression | None:
        """Return the date column the question names, else the first."""
        dated = self.dated
        for column in dated:
            if any(is_word_of(w.stem, column.telling) for w in self.question.words):
                self.use_column(column)
                return MeasureExpression((column,))
        return MeasureExpression((dated[0],)) if dated else None

    def spelt_out(self, column: Column) -> bool:
        """Tell whether the question says two words of the column's name."""
        words = self.question.words
        return sum(any(same_word(w.stem, s) for w in words) for s in stem_words(column.telling)) >= 2


def asks_for(word: Word, column: Column) -> bool:
    """Tell whether a word asks for what the column measures (`long` for minutes)."""
    return bool(column.dimension) and word.stem in ASKED_BY[column.dimension]


def wants_money(text: str) -> bool:
    """Tell whether the text speaks of money."""
    return bool(re.search(r"[£$€]|\b(?:pounds|euros|dollars|money|value|worth)\b", text, re.IGNORECASE))
