"""Which table or column a word of the question names: by its stem, else by its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from program.models.embedded.encoder import Embedder
from program.models.rules.tables_reading import Reading
from program.models.rules.tables_words import DIMENSIONS, SUPERLATIVES, Word, alike, name_words
from program.models.table_schema import Column, Schema, Table

SYNONYM = 0.6
"""Cosine from which a word stands for a table's or column's name."""
HEAD_SYNONYM = 0.36
"""The same for the noun right after a superlative or `how many`, which can only name a kind of row."""
GUESS = 0.7
"""What a word counts that was matched by meaning only."""


@dataclass
class Naming:
    """One question tried on one table and the columns it reaches; `nouns` are the words that name the table."""

    reading: Reading
    table: Table
    columns: tuple[Column, ...]
    schema: Schema
    embedder: Embedder | None
    nouns: list[int] = field(default_factory=list)

    @property
    def numeric(self) -> list[Column]:
        """The table's own columns that can be added up; a linked one would count once for every row pointing there."""
        return [c for c in self.table.columns if c.number]

    @property
    def dated(self) -> list[Column]:
        """The date columns that hold a date."""
        return [c for c in self.columns if c.kind == "date" and c.high]

    def near(self, text: str, others: Sequence[str]) -> list[float]:
        """Cosines of a text with others; 0 without an embedder."""
        if self.embedder is None:
            return [0.0] * len(others)
        rows = self.embedder.encode([text, *others])
        return [float(x) for x in rows[1:] @ rows[0]]

    def mark_table(self) -> None:
        """Uses the words that name the table, or the first of like meaning that names nothing else."""
        for at, word in list(self.reading.free()):
            if any(alike(word.stem, s) for s in self.table.stems):
                self.nouns.append(at)
                self.reading.use(at, at + 1, strong=True)
        if self.nouns:
            return
        own = self.schema.tables.index(self.table)
        names = [" ".join(name_words(t.name)) for t in self.schema.tables]
        for at, word in list(self.reading.free()):
            if not word.content or self._names_something(word):
                continue
            cosines = self.near(word.low, names)
            others = max((c for i, c in enumerate(cosines) if i != own), default=0.0)
            enough = HEAD_SYNONYM if self._is_head(at) else SYNONYM
            if cosines[own] >= enough and cosines[own] > others:
                self.nouns.append(at)
                self.reading.use(at, at + 1, GUESS, strong=True)
                return

    def _names_something(self, word: Word) -> bool:
        stems = [s for t in self.schema.tables for s in t.stems] + [s for c in self.columns for s in c.stems]
        units = [DIMENSIONS[c.dimension].asks for c in self.numeric if c.dimension]
        return any(alike(word.stem, s) for s in stems) or any(word.stem in asks for asks in units)

    def _is_head(self, at: int) -> bool:
        before = self.reading.words[max(0, at - 2) : at]
        return bool(before) and (before[-1].low in SUPERLATIVES or [w.low for w in before] == ["how", "many"])

    def named(self, word: Word, columns: Sequence[Column]) -> Column | None:
        """The column a word names: by its last telling word, then by any."""
        for column in columns:
            if alike(word.stem, column.stems[-1]) and (len(column.stems) == 1 or column.kind == "text"):
                return column
        return next((c for c in columns if any(alike(word.stem, s) for s in c.stems)), None)

    def label_of(self, word: Word) -> Column | None:
        """What names the rows of a table this one points at, when the word names that table."""
        for link in self.table.links:
            other = self.schema.table(link.to_table)
            if any(alike(word.stem, s) for s in other.stems):
                if other.label.name != link.to_column:
                    return other.label
                return next(c for c in self.table.columns if c.name == link.column)
        return None

    def pair(self, at: int, columns: Sequence[Column]) -> Column | None:
        """The column whose telling words are those at `at` and after it."""
        two = self.reading.words[at : at + 2]
        for column in columns:
            whole = len(column.stems) > 1 and len(two) == 2 and self.reading.is_free(at, at + 2)
            if whole and all(alike(w.stem, s) for w, s in zip(two, column.stems, strict=False)):
                return column
        return None

    def meant(self, word: Word, columns: Sequence[Column]) -> Column | None:
        """The column whose name is nearest in meaning to the word, if near enough."""
        if not columns or not word.content:
            return None
        cosines = self.near(word.low, [" ".join(c.words) for c in columns])
        best = max(range(len(columns)), key=lambda i: cosines[i])
        return columns[best] if cosines[best] >= SYNONYM else None

    def mark(self, column: Column, at: int) -> None:
        """Uses the word at `at`, and those right after it that the column's name holds too."""
        self.reading.use(at, at + 1, strong=True)
        while self.reading.is_free(at + 1, at + 2) and at + 1 < len(self.reading.words):
            at += 1
            word = self.reading.words[at]
            if word.low not in column.words and not any(alike(word.stem, s) for s in column.stems):
                return
            self.reading.use(at, at + 1)
